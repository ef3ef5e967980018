#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Programs of four times the GPU's memory and twice the host's, with an SSD behind
# both, in the VM on QEMU's emulated NVMe: a table, and out/ssd.json. Fails unless
# every byte was right and no slot of the device is left in use. Then the plans of G10,
# MOST and ours for scaled steps of BERT, ResNet-152 and ViT, and the same without a plan:
# fails unless each link carried what uvmsim predicted. Then how reads and copies overlap.
#
# Environment: VIDMEM (32M), OPS (2000) and SEED of the random program, SSD_MB (512),
# KERNEL=debug for KASAN and lockdep.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out

cargo build --release --quiet -p uvm-suite
say "the SSD tier in the VM, on an emulated NVMe of ${SSD_MB:-512} MiB"
SSD_MB=${SSD_MB:-512} VM_TIMEOUT=${VM_TIMEOUT:-1800} \
	scripts/ssd.sh "target/release/flash --demo out/ssd.json --ops ${OPS:-2000} ${SEED:+--seed $SEED}"
scripts/plans.sh out/ssd.json bert-base resnet152 vit-base
scripts/overlap.sh out/ssd.json
say "written to out/ssd.json"
