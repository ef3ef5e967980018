/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Discard, the part that needs what is static in upstream's uvm_va_block.c.
 *
 * Kbuild includes this file in front of that one, so both are one translation
 * unit, and a static function declared here is the one defined there. What is
 * decided about pages is decided in Rust (policy/discard.rs and below); this carries it out.
 *
 * Masks of the hooks are __uninitialized, and set before they are read: a block that
 * was never discarded, as most are, shall not pay for clearing them.
 */
#include "uvm_linux.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_hal.h"
#include "uvm_mmu.h"
#include "uvm_push.h"
#include "uvm_va_space.h"
#include "uvm_va_block.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_flash.h"
#include "uvm_rust_on_block.h"
#include "uvm_rust_on_cpu_pages.h"
#include "uvm_rust_hooks.h"

/* Upstream's, defined below in uvm_va_block.c. */
static void block_clear_resident_processor(uvm_va_block_t *block, uvm_processor_id_t id);
static size_t block_gpu_chunk_index(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_page_index_t page, uvm_chunk_size_t *size);

static bool skip_preparing(uvm_va_block_t *block)
{
	return likely(!block->uvm_rust) || (uvm_rust_test_unprepared && uvm_enable_builtin_tests);
}

/*
 * In block_alloc_gpu_chunk(): a chunk for @block, as the quota of its VA space lets it have one. The caller holds the VA
 * space's lock, and with EVICT no va_block's.
 */
static NV_STATUS alloc_within_max(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_chunk_size_t size,
				  uvm_pmm_alloc_flags_t flags, uvm_gpu_chunk_t **chunk, uvm_tracker_t *tracker)
{
	void *space = uvm_va_block_get_va_space_maybe_dead(block);
	__u32 index = uvm_id_gpu_index(gpu->id);
	__u32 quota = uvm_rust_quota_begin(space, gpu, index, size == UVM_CHUNK_SIZE_MAX, flags & UVM_PMM_ALLOC_FLAGS_EVICT,
					   current->flags & PF_MEMALLOC);
	NV_STATUS status = quota == UVM_RUST_QUOTA_FULL ? NV_ERR_NO_MEMORY :
			   uvm_pmm_gpu_alloc_user(&gpu->pmm, 1, size, flags, chunk, tracker);

	if (quota == UVM_RUST_QUOTA_COUNTS && status == NV_OK)
		uvm_rust_quota_end(space, gpu, index, uvm_rust_root_index(*chunk));
	return status;
}
#define uvm_pmm_gpu_alloc_user(pmm, n, ...) alloc_within_max(block, gpu, __VA_ARGS__)

void uvm_rust_resident_anywhere(uvm_va_block_t *block, uvm_page_mask_t *out)
{
	uvm_processor_id_t id;

	uvm_page_mask_zero(out);
	for_each_id_in_mask(id, &block->resident)
		uvm_page_mask_or(out, out, uvm_rust_resident_mask(block, id));
}

/* --- dropping pages ---------------------------------------------------------- */

void uvm_seam_block_drop(uvm_va_block_t *block, const struct uvm_rust_mask *pages, bool stays)
{
	const uvm_page_mask_t *drop = (const uvm_page_mask_t *)pages;
	uvm_processor_id_t id;

	uvm_page_mask_andnot(&block->read_duplicated_pages, &block->read_duplicated_pages, drop);

	/*
	 * A page that is clean is as its preferred location has it, and is not copied there. It has no such place now. Upstream
	 * calls resident pages dirty when that place changes; these are not resident then. Others lose a shortcut.
	 */
	if (stays && uvm_page_mask_intersects(&block->cpu.resident, drop))
		uvm_va_block_mark_cpu_dirty(block);
	uvm_rust_drop_cpu_residency(block, drop);
	if (uvm_page_mask_empty(&block->cpu.resident))
		block_clear_resident_processor(block, UVM_ID_CPU);

	for_each_gpu_id(id) {
		uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, id);

		if (!state)
			continue;
		if (!uvm_page_mask_andnot(&state->resident, &state->resident, drop))
			block_clear_resident_processor(block, id);
		if (!uvm_page_mask_andnot(&state->evicted, &state->evicted, drop))
			uvm_processor_mask_clear(&block->evicted_gpus, id);
	}
}

__u32 uvm_seam_block_unmap(uvm_va_block_t *block, struct uvm_seam_context *context, const struct uvm_rust_mask *of)
{
	const uvm_page_mask_t *pages = (const uvm_page_mask_t *)of;
	/* Not block->mapped itself, which changes on the way. It is five words long. */
	uvm_processor_mask_t mapped = block->mapped;
	NV_STATUS status = uvm_va_block_unmap_mask(block, (uvm_va_block_context_t *)context, &mapped,
						   uvm_va_block_region_from_block(block), pages);

	if (status == NV_OK)
		uvm_page_mask_andnot(&block->maybe_mapped_pages, &block->maybe_mapped_pages, pages);
	return status;
}

