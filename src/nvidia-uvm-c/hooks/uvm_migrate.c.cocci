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

// Before each va_block, with none locked: those of one process wait while it has much on its way, and others copy as well.
@ link @
identifier block, region, to;
expression E1, E2;
@@
uvm_va_range_migrate_multi_block(..., uvm_processor_id_t to, ...)
{
<...
region = uvm_va_block_region_from_start_end(block, E1, E2);
+ uvm_rust_link_next(block, uvm_rust_memory(to), uvm_va_block_region_size(region));
...>
}
