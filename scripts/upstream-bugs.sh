#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Which of the bugs in docs/upstream-bugs.md does a driver show? Each bug's test of hazards, or of discard, in a VM of its
# own: on NVIDIA's driver as it is, on ours, and on ours with the mend switched off. A table for each base,
# and out/upstream-bugs.json, which keeps what was seen on other bases before. Exit status: 1 unless each
# test did what bugs.sh says: ours, as it is loaded by default, shows none, and without the mend each shows.
#
#   upstream-bugs.sh [BUG...]     of those with these names (bugs.sh); all of them
#
# What becomes of a test: ok; wrong (data, or an assertion of the driver's); crash (the kernel
# died); hang (not done in a minute; for one that takes a minute, in five); skipped, with the reason.
#
# Environment: BASES="550 570" (of upstream.sh, one after the other; or UVM_VERSION or UVM_SRC, for one), KERNEL.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$TOP/scripts/bugs.sh"
cd "$TOP"
logs=out/upstream-bugs
mkdir -p "$logs"

# why OUTCOME LOG LIMIT: in the test's own words, or the kernel's.
why() {
	case $1 in
	skipped) sed -n 's/^ok .*# SKIP *//p' "$2" | head -n 1 ;;
	wrong) sed -n '/^not ok/,$ { s/^# *//p }' "$2" | grep -v 'the kernel log says' | head -n 1 ;;
	crash) grep -m 1 -oE '(BUG: |Oops: |kernel BUG |RIP: 0010:).*' "$2" ;;
	hang) echo "not done in $3 s" ;;
	"not run") echo "the VM did not come to the test" ;;
	esac | tr -d '\r' | cut -c1-160
}

