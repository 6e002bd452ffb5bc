#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: gdb.sh SWITCHTO.PY PROGRAM... [-- TASKS...]
# gdb's command "switchto threads" on each PROGRAM, which is parked.c, and "switchto tasks" and
# "switchto slots" on each of TASKS, which is tasks.c: in a process, in a core file, and without
# debug information. In the last one of each, the libraries are static.
set -eu

fail() {
	echo "gdb.sh: $*" >&2
	[ ! -e "$work/out" ] || cat "$work/out" >&2
	exit 1
}

skip() {
	echo "gdb.sh: $*, skipped"
	exit 77
}

command -v gdb >/dev/null || skip "wanted gdb, found none"
script=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

debug() { # ARGUMENT... in $work/out: what gdb says
	gdb -q -nx -batch -ex "source $script" "$@" </dev/null >"$work/out" 2>&1 || true
}

debug -ex "run" --args /bin/true
grep -q "exited normally" "$work/out" || skip "wanted a gdb that may run programs, found: $(cat "$work/out")"

# A core file does not hold the names.
wanted() { # TID STATE IN
	grep -Eq "^ +$1 +[0-9]+  (worker|parked_[a-z]+)? +$2  $3" "$work/out" ||
		fail "wanted TID $1 to be '$2' in '$3', found:"
}

check_list() {
	wanted "$by_main" "running +" "stop_here at parked.c:"
	wanted "$waiting" "parked +" "wait_here at parked.c:"
	wanted "$timed" "parked +" "wait_with_timeout at parked.c:"
	wanted "$switching" "parked +" "switch_here at parked.c:"
	wanted "$resumed" "resumed by $by_main *" "wait_here at parked.c:"
	wanted "$busy" "running, resume by $by_main pending" ""
	wanted "$stranger" "unregistered, resume by $by_main pending" ""
	grep -q "^3 parked, 1 resumed, 2 running, 1 unregistered$" "$work/out" ||
		fail "wanted other totals, found:"
}

# "$@" without what has been looked at
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	program=$1
	shift
	core=$work/core
	# What gdb calls is done by main alone; so `resumed` does not get to run.
	debug -ex "break stop_here" -ex "run" -ex "set scheduler-locking on" \
		-ex "print (int)switchto_resume(resumed)" -ex "switchto threads" \
		-ex "generate-core-file $core" \
		-ex 'printf "TIDs %d %d %d %d", by_main, waiting, timed, switching' \
		-ex 'printf " %d %d %d\n", resumed, busy, stranger' \
		-ex "kill" "$program"
	read -r by_main waiting timed switching resumed busy stranger <<-END
		$(sed -n 's/^TIDs //p' "$work/out")
	END
	check_list

	debug -ex "switchto threads" "$program" "$core"
	check_list

	debug -ex "switchto threads -bt $switching" "$program" "$core"
	wanted "$switching" "parked +" "switch_here at parked.c:"
	grep -Eq "^#[1-9].* switch_here " "$work/out" || fail "wanted a backtrace of TID $switching, found:"
	grep -q "^1 parked$" "$work/out" || fail "wanted one thread, found:"

	# The selected thread stays selected.
	# shellcheck disable=SC2016
	debug -ex "thread 2" -ex "switchto threads" -ex 'printf "selected=%d\n", $_thread' "$program" "$core"
	grep -q "^selected=2" "$work/out" || fail "wanted thread 2 to stay selected, found:"
done

cp "$program" "$work/stripped"
strip -g "$work/stripped"
debug -ex "switchto threads" "$work/stripped" "$core"
grep -q "wanted debug information of libswitchto" "$work/out" || fail "wanted to hear of debug information, found:"

debug -ex "switchto threads" /bin/true
grep -q "wanted a process or a core file" "$work/out" || fail "wanted to hear of no process, found:"

[ $# -gt 1 ] || exit 0
shift

# Those of parked.c have no tasks.
debug -ex "switchto tasks" "$program" "$core"
grep -q "wanted a program that uses libswitchto-sched" "$work/out" || fail "wanted to hear of no tasks, found:"

wanted_task() { # TID STATE IN
	grep -Eq "^ +$1 +[0-9]*    0  $2 +$3 at tasks.c:[0-9]+$" "$work/out" ||
		fail "wanted the task of TID $1 to be '$2' in '$3', found:"
}

check_tasks() { # HOW-LONG
	wanted_task "$running" "running, unpark pending" stop_here
	wanted_task "$parked" "parked" park_here
	wanted_task "$sleeping" "waits, $1" sleep_here
	wanted_task "$reading" "waits to read fd $fd, $1" read_here
	wanted_task "$locking" "waits" lock_here
	wanted_task "$ready" "ready" get_ready_here
	wanted_task "" "ready" begin_here # it has no thread yet
	wanted_task "$blocked" "in a blocking region, lost its slot, cancelled" block_here
	wanted_task "$stuck" "running, lost its slot" get_stuck_here
	grep -q "^1 blocking, 1 parked, 2 ready, 2 running, 3 waiting$" "$work/out" ||
		fail "wanted other totals of tasks, found:"
	wanted_slot "$running" "runs run_here" 1
}

wanted_slot() { # TID DOES INBOX
	grep -Eq "^ +0 +$1 +[0-9]+  $2 +$3 +2 +[0-9]+$" "$work/out" ||
		fail "wanted the slot of TID $1 with '$2', $3 in its inbox and 2 deadlines, found:"
}

for program; do
	# The monitor, which is no task and never gives way, unparks `ready`, so that is in the inbox.
	debug -ex "break stop_here" -ex "run" -ex "set scheduler-locking on" \
		-ex "thread 2" -ex "print (int)switchto_unpark(to_unpark)" -ex "switchto tasks" -ex "switchto slots" \
		-ex "generate-core-file $core" \
		-ex 'printf "TIDs %d %d %d %d", running, parked, sleeping, reading' \
		-ex 'printf " %d %d %d %d %d\n", locking, ready, blocked, stuck, pipe_fds[0]' \
		-ex "set scheduler-locking off" -ex "watch sched->slot[0].asleep" -ex "continue" \
		-ex "echo polling" -ex "switchto slots" -ex "kill" "$program"
	read -r running parked sleeping reading locking ready blocked stuck fd <<-END
		$(sed -n 's/^TIDs //p' "$work/out")
	END
	check_tasks "9[0-9]{5} ms left"
	sed -i '1,/^polling/d' "$work/out"
	wanted_slot '[0-9]+' polls 0

	debug -ex "switchto tasks" -ex "switchto slots" "$program" "$core"
	check_tasks "until [0-9]+.[0-9]{3} s"

	debug -ex "switchto tasks -bt $reading" "$program" "$core"
	grep -Eq "^#[1-9].* read_here " "$work/out" || fail "wanted a backtrace of TID $reading, found:"
	grep -q "^1 waiting$" "$work/out" || fail "wanted one task, found:"

	debug -iex "set libthread-db-search-path $work" -ex "switchto tasks" "$program" "$core"
	grep -q "wanted thread-local variables" "$work/out" || fail "wanted to hear of libthread_db, found:"
done

cp "$program" "$work/stripped"
strip -g "$work/stripped"
debug -ex "switchto slots" "$work/stripped" "$core"
grep -q "wanted debug information of libswitchto-sched" "$work/out" || fail "wanted to hear of debug information, found:"
