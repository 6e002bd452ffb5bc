#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: packages.sh
# Builds the Debian packages from a copy of this checkout and has lintian check them.
# Installs them in a new root, uses them there, and removes them.
# Exit status: 0 if all of that works, 1 if not, 77 if this machine lacks something.
set -eu

fail() {
	echo "packages.sh: $*" >&2
	exit 1
}

skip() {
	echo "packages.sh: skipped: $*" >&2
	exit 77
}

[ $# -eq 0 ] || fail "wanted no arguments, found $*"
top=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || skip "wanted root to make a root file system, found $(id -un)"
for tool in dpkg-buildpackage dh lintian mmdebstrap; do
	command -v "$tool" >/dev/null ||
		skip "wanted $tool, found none; install dpkg-dev, debhelper, lintian and mmdebstrap"
done
missing=$(dpkg-checkbuilddeps "$top/debian/control" 2>&1) || skip "$missing"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# The packages of the new root come from where this machine has its own from.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
	[ ! -s "$file" ] || set -- "$@" "$file"
done
if [ $# -eq 0 ] || [ -z "$suite" ]; then
	skip "wanted Debian with package sources in /etc/apt, found none"
fi

version=$(dpkg-parsechangelog -l "$top/debian/changelog" -S Version)
wanted=$(sed -n 's/^#define SWITCHTO_VERSION_[A-Z]* //p' "$top/libswitchto/include/switchto/switchto.h" |
	paste -sd .)
[ "${version%-*}" = "$wanted" ] || fail "wanted version $wanted in debian/changelog, found $version"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/source" "$work/packages" "$work/root"

# dpkg-buildpackage writes into its tree and beside it.
tar -C "$top" --exclude=./.git --exclude=./build -cf - . | tar -C "$work/source" -xf -
tar -C "$work" --exclude=source/debian -cJf "$work/libswitchto_$wanted.orig.tar.xz" source
echo "packages.sh: building $version"
(cd "$work/source" && dpkg-buildpackage -us -uc) >"$work/log" 2>&1 || {
	tail -n 40 "$work/log"
	fail "wanted dpkg-buildpackage to succeed, see above"
}
lintian --fail-on error,warning "$work"/*.changes || fail "wanted packages without a fault, see above"

mv "$work"/*.deb "$work/packages"
(cd "$work/packages" && dpkg-scanpackages . >Packages 2>"$work/log") || fail "$(tail -n 1 "$work/log")"
cp -r "$top/examples" "$top/tests/install/consumers" "$work/root"
cat >"$work/root/use.sh" <<-'END'
	set -eu
	cd /root
	for source in examples/*.c; do
		echo "$source:"
		cc -std=c11 -O2 "$source" -o program $(pkg-config --cflags --libs switchto-door) -pthread
		./program
	done
	cmake -S consumers -B build >log && cmake --build build >>log || { cat log; exit 1; }
	for program in build/consumer_*; do
		[ ! -f "$program" ] || ./"$program"
	done
	many-threads -n 100 >log
	# 77: this kernel has no FUTEX_SWAP.
	futex-swap-demo -i 100 >log || [ $? -eq 77 ]
	switchto-bench --help >log
	dpkg --purge switchto-tools libswitchto-dev libswitchto-sched0.3 libswitchto-door0.3 libswitchto0.3
	left=$(find / -xdev \( -path /root -o -path '/var/*/apt' \) -prune -o -name '*switchto*' -print)
	[ -z "$left" ] || { echo "left after the removal: $left"; exit 1; }
END
echo "packages.sh: using the packages in a new root of $suite"
# shellcheck disable=SC2016
mmdebstrap --quiet --mode=root --variant=essential --format=null \
	--include=libswitchto-dev,switchto-tools,gcc,g++,libc6-dev,cmake,make,pkgconf \
	--customize-hook="cp -r '$work/root/.' \"\$1/root\"" \
	--customize-hook='chroot "$1" sh /root/use.sh' \
	"$suite" /dev/null "$@" "deb [trusted=yes] copy:$work/packages ./" ||
	fail "wanted packages that install, work and leave nothing, see above"
echo "packages.sh: ok"
