#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Programs of four times the GPU's memory and twice the host's, with an SSD behind
# both, in the VM on QEMU's emulated NVMe: a table, and out/ssd.json. Fails unless
# every byte was right and no slot of the device is left in use.
#
# Environment: VIDMEM (32M), OPS (2000) and SEED of the random program, SSD_MB (512),
# KERNEL=debug for KASAN and lockdep.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out

cargo build --release --quiet -p uvm-suite
image=$(mktemp "${TMPDIR:-/tmp}/uvm-rust-ssd.XXXXXX")
trap 'rm -f "$image"' EXIT
truncate -s "${SSD_MB:-512}M" "$image"
say "the SSD tier in the VM, on an emulated NVMe of ${SSD_MB:-512} MiB"
DRIVER=rust VIDMEM=${VIDMEM:-32M} VM_TIMEOUT=${VM_TIMEOUT:-1800} UVM_PARAMS="uvm_rust_flash=1 ${UVM_PARAMS:-}" \
	QEMU_OPTS="-drive file=$image,if=none,id=ssd,format=raw,cache=unsafe -device nvme,serial=uvm-rust,drive=ssd" \
	scripts/vm.sh "target/release/flash --demo out/ssd.json --ops ${OPS:-2000} ${SEED:+--seed $SEED}"
say "written to out/ssd.json"
