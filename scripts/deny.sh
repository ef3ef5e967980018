#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Asks cargo-deny whether the crates in each lock file are as deny.toml wants them: licences, sources, and
# the holes that are known of them.
#
#   deny.sh             all of it; the first time cargo-deny is built, and the list of holes is fetched
#   deny.sh --offline   what needs no network: the workspace's crates, without the holes; with a cargo-deny that is there
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

version=0.20.2
manifests=(Cargo.toml sim/fuzz/Cargo.toml src/uvm_rust/policy/fuzz/Cargo.toml)
about=(advisories) options=()

case ${1:-} in
'')
	if [ "$(cargo-deny --version 2>/dev/null)" != "cargo-deny $version" ]; then
		locked deps
		progress "cargo-deny $version" "$CACHE/deny.log" \
			cargo install --locked --force --root "$CACHE/tools" cargo-deny --version "$version"
	fi
	;;
--offline)
	have cargo-deny || die "cargo-deny is not installed: make deny builds it"
	manifests=(Cargo.toml) about=() options=(--offline)
	;;
*) die "deny.sh [--offline]" ;;
esac

for manifest in "${manifests[@]}"; do
	say "$manifest"
	cargo deny --manifest-path "$TOP/$manifest" --config "$TOP/deny.toml" --locked "${options[@]}" check \
		--hide-inclusion-graph licenses bans sources "${about[@]}"
done
