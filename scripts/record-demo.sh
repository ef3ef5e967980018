#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# A program of twice the GPU's memory in the VM, as one would have it on a machine with a GPU: it
# is recorded by uvmrun, planned by uvmsim, and run with its plan by uvmrun: as it was, where it has
# its memory elsewhere, and where a step leaves the plan; and besides under plain UVM and its tree
# prefetcher, and under the driver's own prefetcher, without discards and with them, which is DeepUM. A table,
# and out/record.json; the trace and the plan are in out/record. Fails unless every byte was right, faults and
# each link's bytes were as uvmsim predicted, and the plan and leaving it left hardly a fault. What the tree
# prefetcher brings is not predicted.
#
# Environment: what vm.sh knows.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
out=out/record
rm -rf "$out"
mkdir -p "$out"

cargo build --release --quiet -p uvm-dnn -p uvmrun -p uvmrust-preload -p uvmsim
say "a program is recorded, planned and run with its plan in the VM"
UVM_PARAMS="uvm_perf_prefetch_enable=0 ${UVM_PARAMS:-}" DRIVER=rust VIDMEM=${VIDMEM:-64M} VM_TIMEOUT=${VM_TIMEOUT:-1800} \
	scripts/vm.sh "
	set -e
	bin=target/release
	unload() { bash scripts/vm-load.sh unload >&2; }
	\$bin/uvmrun --record $out/train.uvmtrace -- \$bin/uvm-dnn program train uvm-noprefetch
	\$bin/uvmsim plan --trace $out/train.uvmtrace --gpu-mem 32MiB --keep-clean 0 -o $out/train.uvmplan
	for program in train train-elsewhere train-leaves; do
		\$bin/uvmrun --plan $out/train.uvmplan -- \$bin/uvm-dnn program \$program plan
	done
	unload
	with() { UVM_ARGS=\"\$UVM_ARGS \$*\" bash scripts/vm-load.sh rust; }
	with uvm_perf_prefetch_enable=1
	\$bin/uvm-dnn program train uvm
	unload
	with uvm_rust_prefetch=1 uvm_rust_preevict=1
	for policy in deepum-preevict deepum; do
		\$bin/uvm-dnn program train \$policy
	done
	unload
	with uvm_rust_prefetch=1 uvm_rust_preevict=1 uvm_rust_prefetch_ahead=1
	\$bin/uvm-dnn program train deepum=1
	unload" >"$out/runs"
target/release/uvm-dnn recorded "$out/train.uvmtrace" "$out/train.uvmplan" "$out/runs" out/record.json
say "written to out/record.json"
