#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM: load the modules as the environment says (see vm.sh), make the
# device nodes, which UVM does not do itself; or unload them, and read what they report
# when they go: what was allocated and not given back, here and on the GPU. That is a test,
# in TAP.
#   vm-load.sh [rust|upstream]     default: $DRIVER
#   vm-load.sh unload
#   vm-load.sh judge               the test of the test: the kernel's log (dmesg -r) on
#                                  standard input
set -u
mark='uvm-rust: unloading'

# After the mark: lines of level "error" and worse of the modules, and of any level and
# anybody that speak of a bug. That the machine is slow (stalls, lockups) is none of them.
judge() {
	awk -v mark="$mark" '
		index($0, mark) { marked = 1; n = 0; next }
		!marked { next }
		{ level = substr($0, 2) % 8 }
		/soft lockup|workqueue lockup|rcu: |detected stalls/ { next }
		(level <= 3 && /nvidia|uvm|vgpu/) || /leak|BUG[ :]|Oops|WARNING:|KASAN|Objects remaining|Assert failed/ { said[n++] = $0 }
		END {
			if (!marked) { print "# the log has lost the mark"; exit 1 }
			for (i = 0; i < n; i++) print "# " said[i]
			exit n > 0
		}'
}

unload() {
	local status=0
	echo "$mark" >/dev/kmsg
	[ ! -e /sys/module/nvidia_uvm ] || rmmod nvidia-uvm || status=1
	[ ! -e /sys/module/vgpu ] || rmmod vgpu || status=1
	dmesg -r | judge || status=1
	if [ $status = 0 ]; then
		echo "ok 1 - unload: the modules report that nothing is left"
	else
		echo "not ok 1 - unload: the modules do not go, or report that something is left"
	fi
	echo 1..1
	return $status
}

case ${1:-$DRIVER} in
unload) unload; exit ;;
judge) judge; exit ;;
rust) uvm=$UVM_KO_RUST ;;
upstream) uvm=$UVM_KO_UPSTREAM ;;
*) echo "vm-load.sh: use rust, upstream or unload" >&2; exit 2 ;;
esac

# What they use of the kernel's may be in modules, which insmod does not look for.
for m in $(modinfo -F depends "$VGPU_KO" "$uvm" | tr ',' '\n' | grep -vx vgpu | sort -u); do
	modprobe "$m" || exit 1
done
# shellcheck disable=SC2086
insmod "$VGPU_KO" $VGPU_ARGS || exit 1
# shellcheck disable=SC2086
insmod "$uvm" $UVM_ARGS || { rmmod vgpu; exit 1; }
major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools
mknod -m 666 /dev/nvidia-uvm c "$major" 0 && mknod -m 666 /dev/nvidia-uvm-tools c "$major" 1
