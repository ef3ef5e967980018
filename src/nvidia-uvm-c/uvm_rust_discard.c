// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The C seam of discard: walks the blocks of an address range, and keeps the
 * state that Rust has of a va_block with that block.
 *
 * uvm_va_block_t.uvm_rust is NULL until the block's first discard. Like all it
 * points to it is protected by the block's lock, and it is freed when the block
 * is killed. Only managed blocks have one, HMM's never.
 */
#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_perf_events.h"
#include "uvm_test.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_compat.h"
#include "uvm_rust_flash.h"
#include "uvm_rust_hooks.h"
#include "uvm_rust_walk.h"

static bool uvm_rust_discard = true;
module_param(uvm_rust_discard, bool, 0444);
MODULE_PARM_DESC(uvm_rust_discard, "Offer UvmDiscard and UvmDiscardLazy (default 1)");

/* 64 KiB is the largest GPU page below 2 MiB, so discarding such a part splits none. */
static uint uvm_rust_discard_granule = 64;
module_param(uvm_rust_discard_granule, uint, 0444);
MODULE_PARM_DESC(uvm_rust_discard_granule,
		 "Where a range covers a 2 MiB block in part, discard whole aligned pieces of this many KiB: "
		 "a power of two from 4 to 2048; 2048 leaves such blocks alone (default 64)");

bool uvm_seam_discard_enabled(void)
{
	return uvm_rust_discard;
}

bool uvm_seam_tests_enabled(void)
{
	return uvm_enable_builtin_tests;
}

static __u32 granule_shift(void)
{
	__u32 shift = ilog2(max(uvm_rust_discard_granule, 4U)) - 2;

	return min(shift, 9U);
}

/* --- life of a block's state ---------------------------------------------------- */

void uvm_rust_on_block_destroy(uvm_perf_event_t event_id, uvm_perf_event_data_t *data)
{
	uvm_va_block_t *block = data->block_destroy.block;

	if (block->uvm_rust)
		uvm_rust_block_destroy(block->uvm_rust);
	block->uvm_rust = NULL;
	uvm_rust_flash_block_gone(block);
}

/* The block's state, made if need be with what is resident now taken as prepared. */
static void *get_or_create(uvm_va_block_t *block)
{
	uvm_gpu_id_t id;

	if (block->uvm_rust)
		return block->uvm_rust;
	block->uvm_rust = uvm_rust_block_create(uvm_va_block_num_cpu_pages(block));
	if (!block->uvm_rust)
		return NULL;
	/*
	 * Which of several NUMA nodes a page comes from is only known when it is
	 * resident: then nothing is taken as prepared, and all is zeroed.
	 */
	if (num_possible_nodes() == 1)
		uvm_rust_block_track(block->uvm_rust, UVM_RUST_MEMORY_HOST, uvm_rust_mask(&block->cpu.resident));
	for_each_gpu_id(id) {
		uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, id);

		if (state)
			uvm_rust_block_track(block->uvm_rust, uvm_rust_memory(id), uvm_rust_mask(&state->resident));
	}
	return block->uvm_rust;
}

UVM_RUST_C_BODY(uvm_va_block_split);

/*
 * Caller holds the VA space's lock in write mode, so only an eviction may come
 * between the steps, and what BlockState::upper() says of that holds.
 */
NV_STATUS uvm_va_block_split(uvm_va_block_t *existing, NvU64 new_end, uvm_va_block_t **new_block,
			     uvm_va_range_t *new_range)
{
	__u32 at = (new_end + 1 - existing->start) / PAGE_SIZE;
	uvm_va_block_t *upper_block;
	struct uvm_rust_flash_block *upper_flash;
	void *upper = NULL;
	bool has_state;
	NV_STATUS status;

	status = uvm_rust_flash_before_split(existing, at, &upper_flash);
	if (status != NV_OK)
		return status;
	uvm_mutex_lock(&existing->lock);
	has_state = existing->uvm_rust != NULL;
	if (has_state)
		upper = uvm_rust_block_upper(existing->uvm_rust, at);
	uvm_mutex_unlock(&existing->lock);
	if (has_state && !upper)
		status = NV_ERR_NO_MEMORY;
	if (status == NV_OK)
		status = uvm_va_block_split__c(existing, new_end, &upper_block, new_range);
	uvm_rust_flash_after_split(existing, status == NV_OK ? upper_block : NULL, at, upper_flash);
	if (status != NV_OK) {
		if (upper)
			uvm_rust_block_destroy(upper);
		return status;
	}
	if (upper) {
		uvm_mutex_lock(&existing->lock);
		uvm_rust_block_truncate(existing->uvm_rust, at);
		uvm_mutex_unlock(&existing->lock);

		uvm_mutex_lock(&upper_block->lock);
		upper_block->uvm_rust = upper;
		uvm_mutex_unlock(&upper_block->lock);
	}
	if (new_block)
		*new_block = upper_block;
	return NV_OK;
}

