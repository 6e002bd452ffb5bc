# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# SimGrid for vm/adopt, which sources this file.
title='SimGrid 3.32'
packages='cmake g++ make libboost-dev libboost-context-dev python3'
variants='unpatched patched'

# name (bench/adopters.py knows these), variant, environment
columns=(
	'unpatched unpatched FACTORY=thread'
	'wake-wait patched FACTORY=thread SWITCHTO_BACKEND=wake-wait SWITCHTO_PLACE=free'
	'together patched FACTORY=thread SWITCHTO_BACKEND=wake-wait'
	'swap patched FACTORY=thread SWITCHTO_BACKEND=swap'
	'user-space unpatched FACTORY=raw'
)

# name, command in the folder of the build. The log option hides the message that the thread
# factory ignores stack sizes.
ring='ring small_platform.xml'
ring_options='--log=root.thresh:error --cfg=contexts/factory:$FACTORY'
benchmarks=(
	"ping-pong $ring 2 10000 $ring_options"
	"ring-10 $ring 10 10000 $ring_options"
	"ring-1000 $ring 1000 10000 $ring_options"
	"ring-10000 $ring 10000 10000 $ring_options"
)
ignore=''

build() { # VARIANT SOURCE OUT
	local switchto=off here
	here=$(dirname "${BASH_SOURCE[0]}")
	[ "$1" != patched ] || switchto=on
	cmake -S "$2" -B "$3" -Denable_switchto=$switchto -Denable_smpi=off -Denable_python=off -Denable_lto=off \
		-Denable_documentation=off -DCMAKE_BUILD_TYPE= -DPython3_EXECUTABLE=/usr/bin/python3 || return
	cmake --build "$3" -j "$(nproc)" --target simgrid || return
	g++ -std=c++17 -O2 -o "$3/ring" "$here/ring.cpp" -I "$2/include" -I "$3/include" -L "$3/lib" -lsimgrid \
		-Wl,-rpath,"$3/lib" || return
	cp "$2/examples/platforms/small_platform.xml" "$3/"
	# shellcheck disable=SC2046
	cmake --build "$3" -j "$(nproc)" --target s4u-app-masterworkers-class s4u-app-masterworkers-fun $(examples "$3")
}

# Of the tests s4u-NAME-thread, those with a program s4u-NAME of their own.
examples() { # OUT
	comm -12 <(ctest --test-dir "$1" -N -R '^s4u-.*-thread$' | sed -n 's/^ *Test *#[0-9]*: \(.*\)-thread$/\1/p' | sort) \
		<(cmake --build "$1" --target help | sed -n 's/^\.\.\. //p' | sort)
}

# The examples with the thread factory.
tests() { # OUT
	(cd "$1" && ctest -R '^s4u-.*-thread$' -j 2 --timeout 300 2>&1)
}
