#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/upstream-bugs.sh makes of VMs that ended, by logs as there are, and what it demands of them.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/said"
# shellcheck source-path=SCRIPTDIR source=../../scripts/upstream-bugs.sh
. "$top/scripts/upstream-bugs.sh"
set +e
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$top/tests/scripts/tap.sh"

# is WANT RC LINES: what outcome() and why() say of a VM whose log has these lines.
is() {
	printf '%b' "$3" >"$work/log"
	local end
	end=$(outcome "$2" "$work/log")
	echo "$end: $(why "$end" "$work/log" 60)" | tee "$work/said" | grep -qxF "$1"
}

is 'ok: ' 0 'TAP version 14\nok 1 - hazards: x\n1..1\n'
check "a test that passes"
is 'skipped: no HMM' 1 'TAP version 14\nok 1 - hazards: x # SKIP no HMM\n1..1\n'
check "one that is skipped says why"
is 'wrong: word 3 is 0x7' 1 'TAP version 14\nnot ok 1 - hazards: x\n#   word 3 is 0x7\n#   and more\n1..1\n'
check "one that fails says what was wrong"
is 'wrong: Assert failed' 1 'TAP version 14\nnot ok 1 - hazards: x\n#   the kernel log says:\n#   Assert failed\n'
check "or what the kernel said"
is 'crash: Oops: 0000 [#1]' 255 'TAP version 14\n[   9.0] RIP: 0033:0x7f1c\n[   9.1] Oops: 0000 [#1]\n'
check "a kernel that died says of what"
is 'hang: not done in 60 s' 124 'TAP version 14\n'
check "one that does not end"
is 'not run: the VM did not come to the test' 1 'error: no kernel\n'
check "what never came to the test is no outcome"
is 'not run: the VM did not come to the test' 1 'TAP version 14\n1..0\n# hazards: 0 s\n# 0 passed, 0 failed, 0 skipped\n'
check "nor is a run that has no test of that name"

# demands WANT OUTCOME...: these, and no others, are what WANT wants.
demands() {
	local want=$1 end met=''
	shift
	for end in ok wrong crash hang skipped "not run"; do
		if meets "$want" "$end"; then met+="$end,"; fi
	done
	echo "$want: $met" | tee "$work/said" | grep -qx "$want: $(printf '%s,' "$@")"
}
demands fails wrong crash hang && demands ok ok && demands skipped skipped && demands absent skipped && demands sometimes ok wrong crash hang
check "a test that did not run is never what was to be seen"
[ "$(wanted_of fails '' '550')$(wanted_of fails 'a=ok,b=out' '550 b c')$(wanted_of fails 'a=ok,b=out' '550 ab')" = failsoutfails ]
check "a base's facts say what is to be seen there"