void uvm_seam_block_forget_thrashing(uvm_va_block_t *block, const struct uvm_rust_mask *pages)
{
	uvm_va_block_region_t whole = uvm_va_block_region_from_block(block), region;
	uvm_perf_event_data_t event = { .block_munmap.block = block };

	for_each_va_block_subregion_in_mask(region, (const uvm_page_mask_t *)pages, whole) {
		event.block_munmap.region = region;
		uvm_perf_event_notify(&uvm_va_block_get_va_space(block)->perf_events, UVM_PERF_EVENT_BLOCK_MUNMAP, &event);
	}
}

#include "uvm_rust_flash_block.h"

NV_STATUS uvm_rust_drop_stale(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t dest_id,
			      uvm_va_block_region_t region, const uvm_page_mask_t *mask)
{
	uvm_page_mask_t pages __uninitialized;
	NV_STATUS status = NV_OK;

	if (static_branch_unlikely(&uvm_rust_flash_used_key))
		status = flash_before_populate(block, context, dest_id, region, mask);
	if (status != NV_OK || likely(!block->uvm_rust))
		return status;
	uvm_page_mask_init_from_region(&pages, region, mask);
	return uvm_rust_block_drop_stale(block, (struct uvm_seam_context *)context, block->uvm_rust, uvm_rust_mask(&pages),
					 uvm_rust_mask(uvm_rust_resident_mask(block, dest_id)));
}

NV_STATUS uvm_rust_drop_needless(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk)
{
	uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, gpu->id);
	uvm_page_mask_t leaving __uninitialized;
	uvm_chunk_size_t size;
	uvm_page_index_t page;

	if (likely(!block->uvm_rust) || !state)
		return NV_OK;

	uvm_page_mask_zero(&leaving);
	/* Where a chunk is in the va_block, its place says: from 590 on a split leaves the chunk's own page index as it was. */
	for (page = 0; page < uvm_va_block_num_cpu_pages(block); page += size / PAGE_SIZE) {
		uvm_gpu_chunk_t *chunk = state->chunks[block_gpu_chunk_index(block, gpu, page, &size)];

		if (chunk && uvm_gpu_chunk_same_root(chunk, root_chunk))
			uvm_page_mask_region_fill(&leaving, uvm_va_block_region(page, page + size / PAGE_SIZE));
	}
	uvm_page_mask_and(&leaving, &leaving, &state->resident);
	return uvm_rust_block_drop_needless(block, block->uvm_rust, uvm_rust_mask(&leaving));
}

void uvm_rust_drop_leaving(uvm_va_block_t *block, uvm_gpu_t *gpu)
{
	if (block->uvm_rust)
		uvm_rust_block_drop_leaving(block, &block->uvm_rust, uvm_rust_mask(uvm_rust_resident_mask(block, gpu->id)));
}

bool uvm_rust_is_nowhere(uvm_va_block_t *block, __u32 page)
{
	uvm_processor_id_t id;

	for_each_id_in_mask(id, &block->resident) {
		if (uvm_page_mask_test(uvm_rust_resident_mask(block, id), page))
			return false;
	}
	/* Ordinary memory may be with Linux. */
	return !uvm_va_block_is_hmm(block);
}

/* --- preparing pages --------------------------------------------------------- */

/* Zeroes @pages of @chunk, which backs @region, adding the work to the block's tracker. */
static NV_STATUS zero_gpu_pages(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *chunk,
				uvm_va_block_region_t region, const uvm_page_mask_t *pages)
{
	uvm_gpu_address_t base = uvm_gpu_address_copy(gpu, uvm_gpu_phys_address(UVM_APERTURE_VID, chunk->address));
	uvm_va_block_region_t run;
	uvm_push_t push;
	NV_STATUS status;

	status = uvm_push_begin_acquire(gpu->channel_manager, UVM_CHANNEL_TYPE_GPU_INTERNAL, &block->tracker, &push,
					"Prepare discarded pages of block [0x%llx, 0x%llx)",
					block->start, block->end + 1);
	if (status != NV_OK)
		return status;

	for_each_va_block_subregion_in_mask(run, pages, region) {
		uvm_gpu_address_t at = base;

		at.address += (run.first - region.first) * PAGE_SIZE;
		/* The runs do not overlap, and one membar at the end is enough. */
		uvm_push_set_flag(&push, UVM_PUSH_FLAG_CE_NEXT_PIPELINED);
		uvm_push_set_flag(&push, UVM_PUSH_FLAG_NEXT_MEMBAR_NONE);
		gpu->parent->ce_hal->memset_8(&push, at, 0, uvm_va_block_region_size(run));
	}
	/* Ends with a sysmembar: a mapping may follow on this GPU or on a peer. */
	uvm_push_end(&push);
	return uvm_tracker_add_push_safe(&block->tracker, &push);
}

