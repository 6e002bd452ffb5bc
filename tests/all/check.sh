#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: check.sh NAME COMMAND [ARGUMENT ...]
# Runs one test of CMakeLists.txt beside this file: COMMAND is a function below, or a
# program. All output goes to build/test/log/NAME.log. If COMMAND fails, report() prints
# what a reader of a remote log needs first.
# The options of vm/test are in the environment: TEST_KERNEL, TEST_ARCH, TEST_ACCEL; TEST_RUNNER is
# vm/test or ./check, TEST_PROCESSORS how many ctest has. NEWEST is the kernel of newest().
# shellcheck source=vm/lib.sh
. "$(dirname "$0")/../../vm/lib.sh"

name=$1
shift
opt_kernel=${TEST_KERNEL:-6.12} opt_arch=${TEST_ARCH:-$host_arch} opt_accel=${TEST_ACCEL:-auto} newest=''
choose_arch
out=$top/build/test gcc=$top/build/$preset
log=$out/log
can_write "$log"

# --- static ------------------------------------------------------------------

static() { "$top/tests/static/$1" "${@:2}"; }

man_pages() {
	local page status=0
	cd "$top/libswitchto/man" || return 1
	for page in *.[237]; do
		mandoc -T lint -W warning "$page" || status=1
	done
	return $status
}

# README and docs show the figures of docs/*.json.
tables() { "$top/bench/tables.py" --check; }

# Are the arguments about lines that are there?
coverage_exempt() { static coverage-report.py "$top/libswitchto/src" "$top/tests/static/coverage-exempt"; }

# The patches as they are mailed, without the cover letter, in $series.
export_series() {
	rm -rf "$out/series-$name"
	"$top/kernel/export" "$opt_kernel" "$out/series-$name" || return 1
	series=("$out/series-$name"/0*[1-9]*.patch)
}

# The stock source has no git, which knows commits.
checkpatch() {
	local p status=0
	want_source
	export_series || return 1
	cd "$stock" || return 1
	for p in "${series[@]}"; do
		perl scripts/checkpatch.pl --strict --no-tree --no-signoff --ignore FILE_PATH_CHANGES,UNKNOWN_COMMIT_ID "$p" || status=1
	done
	return $status
}

broken_variants_apply() { "$top/vm/broken" --apply --kernel "$opt_kernel"; }
library_variants_apply() { "$top/tests/broken/variants.py" "$top/tests/broken/library/variants" check "$top"; }

sparse() { # the kernel's files that the patches touch
	local headers
	kernel bench
	# bench.config has no modules, which see less of the headers. Any small file includes them here.
	headers=$(sed -nE 's,^(include/(linux)|arch/x86/include/(asm))/(.*\.h)$,-include \2\3/\4,p' "$tree/.patched-files")
	make -C "$tree/obj-bench" "${kernel_make[@]}" CFLAGS_bcd.o="-DMODULE ${headers//$'\n'/ }" lib/bcd.s || return 1
	static sparse.sh "$stock" "$tree" "$tree/obj-bench"
}

# --- host --------------------------------------------------------------------

build() { # PRESET
	want_root
	cd "$top" && cmake --preset "$1" && cmake --build --preset "$1" -j "$(nproc)" || return 1
	# For editors.
	[ "$1" != gcc ] || ln -sf gcc/compile_commands.json build/compile_commands.json
}

# TEST_ONLY: the one test that failed before, of those that a test below is made of.
only=${TEST_ONLY:-}

others='^(sched|packets|example)\.'
# What takes long, and an edit of the library seldom breaks.
more='^(install|readme|find\.live|fuzz_futex|torture_delays|sched\.((bounded|exact|differential)\.(4|stepped)|trace_page)\.[a-z-]*)$'
# With a sanitizer and in the VM, the layer has two slots, and no foreign loop but in its own test;
# without one, the other numbers. ThreadSanitizer is for what the protocols are for.
two_slots='\.2\.[a-z-]*$'
other_slots='\.([14]|stepped)\.[a-z-]*$'
protocols='^(suite\.wake-wait|place\.(events\.)?wake-wait|delay_points\..*|door\..*|sched\.[a-z_]*(\.2)?\.wake-wait)$'
# What a stock kernel, a user without root, or a sanitizer can't do. VMs do all of it; but the page of a
# trace is for a machine with Chromium.
may_skip='swap_[^ ]*|security\.(futex|share|seccomp-later)|special\.[^ ]*|torture\.hotplug\.[^ ]*|packets\.namespaces|find\.live|sched\.trace_page[^ ]*'

