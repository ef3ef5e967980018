#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Instructions that the software GPU's core executes per access, copy and walk, counted on
# the host by callgrind. Prints a table; docs/vgpu.md has one of it.
#
#   vgpu-cost.sh [SEED]    in the kind order, or in the adversarial one of a seed
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"

have valgrind || die "valgrind is not installed, which counts the instructions"
cargo build --release --quiet -p vgpu-core --example cost
dir=$(mktemp -d "${TMPDIR:-/tmp}/uvm-rust-cost.XXXXXX")
trap 'rm -rf "$dir"' EXIT

cost=${CARGO_TARGET_DIR:-target}/release/examples/cost
valgrind --tool=callgrind --callgrind-out-file="$dir/out" "$cost" "$@" >"$dir/rows" 2>"$dir/log" ||
	{ cat "$dir/log" >&2; die "the emulator could not be counted"; }
# What each function of the module `rows` executed, with those that it called.
callgrind_annotate --inclusive=yes --threshold=100 "$dir/out" 2>>"$dir/log" |
	sed -n 's/^ *\([0-9,]*\) .*cost::rows::\([a-z0-9_]*\) .*/\2 \1/p' | tr -d , >"$dir/counted"

printf '%-12s %12s  %s\n' row instructions 'for each'
while IFS=$'\t' read -r row count what; do
	total=$(awk -v row="$row" '$1 == row { print $2 }' "$dir/counted")
	[ -n "$total" ] || die "$row was not counted"
	each=$(awk -v total="$total" -v count="$count" 'BEGIN { printf "%.1f", total / count }')
	printf '%-12s %12s  %s\n' "$row" "$each" "$what"
done <"$dir/rows"
