/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c: the chunks that ordinary memory has got on a GPU by the time that its move there fails, or begins anew (until 570.181).
 */
#ifndef UVM_RUST_ANEW_H
#define UVM_RUST_ANEW_H

#include "uvm_lock.h"
#include "uvm_mmu.h"
#include "uvm_pmm_gpu.h"
#include "uvm_va_block.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_on_place.h"

/*
 * Called by the hook in uvm_va_block_retry_deinit(), in place of upstream's uvm_pmm_gpu_free(), for each chunk that no page of @va_block has gone
 * to: there was no memory for the others, or after an eviction this page was none of those that move any more. Caller holds the lock of
 * @va_block, as all do who bring ordinary memory to a GPU.
 *
 * Upstream frees the chunk, but the va_block still has it for that page, as a chunk that it need not allocate when the page moves next.
 * By then the chunk may be another process', or a part of a larger one. And the GPU may still have the chunk to zero, or a copy to it to make,
 * which the va_block's tracker knows of.
 */
static inline void uvm_rust_free_unused(uvm_va_block_t *va_block, uvm_gpu_chunk_t *chunk)
{
	uvm_gpu_t *gpu = uvm_gpu_chunk_get_gpu(chunk);
	uvm_va_block_region_t place = uvm_rust_place_of(chunk);
	uvm_va_block_gpu_state_t *state;

	if (!uvm_rust_fix_anew) {
		uvm_pmm_gpu_free(&gpu->pmm, chunk, NULL);
		return;
	}
	uvm_assert_mutex_locked(&va_block->lock);
	state = uvm_va_block_gpu_state_get(va_block, gpu->id);
	/* While the lock was let go, Linux may have taken the page back, and the next pass has another chunk for it. */
	for (uvm_page_index_t page = place.first; page < place.outer; page++) {
		if (state->chunks[page] != chunk)
			continue;
		uvm_mmu_chunk_unmap(chunk, &va_block->tracker);
		state->chunks[page] = NULL;
	}
	uvm_pmm_gpu_free(&gpu->pmm, chunk, &va_block->tracker);
}

#endif
