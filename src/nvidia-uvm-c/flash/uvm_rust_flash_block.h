/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The SSD tier, the part that needs what is static in upstream's uvm_va_block.c; included
 * by uvm_rust_va_block.h, which see.
 *
 * A page on flash is resident nowhere to upstream, which would hand it out zeroed. It
 * is brought to host memory before upstream looks, so that what follows is an ordinary
 * migration from the host: one place serves GPU faults, CPU faults, UVM_MIGRATE and
 * prefetches.
 */
#include "uvm_va_policy.h"
#include "uvm_va_range.h"

#include "uvm_rust_flash.h"
#include "uvm_rust_on_populate.h"

/* Upstream's, defined below in uvm_va_block.c. */
static void block_set_resident_processor(uvm_va_block_t *block, uvm_processor_id_t id);

/* A page's memory on one NUMA node; zeroed before the first question. */
struct flash_memory {
	uvm_cpu_chunk_t *chunk;
	/* From the chunk's first page on to the end of those that are there in one run with the page. */
	uvm_va_block_region_t region;
	int nid;
	/* Somebody holds the chunk, certainly or perhaps. */
	bool is_held, seems_held;
};

/*
 * How often these pages of UVM's, of one folio, are in page tables, where each has an entry of its own. Before 6.10
 * folio_mapcount() needs what the kernel keeps to itself.
 */
static long flash_mapcount(struct page *page, long pages)
{
	long i, count = 0;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	if (folio_nr_pages(page_folio(page)) == pages)
		return folio_mapcount(page_folio(page));
#endif
	for (i = 0; i < pages; i++)
		count += atomic_read(&page[i]._mapcount) + 1;
	return count;
}

/*
 * Whether the folio of these pages has more references than UVM's and those of the pages' mappings. Caller holds the lock of
 * the pages' va_block, under which they get their mappings. One that goes at this moment (munmap()) is uncounted before its
 * reference is dropped. One that fork() copies has its reference before it is counted. Mappings are counted before the
 * references and after them, and the smaller number is taken, so that the folio rather counts as held.
 *
 * UVM has one reference of each folio, which may be of 2 MiB, and each mapping has one. After a split several va_blocks
 * have chunks of one folio, each with a lock of its own, and no count that includes what the others map is certain. So of
 * the chunk's pages alone the mappings are counted, and others' mappings hold the folio. A count of the whole folio is a
 * guess, for pages that are still mapped: once they have been unmapped, they are looked at again.
 *
 * Our own references for the time of a write or a read count as anybody's: the pages around stay a
 * little longer. A reference that is about to be dropped does no more.
 *
 * If the pages have been unmapped, nobody gets a new reference meanwhile: who walks page
 * tables without a lock takes the reference first, and gives it back if the entry has changed
 * since (gup_fast_pte_range()); the entry was changed before we look here.
 */
static bool flash_is_held(struct page *page, long pages)
{
	long before = flash_mapcount(page, pages), references;

	/* Pairs with the reference that is taken before the entry is looked at again. */
	smp_mb();
	references = folio_ref_count(page_folio(page));
	smp_rmb();
	return references > 1 + min(before, flash_mapcount(page, pages));
}

/*
 * The host memory of a page: on the node where the page is resident, else on the first node that has memory for it; NULL if no
 * node has. @of caches what the last call found, for an earlier page or the same one, with the block locked since: a run of
 * pages is looked for once, and who holds their chunk as well.
 */
static struct page *flash_host_page(uvm_va_block_t *block, uvm_page_index_t index, struct flash_memory *of)
{
	bool resident = test_bit(index, block->cpu.resident.bitmap), first = true;
	uvm_cpu_chunk_t *last = of->chunk;

