/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_pmm_gpu.c: evictions of ordinary memory, evictions that fail, and chunks that
 * are on their way.
 */
#ifndef UVM_RUST_PMM_FIXES_H
#define UVM_RUST_PMM_FIXES_H

#include <linux/delay.h>

#include "uvm_gpu.h"
#include "uvm_pmm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"
#include "uvm_rust_on_pins.h"
#include "uvm_rust_on_place.h"

/* Upstream's, defined below in uvm_pmm_gpu.c. */
static uvm_gpu_root_chunk_t *pick_root_chunk_to_evict(uvm_pmm_gpu_t *pmm);
typedef NV_STATUS uvm_rust_walk_fn(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk, void *data);
static NV_STATUS chunk_walk_pre_order(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *start, uvm_rust_walk_fn *fn, void *data);
static uvm_rust_walk_fn free_first_pinned_chunk_func;

/* --- what mremap() leaves behind ---------------------------------------------- */

#include "uvm_rust_on_devmem.h"

#if UVM_IS_CONFIG_HMM()
/* How long a root chunk is tried again while somebody holds pages of it. */
#define REST_MS 10

/*
 * Whether @va_block really has the page of @chunk, which names @va_block as its owner, in @place. Each page of ordinary
 * memory has a chunk of its own.
 */
static bool chunk_is_in_va_block(uvm_gpu_t *gpu, uvm_va_block_t *va_block, uvm_gpu_chunk_t *chunk,
				 uvm_va_block_region_t place)
{
	uvm_va_block_gpu_state_t *state;
	uvm_page_index_t page, end;
	bool there = false;

	uvm_mutex_lock(&va_block->lock);
	state = uvm_va_block_gpu_state_get(va_block, gpu->id);
	/* A block that has been split since is shorter; a dead one has no state, and no length to ask for. */
	end = state ? min_t(size_t, place.outer, uvm_va_block_num_cpu_pages(va_block)) : 0;
	for (page = place.first; state && !there && page < end; page++)
		there = state->chunks[page] == chunk;
	uvm_mutex_unlock(&va_block->lock);
	return there;
}

/*
 * Evicts the chunks in @root_chunk that still name @va_block as their owner after its eviction.
 * mremap() takes pages of ordinary memory away from a va_block. Until the GPU faults at the new
 * address, the chunks of these pages have no owner (uvm_rust_chunk_is_nobodys()), or still name the
 * old block. They go to the host one by one through Linux, which knows where they are mapped.
 *
 * Returns how many chunks are left: those that @va_block really owns, and those that Linux did not
 * release.
 */
static unsigned int evict_strays(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk, uvm_va_block_t *va_block,
				 NV_STATUS *status)
{
	uvm_gpu_t *gpu = uvm_pmm_to_gpu(pmm);
	unsigned long pfn = uvm_pmm_gpu_devmem_get_pfn(pmm, &root_chunk->chunk);
	unsigned long end = pfn + UVM_CHUNK_SIZE_MAX / PAGE_SIZE;
	unsigned int left = 0;

	for (; *status == NV_OK && pfn < end; pfn++) {
		struct page *page = pfn_to_page(pfn);
		uvm_va_block_region_t place = {};
		uvm_gpu_chunk_t *chunk = NULL;
		bool claims;

		/* Whoever frees the page's chunk first clears this, then takes the lock: until then the page has its chunk. */
		uvm_spin_lock(&pmm->list_lock);
		if (READ_ONCE(page->zone_device_data))
			chunk = uvm_rust_chunk_of_page(page);
		claims = chunk && chunk->va_block == va_block;
		if (claims)
			place = uvm_rust_place_of(chunk);
		uvm_spin_unlock(&pmm->list_lock);

		if (!claims)
			continue;
		if (chunk_is_in_va_block(gpu, va_block, chunk, place)) {
			left++;
			continue;
		}
		*status = uvm_rust_hmm_evict_pfn(pfn);
		if (*status == NV_ERR_BUSY_RETRY) {
			left++;
			*status = NV_OK;
		}
	}
	return left;
}

/*
 * Called after @va_block has given up its chunks in @root_chunk with @status. Evicts the rest:
 * strays, and pages that somebody holds for a moment (uvm_rust_chunk_stays()). @tracker gets the
 * work that has to be waited for. With IN_USE the caller goes on with another root chunk, until
 * uvm_rust_eviction_ended() ends the attempt.
 *
 * Called without the va_block's and the PMM's lock, as Linux calls notifiers.
 */
