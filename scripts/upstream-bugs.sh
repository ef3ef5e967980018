#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Which of the bugs in docs/fixes.md does a driver show? Each bug's test of hazards, in a VM of its
# own: on NVIDIA's driver as it is, on ours, and on ours with the mend switched off. A table, and
# out/upstream-bugs.json. Exit status: 1 if ours, as it is loaded by default, shows one.
#
#   upstream-bugs.sh [BUG...]     of those named as their switches; all of them
#
# What becomes of a test: ok; wrong (data, or an assertion of the driver's); crash (the kernel
# died); hang (not done in a minute; for one that takes a minute, in five); skipped, with the reason.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$TOP/scripts/bugs.sh"
cd "$TOP"
logs=out/upstream-bugs
mkdir -p "$logs"

# outcome RC LOG: of a VM that ended so.
outcome() {
	if ! grep -q '^TAP version' "$2"; then echo "not run"; return; fi
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

# why OUTCOME LOG LIMIT: in the test's own words, or the kernel's.
why() {
	case $1 in
	skipped) sed -n 's/^ok .*# SKIP *//p' "$2" | head -n 1 ;;
	wrong) sed -n '/^not ok/,$ { s/^# *//p }' "$2" | grep -v 'the kernel log says' | head -n 1 ;;
	crash) grep -m 1 -oE '(BUG: |Oops: |kernel BUG |RIP: 0010:).*' "$2" ;;
	hang) echo "not done in $3 s" ;;
	esac | tr -d '\r' | cut -c1-160
}

# row ID DRIVER MEND LIMIT TEST: runs it, and prints its line of the result.
row() {
	local id=$1 driver=$2 mend=$3 limit=$4 test=$5 log=$logs/$1-$2-$3.log rc=0 params='' more='' end
	[ "$mend" = on ] || params=uvm_rust_fix_$id=0
	[ "$driver" = rust ] || more=--unmodified-too
	say "$id: $driver$([ "$mend" = on ] || echo ', without the mend')"
	DRIVER=$driver VIDMEM=64M VM_TIMEOUT=$limit UVM_PARAMS=$params VM_LOG=$log.console \
		scripts/vm.sh "target/release/hazards $more --only '$test'" >"$log" 2>&1 || rc=$?
	cat "$log.console" >>"$log" 2>/dev/null || :
	end=$(outcome "$rc" "$log")
	printf '%s\t%s\t%s\t%s\t%s\n' "$id" "$driver" "$mend" "$end" "$(why "$end" "$log" "$limit")"
}

# Its own test wants the functions.
if [ "${BASH_SOURCE[0]}" != "$0" ]; then return; fi

cargo build --release --quiet -p uvm-suite
base=$(. src/uvm_rust/kernel/build/kbuild.sh && driver_version "$(scripts/upstream.sh)")
: >"$logs/rows"
for bug in "${bugs[@]}"; do
	IFS='|' read -r id limit test <<<"$bug"
	[ $# = 0 ] || [[ " $* " == *" $id "* ]] || continue
	{
		row "$id" upstream on "$limit" "$test"
		row "$id" rust off "$limit" "$test"
		row "$id" rust on "$limit" "$test"
	} >>"$logs/rows"
done
[ -s "$logs/rows" ] || die "no such bug: $*"

awk -F '\t' -v base="$base" '
	function text(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); gsub(/[[:cntrl:]]/, " ", s); return "\"" s "\"" }
	BEGIN { printf "{\"bugs\": [" }
	{
		printf "%s\n  {\"id\": %s, \"base\": %s, \"driver\": %s, \"mend\": %s, \"outcome\": %s, \"why\": %s}", (NR > 1 ? "," : ""),
			text($1), text(base), text($2), text($3), text($4), text($5)
	}
	END { print "\n]}" }' "$logs/rows" >out/upstream-bugs.json
printf '%-12s %-10s %-16s %-8s %s\n' bug "NVIDIA's" "ours, mend off" ours "what is seen without"
awk -F '\t' '
	{ is[$1 $2 $3] = $4; if ($4 != "ok" && $4 != "skipped" && !($1 in why)) why[$1] = $5; if (!($1 in seen)) { seen[$1] = 1; order[++n] = $1 } }
	END { for (i = 1; i <= n; i++) { id = order[i]; printf "%-12s %-10s %-16s %-8s %s\n", id, is[id "upstreamon"], is[id "rustoff"], is[id "ruston"], substr(why[id], 1, 70) } }' "$logs/rows"
say "written to out/upstream-bugs.json; the logs are in $logs"
! awk -F '\t' '$2 == "rust" && $3 == "on" && $4 != "ok" { print; bad = 1 } END { exit !bad }' "$logs/rows"
