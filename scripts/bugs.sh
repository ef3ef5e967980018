# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by upstream-bugs.sh and tests/parts/without.sh: the bugs of docs/upstream-bugs.md that a test shows,
# and what became of such a test in a VM.
# shellcheck shell=bash disable=SC2034

# Each bug: NAME|SWITCH|LIMIT|NVIDIA|OFF|BASES|TEST
#   NAME, SWITCH   of the bug, and of its mend (uvm_rust_fix_SWITCH)
#   LIMIT          how long its test may take, in seconds (on two idle cores it takes a tenth)
#   NVIDIA, OFF    what the test must do on NVIDIA's driver, and on ours with the mend off: "fails"
#                  (in one of three runs); "skipped", as only ours can be told what the test needs;
#                  "ok"; "sometimes", which nobody judges; or "absent": the driver has nothing that could be so
#   BASES          FACT=WHAT, separated by commas: where FACT is so (base.sh), both must show WHAT;
#                  "out": ours has no such mend there
#   TEST           of hazards, by a part of its name that no other has; after "discard: ", of that program,
#                  which is run with NVIDIA's discard (uvm_rust_discard=0); after "flash: ", of that program, which only ours can run
bugs=(
	"strays|strays|60|fails|fails||mremap() moved is evicted"
	"child|strays|60|fails|fails||that a child keeps is evicted"
	"stray_copy|strays|60|skipped|fails||a stray that cannot be copied"
	"nobody|nobody|60|fails|fails||where managed memory is now"
	"left|nobody|60|sometimes|sometimes||what a process has left"
	"held|held|300|fails|sometimes|lazy_pins=sometimes|reads while it is evicted"
	"copies_held|held|200|fails|fails||somebody holds, alone"
	"pfns|pfns|300|fails|fails|lazy_pins=ok|reads while it is evicted"
	"lazy_pins|lazy_pins|300|sometimes|ok|lazy_pins=fails|has one owner"
	"ever_resident|ever_resident|300|absent|absent|native_discard=fails|discard: the GPU is taken back"
	"host_pages|host_pages|300|absent|absent|native_discard=fails|discard: no foreign data in pages of the host"
	"kept_mapped|kept_mapped|300|absent|absent|native_discard=fails|discard: a part was read-duplicated"
	"mapped_anew|kept_mapped|300|absent|absent|native_discard=fails|discard: later discard maps it anew"
	"mapped_half|kept_mapped|300|absent|absent|native_discard=fails|discard: the other half maps it anew"
	"no_chunk|no_chunk|300|absent|absent|native_discard=fails|discard: has no chunk reads"
	"copies|copies|60|skipped|fails||held: a copy to the host that fails"
	"in_vain|in_vain|60|skipped|fails||held: what an eviction got in vain goes"
	"notifier|notifier|60|skipped|fails||notifier"
	"cpu_fault|cpu_fault|60|fails|fails||while its GPU goes"
	"forked|forked|60|fails|fails||on the GPU when it forks"
	"dirty|dirty|60|fails|fails||shared memory that a CPU has read"
	"dirty_freed|dirty|60|fails|fails||freed lazily, and stays in the host"
	"isolation|isolation|300|skipped|fails||RM evicts what mremap() moved there"
	"isolation_child|isolation|300|skipped|fails||a child reads of it"
	"isolation_two|isolation|300|skipped|fails||moves the same memory, and it is evicted"
	"isolation_crowd|isolation|120|fails|fails||as fast where memory has many mappings"
	"isolation_loops|isolation|300|fails|sometimes||fork and end, in loops"
	"duplicates|duplicates|60|fails|fails||page with two copies is not made"
	"moved_in_vain|duplicates|300|absent|absent|native_discard=fails|discard: moves to a full GPU"
	"context|context|60|fails|fails|native_discard=ok|memory with a page that somebody holds"
	"charge|charge|300|fails|fails||charge: who evicts does not fail"
	"copies_beyond|charge|300|fails|fails||copies beyond the end of a file"
	"orphans|orphans|300|fails|fails||orphans: a VA space goes"
	"files|files|300|skipped|fails||flash: a page of another one's file"
	"files_copied|files|300|skipped|fails||flash: that a copy engine needs"
	"files_shared|files|300|skipped|fails||flash: memory that is being taken away"
	"files_zeros|files|120|fails|fails||memory for reading only that stays on the host"
	"mappings|mappings|300|skipped|fails||flash: that ends waits for the lock"
	"signals|signals|120|fails|fails||beside those of a handler"
	"signals_stop|signals|120|fails|fails||beside those of a stop, and goes on"
	"mm_gone|mm_gone|120|fails|fails||memory is closed while CPUs fault"
	"two_spaces|two_spaces|120|fails|fails||the one moves is taken from the other"
	"two_spaces_gpu|two_spaces|120|fails|fails||both have used is one space"
	"covered|covered|120|fails|fails||driver has let go is nobody else's"
	"covered_kept|covered|120|fails|fails||may not be accessed just then"
	"access|access|120|fails|fails||file that is mapped for reading only"
	"access_zeros|access|120|fails|fails||Linux's zeros (a huge page)"
	"access_child|access|120|fails|fails||debugger writes (on the GPU)"
	"queues|queues|300|fails|fails||queue that Linux cannot map"
	"queues_file|queues|120|fails|fails||file that is written to a disk"
	"anew|anew|120|fails|fails|clean_up_by_dst=out|found no memory for the rest"
	"anew_held|anew|120|skipped|fails|clean_up_by_dst=out|for a page that somebody holds meanwhile"
	"covered_moved|covered|120|fails|fails||moved before a range covers it"
	"covered_moves|covered|120|fails|fails||moves under a range"
	"replaced|replaced|120|fails|fails||is new where ordinary memory was"
	"zombies|zombies|120|fails|fails||its process is looked at as it ends"
	"deferred|deferred|120|fails|fails||closed while the system sleeps"
	"resume|resume|300|fails|fails||end as the system goes to sleep"
	"params|params|120|fails|fails||parameters are moved"
	"flush|flush|120|skipped|fails||hands out its events"
	"replays|replays|120|fails|fails||another process' faults are not told"
	"replays_again|replays|120|fails|fails||and counts from the beginning"
	"trackers|trackers|300|fails|fails||faults wait for few queues"
	"trackers_wait|trackers|300|fails|fails||has yet to be handed out where"
	"lazy|lazy|60|sometimes|fails|lazy_pins=ok|freed before its GPU goes"
)

