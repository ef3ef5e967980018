#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Runs the tests, in parts, and adds them up (--help says how): builds tests/xtask, which does that, and starts it.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
# Where it runs already it is there, and whoever it has started need not wait for cargo.
if [ ! -x "${UVM_RUST_XTASK:-}" ]; then
	cargo build --quiet --locked -p xtask
	UVM_RUST_XTASK=${CARGO_TARGET_DIR:-target}/debug/xtask
fi
exec "$UVM_RUST_XTASK" "$@"
