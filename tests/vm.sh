#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What vm/ says to bad input and does when a VM goes wrong: one line that names
# what was wanted and found, a status, and nothing left that runs on.
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
cd "$top" || exit 1

# expect STATUS PATTERN CMD...: status and the last line of standard error.
expect() {
	local want=$1 pattern=$2 status=0 last
	shift 2
	"$@" > "$scratch/out" 2> "$scratch/err" < /dev/null || status=$?
	last=$(tail -n 1 "$scratch/err")
	if [ "$status" -ne "$want" ]; then
		echo "FAIL: $*: wanted status $want, found $status: $last"
	elif ! grep -qE -- "$pattern" <<< "$last"; then
		echo "FAIL: $*: wanted a last line like '$pattern', found '$last'"
	else
		echo "ok: $*: $last"
		return
	fi
	failed=1
}

# no_vm_left WHEN PATTERN: no QEMU whose command line has PATTERN, soon.
no_vm_left() {
	for _ in $(seq 50); do
		pgrep -f "qemu-system.*$2" > /dev/null || return 0
		sleep 0.1
	done
	echo "FAIL: $1: QEMU still runs: $(pgrep -f "qemu-system.*$2")"
	failed=1
	pkill -f "qemu-system.*$2"
}

for command in build run shell test bench profile broken torture coverage sched-ext; do
	expect 2 "wanted .*, found '--frobnicate'" vm/$command --frobnicate
	command_line=("vm/$command" --kernel 2.4)
	[ $command != run ] || command_line+=(-- true)
	expect 2 "wanted one of: .*found '2.4'" "${command_line[@]}"
	expect 2 "end of the line" vm/$command --kernel
	expect 0 '^$' vm/$command --help
done
expect 2 "wanted bench, debug, rt, up, kcsan or scx; found 'fast'" vm/run --config fast -- true
expect 2 "found 'many'" vm/run --cpus many -- true
expect 2 "found '65'" vm/run --cpus 65 -- true
expect 2 "found 'much'" vm/run --mem much -- true
expect 2 "found 'warp'" vm/run --accel warp -- true
expect 2 "found 'soon'" vm/run --timeout soon -- true
expect 2 'TCG only' vm/run --accel kvm --icount -- true
expect 2 'no command' vm/run
expect 2 "wanted a folder, found '/nowhere'" vm/run --rw /nowhere -- true
expect 2 'wanted 2 or more' vm/bench --cpus 1
expect 1 'folder that can be written' vm/bench --quick --results /proc/results
expect 2 'found a second' vm/test one two

# A guest that works: status, both streams, standard input, the folder.
expect 3 '^to stderr$' vm/run --accel tcg -- sh -c 'echo to stdout; echo to stderr >&2; exit 3'
[ "$(cat "$scratch/out")" = 'to stdout' ] || { echo "FAIL: wanted CMD's output, found '$(cat "$scratch/out")'"; failed=1; }
text=$(SWITCHTO_BACKEND='it'\''s "quoted"' vm/run --accel tcg -- sh -c 'pwd; echo "$SWITCHTO_BACKEND"; printf "%s|" "$@"' sh 'a  b' "it's" '$HOME' 2> /dev/null)
[ "$text" = "$PWD
it's \"quoted\"
a  b|it's|\$HOME|" ] || { echo "FAIL: wanted arguments and environment as they are, found '$text'"; failed=1; }
expect 127 'not found' vm/run --accel tcg -- no-such-program

# Guests that don't.
expect 125 "guest's kernel panicked" vm/run --accel tcg -- sh -c 'echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 60'
expect 124 'not done in 20 s' vm/run --accel tcg --timeout 20 -- sleep 300
no_vm_left 'after the time limit' "$(grep -o 'build/vm/run/[A-Za-z0-9]*' "$scratch/err" | tail -n 1)"

# Of a VM that is up, in the background: who runs it, and its QEMU.
start_vm() {
	rm -f "$scratch/up"
	# A background job ignores SIGINT from its start, which bash can't undo.
	setsid env --default-signal=INT vm/run --accel tcg --rw "$scratch" -- sh -c "touch '$scratch/up'; sleep 300" > /dev/null 2> "$scratch/err" < /dev/null &
	vm_pid=$!
	for _ in $(seq 600); do
		[ ! -e "$scratch/up" ] || break
		sleep 0.2
	done
	[ -e "$scratch/up" ] || { echo "FAIL: the VM did not come up: $(cat "$scratch/err")"; exit 1; }
	qemu_pid=$(cat "$(find build/vm/run -name qemu.pid -newer "$scratch/out" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)")
}

start_vm
kill -9 "$qemu_pid"
status=0
wait "$vm_pid" || status=$?
if [ $status -eq 125 ] && grep -q 'QEMU ended before CMD did' "$scratch/err"; then
	echo "ok: QEMU killed: $(tail -n 1 "$scratch/err")"
else
	echo "FAIL: QEMU killed: wanted status 125 and a line, found $status: $(tail -n 1 "$scratch/err")"
	failed=1
fi

for signal in TERM INT; do
	start_vm
	kill -$signal "$vm_pid"
	status=0
	wait "$vm_pid" || status=$?
	[ $status -ge 128 ] || { echo "FAIL: SIG$signal: wanted a status of 128 and more, found $status"; failed=1; }
	no_vm_left "after SIG$signal" "$scratch"
	echo "ok: SIG$signal ends the VM (status $status)"
done

# A series that does not apply, and a source that is not what it should be: on a
# copy, for the checkout's own trees to stay.
copy=$scratch/copy
mkdir -p "$copy/build/vm"
cp -r kernel vm "$copy/"
stock=$(echo build/vm/linux-*-stock)
cp -al "$stock" "$copy/build/vm/" 2> /dev/null || cp -a "$stock" "$copy/build/vm/"
series=$copy/kernel/patches/6.12
sed -i 's/^-static/-stat1c/; s/^ \/\*$/ \/%/' "$series"/0001-*.patch
expect 1 'applying kernel/patches/6.12: failed .*does not apply.*log: ' "$copy/vm/build"
[ ! -e "$copy/build/vm/linux-6.12-patched" ] || { echo 'FAIL: a half-patched tree was left'; failed=1; }
mkdir "$scratch/source"
printf 'VERSION = 5\nPATCHLEVEL = 4\nSUBLEVEL = 1\n' > "$scratch/source/Makefile"
expect 1 "wanted the source of Linux 6.12, found '5.4.1'" env KERNEL_SRC="$scratch/source" "$copy/vm/build" --stock
expect 1 'wanted the kernel source at /nowhere' env KERNEL_SRC=/nowhere "$copy/vm/build" --stock

exit $failed
