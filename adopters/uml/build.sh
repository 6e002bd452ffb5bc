# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# User-mode Linux for vm/adopt, which sources this file.
title='UML 7.3'
packages='build-essential flex bison bc'
variants='unpatched patched'

# name (bench/adopters.py knows these), variant, environment. UML asks the host for the
# operation, not libswitchto. With "off", it asks and does not use the answer.
columns=(
	'unpatched unpatched'
	'wake-wait patched FUTEX_SWAP=off'
	'swap patched FUTEX_SWAP=on'
)

# name, command in the folder of the build
benchmarks=('getpid bin/uml calls=50000')
ignore=''

build() { # VARIANT SOURCE OUT
	local here nolibc=$2/tools/testing/selftests/nolibc
	here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
	mkdir "$3/bin" &&
		gcc -O2 -static -o "$3/bin/init" "$here/init.c" &&
		gcc -w -static -o "$3/bin/tests" "$nolibc"/nolibc-test*.c &&
		printf '%s\n' 'dir /dev 755 0 0' 'dir /proc 755 0 0' 'dir /sys 755 0 0' 'dir /tmp 1777 0 0' \
			'nod /dev/console 600 0 0 c 5 1' "file /init $3/bin/init 755 0 0" "file /tests $3/bin/tests 755 0 0" > "$3/initramfs" &&
		cat > "$3/all.config" << END &&
CONFIG_64BIT=y
CONFIG_EXPERT=y
CONFIG_CC_OPTIMIZE_FOR_PERFORMANCE=y
CONFIG_PRINTK=y
CONFIG_BUG=y
CONFIG_BINFMT_ELF=y
CONFIG_BINFMT_SCRIPT=y
CONFIG_BLK_DEV_INITRD=y
CONFIG_INITRAMFS_SOURCE="$3/initramfs"
CONFIG_MULTIUSER=y
CONFIG_NAMESPACES=y
CONFIG_UTS_NS=y
CONFIG_FUTEX=y
CONFIG_POSIX_TIMERS=y
CONFIG_TIMERFD=y
CONFIG_HIGH_RES_TIMERS=y
CONFIG_NO_HZ_IDLE=y
CONFIG_PROC_FS=y
CONFIG_PROC_SYSCTL=y
CONFIG_SYSFS=y
CONFIG_DEVTMPFS=y
CONFIG_TMPFS=y
CONFIG_SHMEM=y
CONFIG_TTY=y
CONFIG_UNIX98_PTYS=y
CONFIG_NULL_CHAN=y
CONFIG_STDERR_CONSOLE=y
CONFIG_CON_ZERO_CHAN="null,fd:1"
CONFIG_CON_CHAN="null"
CONFIG_SSL_CHAN="null"
END
		make -s -C "$2" ARCH=um O="$3" KCONFIG_ALLCONFIG="$3/all.config" allnoconfig &&
		make -s -C "$2" ARCH=um O="$3" -j "$(nproc)" &&
		cat > "$3/bin/uml" << 'END' && chmod +x "$3/bin/uml"
#!/bin/sh
# uml ARGUMENT...: of the kernel. Prints what programs print.
cd "$(dirname "$0")/.." || exit
./linux mem=64M seccomp=on loglevel=1 ${FUTEX_SWAP:+"futex_swap=$FUTEX_SWAP"} con0=null,fd:1 "$@" 2> uml.log | sed -u 's/\r//'
END
}

# The kernel's own tests of system calls, with the C library. Then ours: when they ask for it,
# the host, which is the VM, kills the stub of a process.
tests() { # OUT
	local log=$1/tests.log
	"$1/bin/uml" rdinit=/tests > "$log" 2>&1
	awk '/\[(OK|FAIL)\]$/ { ok = /\[OK\]$/; print (ok ? "ok " : "not ok ") $2 }' "$log" | sort -u
	timeout 300 "$1/bin/uml" tests=yes 2>&1 | while read -r line; do
		case $line in
		'ok '* | 'not ok '*) echo "$line" ;;
		'kill the newest stub') sleep 1 && pkill -KILL -n -x uml-userspace ;;
		esac
	done
}
