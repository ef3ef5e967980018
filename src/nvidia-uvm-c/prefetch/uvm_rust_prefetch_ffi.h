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

/*
 * A fault at @address was serviced on GPU @gpu. Caller holds the GPU's replayable-fault service
 * lock and the VA space's lock. Neither sleeps nor allocates.
 */
void uvm_rust_prefetch_fault(struct uvm_rust_prefetch *prefetch, __u32 gpu, __u64 address);

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
 * A turn. `Machine` of policy/prefetch/worker.rs has what each is for; with one @call, they are one
 * thread's at a time. Between uvm_seam_prefetch_enter() and uvm_seam_prefetch_leave(), but for the
 * pair; those that are about the va_block that was chosen, from _lock() to _migrate(), after _next()
 * or _victim() said that there is one; _pages(), _chunk() and _migrate() with it locked.
 */

/* Copies that are under way at a time. */
#define UVM_RUST_PREFETCH_COPIES	2

/*
 * Takes pm.lock and the VA space's in read mode. False, with neither, if the VA space does not have
 * the GPU, or the system suspends.
 */
_Bool uvm_seam_prefetch_enter(struct uvm_seam_prefetch *call, __u32 gpu);
void uvm_seam_prefetch_leave(struct uvm_seam_prefetch *call);

/* The same with the VA space's lock alone; if it is @ending, where the GPU is registered. */
_Bool uvm_seam_prefetch_visit(struct uvm_seam_prefetch *call, __u32 gpu, _Bool ending);
void uvm_seam_prefetch_depart(struct uvm_seam_prefetch *call);

/* Takes the list_lock of the GPU's PMM, a spinlock. */
void uvm_seam_prefetch_lock_chunks(struct uvm_seam_prefetch *call);
void uvm_seam_prefetch_unlock_chunks(struct uvm_seam_prefetch *call);

/* Notes what a chunk holds, which is below the number that the queues were made for. With the list_lock held. */
void uvm_seam_prefetch_note(struct uvm_seam_prefetch *call, __u32 chunk);

/* How many root chunks nobody has; no more than @enough are told of. */
__u32 uvm_seam_prefetch_free_chunks(struct uvm_seam_prefetch *call, __u32 enough);

/* What keeps a va_block where it is. */
#define UVM_RUST_STAYS_NO_BLOCK		(1u << 0)	/* not managed memory, or never touched */
#define UVM_RUST_STAYS_PREFERRED	(1u << 1)	/* preferred location elsewhere */
#define UVM_RUST_STAYS_DUPLICATED	(1u << 2)	/* read duplication */
#define UVM_RUST_STAYS_LITE		(1u << 3)	/* the GPU is one of the range's UVM-Lite GPUs */
#define UVM_RUST_STAYS_GROUP		(1u << 4)	/* a range group that may not be migrated */

/* Chooses the va_block that was noted. False if it is not one of this VA space, or no longer. */
_Bool uvm_seam_prefetch_victim(struct uvm_seam_prefetch *call, __u32 *hindrances);

/*
 * Chooses the va_block at the first memory from @from to @last, within 2 MiB that begin at a multiple of
 * that; @next: the first address behind that memory. False if there is no memory.
 */
_Bool uvm_seam_prefetch_next(struct uvm_seam_prefetch *call, __u64 from, __u64 last, __u64 *next, __u32 *hindrances);

/* Locks the chosen va_block, to move it @to_host or to the GPU. */
void uvm_seam_prefetch_lock(struct uvm_seam_prefetch *call, _Bool to_host);
void uvm_seam_prefetch_unlock(struct uvm_seam_prefetch *call);

/* Its pages: resident on any processor, thrashing, discarded, and resident on the GPU. */
struct uvm_rust_prefetch_pages {
	struct uvm_rust_mask populated;
	struct uvm_rust_mask thrashing;
	struct uvm_rust_mask discarded;
	struct uvm_rust_mask there;
};
void uvm_seam_prefetch_pages(struct uvm_seam_prefetch *call, struct uvm_rust_prefetch_pages *out);

/* The root chunk of its first page on the GPU, or UVM_RUST_NO_CHUNK. */
__u32 uvm_seam_prefetch_chunk(struct uvm_seam_prefetch *call);

/*
 * Moves pages of it; their copies are numbered @copy, below UVM_RUST_PREFETCH_COPIES. AGAIN: its lock was let go
 * meanwhile.
 */
#define UVM_RUST_MIGRATE_BEGUN		0
#define UVM_RUST_MIGRATE_AGAIN		1
#define UVM_RUST_MIGRATE_FAILED		2
__u32 uvm_seam_prefetch_migrate(struct uvm_seam_prefetch *call, __u32 copy, const struct uvm_rust_mask *pages,
				_Bool to_host);

/* Waits until the copies numbered @copy are done; whether none failed. */
_Bool uvm_seam_prefetch_settle(struct uvm_seam_prefetch *call, __u32 copy);

#endif