host() { # PRESET PART
	# This kernel's default is wake-wait: with a sanitizer, once is enough.
	local chosen=(-E '^suite\.(default|static)$')
	[ "$1" = gcc ] || build "$1" || return 1
	case "$1 $2" in
	*core) chosen=(-E "$others|$more") ;;
	*sched | *packets) chosen=(-R "^$2\." -E "$two_slots|$more") ;;
	*examples) chosen=(-R '^example\.') ;;
	*more) chosen=(-R "$more") ;;
	'gcc rest') chosen=(-R "$two_slots") ;;
	'asan short') chosen[1]+="|$other_slots" ;;
	'asan rest') chosen=(-R "$other_slots") ;;
	'tsan short') chosen=(-R "$protocols") ;;
	'tsan rest') chosen[1]+="|$protocols" ;;
	esac
	[ -z "$only" ] || chosen=(-R "$only")
	# Parts of one build run at the same time: a folder for each, for ctest's own logs.
	mkdir -p "$out/ctest/$name" && echo "subdirs(\"$top/build/$1\")" > "$out/ctest/$name/CTestTestfile.cmake" || return 1
	ctest --test-dir "$out/ctest/$name" --output-on-failure --no-tests=error -j "${TEST_PROCESSORS:-4}" "${chosen[@]}" \
		--test-output-size-passed 100000 --output-junit "$log/$name.xml" > "$log/$name.ctest" 2>&1 || {
		cat "$log/$name.ctest"
		return 1
	}
	cat "$log/$name.ctest"
	# Of a test that passed, ctest prints nothing. run_tests() passes it on.
	grep -oshE '(^|>)left out: .*' "$log/$name.xml" | sed 's/^>//' | sort -u
	if grep '\*\*\*Skipped' "$log/$name.ctest" | grep -vE " ([^ ]*\.swap|$may_skip) "; then
		echo "FAIL: the above skipped, and needs neither FUTEX_SWAP nor root"
		return 1
	fi
}

model() { "$top/tests/model/run" --build "$out/model" --jobs 1 "$@"; }
differential() { SWITCHTO_BACKEND=wake-wait "$top/build/gcc/tests/bin/sched_differential" "$@"; } # SLOTS SEQUENCES

# With another C library. Its headers lack the kernel's. Doors need glibc's list of robust mutexes.
musl() {
	local build=$out/musl headers=$out/musl/headers
	want_packages musl-tools
	mkdir -p "$headers" &&
		ln -sfn /usr/include/linux /usr/include/asm-generic "/usr/include/$(uname -m)-linux-gnu/asm" "$headers" &&
		cmake -S "$top" -B "$build" -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_C_FLAGS="-idirafter $headers" \
			-DSWITCHTO_TESTS=OFF -DSWITCHTO_TOOLS=OFF -DSWITCHTO_URING=OFF -DSWITCHTO_WERROR=ON &&
		cmake --build "$build" -j "$(nproc)" &&
		ctest --test-dir "$build" -R '\.wake-wait$' -E sandbox --output-on-failure --no-tests=error
}

library_variants() { "$top/tests/broken/library/run" --build "$out/broken-library" "$@"; }

# --- kernels -----------------------------------------------------------------

sources() {
	want_source
	want_patched
}

kernel() { # CONFIG
	opt_config=$1
	want_kernel
}

selftests_build() {
	kernel bench
	want_kselftest
}

# The same on the newest kernel. KERNEL_SRC is the source of the other one.
newest() { # COMMAND ARGUMENT...
	unset KERNEL_SRC
	opt_kernel=$NEWEST newest=yes
	"$@"
}

# --- vm ----------------------------------------------------------------------

vm_more=() # options for vm_exec