NV_STATUS uvm_rust_prepare_gpu_chunk(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *chunk,
				     uvm_va_block_region_t region)
{
	uvm_page_mask_t resident __uninitialized, zero __uninitialized;
	NV_STATUS status;

	if (skip_preparing(block))
		return NV_OK;
	uvm_rust_resident_anywhere(block, &resident);
	/* As upstream does for a new chunk: all of it at once. */
	if (!uvm_rust_block_zeroing(block->uvm_rust, uvm_rust_memory(gpu->id), region.first, region.outer,
				    uvm_rust_mask(&resident),
				    uvm_rust_mask(uvm_rust_resident_mask(block, gpu->id)), uvm_rust_mask_out(&zero)))
		return NV_OK;
	status = zero_gpu_pages(block, gpu, chunk, region, &zero);
	if (status == NV_OK)
		uvm_rust_block_prepare(block->uvm_rust, uvm_rust_memory(gpu->id), uvm_rust_mask(&zero));
	return status;
}

void uvm_rust_gpu_chunk_added(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *chunk,
			      uvm_va_block_region_t region)
{
	uvm_page_mask_t resident __uninitialized;

	if (likely(!block->uvm_rust))
		return;
	uvm_rust_resident_anywhere(block, &resident);
	uvm_rust_block_added(block->uvm_rust, uvm_rust_memory(gpu->id), region.first, region.outer,
			     uvm_rust_mask(&resident), chunk->is_zero);
}

static void zero_cpu_page(uvm_va_block_t *block, uvm_page_index_t page)
{
	int nid;

	/* On which node's the page will be resident is not known yet. */
	for_each_rust_node(nid) {
		uvm_cpu_chunk_t *chunk = uvm_rust_cpu_chunk(block, nid, page);
		uvm_page_index_t of_chunk;

		if (!chunk)
			continue;
		of_chunk = page - uvm_va_block_chunk_region(block, uvm_cpu_chunk_get_size(chunk), page).first;
		clear_highpage(chunk->page + of_chunk);
		uvm_rust_mark_dirty(chunk, of_chunk);
	}
}

NV_STATUS uvm_rust_prepare_cpu_pages(uvm_va_block_t *block, const uvm_page_mask_t *mask, uvm_va_block_region_t region)
{
	uvm_page_mask_t pages __uninitialized, resident __uninitialized, zero __uninitialized;
	uvm_page_index_t page;
	NV_STATUS status;

	if (skip_preparing(block) || uvm_va_block_is_hmm(block))
		return NV_OK;

	uvm_page_mask_init_from_region(&pages, region, mask);
	uvm_rust_resident_anywhere(block, &resident);
	if (!uvm_rust_block_zeroing_host(block->uvm_rust, uvm_rust_mask(&pages), uvm_rust_mask(&block->cpu.allocated),
					 uvm_rust_mask(&resident), uvm_rust_mask_out(&zero)))
		return NV_OK;

	/* A GPU may still be reading or writing them. */
	status = uvm_tracker_wait(&block->tracker);
	if (status != NV_OK)
		return status;
	for_each_va_block_page_in_region_mask(page, &zero, region)
		zero_cpu_page(block, page);
	uvm_rust_block_prepare(block->uvm_rust, UVM_RUST_MEMORY_HOST, uvm_rust_mask(&zero));
	return NV_OK;
}

void uvm_rust_made_resident(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_va_block_region_t region,
			    const uvm_page_mask_t *mask)
{
	uvm_processor_id_t dest_id = context->make_resident.dest_id;
	uvm_page_mask_t pages __uninitialized;

	if (static_branch_unlikely(&uvm_rust_flash_key))
		uvm_rust_flash_note(block, UVM_ID_IS_CPU(dest_id));
	if (likely(!block->uvm_rust))
		return;
	uvm_page_mask_init_from_region(&pages, region, mask);
	uvm_rust_block_made_resident(block, block->uvm_rust, uvm_rust_memory(dest_id), uvm_rust_mask(&pages),
				     uvm_rust_mask(uvm_rust_resident_mask(block, dest_id)), uvm_rust_mask(&block->cpu.resident),
				     context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_EVICTION);
}
