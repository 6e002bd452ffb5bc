# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# Go for vm/adopt, which sources this file.
packages='gcc libc6-dev'
variants='unpatched patched'

# name (bench/adopters.py knows these), variant, environment. Go asks the kernel for the
# operation, not libswitchto.
columns=(
	'unpatched unpatched'
	'wake-wait patched GODEBUG=futexswap=0,placelocked=0'
	'together patched GODEBUG=futexswap=0'
	'swap patched'
	'user-space unpatched LOCK=no'
)

# name, command in the folder of the build
benchmarks=(
	'channel-both bin/pingpong channel-both 10000'
	'channel bin/pingpong channel 10000'
	'callback bin/callback 10000'
	'udp bin/udp 5000'
	'mutex-both bin/pingpong mutex-both 10000'
	'mutex bin/pingpong mutex 10000'
	'cond-both bin/pingpong cond-both 10000'
	'cond bin/pingpong cond 10000'
	'pool bin/pingpong pool 1000'
	'free bin/pingpong free 100000'
	'many bin/pingpong many 100000'
)
ignore=''

# GOROOT, or the newest that is here, or that Debian has here.
for goroot in "${GOROOT:-}" /usr/lib/go-1.24 /usr/lib/go-1.19; do
	[[ $goroot != */go-1.24 && $goroot != */go-1.19 ]] || [ ! -d "$goroot" ] || break
done
[ -d "$goroot" ] || ! apt-cache show golang-1.24-go > /dev/null 2>&1 || goroot=/usr/lib/go-1.24
release=golang-${goroot##*/go-}
[ "${GOROOT:-}" = "$goroot" ] || packages+=" $release-go"
title="Go $(sed -n "s/^here $release //p" "$(dirname "${BASH_SOURCE[0]}")/source")"

fetch() { # DIR
	mkdir -p "$1/src" && cp -r "$goroot/src/runtime" "$1/src"
}

# What go build -overlay reads: files of the runtime, and which to compile instead.
overlay() { # SOURCE
	local here
	here=$(dirname "${BASH_SOURCE[0]}")
	sed -n 's,^+++ b/,,p' "$here/switchto.patch" "$here/$release.patch" | sort -u |
		awk -v from="$goroot" -v to="$1" 'BEGIN { printf "{\"Replace\": {" }
			{ printf "%s\n\"%s/%s\": \"%s/%s\"", (NR > 1 ? "," : ""), from, $1, to, $1 } END { print "\n}}" }'
}

build() { # VARIANT SOURCE OUT
	local here package name version flags=()
	here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
	export GOROOT=$goroot GOCACHE=${3%/*}/cache GO111MODULE=off
	version=$(head -n 1 "$goroot/VERSION")
	[ "$version" = "go${title#Go }" ] || {
		echo "error: wanted $release-go of the version in adopters/go/source, found $version"
		return 1
	}
	ln -s "$goroot" "$3/goroot" # GOROOT is not set in the VM
	overlay "$2" > "$3/overlay.json"
	[ "$1" != patched ] || flags=(-overlay "$3/overlay.json")
	for name in pingpong callback udp; do
		"$goroot/bin/go" build "${flags[@]}" -o "$3/bin/$name" "$here/$name.go" "$here/measure.go" || return
	done
	for package in runtime sync net os/signal; do
		"$goroot/bin/go" test -c -vet=off "${flags[@]}" -o "$3/tests/$(basename $package)" "$package" || return
	done
}

# Go's own. With GO_GCFLAGS, they skip what would compile programs.
tests() { # OUT
	local name package root
	root=$(readlink "$1/goroot")
	for package in runtime sync net os/signal; do
		name=$(basename $package)
		(cd "$root/src/$package" && GOROOT=$root GO_GCFLAGS=none "$1/tests/$name" -test.short -test.v -test.timeout 30m) 2>&1 |
			sed -nE "s,^--- (PASS|FAIL): ([^ ]+) .*,\1 $name.\2,p" | sed 's/^PASS/ok/; s/^FAIL/not ok/'
	done
}
