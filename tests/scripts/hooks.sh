#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0 OR MIT
# Do the hooks of the seam find their places in NVIDIA's driver: in the trees in UVM_SRC, and in
# the pinned versions that are named? Nothing is compiled.
#
#   hooks.sh [535] [550] [555]
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../../scripts/test-parts.sh
. "$TOP/scripts/test-parts.sh"
set +e
cd "$TOP" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# fits TREE: puts the seam beside a copy of nothing; what seam.sh writes is all that is there.
fits() {
	local major written=$work/build/uvm-rust/nvidia-uvm-c/uvm_rust_version.h
	rm -rf "$work/build"
	"$TOP/scripts/seam.sh" "$1" "$work/build" >"$work/said" 2>&1 || return
	major=$(version_of "$1")
	# The hooks of those that discard by themselves are others.
	[ "$(grep -c UVM_RUST_NATIVE "$written")" = $((${major%%.*} >= 580)) ]
}

for v in "$@"; do
	tree=$(env -u UVM_SRC UVM_VERSION="$v" "$TOP/scripts/upstream.sh" 2>"$work/said") && fits "$tree"
	check "the hooks fit $v"
done
mapfile -t trees < <(given_trees)
for given in "${trees[@]}"; do
	version=$(version_of "$given")
	if tree=$(UVM_SRC=$given "$TOP/scripts/upstream.sh" 2>"$work/said") &&
		! why=$("$TOP/scripts/seam.sh" --knows "$tree" 2>&1); then
		skipped 1 "${why#error: }"
		continue
	fi
	[ -n "$tree" ] && fits "$tree"
	check "the hooks fit $version"
done
[ "$n" -gt 0 ] || { echo "1..0 # SKIP no version is named, and no UVM_SRC"; exit; }
done_testing