/* --- discarding ----------------------------------------------------------------- */

struct discard_request {
	uvm_va_block_context_t *context;
	bool eager;
	/* Work to wait for. */
	uvm_tracker_t tracker;
	struct uvm_seam_discarded *counts;
};

static bool mapped_2m(uvm_va_block_t *block)
{
	uvm_gpu_id_t id;

	for_each_gpu_id_in_mask(id, &block->mapped) {
		if (uvm_va_block_gpu_state_get(block, id)->pte_is_2m)
			return true;
	}
	return false;
}

/* The chunks whose data is all discarded are the next that a GPU parts with. */
static void requeue_chunks(uvm_va_block_t *block)
{
	uvm_gpu_id_t id;

	if (uvm_va_block_size(block) != UVM_CHUNK_SIZE_MAX)
		return;
	for_each_gpu_id(id) {
		uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, id);
		uvm_gpu_t *gpu;

		if (!state || !state->chunks[0])
			continue;
		gpu = uvm_va_space_get_gpu(uvm_va_block_get_va_space(block), id);
		if (!uvm_rust_gpu_supports_eviction(gpu))
			continue;
		if (uvm_rust_block_queue(block->uvm_rust, uvm_rust_memory(id), uvm_rust_mask(&state->resident)) ==
		    UVM_RUST_QUEUE_DISCARDED)
			uvm_rust_chunk_discarded(&gpu->pmm, state->chunks[0]);
	}
}

/* As uvm_va_block_unmap(), gives NV_ERR_MORE_PROCESSING_REQUIRED to be called again. */
static NV_STATUS discard_block_locked(uvm_va_block_t *block, uvm_va_block_region_t region,
				      struct discard_request *request)
{
	struct uvm_rust_discard plan = {
		.first = region.first,
		.outer = region.outer,
		.granule_shift = granule_shift(),
		.eager = request->eager,
		.mapped_2m = mapped_2m(block),
	};
	const uvm_page_mask_t *drop = (const uvm_page_mask_t *)&plan.drop;
	void *state = get_or_create(block);
	NV_STATUS status;

	if (!state)
		return NV_ERR_NO_MEMORY;
	uvm_rust_resident_anywhere(block, (uvm_page_mask_t *)&plan.resident);
	uvm_rust_block_plan(state, &plan);
	if (!uvm_page_mask_empty(drop)) {
		status = uvm_rust_block_drop_pages(block, request->context, drop, drop);
		if (status != NV_OK)
			return status;
		uvm_rust_block_forget_thrashing(block, drop);
	}
	uvm_rust_block_commit(state);
	uvm_rust_flash_discarded(block, &plan.done);
	requeue_chunks(block);

	if (!plan.ignored)
		request->counts->discarded++;
	else if (plan.discarded)
		request->counts->partial++;
	else
		request->counts->skipped++;
	/* An access through a mapping that is still cached somewhere would go unnoticed. */
	return request->eager ? uvm_tracker_add_tracker_safe(&request->tracker, &block->tracker) : NV_OK;
}

static NV_STATUS discard_block(uvm_va_block_t *block, uvm_va_block_region_t region, void *data)
{
	return UVM_VA_BLOCK_LOCK_RETRY(block, NULL, discard_block_locked(block, region, data));
}

static NV_STATUS discard_locked(uvm_va_space_t *va_space, struct mm_struct *mm, NvU64 base, NvU64 length,
				struct discard_request *request)
{
	NvU64 end = base + length - 1;
	uvm_va_range_t *range;
	NV_STATUS status = NV_OK;

	/* Such a GPU cannot fault on what was unmapped. */
	if (uvm_rust_has_non_faultable(va_space))
		return NV_ERR_INVALID_DEVICE;

	switch (uvm_api_range_type_check(va_space, mm, base, length)) {
	case UVM_API_RANGE_TYPE_MANAGED:
		break;
	case UVM_API_RANGE_TYPE_HMM:
	case UVM_API_RANGE_TYPE_ATS:
		return NV_WARN_NOTHING_TO_DO;
	default:
		return NV_ERR_INVALID_ADDRESS;
	}

