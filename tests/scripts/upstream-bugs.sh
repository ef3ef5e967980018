#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# What scripts/upstream-bugs.sh makes of a VM that ended, by logs as there are.
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

is 'ok: ' 0 'TAP version 14\nok 1 - hazards: x\n'
check "a test that passes"
is 'skipped: no HMM' 4 'TAP version 14\nok 1 - hazards: x # SKIP no HMM\n'
check "one that is skipped says why"
is 'wrong: word 3 is 0x7' 1 'TAP version 14\nnot ok 1 - hazards: x\n#   word 3 is 0x7\n#   and more\n'
check "one that fails says what was wrong"
is 'wrong: Assert failed' 1 'TAP version 14\nnot ok 1 - hazards: x\n#   the kernel log says:\n#   Assert failed\n'
check "or what the kernel said"
is 'crash: Oops: 0000 [#1]' 255 'TAP version 14\n[   9.0] RIP: 0033:0x7f1c\n[   9.1] Oops: 0000 [#1]\n'
check "a kernel that died says of what"
is 'hang: not done in 60 s' 124 'TAP version 14\n'
check "one that does not end"
is 'not run: ' 1 'error: no kernel\n'
check "what never came to the test is no outcome"
done_testing
