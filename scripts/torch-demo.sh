#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Trainings by PyTorch's CPU build are recorded, planned and follow their plan. They are tests, which skip where
# something is missing; a demo that has shown nothing fails instead, and says what it wants.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
have cargo || die "torch-demo: no cargo: make deps installs it, or rustup"
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# shows TEST...: runs it, with all that it says.
shows() {
	cargo test --quiet "$@" -- --nocapture 2>&1 | tee "$said"
	local why
	why=$(sed -n 's/^skipped: .* # //p' "$said" | sort -u | paste -sd';')
	[ -z "$why" ] || die "torch-demo: it showed nothing: $why; scripts/deps.sh --all installs what is missing on Debian"
	! grep -q '^running 0 tests' "$said" || die "torch-demo: there is no such test: $*"
}

shows -p uvmrust-preload --test torch
shows -p uvmrust-python --test package inside_a_real_pytorch
