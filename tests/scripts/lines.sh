#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/lines.sh takes for code: of C and Rust with comments, strings and tests.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../../scripts/lib.sh"
. "$(dirname "$0")/tap.sh"
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
c=$work/src/nvidia-uvm-c rust=$work/src/uvm_rust
mkdir -p "$c/"{fixes,hooks} "$rust/"{ffi,driver,policy/tests,policy/benches,policy/fuzz}

# counts NAME FILE WANTED: of FILE, which is on standard input, beside files with nothing in them.
counts() {
	cat >"$2"
	"$TOP/scripts/lines.sh" "$work" >"$work/table"
	tr -d '{}" ' <"$work/out/lines.json" | tr , '\n' | awk -F: '$2 > 0 { print $1, $2 }' >"$work/said"
	: >"$2"
	[ "$(cat "$work/said")" = "$3" ]
	check "$1"
}
for f in "$c/a.c" "$rust/ffi.rs" "$rust/driver.rs" "$rust/uvm_rust.rs"; do : >"$f"; done

counts "nothing" "$c/a.c" "" </dev/null
counts "blanks and comments of C" "$c/a.c" "c_seam 4" <<'C'
/* One. */

/*
 * Many.
 */
int a; /* Beside. */
/* Before. */ int b;
// A line.
	int c; /* One that
	goes on. */ int d;
C
counts "what begins like a comment in a string" "$c/a.c" "c_seam 3" <<'C'
const char *a = "/*";
const char *b = "http://";
int c;
C
counts "a header" "$c/a.h" "c_seam 1" <<<'int a;'
counts "a fix" "$c/fixes/a.h" "c_fixes 1" <<<'int a;'
mkdir -p "$c/bases/"{550,new}
counts "what is for 550 is of the seam" "$c/bases/550/a.h" "c_seam 1" <<<'int a;'
counts "what is for others is not" "$c/bases/new/a.h" "c_bases 1" <<<'int a;'
counts "a hook is no C" "$c/hooks/a.cocci" "" <<<'int a;'
counts "Rust, and its documentation" "$rust/driver/a.rs" "rust_driver 3" <<'RUST'
//! A file.

/// A function.
fn a() {
    // Why.
    b();
}
RUST
counts "what comes behind a module of tests counts again" "$rust/policy/a.rs" "rust_policy 2" <<'RUST'
fn a() {}
#[cfg(test)]
mod tests {
    #[test]
    fn b() {
        assert!(true);
    }
}
#[cfg(test)]
mod more;
fn c() {}
RUST
counts "a file of tests" "$rust/policy/tests.rs" "" <<<'fn a() {}'
counts "a folder of tests" "$rust/policy/tests/a.rs" "" <<<'fn a() {}'
counts "what is measured" "$rust/policy/benches/a.rs" "" <<<'fn a() {}'
counts "what is fuzzed" "$rust/policy/fuzz/a.rs" "" <<<'fn a() {}'
counts "what faces C" "$rust/ffi/a.rs" "rust_ffi 1" <<<'fn a() {}'
counts "what bindgen wrote" "$rust/ffi/bindings.rs" "" <<<'fn a() {}'
printf 'int a;\n' >"$c/a.c"
printf 'fn a() {}\nfn b() {}\nfn c() {}\n' >"$rust/driver.rs"
"$TOP/scripts/lines.sh" "$work" >"$work/table"
tail -n 1 "$work/table" >"$work/said"
[ "$(cat "$work/said")" = "Rust is 75 of a hundred lines, fixes and other versions apart." ]
check "the share of Rust"

# bars NAME RESULT: with --check it is `met `, or `missed` with the one bar that is.
bars() {
	local result=met
	"$TOP/scripts/lines.sh" --check "$work" >"$work/table" 2>/dev/null || result=missed
	sed -n 's/ *[0-9]* *[0-9]*  NO$//p' "$work/table" >"$work/said"
	[ "$result $(cat "$work/said")" = "$2" ]
	check "$1"
}
# many N LINE: so many of them.
many() {
	local i
	for ((i = 0; i < $1; i++)); do echo "$2"; done
}
bars "more Rust in driver/ than C" "met "
mkdir -p "$c/fault" "$rust/driver/flash"
many 3 'int a;' >"$c/a.c"
bars "as much C as Rust in driver/" "missed C of the seam, less than the Rust of driver/"
many 2501 'fn a() {}' >"$rust/driver.rs"
many 2500 'int a;' >"$c/a.c"
bars "2,500 lines of C" "met "
many 2502 'fn a() {}' >"$rust/driver.rs"
many 2501 'int a;' >"$c/a.c"
bars "one more" "missed C of the seam, at most"
many 4 'int a;' >"$c/fault/a.c"
: >"$c/a.c"
many 3 'fn a() {}' >"$rust/driver/fault.rs"
many 9 'fn a() {}' >"$rust/driver/flash/fault.rs"
bars "a subject that is in C" "missed C of fault, at most as much as its Rust"
echo 'fn a() {}' >"$rust/ffi/tree.rs"
bars "a subject that is half in C" "met "
many 7 'int a;' >"$c/bases/new/a.h"
bars "other versions are not in the seam" "met "
grep -qx "For versions other than 550 there are 7 lines of C more, 11 together; no driver has all of them." "$work/table"
check "and are told beside it"

"$TOP/scripts/lines.sh" --check >"$work/said" 2>&1
check "this checkout"
done_testing
