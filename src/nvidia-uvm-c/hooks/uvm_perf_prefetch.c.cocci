// The tree prefetcher: the same pages, found by fewer steps.
@ grow @
typedef uvm_perf_prefetch_bitmap_tree_t, uvm_va_block_region_t, uvm_page_mask_t;
type T;
identifier tree, size, big, max, faulted, thrashing;
@@
grow_fault_granularity(uvm_perf_prefetch_bitmap_tree_t *tree, T size, uvm_va_block_region_t big, uvm_va_block_region_t max, const uvm_page_mask_t *faulted, const uvm_page_mask_t *thrashing)
{
...
+ if (uvm_rust_grow_faults(tree, size, big, max, faulted, thrashing))
+ 	return;
if (!big.outer) { ... }
...
}

@ mask @
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
