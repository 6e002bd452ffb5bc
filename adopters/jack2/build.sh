# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# JACK2 for vm/adopt, which sources this file.
title='JACK2 1.9.21'
packages='g++ pkg-config python3'
variants='unpatched patched'

# name (bench/adopters.py knows these), variant, environment
columns=(
	'unpatched unpatched'
	'wake-wait patched SWITCHTO_BACKEND=wake-wait SWITCHTO_PLACE=free'
	'together patched SWITCHTO_BACKEND=wake-wait'
	'swap patched SWITCHTO_BACKEND=swap'
)

# name, command in the folder of the build
benchmarks=(
	'chain-8 bin/chain 8 2000'
	'chain-2 bin/chain 2 2000'
	'chain-8-places-64 /usr/bin/env -C places-64 bin/chain 8 2000'
)
ignore=''

build() { # VARIANT SOURCE OUT
	local option='' flags here places out
	here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
	[ "$1" != patched ] || option=--switchto=yes
	# 256 places for clients are JACK's default.
	for places in 64 256; do
		out=$3 flags=''
		[ "$places" = 256 ] || out=$3/places-$places
		[ "$1" != patched ] || flags=-Wl,-rpath,$(pkg-config --variable=libdir switchto)
		(
			# Only what the tests and the benchmarks use.
			cd "$2" && CFLAGS=-O2 CXXFLAGS=-O2 LINKFLAGS="-Wl,-rpath,$out/lib $flags" python3 ./waf configure --out "$out/build" \
				--prefix "$out" --libdir "$out/lib" --clients "$places" --classic --example-tools $option --alsa=no --firewire=no \
				--iio=no --opus=no --celt=no --samplerate=no --sndfile=no --readline=no --systemd=no --db=no --zalsa=no &&
				python3 ./waf build install -j "$(nproc)" --targets=clientlib,serverlib,jackd,dummy,inprocess,jack_test
		) && gcc -std=gnu11 -O2 -o "$out/bin/chain" "$here/chain.c" -I "$2/common" -L "$out/lib" -ljack -pthread -Wl,-rpath,"$out/lib" ||
			return
	done
}

# jack_test says what it found in lines of text. The tests of frame times and of the number of
# reorder callbacks depend on the machine's speed.
tests() { # OUT
	(
		cd "$1" && export JACK_DEFAULT_SERVER=tests || exit
		bin/jackd -n tests -T -r -m -S -d dummy -p 2048 > jackd.log 2>&1 &
		for _ in {1..60}; do
			! bin/jack_test -v > jack_test.log 2>&1 || break
			sleep 1
		done
		awk '/frame_time|cycle_times|reorder callback/ { next }
			{ gsub(/[0-9.]+/, ""); name = $0; gsub(/[^A-Za-z]+/, "-", name); gsub(/^-|-$/, "", name) }
			/^!!! ERROR/ { print "not ok " name; next }
			/ ok *$|ok \(|^valid|correct (value|handle)|are valid|well done|is rolling|exiting|^Exiting/ { print "ok " name }' \
			jack_test.log | sort -u
		wait
	)
}
