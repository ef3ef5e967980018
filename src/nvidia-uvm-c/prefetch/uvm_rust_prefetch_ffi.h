/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): announcements of kernels, and prefetching.
 */
#ifndef UVM_RUST_PREFETCH_FFI_H
#define UVM_RUST_PREFETCH_FFI_H

#include "uvm_rust_types.h"

/* Module parameter. */
extern _Bool uvm_rust_announce;

/* --- prefetching: called by C -------------------------------------------------- */

struct uvm_seam_prefetch;	/* prefetching of a VA space, on one GPU, for the length of a call */

/*
 * What the tables of one tenant (a user in a memory cgroup) for one GPU may take together,
 * @limit bytes, in however many VA spaces. Returns NULL if there is no memory. What was made with it may outlive it.
 */
struct uvm_rust_share *uvm_rust_share_create(__u64 limit);
void uvm_rust_share_destroy(struct uvm_rust_share *share);

/*
 * What a process's kernels on one GPU are known to do: made by its first
 * announcement, gone with the VA space. @share: from uvm_rust_share_create(). @ahead, @rows, @assoc, @succs: as in
 * `Config` of policy/prefetch/types.rs; what is out of range is clamped. @act: 0:
 * learn only. Returns NULL if there is no memory.
 */
struct uvm_rust_prefetch_params {
	__u64 seed;
	__u32 ahead;
	__u32 rows;
	__u32 assoc;
	__u32 succs;
	_Bool act;		/* prefetch */
	__u32 watermark;	/* of chunks that are kept ready; 0: no pre-eviction */
};
struct uvm_rust_prefetch *uvm_rust_prefetch_create(const struct uvm_rust_prefetch_params *params, struct uvm_rust_share *share);

/* @call: for what uvm_seam_prefetch_lock_chunks() needs. Caller holds the VA space's lock in write mode. */
void uvm_rust_prefetch_destroy(struct uvm_rust_prefetch *prefetch, struct uvm_seam_prefetch *call);

/* An ID is announced; 0 for none. Caller serialises these for one @prefetch. */
void uvm_rust_prefetch_announce(struct uvm_rust_prefetch *prefetch, __u64 exec_id);

/*
 * A fault at @address was serviced. Caller holds the GPU's replayable-fault service lock.
 * Returns whether the worker has something to do. Neither sleeps nor allocates.
 */
_Bool uvm_rust_prefetch_fault(struct uvm_rust_prefetch *prefetch, __u64 address);

/*
 * Learns, and prefetches. Called by the VA space's worker only, with no lock held.
 * Returns whether there is more to do.
 */
_Bool uvm_rust_prefetch_work(struct uvm_rust_prefetch *prefetch, struct uvm_seam_prefetch *call);

/* Addresses from @first to @last are memory no more. Caller holds the VA space's lock in write mode. */
void uvm_rust_prefetch_forget(struct uvm_rust_prefetch *prefetch, __u64 first, __u64 last);

void uvm_rust_prefetch_show(struct uvm_rust_prefetch *prefetch, struct seq_file *seq);

/* --- prefetching: called by Rust ---------------------------------------------- */

/*
 * The GPU with @uuid runs @exec_id next for this VA space; 0: nothing known. Takes the VA
 * space's lock. Returns an NV_STATUS: NV_ERR_INVALID_DEVICE without such a GPU,
 * NV_ERR_NOT_SUPPORTED for one without replayable faults.
 */
__u32 uvm_seam_announce(struct uvm_seam_space *space, const __u8 *uuid, __u64 exec_id);

/*
 * What uvm_rust_prefetch_create() gave for the GPU with @uuid; NULL before its first
 * announcement, or without such a GPU. Caller holds the VA space's lock.
 */
struct uvm_rust_prefetch *uvm_seam_prefetch_of(struct uvm_seam_space *space, const __u8 *uuid);

/*
 * --- prefetching: called by Rust, within uvm_rust_prefetch_work() ---------------
 *
 * `Machine` of policy/prefetch/worker.rs has what each is for. Between
 * uvm_seam_prefetch_enter() and uvm_seam_prefetch_leave(), but for the first four, and
 * _lock_chunks() and _unlock_chunks() in uvm_rust_prefetch_destroy(); those that are about
 * the va_block that was chosen, from _lock() to _migrate(), after _next() or _victim() said that there is one; _pages(),
 * _chunk() and _migrate() with it locked.
 */

/* Copies that are under way at a time. */
#define UVM_RUST_PREFETCH_COPIES	2

/* Any thread's business: whether the VA space ends; whether the GPU's faults are being serviced. */
_Bool uvm_seam_prefetch_is_stopping(struct uvm_seam_prefetch *call);
_Bool uvm_seam_prefetch_faults(struct uvm_seam_prefetch *call);

/* Sleeps until they are not, or a tenth of a second; whether they are not. No lock is held. */
_Bool uvm_seam_prefetch_wait_faults(struct uvm_seam_prefetch *call);

/* The VA space, as uvm_rust_queues_used() knows it. */
__u64 uvm_seam_prefetch_holder(struct uvm_seam_prefetch *call);

/*
 * Takes pm.lock and the VA space's in read mode. False, with neither, if the VA space ends, does not have
 * the GPU, or the system suspends.
 */
_Bool uvm_seam_prefetch_enter(struct uvm_seam_prefetch *call);
void uvm_seam_prefetch_leave(struct uvm_seam_prefetch *call);

/* Takes the list_lock of the GPU's PMM, a spinlock, and gives its number; false if it is not there. */
_Bool uvm_seam_prefetch_lock_chunks(struct uvm_seam_prefetch *call, __u32 *gpu);
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
