#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# codespell on all files; in a patch, only on its changelog and the lines it adds:
# the rest is other people's text. Accepted words are in .codespellrc.
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

want_tool codespell codespell
want_tracked .
want_work

texts=()
for f in "${tracked[@]}"; do
	[ -f "$f" ] || continue
	case $f in
	*.patch)
		# Other lines become empty ones, so that the numbers stay.
		mkdir -p "$work/$(dirname "$f")"
		awk '/^diff --git / { diff = 1 } { print !diff ? $0 : /^\+/ && !/^\+\+\+ / ? substr($0, 2) : "" }' \
			"$f" > "$work/$f"
		texts+=("$work/$f")
		;;
	*) texts+=("$f") ;;
	esac
done

if ! codespell "${texts[@]}" > "$work/found" 2>&1; then
	sed "s,$work/,," "$work/found"
	die "the above words look misspelt; correct them, or add them to ignore-words-list in .codespellrc"
fi
