/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): announcements of kernels, and prefetching.
 */
#ifndef UVM_RUST_PREFETCH_FFI_H
#define UVM_RUST_PREFETCH_FFI_H

#include "uvm_rust_types.h"

/* Module parameters. */
extern _Bool uvm_rust_announce;
extern _Bool uvm_rust_prefetch;
extern unsigned int uvm_rust_preevict;
extern unsigned int uvm_rust_prefetch_ahead;
extern unsigned int uvm_rust_prefetch_rows;
extern unsigned int uvm_rust_prefetch_assoc;
extern unsigned int uvm_rust_prefetch_succs;
extern unsigned int uvm_rust_prefetch_memory;

struct uvm_seam_prefetch;	/* what the worker of a VA space works with */

/* --- called by C ------------------------------------------------------------------ */

/*
 * What a process's kernels are known to do, from its VA space's uvm_perf_heuristics_load() to its
 * uvm_perf_heuristics_unload(), both under the VA space's lock in write mode. Returns NULL if
 * there is no memory.
 */
struct uvm_rust_prefetch *uvm_rust_prefetch_create(struct uvm_seam_space *space);
void uvm_rust_prefetch_destroy(struct uvm_rust_prefetch *prefetch);

/*
 * The VA space ends. Its worker does not run after this; faults may still come. Takes the VA space's
 * lock.
 */
void uvm_rust_prefetch_end(struct uvm_rust_prefetch *prefetch);

/* A turn of the worker: learns, and prefetches. Called by the work item only, with no lock held. */
void uvm_rust_prefetch_work(struct uvm_rust_prefetch *prefetch);

/* Addresses from @first to @last are memory no more. Caller holds the VA space's lock in write mode. */
void uvm_rust_prefetch_forget(struct uvm_rust_prefetch *prefetch, __u64 first, __u64 last);

void uvm_rust_prefetch_show(struct uvm_rust_prefetch *prefetch, struct seq_file *seq);

/* --- called by Rust --------------------------------------------------------------- */

/* What uvm_rust_prefetch_create() gave; NULL if announcements are not taken. Caller holds the VA space's lock. */
struct uvm_rust_prefetch *uvm_seam_prefetch_of(struct uvm_seam_space *space);

/*
 * Of a GPU that is registered: whether it has replayable faults, and the number of its parent
 * GPU. Caller holds the VA space's lock.
 */
_Bool uvm_seam_prefetch_parent(struct uvm_seam_space *space, __u32 gpu, __u32 *parent);

/*
 * The worker of a VA space, charged to @memcg, which outlives it. Returns NULL if there is no memory.
 * It is freed before the VA space, and after it was stopped.
 */
struct uvm_seam_prefetch *uvm_seam_prefetch_create(struct uvm_seam_space *space, struct mem_cgroup *memcg);
void uvm_seam_prefetch_free(struct uvm_seam_prefetch *call);

/* Has uvm_rust_prefetch_work() called, once more if it runs. Any context that may take a spinlock. */
void uvm_seam_prefetch_wake(struct uvm_seam_prefetch *call);
/* Waits until it does not run, and forgets that it was woken; nobody wakes it from then on. No lock is held. */
void uvm_seam_prefetch_stop(struct uvm_seam_prefetch *call);

__u64 uvm_seam_random(void);

/*
 * A turn. `Machine` of policy/prefetch/worker.rs has what each is for, and Rust keeps what was found
 * and what is locked; with one @call, they are one thread's at a time. A GPU is one that the VA space has,
 * and a va_block one of its, both since its lock was taken.
 */

/* Copies that are under way at a time. */
#define UVM_RUST_PREFETCH_COPIES	2

/* Tries to take pm.lock in read mode. */
_Bool uvm_seam_pm_trylock(void);
void uvm_seam_pm_unlock(void);

/* The GPU, if the VA space has it; if it is @ending, if it is registered there. Caller holds its lock. */
struct uvm_gpu_struct *uvm_seam_prefetch_gpu(struct uvm_seam_space *space, __u32 gpu, _Bool ending);

/* These with the list_lock. What a chunk holds, which is below the number that the queues were made for. */
struct uvm_va_block_struct *uvm_seam_prefetch_holds(struct uvm_gpu_struct *gpu, __u32 chunk, __u64 *start);
/* How many root chunks are free; no more than @enough are counted. */
__u32 uvm_seam_prefetch_free_chunks(struct uvm_gpu_struct *gpu, __u32 enough);

/* How many PMA has that nobody took. */
__u64 uvm_seam_prefetch_pma_free(struct uvm_gpu_struct *gpu);

/* The first address behind some memory, the va_block there, and what keeps that where it is. */
struct uvm_rust_prefetch_found {
	__u64 next;
	struct uvm_va_block_struct *block;	/* NULL: not managed memory, or never touched */
	_Bool preferred_elsewhere, read_duplicated;
	_Bool lite;		/* the GPU is one of the range's UVM-Lite GPUs */
	_Bool group_stays;	/* a range group that may not be migrated */
};

/*
 * Finds the va_block at the first memory from @from to @last, within 2 MiB that begin at a multiple of
 * that. False if there is no memory.
 */
_Bool uvm_seam_prefetch_find(struct uvm_seam_space *space, struct uvm_gpu_struct *gpu, __u64 from, __u64 last,
			     struct uvm_rust_prefetch_found *found);

/* Upstream's: the mm of a VA space, held until the second is called; NULL if it has none, or it ends. */
struct mm_struct *uvm_va_space_mm_retain(struct uvm_va_space_struct *va_space);
void uvm_va_space_mm_release(struct uvm_va_space_struct *va_space);

/* Locks a va_block, to move it; what it takes on the host is charged to @mm. */
void uvm_seam_prefetch_lock(struct uvm_seam_prefetch *call, struct uvm_va_block_struct *block, struct mm_struct *mm);
void uvm_seam_prefetch_unlock(struct uvm_seam_prefetch *call, struct uvm_va_block_struct *block);

/* These with the va_block locked. Its pages: resident on any processor, thrashing, and resident on the GPU. */
struct uvm_rust_prefetch_pages {
	struct uvm_rust_mask populated;
	struct uvm_rust_mask thrashing;
	struct uvm_rust_mask there;
};
/* Adds to @out, and returns the discard state; NULL for none. */
struct uvm_rust_block *uvm_seam_prefetch_pages(struct uvm_va_block_struct *block, struct uvm_gpu_struct *gpu,
					       struct uvm_rust_prefetch_pages *out);

/*
 * Moves pages @first to @outer - 1 to @gpu; NULL is the host. The copies are numbered @copy, below
 * UVM_RUST_PREFETCH_COPIES. Returns an NV_STATUS; NV_ERR_MORE_PROCESSING_REQUIRED: the lock was let go meanwhile.
 */
__u32 uvm_seam_prefetch_migrate(struct uvm_seam_prefetch *call, struct uvm_va_block_struct *block,
				struct uvm_gpu_struct *gpu, __u32 copy, __u16 first, __u16 outer);

/* Waits until the copies numbered @copy are done. Returns an NV_STATUS. */
__u32 uvm_seam_prefetch_settle(struct uvm_seam_prefetch *call, __u32 copy);

#endif
