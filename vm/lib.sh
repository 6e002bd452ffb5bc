# shellcheck shell=bash
# Used by who sources this.
# shellcheck disable=SC2034
# SPDX-License-Identifier: MIT
#
# What the commands in vm/ share: messages, options, set-up, kernel, VM.
# Sourced, not run. State is kept under build/ of the checkout:
#
#	build/vm/venv/			virtme-ng
#	build/vm/linux-VER-stock/	the kernel source, obj-CONFIG/ inside
#	build/vm/linux-VER-patched/	the same with kernel/patches/VER/ applied
#	build/vm/log/			one log per step
#
# A step writes beside its target and renames at the end, so that what is there
# is whole, and a step that was interrupted is simply done again.

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
vm=$top/build/vm
me=vm/$(basename "$0")

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$*"; exit 1; }
usage_error() { say "$*; see $me --help"; exit 2; }

# --- options -----------------------------------------------------------------

opt_kernel=6.12 opt_patched=patched opt_config=bench opt_cpus=2 opt_mem=4G
opt_icount='' opt_accel=auto opt_timeout=0 opt_rw=() opt_append=()

options_help='  --kernel VERSION     kernel version, one of kernel/patches/ (6.12)
  --stock              without the patches
  --config NAME        bench, debug, rt, up, kcsan or scx:
                       kernel/config/NAME.config (bench)'
vm_options_help='  --cpus N             virtual CPUs (2)
  --mem SIZE           memory, as 4G (4G)
  --icount             count instructions: 1 ns of guest time is 1 instruction;
                       implies --cpus 1 and --accel tcg
  --accel auto|kvm|tcg auto: KVM if a kernel boots under it here, else TCG (auto)
  --timeout SECONDS    end the VM if CMD takes longer; 0: never (0)
  --rw DIR             DIR is the host'\''s own in the VM, not a copy (repeatable)
  --append ARGS        more kernel command line (repeatable)'

# Takes one option of the common ones off the arguments; how many words it took
# is in $taken, 0 if the first word is none of them.
parse_option() {
	taken=2
	case $1 in
	--stock) opt_patched=stock taken=1; return ;;
	--icount) opt_icount=yes taken=1; return ;;
	--kernel | --config | --cpus | --mem | --accel | --timeout | --rw | --append) ;;
	*) taken=0; return ;;
	esac
	[ $# -ge 2 ] || usage_error "$1: wanted a value, found the end of the line"
	case $1 in
	--kernel) opt_kernel=$2 ;;
	--config) opt_config=$2 ;;
	--cpus) opt_cpus=$2 ;;
	--mem) opt_mem=$2 ;;
	--accel) opt_accel=$2 ;;
	--timeout) opt_timeout=$2 ;;
	--rw) opt_rw+=("$2") ;;
	--append) opt_append+=("$2") ;;
	esac
}

check_options() {
	local known

	known=$(cd "$top/kernel/patches" && echo *)
	[ -f "$top/kernel/patches/$opt_kernel/series" ] ||
		usage_error "--kernel: wanted one of: $known; found '$opt_kernel'"
	case $opt_config in
	bench | debug | rt | up | kcsan | scx) ;;
	*) usage_error "--config: wanted bench, debug, rt, up, kcsan or scx; found '$opt_config'" ;;
	esac
	[[ $opt_cpus =~ ^[1-9][0-9]?$ ]] || usage_error "--cpus: wanted 1 to 64, found '$opt_cpus'"
	[ "$opt_cpus" -le 64 ] || usage_error "--cpus: wanted 1 to 64, found '$opt_cpus'"
	[[ $opt_mem =~ ^[1-9][0-9]*[MG]$ ]] || usage_error "--mem: wanted a size as 512M or 4G, found '$opt_mem'"
	[[ $opt_timeout =~ ^[0-9]+$ ]] || usage_error "--timeout: wanted seconds, found '$opt_timeout'"
	case $opt_accel in
	auto | kvm | tcg) ;;
	*) usage_error "--accel: wanted auto, kvm or tcg; found '$opt_accel'" ;;
	esac
	if [ -n "$opt_icount" ]; then
		[ "$opt_accel" != kvm ] || usage_error "--icount: QEMU counts instructions under TCG only; found --accel kvm"
		opt_cpus=1 opt_accel=tcg
	fi
	local dir
	for dir in "${opt_rw[@]}"; do
		[ -d "$dir" ] || usage_error "--rw: wanted a folder, found '$dir'"
		[ -w "$dir" ] || usage_error "--rw: wanted a folder that can be written, found '$dir'"
	done
}