# line ID DRIVER MEND WANT OUTCOME WHY: of the result, which is of $base.
line() { printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$base" "${@:2}"; }

# boot LOG PROGRAM: the VM's output, and the end of its kernel's log.
boot() {
	local rc=0
	VM_LOG=$1.console "${vm:-scripts/vm.sh}" "$2" || rc=$?
	cat "$1.console" 2>/dev/null || :
	return $rc
}

# row ID DRIVER PARAMETER LIMIT WANT TEST: runs it, and prints its line. PARAMETER: for the module; the mend
# is off if there is one.
row() {
	local id=$1 driver=$2 param=$3 limit=$4 want=$5 test=$6 mend=${3:+off} more='' end vm
	local log=$logs/$base-$id-$driver-${mend:=on}.log program only needs
	of_program "$test"
	if [ "$driver" = rust ]; then param=${param:+$param }$needs param=${param% }
	else more='--unmodified-too '
	fi
	if [ "$driver$vm" = upstreamscripts/ssd.sh ]; then
		line "$id" "$driver" "$mend" "$want" skipped "only ours can run this test"
		return
	fi
	say "$base, $id: $driver$([ "$mend" = on ] || echo ', without the mend')"
	end=$(DRIVER=$driver VIDMEM=64M VM_TIMEOUT=$limit UVM_PARAMS=$param \
		until_seen "$want" "$log" boot "$log" "target/release/$program $more--only '$only'")
	line "$id" "$driver" "$mend" "$want" "$end" "$(why "$end" "$log" "$limit")"
}

# bug ID SWITCH LIMIT NVIDIA OFF BASES TEST: its three lines, on a base of the facts $facts with the switches
# $switches. Without its mend, ours is as NVIDIA's.
bug() {
	local id=$1 switch=$2 limit=$3 nvidia off none='' mend test=$7
	nvidia=$(wanted_of "$4" "$6" "$facts") off=$(wanted_of "$5" "$6" "$facts")
	if [ "$nvidia" = absent ]; then
		for mend in off on; do line "$id" rust $mend skipped skipped "this driver does not do such a thing"; done
		line "$id" upstream on skipped skipped "this driver does not do such a thing"
		return
	fi
	[[ " $switches " == *" $switch "* ]] || none="this driver has no uvm_rust_fix_$switch"
	if [ "$off" = out ]; then nvidia=sometimes none="no mend on this base, see docs/upstream-bugs.md"; fi
	row "$id" upstream '' "$limit" "$nvidia" "$test"
	if [ -n "$none" ]; then
		for mend in off on; do line "$id" rust $mend skipped skipped "$none"; done
		return
	fi
	row "$id" rust "uvm_rust_fix_$switch=0" "$limit" "$off" "$test"
	row "$id" rust '' "$limit" ok "$test"
}

# judge ROWS: says which of them did not do what they must, and fails if there is one.
judge() {
	local id of driver mend want end _ bad=0
	while IFS=$'\t' read -r id of driver mend want end _; do
		meets "$want" "$end" && continue
		bad=1
		echo "$of, $id: $driver, mend $mend: \"$want\" was to be seen, and \"$end\" was"
	done <"$1"
	return $bad
}

# merge NEW ROWS: puts the rows of NEW into ROWS, in place of what those bugs did before.
merge() {
	touch "$2"
	awk -F '\t' 'NR == FNR { new[$1] = 1; next } !($1 in new)' "$1" "$2" | cat - "$1" >"$2.new"
	mv "$2.new" "$2"
}

# json ROWS...: of all bases. A VM that did not come to its test has tested nothing.
json() {
	cat "$@" | awk -F '\t' '
		function text(s) { gsub(/\\/, "&&", s); gsub(/"/, "\\\"", s); gsub(/[[:cntrl:]]/, " ", s); return "\"" s "\"" }
		BEGIN { printf "{\"bugs\": [" }
		{
			if ($6 == "not run") $6 = "skipped"
			printf "%s\n  {\"id\": %s, \"base\": %s, \"driver\": %s, \"mend\": %s, \"outcome\": %s, \"why\": %s}", (NR > 1 ? "," : ""),
				text($1), text($2), text($3), text($4), text($6), text($7)
		}
		END { print "\n]}" }'
}

# table ROWS: of one base.
table() {
	printf '%-12s %-10s %-16s %-8s %s\n' "$base" "NVIDIA's" "ours, mend off" ours "what is seen without"
	awk -F '\t' '
		{ is[$1 $3 $4] = $6; if ($6 != "ok" && $6 != "skipped" && !($1 in why)) why[$1] = $7; if (!($1 in seen)) { seen[$1] = 1; order[++n] = $1 } }
		END { for (i = 1; i <= n; i++) { id = order[i]; printf "%-12s %-10s %-16s %-8s %s\n", id, is[id "upstreamon"], is[id "rustoff"], is[id "ruston"], substr(why[id], 1, 70) } }' "$1"
}

# on_base BUG...: all of them on the base that upstream.sh finds. Its rows are in $logs/rows-VERSION, those of
# this run in $new.
on_base() {
	local tree facts dir switches each of
	tree=$(scripts/upstream.sh)
	base=$(. src/uvm_rust/kernel/build/kbuild.sh && driver_version "$tree")
	facts=$(scripts/base.sh "$tree" | paste -sd' ')
	dir=$(scripts/driver.sh rust)
	switches=$(modinfo -p "$dir/nvidia-uvm.ko" | sed -n 's/^uvm_rust_fix_\([a-z_]*\):.*/\1/p' | paste -sd' ')
	: >"$new"
	for each in "${bugs[@]}"; do
		IFS='|' read -ra of <<<"$each"
		if [ $# = 0 ] || [[ " $* " == *" ${of[0]} "* ]]; then bug "${of[@]}" >>"$new"; fi
	done
	[ -s "$new" ] || die "no such bug: $*"
	[ $# -gt 0 ] || rm -f "$logs/rows-$base"
	merge "$new" "$logs/rows-$base"
}

# Its own test wants the functions.
if [ "${BASH_SOURCE[0]}" != "$0" ]; then return; fi

rc=0
if [ -n "${BASES:-}" ]; then
	for version in $BASES; do BASES='' UVM_VERSION=$version "${BASH_SOURCE[0]}" "$@" || rc=1; done
	exit $rc
fi
cargo build --release --quiet -p uvm-suite
new=$logs/rows.new
on_base "$@"
json "$logs"/rows-[0-9]* >out/upstream-bugs.json
table "$new"
say "written to out/upstream-bugs.json; the logs are in $logs"
judge "$new"
