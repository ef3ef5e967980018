#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/overlap.sh and ssd.sh have the VM's guest do: the devices that it makes and names, and at which rates. The VM
# and cargo are stand-ins, and so is the guest's /sys.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$TOP/tests/scripts/tap.sh"
unset MIB RATE DELAY_US DEVICE SSD_MB SSD_MIB_S VM_MEM UVM_PARAMS VGPU_PARAMS QEMU_OPTS
export UVM_RUST_CACHE=$work/cache HOME=$work TMPDIR=$work
mkdir -p "$work/scripts" "$work/cache/tools/bin" "$work/bin"
cp "$TOP"/scripts/{lib.sh,overlap.sh,ssd.sh} "$work/scripts/"
# stands_in FILE: what standard input says is all that it does.
stands_in() { { echo '#!/bin/bash'; cat; } >"$1" && chmod +x "$1"; }
stands_in "$work/cache/tools/bin/cargo" <<<:
stands_in "$work/scripts/vm.sh" <<'SH'
printf '%s' "$1" >"$WORK/command"
printf '%s\n' "$UVM_PARAMS" "$VGPU_PARAMS" "$VIDMEM" "$VM_MEM" >"$WORK/set"
printf '%s\n' "$QEMU_OPTS" >"$WORK/devices"
SH
export WORK=$work
overlap() { "$work/scripts/overlap.sh" "$@" >"$work/said" 2>&1; }

# guest: runs the command where /sys is a folder, and the program that it ends with says what it is told.
guest() {
	sed "s|/sys/|$work/sys/|g; s|^target/release/flash|$work/flash|" "$work/command" >"$work/guest"
	PATH=$work/bin:$PATH bash "$work/guest" >"$work/said" 2>&1
}
stands_in "$work/bin/mountpoint" <<<'exit 1'
stands_in "$work/bin/mount" <<'SH'
[ "$1 $2" != "-t configfs" ] || mkdir -p "$4/${NULL_BLK-nullb}"
SH
# shellcheck disable=SC2016
stands_in "$work/flash" <<<'echo "$SSD $SECOND_SSD $BAD_SSD ${DELAY_SSD:-none} ${DELAY_US:-none}" "$@"'
for device in nvme0n1:bad nvme1n1:ssd nvme2n1:second; do
	mkdir -p "$work/sys/block/${device%:*}/device"
	echo "${device#*:} " >"$work/sys/block/${device%:*}/device/serial"
done
mkdir -p "$work/sys/block/delay/queue"

overlap "$work/report" && [ "$(sed -n 2,3p "$work/set" | paste -sd' ')" = "copy_mib_s=16 576M" ] &&
	grep -q uvm_rust_prefetch=1 "$work/set" && grep -q "bps-total=$((16 << 20))" "$work/devices"
check "the NVMe and the GPU move 16 MiB a second, and the driver prefetches"
guest && grep -qx "/dev/nvme1n1 /dev/nvme2n1 /dev/nvme0n1 /dev/delay 187500 --overlap $work/report --mib 512" "$work/said"
check "the program is told of each device, and how long an operation of the last one takes"
at=$work/sys/kernel/config/nullb/delay
[ "$(cat "$at"/{size,completion_nsec,irqmode,memory_backed,power} | paste -sd' ')" = "576 187500000 2 1 1" ] &&
	[ "$(cat "$at"/{max_sectors,blocksize,discard} | paste -sd' ')" = "4096 4096 1" ] && [ "$(cat "$at/hw_queue_depth")" -ge 64 ] && [ "$(cat "$work/sys/block/delay/queue/max_sectors_kb")" = 2048 ]
check "each operation takes that time, of up to 2 MiB, many at a time, and keeps what was written"

rm -rf "$at"
MIB=64 RATE=32 DEVICE=delay overlap "$work/report" && guest && [ "$(cat "$at/completion_nsec")" = 93750000 ] &&
	grep -q -- " 93750 --overlap $work/report --mib 64 --only a delay: \$" "$work/said"
check "at twice the rate half the time, and one device alone"
DEVICE=nvme overlap "$work/report" && guest && grep -q -- " none none --overlap $work/report --mib 512\$" "$work/said"
check "the NVMe alone"
! DEVICE=tape overlap && grep -q "DEVICE=tape: use both, nvme or delay" "$work/said"
check "which device that is has to be said right"

overlap "$work/report" && rm -rf "$work/sys/kernel"
! NULL_BLK='' guest && ! grep -q overlap "$work/said"
check "without null_blk nothing is measured"

"$work/scripts/ssd.sh" "$work/flash ran" >"$work/said" 2>&1 && guest && grep -qx '.* none none ran' "$work/said"
check "whoever asks for no such device has none"
done_testing