# --- steps -------------------------------------------------------------------

# step NAME TEXT CMD...: runs CMD into build/vm/log/NAME.log, with a sign of
# life on the way, and dies with the log's path if it fails.
step() {
	local text=$2 log=$vm/log/$1.log start=$SECONDS pid status=0 last
	shift 2

	mkdir -p "$vm/log" || die "wanted to write build/vm/log, can't; is the disk full or the folder not yours?"
	say "$text"
	"$@" > "$log" 2>&1 < /dev/null &
	pid=$!
	end_with $pid
	while kill -0 $pid 2> /dev/null; do
		sleep 0.2
		if [ $(((SECONDS - start) / 20)) -gt $((last_sign / 20)) ]; then
			last_sign=$((SECONDS - start))
			say "  ... $text: $last_sign s, $(wc -l < "$log") lines of log"
		fi
	done
	last_sign=0
	wait $pid || status=$?
	trap - INT TERM
	[ $status -eq 0 ] && return
	last=$(grep -iE 'error|fail|no space|cannot|unable' "$log" | tail -n 1 || true)
	[ -n "$last" ] || last=$(tail -n 1 "$log")
	die "$text: failed (status $status): ${last:-no output}; log: $log"
}
last_sign=0

# On Ctrl-C, end a child too: what runs in the background does not get it.
end_with() { # PID
	# shellcheck disable=SC2064
	trap "end_tree $1; exit 130" INT
	# shellcheck disable=SC2064
	trap "end_tree $1; exit 143" TERM
}

# vm_exec ends its VM when it is told to, the rest ends by itself.
end_tree() {
	local child
	for child in $(pgrep -P "$1" || true); do
		end_tree "$child"
	done
	kill "$1" 2> /dev/null || true
}

# One set-up at a time in a checkout.
lock() {
	mkdir -p "$vm" || die "wanted to write build/ in $top, can't; is the disk full or the folder not yours?"
	exec 9> "$vm/lock" || die "wanted to write $vm/lock, can't; is the disk full or the folder not yours?"
	if ! flock -n 9; then
		say "waiting for another vm/ command in this checkout to finish its set-up"
		flock 9
	fi
}
unlock() { exec 9>&-; }

need_space() { # MEGABYTES WHAT FOR
	local free
	free=$(df -Pm "$vm" | awk 'NR == 2 { print $4 }')
	[ "$free" -ge "$1" ] ||
		die "wanted $1 MB free for $2, found $free MB in $top; free some, or put the checkout on a larger disk"
}

# --- packages ----------------------------------------------------------------

packages_vm='build-essential flex bison bc libelf-dev libssl-dev xz-utils kmod cpio patch
	python3 python3-venv udev procps qemu-system-x86'
packages_scx='pahole clang'
packages_lib='cmake pkg-config libcmocka-dev'
packages_bench='libbenchmark-dev libabsl-dev libboost-context-dev liburing-dev python3-matplotlib'
packages_test='clang clang-19 libclang-rt-19-dev clang-format clang-tidy cppcheck codespell shellcheck pyflakes3 mandoc util-linux
	abigail-tools sparse spin git'

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# shellcheck disable=SC2120
install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	as_root apt-get update && as_root apt-get install -y --no-install-recommends "$@"
}

want_packages() {
	local p missing=()

	command -v dpkg-query > /dev/null ||
		die "wanted Debian 12 or 13 (dpkg), found $(. /etc/os-release 2> /dev/null && echo "${PRETTY_NAME:-another system}"); install the equivalents of: $*"
	for p; do
		dpkg-query -W -f '${db:Status-Status}\n' "$p" 2> /dev/null | grep -qx installed || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2> /dev/null; then
		die "wanted the Debian packages: ${missing[*]}; found neither root nor a sudo that asks nothing: install them as root, then run this again"
	fi
	step packages "installing ${#missing[@]} Debian packages: ${missing[*]}" install_packages "${missing[@]}"
}

# --- virtme-ng ---------------------------------------------------------------

make_venv() {
	rm -rf "$vm/venv.new" "$vm/venv"
	# Made in its final place: a virtual environment can't be moved. The
	# stamp is what says that it is whole.
	python3 -m venv "$vm/venv" && "$vm/venv/bin/pip" install -q -r "$top/vm/requirements.txt" &&
		cp "$top/vm/requirements.txt" "$vm/venv/stamp"
}