# wanted_of WANT BASES FACTS: of what a bug's line says, what counts on a base of these facts.
wanted_of() {
	local each
	for each in ${2//,/ }; do
		if [[ " $3 " == *" ${each%%=*} "* ]]; then echo "${each#*=}"; return; fi
	done
	echo "$1"
}

# of_program TEST: sets $program to that which has the test, with what it is to be told, $only to what picks the test there, $needs to the
# parameters that ours needs for it, and $vm to what runs it.
of_program() {
	program=hazards only=$1 needs='' vm=scripts/vm.sh
	# The device's name is known in the guest alone.
	# shellcheck disable=SC2016
	case $1 in
	"discard: "*) program=discard only=${1#discard: } needs=uvm_rust_discard=0 ;;
	"flash: "*) program='flash --device $SSD' only=${1#flash: } vm=scripts/ssd.sh ;;
	esac
}

# outcome RC LOG: of a VM that ended so, with one test: ok; wrong (data, or an assertion of the
# driver's); crash (the kernel died); hang; skipped; or "not run", where the test never began.
outcome() {
	if ! grep -q '^TAP version' "$2" || grep -q '^1\.\.0' "$2"; then echo "not run"; return; fi
	case $1 in
	124) echo hang ;;
	255) echo crash ;;
	*) # A program that has skipped all does not end with 0.
		if grep -q '^not ok' "$2"; then echo wrong
		elif grep -q '^ok .*# SKIP' "$2"; then echo skipped
		elif [ "$1" = 0 ]; then echo ok
		else echo wrong
		fi ;;
	esac
}

# meets WANT OUTCOME: is it what was to be seen?
meets() {
	case $1:$2 in
	fails:hang | fails:crash | fails:wrong) ;;
	sometimes:ok | sometimes:hang | sometimes:crash | sometimes:wrong) ;;
	ok:ok | skipped:skipped | absent:skipped) ;;
	*) return 1 ;;
	esac
}

# until_seen WANT LOG COMMAND...: runs a VM with its output in LOG, up to three times where it is to fail,
# as what shows in most runs may not in one. Its outcome.
until_seen() {
	local want=$1 log=$2 try rc end
	shift 2
	for try in 1 2 3; do
		rc=0
		"$@" >"$log" 2>&1 || rc=$?
		end=$(outcome "$rc" "$log")
		if [ "$want" != fails ] || meets fails "$end"; then break; fi
	done
	echo "$end"
}
