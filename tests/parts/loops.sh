#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The same fault storms under the Rust loop, the C one, and the other replay policies (0 replays per block,
# 1 per batch, 2 flushes per batch, 3 once for all). Then what counts as a duplicate, in batches of one, where a
# page is mapped while others' faults on it are still to be read.
#
#   loops.sh OPTIONS...     such as: loops.sh --storms 60 --seed 7
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
mkdir -p out/test/rust
file=out/test/rust/loops.storms loops=target/release/loops
DRIVER=rust NOLOAD=1 VIDMEM=64M VM_TIMEOUT=${VM_TIMEOUT:-1800} scripts/vm.sh "
	storms() {
		echo \"# \$1\"
		UVM_ARGS=\"\$UVM_ARGS \$1\" bash scripts/vm-load.sh rust && $loops \$2 $file && bash scripts/vm-load.sh unload
	}
	storms uvm_rust_fault=1 '$* --record' && storms uvm_rust_fault=0 --against &&
	for policy in 0 1 3; do storms uvm_perf_fault_replay_policy=\$policy --against || exit; done &&
	for rust in 0 1; do
		echo \"# batches of one, uvm_rust_fault=\$rust\"
		UVM_ARGS=\"\$UVM_ARGS uvm_rust_fault=\$rust uvm_perf_fault_batch_count=1 \
			uvm_perf_fault_replay_policy=1 uvm_perf_prefetch_enable=0\" bash scripts/vm-load.sh rust &&
			out/kselftest/uvm_fault -t a_page_is_missing_once && bash scripts/vm-load.sh unload || exit
	done"
