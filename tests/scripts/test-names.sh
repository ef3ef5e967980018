#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/test-names.sh finds in logs and which tests it misses; and that test.sh lists its parts.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../../scripts/lib.sh"
. "$(dirname "$0")/tap.sh"
# A check that fails is counted, and ends nothing.
set +e
# What this run of the test wants is not what it lists.
unset ONLY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
names=$TOP/scripts/test-names.sh
logs=$work/logs
mkdir -p "$logs/rust" "$logs/host"

cat >"$logs/rust/random.log" <<'LOG'
TAP version 14
# seed 12 (repeat with: random --ops 40 --seed 12)
ok 1 - random: 40 operations, seed 12 # 1.2 s
not ok 2 - random: no leak after it # 0.1 s
# it is not ok 3 - to take this for a test
ok 3 uvm.reads # SKIP no HMM
    ok 1 - a part of a test
1..3
ok 1 - unload: the modules report that nothing is left
1..1
LOG
cat >"$logs/host/cargo-test.log" <<'LOG'
     Running unittests src/main.rs (target/debug/deps/uvm_bench-38f33bf755df3178)
test report::a ... ok
test report::b ... FAILED
test report::c ... ignored, too slow
     Running tests/fork.rs (target/debug/deps/fork-0123456789abcdef)
test report::a ... 
skipped: report::a # no compiler
ok
   Doc-tests uvmrust
test userlib/uvmrust/src/lib.rs - Uvm::new (line 40) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
LOG
echo built >"$logs/host/docs.log"
echo "no log" >"$logs/host/notes"
"$names" "$logs" >"$work/said"
diff "$work/said" - >"$work/diff" <<'NAMES'
host/cargo-test uvm_bench::report::a
host/cargo-test uvm_bench::report::b
host/cargo-test uvm_bench::report::c
host/cargo-test fork::report::a
host/cargo-test uvmrust (documentation)::userlib/uvmrust/src/lib.rs - Uvm::new (line N)
host/docs (the part)
rust/random random: 40 operations, seed N
rust/random random: no leak after it
rust/random uvm.reads
rust/random unload: the modules report that nothing is left
NAMES
check "names are found in TAP, in cargo's logs, and of a part that has none"

cp "$work/said" "$work/list"
# compares NAME STATUS SAID...: OLD is the list, NEW the logs; SAID are the lines.
compares() {
	local name=$1 want=$2 rc=0
	shift 2
	"$names" "$work/list" "$logs" >"$work/said" 2>&1 || rc=$?
	[ "$rc" = "$want" ] && [ "$(cat "$work/said")" = "$(printf '%s\n' "$@")" ]
	check "$name"
}
compares "the same names" 0 "10 names before, 10 now, 0 gone"
sed -i 's/seed 12/seed 13/; s/(line 40)/(line 41)/; s/38f33bf755df3178/ffffffffffffffff/' "$logs/rust/random.log" "$logs/host/cargo-test.log"
compares "another seed, line and build" 0 "10 names before, 10 now, 0 gone"
echo "ok 1 - new" >>"$logs/rust/random.log"
compares "one more" 0 "10 names before, 11 now, 0 gone"
sed -i '/no leak/d' "$logs/rust/random.log"
compares "one more, and one that is gone" 1 "gone: rust/random random: no leak after it" "10 names before, 10 now, 1 gone"
rm "$logs/host/docs.log"
compares "a part that is gone" 1 "gone: host/docs (the part)" "gone: rust/random random: no leak after it" "10 names before, 9 now, 2 gone"
printf 'ok 1 - twice\nok 1 - twice\n' >"$logs/rust/policies.log"
"$names" "$logs" >"$work/list"
sed -i 1d "$logs/rust/policies.log"
compares "one of two that have one name" 1 "gone: rust/policies twice" "11 names before, 10 now, 1 gone"
# refuses COMMAND...: it fails.
refuses() { ! "$@" >"$work/said" 2>&1; }
refuses "$names" "$work/none" "$logs" && refuses "$names" "$logs" "$work/none"
check "what is not there is an error"
refuses "$names"
check "so is nothing to look at"

# The lists are of this checkout, and nothing of it is run.
"$TOP/scripts/test.sh" list host >"$work/said"
grep -qx host/rustfmt "$work/said" && grep -qx host/test-names "$work/said" && grep -qx host/pytorch "$work/said" && ! grep -qv '^host/' "$work/said"
check "the parts on the host, also one that may be skipped"
"$TOP/scripts/test.sh" list vm >"$work/said"
grep -qx rust/policies "$work/said" && grep -qx demo "$work/said" && grep -qx upstream/ladder "$work/said" && ! grep -q '^host/' "$work/said"
check "the lanes of the VM"
[ "$("$TOP/scripts/test.sh" list | wc -l)" -gt "$(wc -l <"$work/said")" ]
check "all of them"
ONLY='^rust/(loops|panic)$' "$TOP/scripts/test.sh" list >"$work/said"
[ "$(paste -sd' ' "$work/said")" = "rust/loops rust/panic" ]
check "those that ONLY wants"
refuses "$TOP/scripts/test.sh" list nothing && grep -q 'use host, vm' "$work/said"
check "there is no list of what is not known"
done_testing
