# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# CPython for vm/adopt, which sources this file.
release=python${PYTHON:-3.11}
title="CPython $(sed -n "s/^deb $release \([^-]*\)-.*/\1/p" "$(dirname "${BASH_SOURCE[0]}")/source")"
packages='autoconf gcc make pkg-config libffi-dev libssl-dev zlib1g-dev'
variants='unpatched patched'

# name (bench/adopters.py knows these), variant, environment
columns=(
	'unpatched unpatched'
	'wake-wait patched SWITCHTO_BACKEND=wake-wait SWITCHTO_PLACE=free'
	'together patched SWITCHTO_BACKEND=wake-wait'
	'swap patched SWITCHTO_BACKEND=swap'
)

# name, command in the folder of the build; without what Python does at its start
python='python -IS -X frozen_modules=on handover.py'
benchmarks=(
	"queue $python queue 3000"
	"simplequeue $python simplequeue 10000"
	"event $python event 3000"
	"producer $python producer 10000"
	"pool $python pool 3000"
	"io $python io 300"
	"compute $python compute 500000"
)
ignore=''

build() { # VARIANT SOURCE OUT
	local options=() here
	here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
	if [ "$1" = patched ]; then
		(cd "$2" && autoconf) || return
		options=(--enable-switchto "CPPFLAGS=$(pkg-config --cflags switchto)"
			"LDFLAGS=$(pkg-config --libs-only-L switchto) -Wl,-rpath,$(pkg-config --variable=libdir switchto)")
	fi
	"$2/configure" -q "${options[@]}" && make -j "$(nproc)" && cp "$here/handover.py" .
}

# Python's own, of threads and of what is built on them. Pools of processes, the stress of test_signal
# and the rest of asyncio would take six times as long.
tests_counted=yes
tests() { # OUT
	local names=(test_thread test_threading test_threading_local test_threadsignals test_queue test_signal
		test_fork1 test_concurrent_futures test_asyncio.test_{threads,unix_events})
	(cd "$1" && ./python -m test -v --timeout 1800 -i '*ProcessPool*' -i '*StressTest*' "${names[@]}") 2>&1 |
		awk '/^test[A-Za-z_0-9]* \(test\./ { name = $2 }
			name != "" && /(^|\.\.\. )(ok|FAIL|ERROR|skipped .*|expected failure)$/ {
				if (!/skipped [^ ]*/) print (/(ok|expected failure)$/ ? "ok " : "not ok ") substr(name, 2, length(name) - 2)
				name = "" }'
}
