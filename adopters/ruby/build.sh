# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: MIT
# Ruby for vm/adopt, which sources this file.
title='Ruby 3.3.8'
packages='autoconf gcc make pkg-config'
variants='unpatched patched'

# name (bench/adopters.py knows these), variant, environment
columns=(
	'unpatched unpatched RUBY_MN_THREADS=0'
	'wake-wait patched RUBY_MN_THREADS=0 SWITCHTO_BACKEND=wake-wait SWITCHTO_PLACE=free'
	'together patched RUBY_MN_THREADS=0 SWITCHTO_BACKEND=wake-wait'
	'swap patched RUBY_MN_THREADS=0 SWITCHTO_BACKEND=swap'
	'user-space unpatched RUBY_MN_THREADS=1'
)

# name, command in the folder of the build
benchmarks=(
	'queue ruby queue.rb 20000'
	'condvar1 ruby condvar1.rb'
	'sized_queue ruby sized_queue.rb'
	'pass ruby pass.rb'
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
	"$2/configure" --disable-install-doc --disable-yjit --with-baseruby=no optflags=-O2 debugflags=-g0 "${options[@]}" &&
		make -j "$(nproc)" && cp "$here/queue.rb" . || return
	# Ruby's own, with a tenth of the rounds: in the VM they take minutes.
	sed 's/^max = 100000$/max = 10000/' "$2/benchmark/vm_thread_condvar1.rb" > condvar1.rb
	sed 's/^n = 1_000_000$/n = 100_000/' "$2/benchmark/vm_thread_sized_queue.rb" > sized_queue.rb
	sed 's/400_000/40_000/' "$2/benchmark/vm_thread_pass.rb" > pass.rb
	[ "$(cat condvar1.rb sized_queue.rb pass.rb | grep -cE '10000$|100_000$|40_000')" = 3 ]
}

# Ruby's tests of threads, and of what is built on them.
tests() { # OUT
	local name source names=()
	source=$(sed -n 's/^srcdir = //p' "$1/Makefile")
	for name in ruby/test_thread ruby/test_thread_cv ruby/test_thread_queue ruby/test_sleep monitor/test_monitor \
		test_timeout fiber/test_thread fiber/test_mutex; do
		names+=("$source/test/$name.rb")
	done
	# What the tests' children print there would stand in the middle of the names.
	RUBY=$1/ruby RUBYLIB=$source/lib:$1:$1/.ext/common:$1/.ext/x86_64-linux "$1/ruby" "$source/test/runner.rb" \
		--timeout-scale=10 --excludes-dir="$source/test/.excludes" --name='!/memory_leak/' -v "${names[@]}" 2> /dev/null |
		awk '/^\[ *[0-9]+\/[0-9]+\] Test/ { sub(/^\[[^]]*\] /, ""); ran[$1] = 1 }
			/^ *[0-9]+\) (Error|Failure):/ { getline; sub(/ \[.*|:$/, ""); failed[$1] = 1 }
			/^ *[0-9]+\) Skipped:/ { getline; sub(/ \[.*|:$/, ""); delete ran[$1] }
			END { for (name in ran) print (name in failed ? "not ok " : "ok ") name }'
}
