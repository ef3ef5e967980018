#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Inside the VM, on the debug kernel: with the modules unloaded, nothing that
# they allocated may be left. Prints TAP.
file=/sys/kernel/debug/kmemleak
if [ ! -e "$file" ]; then
	echo "ok 1 - kmemleak # SKIP this kernel has none"
	echo 1..1
	exit 0
fi
# Twice, as a leak is only believed after it was seen again some seconds later.
for _ in 1 2; do
	echo scan >"$file" || { echo "not ok 1 - kmemleak is off"; echo 1..1; exit 1; }
	sleep 6
done
found=$(cat "$file")
if grep -q 'nvidia_uvm\|vgpu\|uvm_' <<<"$found"; then
	head -n 60 <<<"$found" | while read -r line; do echo "# $line"; done
	echo "not ok 1 - kmemleak"
	echo 1..1
	exit 1
fi
echo "ok 1 - kmemleak finds nothing of ours"
echo 1..1
