#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compares the shared library's ABI, as built by GCC and by Clang, with the dump
# in libswitchto/abi/. Any difference is a fault, even an added symbol. A commit
# that changes the ABI on purpose must update the dump.
# usage: tests/static/abi.sh [--update]	(--update: write the dump)
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

dump=libswitchto/abi/libswitchto.so.abixml
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
want_tool clang clang
cd "$top"
want_work

build() { # COMPILER
	# The library alone, with debug information for abidw to read.
	if ! { cmake -S . -B "$work/$1" -DCMAKE_C_COMPILER="$1" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-g \
		-DSWITCHTO_TESTS=OFF && cmake --build "$work/$1" --target switchto; } > "$work/$1.log" 2>&1; then
		cat "$work/$1.log"
		die "wanted to build the library with $1, could not (above)"
	fi
	so=$work/$1/libswitchto/libswitchto.so
}

# Only types that the public headers declare, and nothing about where and by what the
# library was built.
write_dump() { # LIBRARY FILE
	abidw --exported-interfaces-only --drop-undefined-syms --headers-dir libswitchto/include --drop-private-types \
		--no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --type-id-style hash "$1" |
		sed -E "s/ language='[^']*'//; s/ path='[^']*\/(libswitchto\/)/ path='\1/" > "$2"
}

build gcc
if [ -n "$update" ]; then
	write_dump "$so" "$work/dump"
	mkdir -p libswitchto/abi
	mv "$work/dump" "$dump"
	echo "wrote $dump; commit it with the change, and update SWITCHTO_VERSION_* and libswitchto.map to match"
	exit
fi
[ -f "$dump" ] || die "wanted $dump, found none; make it: $me --update"

compare() { # COMPILER
	write_dump "$so" "$work/$1.abixml"
	# --harmless: a removed const or an added enumerator is a change, too.
	abidiff --harmless "$dump" "$work/$1.abixml" > "$work/diff" 2>&1 && return
	cat "$work/diff"
	echo "the library built with $1 has another ABI than $dump"
	return 1
}

status=0
compare gcc || status=1
build clang
compare clang || status=1
[ $status -eq 0 ] || die "the ABI changed (above); if on purpose: $me --update"
