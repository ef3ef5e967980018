#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Run the policies' threads in many orders that are drawn, more than the tests do: the SSD tier, its
# queue of requests, those who wait for its buffers, and the worker that prefetches.
#
#   explore.sh [N]               N orders in all (1000000), most of those that take the least time
#   explore.sh N NAME...         N orders of each of these: flash queue pool prefetch
#
# On JOBS cores (all), each with seeds of its own, from UVM_TEST_SEED on. Says how many orders went
# by in a second. An order that breaks something ends it, and is told by its seed. Unless the seed is
# given, the policies' sources give it: each change of them is run in other orders, and who has the
# same sources runs the same orders. UVM_TEST_SEED=new draws new ones for the same sources.
# FAST=1 compiles the policies with all optimization first, which pays from several million on.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"

declare -A test=(
	[flash]=flash::tests::explore::no_interleaving_loses_a_page
	[queue]=flash::queue::tests::explore::no_interleaving_breaks_an_invariant
	[pool]=flash::pool::tests::no_interleaving_leaves_anybody_waiting
	[prefetch]=prefetch::worker::tests::explore::no_interleaving_breaks_an_invariant
)
# Of a thousand orders so many are each one's. An order of the buffers' takes a tenth of the time of one of the tier's or more.
declare -A share=([flash]=200 [queue]=6 [pool]=594 [prefetch]=200)
all=${1:-1000000}
names=("${@:2}")
[[ $all =~ ^[1-9][0-9]*$ ]] || die "explore.sh [N [NAME...]]"
if [ ${#names[@]} -gt 0 ]; then
	for name in "${names[@]}"; do share[$name]=1000; done
else
	names=(flash queue pool prefetch)
fi
for name in "${names[@]}"; do
	[ -n "${test[$name]:-}" ] || die "no explorer is called $name; there are flash, queue, pool and prefetch"
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
# Without FAST they are the tests that cargo test runs, which may be built by now. All assertions stay.
say "building the explorers"
fast=()
[ -z "${FAST:-}" ] || fast=(--config profile.test.package.uvm-policy.opt-level=3)
cargo test --quiet "${fast[@]}" --package uvm-policy --lib --no-run \
	--message-format=json >"$logs/build" || die "the explorers do not build"
program=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$logs/build" | tail -n 1)
[ -x "$program" ] || die "cargo does not say what it built"
rm -f "$logs/build"

# explore NAME: all cores, each with a part of the orders.
explore() {
	local began shard first=$seed each rc=0 ms pids=() count=$(((all * share[$1] + 999) / 1000))
	began=$(date +%s%N)
	for ((shard = 0; shard < JOBS; shard++)); do
		each=$((count * (shard + 1) / JOBS - count * shard / JOBS))
		[ "$each" -gt 0 ] || continue
		UVM_TEST_SEED=$first UVM_EXPLORE=$each "$program" --exact "policy::${test[$1]}" --nocapture >"$logs/$shard" 2>&1 &
		pids+=($!)
		first=$((first + each))
	done
	for pid in "${pids[@]}"; do wait "$pid" || rc=1; done
	ms=$((($(date +%s%N) - began) / 1000000 + 1))
	total=$((total + count))
	if [ $rc != 0 ] || ! grep -q '^test result: ok\. 1 passed' "$logs"/*; then
		cat "$logs"/*
		die "$1 does not hold: see above"
	fi
	rm -f "$logs"/*
	printf '%-9s %9d orders from UVM_TEST_SEED=%d in %d s on %d cores: %d a second, %d in two minutes\n' \
		"$1" "$count" "$seed" $((ms / 1000)) "$JOBS" $((count * 1000 / ms)) $((count * 120000 / ms))
}
began=$SECONDS
total=0
for name in "${names[@]}"; do explore "$name"; done
echo "$total orders in $((SECONDS - began)) s, and none breaks anything"
