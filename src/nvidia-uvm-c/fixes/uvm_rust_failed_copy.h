/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c, behind uvm_rust_va_block.h: what a copy to a GPU that fails takes back (570 and later).
 */
#ifndef UVM_RUST_FAILED_COPY_H
#define UVM_RUST_FAILED_COPY_H

#include "uvm_va_block.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"

/*
 * Whether pages of @block are resident in @chunk, which is one of those that the block has on the GPU with @id, or NULL. Caller
 * holds the block's lock.
 *
 * After a copy that failed, upstream frees all chunks of the va_block that are pinned, as if this copy had brought them. But a
 * chunk stays pinned until the whole operation ends, and an operation may move pages more than once: it is tried again where it
 * lacked memory for page tables, and a fault duplicates some pages and moves others. What an earlier move has made resident may be
 * the only copy. A chunk that stays is unpinned at the operation's end, like any other.
 */
static inline bool uvm_rust_chunk_has_data(uvm_va_block_t *block, uvm_gpu_id_t id, uvm_gpu_chunk_t *chunk)
{
	uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, id);
	uvm_gpu_t *gpu = uvm_rust_gpu(uvm_va_block_get_va_space(block), id);
	uvm_chunk_size_t size;
	uvm_page_index_t page;

	if (!chunk || chunk->state != UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED || !uvm_rust_fix_copies)
		return false;
	for (page = 0; page < uvm_va_block_num_cpu_pages(block); page += size / PAGE_SIZE) {
		if (state->chunks[block_gpu_chunk_index(block, gpu, page, &size)] == chunk)
			return !uvm_page_mask_region_empty(&state->resident,
							   uvm_va_block_region(page, page + size / PAGE_SIZE));
	}
	return false;
}

#endif
