#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Change the policies in small ways, one at a time, and see whether the host's tests notice.
#
#   mutants-host.sh [MODULE]     a module of src/uvm_rust/policy (fault)
#
# Fails if less than MUTANTS_BAR percent (95) of the changes that compile are noticed, by a test
# that fails or does not end. What nobody noticed is printed, and in out/mutants. Some changes
# change nothing (<= for < where a sort merges): the bar leaves room for these.
#
# Needs cargo-mutants (cargo install cargo-mutants). Half an hour on two idle cores.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

module=${1:-fault} bar=${MUTANTS_BAR:-95}
[ -e "$TOP/src/uvm_rust/policy/$module.rs" ] || die "no module '$module' in src/uvm_rust/policy"
have cargo-mutants || die "cargo-mutants is missing: cargo install --locked cargo-mutants"

# Fewer random cases: a change that only one case in a hundred sees is seen by another test. A
# case that fails is not made smaller, which takes longer than all tests together.
cd "$TOP"
# cargo-mutants makes only the last folder of its output.
mkdir -p out
rm -rf out/mutants
CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_DEV_DEBUG=0 UVM_TEST_CASES=${UVM_TEST_CASES:-60} \
	PROPTEST_MAX_SHRINK_ITERS=0 \
	cargo mutants -p uvm-policy -f "src/uvm_rust/policy/$module.rs" -f "src/uvm_rust/policy/$module/*.rs" \
	--no-shuffle --minimum-test-timeout 60 -C=--lib -o out/mutants -- "policy::$module" || :

# It gives no list where it did not come to the changes: the tests fail as they are, say.
[ -e out/mutants/mutants.out/missed.txt ] || die "nothing was changed: see above, and out/mutants"
lines() { wc -l <"out/mutants/mutants.out/$1.txt"; }
noticed=$(($(lines caught) + $(lines timeout)))
viable=$((noticed + $(lines missed)))
[ "$viable" -gt 0 ] || die "nothing was changed: see out/mutants"
echo "$noticed of $viable changes noticed ($((noticed * 1000 / viable / 10)).$((noticed * 1000 / viable % 10)) %), $(lines unviable) do not compile"
[ $((noticed * 100)) -ge $((viable * bar)) ] || die "less than $bar %"
