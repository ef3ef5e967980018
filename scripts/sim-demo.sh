#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# BERT-large on a 24 GB card, all policies of uvmsim; prints the table and where
# the report is. NET, BATCH, MACHINE and REPORT choose others.

set -euo pipefail
cd "$(dirname "$0")/.."

net=${NET:-bert-large}
batch=${BATCH:-16}
machine=${MACHINE:-rtx4090-host}
report=${REPORT:-out/sim-$net-$machine.html}

if ! command -v cargo >/dev/null; then
	echo "sim-demo: cargo is not installed; 'make deps' or rustup.rs installs it" >&2
	exit 1
fi
mkdir -p "$(dirname "$report")"
cargo build --quiet --release -p uvmsim
target/release/uvmsim compare --net "$net" --batch "$batch" --machine "$machine" --report "$report"
