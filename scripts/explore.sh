#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Run the policies' threads in many orders that are drawn, more than the tests do: the SSD tier, its
# queue of requests, those who wait for its buffers, and the worker that prefetches.
#
#   explore.sh [N]               N orders in all (1000000)
#   explore.sh N NAME...         N orders of each of these: flash queue pool prefetch
#   explore.sh mutants [NAME...] takes parts out of these, and of loom's models, and lists each with what found it
#
# On JOBS cores (all), each with seeds of its own, from UVM_TEST_SEED on. Says what CPU time the orders
# took. Without a NAME it fails if that is more than two minutes of two cores for a million: time of a
# CPU, which is the same whoever else uses the machine, but for what they take out of its caches.
# An order that breaks something ends it, and is told by its seed. Unless the seed is
# given, the policies' sources give it: each change of them is run in other orders, and who has the
# same sources runs the same orders. UVM_TEST_SEED=new draws new ones for the same sources.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"

declare -A test=(
	[flash]=flash::tests::explore::no_interleaving_loses_a_page
	[queue]=flash::queue::tests::explore::no_interleaving_breaks_an_invariant
	[pool]=flash::pool::tests::no_interleaving_leaves_anybody_waiting
	[prefetch]=prefetch::worker::tests::explore::no_interleaving_breaks_an_invariant
)
# Each part of what an explorer watches is taken out, and has to be noticed.
declare -A mutants=(
	[flash]=flash::tests::explore::whatever_is_taken_out_is_noticed
	[queue]=flash::queue::tests::explore::whatever_is_taken_out_is_found
	[pool]=flash::pool::tests::whatever_is_taken_out_is_noticed
	[prefetch]=prefetch::worker::tests::whatever_is_taken_out_is_noticed
)
# Of a thousand orders so many are each one's.
declare -A share=([flash]=500 [queue]=100 [pool]=100 [prefetch]=300)
# The CPU time that a million of them may take, in milliseconds.
BUDGET=240000
all=${1:-1000000}
names=("${@:2}")
[[ $all =~ ^([1-9][0-9]*|mutants)$ ]] || die "explore.sh [N|mutants [NAME...]]"
mixed=
if [ ${#names[@]} -gt 0 ]; then
	for name in "${names[@]}"; do share[$name]=1000; done
else
	names=(flash queue pool prefetch)
	if [ "$all" = mutants ]; then names+=(loom); else mixed=1; fi
fi
for name in "${names[@]}"; do
	[ -n "${test[$name]:-}" ] || [ "$all $name" = "mutants loom" ] ||
		die "no explorer is called $name; there are flash, queue, pool and prefetch"
done
# seed_of_sources: from 0 to 2^32 - 1, whatever the checkout is called and however files are listed.
seed_of_sources() {
	local sum
	sum=$(cd src/uvm_rust/policy && find . -name '*.rs' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
	echo $((16#${sum:0:8}))
}
seed=${UVM_TEST_SEED:-$(seed_of_sources)}
[ "$seed" != new ] || seed=$(date +%s)

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# They are the tests that cargo test runs, which may be built by now. All assertions stay.
say "building the explorers"
cargo test --quiet --package uvm-policy --lib --no-run \
	--message-format=json >"$logs/build" || die "the explorers do not build"
program=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$logs/build" | tail -n 1)
[ -x "$program" ] || die "cargo does not say what it built"
rm -f "$logs/build"

# cpu: the CPU time of those that this shell has waited for, in milliseconds.
ticks=$(getconf CLK_TCK)
cpu() {
	local stat
	read -ra stat <"/proc/$$/stat"
	echo $(((stat[15] + stat[16]) * 1000 / ticks))
}

# explore NAME: all cores, each with a part of the orders.
explore() {
	local before shard first=$seed each rc=0 ms pids=() count=$(((all * share[$1] + 999) / 1000))
	before=$(cpu)
	for ((shard = 0; shard < JOBS; shard++)); do
		each=$((count * (shard + 1) / JOBS - count * shard / JOBS))
		[ "$each" -gt 0 ] || continue
		UVM_TEST_SEED=$first UVM_EXPLORE=$each "$program" --exact "policy::${test[$1]}" --nocapture >"$logs/$shard" 2>&1 &
		pids+=($!)
		first=$((first + each))
	done
	for pid in "${pids[@]}"; do wait "$pid" || rc=1; done
	ms=$(($(cpu) - before + 1))
	total=$((total + count))
	if [ $rc != 0 ] || ! grep -q '^test result: ok\. 1 passed' "$logs"/*; then
		cat "$logs"/*
		die "$1 does not hold: see above"
	fi
	rm -f "$logs"/*
	printf '%-9s %9d orders from UVM_TEST_SEED=%d: %d s of a CPU, %d us each\n' \
		"$1" "$count" "$seed" $((ms / 1000)) $((ms * 1000 / count))
}

# take_out NAME: what is taken out of it, and what found that. Fails if something was not found that is not known to be
# harmless (of loom's).
take_out() {
	local parts rc=0 run=("$program" --exact "policy::${mutants[$1]:-}" --nocapture)
	[ "$1" != loom ] || run=(cargo test --quiet --package uvm-loom -- --nocapture --test-threads=1)
	"${run[@]}" >"$logs/$1" 2>&1 || rc=1
	sed -n "s/^mutant: /$1: /p" "$logs/$1"
	if [ $rc != 0 ]; then
		tail -n 40 "$logs/$1"
		die "something is taken out of $1 that nothing finds: see above"
	fi
	parts=$(sed -n 's/^mutant: //p' "$logs/$1" | awk -F': ' '{ print $1 }' | sort -u | wc -l)
	[ "$parts" -gt 0 ] || die "nothing was taken out of $1"
	echo "$1: $parts parts were taken out"
}

if [ "$all" = mutants ]; then
	for name in "${names[@]}"; do take_out "$name"; done
	exit
fi
wall=$SECONDS before=$(cpu)
total=0
for name in "${names[@]}"; do explore "$name"; done
spent=$(($(cpu) - before)) may=$((BUDGET * all / 1000000))
echo "$total orders in $((spent / 1000)) s of a CPU, $((SECONDS - wall)) s on $JOBS cores, and none breaks anything"
[ -z "$mixed" ] || [ $spent -le $((may + 1000)) ] ||
	die "that is more than the $((may / 1000)) s of a CPU that $all orders may take: an order has become dearer"