want_virtme() {
	if ! cmp -s "$top/vm/requirements.txt" "$vm/venv/stamp" || ! [ -x "$vm/venv/bin/python3" ]; then
		step virtme "installing virtme-ng into build/vm/venv" make_venv
	fi
	PATH=$vm/venv/bin:$PATH
}

# --- the kernel --------------------------------------------------------------

source_version() { # TREE
	awk -F ' *= *' '$1 == "VERSION" { v = $2 } $1 == "PATCHLEVEL" { p = $2 } $1 == "SUBLEVEL" { s = $2; exit }
		END { print v "." p "." s }' "$1/Makefile" 2> /dev/null
}

unpack_source() { # TARBALL-OR-TREE TARGET
	rm -rf "$2.new" "$2"
	mkdir -p "$2.new"
	if [ -d "$1" ]; then
		tar -C "$1" --exclude=.git -cf - . | tar -C "$2.new" -xf -
	else
		tar -C "$2.new" --strip-components=1 -xf "$1"
	fi
	mv "$2.new" "$2"
}

# The unpatched tree, in $stock.
want_source() {
	local from=${KERNEL_SRC:-} id version

	stock=$vm/linux-$opt_kernel-stock
	if [ -z "$from" ]; then
		if [ ! -f "/usr/src/linux-source-$opt_kernel.tar.xz" ]; then
			want_packages "linux-source-$opt_kernel"
		fi
		from=/usr/src/linux-source-$opt_kernel.tar.xz
	fi
	[ -e "$from" ] || die "wanted the kernel source at $from, found nothing; set KERNEL_SRC to a tree or a tarball of $opt_kernel"
	id="$(realpath "$from") $(stat -c '%Y %s' "$from")"
	if [ "$(cat "$stock/.origin" 2> /dev/null)" != "$id" ]; then
		need_space 3000 "the kernel source"
		step unpack "unpacking $from" unpack_source "$from" "$stock"
		version=$(source_version "$stock")
		case $version in
		"$opt_kernel".*) ;;
		*)
			rm -rf "$stock"
			die "wanted the source of Linux $opt_kernel, found '$version' in $from; set KERNEL_SRC to a tree or a tarball of $opt_kernel"
			;;
		esac
		echo "$id" > "$stock/.origin"
	fi
}

