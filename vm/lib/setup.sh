# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# Set-up: steps with progress and logs, the lock, disk space, packages, virtme-ng.
# vm/lib.sh sources this file.

# step NAME TEXT CMD...: runs CMD into build/vm/log/NAME.log, with a sign of
# life on the way, and dies with the log's path if it fails.
step() {
	local text=$2 log=$vm/log/$1.log start=$SECONDS pid status=0 last
	shift 2

	can_write "$vm/log"
	say "$text"
	"$@" > "$log" 2>&1 < /dev/null &
	pid=$!
	end_with $pid
	while kill -0 $pid 2> /dev/null; do
		sleep 0.2
		if [ $(((SECONDS - start) / 20)) -gt $((last_sign / 20)) ]; then
			last_sign=$((SECONDS - start))
			say "  ... $text: $last_sign s, $(wc -l < "$log") lines of log"
		fi
	done
	last_sign=0
	wait $pid || status=$?
	trap - INT TERM
	[ $status -eq 0 ] && return
	last=$(grep -iE 'error|fail|no space|cannot|unable' "$log" | tail -n 1 || true)
	[ -n "$last" ] || last=$(tail -n 1 "$log")
	die "$text: failed (status $status): ${last:-no output}; log: $log"
}
last_sign=0

# On Ctrl-C, end a child too: a background job does not get the signal.
end_with() { # PID
	# shellcheck disable=SC2064
	trap "end_tree $1; exit 130" INT
	# shellcheck disable=SC2064
	trap "end_tree $1; exit 143" TERM
}

# vm_exec ends its VM on a signal; the rest ends by itself.
end_tree() {
	local child
	for child in $(pgrep -P "$1" || true); do
		end_tree "$child"
	done
	kill "$1" 2> /dev/null || true
}

# One set-up at a time in a checkout.
lock() {
	can_write "$vm"
	exec 9> "$vm/lock" || die "wanted to write $vm/lock, can't; is the disk full or the folder not yours?"
	if ! flock -n 9; then
		say "waiting for another vm/ command in this checkout to finish its set-up"
		flock 9
	fi
}
unlock() { exec 9>&-; }

# Makes the folder.
can_write() { # FOLDER
	mkdir -p "$1" 2> /dev/null && [ -w "$1" ] || die "wanted to write $1, can't; is the disk full or the folder not yours?"
}

need_space() { # MEGABYTES WHAT FOR
	local free
	can_write "$vm"
	free=$(df -Pm "$vm" | awk 'NR == 2 { print $4 }')
	[ "$free" -ge "$1" ] ||
		die "wanted $1 MB free for $2, found $free MB in $top; free some, or put the checkout on a larger disk"
}

packages_base='build-essential flex bison bc libelf-dev libssl-dev xz-utils kmod cpio patch
	python3 python3-venv udev procps'
packages_scx='pahole clang'
packages_lib='cmake pkg-config libcmocka-dev liburing-dev libsqlite3-dev libuv1-dev libglib2.0-dev libxdp-dev libbpf-dev libssl-dev iproute2'
packages_check="build-essential git python3 util-linux $packages_lib clang clang-format codespell shellcheck pyflakes3
	mandoc abigail-tools cppcheck gdb systemtap-sdt-dev valgrind meson"
packages_bench='libbenchmark-dev libabsl-dev libboost-context-dev python3-matplotlib'
packages_servers='libboost-fiber-dev golang-go'
packages_test="$packages_check clang-19 libclang-rt-19-dev clang-tidy sparse spin"
packages_package='dpkg-dev debhelper lintian mmdebstrap pkgconf'

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# shellcheck disable=SC2120
install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	as_root apt-get update && as_root apt-get install -y --no-install-recommends "$@"
}

missing_packages() {
	local p missing=()

	command -v dpkg-query > /dev/null ||
		die "wanted Debian 12 or 13 (dpkg), found $(. /etc/os-release 2> /dev/null && echo "${PRETTY_NAME:-another system}"); install the equivalents of: $*"
	for p; do
		dpkg-query -W -f '${db:Status-Status}\n' "$p" 2> /dev/null | grep -qx installed || missing+=("$p")
	done
	echo "${missing[*]}"
}

want_packages() {
	local missing

	missing=$(missing_packages "$@") || exit
	[ -n "$missing" ] || return 0
	read -ra missing <<< "$missing"
	if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2> /dev/null; then
		die "wanted the Debian packages: ${missing[*]}; found neither root nor a sudo without password: install them as root, then run this again"
	fi
	step packages "installing ${#missing[@]} Debian packages: ${missing[*]}" install_packages "${missing[@]}"
}

no_mirror="wanted a Debian mirror among apt's sources, found none; add one to /etc/apt/sources.list.d"

# A line of apt's for the suite, with the mirror that apt uses.
source_list() { # deb|deb-src SUITE
	local uri key=/usr/share/keyrings/debian-archive-keyring.gpg
	# Before the first apt-get update, apt does not know the label.
	# shellcheck disable=SC2016
	uri=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2> /dev/null |
		awk '$1 == "Debian" && !sure { sure = $2 } $1 ~ /^[$]/ && $2 ~ /\/debian\/$/ { perhaps = $2 }
			END { print sure ? sure : perhaps }' || true)
	[ -n "$uri" ] || return 1
	[ -e $key ] || key=''
	echo "$1 ${key:+[signed-by=$key] }$uri $2 main"
}

make_venv() {
	rm -rf "$vm/venv.new" "$vm/venv"
	# Made in its final place: a virtual environment can't be moved. The
	# stamp marks it as complete.
	python3 -m venv "$vm/venv" && "$vm/venv/bin/pip" install -q -r "$top/vm/requirements.txt" &&
		cp "$top/vm/requirements.txt" "$vm/venv/stamp"
}

want_virtme() {
	if ! cmp -s "$top/vm/requirements.txt" "$vm/venv/stamp" || ! [ -x "$vm/venv/bin/python3" ]; then
		step virtme "installing virtme-ng into build/vm/venv" make_venv
	fi
	PATH=$vm/venv/bin:$PATH
}
