#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Inside the VM: load the modules as the environment says (see vm.sh), make the
# device nodes, which UVM does not do itself; or unload them.
#   vm-load.sh [rust|upstream]     default: $DRIVER
#   vm-load.sh unload
set -u

case ${1:-$DRIVER} in
unload)
	rmmod nvidia-uvm && rmmod vgpu
	exit
	;;
rust) uvm=$UVM_KO_RUST ;;
upstream) uvm=$UVM_KO_UPSTREAM ;;
*) echo "vm-load.sh: use rust, upstream or unload" >&2; exit 2 ;;
esac

# shellcheck disable=SC2086
insmod "$VGPU_KO" $VGPU_ARGS || exit 1
# shellcheck disable=SC2086
insmod "$uvm" $UVM_ARGS || { rmmod vgpu; exit 1; }
major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools
mknod -m 666 /dev/nvidia-uvm c "$major" 0 && mknod -m 666 /dev/nvidia-uvm-tools c "$major" 1
