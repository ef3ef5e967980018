// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The tree prefetcher: the same pages, found by fewer steps. Here they are found in the function that also clears them and
// makes the tree. Its other function: no_all_gpus_fault/.
@ mask @
typedef uvm_va_block_t, uvm_va_block_context_t, uvm_processor_id_t, uvm_page_mask_t, uvm_va_block_region_t, uvm_perf_prefetch_bitmap_tree_t;
iterator name for_each_va_block_page_in_region_mask;
identifier block, context, to, faulted, region, out, tree, max, page, part, done;
@@
uvm_perf_prefetch_prenotify_fault_migrations(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t to, const uvm_page_mask_t *faulted, uvm_va_block_region_t region, uvm_page_mask_t *out, uvm_perf_prefetch_bitmap_tree_t *tree)
{
...
+ if (uvm_rust_prefetch_mask(region, max, tree, &context->scratch_page_mask, out))
+ 	goto done;
for_each_va_block_page_in_region_mask(page, &context->scratch_page_mask, region) {
	uvm_va_block_region_t part = compute_prefetch_region(page, tree, max);
	...
}
done:
...
}
