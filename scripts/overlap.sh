#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# How reads of an SSD and copies to the GPU go on at the same time, in the VM: what MIB MiB take
# from an emulated NVMe to the GPU, by UVM_RUST_FLASH_MOVE, beside what either way takes alone. Both
# the device and the GPU's copies move RATE MiB a second, so that the times are theirs, and not the
# emulator's. Adds to REPORT. Fails if both take more than 1.15 times as long as the slower one, or if
# reading two such devices, which are striped, is not 1.5 times as fast as reading one.
#
#   overlap.sh [REPORT]    out/ssd.json
#
# Environment: MIB (512), RATE (16).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
report=${1:-out/ssd.json}
mkdir -p out

cargo build --release --quiet -p uvm-suite
mib=${MIB:-512}
say "$mib MiB from an emulated NVMe to the GPU, four times at ${RATE:-16} MiB a second"
SSD_MIB_S=${RATE:-16} VGPU_PARAMS="copy_mib_s=${RATE:-16}" VIDMEM=$((mib + 64))M SSD_MB=$((mib + 64)) \
	VM_TIMEOUT=${VM_TIMEOUT:-1200} scripts/ssd.sh "target/release/flash --overlap $report --mib $mib"
