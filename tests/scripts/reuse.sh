#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Every file says under which licence it is, by reuse (https://reuse.software); and a file that does not would be found.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$TOP/tests/scripts/tap.sh"

version=$(reuse --version | awk 'NR == 1 { print $NF }')
if ! at_least 4.0.0 "$version"; then
	skipped 5 "reuse $version does not know REUSE.toml: 4.0.0 or later does"
	done_testing
	exit
fi
# What git knows is checked in a copy: reuse stops at a file that goes while it looks, and other lanes build meanwhile.
mkdir "$work/all"
git -C "$TOP" ls-files -z --cached --others --exclude-standard |
	(cd "$TOP" && tar -c --null --ignore-failed-read -T - 2>/dev/null) | tar -x -C "$work/all"
[ -f "$work/all/Makefile" ] && reuse --root "$work/all" lint >"$work/said" 2>&1
check "the licence of every file is known"

mkdir "$work/tree"
cp -r "$TOP/LICENSES" "$TOP/REUSE.toml" "$work/tree/"
# REUSE-IgnoreStart
tag="SPDX-License-Identifier:"
printf '// %s GPL-2.0-only OR MIT\n' "$tag" >"$work/tree/a.rs"
printf '/* %s (GPL-2.0-only WITH Linux-syscall-note) OR MIT */\n' "$tag" >"$work/tree/a.h"
# lints: what reuse says of the tree.
lints() { reuse --root "$work/tree" lint >"$work/said" 2>&1; }
lints
check "a tree with these licences is in order"
echo 'fn f() {}' >"$work/tree/b.rs"
! lints && grep -q 'b\.rs' "$work/said"
check "a source file without a licence is found"
printf '// %s GPL-2.0 OR MIT\n' "$tag" >"$work/tree/b.rs"
! lints && grep -qi 'deprecated' "$work/said"
check "and so is the old name of one"
printf '// %s Apache-2.0\n' "$tag" >"$work/tree/b.rs"
! lints && grep -q 'Apache-2\.0' "$work/said"
check "and one whose text is not in LICENSES"
# REUSE-IgnoreEnd
done_testing
