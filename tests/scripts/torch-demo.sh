#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# make torch-demo ends well only if something was shown. A cargo of the test's own stands in.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$(cd "$(dirname "$0")/../.." && pwd)
export UVM_RUST_CACHE=$work/cache SAYS=$work/says
mkdir -p "$work/cache/tools/bin"
# Both tests pass, or end as the file `code` has it, and say what the file of the crate's name has.
cat >"$work/cache/tools/bin/cargo" <<'FAKE'
#!/bin/bash
echo "$*" >>"$SAYS.calls"
printf '\nrunning 1 test\n'
cat "$SAYS.$4" 2>/dev/null
exit "$(cat "$SAYS.code" 2>/dev/null || echo 0)"
FAKE
chmod +x "$work/cache/tools/bin/cargo"
demo() { rm -f "$SAYS.calls"; "$top/scripts/torch-demo.sh" >"$work/said" 2>&1; }

# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

echo "faults 12" >"$SAYS.uvmrust-python"
demo && grep -qx 'faults 12' "$work/said" && [ "$(grep -c -- ' --nocapture$' "$SAYS.calls")" = 2 ]
check "it shows what the trainings say"
echo "skipped: a_test # no PyTorch (Debian: python3-torch)" >"$SAYS.uvmrust-preload"
! demo && grep -q '^error: .*showed nothing: no PyTorch (Debian: python3-torch); scripts/deps.sh --all' "$work/said"
check "without a PyTorch it says what is missing, and fails"
mv "$SAYS.uvmrust-preload" "$SAYS.uvmrust-python"
! demo && grep -q 'showed nothing: no PyTorch' "$work/said"
check "also where the second training alone has none"
echo "running 0 tests" >"$SAYS.uvmrust-python"
! demo && grep -q 'there is no such test' "$work/said"
check "a training that is not there is no success"
rm "$SAYS.uvmrust-python"
echo 101 >"$SAYS.code"
! demo && [ "$(wc -l <"$SAYS.calls")" = 1 ]
check "one that fails is none either"
done_testing
