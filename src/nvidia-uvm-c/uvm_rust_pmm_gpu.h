/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Eviction queues, the part that needs what is static in upstream's
 * uvm_pmm_gpu.c. Kbuild includes this file in front of that one (see
 * uvm_rust_va_block.h).
 *
 * Upstream's lists say which root chunks may be evicted; Rust's queues say in
 * which order. With the module parameter uvm_rust_evict=0 there are no queues and
 * the lists say both.
 */
#include "uvm_linux.h"
#include "uvm_common.h"
#include "uvm_gpu.h"
#include "uvm_pmm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_rust_hooks.h"

/* Upstream's, defined below in uvm_pmm_gpu.c. */
static struct list_head *find_free_list(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type,
					uvm_chunk_size_t chunk_size, uvm_pmm_list_zero_t zero_type);

#ifndef UVM_RUST_NATIVE

static bool chunk_is_root_chunk_pinned(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
static bool chunk_is_evictable(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
static uvm_gpu_chunk_t *list_first_chunk(struct list_head *list);
static uvm_gpu_root_chunk_t *pick_root_chunk_to_evict(uvm_pmm_gpu_t *pmm);

#if UVM_IS_CONFIG_HMM()
static uvm_gpu_chunk_t *devmem_page_to_chunk_locked(struct page *page);

/* How often a root chunk is tried again while somebody holds pages of it. */
#define REST_TRIES 100

/* How many root chunks in a row may be held, of each GPU, before there is no memory. */
#define HELD_ROOT_CHUNKS 64
static atomic_t held_root_chunks[UVM_ID_MAX_PROCESSORS];

/* Whether the page of @chunk, which says that it is @va_block's, is there indeed. */
static bool chunk_is_in_va_block(uvm_gpu_t *gpu, uvm_va_block_t *va_block, uvm_gpu_chunk_t *chunk,
				 uvm_page_index_t page_index)
{
	uvm_va_block_gpu_state_t *state;
	bool there;

	uvm_mutex_lock(&va_block->lock);
	state = uvm_va_block_gpu_state_get(va_block, gpu->id);
	/* A block that was split since is shorter. */
	there = state && state->chunks && page_index < uvm_va_block_num_cpu_pages(va_block) &&
		state->chunks[page_index] == chunk;
	uvm_mutex_unlock(&va_block->lock);
	return there;
}

/*
 * What still claims to be @va_block's in @root_chunk after an eviction. mremap() takes pages
 * of ordinary memory away from a va_block, and their chunks keep its name until the GPU
 * faults at the new address. They go to the host one by one, by way of Linux, which knows
 * where they are mapped.
 *
 * Returns how many are left: those that are @va_block's indeed, and those that Linux did
 * not let go.
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
		uvm_page_index_t page_index = 0;
		uvm_gpu_chunk_t *chunk = NULL;
		bool claims;

		/* Cleared before the lock is taken to free the page's chunk: until then it has one. */
		uvm_spin_lock(&pmm->list_lock);
		if (READ_ONCE(page->zone_device_data))
			chunk = devmem_page_to_chunk_locked(page);
		claims = chunk && chunk->va_block == va_block;
		if (claims)
			page_index = chunk->va_block_page_index;
		uvm_spin_unlock(&pmm->list_lock);

		if (!claims)
			continue;
		if (chunk_is_in_va_block(gpu, va_block, chunk, page_index)) {
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
 * After @va_block has given up its chunks in @root_chunk with @status: the rest, strays and
 * pages that somebody holds for a moment (uvm_rust_chunk_stays()). @tracker gets what has to
 * be waited for. With IN_USE, the caller tries another root chunk, and does not end; so
 * there is an end here.
 *
 * Called without the va_block's and the PMM's lock, as Linux calls notifiers.
 */
static NV_STATUS uvm_rust_evict_rest(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk, uvm_va_block_t *va_block,
				     uvm_tracker_t *tracker, NV_STATUS status)
{
	uvm_gpu_t *gpu = uvm_pmm_to_gpu(pmm);
	atomic_t *held = &held_root_chunks[uvm_id_value(gpu->id)];
	int tries;

	/* Each eviction comes by; the pages are only for those that may have some left. */
	if (!uvm_va_block_is_hmm(va_block)) {
		/* Memory was had: the row of those that were held is over. */
		if (status == NV_OK)
			atomic_set(held, 0);
		return status;
	}
	for (tries = 0;; tries++) {
		/* Linux let none go. */
		if (status == NV_WARN_MORE_PROCESSING_REQUIRED)
			status = NV_OK;
		if (status != NV_OK || !evict_strays(pmm, root_chunk, va_block, &status))
			break;
		if (tries == REST_TRIES)
			return atomic_inc_return(held) < HELD_ROOT_CHUNKS ? NV_ERR_IN_USE : NV_ERR_NO_MEMORY;
		usleep_range(50, 100);
		uvm_mutex_lock(&va_block->lock);
		/* Not ours, which has counted this eviction. */
		status = uvm_va_block_evict_chunks__c(va_block, gpu, &root_chunk->chunk, tracker);
		uvm_mutex_unlock(&va_block->lock);
	}
	atomic_set(held, 0);
	return status;
}
#else
static NV_STATUS uvm_rust_evict_rest(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk, uvm_va_block_t *va_block,
				     uvm_tracker_t *tracker, NV_STATUS status)
{
	return status;
}
#endif

void uvm_rust_root_chunk_update(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk)
{
	void *queues = uvm_rust_pmm_queues(pmm);
	uvm_gpu_chunk_t *chunk = &root_chunk->chunk;
	__u32 index = uvm_rust_root_index(chunk);
	__u64 holder = 0;

	if (!queues || !uvm_pmm_gpu_memory_type_is_user(chunk->type))
		return;
	if (chunk->state == UVM_PMM_GPU_CHUNK_STATE_FREE) {
		uvm_rust_queues_free(queues, index);
		return;
	}
	if (chunk_is_root_chunk_pinned(pmm, chunk)) {
		uvm_rust_queues_remove(queues, index);
		return;
	}
	/* Parts of a split chunk are not told apart, and may be several processes'. */
	if (chunk->state == UVM_PMM_GPU_CHUNK_STATE_IS_SPLIT)
		uvm_rust_queues_used(queues, index, 0);
	/*
	 * A chunk has its va_block from its first unpinning on, until it is freed, both under
	 * the list lock, which is held. So the block is there, and so is its VA space.
	 */
	else if (chunk->va_block)
		holder = (uintptr_t)uvm_va_block_get_va_space_maybe_dead(chunk->va_block);
	uvm_rust_queues_insert(queues, index, holder);
}

/* Caller found no free root chunk, and falls back to the head of the used list. */
uvm_gpu_chunk_t *uvm_rust_root_chunk_to_evict(uvm_pmm_gpu_t *pmm)
{
	void *queues = uvm_rust_pmm_queues(pmm);
	__u32 index;

	if (!queues)
		return list_first_chunk(&pmm->root_chunks.va_block_unused);

	while ((index = uvm_rust_queues_pick(queues)) != UVM_RUST_NO_CHUNK) {
		uvm_gpu_chunk_t *chunk = &pmm->root_chunks.array[index].chunk;

		if (!WARN_ON_ONCE(list_empty(&chunk->list) || !chunk_is_evictable(pmm, chunk)))
			return chunk;
		/* The lists are the truth. */
		uvm_rust_queues_remove(queues, index);
	}
	return list_first_chunk(&pmm->root_chunks.va_block_unused);
}

/*
 * A root chunk to evict, pinned, or NULL.
 *
 * alloc_root_chunk() takes a batch of 64 chunks from PMA before it puts them on the
 * free lists. If that is all there was, whoever allocates at this moment finds none
 * with PMA, none free and, with little in use, none to evict: upstream then fails,
 * and a GPU fault ends as a fatal one. So let such a batch arrive, and look once more.
 *
 * @may_wait: false where PMA calls us. Caller holds pmm->lock.
 */
static uvm_gpu_root_chunk_t *uvm_rust_pick_root_chunk(uvm_pmm_gpu_t *pmm, bool may_wait)
{
	uvm_gpu_root_chunk_t *root_chunk = pick_root_chunk_to_evict(pmm);

	if (root_chunk || !may_wait)
		return root_chunk;
	/* Batches on their way hold it for reading. */
	uvm_down_write(&pmm->pma_lock);
	uvm_up_write(&pmm->pma_lock);
	return pick_root_chunk_to_evict(pmm);
}

bool uvm_rust_has_free_root_chunk(uvm_pmm_gpu_t *pmm)
{
	uvm_pmm_list_zero_t zero;

	for (zero = 0; zero < UVM_PMM_LIST_ZERO_COUNT; zero++) {
		if (!list_empty(find_free_list(pmm, UVM_PMM_GPU_MEMORY_TYPE_USER, UVM_CHUNK_SIZE_MAX, zero)))
			return true;
	}
	return false;
}

#endif

__u32 uvm_rust_free_root_chunks(uvm_pmm_gpu_t *pmm)
{
	uvm_pmm_list_zero_t zero;
	uvm_gpu_chunk_t *chunk;
	__u32 count = 0;

	for (zero = 0; zero < UVM_PMM_LIST_ZERO_COUNT; zero++) {
		list_for_each_entry(chunk, find_free_list(pmm, UVM_PMM_GPU_MEMORY_TYPE_USER, UVM_CHUNK_SIZE_MAX, zero),
				    list)
			count++;
	}
	return count;
}
