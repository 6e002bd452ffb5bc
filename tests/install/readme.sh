#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: readme.sh README PREFIX
# Builds and runs the examples of README against the library installed under
# PREFIX. An example is a ```c block that begins with: /* example: NAME */
set -eu

fail() {
	echo "readme.sh: $*" >&2
	exit 1
}

[ $# -eq 2 ] || fail "wanted README and PREFIX, found $# arguments"
readme=$1
prefix=$2
[ -r "$readme" ] || fail "wanted to read $readme, found no such file"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk -v dir="$work" '
	/^```/ { if (file) close(file); file = ""; first = ($0 == "```c"); next }
	first { first = 0; if ($1 == "/*" && $2 == "example:" && $4 == "*/") file = dir "/" $3 ".c" }
	file { print > file }
' "$readme"
[ -n "$(find "$work" -name '*.c')" ] ||
	fail "wanted a \`\`\`c block that begins with /* example: NAME */ in $readme, found none"

pc=$(find "$prefix" -name switchto.pc)
[ -n "$pc" ] || fail "wanted switchto.pc under $prefix, found none; run install.sh first"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
lib=$(pkg-config --variable=libdir switchto)

for source in "$work"/*.c; do
	name=$(basename "$source" .c)
	# shellcheck disable=SC2046
	"${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic -Werror "$source" -o "$work/$name" \
		$(pkg-config --cflags --libs switchto) -pthread ||
		fail "wanted example $name to compile as C11 without a warning"
	echo "example $name:"
	LD_LIBRARY_PATH=$lib timeout 60 "$work/$name" ||
		fail "wanted example $name to succeed, got status $?"
done
