#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What three quiet processes keep beside a loud one, under NVIDIA's driver, under its order in ours, and under `fair`;
# and in ours, what a process with a maximum holds, what it leaves to others, and what others leave to one with a low.
# How long a process waits for another one's faults, with and without turns in the fault service; and for what another one
# moves, with and without a bound to what that has on its way.
# And what moves where programs take turns, under NVIDIA's driver, under its order in ours, with DeepUM's prefetcher, and
# under `turns`; the same in uvmsim.
# Writes out/shares.json: a row for each driver, policy and order of the processes, and one for each policy and number of programs.
#
#   shares.sh [--short]     less of each (make test)
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
mkdir -p out
# The GPU's memory in MiB where programs take turns: one and a half working sets, and what UVM needs itself.
case ${1:-} in
'') short='' turns=64 ;;
--short) short=--short turns=28 ;;
*) die "use --short, or nothing" ;;
esac
cargo build --release --quiet -p uvmsim
said=$(mktemp)
trap 'rm -f "$said"' EXIT
DRIVER=rust NOLOAD=1 GPUS=2 VIDMEM=64M VM_TIMEOUT=5400 scripts/vm.sh "
	policy() { target/release/policy $short \"\$@\"; }
	# loaded DRIVER PARAMETERS MIB COMMAND...: runs a command with a driver, on a GPU of so much memory.
	loaded() {
		UVM_ARGS=\"\$UVM_ARGS \$2\" VGPU_ARGS=\"\$VGPU_ARGS vidmem_mb=\$3\" bash scripts/vm-load.sh \$1 &&
			\"\${@:4}\" && bash scripts/vm-load.sh unload
	}
	programs() { loaded \$1 \"\$2\" $turns policy --programs; }
	baseline() { policy --shares && policy --low --only 'beside a loud one'; }
	limits() { policy --quota && policy --low; }
	ours() { policy --shares && limits; }
	stalls() { loaded rust uvm_rust_fault_turn_us=\$1 64 policy --stalls; }
	# The copies take their time, or none would queue up.
	link() { VGPU_ARGS=\"\$VGPU_ARGS copy_mib_s=64\" loaded rust \"\$1\" 256 policy --link; }
	lru=uvm_rust_evict_policy=lru
	link '' && link uvm_rust_link_quantum=0 &&
	stalls 0 && stalls 1 && stalls 4000 &&
	programs rust \"uvm_rust_prefetch=1 \$lru\" && programs rust 'uvm_rust_prefetch=1 uvm_rust_evict_policy=turns' &&
		programs upstream '' && programs rust \$lru &&
		loaded upstream '' 64 baseline && loaded rust \$lru 64 ours &&
		loaded rust 'uvm_rust_evict_policy=fair uvm_rust_gpu_max=1024' 64 ours &&
		loaded rust 'uvm_rust_fault=0 uvm_rust_gpu_low=4' 64 limits" |
	tee "$said"
# The same in turn, where the clock counts the guest's instructions: those of the quiet ones' turns.
# At length always: beside a smaller loud process, the quiet ones' first turns take a quarter more instructions than in a fresh VM.
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
