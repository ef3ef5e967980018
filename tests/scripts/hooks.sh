#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Do the hooks of the seam find their places in NVIDIA's driver: in the trees in UVM_SRC, and in
# the pinned versions that are named? Nothing is compiled.
#
#   hooks.sh [535] [550] [555]
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../parts/trees.sh
. "$TOP/tests/parts/trees.sh"
set +e
cd "$TOP" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# is_so TREE FACT: of that tree, says base.sh?
is_so() { [ "$("$TOP/scripts/base.sh" "$1" | grep -cx "$2")" = 1 ]; }

# fits_as TREE WHOLE NATIVE: puts the seam beside a copy of nothing; what seam.sh writes is all that is there.
# Without a WHOLE, nothing is asked for.
fits_as() {
	rm -rf "$work/build"
	env -u UVM_RUST_WHOLE ${2:+UVM_RUST_WHOLE=$2} "$TOP/scripts/seam.sh" "$1" "$work/build" >"$work/said" 2>&1 || return
	[ "$(grep -c UVM_RUST_NATIVE "$work/build/uvm-rust/nvidia-uvm-c/uvm_rust_version.h")" = "$3" ] || return
	# No version has one place more where a va_block's host memory would be charged as upstream does.
	[ "$3" = 1 ] || { ! grep -w uvm_memcg_context_start "$work/build/nvidia-uvm/uvm_va_block.c" >"$work/said" && ! uncharged "$1/nvidia-uvm"; }
}

# accounted: the files of NVIDIA's that Kbuild puts uvm_rust_account.h in front of.
accounted() { sed -z 's/\\\n//g' Kbuild | grep 'uvm_rust_account\.h' | grep -oE '\buvm_[a-z0-9_]+\.o\b' | sed 's/o$/c/'; }

# uncharged FOLDER: says which other files allocate what that header charges by the cache's name (uvm_rust_zalloc()); whether any does.
uncharged() {
	(cd "$1" && grep -nE 'nv_kmem_cache_zalloc\(g_uvm_(va_range_|range_group_|va_block_cache\b)' ./*.c) | sed 's|^\./||' |
		grep -vwF -f <(accounted) >"$work/said"
}

# fits TREE: the hooks for what is built without a wish, which is all of ours, and, where there is a choice, those
# for either.
fits() {
	fits_as "$1" '' 0 || return
	if is_so "$1" native_discard; then fits_as "$1" 0 1 && fits_as "$1" 1 0; else fits_as "$1" 0 0; fi
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
# What another file allocates is seen.
mkdir -p "$work/other"
printf 'x = nv_kmem_cache_zalloc(g_uvm_va_range_x_cache, 0);\n' | tee "$work/other/uvm_va_range.c" >"$work/other/uvm_va_range_x.c"
if [ "$n" -gt 0 ]; then
	uncharged "$work/other" && [ "$(cut -d: -f1 "$work/said")" = uvm_va_range_x.c ]
	check "what a file allocates that nothing is in front of is seen"
fi
[ "$n" -gt 0 ] || { echo "1..0 # SKIP no version is named, and no UVM_SRC"; exit; }
done_testing
