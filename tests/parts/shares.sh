#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What three quiet processes keep beside a loud one, under NVIDIA's driver, under its order in ours, and under `fair`;
# and in ours, what a process with a maximum holds, what it leaves to others, and what others leave to one with a low.
# And what moves where programs take turns, under NVIDIA's driver, under its order in ours, with DeepUM's prefetcher, and
# under `turns`; the same in uvmsim.
# Writes out/shares.json: a row for each driver, policy and order of the processes, and one for each policy and number of programs.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
mkdir -p out
cargo build --release --quiet -p uvmsim
said=$(mktemp)
trap 'rm -f "$said"' EXIT
DRIVER=rust NOLOAD=1 GPUS=2 VIDMEM=64M VM_TIMEOUT=5400 scripts/vm.sh "
	# What only ours has, after a test of what both do.
	ours() {
		target/release/policy --quota && target/release/policy --low
	}
	shares() {
		UVM_ARGS=\"\$UVM_ARGS \$2\" bash scripts/vm-load.sh \$1 && target/release/policy --shares &&
			case \$2 in *=fair*) ;; *) target/release/policy --programs ;; esac &&
			if [ \$1 = upstream ]; then target/release/policy --low --only 'beside a loud one'; else ours; fi &&
			bash scripts/vm-load.sh unload
	}
	programs() {
		UVM_ARGS=\"\$UVM_ARGS uvm_rust_prefetch=1 uvm_rust_evict_policy=\$1\" bash scripts/vm-load.sh rust &&
			target/release/policy --programs && bash scripts/vm-load.sh unload
	}
	programs lru && programs turns &&
	shares upstream '' && shares rust uvm_rust_evict_policy=lru && shares rust 'uvm_rust_evict_policy=fair uvm_rust_gpu_max=1024' &&
		UVM_ARGS=\"\$UVM_ARGS uvm_rust_fault=0 uvm_rust_gpu_low=4\" bash scripts/vm-load.sh rust && ours && bash scripts/vm-load.sh unload" |
	tee "$said"
# The same in turn, where the clock counts the guest's instructions: those of the quiet ones' turns.
DRIVER=rust NOLOAD=1 ICOUNT=1 VIDMEM=64M VM_TIMEOUT=1200 scripts/vm.sh "
	for driver in upstream rust; do
		bash scripts/vm-load.sh \$driver && target/release/policy --low --counts --only 'beside a loud one, in turn' &&
			bash scripts/vm-load.sh unload || exit
	done" |
	tee -a "$said"
{
	echo '{"tenants": ['
	sed -n 's/^# json //p' "$said" | sed '$!s/$/,/'
	echo '], "programs": ['
	{
		sed -n 's/^# program //p' "$said"
		target/release/uvmsim programs --json
	} | sed '$!s/$/,/'
	echo ']}'
} >out/shares.json