in_vm() { # CONFIG CPUS CMD...
	local try status
	for try in 1 2 3; do
		in_vm_once "$@" && return
		status=$?
		emulator_failed || return $status
		echo "run $try of 3 is void"
	done
	return 1
}

# While a CPU of the guest runs, its clock counts instructions, whatever else the host runs.
in_icount_vm() { # CONFIG CPUS CMD...
	local vm_more=("${vm_more[@]}" --accel tcg --icount --real-sleep --never-idle)
	in_vm "$@"
}

in_vm_once() { # CONFIG CPUS CMD...
	local status=0
	opt_config=$1
	want_vm
	vm_exec --accel "$opt_accel" --cpus "$2" --rw "$top/build" --timeout 3600 "${vm_more[@]}" -- "${@:3}" || status=$?
	[ $status -eq 0 ] || echo "status in the VM: $status"
	! kernel_complained || return 1
	return $status
}

# After each patch, the kernel builds and boots, or the selftests compile: git bisect must
# not stop at a fault of the series.
each_patch() {
	local obj p status swap backend failed=0
	opt_patched=stock
	want_vm
	tree=$vm/linux-$opt_kernel-each
	need_space 2500 "a second tree of the kernel's source and objects"
	copy_tree "$stock" "$tree"
	name_image
	kselftest=$out/each-kselftest
	mkdir -p "$kselftest"
	export_series || return 1
	for p in "${series[@]}"; do
		patch -d "$tree" -p1 --no-backup-if-mismatch -F0 -f < "$p" || return 1
		if grep -q '^+++ b/tools/' "$p"; then
			build_kselftest || { echo "FAIL $p: the selftests do not compile"; return 1; }
			echo "PASS $p: the selftests compile"
			continue
		fi
		compile_kernel "$obj" || { echo "FAIL $p: the kernel does not compile"; return 1; }
		# The first two have no FUTEX_SWAP yet, and the library wants it whole, with the hint.
		swap=$tree/kernel/futex/swap.c backend=wake-wait status=0
		! grep -sq hint "$swap" || backend=swap
		vm_exec --accel "$opt_accel" --timeout 600 -- sh -c "SWITCHTO_BACKEND=$backend '$gcc/tests/bin/torture' --seconds=10 >&2 || exit 1
			'$gcc/tools/futex-swap-demo/futex-swap-demo' -i 20000" < /dev/null || status=$?
		if kernel_complained || [ "$status" -ne "$([ -f "$swap" ] && echo 0 || echo 77)" ]; then
			echo "FAIL $p: status $status"
			failed=1
		else
			echo "PASS $p: boots and switches"
		fi
	done
	rm -rf "$tree" "$kselftest"
	return $failed
}

