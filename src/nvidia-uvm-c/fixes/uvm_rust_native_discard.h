/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c where upstream discards by itself (580 and later), behind uvm_rust_va_block.h if all of ours is
 * built: mends of that discard, which runs with uvm_rust_discard=0, and with UVM_RUST_WHOLE=0. While ours is on, upstream
 * has no discarded page, and these do nothing.
 */
#ifndef UVM_RUST_NATIVE_DISCARD_H
#define UVM_RUST_NATIVE_DISCARD_H

#include "uvm_va_space.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"

/* What needs functions of uvm_rust_va_block.h. */
#ifndef UVM_RUST_NATIVE
/*
 * Before pages of the host's are made resident: of @mask in @region, zeroes those that are discarded and have their memory
 * already. Upstream zeroes memory of the host's when a va_block gets it, and not what is on a GPU at that moment, as it will be
 * copied there. A page that is discarded is not copied, and would show what the memory's last owner left.
 *
 * Caller holds the va_block's lock. None of the pages is resident where it goes.
 */
static NV_STATUS uvm_rust_zero_discarded(uvm_va_block_t *block, const uvm_page_mask_t *mask, uvm_va_block_region_t region)
{
	uvm_page_mask_t pages __uninitialized;
	uvm_page_index_t page;
	NV_STATUS status;

	if (!uvm_rust_fix_host_pages || uvm_va_block_is_hmm(block))
		return NV_OK;
	uvm_page_mask_init_from_region(&pages, region, mask);
	uvm_page_mask_and(&pages, &pages, &block->cpu.allocated);
	if (!uvm_page_mask_and(&pages, &pages, &block->discarded_pages))
		return NV_OK;

	/* A GPU may still be reading or writing them. */
	status = uvm_tracker_wait(&block->tracker);
	if (status != NV_OK)
		return status;
	for_each_va_block_page_in_region_mask(page, &pages, region)
		zero_cpu_page(block, page);
	return NV_OK;
}
#endif

/*
 * How a discard breaks read duplication: a move that leaves one copy of each duplicated page. Each move notes in @context which
 * of its pages are discarded, and the discard keeps there what it was asked for. Upstream then unmaps the duplicated pages
 * alone. The others stay mapped for writing, where nobody sees that they are written to.
 */
static NV_STATUS uvm_rust_break_duplicates(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_va_block_context_t *context,
					   uvm_processor_id_t to, uvm_va_block_region_t region,
					   const uvm_page_mask_t *pages, const uvm_page_mask_t *prefetched,
					   uvm_make_resident_cause_t cause)
{
	uvm_page_mask_t asked __uninitialized;
	NV_STATUS status;

	uvm_page_mask_copy(&asked, &context->discard.discarded_pages);
	status = uvm_va_block_make_resident(block, retry, context, to, region, pages, prefetched, cause);
	if (uvm_rust_fix_kept_mapped)
		uvm_page_mask_copy(&context->discard.discarded_pages, &asked);
	return status;
}

/* Upstream's, defined below in uvm_va_block.c. */
static NV_STATUS va_block_discard_locked(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_va_block_context_t *context,
					 NvU64 flags, uvm_tracker_t *tracker);
static void block_discarded_mapped_pages_get(uvm_va_block_t *block, uvm_page_mask_t *pages);

/*
 * A discard of the pages that @context names. Upstream marks them first, and then breaks read duplication and unmaps, either of
 * which may fail. A page that is marked and still mapped would be written to unnoticed, though the caller was told that the discard
 * had failed: such a page is live again. Pages that are not mapped stay as they are, as whoever writes to one faults; their memory
 * may not be fit to be seen.
 *
 * Where the call is to be tried again, @context then names the pages that are left to do, of which those that fail are mapped.
 */
static NV_STATUS uvm_rust_discard_locked(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_va_block_context_t *context,
					 NvU64 flags, uvm_tracker_t *tracker)
{
	uvm_page_mask_t asked __uninitialized, live __uninitialized;
	NV_STATUS status;

	uvm_page_mask_copy(&asked, &context->discard.discarded_pages);
	status = va_block_discard_locked(block, retry, context, flags, tracker);
	if (status == NV_OK || status == NV_ERR_MORE_PROCESSING_REQUIRED || !uvm_rust_fix_kept_mapped)
		return status;
	block_discarded_mapped_pages_get(block, &live);
	uvm_page_mask_and(&live, &live, &asked);
	uvm_page_mask_andnot(&block->discarded_pages, &block->discarded_pages, &live);
	return status;
}

/*
 * In uvm_va_block_page_compute_highest_permission(), of a page that is resident in one place, which the processor reaches: whether
 * it may only be read, as it is discarded. Breaking read duplication maps the whole va_block, and other calls map what is
 * resident: a discarded page is that once it was evicted, or read. Upstream gives it a mapping for writing, and is told of no
 * write. Such a page is to be written to by way of a fault, which ends the discard, as it is after a fault that reads it.
 * A GPU that cannot fault cannot ask later.
 */
static bool uvm_rust_may_only_read(uvm_va_block_t *block, uvm_page_index_t page)
{
	return uvm_rust_fix_kept_mapped && uvm_page_mask_test(&block->discarded_pages, page) &&
	       !uvm_rust_has_non_faultable(uvm_va_block_get_va_space(block));
}

#endif
