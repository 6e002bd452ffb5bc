#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Which failed tests does vm/test run again, and what does it say of them? With lists of
# tests that fail on purpose.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
mkdir -p "$scratch"/{tests/all,kernel/patches}
cp -r "$top/vm" "$scratch/"
cp -r "$top/kernel/patches/6.12" "$scratch/kernel/patches/"
cp "$top/tests/all/check.sh" "$scratch/tests/all/"
out=$scratch/build/test

# list 'NAME LABEL CODE'...: the tests that vm/test finds. CODE fails the first time with
# $once, always with false, never with true.
list() {
	local name label code
	rm -rf "$scratch"/tests/all/*.sh.*
	{
		echo 'cmake_minimum_required(VERSION 3.25)'
		echo 'project(again LANGUAGES NONE)'
		echo 'enable_testing()'
		for test; do
			read -r name label code <<< "$test"
			echo "$code" > "$scratch/tests/all/$name.code"
			echo "add_test(NAME $name COMMAND \${CMAKE_SOURCE_DIR}/check.sh $name sh -e \${CMAKE_SOURCE_DIR}/$name.code)"
			echo "set_tests_properties($name PROPERTIES LABELS \"$label\")"
		done
	} > "$scratch/tests/all/CMakeLists.txt"
	rm -f "$scratch"/tests/all/*.ran
}
# shellcheck disable=SC2016 # for the shell that runs CODE
once='echo "$0"; [ -e "$0.ran" ] || { touch "$0.ran"; exit 1; }'

# expect STATUS LAST RUNS [OPTION...]: the status and the last line of vm/test, and how often
# ctest ended.
expect() {
	local status=0 last runs
	"$scratch/vm/test" "${@:4}" > "$scratch/text" 2>&1 < /dev/null || status=$?
	last=$(tail -n 1 "$scratch/text")
	runs=$(grep -c 'tests passed, .* tests failed out of' "$scratch/text")
	if [ "$status" -ne "$1" ] || ! grep -qE -- "$2" <<< "$last" || [ "$runs" -ne "$3" ]; then
		echo "FAIL: wanted status $1, a last line like '$2', $3 runs of ctest; found $status, '$last', $runs:"
		cat "$scratch/text"
		failed=1
	else
		echo "ok: status $status, $runs runs: $last"
	fi
}

# holds WHAT CMD...
holds() {
	"${@:2}" || { echo "FAIL: wanted $1"; failed=1; }
}

nothing='Errors while running CTest'
passed='vm/test: passed only when run again, alone'

list 'one host true' "two vm $once" 'three host true' 'four vm,long false'
expect 0 "^$passed: two; first logs: build/test/log.first$" 2
holds 'the log of the first run' [ -s "$out/log.first/two.log" ]
holds 'the log of the second run' [ -s "$out/log/two.log" ]
holds 'only the failed test to run again' grep -q '^100% tests passed, 0 tests failed out of 1$' "$scratch/text"
holds 'a report of the first run' grep -q 'tests="3"' "$out/junit.xml"
holds 'a report of the second run' grep -q 'tests="1"' "$out/junit.again.xml"
expect 0 '^Total Test time' 1
holds 'no log of an earlier run' [ ! -e "$out/log.first" ]

list "one host $once" 'two vm false' "three vm $once"
expect 8 "^$passed: one three; first logs: " 2
expect 8 "$nothing" 2 --rerun-failed
holds 'only the failed test to run' grep -q '^0% tests passed, 1 tests failed out of 1$' "$scratch/text"
list "one host $once" 'two vm false'
expect 0 "^$passed: one; " 2 -R one
expect 8 "$nothing" 0 -R no-such-test

list "one host $once" "two host $once" "three host $once" "four host $once"
expect 8 "$nothing" 1
list "one static $once" "two host $once"
expect 8 "$nothing" 1
for fault in 'kernel.log: [   12.3] BUG: unable to handle page fault' 'WARNING: possible circular locking' \
	'==1==ERROR: AddressSanitizer: heap-use-after-free' 'a.c:1:2: runtime error: signed integer overflow' \
	'ERROR: LeakSanitizer: detected memory leaks' 'torture: BROKEN: a token is lost'; do
	list "one vm echo '$fault'; $once" "two host $once"
	expect 8 "$nothing" 1
done

exit $failed
