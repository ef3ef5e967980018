/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_hmm.c: ordinary memory on a GPU that a VA space has not registered, as another VA space of the process has moved it there.
 * A va_block knows no such GPU: NVIDIA's code follows a NULL pointer for it (gpu_chunk_add()).
 */
#ifndef UVM_RUST_STRANGERS_H
#define UVM_RUST_STRANGERS_H

#include <linux/bitmap.h>
#include <linux/hmm.h>
#include <linux/migrate.h>

#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_files.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_on_spaces.h"

/* Whether @page, which is mapped or isolated, is on a GPU that @va_space has not registered. */
static inline bool uvm_rust_is_strangers(uvm_va_space_t *va_space, struct page *page)
{
	return uvm_rust_fix_two_spaces && is_device_private_page(page) &&
	       !uvm_processor_mask_test(&va_space->registered_gpus, uvm_rust_gpu_of_page(page));
}

/*
 * Called by the hook in migrate_vma_setup_locked(): the pages of strangers' GPUs that @args have isolated are not moved. Linux puts them
 * back where they were.
 */
static inline void uvm_rust_leaves_strangers(struct migrate_vma *args, uvm_va_space_t *va_space)
{
	for (unsigned long i = 0; i < args->npages; i++) {
		struct page *page = migrate_pfn_to_page(args->src[i]);

		if (page && args->src[i] & MIGRATE_PFN_MIGRATE && uvm_rust_is_strangers(va_space, page)) {
			args->src[i] &= ~MIGRATE_PFN_MIGRATE;
			args->cpages--;
		}
	}
}

/* Is page @i of @args, which begin with @region, one of @moving that another VA space has moved to a GPU that this one has not registered? */
static inline bool uvm_rust_is_away(uvm_va_block_t *va_block, const struct migrate_vma *args, unsigned long i, uvm_va_block_region_t region,
				    const uvm_page_mask_t *moving)
{
	struct page *page = migrate_pfn_to_page(args->src[i]);

	return page && uvm_page_mask_test(moving, region.first + i) && uvm_rust_is_strangers(va_block->hmm.va_space, page);
}

/* Whether there is such a page. */
static inline bool uvm_rust_has_away(uvm_va_block_t *va_block, const struct migrate_vma *args, uvm_va_block_region_t region,
				     const uvm_page_mask_t *moving)
{
	for (unsigned long i = 0; i < args->npages; i++) {
		if (uvm_rust_is_away(va_block, args, i, region, moving))
			return true;
	}
	return false;
}

/*
 * With what Linux has just said of @region, and the va_block's lock held. Pages of strangers' GPUs have to come to the host first. Their
 * own VA space brings them, for a work item that has no locks of this one's. Whoever may not be put off gets an error: that is UVM_MIGRATE,
 * or upstream's fault loop. NV_OK if there are none.
 */
static NV_STATUS uvm_rust_asks_strangers(uvm_va_block_t *va_block, struct vm_area_struct *vma, const unsigned long *pfns,
					 uvm_va_block_region_t region)
{
	DECLARE_BITMAP(away, PAGES_PER_UVM_VA_BLOCK) = { 0 };
	unsigned long pages = uvm_va_block_region_num_pages(region);
	uvm_page_index_t index;

	for_each_va_block_page_in_region(index, region) {
		if ((pfns[index] & (HMM_PFN_VALID | HMM_PFN_ERROR)) == HMM_PFN_VALID &&
		    uvm_rust_is_strangers(va_block->hmm.va_space, hmm_pfn_to_page(pfns[index])))
			__set_bit(index - region.first, away);
	}
	if (bitmap_empty(away, pages))
		return NV_OK;
	if (!uvm_rust_puts_off(va_block->hmm.va_space))
		return NV_ERR_INVALID_ADDRESS;
	return uvm_rust_hmm_status(uvm_rust_files_ask(vma->vm_mm, uvm_va_block_cpu_page_address(va_block, region.first),
						      pages, away, false, false));
}

#endif
