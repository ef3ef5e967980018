#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# docs/your-first-policy.md shows the policy as it is in the tree, and its commands name what there is.
# What it says comes out of them is tested where they run: the tests of uvm-policy and of uvmsim, and rust/policies.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
page=$top/docs/your-first-policy.md policies=$top/src/uvm_rust/policy/evict/policies.rs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"
lane=$top/tests/parts/policies.sh

# block N [LANGUAGE]: the Nth block of Rust, or of that language, on the page.
block() { awk -v n="$1" -v begin="^\`\`\`${2:-rust}\$" '$0 ~ begin { i++; on = i == n; next } /^```$/ { on = 0 } on' "$page"; }

block 1 >"$work/said"
diff "$work/said" "$top/src/uvm_rust/policy/evict/policies/mru.rs" >"$work/diff"
check "the page has the file as it is"
[ "$(wc -l <"$work/said")" -ge 20 ] && [ "$(wc -l <"$work/said")" -le 60 ]
check "a policy is a file of sixty lines at most"
for n in 2 3; do
	block $n >"$work/said"
	[ "$(wc -l <"$work/said")" = 1 ] && grep -qxF -f "$work/said" "$policies"
	check "line $((n - 1)) of those that make it known is in policies.rs"
done
block 4 >"$work/said"
[ -s "$work/said" ] && grep -qxF -f "$work/said" "$top/src/uvm_rust/policy/evict/policies/tests.rs"
check "the test that the page quotes is there"
# In the driver's help for the parameter are the names of all policies.
help=$top/src/nvidia-uvm-c/base/uvm_rust_params_ffi.h
block 1 c >"$work/said"
[ "$(wc -l <"$work/said")" = 1 ] && grep -qxF -f "$work/said" "$help"
check "so is the line of the parameter's help"
"$lane" --names >"$work/names"
[ "$(wc -l <"$work/names")" -ge 2 ] && grep -qx lru "$work/names" && grep -qx mru "$work/names"
check "the names of the policies are found"
while read -r name; do
	grep -A1 'charp, uvm_rust_evict_policy,' "$help" | grep -q "reclaimed first, .*\b$name\b"
	check "modinfo names $name"
done <"$work/names"
# The lane asks for each of them, and for its line in the log: seen without a VM.
"$lane" --command >"$work/said"
grep -qF "for p in $(paste -sd' ' "$work/names"); do policy" "$work/said"
check "rust/policies runs each"
ONLY='^rust/policies$' "$top/scripts/test.sh" list vm --commands >"$work/said"
grep -qx 'rust/policies VM_CPUS=1 tests/parts/policies.sh' "$work/said"
check "make test has the part that the page runs"
done_testing
