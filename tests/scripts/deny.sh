#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# The workspace's crates are as deny.toml wants them, as far as that is known without a network; and a crate under
# another licence would be found.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$TOP/tests/scripts/tap.sh"

"$TOP/scripts/deny.sh" --offline >"$work/said" 2>&1
check "the crates of the workspace are allowed"

# judged LICENCE: what cargo-deny says of a crate that has it.
judged() {
	mkdir -p "$work/other/src"
	touch "$work/other/src/lib.rs"
	printf '[package]\nname = "other"\nversion = "0.1.0"\nedition = "2021"\nlicense = "%s"\n[workspace]\n' "$1" >"$work/other/Cargo.toml"
	cargo deny --manifest-path "$work/other/Cargo.toml" --config "$TOP/deny.toml" --offline check licenses bans sources \
		>"$work/said" 2>&1
}
! judged GPL-3.0-only && grep -q 'error\[rejected\]' "$work/said"
check "a crate under another licence is found"
judged MIT
check "one under a licence that is allowed is not"
done_testing
