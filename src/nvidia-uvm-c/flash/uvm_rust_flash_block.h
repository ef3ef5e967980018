/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The SSD tier, the part that needs what is static in upstream's uvm_va_block.c; included
 * by uvm_rust_va_block.h, which see.
 *
 * A page on flash is resident nowhere to upstream, which would hand it out zeroed. It
 * is brought to host memory before upstream looks, so that what follows is an ordinary
 * migration from the host: one place serves GPU faults, CPU faults, UVM_MIGRATE and
 * prefetches.
 */
#include <linux/sched/signal.h>

#include "uvm_va_policy.h"
#include "uvm_va_range.h"

#include "uvm_rust_flash.h"

/* Upstream's, defined below in uvm_va_block.c. */
#if UVM_RUST_UPSTREAM < 550
static NV_STATUS block_populate_pages_cpu(uvm_va_block_t *block, uvm_page_mask_t *populate_page_mask,
					  uvm_va_block_region_t populate_region,
					  uvm_va_block_context_t *block_context);
#else
static NV_STATUS block_populate_pages_cpu(uvm_va_block_t *block, uvm_page_mask_t *populate_page_mask,
					  uvm_va_block_region_t populate_region,
					  uvm_va_block_context_t *block_context, bool staged);
#endif
static void block_set_resident_processor(uvm_va_block_t *block, uvm_processor_id_t id);

static struct page *flash_host_page(uvm_va_block_t *block, uvm_page_index_t index, int *node)
{
	int nid;

	for_each_rust_node(nid) {
		struct page *page = uvm_rust_cpu_page(block, nid, index);

		if (page) {
			*node = nid;
			return page;
		}
	}
	return NULL;
}

bool uvm_seam_flash_hold(uvm_va_block_t *block, const struct uvm_rust_mask *pages, struct uvm_seam_flash_io *io)
{
	const uvm_page_mask_t *mask = (const uvm_page_mask_t *)pages;
	uvm_page_index_t index;
	int nid;

	for_each_va_block_page_in_mask(index, mask, block) {
		io->pages[index] = flash_host_page(block, index, &nid);
		if (!io->pages[index]) {
			uvm_seam_flash_release(io);
			return false;
		}
		get_page(io->pages[index]);
	}
	return true;
}

/*
 * How often pages of @folio, of UVM's, are in page tables, where each has an entry of its own. Before 6.10
 * folio_mapcount() needs what the kernel keeps to itself.
 */
static long flash_mapcount(struct folio *folio)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	long i, count = 0;

	for (i = 0; i < folio_nr_pages(folio); i++)
		count += atomic_read(&folio_page(folio, i)->_mapcount) + 1;
	return count;
#else
	return folio_mapcount(folio);
#endif
}

/*
 * Takes those out of @pages that somebody else than UVM and the page tables of processes
 * has a reference of. Caller holds the block's lock, under
 * which pages get their mappings. One that goes at this moment (munmap()) is uncounted before
 * its reference, and the page stays.
 *
 * UVM has one reference of each allocation, which may be of 2 MiB, and each mapping has one.
 * Our own for the time of a write or a read count as anybody's: the pages around stay a
 * little longer. A reference that is about to be dropped does no more.
 *
 * If the pages have been unmapped, nobody gets a new reference meanwhile: who walks page
 * tables without a lock takes the reference first, and gives it back if the entry has changed
 * since (gup_fast_pte_range()); the entry was changed before we look here.
 */
static bool flash_is_held(struct page *page)
{
	struct folio *folio = page_folio(page);

	return folio_ref_count(folio) > 1 + flash_mapcount(folio);
}

void uvm_seam_flash_leave_held(uvm_va_block_t *block, struct uvm_rust_mask *pages)
{
	uvm_page_mask_t *mask = (uvm_page_mask_t *)pages;
	uvm_page_index_t index;
	int nid;

	/* Pairs with the reference that is taken before the entry is looked at again. */
	smp_mb();
	for_each_va_block_page_in_mask(index, mask, block) {
		struct page *page = flash_host_page(block, index, &nid);

		if (!page || flash_is_held(page))
			uvm_page_mask_clear(mask, index);
	}
}

void uvm_seam_flash_arrived(uvm_va_block_t *block, const struct uvm_rust_mask *pages)
{
	const uvm_page_mask_t *arrived = (const uvm_page_mask_t *)pages;
	uvm_page_index_t index;
	int nid;

	for_each_va_block_page_in_mask(index, arrived, block) {
		if (!flash_host_page(block, index, &nid))
			continue;
		uvm_rust_set_resident_page(block, nid, index);
		mark_cpu_page_dirty(block, index, nid);
	}
	block_set_resident_processor(block, UVM_ID_CPU);
	if (block->uvm_rust)
		uvm_rust_block_prepare(block->uvm_rust, UVM_RUST_MEMORY_HOST, pages);
}

