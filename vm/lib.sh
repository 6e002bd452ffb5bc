# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What the commands in vm/ share. They source this file. It sources the parts in vm/lib/,
# each named for what it does. State is kept under build/ of the checkout:
#
#	build/vm/venv/			virtme-ng
#	build/vm/linux-VER-stock/	the kernel source, obj-CONFIG/ inside
#	build/vm/linux-VER-patched/	the same with kernel/patches/VER/ applied, and kernel/selftests/
#	build/vm/root-ARCH/		the root file system of another architecture
#	build/vm/log/			one log per step
#
# An object folder for arm64 is named obj-CONFIG-arm64.
#
# A step writes beside its target and renames at the end. So a target that exists is whole,
# and an interrupted step is done again.

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
vm=$top/build/vm
me=${me:-vm/$(basename "$0")}

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$*"; exit 1; }
usage_error() { say "$*; see $me --help"; exit 2; }

. "$top/vm/lib/setup.sh"
. "$top/vm/lib/arch.sh"
. "$top/vm/lib/options.sh"
. "$top/vm/lib/kernel.sh"
. "$top/vm/lib/boot.sh"
