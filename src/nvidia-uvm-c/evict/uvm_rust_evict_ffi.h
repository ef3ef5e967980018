/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): which root chunk is reclaimed, and who waits for memory.
 */
#ifndef UVM_RUST_EVICT_FFI_H
#define UVM_RUST_EVICT_FFI_H

#include "uvm_rust_types.h"

/* --- eviction queues: called by C -------------------------------------------- */

/* Without the module parameter uvm_rust_evict there are no queues, and these calls do nothing. */

/*
 * The order in which a GPU's root chunks are reclaimed; @gpu is its number. All calls hold the
 * PMM's list_lock, a spinlock.
 *
 * The contents of @chunk changed to UVM_RUST_QUEUE_UNUSED, _DISCARDED or _USED, or to _FREE if all of
 * them are gone. A chunk on a queue goes to the tail of the new one at once; a pinned chunk goes there
 * when it is unpinned. @holder: the owner of a used chunk (policy/evict/holders.rs), as the address of
 * a VA space, which is never dereferenced; 0 is nobody. UVM_RUST_HOLDER_UNKNOWN, of a used chunk that is pinned: whoever
 * uvm_rust_quota_end() has named, or nobody.
 */
#define UVM_RUST_HOLDER_UNKNOWN	1UL
void uvm_rust_queues_set(__u32 gpu, __u32 chunk, __u32 queue, __u64 holder);

/* What has become of a root chunk: `Change` in policy/evict/lists.rs. */
#define UVM_RUST_CHUNK_FREE	0
#define UVM_RUST_CHUNK_PINNED	1
#define UVM_RUST_CHUNK_SPLIT	2
#define UVM_RUST_CHUNK_WHOLE	3
#define UVM_RUST_CHUNK_FREE_ZEROED	4
#define UVM_RUST_CHUNK_STAYS	5	/* an eviction leaves it where it was */

/*
 * The new state of @chunk: UVM_RUST_CHUNK_*. A chunk that is not split belongs to @holder, as above;
 * while the chunk was pinned, its owner was not known.
 */
void uvm_rust_queues_change(__u32 gpu, __u32 chunk, __u32 change, __u64 holder);

/* Whether an eviction has @chunk, and neither a change has told nor uvm_rust_eviction_ended() that it is over. */
_Bool uvm_rust_chunk_is_leaving(__u32 gpu, __u32 chunk);

/*
 * The chunk to evict next, which stays where it is; UVM_RUST_NO_CHUNK if there is none. Asks
 * uvm_seam_chunk_evictable() of @of, which is that GPU. Unless @space is NULL, the chunk is that VA space's, and its
 * eviction makes room for the VA space itself.
 */
__u32 uvm_rust_queues_choose(__u32 gpu, struct uvm_gpu_struct *of, struct uvm_seam_space *space);

/*
 * Whether root chunk @chunk says of itself that it may be evicted; warns if not. Called within
 * uvm_rust_queues_choose(), which holds the PMM's list_lock.
 */
_Bool uvm_seam_chunk_evictable(struct uvm_gpu_struct *gpu, __u32 chunk);

/* --- quotas: called by C (policy/quota.rs) ------------------------------------------------ */

/*
 * A va_block of @space, or of none, wants a chunk of @gpu, which has number @index: a root chunk (@is_root) or a smaller one.
 * Its thread @frees memory of Linux's, or not. Returns what becomes of it. With @evict, a VA space at its maximum evicts
 * chunks of its own first, which sleeps, and is never full: whatever comes of that, the caller allocates. Without, it is full
 * at the maximum: the caller is to try with eviction. Caller holds the VA space's lock, and with @evict no va_block's.
 */
#define UVM_RUST_QUOTA_OTHER	0	/* it is allocated, and counts for nobody */
#define UVM_RUST_QUOTA_COUNTS	1	/* it is allocated, and uvm_rust_quota_end() told if it is there */
#define UVM_RUST_QUOTA_FULL	2	/* as if there were no memory */
__u32 uvm_rust_quota_begin(struct uvm_seam_space *space, struct uvm_gpu_struct *gpu, __u32 index, _Bool is_root, _Bool evict,
			   _Bool frees);

/* That allocation has got root chunk @chunk, which is pinned, and @space's from now on. */
void uvm_rust_quota_end(struct uvm_seam_space *space, struct uvm_gpu_struct *gpu, __u32 index, __u32 chunk);

/*
 * Called by Rust: evicts a root chunk of @space, and frees the chunk. Returns an NV_STATUS; NV_WARN_NOTHING_TO_DO if none can
 * be evicted now. Sleeps. The VA space's lock is held, and no va_block's.
 */
__u32 uvm_seam_evict_of(struct uvm_gpu_struct *gpu, struct uvm_seam_space *space);

/* --- no memory on a GPU: called by C (policy/evict/{reclaim,wait}.rs) ---------------- */

struct uvm_seam_alloc;	/* an allocation of chunks, for the length of a call */

/*
 * Who reclaims memory of the GPU with index @gpu: a root chunk is evicted, or RM asks for memory.
 * @thread: a number that no other thread has. Of two calls that begin and end the same, the second
 * follows always. Callers of uvm_rust_eviction_ended() hold the PMM's lock.
 */
void uvm_rust_eviction_begins(__u32 gpu);
void uvm_rust_rm_call_begins(__u32 gpu);
/* @got: RM got all of the memory that it asked for. */
void uvm_rust_rm_call_ended(__u32 gpu, _Bool got);

/*
 * The eviction of root chunk @chunk of @of, which is that GPU, ended with @status, an NV_STATUS; NV_ERR_IN_USE means that the
 * chunk was held, though other chunks may not be. Returns the status with which the evicting call ends: NV_ERR_NO_MEMORY if
 * chunks have been held for long.
 */
__u32 uvm_rust_eviction_ended(struct uvm_gpu_struct *of, __u32 gpu, __u32 chunk, __u32 status, __u64 thread);

/*
 * An allocation of a chunk on the GPU with index @gpu, by way of uvm_seam_alloc_try(): one that may evict (@evicts), and
 * asks for memory of programs' (@for_users), waits if there is none, unless its thread @frees memory of Linux's. Returns
 * what upstream says, but for who does not need the memory it is NV_ERR_NO_MEMORY that there is none. Sleeps if it
 * @evicts, but not in a thread that allocates for a prefetch.
 */
__u32 uvm_rust_alloc(struct uvm_seam_alloc *alloc, __u32 gpu, __u64 thread, _Bool evicts, _Bool for_users, _Bool frees);

/* --- no memory on a GPU: called by Rust ------------------------------------------------ */

/* Within uvm_rust_alloc(): tries it, and evicts for it if the allocation may, unless not to @evict. Returns an NV_STATUS. */
__u32 uvm_seam_alloc_try(struct uvm_seam_alloc *alloc, _Bool evict);

/* How many 2 MiB chunks PMA has left. Takes no lock, so the number may be old. */
__u64 uvm_seam_pma_free(struct uvm_gpu_struct *gpu);

/* The @thread that the calls above have in this thread. */
__u64 uvm_seam_this_thread(void);

#endif
