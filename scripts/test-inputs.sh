# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by test.sh: what a lane in the VM is made of, so that it runs again when, and only
# when, something of that changed.
# shellcheck shell=bash

# What no lane is made of: these start lanes, or do other things altogether. A script that
# is not listed counts for every lane.
not_of_a_lane='^scripts/(test|test-(parts|inputs|names|install|kernels|kernels-rows|count-test)|modules|package|chroot|sparse|clean|wheel|fuzz|sim-.*|mutants-host|bench|dnn|workloads|upstream-bugs|ssd-demo|deps|lines|vgpu-cost|ci|deny|pictures|versions)\.sh$|^scripts/((prose|links|terminal-svg)\.py|reuse\.txt)$'
# Rust's own tests and measurements, which are compiled for the host only.
unit_tests='^((src|tests/vgpu|userlib|sim)/.*/(tests/.*|tests\.rs|benches/.*|examples/.*)|tests/suite/tests/.*)$'

# lane_files COMMAND...: the sources of the modules, and of the programs that COMMAND runs.
# A program counts if its name is in the command, or in the shell function that is called.
lane_files() {
	local said="$*" f of=(Kbuild include src tests/vgpu tests/kselftest scripts)
	if [ "$(type -t "$1")" = function ]; then said+=" $(declare -f "$1")"; fi
	of+=(tests/suite)
	case $said in *library* | *kselftest* | *workloads*) of+=(userlib sim/plan) ;; esac
	case $said in *workloads*) of+=(tests/workloads sim) ;; esac
	case $said in *tests/panic*) of+=(tests/panic) ;; esac
	case $said in *uvm-dnn* | *plans* | *record-demo*) of+=(tests/dnn sim userlib) ;; esac
	{ git ls-files -co --exclude-standard -- "${of[@]}" 2>/dev/null ||
		find "${of[@]}" -type f -not -path '*/target/*'; } |
		grep -vE "$not_of_a_lane|$unit_tests|\.md$" | sort -u |
		while IFS= read -r f; do
			case $f in
			tests/suite/src/bin/*)
				local program=${f#tests/suite/src/bin/}
				program=${program%%/*}
				[[ $said == *"${program%.rs}"* ]] || continue
				;;
			esac
			echo "$f"
		done
}

# crates COMMAND...: the versions of all crates in the programs that COMMAND may run, and how the
# workspace has them compiled; who else is in the workspace does not matter.
crates() {
	local p=(-p uvm-suite)
	case "$*" in *workloads*) p+=(-p uvm-workloads) ;; esac
	case "$* $(declare -f "$1" || :)" in *uvm-dnn* | *plans* | *record-demo*) p+=(-p uvm-dnn) ;; esac
	case "$*" in *record-demo*) p+=(-p uvmrun -p uvmrust-preload -p uvmsim) ;; esac
	cargo tree --locked --prefix none -e normal,build "${p[@]}" 2>/dev/null | sed 's| (/.*||' | sort -u | grep . || cat Cargo.lock
	# Lints change no program.
	sed '/^members = \[/,/^\]/d; /^\[workspace\.lints/,/^$/d' Cargo.toml
}

# inputs COMMAND...: a key for all that goes into a lane: its sources as they are now, the
# kernel and its compilers, QEMU, and the settings that vm.sh reads. What the lane may skip is for
# test.sh to add, which knows its name.
inputs() {
	{
		crates "$@"
		lane_files "$@" | tr '\n' '\0' | xargs -0 sha256sum
		[ "$(type -t "$1")" != function ] || declare -f "$1"
		# `make demo` does without the other kernel's source, which `make test` installs.
		if [ "${KERNEL:-}" = stock ]; then scripts/kernel.sh stock 2>/dev/null
		else dpkg-query -W "linux-source-${KERNEL_SERIES:-6.12}" 2>/dev/null || :
		fi
		rustc --version
		gcc --version
		clang --version 2>/dev/null || :
		qemu-system-x86_64 --version
		env | grep -E '^(DRIVER|VIDMEM|GPUS?|RELEASE|KERNEL|VM_.*|UVM_(VERSION|PARAMS|RUST_MASKS|RUST_KERNEL|RUST_WHOLE)|ICOUNT|NOLOAD|VGPU_(PARAMS|ORDER|SEED)|QEMU_OPTS)=.' | sort
		# Nobody knows what these hold, or which seed will be drawn.
		[ -z "${UVM_SRC:-}${KDIR:-}" ] || date +%s.%N
		[ "${VGPU_ORDER:-}${VGPU_SEED:-}" != adversarial ] || date +%s.%N
	} | sha256sum
}