# The library's tests. On the patched kernel nothing may skip for want of FUTEX_SWAP.
suite() { # CONFIG CPUS [DIVISOR-OF-ROUNDS]
	# Each backend once is enough. The memory of a thread, and what is random, are tested elsewhere.
	local outcome=$log/$name.ctest but='suite\.(default|static)|many_threads|(torture|fuzz).*' divisor=${3:-4} wake_wait='.*\.wake-wait'
	# As many slots as CPUs; on the host with each number.
	but+="|sched\.[a-z_]*\.[^$2]\..*"
	# One CPU leaves no placement.
	[ "$2" != 1 ] || but+='|place\..*|special\.cpuset\..*'
	# With the debug kernel each of these takes minutes, or is judged by CPU time.
	[ "$1" != debug ] || { but+='|special\..*|security\..*|swap_kernel.*|sched\.(bounded|exact\.stepped).*'; divisor=5; }
	# In vm/test, the layer's wake-wait, its other engine (but for differential_epoll), its steps
	# (but for their own test) and the longest tests of its calls are for this machine's kernel; so is
	# what needs neither root nor a clock that is exact.
	[ "$1$2${3:-}" != bench2 ] || {
		but+='|sched\.(descriptors|exact|io|steps|waits)_epoll\..*|sched\..*\.stepped\..*|sched\.(descriptors|exact)\.2\..*'
		wake_wait='(suite|special.*)\.wake-wait'
		divisor=8
	}
	local skips=none
	# There are no groups of the scheduler: nothing to share, and parts of special are left out.
	[ "$1" != up ] || { but+='|security\.share'; skips='special\.swap'; }
	# With arm64's C library of Debian 12, no test can choose the TID of a thread.
	[ "$opt_arch" = x86_64 ] || skips='(special|tid_reuse|delay_points\.tids)\.(swap|wake-wait)|a call of clone3'
	# The newest kernel has all of it in vm/test --kernel.
	[ -z "$newest" ] || divisor=5
	local ctest="ctest --test-dir '$gcc' -LE host --output-on-failure --no-tests=error --timeout 1200"
	local all="$ctest -E '^($but|.*\.wake-wait)\$' --output-junit '$log/$name.xml'"
	# There is wake-wait, too, with fewer rounds: what it asks of the kernel is not what the
	# patches change.
	[ "$1$2$newest" != bench2 ] ||
		all+=" && TEST_LOOPS_DIVISOR=5 $ctest -R '^$wake_wait\$' -E '^($but)\$' --output-junit '$log/$name.wake-wait.xml'"
	[ -z "$only" ] || all="$ctest -R '$only'"
	mkdir -p "$gcc/Testing"
	# The host's ctest may write its own logs at the same time.
	in_icount_vm "$1" "$2" sh -c "{ mount -t tmpfs none '$gcc/Testing' && export TEST_LOOPS_DIVISOR=$divisor &&
		{ [ $1 = up ] || echo '+cpu +cpuset' > /sys/fs/cgroup/cgroup.subtree_control; } && $all; } > '$outcome' 2>&1" || {
		cat "$outcome"
		return 1
	}
	cat "$outcome"
	if grep -i 'Skipped' "$outcome" | grep -vE "$skips"; then
		echo "FAIL: a test skipped on the patched kernel, where nothing is missing"
		return 1
	fi
}

# Hand-overs with all that may happen to them. On the debug kernel the scheduler's
# sums are verified at the same time.
torture() { # CONFIG CPUS SECONDS [OPTION...]
	"$top/vm/torture" --build "$gcc" --kernel "$opt_kernel" --arch "$opt_arch" --accel "$opt_accel" --config "$1" --cpus "$2" --seconds "${@:3}"
}

# The scheduling layer's; half of the time with delays between its steps and calls that fail.
torture_sched() { # CONFIG CPUS SECONDS
	in_vm "$1" "$2" sh -c "SWITCHTO_BACKEND=swap '$gcc/tests/bin/sched_torture' 0 $(($3 / 2))s &&
		SWITCHTO_BACKEND=swap '$gcc/tests/bin/sched_torture_windows' 0 $(($3 / 2))s"
}

# The other backend, on a machine that the torture may change.
torture_wake_wait() { # CONFIG CPUS SECONDS
	local text
	text=$(in_vm "$1" "$2" env SWITCHTO_BACKEND=wake-wait "$gcc/tests/bin/torture" --need-all --seconds="$3" 2>&1) || { echo "$text"; return 1; }
	echo "$text"
	grep -q '^torture: ok .* backend=wake-wait ' <<< "$text"
}

# What is random in the suite, short, on CPUs that run at the same time.
fuzz_suite() { # CONFIG CPUS
	local text but=none
	# A guest of 2 CPUs died once, in its clock's watchdog, while a CPU was switched on again.
	[ "$2" = 4 ] || but=hotplug
	mkdir -p "$gcc/Testing"
	text=$(in_vm "$1" "$2" sh -c "mount -t tmpfs none '$gcc/Testing' && ctest --test-dir '$gcc' -R '${only:-^(torture|fuzz)}' -E $but \
		--output-on-failure --no-tests=error" 2>&1) || { echo "$text"; return 1; }
	echo "$text"
	! grep -i Skipped <<< "$text"
}

# Hostile calls of futex(2), and faults injected into them.
fuzz() { # CONFIG CPUS SECONDS
	in_vm "$1" "$2" "$gcc/tests/bin/fuzz_futex" --seconds="$3" --need-swap --machine --faults --patience=60
}