static NV_STATUS uvm_rust_evict_rest(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk, uvm_va_block_t *va_block,
				     uvm_tracker_t *tracker, NV_STATUS status)
{
	uvm_gpu_t *gpu = uvm_pmm_to_gpu(pmm);
	unsigned long until = jiffies + msecs_to_jiffies(REST_MS);
	bool nobody = uvm_rust_is_nobody(va_block);

	/* Every eviction calls this; only an eviction of ordinary memory can have left pages behind. */
	if (!(nobody || uvm_va_block_is_hmm(va_block)) || !uvm_rust_fix_strays)
		return status;
	/* Chunks that Linux has released, which back no page any more. */
	if (nobody)
		nv_kthread_q_flush(&gpu->parent->lazy_free_q);
	for (;;) {
		/* Linux released none of them. */
		if (status == NV_WARN_MORE_PROCESSING_REQUIRED)
			status = NV_OK;
		if (status != NV_OK || !evict_strays(pmm, root_chunk, va_block, &status))
			break;
		if (time_after(jiffies, until))
			return NV_ERR_IN_USE;
		usleep_range(50, 100);
		if (nobody)
			continue;
		uvm_mutex_lock(&va_block->lock);
		/* Upstream's function is called: ours has counted this eviction already. */
		status = uvm_va_block_evict_chunks__c(va_block, gpu, &root_chunk->chunk, tracker);
		uvm_mutex_unlock(&va_block->lock);
	}
	return status;
}
#else
static NV_STATUS uvm_rust_evict_rest(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk, uvm_va_block_t *va_block,
				     uvm_tracker_t *tracker, NV_STATUS status)
{
	return status;
}
#endif

/* --- what Linux lets go during an eviction --------------------------------------------- */

