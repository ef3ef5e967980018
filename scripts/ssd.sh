#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Run a command in the VM with three emulated NVMe: one for the SSD tier, a second like it
# for stripes, and one of 64 MiB, of which some sectors are bad, for tests. Their names are in
# the variables SSD, SECOND_SSD and BAD_SSD there, as the kernel may find any of them first.
# With DELAY_US there is also DELAY_SSD, in the guest's memory: each of its operations takes so
# many microseconds, however large it is and however many are under way (null_blk).
#
#   ssd.sh COMMAND     such as: ssd.sh 'target/release/flash --bad-device $BAD_SSD'
#
# Environment: SSD_MB (128), SSD_MIB_S (MiB that each of the first two moves in a second; no
# limit), DELAY_US, and what vm.sh knows.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"

images=$(mktemp -d "${TMPDIR:-/tmp}/uvm-rust-ssd.XXXXXX")
trap 'rm -rf "$images"' EXIT
truncate -s "${SSD_MB:-128}M" "$images/ssd" "$images/second"
truncate -s 64M "$images/bad"

# sector SLOT PAGE: of the device; the first slot begins at 2 MiB.
sector() { echo $((($1 + 1) * 4096 + $2 * 8)); }
# bad NUMBER read|write SECTOR: fails whatever touches it, always.
bad() {
	printf ',inject-error.%d.event=none,inject-error.%d.iotype=%s' "$1" "$1" "$2"
	printf ',inject-error.%d.sector=%d,inject-error.%d.errno=5,inject-error.%d.once=off' "$1" "$3" "$1" "$1"
}
# tests/suite/src/bin/flash/broken.rs relies on these.
errors=$(bad 0 write "$(sector 5 9)")$(bad 1 read "$(sector 10 100)")

speed=
[ -z "${SSD_MIB_S:-}" ] || speed=,throttling.bps-total=$((SSD_MIB_S << 20))
# What is trimmed is taken out of the image.
image=format=raw,cache=unsafe,discard=unmap$speed
# shellcheck disable=SC2054
devices=(
	-drive "file=$images/ssd,if=none,id=ssd,$image" -device nvme,serial=ssd,drive=ssd
	-drive "file=$images/second,if=none,id=second,$image" -device nvme,serial=second,drive=second
	-blockdev "driver=file,filename=$images/bad,node-name=file"
	-blockdev "driver=blkdebug,node-name=bad,image=file$errors" -device nvme,serial=bad,drive=bad
)
# What the guest runs first, in $( ): the block device of this serial number.
# shellcheck disable=SC2016
named='named() {
	local n f
	for n in {1..300}; do
		for f in /sys/block/nvme*/device/serial; do
			[ "$(tr -d " " 2>/dev/null <"$f")" != "$1" ] || { basename "${f%/device/serial}"; return; }
		done
		sleep 0.1
	done
	echo "there is no NVMe with serial number $1" >&2
	return 1
}
SSD=$(named ssd) && SECOND_SSD=$(named second) && BAD_SSD=$(named bad) || exit
export SSD=/dev/$SSD SECOND_SSD=/dev/$SECOND_SSD BAD_SSD=/dev/$BAD_SSD
'
# A request is one operation of up to 2 MiB, and what is trimmed gives its memory back.
# shellcheck disable=SC2016
delayed='delayed() {
	local at=/sys/kernel/config/nullb/delay set
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || return
	mkdir "$at"
	for set in size="$1" completion_nsec="$2" irqmode=2 memory_backed=1 discard=1 blocksize=4096 \
		max_sectors=4096 hw_queue_depth=128 power=1; do
		echo "${set#*=}" >"$at/${set%%=*}" || return
	done
	echo 2048 >/sys/block/delay/queue/max_sectors_kb
}
'
if [ -n "${DELAY_US:-}" ]; then
	named+=$delayed"delayed ${SSD_MB:-128} $((DELAY_US * 1000)) || exit
export DELAY_SSD=/dev/delay DELAY_US=$DELAY_US
"
fi
DRIVER=rust VIDMEM=${VIDMEM:-32M} UVM_PARAMS="uvm_rust_flash=1 ${UVM_PARAMS:-}" QEMU_OPTS="${devices[*]} ${QEMU_OPTS:-}" \
	"$TOP/scripts/vm.sh" "$named$*"
