#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Tests what scripts of parts judge by themselves (tests/parts), and what vm-load.sh makes of the kernel's log. What
# tests/xtask makes of logs is tested by its own tests. Prints TAP.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../parts/channel-sanity.sh
. "$TOP/tests/parts/channel-sanity.sh"
# shellcheck source-path=SCRIPTDIR source=../parts/rustfmt.sh
. "$TOP/tests/parts/rustfmt.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/uvm-rust-parts.XXXXXX")
trap 'rm -rf "$dir"' EXIT
n=0 bad=0

# is WHAT GOT WANTED
is() {
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '#   got %s, want %s\n' "$2" "$3"
		bad=1
	fi
}

# died WHAT WANTED: of the kernel's log on standard input.
died() {
	local got=no
	cat >"$dir/log"
	if channel_sanity_died "$dir/log"; then got=yes; fi
	is "$1" "$got" "$2"
}

died "an assert that NVIDIA's test provokes, with its stack" no <<'LOG'
[   20.1] nvidia-uvm: uvm_gpu_semaphore.c:700 uvm_gpu_tracking_semaphore_is_completed[pid:120] Assert failed, condition 0 not true
[   20.1] CPU: 1 UID: 0 PID: 120 Comm: hazards
[   20.1] Call Trace:
[   20.1]  uvm_gpu_tracking_semaphore_is_completed+0x20/0x60 [nvidia_uvm]
[   20.1]  uvm_tracker_remove_completed+0x20/0x60 [nvidia_uvm]
LOG
died "an oops elsewhere, after that assert" no <<'LOG'
[   20.1] nvidia-uvm: uvm_tracker.c:300 uvm_tracker_wait[pid:120] Assert failed, condition 0 not true
[   20.1]  uvm_tracker_wait+0x20/0x60 [nvidia_uvm]
[   21.0] BUG: kernel NULL pointer dereference, address: 0000000000000018
[   21.0] Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI
[   21.0] RIP: 0010:uvm_va_block_evict_chunks+0x10/0x20 [nvidia_uvm]
[   21.0]  ? uvm_tracker_wait+0x20/0x60 [nvidia_uvm]
[   21.0]  uvm_pmm_gpu_alloc+0x20/0x60 [nvidia_uvm]
[   21.0] ---[ end trace 0000000000000000 ]---
[   21.1]  uvm_tracker_wait+0x20/0x60 [nvidia_uvm]
LOG
died "an oops in a tracker" yes <<'LOG'
[   21.0] BUG: unable to handle page fault for address: ffffc90000a25000
[   21.0] Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI
[   21.0] RIP: 0010:uvm_gpu_tracking_semaphore_update_completed_value+0x10/0x20 [nvidia_uvm]
LOG
died "an oops whose caller is a tracker" yes <<'LOG'
[   21.0] Oops: general protection fault, probably for non-canonical address 0x6b6b6b6b
[   21.0] RIP: 0010:_raw_spin_lock+0x10/0x20
[   21.0]  <TASK>
[   21.0]  uvm_tracker_remove_completed+0x20/0x60 [nvidia_uvm]
LOG
died "an endless wait for pushes, which a GPU that stands still makes as well" no <<'LOG'
[   21.0] nvidia-uvm: uvm_tracker.c:285 uvm_tracker_entry_print_pending_pushes[pid:120] Tracker entry for value 7
[   31.0] nvidia-uvm: uvm_tracker.c:285 uvm_tracker_entry_print_pending_pushes[pid:120] Tracker entry for value 7
[   41.0] nvidia-uvm: uvm_tracker.c:285 uvm_tracker_entry_print_pending_pushes[pid:120] Tracker entry for value 7
LOG
died "an oops elsewhere that tells no end, and a tracker's stack in another report" no <<'LOG'
[   21.0] BUG: KASAN: slab-use-after-free in vgpu_channel_turn+0x10/0x20 [vgpu]
[   21.0]  vgpu_channel_turn+0x10/0x20 [vgpu]
[   21.0] ==================================================================
[   22.0]  uvm_tracker_wait+0x20/0x60 [nvidia_uvm]
[   23.0] WARNING: CPU: 0 PID: 9 at kernel/locking/lockdep.c:500
[   23.0]  uvm_tracker_wait+0x20/0x60 [nvidia_uvm]
LOG
died "a guest that dies without a word" no <<<'[   20.1] nvidia-uvm: Detected a channel error'
# unloads WHAT WANTED: by the kernel's raw log on standard input.
unloads() {
	local got=clean
	if ! "$TOP/scripts/vm-load.sh" judge >"$dir/said"; then got=$(grep -c '^#' "$dir/said"); fi
	is "$1" "$got" "$2"
}
mark='<5>[   40.0] uvm-rust: unloading'

