# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# The kernel: source, patches, configuration, image, selftests. vm/lib.sh sources this file.

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

# Of apt-cache policy. Reads all of it: grep -q ends at once, and apt-cache by SIGPIPE.
has_candidate() { grep 'Candidate: [0-9]' > /dev/null; }

# Into a folder, as a release's packages may be of no use beside those of another one. A
# release may have the kernel in its backports only, and the one before has it not at all.
fetch_backport() { # PACKAGE TARGET
	local apt=$vm/apt suite=trixie-backports options

	mkdir -p "$apt/lists/partial" "$(dirname "$2")" || return 1
	source_list deb $suite > "$apt/$suite.list" || { echo "error: $no_mirror"; return 1; }
	options=(-o "Dir::Etc::sourcelist=$apt/$suite.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists"
		-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
	apt-get "${options[@]}" update || return 1
	apt-cache "${options[@]}" policy "$1" | has_candidate || { echo "error: $suite has no $1"; return 1; }
	rm -rf "$apt/new"
	mkdir "$apt/new" && cd "$apt/new" && apt-get "${options[@]}" download "$1" || return 1
	dpkg-deb --fsys-tarfile ./*.deb | tar -xOf - "./usr/src/$1.tar.xz" > "$2.new" && mv "$2.new" "$2" || return 1
	rm -rf "$apt/new"
}

# Debian's archive of the kernel's source, in $archive.
want_archive() {
	local package=linux-source-$opt_kernel

	archive=/usr/src/$package.tar.xz
	[ ! -f "$archive" ] || return 0
	if [ "$opt_kernel" = 6.12 ] || apt-cache policy "$package" | has_candidate; then
		want_packages "$package"
		return
	fi
	archive=$vm/source/$package.tar.xz
	[ -f "$archive" ] || (step fetch "fetching $package" fetch_backport "$package" "$archive") ||
		die "wanted $package, found none in this machine's package sources or Debian 13's backports; set KERNEL_SRC_${opt_kernel//./_} to a tree or a tarball of $opt_kernel"
}

# The unpatched tree, in $stock. KERNEL_SRC_7_3 is for that version alone.
want_source() {
	local own=KERNEL_SRC_${opt_kernel//./_} id version
	local from=${!own:-${KERNEL_SRC:-}}

	stock=$vm/linux-$opt_kernel-stock
	if [ -z "$from" ]; then
		want_archive
		from=$archive
	fi
	[ -e "$from" ] || die "wanted the kernel source at $from, found nothing; set KERNEL_SRC_${opt_kernel//./_} to a tree or a tarball of $opt_kernel"
	id="$(realpath "$from") $(stat -c '%Y %s' "$from")"
	if [ "$(cat "$stock/.origin" 2> /dev/null)" != "$id" ]; then
		need_space 3000 "the kernel source"
		step unpack "unpacking $from" unpack_source "$from" "$stock"
		version=$(source_version "$stock")
		case $version in
		"$opt_kernel".*) ;;
		*)
			rm -rf "$stock"
			die "wanted the source of Linux $opt_kernel, found '$version' in $from; set KERNEL_SRC_${opt_kernel//./_} to a tree or a tarball of $opt_kernel"
			;;
		esac
		echo "$id" > "$stock/.origin"
	fi
}

# A hash of the patches' diffs, without their changelogs.
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
# folders are kept.
make_patched() { # STOCK TARGET
	local stock=$1 target=$2 new=$2.new f obj old=''

	rm -rf "$new"
	mkdir "$new"
	(cd "$stock" && find . -mindepth 1 -maxdepth 1 ! -name 'obj-*' -exec cp -al -t "$new" {} +)
	rm -f "$new/.stamp"
	apply_patches "$new" || { rm -rf "$new"; return 1; }
	if [ -d "$target" ]; then
		# A file that only the former series changed would be older
		# than its object: it gets a new time. A file that is the
		# same after both keeps its time.
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

# A fragment NAME-VERSION says what NAME has to be in that version, NAME-ARCH on that architecture, and
# NAME-VERSION-ARCH in both.
fragments() {
	local name fragment

	for name in $(printf '%s\n' bench "$opt_config" | uniq); do
		for fragment in "$top/kernel/config/$name.config" "$top/kernel/config/$name-"{"$opt_kernel","$opt_arch","$opt_kernel-$opt_arch"}.config; do
			[ ! -f "$fragment" ] || echo "$fragment"
		done
	done
}

configure_kernel() { # OBJ
	local wanted line found

	cd "$tree" || return 1
	mkdir -p "$1"
	# Options not asked for are off, as in tinyconfig. Merging fragments into
	# a finished tinyconfig would add what is "default y" below them.
	# shellcheck disable=SC2046
	cat kernel/configs/tiny-base.config kernel/configs/tiny.config $(find "arch/$arch_folder/configs" -name tiny.config) $(fragments) > "$1/all.config"
	make -s O="$1" "${kernel_make[@]}" KCONFIG_ALLCONFIG="$1/all.config" allnoconfig
	# kconfig silently drops impossible options; here that is an error. The later of two fragments decides an option.
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

# Hard links for the source, and a copy of the configuration's objects.
#
# objtool's objects record absolute paths. With wrong ones make would rebuild
# objtool, and then every object, because objtool has checked them all. From 6.13 on,
# the folder's Makefile names the tree, too: with a wrong one make would build that tree.
copy_tree() { # FROM TO
	local name=obj-$opt_config$arch_suffix
	local obj=$2/$name

	rm -rf "$2"
	mkdir "$2"
	(cd "$1" && find . -mindepth 1 -maxdepth 1 ! -name 'obj-*' -exec cp -al -t "$2" {} +)
	cp -a "$1/$name" "$obj"
	rm -f "$obj/.stamp"
	sed -i "s,$1/,$2/,g" "$obj/Makefile"
	find "$obj/tools" \( -name '*.cmd' -o -name '*.d' \) -exec sed -i "s,$1/,$2/,g" {} +
}

# Twice as many jobs as CPUs: the VMs of vm/test wait for the kernel, so it is to get more of the CPUs
# than the tests beside it.
#
# KASAN's checks in lockdep.c took more than a third of a debug kernel's time. Without
# them a freed lock is still found when it is taken.
compile_kernel() { # OBJ
	make -C "$1" "${kernel_make[@]}" KBUILD_BUILD_TIMESTAMP="2026-01-01" KBUILD_BUILD_USER=vm KBUILD_BUILD_HOST=libswitchto \
		KASAN_SANITIZE_lockdep.o=n -j"$((2 * $(nproc)))" "$image_name" vmlinux
}

# The object folder of the options in $tree, in $obj, and the image's path, in $image.
name_image() {
	obj=$tree/obj-$opt_config$arch_suffix
	image=$obj/arch/$arch_folder/boot/$image_name
}

# Builds what the options ask for, if need be. The image's path is in $image.
want_kernel() {
	local obj id name=$opt_patched-$opt_config$arch_suffix

	[[ $opt_arch =~ ^(x86_64|arm64)$ ]] || die "wanted an x86_64 or arm64 machine, found $opt_arch; use --arch arm64"
	lock
	# shellcheck disable=SC2086
	want_packages $packages_vm
	# shellcheck disable=SC2086
	[ "$opt_config" != scx ] || want_packages $packages_scx
	want_source
	tree=$stock
	[ "$opt_patched" = stock ] || want_patched
	name_image
	# shellcheck disable=SC2046
	id=$(cat $(fragments) "$stock/.origin" | cat - <($kernel_cc --version; declare -f compile_kernel) | sha256sum | cut -c1-16)
	[ "$opt_patched" = stock ] || id="$id $(patches_id)"
	if [ "$(cat "$obj/.stamp" 2> /dev/null)" != "$id" ] || [ ! -f "$image" ]; then
		need_space 1500 "building the kernel"
		rm -f "$obj/.stamp"
		step "config-$name" "configuring Linux $opt_kernel, $opt_patched, $opt_config.config${foreign:+, $opt_arch}" configure_kernel "$obj"
		step "kernel-$name" "building Linux $opt_kernel, $opt_patched, $opt_config.config${foreign:+, $opt_arch}" compile_kernel "$obj"
		echo "$id" > "$obj/.stamp"
	fi
	unlock
}

# What $opt_kernel has of FILE: #if LINUX_AT_LEAST(6, 16) ... #else ... #endif, without these lines.
for_kernel() { # FILE...
	awk -v version="$opt_kernel" '
		BEGIN { split(version, v, "."); keep = 1 }
		/^#if LINUX_AT_LEAST\([0-9]+, [0-9]+\)$/ {
			split($0, least, /[^0-9]+/)
			keep = v[1] * 1000 + v[2] >= least[2] * 1000 + least[3]
			depth = 1
			next
		}
		depth && /^#if/ { depth++ }
		depth == 1 && /^#else/ { keep = !keep; next }
		depth && /^#endif/ && !--depth { keep = 1; next }
		keep' "$@" | cat -s
}

functional=tools/testing/selftests/futex/functional

# FILEs of kernel/selftests/ into TREE, which has the futex selftests of $stock, and all programs
# and headers that are there then into the lists.
add_selftests() { # TREE FILE...
	local tests=$1/$functional file programs headers

	for file in "${@:2}"; do
		case $file in
		*.patch) patch -d "$1" -p1 --no-backup-if-mismatch -F0 -f -s < "$top/kernel/selftests/$file" || return 1 ;;
		*) for_kernel "$top/kernel/selftests/$file" > "$tests/$file" || return 1 ;;
		esac
	done
	programs=$(cd "$tests" && find . -name 'futex_swap*.c' | sed 's,^\./\(.*\)\.c$,\1,' | LC_ALL=C sort | tr '\n' ' ')
	headers=$(cd "$tests" && find . -name 'futex_swap*.h' | sed 's,^\./,,' | LC_ALL=C sort | tr '\n' ' ')
	awk -v headers="$headers" -v programs="$programs" '
		/^LOCAL_HDRS := / { more = headers }
		/^TEST_GEN_PROGS := / { more = programs }
		more && !/\\$/ { n = split(more, name); for (i = 1; i <= n; i++) $0 = $0 " \\\n\t" name[i]; more = "" }
		{ print }' "$stock/$functional/Makefile" > "$tests/Makefile"
	[ -n "$programs" ] || return 0
	# shellcheck disable=SC2086
	printf '%s\n' $programs | cat "$stock/$functional/.gitignore" - > "$tests/.gitignore"
	# shellcheck disable=SC2086
	{ printf '\necho\n'; printf './%s\n' $programs; } | cat "$stock/$functional/run.sh" - > "$tests/run.sh"
}

# The files of kernel/selftests/ in the order of its series.
selftest_files() { sed -n 's/^== //p' "$top/kernel/selftests/series" | tr '\n' ' '; }

# The selftests into the patched tree. A file that stays the same keeps its time, so that make
# compiles only what has changed.
copy_selftests() {
	local new=$vm/selftests-$opt_kernel.new folder=${functional%/*} file

	rm -rf "$new"
	mkdir -p "$new/${folder%/*}"
	cp -a "$stock/$folder" "$new/$folder"
	cp "$tree/MAINTAINERS" "$new/"
	# shellcheck disable=SC2046
	add_selftests "$new" $(selftest_files) || return 1
	(cd "$new/$folder" && find . -type f) | while read -r file; do
		cmp -s "$new/$folder/$file" "$tree/$folder/$file" ||
			cp --preserve=mode --remove-destination "$new/$folder/$file" "$tree/$folder/$file" || exit
	done || return 1
	rm -rf "$new"
}

# The kernel selftests of futexes, upstream's and kernel/selftests/, into a folder
# for each version.
want_kselftest() {
	kselftest=$top/build/kselftest-$opt_kernel$arch_suffix
	can_write "$kselftest"
	want_root
	lock
	step kselftest "building the kernel's futex selftests" make_kselftest
	unlock
}

make_kselftest() { copy_selftests && build_kselftest; }

build_kselftest() {
	local obj=$tree/obj-$opt_config$arch_suffix cc=()
	[ -z "$foreign" ] || cc=("CC=$kernel_cc --sysroot=$root")
	make -C "$obj" "${kernel_make[@]}" headers &&
		make -C "$tree/$functional" "${kernel_make[@]}" "${cc[@]}" OUTPUT="$kselftest" \
			KHDR_INCLUDES="-isystem $obj/usr/include"
}
