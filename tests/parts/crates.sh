#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Packages the Rust library and what it needs, as crates.io would have them, and builds them without the checkout.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
dir=$TOP/out/test/host/crates
rm -rf "$dir"
mkdir -p "$dir"
log=$dir/package.log
# There can be no lock file of crates that are not published yet.
cargo package --offline --no-verify --allow-dirty --exclude-lockfile --target-dir "$dir" \
	-p uvmsim-plan -p uvm-uapi -p uvmrust 2>&1 | tee "$log"
! grep -q '^warning' "$log" || die "cargo package warns of what it packages"
for crate in "$dir"/package/*.crate; do tar -C "$dir" -xzf "$crate"; done
# Workspaces of their own, so that the one around them does not take them for its members.
for crate in "$dir"/uvm*/Cargo.toml; do printf '\n[workspace]\n' >>"$crate"; done
# The versions that the checkout has are here already; of later ones nothing may be.
library=$(echo "$dir"/uvmrust-*/)
cp Cargo.lock "$library"
cargo check --offline --quiet --lib --target-dir "$dir/target" --manifest-path "$library/Cargo.toml" \
	--config "patch.crates-io.uvm-uapi.path='$(echo "$dir"/uvm-uapi-*)'" \
	--config "patch.crates-io.uvmsim-plan.path='$(echo "$dir"/uvmsim-plan-*)'"
