#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What scripts/links.py takes for a link and for the name of a file, and which of them lead nowhere; and
# that a reader of the README finds the answers to five questions within two clicks.
# Markdown's marks are no shell's.
# shellcheck disable=SC2016
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../../scripts/lib.sh"
. "$(dirname "$0")/tap.sh"
# A check that fails is counted, and ends nothing.
set +e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree"/{docs/img,userlib/c/src,userlib/src,src/uvm_rust/policy/fault,src/seam/hooks/FACT_of_one}
touch "$work/stray" "$tree"/{docs/img/a.svg,userlib/c/src/calls.rs,userlib/src/x.c,src/uvm_rust/policy/fault.rs,src/uvm_rust/policy/fault/batch.rs}
touch "$tree"/src/seam/{uvm_rust_a.c,uvm_rust_b.c,hooks/FACT_of_one/x.cocci}
printf '# A page\n## Two  words, `code` and [a link](page.md)\n## Same\n## Same\n```\n# no heading\n```\n' >"$tree/docs/page.md"

# finds NAME FILE WANTED: in FILE, which is on standard input, on these lines; and the status says so.
finds() {
	local rc=0 want=0
	cat >"$tree/$2"
	"$TOP/scripts/links.py" "$tree" >"$work/said" || rc=$?
	[ -z "$3" ] || want=1
	[ "$(sed -n "s|^$2:\([0-9]*\): .*|\1|p" "$work/said" | paste -sd' ')" = "$3" ] && [ $rc = $want ]
	check "$1"
	rm "$tree/$2"
}

finds "links from where the page is: a file, a picture, a folder" docs/a.md "2 4" <<'MD'
[there](page.md) [up](../userlib/c/src/calls.rs "title") ![picture](img/a.svg) [folder](../userlib)
[not there](docs/page.md)
[`code` in it](page.md)
[two on a line](page.md) and ![none](img/b.svg)
MD
finds "what is outside the checkout is not there" docs/a.md 1 <<<'[out](../../stray)'
finds "other hosts are left alone" a.md "" <<<'[a](https://example.org/x#y) <https://example.org> [b](mailto:a@example.org)'
finds "a link by reference" a.md 2 <<'MD'
[a]: docs/page.md
[b]: docs/none.md
MD
finds "headings, by GitHub's names" docs/a.md "2 4 5 7" <<'MD'
[a](page.md#a-page) [b](page.md#two--words-code-and-a-link) [c](page.md#same) [d](page.md#same-1)
[e](page.md#same-2)
# Here
[f](page.md#no-heading) [g](#here)
[h](#there)
[i](page.md#a-page)
[j](page.md#A-page)
MD
finds "code is no link, and no name" a.md "" <<'MD'
`[a](none.md)`
```
[a](none.md) `src/none.rs`
```
MD
finds "names from the top" docs/a.md "1 2 4" <<'MD'
`src/seam/policy/fault.rs`
`src/uvm_rust/none/`
`src/uvm_rust/policy/` `userlib/c/src/calls.rs --option` `docs/page.md`
`docs/none`
MD
finds "names from the page's folder" userlib/a.md 2 <<'MD'
`src/x.c` `src/` `c/src/`
`src/calls.rs`
MD
finds "the end of a path" docs/a.md "2 3 4" <<'MD'
`policy/fault.rs` `fault.rs` `calls.rs` `policy/fault/` `c/src/`
`fault/fault.rs`
`none.rs`
`policy/none/`
MD
finds "names for several" a.md "2 3" <<'MD'
`uvm_rust_*.c` `policy/fault/{batch,*}.rs` `uvm_rust_{a,b}.c` `hooks/FACT/` `src/seam/hooks/FACT_of_one`
`uvm_rust_{a,c}.c`
`none_*.c`
MD
finds "names of others, and what is no file" a.md "" <<'MD'
`uvm_va_block.c` `nvidia/nv-pci.c` `linux/of_gpio.h` `uvm.h` `out/test/` `/dev/vgpu` `versions/calls` `a.b()` `failed/`
MD

printf '[a](one.md)\n' >"$tree/docs/first.md"
printf '[a](two.md) [b](https://example.org)\n' >"$tree/docs/one.md"
printf '[a](three.md)\n' >"$tree/docs/two.md"
printf 'The end.\n' >"$tree/docs/three.md"
"$TOP/scripts/links.py" --within 2 docs/first.md "$tree" | paste -sd' ' >"$work/said"
[ "$(cat "$work/said")" = "docs/first.md docs/one.md docs/two.md" ]
check "--within counts clicks"

# What a stranger asks first. Each answer is on a page two clicks from the README at most, and the code is
# as the page says.
"$TOP/scripts/links.py" --within 2 README.md >"$work/near"
# answers QUESTION PAGE TEXT: the page is near, and has this text.
answers() {
	{ grep -qxF "$2" "$work/near" && grep -qF "$3" "$TOP/$2"; } >"$work/said" 2>&1
	check "$1 ($2)"
}
answers "where a GPU fault enters Rust" docs/architecture.md '`uvm_rust_fault_service` in `src/uvm_rust/ffi/fault.rs` is where the fault enters Rust'
grep -q 'extern "C" fn uvm_rust_fault_service' "$TOP/src/uvm_rust/ffi/fault.rs"
check "and so it does"
answers "which lock guards the used queue" docs/evict.md 'The queues of a GPU change under `list_lock`, a spinlock in the physical memory manager (PMM) of each GPU'
grep -q '`pmm->list_lock`, a spinlock' "$TOP/src/uvm_rust/policy/evict.rs"
check "and so it does"
answers "how an eviction policy is added" docs/your-first-policy.md 'src/uvm_rust/policy/evict/policies/mru.rs'
answers "what happens to a page on a failed SSD read" docs/ssd.md '| a read fails | it is tried page by page, until 16 in a row have failed. A page that the device does not give is *lost for now*: it keeps its place. Whoever wants it a second or more after the last failed read in its va_block has it read again, and no others with it. A page that failed for want of memory, or because of a signal, does not count as lost |'
grep -q 'fn lost(&mut self, pages: &PageMask);' "$TOP/src/uvm_rust/policy/flash/fetch.rs" && grep -q 'SIGBUS' "$TOP/tests/suite/src/bin/flash/broken.rs"
check "and so it is, and a test sees the signal"
answers "how one of NVIDIA's tests is run by its name" docs/testing.md 'ladder --only UVM_TEST_PAGE_TREE'
grep -rq 'PAGE_TREE "UVM_TEST_PAGE_TREE"' "$TOP/tests/vgpu/client/src"
check "and there is one of that name"
# It shows the whole at a glance, and other pages have the rest.
[ "$(wc -l <"$TOP/docs/architecture.md")" -le 140 ]
check "docs/architecture.md is one page, of 140 lines at most"
done_testing