void uvm_seam_flash_unchanged(uvm_va_block_t *block, struct uvm_seam_flash_io *io, struct uvm_rust_mask *pages)
{
	uvm_page_mask_t *mask = (uvm_page_mask_t *)pages;
	uvm_page_index_t index;
	int nid;

	for_each_va_block_page_in_mask(index, mask, block) {
		if (flash_host_page(block, index, &nid) != io->pages[index])
			uvm_page_mask_clear(mask, index);
	}
}

__u32 uvm_seam_flash_populate(uvm_va_block_t *block, struct uvm_seam_context *of, struct uvm_rust_mask *mask)
{
	uvm_va_block_context_t *context = (uvm_va_block_context_t *)of;
	uvm_page_mask_t *pages = (uvm_page_mask_t *)mask;
	uvm_va_block_region_t region = uvm_va_block_region_from_block(block);
	uvm_memcg_context_t memcg_context;
	NV_STATUS status;

	region = uvm_va_block_region(find_first_bit(pages->bitmap, region.outer),
				     find_last_bit(pages->bitmap, region.outer) + 1);
	uvm_memcg_context_start(&memcg_context, context->mm);
#if UVM_RUST_UPSTREAM < 550
	status = block_populate_pages_cpu(block, pages, region, context);
#else
	status = block_populate_pages_cpu(block, pages, region, context, false);
#endif
	uvm_memcg_context_end(&memcg_context);
	return status;
}

bool uvm_rust_flash_copies = true;
module_param(uvm_rust_flash_copies, bool, 0444);
MODULE_PARM_DESC(uvm_rust_flash_copies,
		 "Keep what is fetched from flash there as well while it is only read, in read-mostly memory (default 1)");

bool uvm_seam_flash_is_read_mostly(uvm_va_block_t *block)
{
	return uvm_va_policy_is_read_duplicate(uvm_va_range_get_policy(block->va_range),
					       uvm_va_block_get_va_space(block));
}

void uvm_seam_flash_lost(uvm_va_block_t *block, u32 pages)
{
	pr_err_ratelimited("nvidia-uvm: flash: %u pages of [0x%llx, 0x%llx) of process %d cannot be read: "
			   "it will get SIGBUS or a GPU fault\n", pages, block->start, block->end + 1, current->tgid);
}

/*
 * Whether it is for a GPU's fault, which the loop in Rust has looked at before. Upstream gives
 * CPU faults the same cause; they are serviced by the thread that faults.
 */
static bool flash_was_parked(uvm_va_block_context_t *context)
{
	return context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT &&
	       (current->flags & PF_KTHREAD) && uvm_rust_flash_parks();
}

/* From the hook in block_populate_pages(), which both ways to make pages resident pass. */
static NV_STATUS flash_before_populate(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t to,
				       uvm_va_block_region_t region, const uvm_page_mask_t *mask)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	bool evicting = context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_EVICTION;
	struct uvm_rust_flash_owner *owner;
	uvm_page_mask_t wanted, set;

	if (uvm_va_block_is_hmm(block))
		return NV_OK;
	owner = uvm_rust_flash_owner_of(uvm_va_block_get_va_space(block));
	uvm_page_mask_init_from_region(&wanted, region, mask);
	/*
	 * An eviction cannot be called again, and takes only what is on a GPU. GPU faults have waited
	 * outside the locks that others need (uvm_rust_flash_park()). Whoever is being killed is not to
	 * wait for a device that may never answer.
	 */
	if (!evicting && !flash_was_parked(context) && !fatal_signal_pending(current) &&
	    uvm_rust_owner_must_wait(owner->rust) && uvm_rust_flash_needs_host(block, to, &wanted)) {
		uvm_mutex_unlock(&block->lock);
		uvm_rust_flash_wait_room(owner);
		uvm_mutex_lock(&block->lock);
		return NV_ERR_MORE_PROCESSING_REQUIRED;
	}
	if (!uvm_rust_flash_block_is_used(f))
		return NV_OK;
	uvm_rust_flash_touched(f, uvm_rust_mask(&wanted));
	if (evicting)
		return NV_OK;
	/* What was discarded while it is read is in flight only: its memory is not to be used before that ends. */
	if (!uvm_rust_flash_set(block, UVM_RUST_FLASH_ON_FLASH, &set) &&
	    !uvm_rust_flash_set(block, UVM_RUST_FLASH_IN_FLIGHT, &set) &&
	    !uvm_rust_flash_set(block, UVM_RUST_FLASH_LOST, &set))
		return NV_OK;
	return uvm_rust_flash_fetch(block, (struct uvm_seam_context *)context, uvm_rust_mask(&wanted),
				    context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT ||
				    context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_NON_REPLAYABLE_FAULT);
}

/* --- writing to what flash has as well --------------------------------------------------- */

