#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Tests what test.sh makes of a part's log, and the check of its own that no other program makes.
# Prints TAP.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$TOP/scripts/test-count.sh"
. "$TOP/scripts/test-parts.sh"
# What make was given is for what it runs, not for what is tried here.
for option in $(make_options | grep -vx JOBS); do unset "$option"; done
dir=$(mktemp -d "${TMPDIR:-/tmp}/uvm-rust-count.XXXXXX")
trap 'rm -rf "$dir"' EXIT
SKIPS=$dir/skips
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

# counts WHAT WANTED STATUS: of the log on standard input, as part "p/q".
counts() {
	cat >"$dir/log"
	tally p/q "$3" "$dir/log" >"$dir/said"
	# shellcheck disable=SC2154
	is "$1" "$p passed $f failed $s skipped" "$2"
}

cat >"$SKIPS" <<'LIST'
# PART TEST
p/q	suite: needs two GPUs
p/*	uvm.discard*
?p/q	suite: only here and there
?p/q	host test
other	suite: elsewhere
LIST
skips=$'ok 2 - suite: needs two GPUs # SKIP one\nok 3 uvm.discard_one # SKIP none'
counts "a run with the known skips" "1 passed 0 failed 2 skipped" 0 <<<"ok 1 - suite: a"$'\n'"$skips"$'\n1..3'
counts "a skip that is not on the list" "1 passed 1 failed 3 skipped" 0 <<<"ok 1 - suite: a"$'\n'"$skips"$'\nok 4 - suite: b # SKIP\n1..4'
is "and it is named" "$(grep -c 'not on the list tests/skips: suite: b$' "$dir/said")" 1
counts "the list of another part" "1 passed 1 failed 3 skipped" 0 <<<"ok 1 - suite: a"$'\n'"$skips"$'\nok 4 - suite: elsewhere # SKIP x\n1..4'
counts "a listed test that is skipped no more" "2 passed 1 failed 1 skipped" 0 <<<$'ok 1 - suite: a\nok 2 - suite: needs two GPUs # 0.1 s\nok 3 uvm.discard_one # SKIP none\n1..3'
counts "one that may be skipped, and is" "1 passed 0 failed 3 skipped" 0 <<<"ok 1 - suite: a"$'\n'"$skips"$'\nok 4 - suite: only here and there # SKIP y\n1..4'
counts "a program that plans nothing" "1 passed 1 failed 3 skipped" 0 <<<"ok 1 - suite: a"$'\n'"$skips"$'\n1..3\n1..0 # SKIP load it otherwise'
counts "a program that plans nothing and says no reason" "0 passed 1 failed 1 skipped" 0 <<<'1..0'
counts "nothing but a program that is skipped" "0 passed 1 failed 1 skipped" 0 <<<$'TAP version 14\n1..0 # SKIP no device'
counts "a plan of ten is no plan of nothing" "1 passed 1 failed 2 skipped" 0 <<<"ok 1 - suite: a"$'\n'"$skips"$'\n1..10'
counts "a test that failed" "1 passed 1 failed 0 skipped" 1 <<<$'ok 1 - suite: a\nnot ok 2 - suite: b\n1..2'
counts "a status without a failed test" "1 passed 1 failed 2 skipped" 1 <<<"ok 1 - suite: a"$'\n'"$skips"$'\n1..3'
counts "no TAP, where both should be skipped" "1 passed 2 failed 0 skipped" 0 <<<'built'
printf '?p/q\thost test\n' >"$SKIPS"
counts "no TAP, and nothing is to be skipped" "1 passed 0 failed 0 skipped" 0 <<<'built'
counts "cargo's, with a known one ignored" "3 passed 0 failed 1 skipped" 0 <<<$'test a ... ok\ntest host test ... ignored\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'
counts "cargo's, with another ignored" "3 passed 1 failed 1 skipped" 0 <<<$'test slow ... ignored, too slow\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'

# A test of cargo's that says by itself that it was skipped has passed for cargo.
printf '?p/q\thost test\n?p/q\t# no compiler*\n' >"$SKIPS"
passed=$'test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'
counts "cargo's, and one says that it was skipped" "2 passed 0 failed 2 skipped" 0 <<<$'test host test ... ignored\n\nskipped: one # no compiler; get one\n'"$passed"
counts "two, with one test at a time" "1 passed 0 failed 3 skipped" 0 <<<$'test a ... \nskipped: host test # no device\nok\ntest b ... \nskipped: b.rs:1 # no compiler\nok\n'"$passed"
counts "one for another reason" "2 passed 1 failed 2 skipped" 0 <<<$'skipped: one # no linker\n'"$passed"
is "and that is named" "$(grep -c 'not on the list tests/skips: one$' "$dir/said")" 1

# Conditions, reasons and counts.
cat >"$SKIPS" <<'LIST'
GPU!=volta,GPUS=1:p/q	2x suite: counters (*)
?KERNEL=stock:p/q	# no HMM
LENGTH=long:p/q	suite: to the end
?LENGTH=short:p/q	# in part
LIST
two=$'ok 1 - suite: counters (a) # SKIP x\nok 2 - suite: counters (b) # SKIP x'
counts "as often as the list says" "0 passed 0 failed 2 skipped" 0 <<<"$two"$'\n1..2'
counts "not so often" "1 passed 1 failed 1 skipped" 0 <<<$'ok 1 - suite: counters (a) # SKIP x\nok 2 - suite: counters (b)\n1..2'
counts "a third of them" "0 passed 1 failed 3 skipped" 0 <<<"$two"$'\nok 3 - suite: counters (c) # SKIP x\n1..3'
GPU=volta counts "a condition that does not hold: nothing need be skipped" "1 passed 0 failed 0 skipped" 0 <<<$'ok 1 - suite: counters (a)\n1..1'
GPUS=2 counts "a condition that does not hold: nothing may be skipped" "0 passed 2 failed 2 skipped" 0 <<<"$two"$'\n1..2'
LENGTH=long counts "what only the long form has" "0 passed 0 failed 3 skipped" 0 <<<"$two"$'\nok 3 - suite: to the end # SKIP x\n1..3'
short=$'\nok 3 - suite: all # SKIP in part\n1..3'
counts "what only the short form has, which is the usual one" "0 passed 0 failed 3 skipped" 0 <<<"$two$short"
LENGTH=long counts "and the long form has not" "0 passed 1 failed 3 skipped" 0 <<<"$two$short"
LENGTH=long counts "and that it has it" "0 passed 1 failed 2 skipped" 0 <<<"$two"$'\n1..2'
counts "a reason, under another condition" "0 passed 1 failed 3 skipped" 0 <<<"$two"$'\nok 3 - suite: HMM # SKIP no HMM\n1..3'
KERNEL=stock counts "a reason, under its condition" "0 passed 0 failed 3 skipped" 0 <<<"$two"$'\nok 3 - suite: HMM # SKIP no HMM\n1..3'
KERNEL=stock counts "another reason, under that condition" "0 passed 1 failed 3 skipped" 0 <<<"$two"$'\nok 3 - suite: HMM # SKIP slow\n1..3'

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

# The files that one shell sources have no two functions of one name: the second would be called for the first.
is "no function is defined twice" "$(cd "$TOP/scripts" && grep -hoE '^[a-z_]+\(\)' test.sh test-count.sh test-inputs.sh test-parts.sh bugs.sh lib.sh | sort | uniq -d)" ""

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

# lanes COMMAND...: test.sh's own, until all that COMMAND starts have ended; prints what test.sh does then.
# shellcheck disable=SC2317,SC2034
lanes() (
	CACHE=$dir/cache out=$dir/out LANES=2 failed=0 passed=0 skipped=0 failures=() digest='' what=${what:-all}
	declare -A running=()
	mkdir -p "$CACHE/passed" "$out"
	eval "$(sed -n '/^# count PART STATUS/,/^# says_why/p; /^# part NAME/,/^lanes_end()/p; /^wanted()/,/^}/p; /^# follow NAME/,/^}/p' \
		"$TOP/scripts/test.sh")"
	inputs() { cat "$dir/sources"; }
	keep_log() { :; }
	says_why() { echo why; }
	build_programs() { echo >>"$dir/built" && [ -z "${broken:-}" ] && printf 'ok 1 - built\n1..1\n'; }
	ran() { echo >>"$dir/ran" && cat "$dir/log"; }
	given=$(options)
	"$@"
	lanes_end
	printf '%s' "$digest"
)

# What is remembered: `ran` counts the runs of a command that has its result in a file.
remembered() { lanes "$@" >/dev/null 2>&1 && wc -l <"$dir/ran"; }
: >"$dir/ran"
echo 1 >"$dir/sources"
printf 'ok 1 - x\n1..1\n' >"$dir/log"
is "a lane runs" "$(remembered lane r/s ran)" 1
is "it has passed, and does not run again" "$(remembered lane r/s ran)" 1
echo 2 >"$dir/sources"
is "its sources have changed" "$(remembered lane r/s ran)" 2
is "a part beside others runs each time" "$(remembered beside r/s ran; remembered beside r/s ran)" $'3\n4'
is "and nothing is kept of it" "$(find "$dir/cache/passed" -name -)" ''
echo 3 >"$dir/sources"
printf 'not ok 1 - x\n1..1\n' >"$dir/log"
is "what failed runs again" "$(remembered lane r/s ran; remembered lane r/s ran)" $'5\n6'
printf 'ok 1 - w\nnot ok 2 - x\n1..2\n' >"$dir/log"
is "what failed elsewhere is not remembered" "$(remembered remember r/s "$dir/log" ran; remembered lane r/s ran)" $'6\n7'
: >"$dir/log"
is "nor what says nothing" "$(remembered remember r/t "$dir/log" ran; remembered lane r/t ran)" $'7\n8'
printf 'ok 1 - x\n1..1\n' >"$dir/log"
is "what passed elsewhere does not run here" "$(remembered remember r/s "$dir/log" ran; remembered lane r/s ran)" $'8\n8'
# shellcheck disable=SC2317
two_lanes() { lane r/v ran; lane r/w ran; }
: >"$dir/built"
is "lanes run" "$(remembered two_lanes)" 10
is "and their programs are built once before" "$(wc -l <"$dir/built")" 1
is "not for what has passed before" "$(remembered two_lanes; wc -l <"$dir/built")" $'10\n1'
is "also where ONLY names a lane alone" "$(ONLY=r/x remembered lane r/x ran; wc -l <"$dir/built")" $'11\n2'
is "programs that cannot be built are not run" "$(broken=1 remembered lane r/y ran; wc -l <"$dir/built")" $'11\n3'
# shellcheck disable=SC2317
other_lanes() { lane r/y ran; lane r/z ran; }
is "by no lane, nor built again" "$(broken=1 remembered other_lanes; wc -l <"$dir/built")" $'11\n4'
is "and each lane says so" "$(broken=1 lanes other_lanes 2>&1 | grep -c 'not run, as its programs could not be built')" 2
is "nor are they remembered" "$(remembered other_lanes)" 13

# A part that failed says how to run it again, at once and at the end. SEEDS are those that its log names.
# shellcheck disable=SC2317
failing() {
	printf 'not ok 1 - x\n1..1\n'
	tr ' ' '\n' <<<"${SEEDS:-7}" | sed 's/.*/# seed & (repeat with: x)/'
	return 1
}
# commands: each command that was said, and how often.
commands() { sed -n 's/^\(--- \)\{0,1\}again: //p' | sort | uniq -c | sed 's/^ *//'; }
is "the command, with the log's seed" "$(lanes lane r/a failing | commands)" "2 make test ONLY='^r/a\$' FRESH=1 SEED=7"
is "with the options that were given" \
	"$(GPU=volta UVM_VERSION=570 QEMU_OPTS='-a b' SEED=8 LANES=1 ONLY=r/a what=debug lanes lane r/a failing | commands)" \
	"2 make test-debug ONLY='^r/a\$' FRESH=1 GPU=volta BASE=570 QEMU_OPTS=-a\\ b SEED=8"
is "without a seed that the part does not take" "$(what=vm lanes lane r/hazards failing | commands)" "2 make test ONLY='^r/hazards\$' FRESH=1"
is "or of which there are several" "$(what=host SEEDS='7 9' lanes lane r/a failing | commands)" "2 make test-host ONLY='^r/a\$' FRESH=1"

echo "1..$n"
exit $bad
