// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The tree prefetcher: the same pages, found by fewer steps. Its other function: all_gpus_fault/ and no_all_gpus_fault/.
@ mask @
typedef uvm_perf_prefetch_bitmap_tree_t, uvm_va_block_region_t, uvm_page_mask_t;
identifier region, max, tree, faulted, out;
@@
compute_prefetch_mask(uvm_va_block_region_t region, uvm_va_block_region_t max, uvm_perf_prefetch_bitmap_tree_t *tree, const uvm_page_mask_t *faulted, uvm_page_mask_t *out)
{
...
uvm_page_mask_zero(out);
+ if (uvm_rust_prefetch_mask(region, max, tree, faulted, out))
+ 	return;
...
}