	request->context = uvm_va_block_context_alloc(mm);
	if (!request->context)
		return NV_ERR_NO_MEMORY;
	uvm_for_each_va_range_in_contig(range, va_space, base, end) {
		status = uvm_rust_walk_blocks(range, max(base, range->node.start), min(end, range->node.end),
					      &request->counts->skipped, discard_block, request);
		if (status != NV_OK)
			break;
	}
	uvm_va_block_context_free(request->context);
	return status;
}

__u32 uvm_seam_discard(struct uvm_seam_space *space, __u64 base, __u64 length, bool eager,
		       struct uvm_seam_discarded *counts)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	struct discard_request request = { .eager = eager, .counts = counts };
	struct mm_struct *mm;
	NV_STATUS status, waited;

	if (uvm_api_range_invalid(base, length))
		return NV_ERR_INVALID_ADDRESS;

	uvm_tracker_init(&request.tracker);
	mm = uvm_va_space_mm_or_current_retain_lock(va_space);
	uvm_va_space_down_read(va_space);
	status = discard_locked(va_space, mm, base, length, &request);
	uvm_va_space_up_read(va_space);
	uvm_va_space_mm_or_current_release_unlock(va_space, mm);

	waited = uvm_tracker_wait_deinit(&request.tracker);
	return status == NV_OK ? waited : status;
}

/* --- what NVIDIA's tests ask ------------------------------------------------------ */

__u32 uvm_seam_discard_status(struct uvm_seam_space *space, __u64 address, bool *discarded)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	uvm_va_block_t *block;
	NV_STATUS status;

	*discarded = false;
	uvm_va_space_down_read(va_space);
	status = uvm_va_block_find(va_space, address, &block);
	if (status == NV_OK) {
		uvm_mutex_lock(&block->lock);
		if (block->uvm_rust)
			*discarded = uvm_rust_block_status(block->uvm_rust,
							   uvm_va_block_cpu_page_index(block, address)) !=
				     UVM_RUST_PAGE_LIVE;
		uvm_mutex_unlock(&block->lock);
	}
	else if (status == NV_ERR_OBJECT_NOT_FOUND) {
		status = NV_OK;
	}
	uvm_va_space_up_read(va_space);
	return status;
}

static __u32 queue_of(uvm_gpu_t *gpu, uvm_gpu_chunk_t *chunk)
{
	uvm_pmm_gpu_t *pmm = &gpu->pmm;
	uvm_gpu_chunk_t *root = &pmm->root_chunks.array[uvm_rust_root_index(chunk)].chunk;
	uvm_gpu_chunk_t *other;
	__u32 queue = UVM_RUST_QUEUE_ADDRESS;
	void *queues;

	uvm_spin_lock(&pmm->list_lock);
	queues = uvm_rust_pmm_queues(pmm);
	if (queues) {
		queue = uvm_rust_queues_of(queues, uvm_rust_root_index(chunk));
	}
	else if (!list_empty(&root->list)) {
		queue = UVM_RUST_QUEUE_USED;
		list_for_each_entry(other, &pmm->root_chunks.va_block_unused, list) {
			if (other == root)
				queue = UVM_RUST_QUEUE_UNUSED;
		}
	}
	uvm_spin_unlock(&pmm->list_lock);
	return queue;
}

static NV_STATUS chunk_queue_locked(uvm_va_block_t *block, uvm_gpu_t *gpu, NvU64 address, __u32 *queue)
{
	uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, gpu->id);
	uvm_gpu_chunk_t *chunk = NULL;

	if (state)
		chunk = uvm_va_block_lookup_gpu_chunk(block, gpu, address);
	if (!chunk)
		return NV_ERR_INVALID_STATE;
	*queue = queue_of(gpu, chunk);
	return *queue == UVM_RUST_QUEUE_ADDRESS ? NV_ERR_INVALID_STATE : NV_OK;
}

__u32 uvm_seam_alloc_list(struct uvm_seam_space *space, __u64 address, const __u8 *uuid, __u32 *queue)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	uvm_va_block_t *block;
	uvm_gpu_t *gpu;
	NV_STATUS status = NV_ERR_INVALID_DEVICE;

	uvm_va_space_down_read(va_space);
	gpu = uvm_va_space_get_gpu_by_uuid(va_space, (const NvProcessorUuid *)uuid);
	if (gpu)
		status = uvm_va_block_find(va_space, address, &block);
	if (status == NV_OK) {
		uvm_mutex_lock(&block->lock);
		status = chunk_queue_locked(block, gpu, address, queue);
		uvm_mutex_unlock(&block->lock);
	}
	uvm_va_space_up_read(va_space);
	return status;
}

__u32 uvm_seam_global_status(void)
{
	return uvm_global_get_status();
}
