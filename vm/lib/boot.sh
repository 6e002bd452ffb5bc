# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# The VM: boot it, run a command in it, judge its kernel log. vm/lib.sh sources this file.

# Each run has a folder of its own, which the guest can write: the command, what
# it returned, and the kernel's log.
quote() { printf "'%s' " "${@//\'/\'\\\'\'}"; }

end_vm() {
	local pid
	pid=$(cat "$run/qemu.pid" 2> /dev/null || true)
	[ -z "$pid" ] || kill "$pid" 2> /dev/null || true
	[ -z "${vng_pid:-}" ] || kill "$vng_pid" 2> /dev/null || true
}

new_run() {
	can_write "$vm/run"
	# Remove folders of runs that are older than a day.
	find "$vm/run" -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {} +
	run=$(mktemp -d "$vm/run/XXXXXX") || die "wanted a folder in $vm/run, can't make one; is the disk full?"
	# Its path in the guest.
	guest_run=$([ -n "$foreign" ] && echo /run/vm.run || echo "$run")
}

# A hook for commands that do more with a VM than run it. Called when $run exists,
# before the VM starts. May add options for QEMU to $qemu_more. Before it ends the VM
# early on purpose, it must make $run/ended.
prepare_run() { :; }

# virtme-ng's init has udev go through all devices, and systemd-tmpfiles make what the host's packages
# want: half the CPU time of a boot. A command needs only the ports of its standard streams. The init
# looks for programs in the kernel's PATH first. A root file system of make_root() has neither.
without_udev() {
	[ -z "$foreign" ] || return 0
	mkdir "$run/instead" && ln -s /bin/true "$run/instead/systemd-tmpfiles" && name_ports > "$run/instead/udevadm" &&
		chmod +x "$run/instead/udevadm" && vng+=(--append "PATH=$run/instead")
}

# A program for the guest, in place of udevadm and udevd.
name_ports() {
	cat << 'END'
#!/bin/sh
[ "$1" = settle ] || [ "$1" = --daemon ] || exit 0
mkdir /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
	[ -e "$port/name" ] || continue # a console
	read -r name < "$port/name" && ln -s "../${port##*/}" "/dev/virtio-ports/$name"
done
END
}

# Sets $vng: the virtme-ng command line without CMD; with ports for CMD's output if
# there is an argument. Needs $accel and what parse_option() sets.
vng_command() { # [streams]
	local dir args for_tcg=''
	vng=(vng --run "$image" --force-9p --cpus "$opt_cpus" --memory "$opt_mem" --rwdir "${foreign:+$guest_run=}$run")
	[ -z "$foreign" ] || vng+=(--arch arm64 --root "$root" --rodir "/run/vm.top=$top")
	for dir in "${opt_rw[@]}"; do
		dir=$(realpath "$dir")
		vng+=(--rwdir "${foreign:+/run/vm.rw$dir=}$dir")
	done
	[ "$accel" = kvm ] || vng+=(--disable-kvm)
	# A busy host may not run an emulated CPU for long. The kernel then takes the timer for
	# broken and panics before it has a console, or reports stalls.
	[ "$accel" = kvm ] || [ -n "$opt_icount" ] || for_tcg='rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60'
	[ -z "$for_tcg" ] || [ "$opt_arch" != x86_64 ] || for_tcg="no_timer_check $for_tcg"
	# With an HPET and several CPUs under -icount, Linux finds the local APIC's timer broken
	# and sleeps for whole ticks (QEMU 7.2).
	[ -z "$opt_icount" ] || [ "$opt_cpus" -eq 1 ] || [ "$opt_arch" != x86_64 ] || for_tcg=hpet=disable
	# Log all to a file, whatever the first console omits.
	for args in "console=hvc0 ignore_loglevel mitigations=off $for_tcg" "${opt_append[@]}"; do
		vng+=(--append "$args")
	done
	args=
	# Of arm64, virtme-ng takes a CPU of 2012, and QEMU an interrupt controller for eight CPUs.
	[ "$opt_arch$accel" != arm64tcg ] || args="-cpu max -machine gic-version=3 "
	args="$args-pidfile $run/qemu.pid -device virtio-serial-pci,id=vm"
	args="$args -chardev file,id=vm.log,path=$run/kernel.log -device virtconsole,bus=vm.0,chardev=vm.log"
	if [ $# -gt 0 ]; then
		without_udev
		# virtme-ng's ports for the standard streams are found by udev,
		# which on a busy host, and under -icount, can come too late:
		# then the command runs and its output is lost. These are found
		# in sysfs by guest.sh.
		args="$args -chardev file,id=vm.out,path=$run/out -device virtserialport,bus=vm.0,chardev=vm.out,name=vm.out"
		args="$args -chardev file,id=vm.err,path=$run/err -device virtserialport,bus=vm.0,chardev=vm.err,name=vm.err"
	fi
	[ -z "$opt_icount" ] || args="$args -icount shift=0,sleep=$opt_sleep"
	args="$args${qemu_more:-}"
	vng+=("--qemu-opts=$args")
}

# Runs CMD in a VM of $image, with the standard streams of the caller. Returns its status. 124:
# the time limit; 125: the VM failed. The options are those of vm/run for the VM, and
#	--qemu ARGS	more options for QEMU
#	--never-idle	CMD never sleeps for two minutes
#
# Under TCG with several CPUs, one boot in fifty ended within seconds (QEMU 7.2, a
# busy host), before the kernel had a console to say why. CMD has not begun by
# then, so boot again, with a message.
vm_exec() { # [OPTION...] -- CMD...
	local try status taken qemu_more='' never_idle='' vm_options=()
	local opt_cpus='' opt_mem=4G opt_icount='' opt_sleep=off opt_accel=auto opt_timeout=0 opt_rw=() opt_append=()
	while [ "$1" != -- ]; do
		case $1 in
		--qemu) qemu_more+=${2:+ $2} taken=2 ;;
		--never-idle) never_idle=yes taken=1 ;;
		*) taken=0 && parse_option "$@" ;;
		esac
		[ "$taken" -gt 0 ] || die "vm_exec: wanted an option or --, found '$1'"
		shift "$taken"
	done
	shift
	check_options
	choose_accel

	for try in 1 2 3; do
		status=0
		vm_exec_once "$@" || status=$?
		if [ $status -ne 125 ] || [ "$accel" != tcg ] || [ -e "$run/up" ] || [ $try -eq 3 ]; then
			break
		fi
		say "booting once more ($try of 2)"
	done
	judge_emulator
	return $status
}

