# shellcheck shell=bash
# shellcheck disable=SC2154
# SPDX-License-Identifier: MIT
#
# The patched kernel as Debian packages, for a real machine. vm/build sources this file.

packages_deb='build-essential flex bison bc libelf-dev libssl-dev openssl xz-utils zstd kmod cpio patch rsync debhelper'

# FILE's configuration, without what only its distributor can build: Debian's
# certificates and its key for modules. Modules are signed with a key that the build makes.
# Debug information takes more disk space than all else. It is built only for BTF, which
# needs pahole.
configure_package() { # OBJ FILE
	local config=("$tree/scripts/config" --file "$1/.config")

	mkdir -p "$1"
	cp "$2" "$1/.config"
	"${config[@]}" --set-str LOCALVERSION -switchto -d LOCALVERSION_AUTO \
		--set-str SYSTEM_TRUSTED_KEYS '' --set-str SYSTEM_REVOCATION_KEYS '' --set-str SYSTEM_BLACKLIST_HASH_LIST '' \
		--set-str MODULE_SIG_KEY certs/signing_key.pem -e MODULE_SIG_ALL
	if ! with_btf "$2"; then
		"${config[@]}" -d DEBUG_INFO_BTF -e DEBUG_INFO_NONE \
			-d DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT -d DEBUG_INFO_DWARF4 -d DEBUG_INFO_DWARF5
	fi
	make -C "$tree" O="$1" "${kernel_make[@]}" olddefconfig
}

with_btf() { # FILE
	grep -q '^CONFIG_DEBUG_INFO_BTF=y' "$1" && command -v pahole > /dev/null
}

# The packages are written to the folder around OBJ. terse: the log has one line per file.
compile_package() { # OBJ
	rm -f "$1"/../*.deb
	DEB_BUILD_OPTIONS=terse DEB_BUILD_PROFILES=pkg.linux-upstream.nokerneldbg \
		make -C "$1" "${kernel_make[@]}" -j"$(nproc)" bindeb-pkg
}

# Builds the packages with the configuration in FILE, if need be. Their paths are in
# ${debs[@]}.
want_package() { # FILE
	local work=$vm/package-$opt_kernel out=$top/build/deb id btf='' space=10000

	[ -r "$1" ] || die "wanted a kernel configuration at $1, found none that can be read; name one with --config-file FILE (zcat /proc/config.gz > FILE, if this kernel has it)"
	grep -q "^CONFIG_${opt_arch^^}=y" "$1" || die "wanted the configuration of a kernel for $opt_arch, found no CONFIG_${opt_arch^^}=y in $1"
	lock
	# shellcheck disable=SC2086
	want_packages $packages_deb
	want_source
	want_patched
	# The sizes are estimates, for the configuration of a distribution.
	if with_btf "$1"; then
		btf=BTF space=40000
	elif grep -q '^CONFIG_DEBUG_INFO_BTF=y' "$1"; then
		say "$1 asks for BTF, and there is no pahole: building without; install pahole and run this again for BTF"
	fi
	id="$(patches_id) $(cat "$stock/.origin") $btf"
	id="$id $({ cat "$1"; gcc --version; declare -f configure_package compile_package; } | sha256sum | cut -c1-16)"
	if [ "$(cat "$work/.stamp" 2> /dev/null)" != "$id" ] || ! packages_there; then
		mkdir -p "$work" "$out" || die "wanted to write $out, can't; is the disk full or the folder not yours?"
		need_space $space "building the kernel package"
		rm -f "$work/.stamp"
		step "config-package" "configuring Linux $opt_kernel with $1" configure_package "$work/obj" "$1"
		step "package" "building the packages of Linux $opt_kernel (hours, with a distribution's configuration)" compile_package "$work/obj"
		# linux-libc-dev stays where it is: it would replace the distribution's.
		rm -f "$out/linux-"*"-$opt_kernel".*-switchto_*.deb
		find "$work" -maxdepth 1 \( -name 'linux-image-*' -o -name 'linux-headers-*' \) -name '*-switchto_*.deb' -exec mv -t "$out" {} +
		packages_there || die "wanted linux-image-$opt_kernel.*-switchto_*.deb in $work, found none; log: $vm/log/package.log"
		echo "$id" > "$work/.stamp"
	fi
	unlock
}

# A kernel without modules has no linux-headers.
packages_there() {
	local deb

	debs=()
	for deb in "$top/build/deb/linux-"{image,headers}-"$opt_kernel".*-switchto_*.deb; do
		[ ! -f "$deb" ] || debs+=("$deb")
	done
	[[ ${debs[*]} == *linux-image-* ]]
}
