// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A page that is resident nowhere does not thrash. Upstream knows no such pages with a record: ours were dropped, in an
// eviction that may not take the VA space's lock, or are on a device. The caller holds that lock.
@ hint @
typedef uvm_va_block_t, va_space_thrashing_info_t, block_thrashing_info_t;
identifier block, known, page, of_page;
@@
uvm_perf_thrashing_get_hint(uvm_va_block_t *block, ...)
{
<...
+ if (uvm_page_mask_test(&known->thrashing_pages, page) && uvm_rust_is_nowhere(block, page))
+ 	thrashing_reset_page(va_space_thrashing, block, known, page);
  of_page = &known->pages[page];
...>
}
