#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: tidy.sh [--short]
# clang-tidy: on the library with the checks of .clang-tidy, on tests and tools
# with those that find mistakes. --short: without the analyzer, which takes nine tenths of the time.
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

# Off for programs:
#   readability-*, performance-no-int-to-ptr, clang-analyzer-optin.performance.*
#   bugprone-branch-clone, cert-dcl16-c, cert-int09-c, misc-no-recursion
#   misc-use-internal-linkage
#	style, or speed; no matter there
#   bugprone-implicit-widening-of-multiplication-result
#	of numbers of threads, pages and rounds, which are small
#   bugprone-macro-parentheses
#	an argument that is a declarator or an initializer can't have them
#   bugprone-multi-level-implicit-pointer-conversion
#	cmocka's void **state is one
#   bugprone-narrowing-conversions
#	sysconf() returns a long, a number of CPUs is an int
#   bugprone-not-null-terminated-result
#	memcpy() of what is no string
#   bugprone-signed-char-misuse, cert-str34-c
#	CHECK_EQ() of a letter of /proc and a letter
#   bugprone-suspicious-string-compare
#	!strcmp() is how C says it
#   bugprone-unused-return-value
#	of a call that a fuzzer makes, whatever comes of it
#   cert-err34-c
#	atol() of what this program or the kernel wrote
#   cert-pos47-c, concurrency-thread-canceltype-asynchronous
#	the tests check that the library survives it
#   clang-analyzer-security.cert.env.InvalidPtr
#	strerror() of glibc stays valid over a second one
#   clang-analyzer-unix.Errno
#	doesn't see that allowed(call(), ...) looks at errno after the call
#   clang-analyzer-unix.Malloc
#	what main() leaves allocated ends with the process
off='readability-*
	bugprone-branch-clone
	bugprone-implicit-widening-of-multiplication-result
	bugprone-macro-parentheses
	bugprone-multi-level-implicit-pointer-conversion
	bugprone-narrowing-conversions
	bugprone-not-null-terminated-result
	bugprone-signed-char-misuse
	bugprone-suspicious-string-compare
	bugprone-unused-return-value
	cert-dcl16-c
	cert-err34-c
	cert-int09-c
	cert-pos47-c
	cert-str34-c
	clang-analyzer-optin.performance.*
	clang-analyzer-security.cert.env.InvalidPtr
	clang-analyzer-unix.Errno
	clang-analyzer-unix.Malloc
	concurrency-thread-canceltype-asynchronous
	misc-no-recursion
	misc-use-internal-linkage
	performance-no-int-to-ptr'

short=''
[ "${1:-}" != --short ] || short=',-clang-analyzer-*'
want_tool clang-tidy clang-tidy
want_tracked 'libswitchto/src/*.c' 'tests/*.c' 'tools/*.c' 'examples/*.c'
want_work

# One process per file: given several, clang-tidy 14 finds every va_list of the second
# file uninitialized. No build folder: CMake would add only these options.
tidy() { # FILE
	local checks=$short options=(-std=c11 -Wall -Wextra -Wpedantic -Wno-unused-parameter -Ilibswitchto/include)
	case $1 in
	libswitchto/*) ;;
	*)
		# shellcheck disable=SC2086
		checks=$(set -f && printf -- '-%s,' $off)$short
		# The torture looks into the library, and its other half is one with hooks.
		options+=(-D_GNU_SOURCE -Ilibswitchto/src -Itests/support -Itools/packet-server)
		case $1 in
		tests/suite/delay_points.c | tests/suite/door.c | tests/fuzz/door.c | tests/sched/failures.c | tests/sched/windows.c) options+=(-DSWITCHTO_DELAY_POINTS) ;;
		tests/sched/trace.c) options+=('-DTRACE_TOOL="switchto-trace"') ;;
		tests/sched/top.c) options+=('-DTOP_TOOL="switchto-top"') ;;
		esac
		;;
	esac
	# shellcheck disable=SC2207
	[ "$1" != examples/sched/glib.c ] || options+=($(pkg-config --cflags glib-2.0 | sed 's/-I/-isystem/g'))
	clang-tidy --quiet ${checks:+"--checks=${checks#,}"} "$1" -- "${options[@]}" > "$work/${1//\//_}" 2>&1 || {
		cat "$work/${1//\//_}"
		return 1
	}
}

status=0 jobs=0
for f in "${tracked[@]}"; do
	# One more than CPUs would only wait.
	if [ $jobs -ge "$(nproc)" ]; then
		wait -n || status=1
		jobs=$((jobs - 1))
	fi
	tidy "$f" &
	jobs=$((jobs + 1))
done
while [ $jobs -gt 0 ]; do
	wait -n || status=1
	jobs=$((jobs - 1))
done
[ $status -eq 0 ] || die "clang-tidy found the above; correct it, or argue it away with a comment: // NOLINT(NAME)"
