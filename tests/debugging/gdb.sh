#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: gdb.sh SWITCHTO.PY PROGRAM...
# gdb's command "switchto threads" on each PROGRAM, which is parked.c: in a process, in a
# core file, and without debug information. In the last PROGRAM the library is static.
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

for program; do
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
