#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# A VM that does not finish says of each program what it waits for, in the kernel's words. Prints TAP.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
rc=0 ok=ok
said=$(NOLOAD=1 VM_TIMEOUT=90 scripts/vm.sh 'sleep 1000' 2>&1 >/dev/null) || rc=$?
if [ $rc != 124 ] || ! grep -A 9 ' task:sleep ' <<<"$said" | grep -q nanosleep; then ok="not ok"; fi
printf '%s 1 - vm: what does not finish is seen\n1..1\n' "$ok"
[ "$ok" = ok ] || printf '# %s\n' "the exit status is $rc" "$said"
