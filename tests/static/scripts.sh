#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs shellcheck on all shell scripts and pyflakes on all Python, found by their
# first line or name.
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

want_tool shellcheck shellcheck
want_tool pyflakes3 pyflakes3
want_tracked .

shell=() python=()
for f in "${tracked[@]}"; do
	[ -f "$f" ] || continue
	first=$(LC_ALL=C head -c 200 "$f" | tr -d '\0' | head -n 1)
	case $first in
	'#!'*python*) python+=("$f") ;;
	'#!'*sh | '#!'*sh\ * | '# shellcheck shell='*) shell+=("$f") ;;
	*)
		case $f in
		*.py) python+=("$f") ;;
		*.sh | *.bash) shell+=("$f") ;;
		esac
		;;
	esac
done
[ ${#shell[@]} -gt 0 ] || die "wanted shell scripts, found none among ${#tracked[@]} files; has their first line changed?"
[ ${#python[@]} -gt 0 ] || die "wanted Python scripts, found none among ${#tracked[@]} files; has their first line changed?"

# One script may source another: if one has changed, all are checked.
want_changed shellcheck tests/static/lib.sh "${shell[@]}" "${python[@]}"
[ ${#changed[@]} -gt 0 ] || exit 0

status=0
shellcheck -x -f gcc -S warning "${shell[@]}" || status=1
# Does it compile? Without leaving a __pycache__ behind.
for f in "${python[@]}"; do
	python3 -c 'import sys; compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec")' "$f" || status=1
done
pyflakes3 "${python[@]}" || status=1
# The reader of a list, such as head, may end before the list does.
while IFS= read -r f; do
	said=$(python3 -c 'import os, subprocess, sys
read, write = os.pipe()
os.close(read)
subprocess.run(sys.argv[1:], stdout=write, stderr=1)' "./$f" --help)
	[ -z "$said" ] || { echo "$f --help: wanted silence when its reader is gone, found: ${said##*$'\n'}"; status=1; }
done < <(git ls-files -s -- "${python[@]}" | sed -n 's/^100755.*\t//p' | xargs grep -l -e argparse -e '"--help"')
[ $status -eq 0 ] || die "of ${#shell[@]} shell and ${#python[@]} Python scripts, the above have faults"
remember_passed