# Runs vm_exec with its output in LOG, up to three times if the emulator is at fault. Sets $status, and
# $complained if the kernel complained. Then the log has what it said.
vm_judged() { # LOG [OPTION...] -- CMD...
	local log=$1 try
	shift
	for try in 1 2 3; do
		status=0 complained=''
		vm_exec "$@" > "$log" 2>&1 < /dev/null || status=$?
		if ! emulator_failed; then
			! kernel_complained >> "$log" || complained=yes
			return 0
		fi
		say "run $try of 3 is void"
	done
	die "wanted a run that the emulator does not end, found that it ended three; log: $log"
}

# If QEMU loses the timers of one CPU, the guest goes on slowly, and complains of stalls of RCU. They
# end by the first interrupt, so the kernel prints no stack, or that of an idle CPU. A stall with
# another stack is the kernel's own, unless QEMU has waited for the host's CPUs for longer than it ran
# ($starved): then a CPU of the guest that ran had lost its timers, too.
starved=''
ticks_were_lost() { # HOW OFTEN, AT LEAST
	[ "$opt_sleep" = on ] || return
	awk -v want="$1" -v starved="$starved" '/rcu: INFO: .* detected stalls/ { n++ } /Comm: |task:/ { idle = /Comm: swapper|task:rcu_/ }
		/Call [Tt]race:/ && !idle { own = 1 } END { exit n < want || (own && !starved) }' "$run/kernel.log" 2> /dev/null
}

