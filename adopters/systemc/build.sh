# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# SystemC for vm/adopt, which sources this file.
title='SystemC 2.3.4'
packages='cmake g++ make'
variants='unpatched patched quickthreads'

# name (bench/adopters.py knows these), variant, environment
columns=(
	'unpatched unpatched'
	'wake-wait patched SWITCHTO_BACKEND=wake-wait SWITCHTO_PLACE=free'
	'together patched SWITCHTO_BACKEND=wake-wait'
	'swap patched SWITCHTO_BACKEND=swap'
	'user-space quickthreads'
)

# name, command in the folder of the build. The banner has the time of the build.
benchmarks=(
	'simple_perf examples/sysc/simple_perf/simple_perf 20000'
	'pkt_switch examples/sysc/pkt_switch/pkt_switch'
)
ignore='Accellera'

build() { # VARIANT SOURCE OUT
	local options=''
	case $1 in
	unpatched) options=-DENABLE_PTHREADS=ON ;;
	patched) options=-DENABLE_SWITCHTO=ON ;;
	esac
	cmake -S "$2" -B "$3" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=17 $options || return
	# shellcheck disable=SC2046
	cmake --build "$3" -j "$(nproc)" --target systemc $(examples "$3" | xargs -n 1 basename)
}

examples() { # OUT
	(cd "$1/examples" && ctest -N -R '^examples/sysc/' | sed -n 's/^ *Test *#[0-9]*: //p')
}

tests() { # OUT
	(cd "$1/examples" && ctest -R '^examples/sysc/' --timeout 1500 2>&1)
}
