#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Checks that every file of Rust is formatted as rustfmt.toml says, in and out of the workspace.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"

# rustfmt_check: of the files below the current folder. Of what rustfmt reads from standard input it says what it
# would change, and that all is well.
rustfmt_check() {
	# shellcheck disable=SC2016
	{ git ls-files '*.rs' 2>/dev/null || find src sim tests userlib -name '*.rs' -not -path '*/target/*'; } |
		xargs -P "$JOBS" -I{} sh -c 'diff=$(rustfmt --edition 2021 --check --config-path "$1" <"$2" 2>&1) && [ -z "$diff" ] ||
			{ echo "$2 is not formatted: rustfmt --edition 2021 $2"; exit 1; }' - "$TOP/rustfmt.toml" {}
}

# Its own test calls the function alone.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
cd "$TOP"
rustfmt_check