unloads "unloading without a word" clean <<<"$mark"$'\n<6>[   41.0] nvidia-uvm: Unloaded the UVM driver.'
unloads "what was said before" clean <<<$'<3>[   39.0] vgpu: leaked: 1 channels\n'"$mark"
unloads "vgpu's leak" 1 <<<"$mark"$'\n<3>[   41.0] vgpu: leaked: 0 channels, 0 address spaces, 2097152 bytes of vidmem'
unloads "UVM's leak, and what it counts" 2 <<<"$mark"$'\n<3>[   41.0] nvidia-uvm: Memory leak of 12 bytes detected.\n<6>[   41.1] vgpu: bye\n<3>[   41.2] BUG uvm_va_range_t (Not tainted): Objects remaining'
unloads "a warning is no error's level, and counts" 1 <<<"$mark"$'\n<4>[   41.0] WARNING: CPU: 0 PID: 9 at mm/slab_common.c:500'
unloads "a slow machine: stalls are not the modules'" clean <<<"$mark"$'\n<3>[   41.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n<0>[   41.0] watchdog: BUG: soft lockup - CPU#0 stuck for 23s!\n<3>[   41.0] BUG: workqueue lockup - pool cpus=0 stuck for 31s!\n<3>[   42.0] clocksource: timekeeping watchdog'
unloads "an oops of anybody" 1 <<<"$mark"$'\n<1>[   41.0] BUG: kernel NULL pointer dereference, address: 0000000000000018'
unloads "a log that has lost the mark" 1 <<<'<6>[   41.0] nvidia-uvm: Unloaded'

# What is formatted, and what is not.
unformatted() {
	cd "$dir/rust"
	{ rustfmt_check || :; } | awk '/is not formatted/ { n++ } END { print n + 0 }'
}
mkdir -p "$dir/rust/"{src,sim,tests,userlib}
printf 'fn main() {}\n' >"$dir/rust/src/a.rs"
is "a file that is formatted" "$(unformatted)" 0
printf 'fn  main(){}\n' >"$dir/rust/src/b.rs"
is "another that is not" "$(unformatted)" 1

# spans FILE...: where vm.sh says that the time of a VM went, whose guest touched these files.
spans() (
	# shellcheck disable=SC2034
	run_dir=$dir/vm began=100.5 booted=102,5
	rm -rf "$run_dir" && mkdir "$run_dir"
	at=110
	for file; do touch -d "@$at.25" "$run_dir/$file"; at=$((at + 5)); done
	eval "$(sed -n '/^say_times() {/,/^}/p' "$TOP/scripts/vm.sh")"
	say_times | awk '{ for (i = 1; i < NF - 1; i += 2) printf "%s %s ", $i, $(i + 1); print $(NF - 1) }'
)
is "where the time of a VM went" "$(spans up ready over)" "build 2.0 boot 7.8 load 5.0 tests 5.0 down"
is "of one that ends in its command" "$(spans up ready)" "build 2.0 boot 7.8 load 5.0 tests"
is "of one that does not boot" "$(spans)" "build 2.0 boot"

echo "1..$n"
exit $bad
