#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM that test-install.sh boots with memory for a GPU that is
# not there (tests/fake-gpu): NVIDIA's own nvidia.ko finds it and stays, and the module that DKMS
# built is loaded beside it by modprobe, as on a user's machine. Each line that begins with "vm"
# is for that script. (No swap by uvm-rust: its depmod reads 4,000 compressed modules, which takes a
# quarter of an hour in an emulated machine.)
set -u
# Where the kernel was told to leave memory alone.
window=$(sed -n 's/.*memmap=129M\$\(0x[0-9a-f]*\).*/\1/p' /proc/cmdline)
check() {
	local name=$1
	shift
	if "$@" >/tmp/said 2>&1; then echo "vm ok $name"; else
		echo "vm not ok $name"
		{ tail -n 12 /tmp/said; dmesg | tail -n 12; } | sed 's/^/vm # /'
	fi
}
loaded() { grep "^$1 " /proc/modules; }
not_loaded() { ! loaded "$1"; }
probed() { loaded nvidia && dmesg | grep 'NVRM: loading NVIDIA UNIX Open Kernel Module' && find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 | grep .; }
# Without -f: its symbols are nvidia.ko's, of the very versions that it was built against.
load_uvm() {
	modprobe nvidia-uvm && loaded nvidia_uvm || return
	[ -e /dev/nvidia-uvm ] || mknod -m 666 /dev/nvidia-uvm c "$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)" 0
}
ours_loaded() { uvm-rust doctor | grep 'loaded: *ours'; }
quiet() { ! dmesg | grep -E 'BUG[: ]|Oops|WARNING: CPU|KASAN|Call Trace|kmemleak: [1-9]'; }
selftest() { /root/kselftest/uvm_basic -t "$1"; }
managed_memory() {
	local t
	for t in nothing_before_initialize managed_memory_is_zero_and_keeps_what_is_written \
		mapping_must_be_shared_and_at_its_offset unknown_gpu_is_refused; do selftest "$t" || return; done
}

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
check "a PCI device of NVIDIA's that is not there" insmod /root/uvm_rust_fake_gpu.ko window="$window"
lspci -nn 2>/dev/null | grep -i nvidia | sed 's/^/vm # /'
check "nvidia.ko loads" modprobe nvidia
check "and finds a GPU, and stays" probed
check "nvidia-uvm loads beside it, by modprobe" load_uvm
check "it is ours" ours_loaded
check "/dev/nvidia-uvm opens and initialises, and the CPU's managed memory works" managed_memory
check "it unloads" rmmod nvidia_uvm
check "and so does nvidia.ko" rmmod nvidia
check "neither is left" not_loaded nvidia
check "the kernel has said nothing of a bug" quiet
echo "vm end"
