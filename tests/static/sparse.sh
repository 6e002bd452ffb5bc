#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sparse on the kernel's files that the patches touch. A warning about the patched
# tree but not the stock one is a fault, unless sparse-accepted has it. Nothing is
# built: the patched tree's object folder has the compiler options of each file and
# the generated headers.
# usage: tests/static/sparse.sh STOCK-TREE PATCHED-TREE OBJECT-FOLDER
#	(in the PATCHED-TREE, built)
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

[ $# -eq 3 ] || usage_error "wanted STOCK-TREE PATCHED-TREE OBJECT-FOLDER, found $# arguments"
want_tool sparse sparse
want_work
stock=$(realpath "$1") patched=$(realpath "$2") obj=$(realpath "$3")
accepted=$top/tests/static/sparse-accepted
for f in "$stock/kernel/sched/core.c" "$patched/.patched-files" "$obj/kernel/sched/.core.o.cmd"; do
	[ -f "$f" ] || die "wanted $f, found none; vm/build makes it"
done
# Otherwise the generated headers would not fit the stock tree.
mapfile -t kconfigs < <(grep Kconfig "$patched/.patched-files" | sort -u)
for f in "${kconfigs[@]}"; do
	for option in $(diff "$stock/$f" "$patched/$f" | sed -n 's/^> config //p'); do
		! grep -q "^CONFIG_$option=" "$obj/.config" ||
			die "wanted the options that the patches add to be off, found CONFIG_$option in $obj/.config; compare with a stock tree configured for itself"
	done
done

# All sources in the folders that the patches touch: only they include what a
# patch may change there, as sched.h.
mapfile -t folders < <(sed -n 's,^\(kernel/.*\)/[^/]*\.[ch]$,\1,p' "$patched/.patched-files" | sort -u)
[ ${#folders[@]} -gt 0 ] || die "wanted C files below kernel/ in $patched/.patched-files, found none"

# Twice. sparse calls it an error to compare an __rcu pointer with another, as
# sched.h does. After an error it no longer checks that locks are released. So the
# second run is without __rcu.
printf '#undef __rcu\n#define __rcu\n' > "$work/no-rcu.h"

sparse_file() { # TREE SOURCE OPTIONS PASS-OPTION...
	local tree=$1 source=$2 options=$3
	shift 3
	# As the kernel's Makefile with C=1. The recorded options are shell-quoted.
	eval "sparse -D__linux__ -Dlinux -D__STDC__ -Dunix -D__unix__ -Wbitwise -Wno-return-void \
		-Wno-unknown-attribute -D__x86_64__ --arch=x86 -mlittle-endian -m64 $options" \
		"$(printf '%q ' "$@" "$tree/$source")" 2>&1 |
		grep -vE ': (note|warning: preprocessor token .?__rcu)|: this was the original definition' |
		sed "s,$tree/,,g; s,^\([^:]*\):[0-9]*:[0-9]*: *,\1: ," || true
}

run() { # TREE
	local folder object source options
	for folder in "${folders[@]}"; do
		for object in "$folder"/.*.o.cmd; do
			source=$(sed -n 's,^source_.* := \.\./,,p' "$object")
			# The stock tree lacks the files that the series adds.
			if [ -z "$source" ] || [ ! -f "$1/$source" ]; then
				continue
			fi
			options=$(sed -n 's/^savedcmd_[^ ]* := [^ ]* -Wp,-MMD,[^ ]* \(.*\) -c -o .*/\1/p' "$object" |
				sed "s,-I\.\./,-I$1/,g; s,-include \.\./,-include $1/,g")
			[ -n "$options" ] ||
				die "wanted the options of a compiler in $obj/$object, found another form; has the kernel's build changed?"
			sparse_file "$1" "$source" "$options"
			sparse_file "$1" "$source" "$options" -include "$work/no-rcu.h"
			echo "$source" >&3
		done
	done | sort
}

cd "$obj"
run "$stock" > "$work/stock" 3> "$work/stock-files"
run "$patched" > "$work/patched" 3> "$work/patched-files"
# It must warn about the stock tree: else it did not work.
[ -s "$work/stock" ] || die "wanted what sparse says of ${folders[*]} in $stock, found nothing; does it read these files at all?"

grep -v '^#' "$accepted" | grep . | sort > "$work/accepted"
comm -13 "$work/stock" "$work/patched" > "$work/new"
sort -u "$work/new" | comm -23 - "$work/accepted" > "$work/faults"
sort -u "$work/new" | comm -13 - "$work/accepted" > "$work/stale"
if [ -s "$work/faults" ]; then
	cat "$work/faults"
	die "sparse says the above of the patched tree and not of the stock one; correct the patches, or argue it in tests/static/sparse-accepted"
fi
if [ -s "$work/stale" ]; then
	cat "$work/stale"
	die "wanted sparse to say the above, as in sparse-accepted, found that it no longer does; remove it there"
fi
echo "$(sort -u "$work/patched-files" | wc -l) files, $(wc -l < "$work/stock") lines about them in the stock tree, $(wc -l < "$work/new") new ones, all argued"