# Many threads parked at once, all resumed, all joined, nothing left.
many_threads() { # COUNT
	local text
	text=$(in_vm bench 2 "$gcc/tools/many-threads/many-threads" -n "$1" 2>&1) || { echo "$text"; return 1; }
	echo "$text"
	grep -q '^backend  *swap$' <<< "$text"
}

# Resumes of threads that end at that moment. This kernel has control groups of
# memory, so also: the memory of a swap is charged to the group.
storm() { # CONFIG CPUS
	local text
	text=$(in_vm "$1" "$2" sh -c "'$top/tests/suite/many_threads.sh' '$gcc/tools/many-threads/many-threads' storm &&
		'$gcc/tests/bin/security_futex' memory" 2>&1) || { echo "$text"; return 1; }
	echo "$text"
	grep -q 'charged to their control group' <<< "$text" || return 1
	! grep 'left out' <<< "$text" || return 1
	grep -q '^backend  *swap$' <<< "$text"
}

# Programs whose hand-overs are known, on a kernel that has the scheduler's events. Bad input is
# for the host.
finder() { # CONFIG CPUS
	in_icount_vm "$1" "$2" "$top/tests/find/find.py" live "$top/tools/switchto-find" "$gcc/tests/bin/known" \
		Live.test_rings Live.test_never_hands_over
}

# packet-server on a kernel that has all that it can use: nothing may be left out.
packets_net() { # CPUS
	local text restrict=/proc/sys/crypto/af_alg_restrict
	# From 7.3 on, the kernel forbids most of its ciphers to programs.
	text=$(in_vm net "$1" sh -c "ip link set lo up && { [ ! -e $restrict ] || echo 0 > $restrict; } && ctest --test-dir '$gcc' -R '^packets\.(parts|namespaces|.*\.swap)\$' --output-on-failure -V --no-tests=error" 2>&1) || { echo "$text"; return 1; }
	echo "$text"
	! grep -E 'left out|Skipped|SKIPPED' <<< "$text"
}

demo() {
	local text
	text=$(in_vm bench 2 "$gcc/tools/futex-swap-demo/futex-swap-demo" -i 20000) || { echo "$text"; return 1; }
	echo "$text"
	[ "$(grep -c '^PASS' <<< "$text")" -eq 2 ]
}

profile() {
	local text
	text=$("$top/vm/profile" --kernel "$opt_kernel" --seconds 1 -- "$gcc/tools/futex-swap-demo/futex-swap-demo" -i 1000000000) || return 1
	echo "$text"
	grep -q '  __switch_to$' <<< "$text"
}

# Tests that may skip: what the configuration can't have, and a test of several
# variants where one variant has no meaning.
selftest_skips='one can be stopped by a tracer only|there is no target|all CPUs share a cache|no core scheduling|an area of the second version'
declare -A selftest_skips_of=(
	[bench]='CONFIG_SCHED_AUTOGROUP|no tracefs|debug/fail(_futex|slab)'
	[debug]='never met between its timer'
	[rt]='CONFIG_SCHED_AUTOGROUP|no tracefs|debug/fail(_futex|slab)|never met between its timer'
	[preempt]='CONFIG_SCHED_AUTOGROUP|no tracefs|debug/fail(_futex|slab)'
	[up]='CONFIG_SCHED_AUTOGROUP|no tracefs|debug/fail(_futex|slab)|CONFIG_CFS_BANDWIDTH|CONFIG_FAIR_GROUP_SCHED|no locks per VMA'
)

# Status 4 is kselftest's word for skipped.
selftests() { # CONFIG CPUS [OPTION...]
	local text status=0 may="$selftest_skips|${selftest_skips_of[$1]:-${selftest_skips_of[bench]}}"
	[ "$2" -gt 1 ] || may+='|needs two CPUs'
	[ "$opt_kernel" != 6.12 ] || may+='|no MADV_GUARD_INSTALL'
	[ "$1" = debug ] || may+='|no /proc/PID/sched'
	[ "$opt_arch" = x86_64 ] || may+='|on x86_64 only|no perf events'
	text=$(in_icount_vm "$1" "$2" "$top/tests/vm/selftests.sh" "$top/build/kselftest-$opt_kernel$arch_suffix" "${@:3}" ${only:+-t "$only"} 2>&1) || status=$?
	echo "$text"
	if grep '# SKIP' <<< "$text" | grep -vE "$may"; then
		echo "FAIL: the above skipped, and should not on a kernel of $1.config"
		return 1
	fi
	return $status
}

# Two CPUs of one core: core scheduling says which threads may share it.
core_scheduling() {
	local text vm_more=(--qemu '-smp cores=1,threads=2 -cpu max,topoext=on')
	text=$(selftests debug 2 -t cookies_no_handoff) || { echo "$text"; return 1; }
	echo "$text"
	! grep -q SKIP <<< "$text"
}

# Upstream's own tests, by run.sh, which knows their arguments. The status of run.sh is
# that of the last test; the text says what failed.
selftests_upstream() { # CONFIG CPUS
	local text
	kernel "$1"
	text=$(in_icount_vm "$1" "$2" sh -c "cd '$top/build/kselftest-$opt_kernel$arch_suffix' && USE_COLOR=0 sh '$tree/tools/testing/selftests/futex/functional/run.sh' 2>&1") || {
		echo "$text"
		return 1
	}
	echo "$text"
	grep -qE '^ok ' <<< "$text" || return 1
	! grep -E '^not ok|^Bail out|Result: *(FAIL|ERROR)' <<< "$text"
}

# -----------------------------------------------------------------------------

# The one command that runs alone what failed.
alone() { # COMMAND...
	local test='' more=''
	[ "$1" != newest ] || shift
	case $1 in
	host | suite | fuzz_suite)
		# The last list of ctest's: of those that failed, not of those that skipped.
		test=$(sed -n '/The following tests FAILED/,$s/^[\t ]*[0-9]* - \([^ ]*\) .*/\1/p' "$log/$name.log" | head -n 1)
		[ -z "$test" ] || test="TEST_ONLY='^$test\$' "
		;;
	selftests)
		test=$(sed -nE 's/^not ok [0-9]+ ([^ ]*\.)?([^ .]*).*/\2/p' "$log/$name.log" | head -n 1)
		[ -z "$test" ] || test="TEST_ONLY=$test "
		;;
	static)
		echo "tests/static/$2"
		return
		;;
	esac
	[[ $name != long-* ]] || more+=' --long'
	[ -n "$newest" ] || [ "$opt_kernel" = 6.12 ] || more+=" --kernel $opt_kernel"
	[ -z "$foreign" ] || more+=" --arch $opt_arch"
	[ "$opt_accel" = auto ] || more+=" --accel $opt_accel"
	[ "${TEST_RUNNER:-}" = ./check ] && echo "$test./check $name" || echo "${test}vm/test$more -R '^$name\$'"
}

