#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# How reads of an SSD and copies to the GPU go on at the same time, in the VM: what MIB MiB take
# from a device to the GPU, by UVM_RUST_FLASH_MOVE, beside what either way takes alone; and how many
# operations for others a fault is behind, beside moves by call, and beside spills and prefetches. There are
# two devices: an emulated NVMe that moves RATE MiB a second, and a null_blk each operation of which takes DELAY_US.
# The GPU's copies move RATE MiB a second, too, so that the times are theirs, and not the
# emulator's. Adds to REPORT. Fails if both take more than 1.15 times as long as the slower one, if a fault is
# behind more than two, or if reading two such NVMe, which are striped, is not 1.5 times as fast as reading one.
#
#   overlap.sh [REPORT]    out/ssd.json
#
# Environment: MIB (512), RATE (16), DELAY_US (three quarters of what would make RATE MiB a second of two operations
# of 2 MiB at a time: the emulator takes the rest to hand them over, and reading is about as slow as
# copying), DEVICE=both|nvme|delay (one device alone).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
report=${1:-out/ssd.json}
mkdir -p out

cargo build --release --quiet -p uvm-suite
mib=${MIB:-512} rate=${RATE:-16}
delay_us=${DELAY_US:-$((3 * 1000000 / rate))} only=
nvme="an emulated NVMe" delay="a device that takes $delay_us us for each operation"
case ${DEVICE:-both} in
both) from="$nvme, and from $delay" ;;
nvme) from=$nvme delay_us= ;;
delay) from=$delay only=" --only 'a delay: '" ;;
*) die "DEVICE=$DEVICE: use both, nvme or delay" ;;
esac
say "$mib MiB to the GPU from $from: four times each at $rate MiB a second"
# The guest has the GPU's memory, the host's, and the second device.
SSD_MIB_S=$rate DELAY_US=$delay_us VGPU_PARAMS="copy_mib_s=$rate" VIDMEM=$((mib + 64))M SSD_MB=$((mib + 64)) \
	UVM_PARAMS="uvm_rust_prefetch=1 ${UVM_PARAMS:-}" VM_MEM=${VM_MEM:-$((3 * mib + 3072))M} VM_TIMEOUT=${VM_TIMEOUT:-1200} \
	scripts/ssd.sh "target/release/flash --overlap $report --mib $mib$only"
