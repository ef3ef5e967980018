#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# README's pictures show what the programs say, and one that cannot be made leaves the old one. The demo, the VM and
# cargo are stand-ins.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$TOP/tests/scripts/tap.sh"
export UVM_RUST_CACHE=$work/cache HOME=$work
mkdir -p "$work/scripts" "$work/bin" "$work/cache/tools/bin"
cp "$TOP"/scripts/{lib.sh,pictures.sh,terminal-svg.py} "$work/scripts/"
printf '#!/bin/bash\n' >"$work/cache/tools/bin/cargo"
# stands_in SCRIPT: what standard input says is all that it does.
stands_in() { { echo '#!/bin/bash'; cat; } >"$work/scripts/$1" && chmod +x "$work/scripts/$1"; }
chmod +x "$work/cache/tools/bin/cargo"
pictures() { "$work/scripts/pictures.sh" "$@" >"$work/said" 2>&1; }
demo=$work/docs/img/demo.svg top=$work/docs/img/uvmtop.svg

stands_in demo.sh <<'SH'
printf 'variant  faults\nupstream  96\nrust      <96>\nall counts agree\n'
SH
pictures demo && grep -q '\$ make demo<' "$demo" && grep -q '>rust      &lt;96&gt;<' "$demo" && grep -q 'out/demo.json' "$demo"
check "the demo's table is in its picture, under the command"
python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$demo" >"$work/said" 2>&1
check "and the picture is XML"

before=$(cat "$demo")
stands_in demo.sh <<<'echo variant; exit 1'
! pictures demo && [ "$(cat "$demo")" = "$before" ]
check "a demo that fails leaves the old picture"
stands_in demo.sh <<<'exit 0'
! pictures demo && [ "$(cat "$demo")" = "$before" ] && grep -q 'says nothing' "$work/said"
check "and so does one that says nothing"

stands_in vm.sh <<'SH'
printf 'uvmtop  uvm-rust\nGPU 1\n  memory\nok 1 - nothing is left\n1..1\n'
SH
pictures uvmtop && grep -q '>GPU 1<' "$top" && ! grep -q 'nothing is left\|1\.\.1' "$top"
check "uvmtop's page is in its picture, without what the VM says"
! pictures none && grep -q 'pictures.sh \[demo\]' "$work/said"
check "a picture that there is not is refused"

# The titles of the columns are those of the programs that are here.
grep -oE '^ +"[a-zA-Z ]+",?$' "$TOP/tests/suite/src/bin/demo/compare.rs" | tr -d '",' | sed 's/^ *//' >"$work/columns"
[ "$(wc -l <"$work/columns")" -ge 8 ] && while read -r title; do
	grep -q ">variant.*\b$title\b" "$TOP/docs/img/demo.svg" || { [ "$title" = variant ] && continue; echo "$title"; }
done <"$work/columns" >"$work/said"
[ ! -s "$work/said" ]
check "README's picture of the demo has the columns of the demo"

# Those that no process of that run has a number for: it has no maximum, announces no kernel, and there is no SSD tier.
absent='MAX PREDICTED WASTED ON_SSD TENANT_SSD'
source=$TOP/userlib/top/src
titles=$(sed -n 's/^        title: "\(.*\)",$/\1/p' "$source/processes.rs" | tr ' ' _)
# The sparkline's stands behind the column that SPARK_BEHIND names.
behind=$(sed -n 's/^const SPARK_BEHIND: &str = "\(.*\)";$/\1/p' "$source/processes.rs")
spark=$(sed -n 's/.*part(format!(" {:>bars$}", "\(.*\)"), bold.*/\1/p' "$source/processes.rs")
expected=
for title in $titles; do
	grep -qw "$title" <<<"$absent" || expected+=" $title"
	[ "$title" != "$behind" ] || expected+=" $spark"
done
# columns PICTURE: their titles, without what says that they are of a second.
columns() {
	sed -n 's/.*>  *PID COMMAND  *\(.*\)<.*/\1/p' "$1" | sed 's,/s,,g; s/ON GPU/ON_GPU/; s/ON HOST/ON_HOST/; s/ON SSD/ON_SSD/; s/TENANT SSD/TENANT_SSD/' | xargs
}
[ "$(wc -w <<<"$expected")" -ge 9 ] && [ " $(columns "$TOP/docs/img/uvmtop.svg")" = "$expected" ]
check "README's picture of uvmtop has the columns of uvmtop"
# And its lines of a GPU.
lines=$(sed -n '/^fn rate_lines/,/^}/s/^ *\(lines.push(\|let mut lines = vec!\[\)\?\(rate_line(\)\?"\([a-z]*\)",.*/\3/p' "$source/screen.rs")
for line in $lines; do
	grep -q ">  $line " "$TOP/docs/img/uvmtop.svg" || echo "$line"
done >"$work/said"
[ "$(wc -w <<<"$lines")" -ge 5 ] && [ ! -s "$work/said" ]
check "and its lines of a GPU"
done_testing
