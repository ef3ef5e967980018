#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM: load the modules, then run the command file, or give a shell.
#   vm-guest.sh ENV [COMMAND]
# Exit status 250 if the modules did not load; 251 if it should be booted again: this
# is the debug kernel and lockdep is off already, or the way out is missing.
set -u
# shellcheck source=/dev/null
. "$1"
# When this and that began, vm.sh sees by the times of files.
run_dir=$(dirname "$1")
touch "$run_dir/up"

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
# KASAN reports now and then that an interrupt in early boot reads a per-CPU variable
# too soon. That is the emulated machine's, but ends KASAN's and lockdep's work.
if [ "$KERNEL" = debug ] && ! grep -q 'debug_locks: *1$' /proc/lockdep_stats; then
	echo "the kernel reported something while it booted, and looks no further" >&2
	exit 251
fi
# When udev took too long to make the ports, nobody would hear what is said here.
if [ $# -gt 1 ] && [ ! -e /dev/virtio-ports/virtme.stdout ]; then exit 251; fi
# A QEMU that emulates it now and then kills its guest by it (vm.sh says how).
if [ -n "$EMULATED" ] && grep -qw cx16 /proc/cpuinfo; then
	echo "error: this emulated CPU has cmpxchg16b, which QEMU gets wrong" >&2
	exit 250
fi
# A packaged kernel has these in modules, and of udev's rules those that load them are not
# here (vm.sh).
if [ -d "/lib/modules/$(uname -r)" ]; then modprobe -aq nvme dm_mod || :; fi
# By itself kmemleak goes through all memory every ten minutes, which takes a quarter of
# what the machine can do; vm-kmemleak.sh has it do so when somebody wants to know.
if [ -w /sys/kernel/debug/kmemleak ]; then echo scan=off >/sys/kernel/debug/kmemleak 2>/dev/null || :; fi
if [ -z "$NOLOAD" ] && ! bash "$TOP/scripts/vm-load.sh"; then
	echo "error: the modules did not load; the kernel says:" >&2
	dmesg | tail -n 20 >&2
	exit 250
fi
cd "$TOP" || exit 250
if [ $# -gt 1 ]; then
	status=0
	touch "$run_dir/ready"
	bash "$2" || status=$?
	touch "$run_dir/over"
	# On the standard error, as what the command prints may be for a program.
	if [ -n "$VM_UNLOAD" ] && { [ -e /sys/module/nvidia_uvm ] || [ -e /sys/module/vgpu ]; }; then
		bash "$TOP/scripts/vm-load.sh" unload >&2 || status=1
	fi
	exit $status
fi
exec bash -i
