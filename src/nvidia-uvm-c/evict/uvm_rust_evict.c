// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The C seam of the eviction queues: one set of Rust queues for each GPU, and the
 * functions of uvm_pmm_gpu.c that say what a root chunk holds.
 */
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_pmm_gpu.h"
#include "uvm_va_space.h"

#include "uvm_rust_hooks.h"

static bool uvm_rust_evict = true;
module_param(uvm_rust_evict, bool, 0444);
MODULE_PARM_DESC(uvm_rust_evict, "Reclaim GPU memory in the order of Rust's queues; 0: of upstream's lists (default 1)");

/*
 * By uvm_id_gpu_index(). Written under g_uvm_global.global_lock and, within it, the GPU's
 * pmm.list_lock, which also protects what they point to: it is destroyed after the entry was
 * cleared under that lock.
 */
static struct uvm_rust_queues *gpu_queues[UVM_ID_MAX_GPUS];
/* How often they changed, under the same lock: what one set has numbered means nothing to the next. */
static __u32 gpu_generation[UVM_ID_MAX_GPUS];

struct uvm_rust_queues *uvm_rust_pmm_queues(uvm_pmm_gpu_t *pmm)
{
	uvm_assert_spinlock_locked(&pmm->list_lock);
	return gpu_queues[uvm_id_gpu_index(uvm_pmm_to_gpu(pmm)->id)];
}

__u32 uvm_rust_pmm_queues_generation(uvm_pmm_gpu_t *pmm)
{
	uvm_assert_spinlock_locked(&pmm->list_lock);
	return gpu_generation[uvm_id_gpu_index(uvm_pmm_to_gpu(pmm)->id)];
}

static void set_queues(uvm_gpu_t *gpu, struct uvm_rust_queues **queues)
{
	uvm_spin_lock(&gpu->pmm.list_lock);
	gpu_generation[uvm_id_gpu_index(gpu->id)]++;
	swap(gpu_queues[uvm_id_gpu_index(gpu->id)], *queues);
	uvm_spin_unlock(&gpu->pmm.list_lock);
}

NV_STATUS uvm_rust_evict_add_gpu(uvm_gpu_t *gpu)
{
	struct uvm_rust_queues *queues;

	if (!uvm_rust_evict)
		return NV_OK;
	queues = uvm_rust_queues_create(gpu->pmm.root_chunks.count);
	if (!queues)
		return NV_ERR_NO_MEMORY;
	set_queues(gpu, &queues);
	UVM_ASSERT(!queues);
	return NV_OK;
}

void uvm_rust_evict_remove_gpu(uvm_gpu_t *gpu)
{
	struct uvm_rust_queues *queues = NULL;

	/* A GPU that failed to come need not have a lock. */
	if (!gpu_queues[uvm_id_gpu_index(gpu->id)])
		return;
	set_queues(gpu, &queues);
	uvm_rust_queues_destroy(queues);
}

/* --- what a root chunk holds -------------------------------------------------- */

UVM_RUST_C_BODY(uvm_pmm_gpu_mark_root_chunk_used);
UVM_RUST_C_BODY(uvm_pmm_gpu_mark_root_chunk_unused);
UVM_RUST_C_BODY(uvm_pmm_gpu_mark_chunk_evicted);

static void set_queue(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk, __u32 queue)
{
	struct uvm_rust_queues *queues;

	uvm_spin_lock(&pmm->list_lock);
	queues = uvm_rust_pmm_queues(pmm);
	if (queues)
		uvm_rust_queues_set(queues, uvm_rust_root_index(chunk), queue);
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
	struct uvm_rust_queues *queues;

	uvm_pmm_gpu_mark_root_chunk_used__c(pmm, chunk);
	uvm_spin_lock(&pmm->list_lock);
	queues = uvm_rust_pmm_queues(pmm);
	if (queues)
		uvm_rust_queues_used(queues, uvm_rust_root_index(chunk),
				     block ? (uintptr_t)uvm_va_block_get_va_space_maybe_dead(block) : 0);
	uvm_spin_unlock(&pmm->list_lock);
}

