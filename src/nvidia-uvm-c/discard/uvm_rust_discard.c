// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C seam of discard: what the walk over the va_blocks of a range, which is
 * Rust's (policy/discard/walk.rs), asks of upstream; and the state that Rust has
 * of a va_block, kept with that block.
 *
 * uvm_va_block_t.uvm_rust is NULL until the block's first discard. Like all it
 * points to it is protected by the block's lock, and it is freed when the block
 * is killed. Only managed blocks have one, HMM's never.
 */
#include "uvm_rust_hooks.h"
#include "uvm_rust_flash.h"
#include "uvm_api.h"
#include "uvm_global.h"
#include "uvm_perf_events.h"
#include "uvm_range_group.h"
#include "uvm_rust_on_ranges.h"

/* --- life of a block's state ---------------------------------------------------- */

void uvm_rust_on_block_destroy(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data)
{
	uvm_va_block_t *block = data->block_destroy.block;

	uvm_rust_block_freed(uvm_va_block_get_va_space(block)->uvm_rust, block->start);
	uvm_rust_block_destroy(block->uvm_rust);
	block->uvm_rust = NULL;
	uvm_rust_flash_block_gone(block);
}

/* --- looking blocks up ------------------------------------------------------------- */

bool uvm_seam_space_trylock(struct uvm_seam_space *space)
{
	return uvm_down_read_trylock(&((uvm_va_space_t *)space)->lock);
}

uvm_va_range_t *uvm_seam_range(struct uvm_seam_space *space, __u64 from, __u64 last, struct uvm_rust_range *out)
{
	uvm_va_range_t *range = uvm_va_space_iter_first((uvm_va_space_t *)space, from, last);

	if (!range)
		return NULL;
	*out = (struct uvm_rust_range){
		.first = range->node.start, .last = range->node.end, .managed = range->type == UVM_VA_RANGE_TYPE_MANAGED,
	};
	out->preferred = UVM_RUST_MEMORY_NONE;
	if (out->managed) {
		uvm_va_policy_t *policy = uvm_rust_policy(range);

		if (UVM_ID_IS_VALID(policy->preferred_location))
			out->preferred = uvm_rust_memory(policy->preferred_location);
		out->read_duplicated = uvm_rust_is_read_duplicate(policy, range->va_space);
	}
	return range;
}

uvm_va_block_t *uvm_seam_range_block(uvm_va_range_t *range, __u64 at)
{
	return uvm_va_range_block(uvm_rust_managed(range), uvm_va_range_block_index(uvm_rust_managed(range), at));
}

void uvm_seam_block_span(uvm_va_block_t *block, struct uvm_rust_span *span)
{
	*span = (struct uvm_rust_span){ block->start, block->end };
}

struct uvm_rust_block **uvm_seam_block_lock(uvm_va_block_t *block)
{
	uvm_mutex_lock(&block->lock);
	return &block->uvm_rust;
}

void uvm_seam_block_unlock(uvm_va_block_t *block)
{
	uvm_mutex_unlock(&block->lock);
}

__u32 uvm_seam_block_chunk(uvm_va_block_t *block, uvm_gpu_t *gpu, __u64 address)
{
	uvm_gpu_chunk_t *chunk = uvm_va_block_gpu_state_get(block, gpu->id) ?
				 uvm_va_block_lookup_gpu_chunk(block, gpu, address) : NULL;

	return chunk ? uvm_rust_root_index(chunk) : UVM_RUST_NO_CHUNK;
}

/* --- discarding: what the walk asks for -------------------------------------------- */

bool uvm_seam_discard_facts(uvm_va_block_t *block, struct uvm_rust_mask *resident)
{
	uvm_gpu_id_t id;

	uvm_rust_resident_anywhere(block, (uvm_page_mask_t *)resident);
	for_each_gpu_id_in_mask(id, &block->mapped) {
		if (uvm_va_block_gpu_state_get(block, id)->pte_is_2m)
			return true;
	}
	return false;
}

bool uvm_seam_discard_held(struct uvm_seam_space *space, uvm_va_block_t *block, __u32 from, struct uvm_rust_held *held)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	uvm_gpu_id_t id;

	if (from == UVM_RUST_MEMORY_HOST) {
		held->resident = *uvm_rust_mask(&block->cpu.resident);
		held->memory = UVM_RUST_MEMORY_HOST;
		held->one_place = num_possible_nodes() == 1;
		held->root_chunk = false;
		return true;
	}
	if (from > UVM_RUST_MEMORY_GPU(UVM_ID_MAX_GPUS - 1))
		return false;
	/* A GPU that is not registered has nothing in a block. */
	id = uvm_processor_mask_find_next_id(&va_space->registered_gpus, uvm_gpu_id_from_index(from - UVM_RUST_MEMORY_GPU(0)));
	for (; UVM_ID_IS_VALID(id); id = uvm_processor_mask_find_next_id(&va_space->registered_gpus, uvm_gpu_id_next(id))) {
		uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, id);

		if (!state)
			continue;
		held->resident = *uvm_rust_mask(&state->resident);
		held->memory = uvm_rust_memory(id);
		held->one_place = true;
		/* One chunk, which the GPU may reclaim. */
		held->root_chunk = uvm_va_block_size(block) == UVM_CHUNK_SIZE_MAX && state->chunks[0] &&
				   uvm_rust_gpu_supports_eviction(uvm_rust_gpu(va_space, id));
		return true;
	}
	return false;
}

__u32 uvm_seam_tracker_add(struct uvm_seam_tracker *tracker, uvm_va_block_t *block)
{
	return uvm_tracker_add_tracker_safe((uvm_tracker_t *)tracker, &block->tracker);
}

__u32 uvm_seam_tracker_end(struct uvm_seam_tracker *tracker)
{
	return uvm_tracker_wait_deinit((uvm_tracker_t *)tracker);
}

__u32 uvm_seam_discard(struct uvm_seam_space *space, struct mm_struct *mm, __u64 base, __u64 length, bool eager,
		       struct uvm_seam_discarded *counts)
{
	uvm_tracker_t tracker = UVM_TRACKER_INIT();

	return uvm_rust_discard_range(space, mm, (struct uvm_seam_tracker *)&tracker, base, length, eager, counts);
}

#include "uvm_rust_on_discard.h"
