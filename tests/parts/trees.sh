#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What the trees of NVIDIA's driver in UVM_SRC are. Here, and only here, there may be several, with spaces or colons
# between them. Prints a line for each, of fields with tabs between them: its version, or "given" if it says none
# that is known; "whole" if all of ours is built into it, "native" if that is so beside a discard of its own,
# "refused" if it is none that a build takes, and "unknown" if the seam does not know it; why not; and the tree.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

# given_trees: the trees, one a line.
given_trees() {
	if [ -d "${UVM_SRC:-}" ]; then echo "$UVM_SRC"; return; fi
	tr -s ' :' '\n' <<<"${UVM_SRC:-}" | sed '/^$/d'
}

# version_of TREE: what its part is called: its version, if it says one that the seam knows.
version_of() {
	local tree
	tree=$(UVM_SRC=$1 "$TOP/scripts/upstream.sh" 2>/dev/null) || { echo given; return; }
	# shellcheck source-path=SCRIPTDIR source=../../src/uvm_rust/kernel/build/kbuild.sh
	. "$TOP/src/uvm_rust/kernel/build/kbuild.sh"
	driver_version "$tree"
}

# is_known TREE: prints "whole", "native", "refused", or "unknown", a tab and the reason. Why a tree is refused, the build
# says.
is_known() {
	local tree facts why
	tree=$(UVM_SRC=$1 "$TOP/scripts/upstream.sh" 2>/dev/null) || { printf 'refused\t'; return; }
	if ! why=$("$TOP/scripts/seam.sh" --knows "$tree" 2>&1); then
		printf 'unknown\t%s' "${why#error: }"
		return
	fi
	facts=$("$TOP/scripts/base.sh" "$tree" 2>/dev/null) || { printf 'refused\t'; return; }
	case $'\n'$facts$'\n' in
	*$'\n'native_discard$'\n'*) printf 'native\t' ;;
	*) printf 'whole\t' ;;
	esac
}

# tests/scripts/hooks.sh needs the functions alone.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
given_trees | while IFS= read -r tree; do
	printf '%s\t%s\t%s\n' "$(version_of "$tree")" "$(is_known "$tree" | tr '\n' ' ')" "$tree"
done
