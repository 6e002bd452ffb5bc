#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Is the code formatted as .clang-format says?
# usage: tests/static/format.sh [--fix]	(--fix: format it)
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

fix=''
case ${1:-} in
'') ;;
--fix) fix=yes ;;
*) usage_error "wanted nothing or --fix, found '$1'" ;;
esac

want_tool clang-format clang-format
want_tracked '*.c' '*.h' '*.cpp' '*.hpp'
if [ -n "$fix" ]; then
	clang-format -i --style=file "${tracked[@]}"
	exit
fi

want_changed clang-format .clang-format "${tracked[@]}"
bad=()
for f in "${changed[@]}"; do
	clang-format --style=file "$f" | diff -u --label "$f" --label "$f, formatted" "$f" - || bad+=("$f")
done
[ ${#bad[@]} -eq 0 ] ||
	die "wanted files as .clang-format says, found ${#bad[@]} that are not: ${bad[0]}$([ ${#bad[@]} -eq 1 ] || echo ", ..."); format them: $me --fix"
remember_passed
