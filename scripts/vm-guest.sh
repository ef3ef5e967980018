#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Inside the VM: load the modules, then run the command file, or give a shell.
#   vm-guest.sh ENV [COMMAND]
# Exit status 250 if the modules did not load.
set -u
. "$1"

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug

load() {
	# shellcheck disable=SC2086
	insmod "$VGPU_KO" $VGPU_ARGS && insmod "$UVM_KO" $UVM_ARGS
}

# UVM makes no device nodes.
nodes() {
	local major
	major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
	[ -n "$major" ] && mknod -m 666 /dev/nvidia-uvm c "$major" 0 &&
		mknod -m 666 /dev/nvidia-uvm-tools c "$major" 1
}

if [ -z "$NOLOAD" ] && ! { load && nodes; }; then
	echo "error: the modules did not load; the kernel says:" >&2
	dmesg | tail -n 20 >&2
	exit 250
fi
cd "$TOP" || exit 250
if [ $# -gt 1 ]; then exec bash "$2"; fi
exec bash -i