# The list of bugs: each line is whole, and names one test that there is.
names=$(grep -hoE '(^ +"[^"]+",$|^ +\("[^"]+",)' "$top"/tests/suite/src/bin/hazards/*.rs)
of_discard=$(grep -hoE '(^ +|both\(suite, )"[^"]+",' "$top"/tests/suite/src/bin/discard/*.rs)
of_flash=$(grep -hoE '^ +"[^"]+",$' "$top"/tests/suite/src/bin/flash/*.rs)
for each in "${bugs[@]}"; do
	IFS='|' read -ra of <<<"$each"
	[ ${#of[@]} = 7 ] && [[ "${of[3]} ${of[4]}" =~ ^(fails|ok|skipped|sometimes|absent)\ (fails|ok|skipped|sometimes|absent)$ ]] || echo "$each: not a bug's line"
	of_program "${of[6]}"
	case $program in discard) named=$of_discard ;; flash*) named=$of_flash ;; *) named=$names ;; esac
	[ "$(grep -cF -- "$only" <<<"$named")" = 1 ] || echo "$each: not one test"
	grep -q "fix(${of[1]}, " "$top/src/nvidia-uvm-c/fixes/uvm_rust_fixes.h" || echo "$each: no such switch"
	for fact in ${of[5]//,/ }; do
		grep -q "^fact ${fact%%=*} " "$top/scripts/base.sh" || echo "$each: no such fact"
	done
done >"$work/said"
[ ! -s "$work/said" ]
check "each line of bugs.sh names a test, a switch and facts that there are"

# From here on a VM is what these functions say. $boots has what each was started with.
# shellcheck disable=SC2034
logs=$work facts=550 base=1.2 boots=$work/boots
say() { :; }
declare -A says=(
	[ok]='TAP version 14\nok 1 - hazards: x\n'
	[bad]='TAP version 14\nnot ok 1 - hazards: x\n#   word 3 is "0x7\\t"\n'
	[skip]='TAP version 14\nok 1 - hazards: x # SKIP only ours\n'
)
# boot LOG PROGRAM: NVIDIA's driver, ours without the mend and ours say what $theirs, $without and $with
# hold, one word for each run.
boot() {
	local runs n
	# shellcheck disable=SC2153  # row() sets it
	n=$(grep -c "^$DRIVER ${UVM_PARAMS:-} " "$boots")
	echo "$DRIVER ${UVM_PARAMS:-} $VM_TIMEOUT $2" >>"$boots"
	case $DRIVER$(grep -o -- uvm_rust_fix_ <<<"${UVM_PARAMS:-}" | sed 's/.*/-off/') in
	upstream) read -ra runs <<<"$theirs" ;;
	rust-off) read -ra runs <<<"$without" ;;
	rust) read -ra runs <<<"$with" ;;
	esac
	printf '%b' "${says[${runs[n]:-${runs[-1]}}]}"
	[ "${runs[n]:-${runs[-1]}}" = ok ]
}
# rows BUG...: of the result, shortened: driver, mend, outcome.
rows() {
	: >"$boots"
	bug "$@" | tee "$work/rows" | awk -F '\t' '{ printf "%s-%s:%s ", $3, $4, $6 }' >"$work/said"
	cat "$work/said"
}

switches="x y" theirs=bad without=bad with=ok
[ "$(rows b x 60 fails fails '' 'a test')" = "upstream-on:wrong rust-off:wrong rust-on:ok " ] && judge "$work/rows" >"$work/said"
check "a bug that shows where it must, and not on ours"
grep -qx "upstream  60 target/release/hazards --unmodified-too --only 'a test'" "$boots" &&
	grep -qx "rust uvm_rust_fix_x=0 60 target/release/hazards --only 'a test'" "$boots" &&
	grep -qx "rust  60 target/release/hazards --only 'a test'" "$boots"
check "each driver is given the test, and its switch"
awk -F '\t' '$3 == "upstream"' "$work/rows" | grep -qxF "$(printf 'b\t1.2\tupstream\ton\tfails\twrong\tword 3 is "0x7\\t"')"
check "a row has the base, what was to be seen, what was, and why"
without=ok
rows b x 60 fails fails '' 'a test' >/dev/null
! judge "$work/rows" >"$work/said" && grep -qx '1.2, b: rust, mend off: "fails" was to be seen, and "ok" was' "$work/said" &&
	[ "$(grep -c '^rust uvm_rust_fix_x=0' "$boots")" = 3 ]
check "a bug that does not show without its mend, three times, fails the command"
without="ok ok bad"
rows b x 60 fails fails '' 'a test' >/dev/null
judge "$work/rows" >"$work/said"
check "once in three times is enough"
without=bad theirs=ok
rows b x 60 fails fails '' 'a test' >/dev/null
! judge "$work/rows" >"$work/said"
check "nor may it go unseen on NVIDIA's driver"
[ "$(rows b x 60 sometimes sometimes '' 'a test' >/dev/null; grep -c . "$boots")" = 3 ] && judge "$work/rows" >"$work/said"
check "unless that is not to be seen each time"
theirs=skip
rows b x 60 fails fails '' 'a test' >/dev/null
! judge "$work/rows" >"$work/said" && rows b x 60 skipped fails '' 'a test' >/dev/null && judge "$work/rows" >"$work/said"
check "a skip is no bug, and has to be named"
with=bad
rows b x 60 skipped fails '' 'a test' >/dev/null
! judge "$work/rows" >"$work/said"
check "one that ours shows fails the command"
with=ok
[ "$(rows b z 60 skipped fails '' 'a test')" = "upstream-on:skipped rust-off:skipped rust-on:skipped " ] && judge "$work/rows" >"$work/said" &&
	grep -q 'no uvm_rust_fix_z' "$work/rows"
