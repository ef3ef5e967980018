// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The C seam of the eviction queues: the functions of uvm_pmm_gpu.c that say what a root chunk
 * holds.
 */
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_pmm_gpu.h"
#include "uvm_va_space.h"

#include "uvm_rust_hooks.h"

static int set_policy(const char *name, const struct kernel_param *param)
{
	return uvm_rust_evict_policy_set(name);
}

static int get_policy(char *buffer, const struct kernel_param *param)
{
	return uvm_rust_evict_policy_get(buffer);
}

static const struct kernel_param_ops policy_ops = { .set = set_policy, .get = get_policy };
module_param_cb(uvm_rust_evict_policy, &policy_ops, NULL, 0444);
MODULE_PARM_DESC(uvm_rust_evict_policy, "With uvm_rust_evict: which used chunk is reclaimed first, lru or mru (default lru)");

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
	 * still being allocated.
	 */
	uvm_va_block_t *block = chunk->va_block;

	if (uvm_rust_evict)
		set_queue(pmm, chunk, UVM_RUST_QUEUE_USED, block ? uvm_va_block_get_va_space_maybe_dead(block) : NULL);
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

void uvm_rust_chunk_discarded(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	set_queue(pmm, chunk, UVM_RUST_QUEUE_DISCARDED, NULL);
}

void uvm_pmm_gpu_mark_chunk_evicted(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	uvm_pmm_gpu_mark_chunk_evicted__c(pmm, chunk);
	set_queue(pmm, chunk, UVM_RUST_QUEUE_FREE, NULL);
}

__u64 uvm_seam_pma_free(uvm_gpu_t *gpu)
{
	/* A GPU without framebuffer memory of its own has no PMA. */
	return gpu->pmm.pma_stats ? READ_ONCE(gpu->pmm.pma_stats->numFreePages2m) : 0;
}
