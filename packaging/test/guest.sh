#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM that test-install.sh boots, as root: the module that DKMS built, with the
# software GPU in nvidia.ko's place. Each line that begins with "vm" is for that script.
set -u
n=0
# check NAME COMMAND...
check() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >/tmp/said 2>&1; then echo "vm ok $name"; else
		echo "vm not ok $name"
		sed 's/^/vm # /' /tmp/said | tail -n 12
		dmesg | tail -n 8 | sed 's/^/vm # dmesg: /'
	fi
}
depends() { modinfo -F depends "$@" | tr ',' '\n' | grep -vx -e vgpu -e nvidia -e '' | sort -u; }
# Of the two modules of that name the one that modprobe would take. Its symbols have the
# versions of nvidia.ko's, which are not those of vgpu.ko: hence the force.
load() {
	echo "$1"
	for m in $(depends "$1"); do modprobe "$m" || return; done
	insmod -f "$1" || return
	rm -f /dev/nvidia-uvm
	mknod -m 666 /dev/nvidia-uvm c "$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)" 0
}
load_vgpu() {
	for m in $(depends /root/vgpu.ko); do modprobe "$m" || return; done
	insmod /root/vgpu.ko vidmem_mb=256
}
no_gpu() { ! modprobe nvidia-uvm && dmesg | grep 'NVRM: No NVIDIA GPU found'; }
ours_loaded() { uvm-rust doctor | grep 'loaded: *ours'; }
# Without the file that this shell has open, which its children inherit.
refused() { ! uvm-rust disable 7<&- 2>/tmp/refused && cat /tmp/refused && grep "$$ bash" /tmp/refused && grep 'Nothing was changed' /tmp/refused; }
quiet() { ! dmesg | grep -E 'BUG[: ]|Oops|WARNING: CPU|KASAN|Call Trace'; }
# The key that DKMS signed it with is not one that this machine knows.
unknown_key_refused() {
	echo 1 >/sys/module/module/parameters/sig_enforce
	! insmod "$ours" 2>/tmp/why && cat /tmp/why && grep 'Key was rejected' /tmp/why
}

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
echo "vm # $(uname -r)"
ours=$(modinfo -F filename nvidia-current-open-uvm)
theirs=/lib/modules/$(uname -r)/updates/dkms/nvidia-current-open-uvm.ko.xz
check "nvidia.ko loads up to where it looks for a GPU" no_gpu
check "vgpu.ko loads" load_vgpu
check "the module that modprobe would take loads: $ours" load "$ours"
check "it is ours" ours_loaded
exec 7<>/dev/nvidia-uvm
check "with a process on it, uvm-rust refuses to swap it and names the process" refused
exec 7<&-
for t in /root/kselftest/*; do
	[ ! -x "$t" ] || check "kselftest $(basename "$t")" "$t"
done
check "it unloads" rmmod nvidia_uvm
check "NVIDIA's own loads in its place" load "$theirs"
check "and unloads" rmmod nvidia_uvm
check "vgpu.ko unloads" rmmod vgpu
check "the kernel has said nothing of a bug" quiet
check "with module.sig_enforce=1 its signature is looked at, and the key is not known" unknown_key_refused
echo "vm # $n checks"
echo "vm end"