# Of what the patches do, not of what their changelogs say.
patches_id() {
	local patches=$top/kernel/patches/$opt_kernel
	{
		cat "$patches/series"
		sed -s -n '/^diff --git/,$p' "$patches"/*.patch
	} | sha256sum | cut -c1-16
}

apply_patches() { # TREE
	local p
	: > "$1/.patched-files"
	while read -r p; do
		echo "applying $p"
		patch -d "$1" -p1 --no-backup-if-mismatch -F0 -f < "$top/kernel/patches/$opt_kernel/$p" || {
			echo "error: $p does not apply to Linux $(source_version "$1")"
			return 1
		}
		sed -n 's,^+++ b/\([^\t]*\).*,\1,p' "$top/kernel/patches/$opt_kernel/$p" >> "$1/.patched-files"
	done < "$top/kernel/patches/$opt_kernel/series"
}

# Hard links to the stock tree: patch(1) replaces what it changes. Object
# folders are kept, or begun as a copy of the stock tree's: make then builds
# what the patches touch and no more.
make_patched() { # STOCK TARGET
	local stock=$1 target=$2 new=$2.new f obj old=''

	rm -rf "$new"
	mkdir "$new"
	(cd "$stock" && find . -mindepth 1 -maxdepth 1 ! -name 'obj-*' -exec cp -al -t "$new" {} +)
	rm -f "$new/.stamp"
	apply_patches "$new" || { rm -rf "$new"; return 1; }
	if [ -d "$target" ]; then
		# A file that the former series changed and this one does not
		# would be older than its object; one that is the same after
		# both keeps its time, for make to see that.
		old=$(sort -u "$target/.patched-files" "$new/.patched-files")
		for f in $old; do
			[ -f "$new/$f" ] || continue
			if cmp -s "$target/$f" "$new/$f"; then
				cp -p --remove-destination "$target/$f" "$new/$f"
			else
				cp --remove-destination "$new/$f" "$new/$f.tmp" && mv "$new/$f.tmp" "$new/$f"
			fi
		done
		for obj in "$target"/obj-*; do
			[ ! -d "$obj" ] || mv "$obj" "$new/"
		done
		rm -rf "$target"
	fi
	mv "$new" "$target"
}

want_patched() {
	local id

	tree=$vm/linux-$opt_kernel-patched
	id="$(patches_id) $(cat "$stock/.origin")"
	if [ "$(cat "$tree/.stamp" 2> /dev/null)" != "$id" ]; then
		step patch "applying kernel/patches/$opt_kernel" make_patched "$stock" "$tree"
		echo "$id" > "$tree/.stamp"
	fi
}

fragments() {
	echo "$top/kernel/config/bench.config"
	[ "$opt_config" = bench ] || echo "$top/kernel/config/$opt_config.config"
}

configure_kernel() { # OBJ
	local wanted line found

	cd "$tree"
	mkdir -p "$1"
	# All that is not asked for is off, as in tinyconfig: merging fragments
	# into a finished tinyconfig would let in what is "default y" under them.
	# shellcheck disable=SC2046
	cat kernel/configs/tiny-base.config kernel/configs/tiny.config arch/x86/configs/tiny.config $(fragments) > "$1/all.config"
	make -s O="$1" ARCH=x86_64 KCONFIG_ALLCONFIG="$1/all.config" allnoconfig
	# kconfig drops what it can't have; here that is an error. Of an option that is in two fragments the later one counts.
	# shellcheck disable=SC2046
	wanted=$(sed -n 's/^# \(CONFIG_[A-Z0-9_]*\) is not set$/\1=n/p; /^CONFIG_/p' $(fragments) | tac | awk -F= '!seen[$1]++')
	for line in $wanted; do
		found=$(grep -E "^${line%%=*}=" "$1/.config" || echo "${line%%=*}=n")
		[ "$found" = "$line" ] || {
			echo "error: $opt_config.config: wanted $line, found $found; something it depends on is missing in the fragment"
			return 1
		}
	done
}

# objtool's objects are built with absolute paths. Were it built anew for that,
# every object that it has checked, that is all of them, would be as well.
seed_objects() { # FROM TO
	rm -rf "$2.new"
	cp -a "$1" "$2.new"
	rm -f "$2.new/.stamp"
	find "$2.new/tools" \( -name '*.cmd' -o -name '*.d' \) -exec sed -i "s,$(dirname "$1")/,$(dirname "$2")/,g" {} +
	mv "$2.new" "$2"
}

# KASAN's checks in lockdep.c took more than a third of a debug kernel's time. Without
# them a freed lock is still found, where it is then taken.
compile_kernel() { # OBJ
	make -C "$1" ARCH=x86_64 KBUILD_BUILD_TIMESTAMP="2026-01-01" KBUILD_BUILD_USER=vm KBUILD_BUILD_HOST=libswitchto \
		KASAN_SANITIZE_lockdep.o=n -j"$(nproc)" bzImage vmlinux
}

# Builds what the options ask for, if need be. The image's path is in $image.
want_kernel() {
	local obj id

	lock
	# shellcheck disable=SC2086
	want_packages $packages_vm
	# shellcheck disable=SC2086
	[ "$opt_config" != scx ] || want_packages $packages_scx
	want_source
	tree=$stock
	[ "$opt_patched" = stock ] || want_patched
	obj=$tree/obj-$opt_config
	# shellcheck disable=SC2046
	id=$(cat $(fragments) "$stock/.origin" | cat - <(gcc --version; declare -f compile_kernel) | sha256sum | cut -c1-16)
	[ "$opt_patched" = stock ] || id="$id $(patches_id)"
	image=$obj/arch/x86/boot/bzImage
	if [ "$(cat "$obj/.stamp" 2> /dev/null)" != "$id" ] || [ ! -f "$image" ]; then
		need_space 1500 "building the kernel"
		if [ "$opt_patched" = patched ] && [ ! -d "$obj" ] && [ -f "$stock/obj-$opt_config/.stamp" ]; then
			step seed "beginning with a copy of the stock kernel's objects" seed_objects "$stock/obj-$opt_config" "$obj"
		fi
		rm -f "$obj/.stamp"
		step "config-$opt_patched-$opt_config" "configuring Linux $opt_kernel, $opt_patched, $opt_config.config" configure_kernel "$obj"
		step "kernel-$opt_patched-$opt_config" "building Linux $opt_kernel, $opt_patched, $opt_config.config" compile_kernel "$obj"
		echo "$id" > "$obj/.stamp"
	fi
	unlock
}

# --- the VM ------------------------------------------------------------------

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
	mkdir -p "$vm/run" || die "wanted to write $vm/run, can't; is the disk full or the folder not yours?"
	# Of what earlier runs left: those that are older than a day.
	find "$vm/run" -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {} +
	run=$(mktemp -d "$vm/run/XXXXXX") || die "wanted a folder in $vm/run, can't make one; is the disk full?"
}

# For a command that does more with a VM than run it: called when $run is there,
# before the VM is started; may set $qemu_more, options for QEMU. If it ends the VM
# before CMD is done, and means to, it leaves $run/ended first.
prepare_run() { :; }
qemu_more=''

# In $vng: the virtme-ng command line without what is to be run, with ports for
# its output if there is an argument. $accel is set.
vng_command() { # [streams]
	local dir args
	vng=(vng --run "$image" --force-9p --cpus "$opt_cpus" --memory "$opt_mem" --rwdir "$run")
	for dir in "${opt_rw[@]}"; do
		vng+=(--rwdir "$(realpath "$dir")")
	done
	[ "$accel" = kvm ] || vng+=(--disable-kvm)
	# A console to a file, whatever the first one is told to omit.
	for args in "console=hvc0 ignore_loglevel mitigations=off" "${opt_append[@]}"; do
		vng+=(--append "$args")
	done
	args="-pidfile $run/qemu.pid -device virtio-serial-pci,id=vm"
	args="$args -chardev file,id=vm.log,path=$run/kernel.log -device virtconsole,bus=vm.0,chardev=vm.log"
	if [ $# -gt 0 ]; then
		# virtme-ng's ports for the standard streams are found by udev,
		# which on a busy host, and under -icount, can come too late:
		# then the command runs and its output is lost. These are found
		# in sysfs by guest.sh.
		args="$args -chardev file,id=vm.out,path=$run/out -device virtserialport,bus=vm.0,chardev=vm.out,name=vm.out"
		args="$args -chardev file,id=vm.err,path=$run/err -device virtserialport,bus=vm.0,chardev=vm.err,name=vm.err"
	fi
	[ -z "$opt_icount" ] || args="$args -icount shift=0,sleep=off"
	args="$args${qemu_more:+ $qemu_more}"
	vng+=("--qemu-opts=$args")
}

# vm_exec CMD...: runs it in the VM, with the standard streams of the caller.
# Its status is returned. 124: the time limit; 125: the VM failed.
#
# Under TCG with several CPUs one boot in fifty was seen (QEMU 7.2, a busy host)
# to end within seconds, before the kernel had a console to say why. CMD has not
# begun by then, so it is no loss to boot again, aloud.
vm_exec() {
	local try status

	for try in 1 2 3; do
		status=0
		vm_exec_once "$@" || status=$?
		if [ $status -ne 125 ] || [ "$accel" != tcg ] || [ -e "$run/up" ] || [ $try -eq 3 ]; then
			return $status
		fi
		say "booting once more ($try of 2)"
	done
}

vm_exec_once() {
	local start=$SECONDS limit_boot=${VM_BOOT_LIMIT:-600} status why='' copiers v

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
			echo up > $(quote "$run/up")
			cd $(quote "$PWD") || {
				echo "vm/run: wanted the folder "$(quote "$PWD")", found that the guest has a /tmp and /run of its own; start from another one, or name it with --rw" >&2
				echo 126 > $(quote "$run/status")
				exit 126
			}
		END
		env -0 | while IFS= read -r -d '' v; do
			case $v in
			SWITCHTO_* | PATH=* | TERM=* | LANG=*) echo "export ${v%%=*}=$(quote "${v#*=}")" ;;
			esac
		done
		cat <<- END
			$(quote "$@")
			status=\$?
			echo \$status > $(quote "$run/status.new") && mv $(quote "$run/status.new" "$run/status")
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
	"${vng[@]}" --exec "$run/guest.sh" <&7 7<&- 5>&- 6>&- > "$run/vng.log" 2>&1 &
	vng_pid=$!
	exec 7<&-
	while kill -0 "$vng_pid" 2> /dev/null; do
		sleep 0.1
		if [ ! -e "$run/up" ] && [ $((SECONDS - start)) -ge "$limit_boot" ]; then
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
choose_accel() {
	local answer id

	accel=$opt_accel
	if [ "$accel" = kvm ]; then
		{ [ -r /dev/kvm ] && [ -w /dev/kvm ]; } ||
			die "--accel kvm: wanted /dev/kvm, found none that can be opened; use --accel tcg, or load the kvm module, or join the group kvm"
		return
	fi
	[ "$accel" = auto ] || return 0
	if [ ! -r /dev/kvm ] || [ ! -w /dev/kvm ]; then
		accel=tcg
		say "accelerator: TCG (no /dev/kvm that can be opened)"
		return
	fi
	id="$(cat /proc/sys/kernel/random/boot_id) $(qemu-system-x86_64 --version | head -n 1)"
	answer=$vm/accel
	if [ "$(head -n 1 "$answer" 2> /dev/null)" != "$id" ]; then
		accel=tcg
		# shellcheck disable=SC2030,SC2031
		if (accel=kvm opt_timeout=60 opt_icount='' opt_cpus=1 opt_rw=() VM_BOOT_LIMIT=45; vm_exec true) > /dev/null 2>&1 < /dev/null; then
			accel=kvm
		fi
		printf '%s\n%s\n' "$id" "$accel" > "$answer"
	fi
	accel=$(tail -n 1 "$answer")
	if [ "$accel" = kvm ]; then
		say "accelerator: KVM"
	else
		say "accelerator: TCG (/dev/kvm is there, but a kernel does not boot under it)"
	fi
}

# The whole way to a VM: what the options ask for is built and $accel known.
want_vm() {
	want_kernel
	lock
	want_virtme
	unlock
	choose_accel
}

# The kernel selftests of futexes, upstream's and the series', into $top/build/kselftest.
want_kselftest() {
	kselftest=$top/build/kselftest
	mkdir -p "$kselftest" || die "wanted to write $kselftest, can't; is the disk full or the folder not yours?"
	step kselftest "building the kernel's futex selftests" build_kselftest
}

build_kselftest() {
	make -C "$tree/obj-$opt_config" ARCH=x86_64 headers &&
		make -C "$tree/tools/testing/selftests/futex/functional" ARCH=x86_64 OUTPUT="$kselftest" \
			KHDR_INCLUDES="-isystem $tree/obj-$opt_config/usr/include"
}

# What of a kselftest the caller of a VM runs: the series' own, beside a group with
# a quota. The first quota and the end of the last one patch the scheduler's code,
# see tests/torture_meddle.c. So not in the middle of the tests, several times, but
# once before.
# shellcheck disable=SC2016
kselftest_command=(sh -c 'cd /sys/fs/cgroup && echo +cpu > cgroup.subtree_control && mkdir quota || exit
	[ ! -e quota/cpu.max ] || echo 10000 10000 > quota/cpu.max || exit
	exec "$@"' sh)

# TCG with several CPUs was seen (QEMU 7.2) to execute the int3 by which the kernel
# patches its code when that was gone from memory already: an oops in whatever code
# it was, an idle CPU's enqueue_entity() among it, where the first cpu.max sets a
# static key. No kernel can help that; such a run is done again, aloud.
emulator_failed() {
	[ "$opt_cpus" -gt 1 ] && [ "$accel" = tcg ] && grep -q 'Oops: int3' "$run/kernel.log" || return
	say "the emulator executed an int3 that was gone: $run/kernel.log"
}

# What the kernel says of itself in its log is part of every test's result. But for
# the data races of the stock kernel, one pattern a line: with no function of the
# series on either side.
kernel_complained() {
	if grep -nE 'WARNING:|BUG:|Oops|general protection|kernel BUG|KASAN|KCSAN:|possible .* detected|INFO: (task|rcu)|Call Trace|inconsistent lock|unable to handle|ODEBUG|Kernel panic|scheduling while atomic' "$run/kernel.log" |
		grep -vE "^[0-9]+:\[ *[0-9.]+\] ($(sed 's/^^//; s/$$//' "$top/tests/kcsan-known" | paste -sd '|'))\$"; then
		echo "the guest's kernel complained: $run/kernel.log"
		return 0
	fi
	[ -s "$run/kernel.log" ] || { echo "the guest's kernel log is empty: $run/kernel.log"; return 0; }
	return 1
}

# For the benchmarks, which write down where they ran.
export_context() {
	SWITCHTO_ACCEL=$accel
	SWITCHTO_UNIT=ns
	# shellcheck disable=SC2031
	[ -z "$opt_icount" ] || SWITCHTO_UNIT=insn
	SWITCHTO_HOST_CPU=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
	export SWITCHTO_ACCEL SWITCHTO_UNIT SWITCHTO_HOST_CPU
}
