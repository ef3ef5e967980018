#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Upstream's use after free around UVM_TEST_CHANNEL_SANITY is a report of KASAN's, or an oops; or it does not show
# in this run. Anything else would be a bug of ours (docs/vgpu.md). If it shows, the modules are past unloading.
# Prints TAP.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

# channel_sanity_died LOG: does the kernel's log LOG end in upstream's use after free? That is an oops, or a report
# of KASAN, whose instruction or one of whose callers is a tracker's. What NVIDIA's test itself prints, asserts
# with a stack among it, is neither; nor is a tracker that waits for ever, as it may when the
# freed memory is another channel's by now: a GPU that does nothing more looks alike. Under
# KASAN such memory is not given out again, so that there is a report.
channel_sanity_died() {
	awk '
		# The place and the callers of an oops, to its end or the head of another report.
		/WARNING: |INFO: |Assert failed|======/ { crash = 0 }
		/BUG: |Oops: |general protection fault/ { crash = 1 }
		/---\[ end trace/ { crash = 0 }
		crash && /(RIP: [0-9]+:|BUG: KASAN: .* in |^[^?]*\] +)(uvm_tracker_|uvm_gpu_tracking_semaphore_)/ { found = 1 }
		END { exit !found }' "$1"
}

# Its own test calls the function alone.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
cd "$TOP"
mkdir -p out/test
rc=0 log=$TOP/out/test/channel-sanity.console
# What an earlier run ended in is not to count for one that does not get as far as a log.
rm -f "$log"
DRIVER=upstream KERNEL=debug VM_MEM=4G VM_UNLOAD='' VM_LOG=$log VM_TIMEOUT=1800 \
	scripts/vm.sh "target/release/hazards --channel-sanity" || rc=$?
if channel_sanity_died "$log"; then
	echo "ok 1 - UVM_TEST_CHANNEL_SANITY leaves trackers of freed channels: KASAN's report, or the oops, is upstream's"
else
	case $rc in
	0) echo "ok 1 - the use after free did not show # SKIP" ;;
	124 | 255) echo "not ok 1 - the guest died elsewhere; see $log" ;;
	*) exit "$rc" ;;
	esac
fi
echo 1..1
