# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# JACK2 for vm/adopt, which sources this file.
title='JACK2 1.9.21'
packages='g++ pkg-config python3'
variants='unpatched patched'

# name (bench/adopters.py knows these), variant, environment
columns=(
	'unpatched unpatched'
	'wake-wait patched SWITCHTO_BACKEND=wake-wait'
	'swap patched SWITCHTO_BACKEND=swap'
)

# name, command in the folder of the build
benchmarks=(
	'chain-8 bin/chain 8 2000'
	'chain-2 bin/chain 2 2000'
)
ignore=''

build() { # VARIANT SOURCE OUT
	local option='' flags=-Wl,-rpath,$3/lib here
	here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
	if [ "$1" = patched ]; then
		option=--switchto=yes
		flags+=" -Wl,-rpath,$(pkg-config --variable=libdir switchto)"
	fi
	(
		# Only what the tests and the benchmarks use.
		cd "$2" && CFLAGS=-O2 CXXFLAGS=-O2 LINKFLAGS=$flags python3 ./waf configure --out "$3/build" --prefix "$3" --libdir "$3/lib" --classic \
			--example-tools $option --alsa=no --firewire=no --iio=no --opus=no --celt=no --samplerate=no \
			--sndfile=no --readline=no --systemd=no --db=no --zalsa=no &&
			python3 ./waf build install -j "$(nproc)" --targets=clientlib,serverlib,jackd,dummy,inprocess,jack_test
	) && gcc -std=gnu11 -O2 -o "$3/bin/chain" "$here/chain.c" -I "$2/common" -L "$3/lib" -ljack -pthread -Wl,-rpath,"$3/lib"
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
