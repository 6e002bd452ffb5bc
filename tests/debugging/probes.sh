#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: probes.sh CC LIBSWITCHTO [LIBRARY]
# Are the static probes there, and do they add nothing but a nop each to a switch? CC
# compiles the source in the folder LIBSWITCHTO. LIBRARY has the probes, too.
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

build() { # NAME OPTION...
	name=$1
	shift
	"$cc" -std=c11 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Wpedantic -Werror \
		-I"$source/include" "$@" -c "$source/src/switchto.c" -o "$work/$name.o"
}
build without
build with -DSWITCHTO_PROBES

# Each probe, and how many arguments it has.
cat >"$work/wanted" <<-END
	resume 1
	switch 1
	wait 0
	wait_return 1
END
for file in "$work/with.o" ${3:+"$3"}; do
	readelf -n "$file" >"$work/notes"
	awk '/^ +Provider:/ { ours = $2 == "switchto" }
	     ours && /^ +Name:/ { name = $2 }
	     ours && /^ +Arguments:/ { print name, NF - 1 }' "$work/notes" | sort -u >"$work/found"
	diff "$work/wanted" "$work/found" || fail "wanted these probes in $file (<), found those (>)"
	! grep "Semaphore: 0x0*[1-9a-f]" "$work/notes" || fail "wanted no semaphore in $file, found the above"
done

# The instructions of a function, without those that do nothing, and without addresses.
instructions() { # NAME FUNCTION
	objdump -d --no-show-raw-insn --no-addresses "$work/$1.o" |
		awk -v start="<$2>:" '$0 == start { inside = 1; next } /^<.*>:$/ { inside = 0 } inside' |
		sed 's/<[^>]*>//; s/#.*//; /^\t*\(nop\|xchg  *%ax,%ax$\|data16\|cs nop\)/d; /^$/d' >"$work/$1"
}

for function in switchto_switch switchto_wait switchto_resume; do
	instructions without $function
	instructions with $function
	echo "$function: $(wc -l <"$work/without") instructions, $(wc -l <"$work/with") with probes, without nops"
	[ $function = switchto_switch ] || continue
	[ -s "$work/with" ] || fail "wanted the instructions of $function, found none"
	diff "$work/without" "$work/with" || fail "wanted $function to differ by nops, found the above"
done
