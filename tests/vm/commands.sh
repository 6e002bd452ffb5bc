#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# How vm/ reacts to bad input and to a VM that fails: one line that names what
# was wanted and found, an exit status, and no process left.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd)
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

# no_vm_left WHEN PATTERN: soon no QEMU has PATTERN in its command line.
no_vm_left() {
	# An empty pattern would be every VM of this machine.
	[ -n "$2" ] || { echo "FAIL: $1: wanted the folder of a run in the last message, found none"; failed=1; return; }
	for _ in $(seq 600); do
		pgrep -f "qemu-system.*$2" > /dev/null || return 0
		sleep 0.1
	done
	echo "FAIL: $1: QEMU still runs: $(pgrep -f "qemu-system.*$2")"
	failed=1
	pkill -f "qemu-system.*$2"
}

for command in build run shell test bench profile broken torture coverage sched-ext adopt; do
	expect 2 "wanted .*, found '--frobnicate'" vm/$command --frobnicate
	command_line=("vm/$command" --kernel 2.4)
	[ $command != run ] || command_line+=(-- true)
	expect 2 "wanted one of: .*found '2.4'" "${command_line[@]}"
	expect 2 "end of the line" vm/$command --kernel
	expect 0 '^$' vm/$command --help
done
expect 2 "wanted bench, debug, rt, preempt, up, net, kcsan, scx or 64k; found 'fast'" vm/run --config fast -- true
[ "$(uname -m)" = aarch64 ] || expect 2 "64k: wanted --arch arm64" vm/run --config 64k -- true
expect 2 "wanted arm64, or .*found 'mips'" vm/run --arch mips -- true
expect 2 "found 'many'" vm/run --cpus many -- true
expect 2 "found '65'" vm/run --cpus 65 -- true
expect 2 "found 'much'" vm/run --mem much -- true
expect 2 "found 'warp'" vm/run --accel warp -- true
expect 2 "found 'soon'" vm/run --timeout soon -- true
expect 2 'TCG only' vm/run --accel kvm --icount -- true
expect 2 'wanted --icount with it' vm/run --real-sleep -- true
expect 2 'no command' vm/run
expect 2 "wanted a folder, found '/nowhere'" vm/run --rw /nowhere -- true
expect 2 'which is for the VM' vm/build --deb --stock
expect 2 'wanted --deb with it' vm/build --config-file x
expect 1 'kernel configuration at /nowhere' vm/build --deb --config-file /nowhere
expect 2 'wanted 2 or more' vm/bench --cpus 1
expect 1 'folder that can be written' vm/bench --quick --results /proc/results
expect 2 'end of the line' vm/test -R
expect 2 "wanted one of: .*systemc.*; found 'nothing'" vm/adopt nothing
expect 2 "found 'often'" vm/adopt --rounds often systemc
expect 2 'wanted a VERSION and at most one DIR, found 0' kernel/export
expect 2 "wanted one of: .*found '2.4'" kernel/export 2.4
expect 2 'wanted an empty or a new folder, found files in vm' kernel/export 6.12 vm

