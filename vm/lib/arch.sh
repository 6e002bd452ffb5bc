# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# The architecture of the VM: its names, its compiler, and its root file system if this machine has
# another one. vm/lib.sh sources this file.

host_arch=$(uname -m | sed 's/^aarch64$/arm64/')

# The names are the kernel's, but for Debian's and the compiler's. $foreign: this machine has another one.
choose_arch() {
	cmake_source=(-S "$top")
	arch_folder=$opt_arch image_name=Image qemu=qemu-system-aarch64 arch_suffix=-arm64 foreign='' preset=gcc
	kernel_make=("ARCH=$opt_arch") kernel_cc=gcc
	packages_vm="$packages_base qemu-system-arm"
	case $opt_arch,$host_arch in
	x86_64,x86_64)
		arch_folder=x86 image_name=bzImage qemu=qemu-system-x86_64 arch_suffix=''
		packages_vm="$packages_base qemu-system-x86"
		;;
	arm64,arm64 | "$host_arch","$host_arch") ;; # want_kernel() refuses others
	arm64,*)
		foreign=yes preset=arm64 root=$vm/root-arm64
		kernel_make+=(CROSS_COMPILE=aarch64-linux-gnu-) kernel_cc=aarch64-linux-gnu-gcc
		cmake_source+=(--toolchain "$top/vm/lib/arm64.cmake")
		packages_vm+=' gcc-aarch64-linux-gnu g++-aarch64-linux-gnu mmdebstrap'
		;;
	*) usage_error "--arch: wanted arm64, or x86_64 on a machine of that kind, found '$opt_arch'" ;;
	esac
}

# In the root file system: what the tests and benchmarks are linked with, and what they call.
packages_root="$packages_lib ${packages_bench/python3-matplotlib/} python3 procps kmod mount libc6-dev systemtap-sdt-dev libnuma-dev"

# Debian's packages are unpacked, not installed: the scripts of packages would need an emulator. So the
# few files that these make are made here. The release is this machine's, whose compiler links with it.
make_root() { # TARGET
	local suite mirror hooks=/usr/share/mmdebstrap/hooks/merged-usr new=$1.new

	suite=$(. /etc/os-release && echo "$VERSION_CODENAME") && mirror=$(source_list deb "$suite") || { echo "error: $no_mirror"; return 1; }
	rm -rf "$new" "$1"
	mkdir -p "$new" || return 1
	mmdebstrap --architectures=arm64 --variant=extract --include='?essential' --include="$packages_root" --hook-dir="$hooks" \
		"$suite" "$new.tar" "$mirror" &&
		tar -C "$new" --no-same-owner --exclude='./dev/*' -xf "$new.tar" && rm "$new.tar" || return 1
	cp "$new/usr/share/base-passwd/passwd.master" "$new/etc/passwd" &&
		cp "$new/usr/share/base-passwd/group.master" "$new/etc/group" &&
		ln -s mawk "$new/usr/bin/awk" || return 1
	# Absolute links would leave the root when the cross compiler follows them.
	find "$new/usr/lib" -type l -lname '/*' -exec sh -c 'for link; do
		ln -sfnr "$0$(readlink "$link")" "$link" || exit
	done' "$new" {} + || return 1
	# virtme-ng's init calls udev, for the names of the ports of its streams, and poweroff.
	cd "$new/usr/sbin" && ln -s /bin/true udevadm && name_ports > udevd &&
		printf '#!/bin/sh\necho o > /proc/sysrq-trigger\nexec sleep 60\n' > poweroff && chmod +x udevd poweroff || return 1
	mv "$new" "$1"
}

# The root file system, in $root, for a machine of another architecture.
want_root() {
	local id

	[ -n "$foreign" ] || return 0
	lock
	id=$({ echo "$packages_root"; declare -f make_root name_ports; } | sha256sum | cut -c1-16)
	if [ "$(cat "$root.stamp" 2> /dev/null)" != "$id" ]; then
		need_space 1500 "the root file system of arm64"
		rm -f "$root.stamp"
		step "root-$opt_arch" "making the root file system of arm64 from Debian's packages" make_root "$root"
		echo "$id" > "$root.stamp"
	fi
	unlock
}
