/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Eviction queues, the part that needs what is static in upstream's
 * uvm_pmm_gpu.c. Kbuild includes this file in front of that one (see
 * uvm_rust_va_block.h).
 *
 * Rust's queues have the root chunks that are free or may be evicted, and the next is chosen from
 * them. With the module parameter uvm_rust_evict=0 there are no queues, and upstream's lists are
 * what it is chosen from.
 *
 * Allocations take free chunks of all sizes from upstream's free lists, which stay. The list of
 * used root chunks stays too, as upstream's asserts ask whether a chunk is on a list: with queues
 * its order means nothing, and nobody takes from it. A development build compares
 * what is on the lists with what is on the queues (queued() in driver/evict.rs).
 */
#include "uvm_linux.h"
#include "uvm_common.h"
#include "uvm_rust_hooks.h"
#include "uvm_rust_on_types.h"

/* Upstream's, defined below in uvm_pmm_gpu.c. */
static struct list_head *find_free_list(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type,
					uvm_chunk_size_t chunk_size, uvm_pmm_list_zero_t zero_type);

#ifndef UVM_RUST_NATIVE

static bool chunk_is_root_chunk_pinned(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
static bool chunk_is_evictable(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
static void chunk_start_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);

#include "uvm_rust_pmm_fixes.h"

/* --- memory that is on its way ----------------------------------------------------- */

/* An eviction of a root chunk. Caller holds the PMM's lock. Macros, as upstream defines the type of the last argument below. */
#define evict_root_chunk(pmm, root_chunk, context)					\
	({										\
		uvm_rust_eviction_begins(uvm_rust_gpu_index(pmm));			\
		uvm_rust_eviction_ended(uvm_pmm_to_gpu(pmm), uvm_rust_gpu_index(pmm),	\
					uvm_rust_root_index(&(root_chunk)->chunk),	\
					evict_root_chunk__c(pmm, root_chunk, context), (uintptr_t)current); \
	})

/*
 * RM asks for memory: a number of pages, or a range. Until RM has all of it, nobody else can have the evicted
 * memory; if RM does not get all, it gives the memory back, and anybody may have it.
 */
#define uvm_rust_rm_call(pmm, call)								\
	({											\
		NV_STATUS status_of_rm;								\
												\
		uvm_rust_rm_call_begins(uvm_rust_gpu_index(pmm));					\
		status_of_rm = call;								\
		uvm_rust_rm_call_ended(uvm_rust_gpu_index(pmm), status_of_rm == NV_OK);			\
		status_of_rm;									\
	})
#define uvm_pmm_gpu_pma_evict_pages(pmm, ...) \
	uvm_rust_rm_call(pmm, uvm_pmm_gpu_pma_evict_pages__c(pmm, __VA_ARGS__))
#define uvm_pmm_gpu_pma_evict_range(pmm, ...) \
	uvm_rust_rm_call(pmm, uvm_pmm_gpu_pma_evict_range__c(pmm, __VA_ARGS__))

static NV_STATUS alloc_chunk(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type, uvm_chunk_size_t chunk_size,
			     uvm_pmm_alloc_flags_t flags, uvm_gpu_chunk_t **chunk);

/* An allocation of one chunk. */
struct uvm_seam_alloc {
	uvm_pmm_gpu_t *pmm;
	uvm_pmm_gpu_memory_type_t type;
	uvm_chunk_size_t chunk_size;
	uvm_pmm_alloc_flags_t flags;
	uvm_gpu_chunk_t **chunk;
};

__u32 uvm_seam_alloc_try(struct uvm_seam_alloc *of, bool evict)
{
	return alloc_chunk(of->pmm, of->type, of->chunk_size, evict ? of->flags : of->flags & ~UVM_PMM_ALLOC_FLAGS_EVICT,
			   of->chunk);
}

/* Upstream's, by way of Rust, which decides who waits for memory that others are evicting. */
static NV_STATUS uvm_rust_alloc_chunk(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type, uvm_chunk_size_t chunk_size,
				      uvm_pmm_alloc_flags_t flags, uvm_gpu_chunk_t **chunk_out)
{
	struct uvm_seam_alloc alloc = { pmm, type, chunk_size, flags, chunk_out };

	return uvm_rust_alloc(&alloc, uvm_rust_gpu_index(pmm), (uintptr_t)current, flags & UVM_PMM_ALLOC_FLAGS_EVICT,
			      uvm_rust_type_is_user(type), current->flags & PF_MEMALLOC);
}

/* --- the queues ---------------------------------------------------------------------- */

void uvm_rust_root_chunk_update(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk)
{
	uvm_gpu_chunk_t *chunk = &root_chunk->chunk;
	__u32 change = UVM_RUST_CHUNK_WHOLE;
	__u64 holder = 0;

	if (!uvm_rust_evict || !uvm_rust_type_is_user(chunk->type))
		return;
	if (chunk->state == UVM_PMM_GPU_CHUNK_STATE_FREE)
		change = chunk->is_zero ? UVM_RUST_CHUNK_FREE_ZEROED : UVM_RUST_CHUNK_FREE;
	else if (chunk_is_root_chunk_pinned(pmm, chunk))
		change = UVM_RUST_CHUNK_PINNED;
	else if (chunk->state == UVM_PMM_GPU_CHUNK_STATE_IS_SPLIT)
		change = UVM_RUST_CHUNK_SPLIT;
	/* A failed eviction holds no lock of the va_block's, whose range may be split and freed at this moment. */
	else if (uvm_rust_chunk_is_leaving(uvm_rust_gpu_index(pmm), uvm_rust_root_index(chunk)))
		change = UVM_RUST_CHUNK_STAYS;
	/*
	 * A chunk has its va_block from its first unpinning on, until it is freed, both under
	 * the list lock, which is held. Who unpins it may have let the block's lock go, as it gives back what it did not
	 * need of an allocation. It holds the lock of the VA space all the time: so the block is there, and its range, by way
	 * of which the VA space is reached.
	 */
	else if (chunk->va_block)
		holder = (uintptr_t)uvm_va_block_get_va_space_maybe_dead(chunk->va_block);
	uvm_rust_queues_change(uvm_rust_gpu_index(pmm), uvm_rust_root_index(chunk), change, holder);
}

bool uvm_seam_chunk_evictable(uvm_gpu_t *gpu, __u32 index)
{
	bool is = chunk_is_evictable(&gpu->pmm, &gpu->pmm.root_chunks.array[index].chunk);

	WARN_ON_ONCE(!is && !uvm_rust_may_be_pinned);
	return is;
}

/*
 * In pick_root_chunk_to_evict(): the root chunk whose eviction begins, one of VA space @of unless that is NULL; NULL if
 * there is none. An error for a GPU that has no queues: without the parameter none has, and one that goes loses them
 * before its last free chunks go to PMA, which may ask for them meanwhile.
 */
static uvm_gpu_root_chunk_t *uvm_rust_root_chunk_to_evict(uvm_pmm_gpu_t *pmm, struct uvm_seam_space *of)
{
	uvm_gpu_root_chunk_t *root_chunk = NULL;
	__u32 index;

	if (!uvm_rust_evict)
		return ERR_PTR(-ENOENT);
	uvm_spin_lock(&pmm->list_lock);
	index = uvm_rust_queues_choose(uvm_rust_gpu_index(pmm), uvm_pmm_to_gpu(pmm), of);
	if (index != UVM_RUST_NO_CHUNK) {
		root_chunk = &pmm->root_chunks.array[index];
		chunk_start_eviction(pmm, &root_chunk->chunk);
	} else if (!uvm_rust_gpu_is_known(uvm_rust_gpu_index(pmm))) {
		root_chunk = ERR_PTR(-ENOENT);
	}
	uvm_spin_unlock(&pmm->list_lock);
	return root_chunk;
}

/*
 * In split_gpu_chunk(), which splits chunks of a va_block, or pinned ones: upstream marks what such a
 * block uses no more. Caller holds the list lock. A chunk that is pinned or being evicted stays on no queue.
 */
static void uvm_rust_root_chunk_split(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	if (uvm_rust_evict && !chunk->parent && uvm_rust_type_is_user(chunk->type))
		uvm_rust_queues_set(uvm_rust_gpu_index(pmm), uvm_rust_root_index(chunk), UVM_RUST_QUEUE_USED, 0);
}

#endif

struct list_head *uvm_rust_free_list(uvm_pmm_gpu_t *pmm, bool zeroed)
{
	return find_free_list(pmm, UVM_PMM_GPU_MEMORY_TYPE_USER, UVM_CHUNK_SIZE_MAX,
			      zeroed ? UVM_PMM_LIST_ZERO : UVM_PMM_LIST_NO_ZERO);
}
