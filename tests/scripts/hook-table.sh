#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Does docs/hooks.md list every function and structure of NVIDIA's that the build enters, and no
# other; docs/fixes.md every switch; and docs/uapi.md every other parameter of the module, with its default and when it changes?
# Kbuild's variables and Markdown's marks are no shell's.
# shellcheck disable=SC2016
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
seam=$top/src/nvidia-uvm-c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# renamed FILE: what a Kbuild gives the C body of another name.
renamed() {
	sed -z 's/\\\n//g' "$1" | sed -n 's/^\$(call uvm_rust_replace,[^,]*,\(.*\))$/\1/p' | tr -s ' \t' '\n' | grep .
}

# hooked FILE...: what semantic patches look into or rename: a name at the start of a line whose
# body follows, with that ending or without, a name that gets the ending __c, a structure, or an object of one. A name may stand for
# those of several versions.
hooked() {
	awk '
		/^identifier [a-z_]+ = \{.*\};$/ { sets[$2] = $0; gsub(/.*\{|\}.*|,|__c/, "", sets[$2]); gsub(/ /, "\n", sets[$2]) }
		held != "" && /^\{/ { print held in sets ? sets[held] : held }
		{ held = "" }
		/^[a-z_0-9]+\(.*\)$/ { held = $0; sub(/\(.*/, "", held); sub(/__c$/, "", held) }
		/^- [a-z_0-9]+$/ { old = $2 }
		/^\+ [a-z_0-9]+__c$/ && $2 == old "__c" { print old }
		/^struct [a-z_0-9]+ [a-z_0-9]+ = \{$/ { print $3 }
		/^struct [a-z_0-9]+ \{$/ { print $2 }' "$@"
}

# by_macro FILE...: what headers in front of NVIDIA's files, and those that include one, lead elsewhere.
by_macro() {
	sed -nE 's/^#define ([a-z_0-9]+)(\(.*|[[:space:]].*)$/\1/p' "$@" | grep -vE '^(uvm_rust_|for_each_rust|bitmap_|find_|mem(set|cpy)$|kbasename$)'
}

# listed FILE: the names in the first column of its tables.
listed() { grep '^| `' "$1" | cut -d'|' -f2 | grep -oE '`[a-z_0-9]+`' | tr -d '`'; }

# differ A B: says what either has that the other has not; whether there is any.
differ() {
	comm -3 <(sort -u "$1") <(sort -u "$2") | sed 's/^\t/not entered any more: /; t; s/^/missing: /' >"$work/said"
	[ -s "$work/said" ]
}

fronts=("$seam"/evict/uvm_rust_pmm_gpu.h "$seam"/discard/uvm_rust_va_block.h "$seam"/fixes/uvm_rust_{account,crowd,dirty,gpu_access_counters,hmm,migrate,migrate_lock,pmm_fixes,queues,split,wait_later}.h "$seam"/fault/uvm_rust_fault.c
	"$seam"/bases/*/uvm_rust_on_{fault,migrate}.h)
{ renamed "$top/Kbuild"; hooked "$seam"/hooks/*.cocci "$seam"/hooks/*/*.cocci "$seam"/hooks/*/*/*.cocci; by_macro "${fronts[@]}"; } >"$work/entered"
listed "$top/docs/hooks.md" >"$work/listed"
[ "$(wc -l <"$work/entered")" -gt 50 ] && ! differ "$work/entered" "$work/listed"
check "docs/hooks.md lists what the build enters"

# Each way of entering is seen by this test: one more is missed.
printf '$(call uvm_rust_replace,uvm_x.o, \\\n\tuvm_one uvm_two)\n' >"$work/Kbuild"
[ "$(renamed "$work/Kbuild" | xargs)" = "uvm_one uvm_two" ]
check "what Kbuild renames is seen"
printf '@@\n@@\nuvm_ten__c(...)\n{\n+ x();\n...\n}\n@@\n@@\nuvm_three(...)\n{\n<...\n+ x();\n  uvm_call(y);\n...>\n}\n@@\n@@\n- uvm_four\n+ uvm_four__c\n  (...) { ... }\n@@\nidentifier either = {uvm_eight, uvm_nine__c};\n@@\neither(...)\n{\n+ x();\n...\n}\n@@\n@@\nstruct uvm_five {\n+ int x;\n...\n};\nstruct x uvm_object = {\n  ...,\n+ .y = z,\n};\n' >"$work/x.cocci"
[ "$(hooked "$work/x.cocci" | xargs)" = "uvm_ten uvm_three uvm_four uvm_eight uvm_nine uvm_five uvm_object" ]
check "so is what semantic patches look into"
printf '#define uvm_six uvm_rust_six\n#define uvm_seven(x) uvm_rust_seven(x)\n#define uvm_rust_eight 8\n#define NINE 9\n' >"$work/x.h"
[ "$(by_macro "$work/x.h" | xargs)" = "uvm_six uvm_seven" ]
check "and what macros lead elsewhere"

sed -nE 's/.*fix\(([a-z_]+), ".*/\1/p' "$seam/fixes/uvm_rust_fixes.h" >"$work/switches"
listed "$top/docs/fixes.md" >"$work/listed"
[ "$(wc -l <"$work/switches")" -gt 5 ] && ! differ "$work/switches" "$work/listed"
check "docs/fixes.md lists every switch"
while read -r name; do grep -rqE "uvm_rust_fix_$name\b" "$seam" --include='*.[ch]' --include='*.cocci' || echo "uvm_rust_fix_$name has no use"; done <"$work/switches" >"$work/said"
[ ! -s "$work/said" ]
check "each switch switches something"

# parameters FILE...: name, default and when it changes, of each that X() or module_param() defines. What module_param() has beside
# its code is 0 without an initial value.
parameters() {
	sed -nE 's/.*X\([a-z]+, (uvm_rust_[a-z_]+), "?([a-z0-9]+)"?, (0[0-7]+),.*/\1 \2 \3/p; s/^module_param\((uvm_rust_[a-z_]+), [a-z]+, (0[0-7]+)\);/\1 0 \2/p' "$@" |
		sed -E 's/ true / 1 /; s/ false / 0 /; s/ 0444$/ at load/; s/ 06[0-7]+$/ at any time/'
}
# rows FILE: the same of the table of its section on module parameters.
rows() { sed -n '/^### Module parameters$/,/^## /s/^| `\([a-z_]*\)` | \([a-z0-9]*\) | \(at [a-z ]*\) |.*/\1 \2 \3/p' "$1"; }
parameters "$seam"/*/*.[ch] >"$work/parameters"
rows "$top/docs/uapi.md" >"$work/rows"
[ "$(wc -l <"$work/parameters")" -gt 25 ] && ! differ "$work/parameters" "$work/rows"
check "docs/uapi.md lists every module parameter, with its default and when it changes"
grep -rhoE 'module_param[a-z_]*\(uvm_rust_[a-z_]+' "$seam" --include='*.[ch]' | grep -vE 'uvm_rust_fix_$' | sed 's/.*(//' | sort >"$work/defined"
! grep -vxFf <(cut -d' ' -f1 "$work/parameters") "$work/defined" >"$work/said"
check "and no parameter is defined in a way that this test does not see"
printf '\tX(bool, uvm_rust_x, true, 0444, "x")\n\tX(charp, uvm_rust_y, "lru", 0644, \\\n\t  "y")\nmodule_param(uvm_rust_z, uint, 0600);\n' >"$work/p.h"
printf '### Module parameters\n| `uvm_rust_x` | 1 | at load | x |\n| `uvm_rust_y` | lru | at any time | y |\n## More\n| `uvm_rust_w` | 1 | at load | w |\n' >"$work/p.md"
parameters "$work/p.h" >"$work/parameters"
rows "$work/p.md" >"$work/rows"
differ "$work/parameters" "$work/rows" && [ "$(cat "$work/said")" = "missing: uvm_rust_z 0 at any time" ]
check "one that has no row is missed"
done_testing
