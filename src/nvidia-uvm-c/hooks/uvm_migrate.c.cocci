// SPDX-License-Identifier: GPL-2.0-only OR MIT
// UVM_MIGRATE maps what no processor maps for reading, writing and atomics. A page
// that is read-duplicated has several copies also while nobody maps it: leave it
// to the next step, which looks at each page.
@@
typedef uvm_va_block_t, uvm_va_block_context_t;
identifier block, context;
// Before 550 the mask was made in place.
identifier unmapped_pages = {uvm_va_block_unmapped_pages_get, uvm_page_mask_complement};
@@
block_migrate_map_unmapped_pages(uvm_va_block_t *block, ..., uvm_va_block_context_t *context, ...)
{
<...
unmapped_pages(...);
+ uvm_rust_keep_read_duplicated(block, context);
...>
}
