#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: selftests.sh DIR [OPTION ...]
# Runs the kernel selftests of FUTEX_SWAP, all programs DIR/futex_swap*, with OPTIONs of
# the kselftest harness (-t NAME: only that test). For use in a VM: it makes a control
# group, and sets the FEATURES of the scheduler that the environment names. Exit status: 0
# if all passed, 1 if one failed or if no test has such a name.
dir=$1
shift

# Keep a group with a quota all the time: the first quota and the end of the last one
# patch the scheduler's code (see tests/torture/meddle.c). That should not happen again
# and again amid the tests.
cd /sys/fs/cgroup && echo +cpu > cgroup.subtree_control && mkdir quota || exit 1
[ ! -e quota/cpu.max ] || echo 10000 10000 > quota/cpu.max || exit 1

for feature in $FEATURES; do
	echo "$feature" > /sys/kernel/debug/sched/features ||
		{ echo "selftests.sh: wanted to set $feature, can't; is CONFIG_SCHED_DEBUG off?"; exit 1; }
done

status=0 run=0
for program in "$dir"/futex_swap*; do
	[ -f "$program" ] && [ -x "$program" ] || continue
	echo "# $(basename "$program")"
	{ "$program" "$@" 2>&1; echo $? > /tmp/status; } | tee /tmp/selftest
	result=$(cat /tmp/status)
	# 4: all tests of the program were skipped.
	[ "$result" -eq 0 ] || [ "$result" -eq 4 ] || status=1
	run=$((run + $(grep -cE '^(not )?ok ' /tmp/selftest)))
done
[ $run -gt 0 ] || { echo "selftests.sh: wanted tests to run with '$*', found none in $dir"; status=1; }
exit $status
