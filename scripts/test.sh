#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Run test parts and add them up. The last line is
#
#   N passed, N failed, N skipped
#
# and the exit status is 0 only if nothing failed and every part ran to its end.
#
#   test.sh host|vm|extra|debug|all      ONLY=REGEX: only parts of that name
#
# Each part writes out/test/PART.log. A part in TAP counts its test lines and
# must keep to its plan; cargo's counts are taken from its own summaries.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
out=$TOP/out/test
mkdir -p "$out"

passed=0 failed=0 skipped=0
failures=()

# count PART STATUS: add up what the log of a part says.
count() {
	local part=$1 status=$2 log=$out/$1.log p=0 f=0 s=0 plan said
	if grep -q '^test result: ' "$log"; then
		read -r p f s < <(awk '/^test result: / {
			for (i = 1; i < NF; i++) {
				if ($(i + 1) ~ /^passed/) p += $i
				if ($(i + 1) ~ /^failed/) f += $i
				if ($(i + 1) ~ /^ignored/) s += $i
			} } END { print p + 0, f + 0, s + 0 }' "$log")
	elif grep -qE '^(not )?ok ' "$log"; then
		s=$(grep -cE '^ok .*# SKIP' "$log" || :)
		p=$(($(grep -cE '^ok ' "$log") - s))
		f=$(grep -cE '^not ok ' "$log" || :)
		said=$((p + f + s))
		plan=$(awk -F'\\.\\.' '/^1\.\.[0-9]+/ { split($2, n, " "); sum += n[1] } END { print sum + 0 }' "$log")
		if [ "$plan" != "$said" ]; then
			f=$((f + 1))
			echo "not ok $part: $said tests reported, but $plan planned"
		fi
		grep -E '^not ok ' "$log" | sed "s|^|$part: |" || :
	elif [ "$status" = 0 ]; then
		p=1
	fi
	if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	if [ "$f" -gt 0 ]; then
		failures+=("$part")
		echo "--- the end of out/test/$part.log:"
		tail -n 30 "$log"
	fi
	printf '%-34s %5d passed %3d failed %3d skipped\n' "$part" "$p" "$f" "$s"
}

# part NAME COMMAND...: run it, showing the names of its tests as they pass by.
part() {
	local name=$1 status=0 t0=$SECONDS
	shift
	[[ -z "${ONLY:-}" || $name =~ $ONLY ]] || return 0
	mkdir -p "$(dirname "$out/$name.log")"
	say "$name"
	"$@" >"$out/$name.log" 2>&1 &
	local pid=$!
	tail -n +1 -f --pid="$pid" "$out/$name.log" 2>/dev/null |
		grep --line-buffered -E '^ *(not ok|ok) [0-9]' | sed -u "s|^|  |" || :
	wait "$pid" || status=$?
	count "$name" "$status"
	echo "  ($((SECONDS - t0)) s)"
}

# skip NAME REASON: a part that cannot run here.
skip() {
	skipped=$((skipped + 1))
	printf '%-34s skipped: %s\n' "$1" "$2"
}

# vm SETTINGS... -- COMMAND: in the VM, with settings such as DRIVER=upstream.
vm() {
	local settings=()
	while [ "$1" != -- ]; do settings+=("$1"); shift; done
	shift
	env "${settings[@]}" "$TOP/scripts/vm.sh" "$*"
}

. "$TOP/scripts/test-parts.sh"

case ${1:-all} in
host) host_parts ;;
vm) vm_parts ;;
extra) extra_parts ;;
debug) debug_parts ;;
all) host_parts; vm_parts ;;
*) die "test.sh: use host, vm, extra, debug or all" ;;
esac

[ ${#failures[@]} = 0 ] || printf 'failed: %s\n' "${failures[*]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
