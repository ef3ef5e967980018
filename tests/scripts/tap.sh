# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# TAP for the tests of scripts, which source this file after they have set $work: what their
# last command said is in $work/said, and what was called in their place, if that is kept, in
# $FAKE/calls.

n=0 failed=0
# check NAME: the last command's status says whether that is so.
check() {
	local rc=$?
	n=$((n + 1))
	if [ "$rc" = 0 ]; then
		echo "ok $n - $1"
		return
	fi
	echo "not ok $n - $1"
	# shellcheck disable=SC2154
	cat "$work/said" "${FAKE:-$work}/calls" 2>/dev/null | sed 's/^/# /' | head -n 40
	failed=1
}

# skipped TIMES WHY: so many checks cannot be made here.
skipped() {
	local i
	for ((i = 0; i < $1; i++)); do
		n=$((n + 1))
		echo "ok $n # SKIP $2"
	done
}

# done_testing: the plan; fails if a check has.
done_testing() {
	echo "1..$n"
	[ "$failed" = 0 ]
}