/* Upstream's, which the hooks in uvm_va_block.c call by these names. */
UVM_RUST_C_BODY(uvm_va_block_map);
UVM_RUST_C_BODY(uvm_va_block_page_compute_highest_permission);

/* All mappings are made here: whoever gets one for writing may write. */
NV_STATUS uvm_va_block_map(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t id,
			   uvm_va_block_region_t region, const uvm_page_mask_t *mask, uvm_prot_t prot,
			   UvmEventMapRemoteCause cause, uvm_tracker_t *tracker)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key) && prot > UVM_PROT_READ_ONLY) {
		uvm_page_mask_t pages;

		uvm_page_mask_init_from_region(&pages, region, mask);
		uvm_rust_flash_may_be_written(block, &pages);
	}
	return uvm_va_block_map__c(block, context, id, region, mask, prot, cause, tracker);
}

/* Who did not ask for it is not to write to such a page; but a GPU that cannot fault cannot ask later. */
static uvm_prot_t flash_highest_permission(uvm_va_block_t *block, uvm_page_index_t index, uvm_prot_t prot)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key) && prot > UVM_PROT_READ_ONLY &&
	    uvm_rust_flash_has(block, UVM_RUST_FLASH_COPIES, index) &&
	    !uvm_rust_has_non_faultable(uvm_va_block_get_va_space(block)))
		return UVM_PROT_READ_ONLY;
	return prot;
}

#if UVM_RUST_UPSTREAM < 550
uvm_prot_t uvm_va_block_page_compute_highest_permission(uvm_va_block_t *block, uvm_processor_id_t id,
							uvm_page_index_t index)
{
	return flash_highest_permission(block, index,
					uvm_va_block_page_compute_highest_permission__c(block, id, index));
}
#else
uvm_prot_t uvm_va_block_page_compute_highest_permission(uvm_va_block_t *block, uvm_va_block_context_t *context,
							uvm_processor_id_t id, uvm_page_index_t index)
{
	return flash_highest_permission(block, index,
					uvm_va_block_page_compute_highest_permission__c(block, context, id, index));
}
#endif

/* --- leaving host memory --------------------------------------------------------------- */

/* The host memory of @chunk_region may go: nothing of it is resident, or about to be. */
static bool flash_is_unused(uvm_va_block_t *block, uvm_va_block_region_t region, const uvm_page_mask_t *in_flight)
{
	return uvm_page_mask_region_empty(&block->cpu.resident, region) &&
	       uvm_page_mask_region_empty(in_flight, region);
}

__u32 uvm_seam_flash_unmap(uvm_va_block_t *block, struct uvm_seam_context *context,
			   const struct uvm_rust_mask *pages, bool *again)
{
	NV_STATUS status = uvm_rust_block_unmap_pages(block, (uvm_va_block_context_t *)context,
						      (const uvm_page_mask_t *)pages);

	*again = status == NV_ERR_MORE_PROCESSING_REQUIRED;
	if (*again)
		return NV_OK;
	return status == NV_OK ? uvm_tracker_wait(&block->tracker) : status;
}

/*
 * Takes residency of pages that are mapped nowhere, frees the host memory of which nothing
 * is resident, and counts what is left. The block's tracker was waited for.
 */
bool uvm_seam_flash_left_host(uvm_va_block_t *block, const struct uvm_rust_mask *mask)
{
	const uvm_page_mask_t *pages = (const uvm_page_mask_t *)mask;
	u32 before = uvm_page_mask_weight(&block->cpu.allocated);
	uvm_va_block_region_t whole = uvm_va_block_region_from_block(block);
	uvm_page_mask_t in_flight;
	uvm_page_index_t index;
	int nid;

	drop_residency(block, pages);
	if (!uvm_rust_flash_set(block, UVM_RUST_FLASH_IN_FLIGHT, &in_flight))
		uvm_page_mask_zero(&in_flight);
	index = find_first_bit(block->cpu.allocated.bitmap, whole.outer);
	while (index < whole.outer) {
		struct page *page = flash_host_page(block, index, &nid);
		uvm_va_block_region_t region = uvm_va_block_region_for_page(index);

		if (page) {
			uvm_cpu_chunk_t *chunk = uvm_rust_cpu_chunk(block, nid, index);

			region = uvm_va_block_chunk_region(block, uvm_cpu_chunk_get_size(chunk), index);
			/* What direct I/O holds is what the page's data come back to, if they do. */
			if (flash_is_unused(block, region, &in_flight) && !flash_is_held(page))
				uvm_va_block_remove_cpu_chunks(block, region);
		}
		index = find_next_bit(block->cpu.allocated.bitmap, whole.outer, region.outer);
	}
	uvm_rust_flash_note(block, false);
	return uvm_page_mask_weight(&block->cpu.allocated) < before;
}
