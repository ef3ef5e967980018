# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by every script here: where things are cached, and how they speak.
# shellcheck shell=bash
set -euo pipefail

# shellcheck disable=SC2034
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${UVM_RUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/uvm-rust}
JOBS=${JOBS:-$(nproc)}
mkdir -p "$CACHE/dl"

# LLVM of the kernel build: Debian's versioned packages keep theirs apart.
LLVM_VERSION=19
LLVM_DIR=/usr/lib/llvm-$LLVM_VERSION
# modinfo is in sbin, where a user's shell does not look on Debian.
PATH=$LLVM_DIR/bin:$CACHE/tools/bin:$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin
export PATH LIBCLANG_PATH=$LLVM_DIR/lib

# rustup does not look into rust-toolchain.toml where the kernel's objects are built, outside the
# checkout. So the version is named here; whoever sets RUSTUP_TOOLCHAIN has another.
toolchain=$(sed -n 's/^channel = "\(.*\)"$/\1/p' "$TOP/rust-toolchain.toml" 2>/dev/null || :)
export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-${toolchain:-stable}}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# have COMMAND: is it on PATH?
have() { command -v "$1" >/dev/null 2>&1; }

# as_root COMMAND...: run as root, through sudo where we are not.
as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif have sudo; then sudo "$@"
	else die "need root to run: $*  (install sudo or run as root)"
	fi
}

# nvidia_loaded: the version of the nvidia.ko that is loaded here, if one is. UVM_RUST_ROOT is the tests' root.
nvidia_loaded() { cat "${UVM_RUST_ROOT:-}/sys/module/nvidia/version" 2>/dev/null || :; }

# short_hash FILE...: a key for what these files say.
short_hash() { cat "$@" | sha256sum | cut -c1-12; }

# at_least MIN VERSION: is it that version or a later one?
at_least() { [ "$(printf '%s\n%s\n' "$1" "${2%%[-+~]*}" | sort -V | head -n 1)" = "$1" ]; }

# just_built: does the list $UVM_BUILT of modules, which list_built writes, hold for $KERNEL and
# what else is set, and has nothing that they are made of changed since? To have make look
# takes half as long as a VM takes to boot.
just_built() {
	[ -s "${UVM_BUILT:-}" ] && [ -z "${UVM_SRC:-}${UVM_VERSION:-}${UVM_RUST_MASKS:-}${UVM_RUST_KERNEL:-}" ] &&
		[ "${RELEASE:-0}" = 0 ] && grep -qxF "kernel ${KDIR:-${KERNEL:-release}}" "$UVM_BUILT" &&
		[ -z "$(cd "$TOP" && find Kbuild src include tests/vgpu scripts -newer "$UVM_BUILT" -print -quit)" ]
}

# list_built VARIANT...: builds modules, and says in the file $UVM_BUILT where they are. The time of that
# file is from before the build, so whoever edits meanwhile is not tested with what was there before.
list_built() {
	local v dir began
	began=$(mktemp)
	"$TOP/scripts/driver.sh" "$@" >"$began.dirs"
	{
		echo "kernel ${KDIR:-${KERNEL:-release}}"
		for v; do read -r dir && echo "$v $dir"; done <"$began.dirs"
	} >"$UVM_BUILT"
	touch -r "$began" "$UVM_BUILT"
	rm -f "$began" "$began.dirs"
}

# locked NAME: hold a lock on the cache until this shell ends, so that two
# builds of the same thing wait for each other rather than mix.
locked() {
	exec {lock_fd}>"$CACHE/.lock-$1"
	if ! flock -n "$lock_fd"; then
		say "waiting for another build of $1"
		flock "$lock_fd"
	fi
}

# progress WHAT LOG COMMAND...: run a long command with its output in LOG, and
# show how many lines it has printed (a build prints about one per file).
# TOTAL, if set, is the usual number of lines, shown as a percentage.
progress() {
	local what=$1 log=$2 pid n said='' t0=$SECONDS
	shift 2
	mkdir -p "$(dirname "$log")"
	: >"$log"
	"$@" >"$log" 2>&1 &
	pid=$!
	trap 'kill -- "$pid" 2>/dev/null || :' INT TERM
	while kill -0 "$pid" 2>/dev/null; do
		n=$(wc -l <"$log")
		# Where there is no terminal to draw on, one line for what takes long.
		if ! [ -t 2 ]; then
			if [ $((SECONDS - t0)) -ge 4 ] && [ -z "$said" ]; then
				said=1
				say "$what: running (log: $log)"
			fi
		else
			if [ "${TOTAL:-0}" -gt 0 ]; then
				printf '\r    %s: %3d %% (%d s) ' "$what" $((n * 100 / TOTAL > 99 ? 99 : n * 100 / TOTAL)) $((SECONDS - t0)) >&2
			else
				printf '\r    %s: %d steps (%d s) ' "$what" "$n" $((SECONDS - t0)) >&2
			fi
		fi
		sleep 0.5
	done
	if [ -t 2 ]; then printf '\r\033[K' >&2; fi
	trap - INT TERM
	if wait "$pid"; then
		[ $((SECONDS - t0)) -lt 4 ] || say "$what: done in $((SECONDS - t0)) s"
	else
		# With -j the error is rarely the last thing that was said.
		grep -m 8 -A 8 -E '(^|: )(fatal )?error' "$log" >&2 || tail -n 25 "$log" >&2
		die "$what failed; the whole log is $log"
	fi
}

# kill_tree PID: ends a process and all that it has started. A VM is not in our process group, and
# would go on.
kill_tree() {
	local child
	for child in $(pgrep -P "$1"); do kill_tree "$child"; done
	kill "$1" 2>/dev/null || :
}