# A guest that works: status, both streams, standard input, the folder.
expect 3 '^to stderr$' vm/run --accel tcg -- sh -c 'echo to stdout; echo to stderr >&2; exit 3'
[ "$(cat "$scratch/out")" = 'to stdout' ] || { echo "FAIL: wanted CMD's output, found '$(cat "$scratch/out")'"; failed=1; }
text=$(echo input | SWITCHTO_BACKEND='it'\''s "quoted"' vm/run --accel tcg -- sh -c 'pwd; echo "$SWITCHTO_BACKEND"; cat; printf "%s|" "$@"' sh 'a  b' "it's" '$HOME' 2> /dev/null)
[ "$text" = "$PWD
it's \"quoted\"
input
a  b|it's|\$HOME|" ] || { echo "FAIL: wanted arguments, environment and standard input as they are, found '$text'"; failed=1; }
expect 127 'not found' vm/run --accel tcg -- no-such-program

# Guests that fail.
expect 125 "guest's kernel panicked" vm/run --accel tcg -- sh -c 'echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 60'
expect 124 'not done in 20 s' vm/run --accel tcg --timeout 20 -- sleep 300
no_vm_left 'after the time limit' "$(grep -o 'build/vm/run/[A-Za-z0-9]*' "$scratch/err" | tail -n 1)"

# Starts a VM in the background. Sets $vm_pid and $qemu_pid.
start_vm() {
	rm -f "$scratch/up"
	# A background job ignores SIGINT from its start, which bash can't undo.
	setsid env --default-signal=INT vm/run --accel tcg --rw "$scratch" -- sh -c "touch '$scratch/up'; sleep 300" > /dev/null 2> "$scratch/err" < /dev/null &
	vm_pid=$!
	for _ in $(seq 3000); do
		[ ! -e "$scratch/up" ] || break
		sleep 0.2
	done
	[ -e "$scratch/up" ] || { echo "FAIL: the VM did not come up: $(cat "$scratch/err")"; exit 1; }
	# By its folder: other VMs may run.
	qemu_pid=$(pgrep -f "qemu-system.*$scratch")
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

# A series that does not apply, and the source of another version: on a copy, to
# keep the checkout's own trees.
copy=$scratch/copy
mkdir -p "$copy/build/vm"
cp -r kernel vm "$copy/"
stock=build/vm/linux-6.12-stock
cp -al "$stock" "$copy/build/vm/" 2> /dev/null || cp -a "$stock" "$copy/build/vm/"
series=$copy/kernel/patches/6.12
sed -i 's/^ ./ %/' "$series"/0001-*.patch # no line of context is in the source
expect 1 'applying kernel/patches/6.12: failed .*does not apply.*log: ' "$copy/vm/build"
[ ! -e "$copy/build/vm/linux-6.12-patched" ] || { echo 'FAIL: a half-patched tree was left'; failed=1; }
mkdir "$scratch/source"
printf 'VERSION = 5\nPATCHLEVEL = 4\nSUBLEVEL = 1\n' > "$scratch/source/Makefile"
expect 1 "wanted the source of Linux 6.12, found '5.4.1'" env KERNEL_SRC="$scratch/source" "$copy/vm/build" --stock
expect 1 'wanted the kernel source at /nowhere' env KERNEL_SRC=/nowhere "$copy/vm/build" --stock

# Programs of others: one of two releases whose source changed, that does not build, that can't
# be had.
cp -r CMakeLists.txt adopters libswitchto tools "$copy/"
mkdir -p "$copy/adopters/fake" "$copy/build/adopt/fake/fetched/source"
printf '%s\n' 'deb older 1 bookworm' 'deb fake 1 bookworm' > "$copy/adopters/fake/source"
echo 'fake 1 ' > "$copy/build/adopt/fake/fetched/.id"
printf '%s\n' '--- a/file' '+++ b/file' '@@ -1 +1 @@' -old +new > "$copy/adopters/fake/switchto.patch"
cat > "$copy/adopters/fake/build.sh" << 'END'
title='Fake 1'
packages='' variants=unpatched release=${RELEASE:-fake}
build() { echo 'error: fake.h: not found'; return 1; }
END
expect 1 'adopters/fake/source: wanted a line with newest, found none' env RELEASE=newest "$copy/vm/adopt" fake
echo newer > "$copy/build/adopt/fake/fetched/source/file"
expect 1 'switchto.patch: failed .*does not apply.*refresh it; log: ' "$copy/vm/adopt" fake
echo old > "$copy/build/adopt/fake/fetched/source/file"
expect 1 'building Fake 1, unpatched: failed .*fake.h: not found; log: ' "$copy/vm/adopt" fake
rm -r "$copy/build/adopt/fake/fetched"
echo 'Dir::Etc { sourceparts "/nowhere"; sourcelist "/nowhere"; };' > "$scratch/apt.conf"
expect 1 "fetching the source of fake 1: failed .*wanted a Debian mirror among apt's sources, found none" env APT_CONFIG="$scratch/apt.conf" "$copy/vm/adopt" fake
APT_CONFIG=$scratch/apt.conf "$copy/vm/adopt" --list > "$scratch/list"
grep -q '^fake .*Fake 1, not here: wanted a Debian mirror' "$scratch/list" ||
	{ echo 'FAIL: vm/adopt --list: wanted a reason why fake can not run here'; failed=1; }

# Tables of broken variants, with faults: LINE... after the first four, on a tree of one file.
mkdir "$scratch/tree"
printf '%s\n' 'static int f(int a)' '{' '	if (a) {' '		a++;' '		a++;' '	}' '' '	return a;' '}' \
	'' 'int g(int a)' '{' '	return a;' '}' > "$scratch/tree/f.c"
variants=$scratch/variants
# shellcheck disable=SC2317 # called by expect
check_table() {
	printf '%s\n' '[one]' 'Owed: much' 'Broken: all' 'Caught by: test' "$@" > "$variants"
	tests/broken/variants.py --kernel 7.3 "$variants" check "$scratch/tree"
}
expect 0 '^$' check_table '@ f.c f' '-	return a;' '+	return 0;'
expect 1 'variants:5: one: wanted the old lines once in f\(\) of f.c, found them 2 times; add' check_table '@ f.c f' '-	a++;'
expect 1 'variants:5: one: wanted the old lines once in f.c, found them 2 times; add' check_table '@ f.c' '-	return a;'
expect 1 'variants:5: one: .*f\(\) of f.c, found them nowhere; write' check_table '@ f.c f' '-	a--;'
expect 1 'variants:5: one: wanted a function h in f.c, found none; correct' check_table '@ f.c h' '-	a++;'
expect 1 "variants:5: one: wanted f.h in .*, found none; correct" check_table '@ f.h f' '-	a++;'
expect 1 'variants:5: wanted lines that change .* add' check_table '@ f.c f' ' 	a++;'
expect 1 'variants:5: wanted lines that change .* add' check_table '@ f.c f' '+	a++;'
expect 1 "variants:5: wanted one of Owed, .*; found 'Seconts'; correct" check_table 'Seconts: 9' '@ f.c g' '-	return a;'
expect 1 "variants:1: wanted 'Seconds' to match .*, found 'long'; correct" check_table 'Seconds: long' '@ f.c g' '-	return a;'
expect 1 "variants:6: wanted \[NAME\], .*; found 'a--;'; see" check_table '@ f.c g' 'a--;'
expect 1 'variants:1: wanted Owed, .* in \[one\], found no @; add' check_table
expect 1 'variants:7: wanted Owed, .* in \[two\], found no Owed, no Broken, no Caught by, no @; add' \
	check_table '@ f.c g' '-	return a;' '[two]'
expect 1 'variants:8: wanted each name once for a version, .*; found \[one\] after .*variants:1; choose' \
	check_table '@ f.c g' '-	return a;' '' '[one]' '@ f.c f'
# An override, and lines that stand deeper in the file than in the table.
expect 0 '^$' check_table '@ f.c g' '-	a--;' '' '[one] 7.3' '@ f.c g' '@ f.c f' ' if (a) {' '-	a++;' '+	a--;'
tests/broken/variants.py --kernel 7.3 "$variants" diff "$scratch/tree" one | grep -q $'^+\t\ta--;$' ||
	{ echo 'FAIL: wanted the new line with the indentation of the old one'; failed=1; }
expect 2 "wanted names .* found 'two'" tests/broken/variants.py "$variants" names two
expect 1 'none: wanted a table' tests/broken/variants.py "$scratch/none" names

# Results of programs: another output, a test that libswitchto breaks, tests that were cut off.
run='{"benchmark": "b", "seconds": 1, "cpu": 1'
fake=$scratch/fake
mkdir "$fake"
printf '%s\n' 'ok one' 'ok two' 'tests ended' > "$fake/tests-stock-unpatched.log"
# DIGEST-OF-SWAP TEST...: a results folder, and what the report says of it.
# shellcheck disable=SC2317 # called by expect
adopters() {
	printf '%s\n' "$run, \"column\": \"unpatched\", \"digest\": \"same\"}" "$run, \"column\": \"swap\", \"digest\": \"$1\"}" > "$fake/insn-patched.json"
	printf '%s\n' "${@:2}" > "$fake/tests-patched-swap.log"
	bench/adopters.py --title Fake --patch adopters/systemc/switchto.patch "$fake"
}
expect 0 '' adopters same 'ok one' 'ok two' 'tests ended'
expect 1 'b: wanted the same output everywhere, found 2: ' adopters other 'ok one' 'ok two' 'tests ended'
expect 1 'swap on the patched kernel: pass unpatched and not here: two$' adopters same 'ok one' 'not ok two' 'tests ended'
expect 1 'run unpatched or here, not in both: three$' adopters same 'ok one' 'ok two' 'ok three' 'tests ended'
expect 1 'wanted some to pass, found none$' adopters same 'tests ended'
expect 1 'wanted them to run to the end' adopters same 'ok one' 'ok two'
expect 1 'none: wanted the results of vm/bench --servers, found none$' bench/tables.py --servers "$scratch/none"
expect 1 'none: wanted the results of vm/bench --host, found none$' bench/tables.py --host "$scratch/none"
expect 1 'wanted a folder with servers-\*.json, found none in it$' bench/echo.py "$scratch"
expect 1 'wanted a folder with calls-\*.json, found none in it$' bench/calls.py "$scratch"

# Servers: the bounds of tasks when requests block, the epoll loop makes 1000/s at 6 ms.
# RATE-OF-TASKS P50 P99-OF-OTHERS: a results folder, and what the tables say of it.
# shellcheck disable=SC2317 # called by expect
servers() {
	line() { # SERVER RATE APART REQUESTS/S P50 P99
		printf '{"server": "%s", "rate": %s, "apart": %s, "block_us": %s, "requests_per_s": %s' \
			"${@:1:3}" "${block:-1000}" "$4"
		printf ', "%s": {"p50": %s, "p99": %s, "p99.9": 0}' latency "${@:5}" prompt "${@:5}"
		echo '}'
	}
	line epoll 0 true 1000 6000000 0 > "$scratch/servers-time.json"
	line 'tasks swap epoll announced' 0 true "$1" "$2" 0 >> "$scratch/servers-time.json"
	line 'tasks swap epoll' 200 false 200 0 "$3" >> "$scratch/servers-time.json"
	block=0 line 'tasks swap epoll' 200 false 200 0 5000000 >> "$scratch/servers-time.json"
	bench/echo.py "$scratch"
}
expect 0 '' servers 2500 3000000 7000000
expect 1 ": 2.40 x the epoll loop's requests/s, wanted at least 2.5$" servers 2400 3000000 2000000
expect 1 ": 0.52 x the epoll loop's p50, wanted at most 0.5$" servers 2500 3100000 2000000
expect 1 'block unannounced: 7,100 us, wanted at most 7,000$' servers 2500 3000000 7100000

# 100,000 parked tasks: INSTRUCTIONS beside them, of 10,000 without.
# shellcheck disable=SC2317 # called by expect
parked() {
	local name
	for name in '' ' parked'; do
		printf '{"server": "tasks swap epoll%s", "connections": 64, "server_ns": %s}\n' \
			"$name" "$([ -z "$name" ] && echo 10000 || echo "$1")"
	done > "$scratch/servers-insn-patched.json"
	servers 2500 3000000 2000000
}
expect 0 '' parked 11000
expect 1 'parked ones: 1.11 x the instructions, wanted at most 1.10$' parked 11100

exit $failed
