/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the hooks in hooks/ call, and what the C files of the seam call of each
 * other.
 */
#ifndef UVM_RUST_HOOKS_H
#define UVM_RUST_HOOKS_H

/* What all of the seam needs of upstream: those that include this file first do not name it again. */
#include "uvm_common.h"
#include "uvm_va_block.h"
#include "uvm_pmm_gpu.h"
#include "uvm_rust_compat.h"
#include "uvm_rust_ffi.h"
#include "uvm_rust_ioctl.h"

/*
 * Whether all of our hooks are in this upstream. Without them what is declared here is in part not
 * there: the compiler leaves out what stands under this.
 */
#ifdef UVM_RUST_NATIVE
#define UVM_RUST_HOOKED	false
#else
#define UVM_RUST_HOOKED	true
#endif

/* --- root chunks: uvm_rust_evict.c, uvm_rust_pmm_gpu.h ------------------------ */

/* Hooks of uvm_pmm_gpu.c; the caller holds pmm->list_lock. */
void uvm_rust_chunk_start_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
void uvm_rust_root_chunk_update(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk);

/* Upstream's list of the root chunks that are free, zeroed or not. Caller holds pmm->list_lock. */
struct list_head *uvm_rust_free_list(uvm_pmm_gpu_t *pmm, bool zeroed);

static inline __u32 uvm_rust_root_index(const uvm_gpu_chunk_t *chunk)
{
	return chunk->address / UVM_CHUNK_SIZE_MAX;
}

/* Replaced in uvm_rust_seam.c. */
UVM_RUST_C_BODY(uvm_va_block_evict_chunks);

/* What Rust calls a GPU by. */
static inline __u32 uvm_rust_gpu_index(uvm_pmm_gpu_t *pmm)
{
	BUILD_BUG_ON(UVM_ID_MAX_GPUS > UVM_RUST_MAX_GPUS);
	return uvm_id_gpu_index(uvm_pmm_to_gpu(pmm)->id);
}

/* Where our files in debugfs are; NULL without statistics. */
extern struct dentry *uvm_rust_debug_dir;

/* --- discard: uvm_rust_discard.c, uvm_rust_va_block.h ------------------------- */

/* All of these: the caller holds the va_block's lock. */

static inline const struct uvm_rust_mask *uvm_rust_mask(const uvm_page_mask_t *mask)
{
	BUILD_BUG_ON(sizeof(struct uvm_rust_mask) != sizeof(uvm_page_mask_t));
	return (const struct uvm_rust_mask *)mask;
}

static inline struct uvm_rust_mask *uvm_rust_mask_out(uvm_page_mask_t *mask)
{
	return (struct uvm_rust_mask *)mask;
}

static inline __u32 uvm_rust_memory(uvm_processor_id_t id)
{
	return UVM_ID_IS_CPU(id) ? UVM_RUST_MEMORY_HOST : UVM_RUST_MEMORY_GPU(uvm_id_gpu_index(id));
}

/* Hooks of uvm_va_block.c. */
NV_STATUS uvm_rust_prepare_gpu_chunk(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *chunk,
				     uvm_va_block_region_t region);
void uvm_rust_gpu_chunk_added(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *chunk,
			      uvm_va_block_region_t region);
NV_STATUS uvm_rust_prepare_cpu_pages(uvm_va_block_t *block, const uvm_page_mask_t *mask, uvm_va_block_region_t region);
NV_STATUS uvm_rust_drop_stale(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t dest_id,
			      uvm_va_block_region_t region, const uvm_page_mask_t *mask);
void uvm_rust_made_resident(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_va_block_region_t region,
			    const uvm_page_mask_t *mask);

/* Pages of a va_block that are resident on any processor; and whether a page is on none, in uvm_perf_thrashing.c. */
void uvm_rust_resident_anywhere(uvm_va_block_t *block, uvm_page_mask_t *out);
bool uvm_rust_is_nowhere(uvm_va_block_t *block, __u32 page);

/* Before the chunks of @block in @root_chunk are evicted: drops what is discarded in them. */
NV_STATUS uvm_rust_drop_needless(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk);

/*
 * The same of all that @block has on @gpu, before that leaves the VA space, whose lock is held in write mode: so what is
 * there stays known while the block's is let go. What cannot be dropped, or not in so many tries, is moved with the rest.
 */
void uvm_rust_drop_leaving(uvm_va_block_t *block, uvm_gpu_t *gpu);

/* A range is memory no more. */
void uvm_rust_on_range_destroy(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data);
/* Frees the state of a va_block that dies. */
void uvm_rust_on_block_destroy(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data);

#endif
