#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# With a mend of NVIDIA's driver switched off (docs/fixes.md), the test of hazards, or of discard, notices: it fails, or the guest
# does not come back. A test that did not run has noticed nothing. Prints TAP.
#
#   without.sh NAME SWITCH TEST
#   without.sh --list       prints "NAME|SWITCH|WANT|TEST" for each bug that is there on the base that is built for;
#                           WANT is "sometimes" for one that shows each time in the debug kernel alone
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../../scripts/bugs.sh
. "$TOP/scripts/bugs.sh"
cd "$TOP"

# list_bugs: the mends are lost one by one.
list_bugs() {
	local bug id switch off on_bases test tree facts
	tree=$(scripts/upstream.sh)
	facts=$(scripts/base.sh "$tree" | paste -sd' ')
	for bug in "${bugs[@]}"; do
		IFS='|' read -r id switch _ _ off on_bases test <<<"$bug"
		case $(wanted_of "$off" "$on_bases" "$facts") in
		fails) echo "$id|$switch|fails|$test" ;;
		sometimes) echo "$id|$switch|sometimes|$test" ;;
		esac
	done
}

if [ "${1:-}" = --list ]; then
	list_bugs
	exit
fi
name=${1:?the name of a bug} switch=${2:?its switch} test=${3:?its test}
log=out/test/fixes/$name.said ok="not ok"
mkdir -p out/test/fixes
of_program "$test"
seen=$(until_seen fails "$log" env DRIVER=rust VIDMEM=64M VM_MEM=4G VM_UNLOAD= VM_TIMEOUT=300 \
	UVM_PARAMS="uvm_rust_fix_$switch=0 $needs" "$vm" "target/release/$program --only '$only'")
if meets fails "$seen"; then ok=ok; fi
printf '%s 1 - fixes: without %s, "%s" fails\n1..1\n' "$ok" "$name" "$test"
printf '# %s\n' "what it did: $seen"
sed 's/^/# /' "$log" | tail -n 40
