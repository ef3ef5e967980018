#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM that test-install.sh boots with module.sig_enforce=1 and with firmware that
# knows DKMS' key: only what DKMS signed may be loaded. Each line that begins with "vm" is
# for that script.
set -u
check() {
	local name=$1
	shift
	if "$@" >/tmp/said 2>&1; then echo "vm ok $name"; else
		echo "vm not ok $name"
		{ cat /tmp/said; dmesg | tail -n 8; } | sed 's/^/vm # /'
	fi
}
enforced() { [ "$(cat /sys/module/module/parameters/sig_enforce)" = Y ]; }
key_known() { grep 'DKMS module signing key' /proc/keys; }
theirs_taken() { ! modprobe nvidia && dmesg | grep 'NVRM: No NVIDIA GPU found'; }
# The kernel looks at a module's signature before it looks for its symbols, and nvidia.ko,
# which has them, does not stay without a GPU.
ours_taken() {
	local m ours
	ours=$(modinfo -F filename nvidia-current-open-uvm)
	echo "$ours" | grep uvm-rust || return
	for m in $(modinfo -F depends "$ours" | tr ',' '\n' | grep -vx -e nvidia -e ''); do modprobe "$m" || return; done
	! insmod "$ours" 2>/tmp/why && cat /tmp/why && grep 'Unknown symbol' /tmp/why && dmesg | grep 'nvidia_uvm: Unknown symbol nvUvmInterface'
}
unsigned_refused() { ! insmod /root/vgpu.ko 2>/tmp/why && cat /tmp/why && grep -i 'rejected\|not permitted' /tmp/why; }

check "signatures are enforced" enforced
check "the kernel knows DKMS' key" key_known
check "nvidia.ko's signature is taken" theirs_taken
check "so is ours" ours_taken
check "a module without one is refused" unsigned_refused
echo "vm end"