#ifdef uvm_rust_lazy_frees
/* Upstream's, defined below in uvm_pmm_gpu.c. */
static bool chunk_is_in_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
static bool chunk_is_last_allocated_child(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
static void free_chunk_with_merges(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
static bool free_next_available_root_chunk(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type);

/*
 * Frees the next chunk that Linux has let go; false if there is none. The chunk leaves the list and is freed while the
 * PMM's lock is held. So whoever has that lock finds a chunk on the list, or freed, or, in a root chunk that is being
 * evicted, left to the eviction, as upstream leaves it. Upstream lets a chunk go from the list and then, without a lock, frees it.
 */
static bool free_lazily(uvm_pmm_gpu_t *pmm)
{
	uvm_pmm_gpu_memory_type_t type = UVM_PMM_GPU_MEMORY_TYPE_USER;
	uvm_gpu_chunk_t *chunk;
	bool evicted = false, last = false;

	uvm_mutex_lock(&pmm->lock);
	uvm_spin_lock(&pmm->list_lock);
	chunk = list_first_entry_or_null(uvm_rust_lazy_frees(pmm), uvm_gpu_chunk_t, list);
	if (chunk) {
		list_del_init(&chunk->list);
		type = chunk->type;
		/* Such an eviction may have begun without the PMM's lock: it has not looked at its free chunks yet. */
		evicted = chunk_is_in_eviction(pmm, chunk);
		last = !evicted && chunk_is_last_allocated_child(pmm, chunk);
	}
	uvm_spin_unlock(&pmm->list_lock);
	if (chunk && !evicted)
		free_chunk_with_merges(pmm, chunk);
	uvm_mutex_unlock(&pmm->lock);
	/* As upstream's free_chunk() does: a root chunk that is free now goes to PMA. */
	if (last)
		free_next_available_root_chunk(pmm, type);
	return chunk;
}

/* Called in upstream's thread that frees such chunks; with false, the thread goes on in upstream's way. */
static bool uvm_rust_process_lazy_free(uvm_pmm_gpu_t *pmm)
{
	if (!uvm_rust_fix_lazy_pins)
		return false;
	while (free_lazily(pmm))
		;
	return true;
}

static NV_STATUS take_lazy_pin(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk, void *unused)
{
	if (chunk->state == UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED)
		list_del_init(&chunk->list);
	return NV_OK;
}

/*
 * All of @root_chunk is pinned, and is about to become one chunk. Parts of it that Linux has released meanwhile may still be
 * on the thread's list, although they belong to the eviction now. Upstream frees the memory of such a part while it is on
 * the list, and the thread frees it once more.
 *
 * Caller holds the PMM's lock. A page that Linux has not let go yet is none of these: with the fix `held`, its chunk
 * stays (uvm_rust_chunk_stays()).
 */
static void uvm_rust_take_lazy_pins(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *root_chunk)
{
	if (!uvm_rust_fix_lazy_pins)
		return;
	uvm_spin_lock(&pmm->list_lock);
	chunk_walk_pre_order(pmm, root_chunk, take_lazy_pin, NULL);
	uvm_spin_unlock(&pmm->list_lock);
}
#endif

/* --- evictions that fail --------------------------------------------------------------- */

/*
 * The chunks that a failed eviction had got so far: pinned chunks of its root chunk, on a list.
 * The PMM's lock guards the list, which is empty whenever that lock is released.
 */
static struct list_head *in_vain_of(uvm_pmm_gpu_t *pmm)
{
	static struct list_head in_vain[UVM_ID_MAX_GPUS];

	return &in_vain[uvm_id_gpu_index(uvm_pmm_to_gpu(pmm)->id)];
}

static NV_STATUS collect_pinned_chunk(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk, void *list)
{
	if (chunk->state == UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED && uvm_rust_is_of_eviction(chunk))
		list_add_tail(&chunk->list, list);
	return NV_OK;
}

/*
 * An eviction of @root_chunk has failed, and the chunks that it had got are to be freed. These are
 * all chunks that are pinned now: nobody else pins a chunk of a root chunk that is being evicted.
 * A moment later somebody may, because anyone can allocate the first chunk that is freed. Upstream
 * looks for pinned chunks again after each that it has freed, finds those of others, and
 * frees them as well: the page then has two owners, and either sees what the other writes.
 *
 * Called under the PMM's lock and its list lock, which has been held since the root chunk was
 * in eviction.
 */
static void uvm_rust_collect_pinned(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *root_chunk)
{
	struct list_head *in_vain = in_vain_of(pmm);

	uvm_assert_spinlock_locked(&pmm->list_lock);
	if (!uvm_rust_fix_in_vain)
		return;
	INIT_LIST_HEAD(in_vain);
	chunk_walk_pre_order(pmm, root_chunk, collect_pinned_chunk, in_vain);
}

/*
 * Frees the next chunk of that list. Returns MORE_DATA_AVAILABLE if there was one, as upstream's walk
 * over @root_chunk does. Caller holds the PMM's lock.
 */
static NV_STATUS uvm_rust_free_first_pinned(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *root_chunk)
{
	struct list_head *in_vain = in_vain_of(pmm);
	NV_STATUS status;

	if (!uvm_rust_fix_in_vain) {
		status = chunk_walk_pre_order(pmm, root_chunk, free_first_pinned_chunk_func, NULL);
		uvm_rust_test_freed();
		return status;
	}
	if (list_empty(in_vain))
		return NV_OK;
	/* Freeing takes the chunk off the list: it joins the free chunks, or merges into its parent. */
	status = free_first_pinned_chunk_func(pmm, list_first_entry(in_vain, uvm_gpu_chunk_t, list), NULL);
	uvm_rust_test_freed();
	return status;
}

/* --- chunks on their way from PMA --------------------------------------------------------- */

/*
 * A root chunk to evict, pinned, or NULL.
 *
 * alloc_root_chunk() takes a batch of 64 chunks from PMA before it puts them on the
 * free lists. If PMA had no more than these, another allocation at this moment finds no chunk
 * with PMA, no free one and, with little in use, none to evict. Upstream then fails, and a GPU
 * fault becomes a fatal one. So this function waits for such a batch, and looks once more.
 *
 * @may_wait: false where PMA calls us. Caller holds pmm->lock.
 */
static uvm_gpu_root_chunk_t *uvm_rust_pick_root_chunk(uvm_pmm_gpu_t *pmm, bool may_wait)
{
	uvm_gpu_root_chunk_t *root_chunk = pick_root_chunk_to_evict(pmm);

	if (root_chunk || !may_wait || !uvm_rust_fix_batch)
		return root_chunk;
	/* An allocation holds this lock for reading until its batch is on the free lists. */
	uvm_down_write(&pmm->pma_lock);
	uvm_up_write(&pmm->pma_lock);
	return pick_root_chunk_to_evict(pmm);
}

#endif
