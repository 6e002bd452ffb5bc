# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# The options that several commands in vm/ share. vm/lib.sh sources this file.

opt_kernel=6.12 opt_patched=patched opt_config=bench opt_arch=$host_arch opt_cpus='' opt_mem=4G
opt_icount='' opt_sleep=off opt_accel=auto opt_timeout=0 opt_rw=() opt_append=()
vm_options=() # those of the VM, as words for vm_exec

options_help='  --kernel VERSION     kernel version, one of kernel/patches/ (6.12)
  --stock              without the patches
  --config NAME        bench, debug, rt, preempt, up, net, kcsan, scx or, of arm64, 64k:
                       kernel/config/NAME.config (bench)
  --arch ARCH          arm64, on any machine: cross-compiled and emulated where need be, with a
                       root file system of its own (this machine'\''s architecture)'
vm_options_help='  --cpus N             virtual CPUs (2; with --icount 1)
  --mem SIZE           memory, as 4G (4G)
  --icount             count instructions: 1 ns of guest time is 1 instruction of any
                       CPU, so that several take turns; implies --accel tcg
  --real-sleep         with --icount: idle CPUs sleep. Otherwise the clock jumps to the next
                       timer, also while the guest waits for a file of the host
  --accel auto|kvm|tcg auto: KVM if a kernel boots under it here, else TCG (auto)
  --timeout SECONDS    end the VM if CMD takes longer; 0: never (0)
  --rw DIR             the VM writes to the host'\''s DIR, not a copy (repeatable)
  --append ARGS        more kernel command line (repeatable)'

# Parses one common option at the start of the arguments. Sets $taken to its number
# of words; 0: no common option.
parse_option() {
	taken=2
	case $1 in
	--stock | --icount | --real-sleep) taken=1 ;;
	--kernel | --config | --arch | --cpus | --mem | --accel | --timeout | --rw | --append) ;;
	*) taken=0; return ;;
	esac
	[ $# -ge $taken ] || usage_error "$1: wanted a value, found the end of the line"
	case $1 in
	--stock | --kernel | --config | --arch) ;;
	*) vm_options+=("${@:1:taken}") ;;
	esac
	case $1 in
	--stock) opt_patched=stock ;;
	--icount) opt_icount=yes ;;
	--real-sleep) opt_sleep=on ;;
	--kernel) opt_kernel=$2 ;;
	--config) opt_config=$2 ;;
	--arch) opt_arch=$2 ;;
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

	choose_arch
	known=$(cd "$top/kernel/patches" && echo *)
	[ -f "$top/kernel/patches/$opt_kernel/series" ] ||
		usage_error "--kernel: wanted one of: $known; found '$opt_kernel'"
	case $opt_config in
	bench | debug | rt | preempt | up | net | kcsan | scx) ;;
	64k) [ "$opt_arch" = arm64 ] || usage_error "--config 64k: wanted --arch arm64, which has pages of 64 KiB, found $opt_arch" ;;
	*) usage_error "--config: wanted bench, debug, rt, preempt, up, net, kcsan, scx or 64k; found '$opt_config'" ;;
	esac
	[ -n "$opt_cpus" ] || opt_cpus=$([ -n "$opt_icount" ] && echo 1 || echo 2)
	[[ $opt_cpus =~ ^[1-9][0-9]?$ ]] || usage_error "--cpus: wanted 1 to 64, found '$opt_cpus'"
	[ "$opt_cpus" -le 64 ] || usage_error "--cpus: wanted 1 to 64, found '$opt_cpus'"
	[[ $opt_mem =~ ^[1-9][0-9]*[MG]$ ]] || usage_error "--mem: wanted a size as 512M or 4G, found '$opt_mem'"
	[[ $opt_timeout =~ ^[0-9]+$ ]] || usage_error "--timeout: wanted seconds, found '$opt_timeout'"
	case $opt_accel in
	auto | kvm | tcg) ;;
	*) usage_error "--accel: wanted auto, kvm or tcg; found '$opt_accel'" ;;
	esac
	[ "$opt_accel" != kvm ] || [ -z "$foreign" ] ||
		usage_error "--accel kvm: wanted --arch $host_arch, which is this machine's, found $opt_arch"
	[ "$opt_sleep" = off ] || [ -n "$opt_icount" ] || usage_error "--real-sleep: wanted --icount with it"
	if [ -n "$opt_icount" ]; then
		[ "$opt_accel" != kvm ] || usage_error "--icount: QEMU counts instructions under TCG only; found --accel kvm"
		opt_accel=tcg
	fi
	local dir
	for dir in "${opt_rw[@]}"; do
		[ -d "$dir" ] || usage_error "--rw: wanted a folder, found '$dir'"
		[ -w "$dir" ] || usage_error "--rw: wanted a folder that can be written, found '$dir'"
	done
}
