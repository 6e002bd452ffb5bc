#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compares the ABI of the shared libraries, as built by GCC and by Clang, with the
# dumps in libswitchto/abi/, and their symbols with debian/*.symbols. Any difference is
# a fault, even an added symbol. A commit that changes the ABI on purpose must update
# both.
# usage: tests/static/abi.sh [--update]	(--update: write the dumps)
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

libraries=(libswitchto libswitchto-door libswitchto-sched)
update=''
case ${1:-} in
'') ;;
--update) update=yes ;;
*) usage_error "wanted nothing or --update, found '$1'" ;;
esac

if [ "$(uname -m)" != x86_64 ]; then
	echo "$me: skipped: the ABI is written down for x86_64, found $(uname -m)"
	exit 77
fi
want_tool abidw abigail-tools
want_tool abidiff abigail-tools
want_tool cmake cmake
want_tool gcc gcc
want_tool nm binutils
want_tool readelf binutils
[ -n "$update" ] || want_tool clang clang
cd "$top"
# What an exported function takes and gives is in a header: the compiler compares it with the source.
want_tracked 'libswitchto/include/*' 'libswitchto/abi/*' '*.map' 'debian/*.symbols' CMakeLists.txt libswitchto/CMakeLists.txt
want_changed abidw tests/static/lib.sh "${tracked[@]}"
[ -n "$update" ] || [ ${#changed[@]} -gt 0 ] || exit 0
want_work

# Only types that the public headers declare, and nothing about where and by what the
# library was built.
write_dump() { # LIBRARY FILE
	abidw --exported-interfaces-only --drop-undefined-syms --headers-dir libswitchto/include --drop-private-types \
		--no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --type-id-style hash "$1" |
		sed -E "s/ language='[^']*'//; s/ path='[^']*\/(libswitchto\/)/ path='\1/" > "$2"
}

# The libraries with debug information for abidw to read, and their dumps.
build() { # COMPILER
	local dir=$work/$1 lib
	# DWARF 5 of Clang gives the types of a .c file no place, depending on the checkout's path,
	# and abidw then takes them for public ones.
	cmake -S . -B "$dir" -DCMAKE_C_COMPILER="$1" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-gdwarf-4 -DSWITCHTO_TESTS=OFF &&
		cmake --build "$dir" -j 2 --target switchto switchto_door switchto_sched || return
	for lib in "${libraries[@]}"; do
		write_dump "$dir/libswitchto/$lib.so" "$dir/$lib.so.abixml" || return
	done
}

compilers=(gcc clang)
[ -z "$update" ] || compilers=(gcc)
declare -A pids
for compiler in "${compilers[@]}"; do
	build "$compiler" > "$work/$compiler.log" 2>&1 &
	pids[$compiler]=$!
done
for compiler in "${compilers[@]}"; do
	wait "${pids[$compiler]}" && continue
	cat "$work/$compiler.log"
	die "wanted to build the libraries with $compiler and to dump their ABI, could not (above)"
done

if [ -n "$update" ]; then
	mkdir -p libswitchto/abi
	mv "$work"/gcc/*.abixml libswitchto/abi/
	echo "wrote libswitchto/abi/; commit it with the change, and update SWITCHTO_VERSION_*, the .map and debian/*.symbols to match"
	exit
fi

# Of each symbol name and version node. A version node is a symbol, too. And the SONAME.
symbols_differ() { # LIBRARY FILE
	local only
	{
		readelf --dynamic "$1" | sed -nE 's/.*SONAME.*\[(.*)\].*/\1/p'
		nm --dynamic --defined-only --format=posix "$1" |
			awk '{ sub("@@", "@"); print $2 == "A" ? $1 "@" $1 : $1 }'
	} | sort > "$work/built"
	sed -nE '1s/ .*//p; s/^ ([^ ]+) .*/\1/p' "$2" | sort > "$work/listed"
	only=$(comm -3 --output-delimiter=+ "$work/listed" "$work/built" | sed 's/^[^+]/-&/' | tr '\n' ' ')
	[ -n "$only" ] || return 1
	say "$2: wanted the symbols of $(basename "$1"), found ${only% }; add lines for +, remove those for -"
}

status=0
for lib in "${libraries[@]}"; do
	dump=libswitchto/abi/$lib.so.abixml
	[ -f "$dump" ] || die "wanted $dump, found none; make it: $me --update"
	for compiler in gcc clang; do
		# --harmless: a removed const or an added enumerator is a change, too.
		abidiff --harmless "$dump" "$work/$compiler/$lib.so.abixml" > "$work/diff" 2>&1 && continue
		cat "$work/diff"
		say "$dump: wanted its ABI, found another one of $lib.so built with $compiler (above); if on purpose: $me --update"
		status=1
	done
	! symbols_differ "$work/gcc/libswitchto/$lib.so" debian/"$lib"[0-9]*.symbols || status=1
done
[ $status -ne 0 ] || remember_passed
exit $status