void uvm_pmm_gpu_mark_root_chunk_unused(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	uvm_pmm_gpu_mark_root_chunk_unused__c(pmm, chunk);
	set_queue(pmm, chunk, UVM_RUST_QUEUE_UNUSED);
}

void uvm_rust_chunk_discarded(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	set_queue(pmm, chunk, UVM_RUST_QUEUE_DISCARDED);
}

void uvm_pmm_gpu_mark_chunk_evicted(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	struct uvm_rust_queues *queues;

	uvm_pmm_gpu_mark_chunk_evicted__c(pmm, chunk);
	uvm_spin_lock(&pmm->list_lock);
	queues = uvm_rust_pmm_queues(pmm);
	if (queues)
		uvm_rust_queues_evicted(queues, uvm_rust_root_index(chunk));
	uvm_spin_unlock(&pmm->list_lock);
}

/* --- reclaim -------------------------------------------------------------------- */

/* Which of upstream's lists a chunk is the head of. */
static __u32 list_of(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	if (pmm->root_chunks.va_block_unused.next == &chunk->list)
		return UVM_RUST_QUEUE_UNUSED;
	if (pmm->root_chunks.va_block_used.next == &chunk->list)
		return UVM_RUST_QUEUE_USED;
	return UVM_RUST_QUEUE_ADDRESS;
}

/* Called by the hook in uvm_pmm_gpu.c, before the chunk leaves its list. */
void uvm_rust_chunk_start_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	struct uvm_rust_queues *queues = uvm_rust_pmm_queues(pmm);
	struct uvm_rust_gpu *gpu = uvm_rust_gpu_state(uvm_pmm_to_gpu(pmm));
	bool free = chunk->state == UVM_PMM_GPU_CHUNK_STATE_FREE;
	__u32 index = uvm_rust_root_index(chunk);
	__u32 queue;

	if (queues)
		queue = uvm_rust_queues_begin_eviction(queues, index, free);
	else
		queue = free ? UVM_RUST_QUEUE_FREE : list_of(pmm, chunk);
	if (gpu)
		uvm_rust_note_reclaim(gpu, index, queue);
}

NvU64 uvm_rust_pma_free_2m(const uvm_pmm_gpu_t *pmm)
{
	/* A GPU without framebuffer memory of its own has no PMA. */
	return pmm->pma_stats ? READ_ONCE(pmm->pma_stats->numFreePages2m) : 0;
}

/* --- statistics ------------------------------------------------------------------ */

static __u64 list_length(const struct list_head *list)
{
	const struct list_head *node;
	__u64 length = 0;

	list_for_each(node, list)
		length++;
	return length;
}

void uvm_seam_queued(struct uvm_seam_space *space, const __u8 *uuid, __u64 *queued)
{
	uvm_gpu_t *gpu = uvm_va_space_get_gpu_by_uuid((uvm_va_space_t *)space, (const NvProcessorUuid *)uuid);
	uvm_pmm_gpu_t *pmm;
	struct uvm_rust_queues *queues;
	__u32 queue;

	if (!gpu)
		return;
	pmm = &gpu->pmm;
	uvm_spin_lock(&pmm->list_lock);
	queues = uvm_rust_pmm_queues(pmm);
	if (queues) {
		for (queue = UVM_RUST_QUEUE_UNUSED; queue <= UVM_RUST_QUEUE_USED; queue++)
			queued[queue] = uvm_rust_queues_length(queues, queue);
	}
	else {
		queued[UVM_RUST_QUEUE_UNUSED] = list_length(&pmm->root_chunks.va_block_unused);
		queued[UVM_RUST_QUEUE_USED] = list_length(&pmm->root_chunks.va_block_used);
	}
	queued[UVM_RUST_QUEUE_FREE] = uvm_rust_free_root_chunks(pmm);
	uvm_spin_unlock(&pmm->list_lock);
}
