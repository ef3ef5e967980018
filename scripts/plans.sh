#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Plans of uvmsim's on the driver: steps of the networks, scaled to the software GPU,
# without a plan and with those of G10, MOST and ours, with an emulated NVMe behind the
# host; and without a plan under the driver's own prefetcher, of which uvmsim predicts
# nothing. A table; the runs are added to REPORT. Fails unless each link carried the bytes
# that uvmsim predicted, the plans left hardly a fault, and the prefetcher made no more.
#
#   plans.sh REPORT NET...     such as: plans.sh out/ssd.json bert-base resnet152 vit-base
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
report=${1:?plans.sh REPORT NET...} nets=("${@:2}")
mkdir -p out

cargo build --release --quiet -p uvm-dnn
dnn=target/release/uvm-dnn
"$dnn" plan out/plans 48 >out/plans.log
say "plans of uvmsim's on the driver, some minutes for each network (predictions: out/plans.log)"
VIDMEM=64M VM_TIMEOUT=${VM_TIMEOUT:-3600} scripts/ssd.sh "
	for net in ${nets[*]}; do
		$dnn play out/plans \$SSD \$net base-uvm g10 most best || exit
	done" >out/plays
UVM_PARAMS="uvm_rust_prefetch=1 uvm_rust_preevict=4 ${UVM_PARAMS:-}" VIDMEM=64M VM_TIMEOUT=${VM_TIMEOUT:-3600} \
	scripts/ssd.sh "for net in ${nets[*]}; do $dnn play out/plans \$SSD \$net deepum || exit; done" >>out/plays
"$dnn" ssd out/plays "$report"
