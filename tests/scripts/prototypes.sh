#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Functions of upstream's that the seam replaces live on as NAME__c. Each gets its type from
# upstream's own header (UVM_RUST_C_BODY): one declared by hand would link with a version whose
# arguments are others. This looks at the names, and lets the compiler show what the macro is for.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
seam=$top/src/nvidia-uvm-c
# The compiler's words are looked at.
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# typed NAME FILE...: whether one of the files takes the type of NAME's body. Some bases call a
# function by another name than the files do; there a header makes one of the other.
typed() {
	local other name=$1
	shift
	grep -qsxF "UVM_RUST_C_BODY($name);" "$@" && return
	other=$(grep -rhE "^#define [a-z_0-9]+[[:space:]]+$name\$" "$seam/bases" | awk '{ print $2 }')
	[ -n "$other" ] && grep -qsxF "UVM_RUST_C_BODY($other);" "$@"
}

# lists SAYS: with what seam.sh says of upstream, what make finds in Kbuild: "object PATH" of ours, "replaced NAME" of upstream's.
lists() {
	mkdir -p "$work/src/uvm-rust/kernel/build"
	echo "$1" >"$work/src/uvm-rust/upstream.Kbuild"
	echo 'echo linux' >"$work/src/uvm-rust/kernel/build/probe.sh"
	# Upstream's macro gets the flags of an object; of ours, only those that rename are asked for.
	cat >"$work/lists.mk" <<-MAKE
		src := $work/src
		ASSIGN_PER_OBJ_CFLAGS = \$(foreach flag,\$(filter -D%__c,\$(2)),\$(info replaced \$(flag:-D%=%)))
		include $top/Kbuild
		\$(foreach object,\$(UVM_RUST_C_OBJECTS),\$(info object \$(object)))
		all: ;
	MAKE
	make --no-print-directory -s -f "$work/lists.mk" all 2>>"$work/said" | sed -E 's/^replaced ([a-z_0-9]*)=.*/replaced \1/'
}

# untyped SAYS: prints what Kbuild renames and no file that is built with it takes the type of.
untyped() {
	local name sources
	mapfile -t sources < <(lists "$1" | sed -nE "s|^object uvm-rust/nvidia-uvm-c/(.*)\.o$|$seam/\1.c|p")
	lists "$1" | sed -n 's/^replaced //p' | sort -u >"$work/replaced"
	# An empty list would be a fault of this test's.
	[ "$(wc -l <"$work/replaced")" -ge 10 ] || echo "only $(wc -l <"$work/replaced") names in Kbuild"
	while read -r name; do
		typed "$name" "${sources[@]}" "$seam"/*/*.h "$seam"/bases/native_discard/*.h || echo "$name is renamed, and has no UVM_RUST_C_BODY"
	done <"$work/replaced"
}

: >"$work/said"
untyped '' >>"$work/said"; [ ! -s "$work/said" ]
check "what Kbuild renames has its type from upstream's header"

: >"$work/said"
untyped 'UVM_RUST_NATIVE := 1' >>"$work/said"; [ ! -s "$work/said" ]
check "and so in 580 and later, where we only count"

: >"$work/said"
untyped 'UVM_RUST_FACTS := native_discard' >>"$work/said"; [ ! -s "$work/said" ] && grep -qx uvm_pmm_gpu_mark_root_chunk_discarded "$work/replaced"
check "and where all of ours is"

# What hooks rename, and files of the seam by a macro. Where a macro of the same name stands for
# the function, upstream's own definition of the body comes first in the same file.
: >"$work/said"
mapfile -t files < <(find "$seam" -name '*.[ch]')
grep -ohwrE '[a-z_0-9]+__c' "$seam" | sort -u | while read -r body; do
	name=${body%__c}
	typed "$name" "${files[@]}" || grep -qrE "^#define $name\(" "$seam" ||
		echo "$body is used, and has no UVM_RUST_C_BODY($name)"
done >>"$work/said"
[ ! -s "$work/said" ]
check "as has every other body that is called"

# A declaration has a type before the name; a call is indented and has none.
grep -nrE '^(static |extern )?[A-Za-z_][A-Za-z_0-9 *]*[ *][a-z_0-9]+__c\(|^[a-z_0-9]+__c\(|^[[:space:]]+([A-Za-z_]+[ *]+)+[a-z_0-9]+__c\(' \
	"$seam" | grep -vE '[[:space:]](return|else|do) +[a-z_0-9]+__c\(' >"$work/said"
[ ! -s "$work/said" ]
check "no body is declared by hand"

# compiles ARGUMENTS DECLARATION: a caller of the body of a function that upstream's header
# declares with these arguments.
compiles() {
	cat >"$work/caller.c" <<-C
		int uvm_replaced($1);
		$(grep -E '^#define UVM_RUST_C_BODY' "$seam/base/uvm_rust_types.h")
		$2
		int uvm_rust_calls(void) { return uvm_replaced__c(1); }
	C
	"${CC:-cc}" -std=gnu11 -fsyntax-only "$work/caller.c" >"$work/said" 2>&1
}

compiles 'int' 'UVM_RUST_C_BODY(uvm_replaced);'
check "the same arguments compile"

! compiles 'int, int' 'UVM_RUST_C_BODY(uvm_replaced);' && grep -q 'too few arguments' "$work/said"
check "one argument more does not"

! compiles 'void *, int' 'UVM_RUST_C_BODY(uvm_replaced);'
check "nor do others"

compiles 'int, int' 'int uvm_replaced__c(int);'
check "though they would if it were declared by hand"
done_testing
