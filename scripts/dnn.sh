#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Training steps of the zoo's networks on the software GPU, with half as much again as its
# memory, under each policy. Prints a table and writes out/dnn.json.
#
#   dnn.sh [WORKLOAD...]     default: all
#
# Environment: POLICIES (default: all five), AHEAD (kernels to look ahead), DNN_STEPS
# (iterations, 5; the first two are not counted), and vm.sh's.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out

cargo build --release --quiet -p uvm-dnn
dnn=$TOP/target/release/uvm-dnn
policies=${POLICIES:-uvm uvm-noprefetch deepum-prefetch deepum-preevict deepum}
say "running $policies in the VM"
NOLOAD=1 VIDMEM=${VIDMEM:-64M} VM_TIMEOUT=${VM_TIMEOUT:-3600} scripts/vm.sh "
	for policy in $policies; do
		on='uvm_rust_prefetch=1 uvm_rust_prefetch_ahead=${AHEAD:-32}'
		case \$policy in
		uvm) args= ;;
		uvm-noprefetch) args=uvm_perf_prefetch_enable=0 ;;
		deepum-prefetch) args=\$on ;;
		deepum-preevict | deepum) args=\"\$on uvm_rust_preevict=2\" ;;
		*) echo \"no policy '\$policy'\" >&2; exit 2 ;;
		esac
		UVM_ARGS=\"\$UVM_ARGS \$args\" bash scripts/vm-load.sh rust || exit 1
		DNN_STEPS=${DNN_STEPS:-5} $dnn run \$policy $* || exit 1
		bash scripts/vm-load.sh unload || exit 1
	done" >out/dnn.cells
"$dnn" report out/dnn.cells --json out/dnn.json
say "written to out/dnn.json"
