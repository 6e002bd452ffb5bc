#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: probes.sh CC LIBSWITCHTO LIBRARY DOOR-LIBRARY [SCHEDULER-LIBRARY]
# Are the static probes there, and do they add nothing but a nop each to a switch? CC
# compiles the source in the folder LIBSWITCHTO. The libraries have the probes, too.
set -eu

fail() {
	echo "probes.sh: $*" >&2
	exit 1
}

skip() {
	echo "probes.sh: $*, skipped"
	exit 77
}

cc=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for tool in readelf objdump; do
	command -v $tool >/dev/null || skip "wanted $tool (binutils), found none"
done
echo '#include <sys/sdt.h>' | "$cc" -E - >/dev/null 2>&1 ||
	skip "wanted <sys/sdt.h> (systemtap-sdt-dev), found none"

build() { # NAME SOURCE OPTION...
	name=$1
	from=$2
	shift 2
	"$cc" -std=c11 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Wpedantic -Wno-unused-parameter -Werror \
		-I"$source/include" "$@" -c "$source/src/$from" -o "$work/$name.o"
}
build without core/switchto.c
build with core/switchto.c -DSWITCHTO_PROBES
build without_sched sched/dispatch.c
build with_sched sched/dispatch.c -DSWITCHTO_PROBES

# The probes of PROVIDER in FILE are those of the standard input, each with its number of arguments.
check_probes() { # PROVIDER FILE
	readelf -n "$2" >"$work/notes"
	awk -v provider="$1" '/^ +Provider:/ { ours = $2 == provider }
	     ours && /^ +Name:/ { name = $2 }
	     ours && /^ +Arguments:/ { print name, NF - 1 }' "$work/notes" | sort -u >"$work/found"
	diff - "$work/found" || fail "wanted these probes of $1 in $2 (<), found those (>)"
	! grep "Semaphore: 0x0*[1-9a-f]" "$work/notes" || fail "wanted no semaphore in $2, found the above"
}
for file in "$work/with.o" "$3"; do
	check_probes switchto "$file" <<-END
		resume 1
		switch 1
		wait 0
		wait_return 1
	END
done
check_probes switchto "$4" <<-END
	door_call 1
	door_reply 1
END
[ -z "${5-}" ] || check_probes switchto_sched "$5" <<-END
	block_begin 0
	block_end 0
	poll 2
	ready 2
	retake 2
	run 2
	sleep 2
	task_begin 1
	task_end 1
END

# The instructions of a function, without those that do nothing, and without addresses.
instructions() { # NAME FUNCTION
	objdump -d --no-show-raw-insn --no-addresses "$work/$1.o" |
		awk -v start="<$2>:" '$0 == start { inside = 1; next } /^<.*>:$/ { inside = 0 } inside' |
		sed 's/<[^>]*>//; s/#.*//; /^\t*\(nop\|xchg  *%ax,%ax$\|data16\|cs nop\)/d; /^$/d' >"$work/$1"
}

count() { # FUNCTION [SUFFIX]
	instructions "without${2-}" "$1"
	instructions "with${2-}" "$1"
	echo "$1: $(wc -l <"$work/without${2-}") instructions, $(wc -l <"$work/with${2-}") with probes, without nops"
	[ -s "$work/with${2-}" ] || fail "wanted the instructions of $1, found none"
}
count switchto_wait
count switchto_resume
count switchto_switch
diff "$work/without" "$work/with" || fail "wanted switchto_switch to differ by nops, found the above"
# The same instructions, but some in another order, and with other registers.
count switchto_dispatch _sched
for name in without with; do
	sed 's/%[a-z0-9]*/%/g; s/\<0x0(/(/' "$work/${name}_sched" | sort >"$work/$name"
done
diff "$work/without" "$work/with" || fail "wanted switchto_dispatch to differ by nops, found the above"
