#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The jobs of CI run what is there: each command's target is in the Makefile, each BASE is pinned, and each ONLY
# matches parts. And scripts/ci.sh reads of the description what GitHub Actions would run.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$TOP/tests/scripts/tap.sh"
workflow=$TOP/.github/workflows/ci.yml
parts=$(for target in all extra; do env -u ONLY -u FAILED "$TOP/scripts/test.sh" list $target; done)

# wrong FILE: a line for each job that cannot run.
wrong() {
	local name command target base only
	CI_FILE=$1 "$TOP/scripts/ci.sh" | while read -r name command; do
		target=$(sed -nE 's/^make ([a-z-]+)( .*)?$/\1/p' <<<"$command")
		grep -qE "^$target: .*##" "$TOP/Makefile" && [ -n "$target" ] || echo "$name: no such target: $command"
		base=$(sed -nE 's/.* BASE=([0-9]+).*/\1/p' <<<"$command")
		[ -z "$base" ] || grep -qE "^$base\) (version|tag)=" "$TOP/scripts/upstream.sh" || echo "$name: no such base: $base"
		only=$(sed -nE "s/.* ONLY='([^']*)'.*/\1/p" <<<"$command")
		[ -z "$only" ] || grep -qE "$only" <<<"$parts" || echo "$name: no such part: $only"
	done
}

wrong "$workflow" >"$work/said"
[ ! -s "$work/said" ]
check "each job of CI has a target, a base and parts that there are"
"$TOP/scripts/ci.sh" >"$work/said" && [ "$(grep -c ' make ' "$work/said")" = "$(grep -c '^          - name: ' "$workflow")" ] &&
	grep -q '^host ' "$work/said" && [ "$(wc -l <"$work/said")" -gt 5 ]
check "ci.sh names each entry of the matrix"
# shellcheck disable=SC2016
grep -qF 'run: ${{ matrix.run }}' "$workflow" && grep -q 'run: make deps$' "$workflow"
check "and GitHub Actions would run their commands"

# Without this nothing would tell that a test is skipped everywhere.
for target in test-host test-extra; do grep -q "run: make $target NO_SKIPS=1 ONLY=" "$workflow" || echo "$target"; done >"$work/said"
grep -qF "if: contains(matrix.run, 'NO_SKIPS=1')" "$workflow" && grep -q 'run: make deps NO_SKIPS=1$' "$workflow" && [ ! -s "$work/said" ]
check "jobs without skips have what tests skip without"
# Of the parts that may be skipped for want of what can be installed, the rest have it of make deps alone, on Debian.
plain='^host/(preload|clippy|shellcheck|spelling|reuse)$'
strict=$(sed -nE "s/.* NO_SKIPS=1 ONLY='([^']*)'.*/\1/p" "$workflow" | paste -sd'|')
sed -nE 's/^\+([^[:space:]]+)[[:space:]]+\(the part\)$/\1/p' "$TOP/tests/skips" | grep -vE "$plain" >"$work/may"
[ "$(wc -l <"$work/may")" -ge 5 ] && ! grep -vE "$strict" "$work/may" >"$work/said"
check "and each part that may be skipped for want of that is in one of them"

cat >"$work/ci.yml" <<'YML'
jobs:
  make:
    strategy:
      matrix:
        include:
          - name: good
            run: echo ran 'a b'
          - name: bad
            run: make none
          - name: base
            run: make test BASE=123
          - name: parts
            run: make test ONLY='^none/'
          - name: fails
            run: false
    steps:
      - name: no job
        run: make deps
YML
wrong "$work/ci.yml" | cut -d: -f1 | paste -sd' ' >"$work/said"
[ "$(cat "$work/said")" = "good bad base parts fails" ]
check "a job that could not run is found"
CI_FILE=$work/ci.yml "$TOP/scripts/ci.sh" good >"$work/said" 2>&1 && grep -qx "ran a b" "$work/said"
check "a job is run by its name"
! CI_FILE=$work/ci.yml "$TOP/scripts/ci.sh" fails good >"$work/said" 2>&1 && ! grep -q '^ran' "$work/said"
check "one that fails ends the run"
! CI_FILE=$work/ci.yml "$TOP/scripts/ci.sh" none >"$work/said" 2>&1 && grep -q 'there are: good bad base parts fails' "$work/said"
check "one that there is not is refused with those that there are"

if py=$(for p in python3 /usr/bin/python3; do "$p" -c 'import yaml' 2>/dev/null && echo "$p" && break; done) && [ -n "$py" ]; then
	"$py" - "$workflow" <<-'PY' >"$work/want" 2>"$work/said"
	import sys, yaml
	for job in yaml.safe_load(open(sys.argv[1]))["jobs"]["make"]["strategy"]["matrix"]["include"]:
	    print(job["name"], job["run"])
	PY
	"$TOP/scripts/ci.sh" | sed -E 's/ +/ /' | diff "$work/want" - >>"$work/said"
	check "a reader of YAML sees the same jobs"
else
	skipped 1 "no Python with yaml"
fi
done_testing
