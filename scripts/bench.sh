#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Guest instructions per serviced fault and per evicted chunk, the unmodified
# driver against ours, in one VM under -icount. Prints a table and writes
# out/bench.json.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out

cargo build --release --quiet -p uvm-bench
bench=$TOP/target/release/uvm-bench
say "measuring in the VM, both drivers twice (about 6 minutes)"
# Turn by turn, so that neither has the warmer machine.
RELEASE=1 ICOUNT=1 NOLOAD=1 VIDMEM=${VIDMEM:-128M} VM_TIMEOUT=${VM_TIMEOUT:-1800} scripts/vm.sh "
	set -e
	for driver in upstream rust rust upstream; do
		bash scripts/vm-load.sh \$driver
		$bench measure \$driver
		bash scripts/vm-load.sh unload
	done
	for batch in 1 16 256; do
		for driver in upstream rust rust upstream; do
			UVM_ARGS=\"\$UVM_ARGS uvm_perf_fault_batch_count=\$batch\" bash scripts/vm-load.sh \$driver
			$bench faults \$driver \$batch
			bash scripts/vm-load.sh unload
		done
	done" >out/bench.tsv
"$bench" report out/bench.tsv --json out/bench.json
say "written to out/bench.json"
