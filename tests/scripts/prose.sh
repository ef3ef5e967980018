#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/prose.py takes for a docstring and for a sentence, and which of them it refuses.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../../scripts/lib.sh"
. "$(dirname "$0")/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree/tests"

# finds NAME FILE WANTED: in FILE, which is on standard input, on these lines; and the status says so.
finds() {
	local rc=0 want=0
	cat >"$tree/$2"
	"$TOP/scripts/prose.py" "$tree" >"$work/said" || rc=$?
	[ -z "$3" ] || want=1
	[ "$(sed -n "s|^$2:\([0-9]*\): .*|\1|p" "$work/said" | paste -sd' ')" = "$3" ] && [ $rc = $want ]
	check "$1"
	rm "$tree/$2"
}
# words N: so many, as one sentence.
words() { echo "$(printf 'word %.0s' $(seq $(($1 - 1))))word."; }

finds "Rust: a stub of a file, of an item, and of two lines" a.rs "1 3 7" <<'RUST'
//! The file.

/// Three short words.
fn a() {}
/// Four words are enough.
fn b() {}
/// Two lines,
/// stub.
fn c() {}
// No docstring.
fn d() {}
RUST
finds "Rust: what a caller must hold may be the name of an invariant, and headings are no words" a.rs 5 <<'RUST'
/// # Safety
///
/// I-call.
unsafe fn a() {}
/// # Errors
///
/// `EINVAL`, or `ENOMEM`.
fn b() {}
RUST
finds "C: a stub of a structure and of a member" a.h "2 3" <<'C'
/**
 * struct a - some memory
 * @base: bytes
 * @length: bytes, a multiple of 4096
 *
 * No more than one at a time.
 */
/* Short. */
C
{ echo '/**'; echo ' * It fails:'; for e in EINVAL ENOMEM; do echo " *   $e  $(words 30 | tr -d .)"; done; echo ' */'; } >"$work/long"
finds "C: each error of a list is a sentence" a.h "" <"$work/long"
finds "Python: of a module, a class and a function" a.py "1 5 8" <<'PYTHON'
"""A module."""


class A:
    """A class."""

    def b(self):
        """Does it."""
        return "a b."
PYTHON
{ words 45; words 46; } >"$work/long"
finds "a sentence of 45 words is long enough" a.md "2" <"$work/long"
{ echo '```'; words 60; echo '```'; echo "- $(words 30 | tr -d .)"; echo "- $(words 30)"; words 3; words 4; words 4; words 4; words 4; } >"$work/long"
finds "code is no sentence, and a point of a list ends one" a.md "" <"$work/long"
{ echo '| a | b |'; echo '|---|---|'; echo "| $(words 40) | $(words 40) |"; for i in 1 2 3 4; do words 4; done; } >"$work/long"
finds "so does a cell of a table" a.md "" <"$work/long"
for i in 1 2 3 4 5; do words 20; done >"$work/long"
finds "20 words on average are too many" a.md 1 <"$work/long"
head -n 4 "$work/long" >"$work/few"
finds "of four sentences there is no average" a.md "" <"$work/few"
{ cat "$work/few"; words 19; } >"$work/long"
finds "fewer than 20 are not" a.md "" <"$work/long"
echo "\`a b c\` e.g. [this](http://a.b/c?d. e) v1.2 $(words 41)" >"$work/long"
finds "code is one word; an abbreviation, a number and an address end nothing" a.md "" <"$work/long"
echo "e.g. v1.2 $(words 44)" >"$work/long"
finds "they count, however" a.md 1 <"$work/long"
{ printf '.TH A 1\n.SH NAME\na \\- b\n.PP\n%s\n.B bold\n%s\n.nf\n' "$(words 24 | tr -d .)" "$(words 21)"; words 60; echo .fi; } >"$work/long"
finds "a page of the manual" a.1 5 <"$work/long"
{ printf '.Dt A 3\n.Sh NAME\n%s\n.Fa a ,\n.Xr b 3 .\n%s\n.Pp\n%s\n.Bd -literal\n' "$(words 41 | tr -d .)" "$(words 20)" "$(words 3)"; words 60; echo .Ed; } >"$work/long"
finds "one in mdoc, whose macros stand in a sentence and end it" a.3 "" <"$work/long"
sed -i 's/^.Fa a ,/.Fa a b c/' "$work/long"
finds "their words count" a.3 3 <"$work/long"

stub='/// A stub.'
printf '%s\n' "$stub" 'fn a() {}' "$stub" 'fn b() {}' >"$tree/a.rs"
echo '2 a' >"$tree/tests/prose-allowed"
"$TOP/scripts/prose.py" "$tree" >"$work/said"
check "what the list allows is no error"
echo '1 a' >"$tree/tests/prose-allowed"
! "$TOP/scripts/prose.py" "$tree" >"$work/said" && grep -q '^a.rs:3: ' "$work/said"
check "what it does not is"
printf '# Why.\n3 a\n1 b\n' >"$tree/tests/prose-allowed"
! "$TOP/scripts/prose.py" "$tree" >"$work/said" && grep -q 'run scripts/prose.py --shrink' "$work/said"
check "a number that is too high is one, too"
"$TOP/scripts/prose.py" --shrink "$tree" >"$work/said" && [ "$(cat "$tree/tests/prose-allowed")" = $'# Why.\n2 a' ]
check "--shrink lowers it, and takes out who has none"
printf '%s\n' "$stub" 'fn c() {}' >>"$tree/a.rs"
! "$TOP/scripts/prose.py" --shrink "$tree" >"$work/said" && grep -q '^2 a$' "$tree/tests/prose-allowed"
check "--shrink raises nothing"

# Two stubs of three docstrings; of the sentences two have more than three words.
echo '2 a' >"$tree/tests/prose-allowed"
printf '%s\n' "$stub" 'fn a() {}' "$stub" 'fn b() {}' '/// This one has seven words in all.' 'fn c() {}' >"$tree/a.rs"
words 10 >"$tree/b.md"
"$TOP/scripts/prose.py" "$tree" >"$work/said" &&
	grep -qx '3 docstrings, 2 of at most 3 words; 2 sentences of 8.5 words on average' "$work/said"
check "all docstrings and sentences are counted, also where the list allows them"
done_testing
