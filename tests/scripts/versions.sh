#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/versions.sh makes of releases: a made-up repository of four tags, two of which have the same source, and a
# test of hooks that says what is in the tree.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"
: >"$work/said"

export UVM_RUST_CACHE=$work/cache UVM_GIT=$work/releases RELEASE_TAGS=$work/tags HOOKS_SH=$work/hooks
git init -q "$work/releases"
as() { git -C "$work/releases" -c user.name=x -c user.email=x@y -c commit.gpgsign=false "$@"; }
# release TAG SAYS: its source is what the test of hooks says of it.
release() {
	mkdir -p "$work/releases/kernel-open/nvidia-uvm"
	printf '%b' "$2" >"$work/releases/kernel-open/nvidia-uvm/said"
	as add -A && as commit -q --allow-empty -m "$1" && as tag "$1"
}
fits='ok 1 - the hooks fit\n1..1\n'
release 1.1 "$fits"
release 1.2 "$fits"
release 2.1 'ok 1 # SKIP no Rust for 2.1\n1..1\n'
release 3.1 'not ok 1 - the hooks fit\n# error: hook x matched 0 of 1 places\n1..1\n'
# shellcheck disable=SC2016
printf '#!/bin/sh\necho asked >>"%s/asked"\ncat "$UVM_SRC/kernel-open/nvidia-uvm/said"\n' "$work" >"$HOOKS_SH"
chmod +x "$HOOKS_SH"
printf '# A comment.\n1.1 build\n1.2\n2.1\n' >"$RELEASE_TAGS"
versions() { "$top/scripts/versions.sh" "$@" >"$work/said" 2>&1; }

versions hooks && [ "$(grep -v SKIP "$work/said" | xargs)" = "ok 1 - the hooks fit 1.1 ok 2 - the hooks fit 1.2 1..3" ] &&
	grep -qx 'ok 3 - the hooks fit 2.1 # SKIP no Rust for 2.1' "$work/said"
check "each tag of the list is asked, and one that the seam does not know is skipped"
[ "$(wc -l <"$work/asked")" = 2 ] && versions hooks && [ "$(wc -l <"$work/asked")" = 2 ]
check "equal sources are asked once, and not again"
printf '3.1 build\n4.1\n' >>"$RELEASE_TAGS"
! versions hooks && grep -qx 'not ok 4 - the hooks fit 3.1' "$work/said" && grep -qx '# hook x matched 0 of 1 places' "$work/said"
check "a hook that misses fails, and says so"
grep -qx 'not ok 5 - the hooks fit 4.1' "$work/said" && grep -q '^# no such tag' "$work/said"
check "so does a tag that is not there"
versions flips && [ "$(xargs <"$work/said")" = "1.1 3.1" ] && versions tree 1.1 && [ -e "$(cat "$work/said")/nvidia-uvm/said" ]
check "what is built has its source unpacked"

mkdir "$work/rust"
echo '  CC [M]  x.o' >"$work/rust.log"
versions note 1.1 "$work/rust.log" && [ -d "$work/rust" ]
check "a build without a warning is well"
versions note 3.1 - && versions table "$work/json" && grep -qE '^1.1 +yes +yes +0$' "$work/said" && grep -qE '^1.2 +yes +- +-$' "$work/said" &&
	grep -qE '^2.1 +unknown +- +-$' "$work/said" && grep -qE '^3.1 +NO +NO +-$' "$work/said"
check "the table has a line for each tag"
python3 -c '
import json, sys
rows = json.load(open(sys.argv[1]))["tags"]
assert all(list(r) == ["tag", "hooks", "built", "warnings"] for r in rows), rows
seen = [tuple(r.values()) for r in rows]
assert seen == [("1.1", True, True, 0), ("1.2", True, None, None), ("2.1", False, None, None), ("3.1", False, False, None),
	("4.1", False, None, None)], seen
' "$work/json" 2>"$work/said"
check "the JSON says the same"
printf 'x.c:3:1: warning: unused\n' >"$work/rust.log"
! versions note 1.1 "$work/rust.log" && grep -q '^x.c: warning' "$work/said" && [ ! -e "$work/rust" ] && versions table "$work/json" &&
	grep -qE '^1.1 +yes +yes +1$' "$work/said"
check "one with a warning fails, and is built anew the next time"
printf 'y/x.c:7:1: warning: unused\n' >"$work/nvidia.log"
versions note 1.1 "$work/rust.log" "$work/nvidia.log" && versions table "$work/json" && grep -qE '^1.1 +yes +yes +0$' "$work/said"
check "unless NVIDIA's own build of the release says so of the same file"
frame() { echo "z.c:$1:1: warning: the frame size of $2 bytes is larger than 1024 bytes"; }
frame 8 1160 >>"$work/rust.log" && frame 9 1144 >>"$work/nvidia.log"
versions note 1.1 "$work/rust.log" "$work/nvidia.log"
check "a frame that is too large in both may differ in size"
echo 'WARNING: modpost: suppressed 66 unresolved symbol warnings because there were too many)' >>"$work/rust.log"
versions note 1.1 "$work/rust.log" "$work/nvidia.log"
check "what modpost only counts is not counted again"
printf 'x.o: warning: objtool: f() falls through\nx.c:3:1: warning: other\n' >>"$work/rust.log"
! versions note 1.1 "$work/rust.log" "$work/nvidia.log" && versions table "$work/json" && grep -qE '^1.1 +yes +yes +2$' "$work/said"
check "what only ours has is counted, of compiler and objtool"
asked=$(wc -l <"$work/asked")
! versions hooks && [ "$(wc -l <"$work/asked")" = "$((asked + 1))" ]
check "a hook that missed is asked again"
mkdir "$work/bin"
printf '#!/bin/sh\necho spatch of another version\n' >"$work/bin/spatch"
chmod +x "$work/bin/spatch"
! PATH=$work/bin:$PATH versions hooks && [ "$(wc -l <"$work/asked")" = "$((asked + 4))" ]
check "another spatch has all asked again"
# Not a folder here, but a repository that is fetched from; 4.1 is not in it.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$work/releases.insteadOf GIT_CONFIG_VALUE_0=made-up:releases
! UVM_GIT=made-up:releases versions hooks && grep -qx 'ok 1 - the hooks fit 1.1' "$work/said" &&
	grep -qx 'not ok 5 - the hooks fit 4.1' "$work/said"
check "a tag that is not there leaves the others fetched"
UVM_GIT=$work/nowhere
! versions source && grep -q 'name a copy of it in UVM_GIT' "$work/said"
check "where git has no releases, a line says what to do"
done_testing
