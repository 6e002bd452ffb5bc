# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What the static checks share. Sourced, not run. Each check works on the files
# that git knows, prints what is wrong and exits 1, or exits 0.

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
me=tests/static/$(basename "$0")

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$*"; exit 1; }
usage_error() { say "$*; see the comment in $me"; exit 2; }

want_tool() { # TOOL PACKAGE
	command -v "$1" > /dev/null || die "wanted $1, found none; install the Debian package $2"
}

# In $tracked: the files of the repository that match, relative to $top.
want_tracked() { # PATHSPEC...
	local f
	tracked=()
	cd "$top" || die "wanted to enter $top, can't"
	git rev-parse --git-dir > /dev/null || die "wanted a git checkout in $top, found none (see above); run it in a clone"
	while IFS= read -r -d '' f; do
		# A file that is removed but not committed is still listed.
		[ ! -e "$f" ] || tracked+=("$f")
	done < <(git ls-files -z -- "$@")
	[ ${#tracked[@]} -gt 0 ] || die "wanted files that match $*, found none in $top"
}

# In $work: a folder for temporary files, removed at the end.
want_work() {
	work=$(mktemp -d) || die "wanted a folder for temporary files, can't make one; is the disk full?"
	trap 'rm -rf "$work"' EXIT
}

# In $changed: which of the files differ from what passed last, when remember_passed was called.
# All of them, if the check, its settings or its tool does.
want_changed() { # TOOL SETTINGS FILE...
	local key
	key=$({ "$1" --version; cat "$2" "$me"; } | sha256sum)
	passed_file=$top/build/test/passed/${me##*/}
	mapfile -t sums < <(sha256sum -- "${@:3}" | sed "s/^/${key%% *} /")
	mkdir -p "${passed_file%/*}" && touch "$passed_file" || die "wanted to write $passed_file, can't"
	# shellcheck disable=SC2034
	mapfile -t changed < <(printf '%s\n' "${sums[@]}" | grep -vxFf "$passed_file" | cut -d ' ' -f 4-)
}

remember_passed() {
	printf '%s\n' "${sums[@]}" > "$passed_file"
}
