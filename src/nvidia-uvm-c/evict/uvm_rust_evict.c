// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C seam of the eviction queues: the functions of uvm_pmm_gpu.c that say what a root chunk
 * holds.
 */
#include "uvm_rust_hooks.h"
#include "uvm_global.h"

/* --- what a root chunk holds -------------------------------------------------- */

UVM_RUST_C_BODY(uvm_pmm_gpu_mark_root_chunk_used);
UVM_RUST_C_BODY(uvm_pmm_gpu_mark_root_chunk_unused);
UVM_RUST_C_BODY(uvm_pmm_gpu_mark_chunk_evicted);

static void set_queue(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk, __u32 queue, uvm_va_space_t *holder)
{
	uvm_spin_lock(&pmm->list_lock);
	uvm_rust_queues_set(uvm_rust_gpu_index(pmm), uvm_rust_root_index(chunk), queue, (uintptr_t)holder);
	uvm_spin_unlock(&pmm->list_lock);
}

void uvm_pmm_gpu_mark_root_chunk_used(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	/*
	 * The caller holds the lock of the va_block whose chunk it is, and has just made pages
	 * of it resident. So the block, and its VA space, are there; NULL while the chunk is
	 * still being allocated: then whoever it is allocated for has it, if that was said.
	 */
	uvm_va_block_t *block = chunk->va_block;

	if (uvm_rust_evict)
		set_queue(pmm, chunk, UVM_RUST_QUEUE_USED,
			  block ? uvm_va_block_get_va_space_maybe_dead(block) : (void *)UVM_RUST_HOLDER_UNKNOWN);
	else
		uvm_pmm_gpu_mark_root_chunk_used__c(pmm, chunk);
}

void uvm_pmm_gpu_mark_root_chunk_unused(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	if (uvm_rust_evict)
		set_queue(pmm, chunk, UVM_RUST_QUEUE_UNUSED, NULL);
	else
		uvm_pmm_gpu_mark_root_chunk_unused__c(pmm, chunk);
}

void uvm_seam_discard_requeue(struct uvm_seam_space *space, uvm_va_block_t *block, __u32 memory, __u32 queue)
{
	uvm_gpu_id_t id = uvm_gpu_id_from_index(memory - UVM_RUST_MEMORY_GPU(0));

	set_queue(&uvm_rust_gpu((uvm_va_space_t *)space, id)->pmm,
		  uvm_va_block_gpu_state_get(block, id)->chunks[0], queue, (uvm_va_space_t *)space);
}

void uvm_pmm_gpu_mark_chunk_evicted(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	uvm_pmm_gpu_mark_chunk_evicted__c(pmm, chunk);
	set_queue(pmm, chunk, UVM_RUST_QUEUE_FREE, NULL);
}

#include "uvm_rust_on_queues.h"

__u64 uvm_seam_pma_free(uvm_gpu_t *gpu)
{
	/* A GPU without framebuffer memory of its own has no PMA. */
	return gpu->pmm.pma_stats ? READ_ONCE(gpu->pmm.pma_stats->numFreePages2m) : 0;
}

/* Called by Rust in the thread that allocates; `current` is the number that the PMM's hooks give. */
__u64 uvm_seam_this_thread(void)
{
	return (uintptr_t)current;
}
