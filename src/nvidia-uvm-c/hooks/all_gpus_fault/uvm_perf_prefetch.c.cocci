// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The tree prefetcher: the same big pages, found by fewer steps. They have one size.
@ grow @
typedef uvm_perf_prefetch_bitmap_tree_t, uvm_va_block_region_t, uvm_page_mask_t;
identifier tree, big, max, faulted, thrashing;
@@
grow_fault_granularity(uvm_perf_prefetch_bitmap_tree_t *tree, uvm_va_block_region_t big, uvm_va_block_region_t max, const uvm_page_mask_t *faulted, const uvm_page_mask_t *thrashing)
{
...
+ if (uvm_rust_grow_faults(tree, UVM_BIG_PAGE_SIZE, big, max, faulted, thrashing))
+ 	return;
if (!big.outer) { ... }
...
}
