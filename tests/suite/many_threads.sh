#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: many_threads.sh PROGRAM [PART ...]
# Runs many-threads: what it prints when all goes well, what it says when a limit
# is in its way, and its storm. Parts: run usage limits storm, by default all.
# What this machine does not let it set up is said and left out.
set -u

if [ $# -lt 1 ] || [ ! -x "$1" ]; then
	echo "many_threads.sh: wanted the program many-threads, found '${1:-}'; build it, and give its path" >&2
	exit 2
fi
program=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- run usage limits storm

scratch=$(mktemp -d) || exit 1
group='' enabled=''
# Of whoever runs this; it would turn off what the program sets for itself.
unset GLIBC_TUNABLES
clean_up() {
	rm -rf "$scratch"
	# What ran in it may be on its way out for a moment.
	for _ in 1 2 3 4 5; do
		{ [ -n "$group" ] && [ -d "$group" ]; } || break
		rmdir "$group" 2> /dev/null || sleep 0.2
	done
	# The machine's, and none of ours to leave changed.
	[ -z "$enabled" ] || echo -pids 2> /dev/null > "$enabled/cgroup.subtree_control"
}
trap clean_up EXIT
failed=0

fail() {
	echo "FAIL: $*"
	failed=1
}

skip() {
	echo "left out: $*"
}

# try CMD...: its output in $out, what it says of errors in $err, in $status how it ended.
try() {
	status=0
	timeout 120 "$@" > "$scratch/out" 2> "$scratch/err" < /dev/null || status=$?
	out=$(cat "$scratch/out")
	err=$(cat "$scratch/err")
}

# says STATUS PATTERN WHAT: of the last try, one line of error that is like PATTERN.
says() {
	if [ "$status" -ne "$1" ]; then
		fail "$3: wanted status $1, found $status: $err"
	elif [ "$(wc -l < "$scratch/err")" -ne 1 ] || ! grep -qE -- "$2" <<< "$err"; then
		fail "$3: wanted one line like '$2', found '$err'"
	else
		echo "ok: $3: $err"
	fi
}

# figure NAME: the figure of that name in the last try's output.
figure() {
	awk -v name="$1" '$1 == name { print $2; exit }' <<< "$out"
}

# expect NAME CONDITION: of the figure, $1 in the condition of awk.
expect() {
	local value
	value=$(figure "$1")
	if [ -z "$value" ] || ! awk "{ exit !($2) }" <<< "$value"; then
		fail "wanted $1 to be so: $2, found '$value'"
	fi
}

part_run() {
	local name kernel_stack
	# The kernel's stacks are the machine's: threads of others may end meanwhile.
	for _ in 1 2 3 4 5; do
		try "$program" -n 2000 -r 3
		kernel_stack=$(figure kernel_stack)
		[ "${kernel_stack:-0}" -le 14000 ] || break
	done
	echo "$out"
	if [ "$status" -ne 0 ]; then
		fail "2000 threads: wanted status 0, found $status: $err"
		return
	fi
	[ -z "$err" ] || fail "2000 threads: wanted nothing on standard error, found '$err'"
	expect threads '$1 == 2000'
	expect returned '$1 == 6000'
	expect left_threads '$1 == 0'
	for name in created_per_s resumed_per_s exited_per_s; do
		expect $name '$1 > 0'
	done
	# Figures of the process. Those of the machine are other programs' too.
	expect user_rss '$1 >= 4096'
	expect page_tables '$1 >= 8'
	for name in slab percpu sum other total; do
		[ -n "$(figure $name)" ] || fail "wanted a figure $name, found none"
	done
	if [ "$(uname -m)" = x86_64 ]; then
		[ "${kernel_stack:-0}" -gt 14000 ] || fail "wanted a kernel_stack of about 16384, found '$kernel_stack'"
		# One page each, but for the few that find a function for all.
		expect stack_pages '$1 >= 1 && $1 < 1.1'
		expect user_rss '$1 < 6000'
	fi

	try "$program" -n 100 -s 64 -v
	[ "$status" -eq 0 ] || fail "100 threads with 64 KiB: wanted status 0, found $status: $err"
	expect stack_kib '$1 == 64'
	try "$program" -n 1
	[ "$status" -eq 0 ] || fail "1 thread: wanted status 0, found $status: $err"
}

part_usage() {
	try "$program" -n 0
	says 2 "from 1 to 4194303, not '0'" '-n 0'
	try "$program" -n 4194304
	says 2 "from 1 to 4194303, not '4194304'" '-n 4194304'
	try "$program" -n many
	says 2 "not 'many'" '-n many'
	try "$program" -s 8
	says 2 "-s wants a number from [0-9]+ to" '-s 8'
	try "$program" -r 0
	says 2 "-r wants" '-r 0'
	try "$program" -n
	says 2 "there is none" '-n'
	try "$program" -q
	says 2 "found '-q'" '-q'
	try "$program" 100
	says 2 "found '100'" '100'
	try env SWITCHTO_BACKEND=fibers "$program" -n 10
	says 1 'SWITCHTO_BACKEND' 'a backend that there is not'
	try "$program" -h
	{ [ "$status" -eq 0 ] && grep -q '^usage:' <<< "$out"; } || fail "-h: wanted help and status 0, found $status"
}

# Half-way. Root has no such limit, so as another user then.
limit_nproc() {
	local as_user=() user threads
	user=$(id -u)
	if [ "$user" -eq 0 ]; then
		user=65534
		as_user=(setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all)
		if ! "${as_user[@]}" true 2> /dev/null; then
			skip "RLIMIT_NPROC: wanted to run as another user than root, setpriv can't"
			return
		fi
		if ! "${as_user[@]}" "$program" -h > /dev/null 2>&1; then
			skip "RLIMIT_NPROC: wanted to run as another user than root, who can't reach $program"
			return
		fi
	fi
	threads=$(ps -L --no-headers -U "$user" | wc -l)
	try "${as_user[@]}" prlimit --nproc=$((threads + 300)) "$program" -n 500
	says 1 'made [1-9][0-9]*: .*at its limit, so raise it: RLIMIT_NPROC \(ulimit -u\) = [0-9]+ \([0-9]+ used\);' RLIMIT_NPROC
}

# A group of our own with pids.max, in whichever hierarchy has that.
make_group() {
	local v2 v1
	v2=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	v1=$(awk '$3 == "cgroup" && $4 ~ /(^|,)pids(,|$)/ { print $2; exit }' /proc/mounts)
	if [ -n "$v2" ] && grep -qw pids "$v2/cgroup.controllers" 2> /dev/null; then
		if ! grep -qw pids "$v2/cgroup.subtree_control"; then
			echo +pids 2> /dev/null > "$v2/cgroup.subtree_control" && enabled=$v2
		fi
		group=$v2/many-threads.$$
	elif [ -n "$v1" ]; then
		group=$v1/many-threads.$$
	else
		return 1
	fi
	mkdir "$group" 2> /dev/null && mkdir "$group/inner" 2> /dev/null && echo 300 2> /dev/null > "$group/pids.max"
}

limit_cgroup() {
	if ! make_group; then
		skip "pids.max: wanted a control group of our own with a pids controller, can't have one here (root may)"
		[ -z "$group" ] || rmdir "$group/inner" 2> /dev/null
		return
	fi
	# The group above the program's own is the one with the limit.
	# shellcheck disable=SC2016
	try sh -c 'echo $$ > "$1/inner/cgroup.procs" && shift && exec "$@"' sh "$group" "$program" -n 500
	says 1 "made 299: .*at its limit, so raise it: pids\.max \($group/pids\.max\) = 300 \(300 used\);" pids.max
	for _ in 1 2 3 4 5; do
		rmdir "$group/inner" 2> /dev/null && break
		sleep 0.2
	done
}

# Not even the mapping; then with a little left for the rest, which may end in
# any of the things that need memory, or be enough.
limit_memory() {
	local stacks=$((1000 * 65536)) used extra said='' before=$failed
	try prlimit --as=$stacks "$program" -n 1000 -s 64
	says 1 "made 0: .*at its limit, so raise it: RLIMIT_AS, bytes \(ulimit -v\) = $stacks \(" RLIMIT_AS
	used=$(sed -n 's/.*RLIMIT_AS[^=]*= [0-9]* (\([0-9]*\) used.*/\1/p' <<< "$err")
	for extra in 0 150 300; do
		try prlimit --as=$((stacks + ${used:-0} + extra * 1024)) "$program" -n 1000 -s 64
		[ "$status" -ne 0 ] || continue
		said=$(says 1 'at its limit, so raise it: RLIMIT_AS' "RLIMIT_AS, $extra KiB left")
		[[ $said == ok:* ]] || fail "${said#FAIL: }"
	done
	[ "$failed" -ne "$before" ] || echo "${said:-ok: RLIMIT_AS, nothing left: not hit}"
}

part_limits() {
	limit_memory
	limit_nproc
	limit_cgroup
}

# storm WHAT FIGURE CMD...: goes on until FIGURE is above 64. A slow machine needs longer.
storm() {
	local what=$1 name=$2 seconds
	shift 2
	for seconds in 2 8 32; do
		try "$@" "$program" -x $seconds
		echo "$out"
		[ "$status" -eq 0 ] || break
		[ "$(figure "$name")" -le 64 ] || break
	done
	[ "$status" -eq 0 ] || fail "$what: wanted status 0, found $status: $err"
	expect storm_made '$1 > 64'
	expect storm_resumes '$1 > 0'
	expect storm_returns '$1 > 0'
	expect "$name" '$1 > 64'
}

part_storm() {
	storm storm storm_made
	if ! unshare --fork --pid --mount-proc test -w /proc/sys/kernel/ns_last_pid 2> /dev/null; then
		skip "storm with TIDs that come back at once: wanted a PID namespace and its ns_last_pid, can't have them here (root may, on a kernel with CONFIG_CHECKPOINT_RESTORE)"
		return
	fi
	# TIDs begin again only after some 230 threads.
	storm "storm with TIDs that come back at once" storm_reused unshare --fork --pid --mount-proc
}

for part; do
	case $part in
	run | usage | limits | storm) "part_$part" ;;
	*)
		echo "many_threads.sh: wanted a part: run usage limits storm, found '$part'" >&2
		exit 2
		;;
	esac
done
exit $failed
