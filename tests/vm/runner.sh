#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What do vm/test and ./check run, what do they say of it, and of a machine that lacks
# something? With lists of tests that pass or fail on purpose, in a copy.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
mkdir -p "$scratch"/{tests/all,kernel/patches,bin}
cp -r "$top/vm" "$top/check" "$scratch/"
cp -r "$top"/kernel/patches/* "$scratch/kernel/patches/"
cp "$top/tests/all/check.sh" "$scratch/tests/all/"
cd "$scratch" || exit 1
# ./check and vm/test install nothing here, and no kernel is built.
mkdir -p build/vm/linux-6.12-patched

# list 'NAME TIER CODE'...: the tests that there are.
list() {
	local name tier code test
	{
		echo 'cmake_minimum_required(VERSION 3.25)'
		echo 'project(runner LANGUAGES NONE)'
		echo 'enable_testing()'
		for test; do
			read -r name tier code <<< "$test"
			echo "$code" > "tests/all/$name.code"
			echo "add_test(NAME $name COMMAND \${CMAKE_SOURCE_DIR}/check.sh $name sh -e \${CMAKE_SOURCE_DIR}/$name.code)"
			echo "set_tests_properties($name PROPERTIES LABELS \"$tier\")"
		done
	} > tests/all/CMakeLists.txt
}

# expect STATUS PATTERN CMD...: the status, and a line that matches, of both streams.
expect() {
	local want=$1 pattern=$2 status=0
	shift 2
	"$@" > out 2>&1 < /dev/null || status=$?
	if [ "$status" -eq "$want" ] && grep -qE -- "$pattern" out; then
		echo "ok: $*: $(grep -m1 -E -- "$pattern" out)"
		return
	fi
	echo "FAIL: $*: wanted status $want and a line like '$pattern', found $status and: $(tail -n 5 out)"
	failed=1
}

ran() { # NAMES: these tests ended, and no others.
	local found
	found=$(sed -nE 's/^[^ ]*: ([^ ]*) (passed|failed|skipped|not run), [0-9.]+ s; [0-9]+ left$/\1/p' out | sort | tr '\n' ' ')
	[ "$found" = "$1 " ] && return
	echo "FAIL: wanted a line for each of '$1', found '$found'"
	failed=1
}

tests=('style check true' 'suite test true' 'debug full true' 'hours long true')
list "${tests[@]}"
expect 0 '^vm/test: suite passed, [0-9.]+ s; [01] left$' vm/test
ran 'style suite'
expect 0 '^100% tests passed, 0 tests failed out of 3$' vm/test --full
ran 'debug style suite'
expect 0 '^vm/test: passed, ' vm/test --long
ran hours
expect 0 'debug passed' vm/test -R '^debug$'
ran debug
expect 0 '^./check: passed, [0-9]+ s$' ./check
ran style
expect 2 "PART: wanted one of: .*; found 'suite'" ./check suite
expect 2 "wanted a PART, found '--frobnicate'" ./check --frobnicate
expect 8 'No tests were found' vm/test -R nothing
expect 2 "found 'long'; use --long" vm/test -L long
expect 2 "^vm/test: -L: wanted static, host or vm, found 'nosuch'" vm/test -L nosuch
expect 2 "^vm/test: -j: wanted 1 to 99, found '0'" vm/test -j 0
expect 2 "^vm/test: -R: wanted a regular expression, found '\('" vm/test -R '('
expect 2 "^./check: --list: wanted nothing after it, found 'foo'" ./check --list foo
[ -w /dev/kvm ] || expect 1 '^vm/test: --accel kvm: wanted /dev/kvm, ' vm/test --accel kvm

# The last ten lines of a test that fails; the next line is of the one after it.
list 'fails check echo one; echo fails.c: wanted 1, found 2; exit 3' "${tests[@]}"
expect 8 '^[[:space:]]*1 - fails \(Failed\)' vm/test -j 1
grep -B 10 -m 1 '^$' <(sed -n '/^fails: wanted/,$p' out) > last
for pattern in '^fails: wanted status 0 of: sh ' '^fails: found status 3' 'wanted 1, found 2' '^log: build/test/log/fails.log$' \
	"^alone: vm/test -R '\^fails\\$'\$"; do
	grep -qE -- "$pattern" last || { echo "FAIL: wanted '$pattern' among the last lines, found: $(cat last)"; failed=1; }
done
[ "$(wc -l < last)" -le 10 ] || { echo "FAIL: wanted at most ten lines, found: $(cat last)"; failed=1; }
expect 8 "^alone: ./check fails$" ./check fails
list "hangs check echo 'support.c: a case: hangs'; seq 10; false"
expect 8 '^1:support.c: a case: hangs$' ./check
list 'long-x long false'
expect 8 "^alone: vm/test --long --kernel 7.3 -R '\^long-x\\$'$" vm/test --long --kernel 7.3
# A test asks for the names of all.
list 'fails check false' "names check $scratch/vm/test -N"
expect 8 'names passed' vm/test -j 1
sed -n '/^Errors while/,$p' out | grep -q '^fails: found status 1' ||
	{ echo "FAIL: wanted the failure in the last lines, found: $(tail -n 5 out)"; failed=1; }
# A skipped test would be a promise that is not kept.
list 'skips test echo nothing here; exit 77'
expect 8 '^skips: found status 77' vm/test

# A test that passed has begun again.
list 'again test echo run 1 of 3 is void'
expect 0 '^vm/test: again: run 1 of 3 is void$' vm/test

# Is the emulator at fault? lost STATUS LINE...: what the guest's kernel says of stalls.
lost() {
	local want=$1 found=0
	shift
	mkdir -p run
	printf '%s\n' "$@" > run/kernel.log
	# shellcheck disable=SC2034,SC2016
	bash -c '. vm/lib.sh; run=run opt_sleep=on starved=$0; ticks_were_lost 1' "${starved:-}" || found=$?
	[ "$found" -eq "$want" ] || { echo "FAIL: ticks_were_lost: wanted status $want, found $found of: $*"; failed=1; }
}
stall='rcu: INFO: rcu_sched detected stalls on CPUs/tasks:'
lost 0 "$stall" 'rcu: 	0-...!: (1 GPs behind) idle=117c/1/0x4000000000000000 softirq=577/578 fqs=0' 'rcu: INFO: Stall ended during stack backtracing.'
lost 0 "$stall" 'CPU: 0 UID: 0 PID: 0 Comm: swapper/0 Not tainted' 'Call Trace:'
lost 1 "$stall" 'CPU: 1 UID: 0 PID: 90 Comm: test Not tainted' 'Call Trace:'
starved=yes lost 0 "$stall" 'CPU: 1 UID: 0 PID: 90 Comm: test Not tainted' 'Call Trace:'
starved=yes lost 1 'nothing'
lost 1 'nothing'

# Machines that lack something. fake TOOL TEXT: it prints that, whatever it is asked.
fake() {
	printf '#!/bin/sh\ncat << "END"\n%s\nEND\n' "$2" > "bin/$1"
	chmod +x "bin/$1"
}
list "${tests[@]}"
with_fake=(env "PATH=$scratch/bin:$PATH")
fake cmake 'cmake version 3.18.4'
expect 1 '^./check: wanted cmake 3.25 or newer, found 3.18.4; install ' "${with_fake[@]}" ./check
expect 1 '^vm/test: wanted cmake 3.25 or newer, found 3.18.4; install ' "${with_fake[@]}" vm/test
rm bin/cmake
fake dpkg-query ''
expect 1 '^./check: wanted the Debian packages: .*cmake .*; install them: sudo apt-get' "${with_fake[@]}" ./check
rm bin/dpkg-query
one_core=(taskset -c "$(taskset -cp $$ | sed 's/.*[^0-9]//')")
expect 0 '^vm/test: found one core, wanted two: expect twice the time$' "${one_core[@]}" vm/test
expect 0 '^./check: found one core, wanted two: expect twice the time$' "${one_core[@]}" ./check
fake df 'Filesystem 1M-blocks Used Available
disk 1 1 100'
expect 1 '^./check: wanted 200 MB free for .*, found 100 MB' "${with_fake[@]}" ./check
expect 1 '^vm/test: wanted 200 MB free for .*, found 100 MB' "${with_fake[@]}" vm/test -N
expect 1 '^vm/test: wanted 1500 MB free for .*, found 100 MB' "${with_fake[@]}" vm/test
rmdir build/vm/linux-6.12-patched
expect 1 '^vm/test: wanted 7000 MB free for .*, found 100 MB' "${with_fake[@]}" vm/test
rm bin/df
mv build/test/log saved
touch build/test/log
expect 1 '^./check: wanted to write .*/build/test/log, can.t; ' ./check
[ "$(wc -l < out)" -eq 1 ] || { echo "FAIL: wanted one line, found: $(cat out)"; failed=1; }
rm build/test/log
mv saved build/test/log
echo 'Dir::Etc { sourceparts "/nowhere"; sourcelist "/nowhere"; };' > apt.conf
expect 1 '^vm/build: wanted linux-source-7.3, found none .*; set KERNEL_SRC_7_3 to ' env APT_CONFIG="$scratch/apt.conf" vm/build --kernel 7.3

exit $failed