	if (last && index < of->region.outer)
		return last->page + (index - of->region.first);
	for_each_rust_node(of->nid) {
		of->chunk = uvm_rust_cpu_chunk(block, of->nid, index);
		if (of->chunk && (!resident || uvm_page_mask_test(uvm_rust_resident_on(block, of->nid), index)))
			break;
		of->chunk = NULL;
		first = false;
	}
	if (!of->chunk)
		return NULL;
	of->region = uvm_va_block_chunk_region(block, uvm_cpu_chunk_get_size(of->chunk), index);
	if (of->chunk != last) {
		of->is_held = flash_is_held(of->chunk->page, of->region.outer - of->region.first);
		of->seems_held = flash_is_held(compound_head(of->chunk->page), compound_nr(compound_head(of->chunk->page)));
	}
	/* Of what is resident nowhere, a node before this one may have the next page. */
	of->region.outer = resident ? find_next_zero_bit(uvm_rust_resident_on(block, of->nid)->bitmap, of->region.outer, index) :
			   first ? find_next_bit(block->cpu.resident.bitmap, of->region.outer, index) : index + 1;
	return of->chunk->page + (index - of->region.first);
}

void uvm_seam_flash_host(uvm_va_block_t *block, struct uvm_rust_mask *mask, struct page **held, bool hold)
{
	uvm_page_mask_t *pages = (uvm_page_mask_t *)mask;
	struct flash_memory of = {};
	uvm_va_block_region_t run;
	uvm_page_index_t index;

	for_each_va_block_subregion_in_mask(run, pages, uvm_va_block_region_from_block(block))
		for (index = run.first; index < run.outer; index++) {
			struct page *page = flash_host_page(block, index, &of);

			if (page && held && hold)
				get_page(held[index] = page);
			else if (!page || (held ? page != held[index] : hold ? of.seems_held : of.is_held))
				uvm_page_mask_clear(pages, index);
		}
}

void uvm_seam_flash_arrived(uvm_va_block_t *block, const struct uvm_rust_mask *pages)
{
	struct flash_memory of = {};
	uvm_page_index_t index;

	for_each_va_block_page_in_mask(index, (const uvm_page_mask_t *)pages, block) {
		if (!flash_host_page(block, index, &of))
			continue;
		uvm_rust_set_resident_page(block, of.nid, index);
		uvm_rust_mark_dirty(of.chunk, index - of.region.first);
	}
	block_set_resident_processor(block, UVM_ID_CPU);
	if (block->uvm_rust)
		uvm_rust_block_prepare(block->uvm_rust, UVM_RUST_MEMORY_HOST, pages);
}

__u32 uvm_seam_flash_populate(uvm_va_block_t *block, struct uvm_seam_context *of, struct uvm_rust_mask *mask)
{
	uvm_va_block_context_t *context = (uvm_va_block_context_t *)of;
	uvm_page_mask_t *pages = (uvm_page_mask_t *)mask;
	uvm_memcg_context_t memcg_context;
	NV_STATUS status;

	uvm_rust_memcg_context_start(&memcg_context, block, context->mm);
	status = uvm_rust_populate_for_data(block, pages, uvm_va_block_region_from_mask(block, pages), context);
	uvm_memcg_context_end(&memcg_context);
	return status;
}

void uvm_seam_flash_lost(uvm_va_block_t *block, u32 pages, u32 pid)
{
	pr_err_ratelimited("nvidia-uvm: flash: %u pages of [0x%llx, 0x%llx) of process %u cannot be read: "
			   "who uses them gets SIGBUS or a GPU fault\n", pages, block->start, block->end + 1, pid);
}

/*
 * From the hook in block_populate_pages_cpu(): whether all of @region has something to be copied from, so that new memory
 * needs no zeros. What a device has is read before anybody gets that memory, or is lost; a page that is discarded there is
 * prepared like any other.
 */
static bool flash_has_data(uvm_va_block_t *block, uvm_page_mask_t *resident, uvm_va_block_region_t region)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key))
		uvm_rust_flash_add_stored(block->uvm_rust_flash, uvm_rust_mask_out(resident));
	return uvm_page_mask_region_full(resident, region);
}

