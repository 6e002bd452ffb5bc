# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# How ./check and vm/test run the list of all tests, tests/all/CMakeLists.txt. They source
# this file.

list=$top/build/test/all
log=$top/build/test/log

want_cmake() {
	local found
	found=$(cmake --version 2> /dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
	[ -n "$found" ] || die "wanted cmake 3.25 or newer, found none; install the Debian package cmake"
	[ "$(printf '%s\n' 3.25 "$found" | sort -V | head -n 1)" = 3.25 ] ||
		die "wanted cmake 3.25 or newer, found $found; install the one of Debian 12 or newer, or put another one first in PATH"
}

configure_tests() {
	want_cmake
	need_space 200 "the builds and the tests"
	can_write "$log"
	cmake -S "$top/tests/all" -B "$list" > "$log/cmake.log" 2>&1 ||
		die "configuring the tests: failed: $(grep -m1 -i error "$log/cmake.log"); log: $log/cmake.log"
}

# Prints a line for each test that ends: its seconds, and how many tests are left. Other
# lines of ctest pass through: what a failed test says, and the summary.
progress() {
	local line ended='^ *([0-9]+)/([0-9]+) Test +#[0-9]+: ([^ ]+) [. ]*(\*\*\*)?(.*[^ ])  +([0-9.]+) sec'
	while IFS= read -r line; do
		if [[ $line =~ $ended ]]; then
			printf '%s: %s %s, %s s; %d left\n' "$me" "${BASH_REMATCH[3]}" "${BASH_REMATCH[5],,}" "${BASH_REMATCH[6]}" \
				$((BASH_REMATCH[2] - BASH_REMATCH[1]))
		elif ! [[ $line =~ ^(\ *Start\ +[0-9]+:|Internal ctest|Test project) ]]; then
			printf '%s\n' "$line"
		fi
	done
}

# $status is that of ctest.
run_tests() { # CTEST-OPTION...
	local pid processors=4
	if [ "$(nproc)" -eq 1 ]; then
		processors=2
		say "found one core, wanted two: expect twice the time"
	fi
	rm -f "$log"/*.failed
	{ TEST_RUNNER=$me TEST_PROCESSORS=$processors ctest --test-dir "$list" --output-on-failure --no-tests=error -j $processors "$@" 2>&1 | progress; } &
	pid=$!
	end_with $pid
	status=0
	wait $pid || status=$?
	# ctest shows nothing of a test that passed.
	find "$log" -name '*.log' -newer "$log/cmake.log" -exec grep -HE '^left out: |booting once more|run [0-9] of 3 is void$' {} + |
		sed -E "s,^$log/(.*)\.log:,$me: \1: ," >&2 || true
	# Of a remote run, often only the end is to be had.
	cat "$log"/*.failed >&2 2> /dev/null || true
}