# With --real-sleep on a busy host, QEMU (7.2) may lose the timers of a guest's CPUs. If it lost all,
# both wait for good. A guest that only sleeps takes CPU time each second, and QEMU alone next to
# none: 0.1 s in a minute is the limit. If it lost those of one CPU, whatever sleeps there does so for
# good, and the guest takes as much as any that only sleeps: 0.4 s in a minute, seen once. So with
# --never-idle, what runs there never sleeps for two minutes, and takes a second. $stall: the time that
# it had taken (in ticks of 10 ms), and when that was.
emulator_stalled() {
	local pid now least=10 within=60
	[ -z "$never_idle" ] || { least=100 within=120; }
	[ "$opt_sleep" = on ] && [ $((SECONDS % 5)) -eq 0 ] && pid=$(cat "$run/qemu.pid" 2> /dev/null) || return
	# Nanoseconds on a CPU, and in its queue.
	starved=$(cat "/proc/$pid/task/"*/schedstat 2> /dev/null | awk '{ ran += $1; waited += $2 } END { if (waited > ran) print "yes" }')
	# What the kernel says of the first stall is complete when it reports the next one.
	! ticks_were_lost 2 || return 0
	now=$(awk '{ print $14 + $15 }' "/proc/$pid/stat" 2> /dev/null) && [ -n "$now" ] || return
	[ -n "$stall" ] && [ $((now - ${stall% *})) -lt $least ] || stall="$now $SECONDS"
	[ $((SECONDS - ${stall##* })) -ge $within ]
}

# The lines of guest.sh for a guest with a root of its own: this checkout, copy on write, and the folders
# of --rw, all where they are on the host.
show_checkout() {
	local dir
	[ -n "$foreign" ] || return 0
	# The root is read-only in the guest, /tmp and /run are its own.
	for dir in "$top" "${opt_rw[@]}"; do
		mkdir -p "$root$(realpath "$dir")"
	done
	cat <<- END
		cd / && mkdir -p /run/vm.new/up /run/vm.new/work $(quote "$top") &&
			mount -t overlay -o lowerdir=/run/vm.top,upperdir=/run/vm.new/up,workdir=/run/vm.new/work vm $(quote "$top") || exit
	END
	for dir in "${opt_rw[@]}"; do
		dir=$(quote "$(realpath "$dir")")
		echo "mkdir -p $dir; mount --bind /run/vm.rw$dir $dir || exit"
	done
}

vm_exec_once() {
	local stall=''
	starved=''
	local start=$SECONDS limit_boot=${VM_BOOT_LIMIT:-600} status why='' copiers v qemu_more=$qemu_more

	new_run
	prepare_run
	vng_command streams
	{
		cat <<- END
			#!/bin/sh
			for port in /sys/class/virtio-ports/*; do
				case \$(cat "\$port/name" 2> /dev/null) in
				vm.out) out=/dev/\${port##*/} ;;
				vm.err) err=/dev/\${port##*/} ;;
				esac
			done
			exec > "\$out" 2> "\$err" || exit
			echo up > $(quote "$guest_run/up")
			$(show_checkout)
			cd $(quote "$PWD") || {
				echo "vm/run: wanted the folder "$(quote "$PWD")", found that the guest has ${foreign:+only this checkout and }a /tmp and /run of its own; start from another one, or name it with --rw" >&2
				echo 126 > $(quote "$guest_run/status")
				exit 126
			}
		END
		{ export_context; env -0; } | while IFS= read -r -d '' v; do
			case $v in
			SWITCHTO_* | PATH=* | TERM=* | LANG=*) echo "export ${v%%=*}=$(quote "${v#*=}")" ;;
			esac
		done
		cat <<- END
			$(quote "$@")
			status=\$?
			echo \$status > $(quote "$guest_run/status.new") && mv $(quote "$guest_run/status.new" "$guest_run/status")
			exit \$status
		END
	} > "$run/guest.sh" || die "wanted to write $run/guest.sh, can't; is the disk full?"
	chmod +x "$run/guest.sh"

	trap 'end_vm; trap - INT TERM; exit 130' INT
	trap 'end_vm; trap - INT TERM; exit 143' TERM
	mkfifo "$run/out" "$run/err"
	cat < "$run/out" &
	copiers=$!
	cat < "$run/err" >&2 &
	copiers="$copiers $!"
	# Both are opened for writing here as well, so that their readers come to
	# an end even if QEMU never opens them.
	exec 5> "$run/out" 6> "$run/err" 7<&0
	"${vng[@]}" --exec "$guest_run/guest.sh" <&7 7<&- 5>&- 6>&- > "$run/vng.log" 2>&1 &
	vng_pid=$!
	exec 7<&-
	while kill -0 "$vng_pid" 2> /dev/null; do
		sleep 0.1
		if emulator_stalled; then
			why="the emulator lost the guest's timers: it takes next to no CPU time, or RCU stalls"
			touch "$run/stalled"
		elif [ ! -e "$run/up" ] && [ $((SECONDS - start)) -ge "$limit_boot" ]; then
			why="the guest did not come up in $limit_boot s"
		elif [ "$opt_timeout" -gt 0 ] && [ $((SECONDS - start)) -ge "$opt_timeout" ]; then
			why="CMD was not done in $opt_timeout s (--timeout)"
		else
			continue
		fi
		end_vm
		break
	done
	wait "$vng_pid" 2> /dev/null || true
	vng_pid=
	exec 5>&- 6>&-
	# shellcheck disable=SC2086
	wait $copiers
	trap - INT TERM

	if [ -n "$why" ]; then
		say "$why; the VM was ended; kernel log: $run/kernel.log"
		return 124
	fi
	[ ! -e "$run/ended" ] || return 0
	if [ -f "$run/status" ]; then
		status=$(cat "$run/status")
		return "$status"
	fi
	if grep -q 'Kernel panic' "$run/kernel.log" 2> /dev/null; then
		why="the guest's kernel panicked: $(grep -m1 -o 'Kernel panic.*' "$run/kernel.log")"
	elif [ -e "$run/up" ]; then
		why="QEMU ended before CMD did"
	else
		why="QEMU ended before the guest was up: $(tail -n 1 "$run/vng.log" 2> /dev/null)"
	fi
	say "$why; wanted CMD's exit status, found none; kernel log: $run/kernel.log"
	return 125
}

# Sets $accel: what --accel says, or for auto what works here. That /dev/kvm
# opens is not enough: nested hosts offer one that can't run an ordinary kernel.
# So a kernel is booted, and the answer kept until the host is rebooted.
auto_accel=''
choose_accel() {
	local answer id

	accel=$opt_accel
	if [ "$accel" = kvm ]; then
		{ [ -r /dev/kvm ] && [ -w /dev/kvm ]; } ||
			die "--accel kvm: wanted /dev/kvm, found none that can be opened; use --accel tcg, or load the kvm module, or join the group kvm"
		return
	fi
	[ "$accel" = auto ] || return 0
	[ -z "$foreign" ] || { accel=tcg; return; }
	[ -z "$auto_accel" ] || { accel=$auto_accel; return; }
	auto_accel=tcg
	if [ ! -r /dev/kvm ] || [ ! -w /dev/kvm ]; then
		accel=tcg
		say "accelerator: TCG (no /dev/kvm that can be opened)"
		return
	fi
	id="$(cat /proc/sys/kernel/random/boot_id) $("$qemu" --version | head -n 1)"
	answer=$vm/accel
	if [ "$(head -n 1 "$answer" 2> /dev/null)" != "$id" ]; then
		accel=tcg
		# shellcheck disable=SC2030,SC2031
		if (VM_BOOT_LIMIT=45; vm_exec --accel kvm --timeout 60 --cpus 1 -- true) > /dev/null 2>&1 < /dev/null; then
			accel=kvm
		fi
		printf '%s\n%s\n' "$id" "$accel" > "$answer"
	fi
	accel=$(tail -n 1 "$answer") auto_accel=$accel
	if [ "$accel" = kvm ]; then
		say "accelerator: KVM"
	else
		say "accelerator: TCG (/dev/kvm is there, but a kernel does not boot under it)"
	fi
}

# The whole way to a VM: what the options ask for is built.
want_vm() {
	want_kernel
	want_root
	lock
	want_virtme
	unlock
}

# The kernel patches its code by means of an int3. TCG with several CPUs (QEMU 7.2)
# may execute that int3 after it is gone from memory: an oops in any patched code,
# as in enqueue_entity() when the first cpu.max sets a static key. The kernel is not
# at fault; such a run is repeated, with a message.
judge_emulator() {
	if [ -e "$run/stalled" ]; then
		: > "$run/void"
	elif ticks_were_lost 1; then
		echo "the emulator lost the timers of a CPU: $run/kernel.log" > "$run/void"
	elif [ "$opt_cpus" -gt 1 ] && [ "$accel" = tcg ] && grep -qs 'Oops: int3' "$run/kernel.log"; then
		echo "the emulator executed a stale int3: $run/kernel.log" > "$run/void"
	fi
}

# Was the emulator at fault in the last vm_exec?
emulator_failed() {
	[ -e "$run/void" ] || return
	[ ! -s "$run/void" ] || say "$(cat "$run/void")"
}

# Complaints in the kernel's log are part of every test's result. Exceptions: data
# races of the stock kernel, one pattern a line, without functions of the series on
# either side.
kernel_complaints='WARNING:|BUG:|Oops|general protection|kernel BUG|KASAN|KCSAN:|possible .* detected|INFO: (task|rcu)|Call [Tt]race|inconsistent lock|[Uu]nable to handle|ODEBUG|Kernel panic|scheduling while atomic'
kernel_complained() {
	if grep -nE "$kernel_complaints" "$run/kernel.log" |
		grep -vE "^[0-9]+:\[ *[0-9.]+\] ($(sed 's/^^//; s/$$//' "$top/tests/vm/kcsan-known" | paste -sd '|'))\$"; then
		echo "the guest's kernel complained: $run/kernel.log"
		return 0
	fi
	[ -s "$run/kernel.log" ] || { echo "the guest's kernel log is empty: $run/kernel.log"; return 0; }
	return 1
}

# For the benchmarks, which write down where they run.
export_context() {
	SWITCHTO_ACCEL=$accel
	SWITCHTO_UNIT=ns
	# shellcheck disable=SC2031
	[ -z "$opt_icount" ] || SWITCHTO_UNIT=insn
	SWITCHTO_HOST_CPU=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
	export SWITCHTO_ACCEL SWITCHTO_UNIT SWITCHTO_HOST_CPU
}
