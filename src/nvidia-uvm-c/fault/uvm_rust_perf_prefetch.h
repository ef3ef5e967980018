/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_perf_prefetch.c: what its hooks call. The tree prefetcher's rule stays
 * upstream's; what comes along is found by fewer steps (policy/tree.rs). With
 * uvm_rust_fault=0 both give false, and upstream's code goes on.
 */
#ifndef UVM_RUST_PERF_PREFETCH_H
#define UVM_RUST_PERF_PREFETCH_H

#include "uvm_perf_prefetch.h"
#include "uvm_va_block.h"
#include "uvm_rust_fault_ffi.h"
#include "uvm_rust_hooks.h"

/* Upstream's, defined below. */
static unsigned g_uvm_perf_prefetch_threshold;

static inline struct uvm_rust_tree uvm_rust_tree_over(const uvm_perf_prefetch_bitmap_tree_t *tree, uvm_va_block_region_t max)
{
	BUILD_BUG_ON(PAGES_PER_UVM_VA_BLOCK != 512);
	return (struct uvm_rust_tree) { max.first, max.outer, tree->offset, tree->leaf_count };
}

static inline bool uvm_rust_grow_faults(uvm_perf_prefetch_bitmap_tree_t *tree, NvU64 big_page_size,
					uvm_va_block_region_t big, uvm_va_block_region_t max,
					const uvm_page_mask_t *faulted, const uvm_page_mask_t *thrashing)
{
	struct uvm_rust_tree shape = uvm_rust_tree_over(tree, max);

	if (!uvm_rust_fault)
		return false;
	uvm_rust_tree_grow(&shape, big.first, big.outer, big_page_size / PAGE_SIZE, uvm_rust_mask(faulted),
			   uvm_rust_mask(thrashing), uvm_rust_mask_out(&tree->pages));
	return true;
}

static inline bool uvm_rust_prefetch_mask(uvm_va_block_region_t region, uvm_va_block_region_t max,
					  const uvm_perf_prefetch_bitmap_tree_t *tree,
					  const uvm_page_mask_t *faulted, uvm_page_mask_t *out)
{
	struct uvm_rust_tree shape = uvm_rust_tree_over(tree, max);

	if (!uvm_rust_fault)
		return false;
	uvm_rust_tree_prefetch(&shape, region.first, region.outer, g_uvm_perf_prefetch_threshold,
			       uvm_rust_mask(faulted), uvm_rust_mask(&tree->pages), uvm_rust_mask_out(out));
	return true;
}

#endif
