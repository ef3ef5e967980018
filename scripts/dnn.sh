#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Training steps of the zoo's networks on the software GPU, with half as much again as its
# memory, under each policy, and under deepum-prefetch with other numbers of kernels to look
# ahead; beside them what uvmsim says of the same. Prints tables and writes out/dnn.json.
#
#   dnn.sh [WORKLOAD...]     default: all
#
# Environment: POLICIES (default: all five), AHEAD (the other numbers, "8 16 64 128"; may be
# empty), DNN_STEPS (iterations, the first two of which are not counted: 4 where nothing is
# learnt, 14 elsewhere), and vm.sh's.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out

cargo build --release --quiet -p uvm-dnn
dnn=$TOP/target/release/uvm-dnn
policies=${POLICIES:-uvm deepum deepum-preevict deepum-prefetch uvm-noprefetch}
ahead=${AHEAD-8 16 64 128}
networks='bert-base gpt2-l resnet152 dlrm'
runs=$policies
for n in $ahead; do runs+=" deepum-prefetch=$n"; done
say "running $runs in the VM (the better part of an hour)"
NOLOAD=1 VIDMEM=${VIDMEM:-128M} VM_TIMEOUT=${VM_TIMEOUT:-10800} scripts/vm.sh "
	for run in $runs; do
		policy=\${run%=*}
		ahead=\${run#\$policy}
		ahead=\${ahead#=}
		on=\"uvm_rust_prefetch=1 uvm_rust_prefetch_ahead=\${ahead:-32}\"
		steps=14 names='$*'
		# In random order there is nothing to look ahead to.
		[ -n \"\$names\$ahead\" ] || names='$networks random-order'
		case \$policy in
		uvm) args= steps=4 ;;
		uvm-noprefetch) args=uvm_perf_prefetch_enable=0 steps=4 ;;
		deepum-prefetch) args=\$on ;;
		deepum-preevict | deepum) args=\"\$on uvm_rust_preevict=2\" ;;
		*) echo \"no policy '\$policy'\" >&2; exit 2 ;;
		esac
		UVM_ARGS=\"\$UVM_ARGS \$args\" bash scripts/vm-load.sh rust || exit 1
		DNN_STEPS=${DNN_STEPS:-\$steps} $dnn run \$policy \${names:-$networks} || exit 1
		bash scripts/vm-load.sh unload || exit 1
	done" >out/dnn.cells
"$dnn" report out/dnn.cells --json out/dnn.json
say "written to out/dnn.json"