check "where ours has no such switch, its rows say so"
theirs=bad
[ "$(rows b x 60 fails fails '550=out' 'a test')" = "upstream-on:wrong rust-off:skipped rust-on:skipped " ] && judge "$work/rows" >"$work/said" &&
	grep -q 'no mend on this base' "$work/rows"
check "or where the base takes the mend out"

[ "$(rows b x 60 absent absent 'a=fails' 'discard: a test')" = "rust-off:skipped rust-on:skipped upstream-on:skipped " ] &&
	judge "$work/rows" >"$work/said" && [ ! -s "$boots" ]
check "or where there is nothing to mend, and then no VM is booted"
facts='a 550'
[ "$(rows b x 60 absent absent 'a=fails' 'discard: a test')" = "upstream-on:wrong rust-off:wrong rust-on:ok " ] &&
	grep -qx "upstream  60 target/release/discard --unmodified-too --only 'a test'" "$boots" &&
	grep -qx "rust uvm_rust_fix_x=0 uvm_rust_discard=0 60 target/release/discard --only 'a test'" "$boots" &&
	grep -qx "rust uvm_rust_discard=0 60 target/release/discard --only 'a test'" "$boots"
check "a test of discard runs with NVIDIA's discard, also behind ours"
# shellcheck disable=SC2016  # of the guest
[ "$(rows b x 60 skipped fails '' 'flash: a test')" = "upstream-on:skipped rust-off:wrong rust-on:ok " ] && judge "$work/rows" >"$work/said" &&
	! grep -q ^upstream "$boots" && grep -qxF "rust uvm_rust_fix_x=0 60 target/release/flash --device \$SSD --only 'a test'" "$boots"
check "a test of flash runs on ours alone, with a device"
facts=550

# What is kept of other bases and bugs.
theirs=bad without=bad with=ok
rows b x 60 fails fails '' 'a test' >/dev/null
cp "$work/rows" "$work/new"
printf 'b\t1.2\trust\ton\tok\thang\told\na\t1.2\trust\ton\tok\tok\t\n' >"$work/rows-1.2"
printf 'b\t3.4\trust\ton\tok\tnot run\tnothing\n' >"$work/rows-3.4"
merge "$work/new" "$work/rows-1.2"
json "$work"/rows-[0-9]* >"$work/said"
python3 -c '
import json, sys
rows = json.load(open(sys.argv[1]))["bugs"]
assert all(list(r) == ["id", "base", "driver", "mend", "outcome", "why"] for r in rows), rows
assert {r["outcome"] for r in rows} <= {"ok", "hang", "crash", "wrong", "skipped"}, rows
seen = sorted((r["base"], r["id"], r["driver"], r["mend"], r["outcome"]) for r in rows)
assert seen == [("1.2", "a", "rust", "on", "ok"), ("1.2", "b", "rust", "off", "wrong"), ("1.2", "b", "rust", "on", "ok"),
	("1.2", "b", "upstream", "on", "wrong"), ("3.4", "b", "rust", "on", "skipped")], seen
assert {r["why"] for r in rows if r["outcome"] == "wrong"} == {"word 3 is \"0x7\\t\""}, rows
' "$work/said" 2>"$work/wrong" || { cat "$work/wrong" >>"$work/said"; false; }
check "the JSON has the new rows of a base in place of the old ones, and those of others"
table "$work/rows-1.2" >"$work/said"
grep -qE '^b +wrong +wrong +ok +word 3 is' "$work/said"
check "the table has a line for each bug"
done_testing