# For the last ten lines of what a failed test prints.
report() { # STATUS COMMAND...
	local found
	found=$(grep -nE '^not ok|^FAIL|^MISSED|\*\*\*(Failed|Timeout|Exception)|^\[  (FAILED|ERROR)|Sanitizer:|runtime error:|torture: BROKEN|complained|: wanted .*found|error: |^(ERROR|WARNING|CHECK): |\] (WARNING|BUG): |: hangs|AssertionError|No space left' \
		"$log/$name.log" | cut -c 1-300 | head -n 5 || true)
	[ -n "$found" ] || found=$(tail -n 5 "$log/$name.log" | cut -c 1-300)
	echo "$name: wanted status 0 of: ${*:2}"
	echo "$name: found status $1, and in the log:"
	echo "$found"
	echo "log: ${log#"$top"/}/$name.log"
	echo "alone: $(alone "${@:2}")"
}

# For vm/test, which says every minute what runs.
: > "$log/$name.running"
trap 'rm -f "$log/$name.running"' EXIT
status=0
(set +e; "$@") > "$log/$name.log" 2>&1 < /dev/null &
pid=$!
end_with $pid
wait $pid || status=$?
[ $status -ne 0 ] || exit 0
report $status "$@" | tee "$log/$name.failed"
exit 1
