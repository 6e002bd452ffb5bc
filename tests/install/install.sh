#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: install.sh BUILD PREFIX
# Installs the build in BUILD under PREFIX and uses it from there as others do.
set -eu

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

[ $# -eq 2 ] || fail "wanted BUILD and PREFIX, found $# arguments"
build=$1
prefix=$2
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
cxx=${CXX:-c++}

# Of an earlier run, and of nobody else: it has to hold the library's header.
if [ -e "$prefix" ]; then
	[ -e "$prefix/include/switchto/switchto.h" ] ||
		fail "wanted a new folder, found $prefix: remove it"
	rm -rf "$prefix"
fi
cmake --install "$build" --prefix "$prefix" >/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pc=$(find "$prefix" -name switchto.pc)
[ -n "$pc" ] || fail "wanted switchto.pc under $prefix, found none"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
lib=$(pkg-config --variable=libdir switchto)
cflags=$(pkg-config --cflags switchto)
libs=$(pkg-config --libs switchto)
static_libs=$(pkg-config --static --libs switchto)
door_libs=$(pkg-config --libs switchto-door)
door_static_libs=$(pkg-config --static --libs switchto-door)
sched_libs=$(pkg-config --libs switchto-sched)
sched_static_libs=$(pkg-config --static --libs switchto-sched)

version=$(sed -n 's/^#define SWITCHTO_VERSION_[A-Z]* //p' "$prefix/include/switchto/switchto.h" |
	paste -sd .)
found=$(pkg-config --modversion switchto)
[ "$found" = "$version" ] || fail "wanted version $version of switchto.pc, found $found"

# Each library exports what its header declares, and nothing else. The static one meets the names of
# whoever links it; <sys/sdt.h> defines a hidden one.
: >"$work/wanted"
for name in switchto switchto-door switchto-sched; do
	sed -nE 's/^[a-z][^(]*\<(switchto_[a-z_]+)\(.*/\1/p; s/^extern const struct switchto_policy (.*);/\1/p' \
		"$prefix/include/switchto/${name#switchto-}.h" | sort >"$work/declared"
	[ -s "$work/declared" ] || fail "wanted the functions of lib$name, found none in its header"
	cat "$work/declared" >>"$work/wanted"
	nm -D --defined-only "$lib/lib$name.so" |
		sed -n 's/^[0-9a-f]* [^A] \([^@]*\).*/\1/p' | sort >"$work/found"
	diff "$work/declared" "$work/found" ||
		fail "wanted these symbols exported by lib$name.so (<), found those (>)"

	soname=lib$name.so.0.3
	found=$(readelf -d "$lib/lib$name.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
	[ "$found" = "$soname" ] || fail "wanted soname $soname, found $found"
	[ -e "$lib/$soname" ] || fail "wanted $lib/$soname, found nothing"

	stray=$(nm -g --defined-only "$lib/lib$name.a" |
		awk 'NF == 3 && $3 !~ /^(switchto_|_\.stapsdt\.base$)/ { print $3 }')
	[ -z "$stray" ] || fail "wanted names that begin with switchto_ in lib$name.a, found: $stray"
done

for page in man7/switchto.7 man7/switchto-door.7 man7/switchto-sched.7 man2/futex_swap.2 \
	$(sed 's|.*|man3/&.3|' "$work/wanted"); do
	[ -s "$prefix/share/man/$page" ] || fail "wanted the man page share/man/$page, found none"
done

warnings="-Wall -Wextra -Wpedantic -Werror"

# The headers by themselves, with every compiler that is here.
for compiler in "$cc" gcc clang; do
	if ! command -v "$compiler" >/dev/null; then
		echo "install.sh: no $compiler here, the header is not checked with it"
		continue
	fi
	for std in c11 gnu11; do
		# shellcheck disable=SC2086
		for header in switchto.h door.h sched.h; do
			echo "#include <switchto/$header>" |
				"$compiler" -x c -std=$std $warnings $cflags -fsyntax-only - ||
				fail "wanted $header to be clean for $compiler -std=$std"
		done
	done
	for header in switchto.h door.h sched.h sched.hpp; do
		# shellcheck disable=SC2086
		echo "#include <switchto/$header>" |
			"$compiler" -x c++ -std=c++17 $warnings $cflags -fsyntax-only - ||
			fail "wanted $header to be clean for $compiler -std=c++17"
	done
done

run() {
	LD_LIBRARY_PATH=$lib "$@" || fail "wanted $1 to succeed, got status $?"
}

# shellcheck disable=SC2086
{
	"$cc" -std=c11 $warnings $cflags "$here/consumers/consumer.c" -o "$work/c" $libs
	"$cxx" -std=c++17 $warnings $cflags "$here/consumers/consumer.cpp" -o "$work/cpp" $libs
	"$cc" -std=c11 $warnings $cflags "$here/consumers/consumer.c" -o "$work/c_static" \
		-Wl,-Bstatic $static_libs -Wl,-Bdynamic
	"$cc" -std=gnu11 $warnings $cflags "$here/consumers/door.c" -o "$work/door_c" $door_libs
	"$cc" -std=gnu11 $warnings $cflags "$here/consumers/door.c" -o "$work/door_c_static" \
		-Wl,-Bstatic $door_static_libs -Wl,-Bdynamic
	"$cc" -std=c11 $warnings $cflags "$here/consumers/sched.c" -o "$work/sched_c" $sched_libs
	"$cxx" -std=c++17 $warnings $cflags "$here/consumers/sched.cpp" -o "$work/sched_cpp" $sched_libs
	"$cc" -std=c11 $warnings $cflags "$here/consumers/sched.c" -o "$work/sched_c_static" \
		-Wl,-Bstatic $sched_static_libs -Wl,-Bdynamic
}
for program in c cpp c_static door_c door_c_static sched_c sched_cpp sched_c_static; do
	run "$work/$program"
done
ldd "$work/c" | grep libswitchto.so.0.3 >"$work/log" ||
	fail "wanted a program that needs libswitchto.so.0.3, found: $(ldd "$work/c")"
for program in c_static door_c_static sched_c_static; do
	! ldd "$work/$program" | grep libswitchto ||
		fail "wanted a program that needs no libswitchto.so, found one that does"
done

# gdb loads the commands of both libraries with libswitchto.so, from where this is installed.
if command -v gdb >/dev/null; then
	helper=$(find "$(cd "$prefix" && pwd)/share/gdb" -name 'libswitchto.so.*-gdb.py')
	real=$(dirname "$(realpath "$lib/libswitchto.so")")
	mkdir -p "$work/auto$(dirname "$real")"
	ln -s "$(dirname "$helper")" "$work/auto$real"
	LD_LIBRARY_PATH=$lib gdb -q -nx -batch -iex "add-auto-load-safe-path $work:$(realpath "$prefix")" \
		-iex "add-auto-load-scripts-directory $work/auto" -ex "break main" -ex run \
		-ex "switchto slots" "$work/sched_c" </dev/null >"$work/log" 2>&1 || true
	grep -Eq "^no slots|debug information of libswitchto-sched|ptrace: Operation" "$work/log" ||
		fail "wanted gdb to load $helper, found: $(cat "$work/log")"
fi

# The core is found where the library on it is, which is all that a program names.
for name in door sched; do
	# shellcheck disable=SC2046,SC2086
	"$cc" -std=gnu11 $cflags "$here/consumers/$name.c" -o "$work/rpath" $(pkg-config --libs "switchto-$name") \
		"-Wl,-rpath,$(realpath "$lib")"
	env -u LD_LIBRARY_PATH "$work/rpath" ||
		fail "wanted a program to find libswitchto-$name and the core by its own path of $lib, found that it does not"
done

build_consumers() { # OPTION [TARGET]
	cmake -S "$here/consumers" -B "$work/cmake" "$1" && cmake --build "$work/cmake" --target "${2:-all}"
}
if ! build_consumers -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1; then
	cat "$work/log" >&2
	fail "wanted a CMake project that finds switchto::switchto, see above"
fi
for program in c cpp c_static cpp_static door_c door_c_static sched_c sched_cpp sched_c_static sched_cpp_static; do
	run "$work/cmake/consumer_$program"
done

# As a part of another project: only the libraries, and that project decides what is installed.
rm -rf "$work/cmake"
if ! build_consumers -DSOURCE="$here/../.." consumer_sched_c >"$work/log" 2>&1 ||
	! DESTDIR="$work/none" cmake --install "$work/cmake" >>"$work/log" 2>&1; then
	cat "$work/log" >&2
	fail "wanted a CMake project that has the sources, see above"
fi
run "$work/cmake/consumer_sched_c"
deps=$work/cmake/_deps/switchto-build
[ -d "$deps" ] || fail "wanted $deps, found none"
found=$(find "$work/none" "$deps/tools" "$deps/tests" 2>/dev/null || true)
[ -z "$found" ] || fail "wanted nothing but the libraries, found: $found"

# With Meson.
command -v meson >/dev/null || fail "wanted meson, found none: install the package meson"
mkdir -p "$work/meson/subprojects"
cp "$here/consumers/meson.build" "$here/consumers/sched.c" "$work/meson"
ln -s "$(realpath "$here/../..")" "$work/meson/subprojects/switchto"
if ! CC=$cc CXX=$cxx meson setup "$work/meson/build" "$work/meson" >"$work/log" 2>&1 ||
	! meson compile -C "$work/meson/build" >>"$work/log" 2>&1; then
	cat "$work/log" >&2
	fail "wanted a Meson project that has the sources, see above"
fi
run "$work/meson/build/consumer_sched_c"
