#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What git asks before it takes a commit, if ./check --hook has installed it: are the changed
# files formatted, are the added lines of C, C++ and Markdown within 100 columns, and does the
# subject begin with an area? A row of a table and a line with a string may be longer. git commit
# --no-verify goes past it.
# usage: tests/static/hook.sh install | pre-commit | commit-msg FILE
# shellcheck source=tests/static/lib.sh
. "$(dirname "$0")/lib.sh"

# CONTRIBUTING.md has them, too.
areas='lib|sched|kernel|futex|selftests|tests|vm|bench|tools|examples|adopters|docs'

install_hooks() {
	local hooks name
	cd "$top"
	hooks=$(git rev-parse --git-path hooks) || die "wanted a git checkout in $top, found none"
	mkdir -p "$hooks"
	for name in pre-commit commit-msg; do
		if [ -e "$hooks/$name" ] && ! grep -q tests/static/hook.sh "$hooks/$name"; then
			die "wanted no $hooks/$name, found one; call tests/static/hook.sh $name from it"
		fi
		# Another branch may not have the script.
		printf '#!/bin/sh\n[ ! -x tests/static/hook.sh ] || exec tests/static/hook.sh %s "$@"\n' "$name" > "$hooks/$name"
		chmod +x "$hooks/$name"
	done
	echo "installed $hooks/pre-commit and commit-msg"
}

pre_commit() {
	local f bad=() wide
	want_tool clang-format clang-format
	while IFS= read -r -d '' f; do
		# What is staged, which may differ from the file.
		git show ":$f" | clang-format --style=file --assume-filename="$f" | cmp -s - <(git show ":$f") || bad+=("$f")
	done < <(git diff --cached --name-only -z --diff-filter=d -- '*.c' '*.h' '*.cpp' '*.hpp')
	[ ${#bad[@]} -eq 0 ] || die "wanted code as .clang-format says, found other in ${bad[*]}; format it: tests/static/format.sh --fix"
	wide=$(git diff --cached -U0 --diff-filter=d -- '*.c' '*.h' '*.cpp' '*.hpp' '*.md' |
		sed -n 's,^+++ b/,\x01,p; t; s/^+//p' | expand |
		awk '/^\x01/ { file = substr($0, 2); next } length > 100 && !/^ *\|/ && !/"/ { print file ": " substr($0, 1, 60); exit }')
	[ -z "$wide" ] || die "wanted lines of at most 100 columns, found a longer one in $wide..."
}

commit_msg() { # FILE
	local subject
	subject=$(sed -n '/^#/!{p;q}' "$1")
	[[ $subject =~ ^(fixup!|squash!|amend!|Merge|Revert) ]] && return
	[[ $subject =~ ^($areas)(/[a-z]+)*([,:]\ [a-z0-9.-]+)*:\ [A-Z] ]] ||
		die "wanted a subject 'area: Action and object' with an area of ${areas//|/, }; found '$subject'"
	[ ${#subject} -le 75 ] || die "wanted a subject of at most 75 columns, found ${#subject}: '$subject'"
}

case ${1:-} in
install) install_hooks ;;
pre-commit) pre_commit ;;
commit-msg) commit_msg "${2:?}" ;;
*) usage_error "wanted install, pre-commit or commit-msg, found '${1:-}'" ;;
esac
