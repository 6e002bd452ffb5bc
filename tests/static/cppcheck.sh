#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# cppcheck on the library and the tools.
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

want_tool cppcheck cppcheck
want_tracked 'libswitchto/*.c' 'tools/*.c' 'examples/*.c'

# System headers are not read: cppcheck knows the C library without them. Not
# --library=posix: what it knows is wrong for Linux (mmap()'s -1, readdir_r()).
# variableScope: declarations stand at the top of a function, as in the kernel.
cppcheck --quiet -j "$(nproc)" --enable=warning,style,performance,portability --error-exitcode=1 --inline-suppr \
	--std=c11 --platform=unix64 -D_GNU_SOURCE -D__x86_64__=1 -D__LP64__=1 -D__linux__=1 -Ilibswitchto/include \
	--suppress=variableScope "${tracked[@]}" ||
	die "cppcheck found the above; correct it, or argue it away with a comment: // cppcheck-suppress NAME"