/* From the hook in block_populate_pages(), which both ways to make pages resident pass. */
static NV_STATUS flash_before_populate(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t to,
				       uvm_va_block_region_t region, const uvm_page_mask_t *mask)
{
	uvm_gpu_t *gpu;
	uvm_page_mask_t wanted;

	if (uvm_va_block_is_hmm(block))
		return NV_OK;
	gpu = UVM_ID_IS_CPU(to) ? NULL : uvm_rust_gpu(uvm_va_block_get_va_space(block), to);
	uvm_page_mask_init_from_region(&wanted, region, mask);
	BUILD_BUG_ON(UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT != 0);
	/* Upstream gives CPU faults the cause of replayable ones; they are serviced by the thread that faults. */
	return uvm_rust_flash_before_populate(block, (struct uvm_seam_context *)context, gpu, context->make_resident.cause,
					      current->flags & PF_KTHREAD, uvm_rust_mask(&wanted));
}

/* --- writing to what flash has as well --------------------------------------------------- */

/* Upstream's, which the hooks in uvm_va_block.c call by these names. */
UVM_RUST_C_BODY(uvm_va_block_map);
UVM_RUST_C_BODY(uvm_va_block_page_compute_highest_permission);

/*
 * All mappings are made here, and a mapping for writing allows writes. Upstream makes some mappings long after an eviction,
 * and ends some without a migration: a write to flash learns of a mapping only because it is noted here.
 */
NV_STATUS uvm_va_block_map(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t id,
			   uvm_va_block_region_t region, const uvm_page_mask_t *mask, uvm_prot_t prot,
			   UvmEventMapRemoteCause cause, uvm_tracker_t *tracker)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key)) {
		uvm_page_mask_t pages;

		uvm_page_mask_init_from_region(&pages, region, mask);
		uvm_rust_flash_maps(block->uvm_rust_flash, uvm_rust_mask(&pages), prot > UVM_PROT_READ_ONLY);
	}
	return uvm_va_block_map__c(block, context, id, region, mask, prot, cause, tracker);
}

/* Who did not ask for it is not to write to such a page, unless Rust says so. */
uvm_prot_t uvm_va_block_page_compute_highest_permission(uvm_va_block_t *block, UVM_RUST_CONTEXT(uvm_va_block_context_t *context,)
							uvm_processor_id_t id, uvm_page_index_t index)
{
	uvm_prot_t prot = uvm_va_block_page_compute_highest_permission__c(block, UVM_RUST_CONTEXT(context,) id, index);

	return static_branch_unlikely(&uvm_rust_flash_used_key) && prot > UVM_PROT_READ_ONLY &&
	       uvm_rust_flash_may_only_read(block->uvm_rust_flash, index,
					    uvm_rust_has_non_faultable(uvm_va_block_get_va_space(block))) ?
	       UVM_PROT_READ_ONLY : prot;
}

/* --- leaving host memory --------------------------------------------------------------- */

bool uvm_seam_host_chunk(uvm_va_block_t *block, u32 index, u16 *first, u16 *outer)
{
	bool has_page = false, is_held = false;
	uvm_va_block_region_t region;
	int nid;

	/* Nodes' memory goes together: of chunks that meet, one holds the others, as each begins at a multiple of its size. */
	for_each_rust_node(nid) {
		uvm_cpu_chunk_t *chunk = uvm_rust_cpu_chunk(block, nid, index);

		has_page |= chunk != NULL;
		region = uvm_va_block_chunk_region(block, chunk ? uvm_cpu_chunk_get_size(chunk) : PAGE_SIZE, index);
		*first = min(*first, (u16)region.first);
		*outer = max(*outer, (u16)region.outer);
	}
	for_each_rust_node(nid)
		for (u16 at = *first; at < *outer; at = region.outer) {
			uvm_cpu_chunk_t *chunk = uvm_rust_cpu_chunk(block, nid, at);

			region = uvm_va_block_chunk_region(block, chunk ? uvm_cpu_chunk_get_size(chunk) : PAGE_SIZE, at);
			is_held |= chunk && flash_is_held(chunk->page, region.outer - region.first);
		}
	return has_page && !is_held;
}

void uvm_seam_host_chunk_free(uvm_va_block_t *block, u16 first, u16 outer)
{
	uvm_va_block_remove_cpu_chunks(block, uvm_va_block_region(first, outer));
}
