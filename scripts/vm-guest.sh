#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Inside the VM: load the modules, then run the command file, or give a shell.
#   vm-guest.sh ENV [COMMAND]
# Exit status 250 if the modules did not load.
set -u
# shellcheck source=/dev/null
. "$1"

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
if [ -z "$NOLOAD" ] && ! bash "$TOP/scripts/vm-load.sh"; then
	echo "error: the modules did not load; the kernel says:" >&2
	dmesg | tail -n 20 >&2
	exit 250
fi
cd "$TOP" || exit 250
if [ $# -gt 1 ]; then exec bash "$2"; fi
exec bash -i
