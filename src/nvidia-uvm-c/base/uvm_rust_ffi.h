/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary between the C of nvidia-uvm.ko and the Rust in it.
 *
 * bindgen reads this file, so it names no type of NVIDIA's: what belongs to
 * upstream crosses as an opaque pointer of one type each (uvm_seam_*), and so does
 * what belongs to Rust (uvm_rust_*). Neither side unwinds into the other.
 *
 * Functions named uvm_rust_* are Rust's and called by C; uvm_seam_* are C's and
 * called by Rust.
 */
#ifndef UVM_RUST_FFI_H
#define UVM_RUST_FFI_H

#include <linux/types.h>

struct file;
struct seq_file;
struct uvm_seam_space;	/* upstream's uvm_va_space_t */
struct uvm_seam_fault;	/* one call of the fault service */
struct uvm_seam_discard;	/* the discard of one range */
struct uvm_seam_pmm;	/* upstream's uvm_pmm_gpu_t */
struct uvm_rust_gpu;	/* what is counted of a GPU */
struct uvm_rust_space;	/* what is counted of a VA space */
struct uvm_rust_block;	/* what of a va_block is discarded */
struct uvm_rust_queues;	/* a GPU's eviction queues */
struct uvm_rust_share;	/* what a tenant's tables for a GPU may take */
struct uvm_rust_prefetch;	/* what a VA space's kernels on a GPU do */
struct uvm_rust_fault_loop;	/* a GPU's fault loop */

/* Processors are numbered here as upstream numbers GPUs (uvm_id_gpu_index());
 * the CPU is UVM_RUST_CPU. */
#define UVM_RUST_CPU	0xffffffffu

/* --- statistics: called by C --------------------------------------------- */

/*
 * State of a GPU, from uvm_perf_heuristics_add_gpu() to
 * uvm_perf_heuristics_remove_gpu(), both under g_uvm_global.global_lock.
 * @root_chunks: how many 2 MiB chunks its memory has.
 * Returns NULL if there is no memory.
 */
struct uvm_rust_gpu *uvm_rust_gpu_create(__u32 root_chunks);
void uvm_rust_gpu_destroy(struct uvm_rust_gpu *gpu);

/*
 * State of a VA space, from uvm_perf_heuristics_load() to
 * uvm_perf_heuristics_unload(), both under the VA space's lock in write mode.
 * @gpus: how many GPU numbers there are. Returns NULL if there is no memory.
 */
struct uvm_rust_space *uvm_rust_space_create(__u32 pid, __u32 gpus);
void uvm_rust_space_destroy(struct uvm_rust_space *space);

/*
 * A GPU was registered in a VA space (again, perhaps). Caller holds the VA
 * space's lock in write mode. Without memory the GPU's work for this VA space
 * goes uncounted, and asking for it gives ENOMEM.
 */
void uvm_rust_space_add_gpu(struct uvm_rust_space *space, __u32 gpu_index, struct uvm_rust_gpu *gpu);

/*
 * One fault entry of a batch was looked at, standing for @instances faults, of
 * which @duplicates needed no work. Caller: the bottom half, holding the GPU's
 * replayable-fault service lock and the VA space's lock in read mode.
 */
void uvm_rust_note_fault(struct uvm_rust_space *space, __u32 gpu_index, __u32 batch,
			 __u64 instances, __u64 duplicates);

/* The fault service sent @replays in one call. Caller: as above, but no VA space lock. */
void uvm_rust_note_replays(struct uvm_rust_gpu *gpu, __u64 replays);

/*
 * @bytes of a va_block are being copied from @src to @dst; @cause is a
 * UVM_RUST_CAUSE_*. Caller holds the va_block's lock.
 */
void uvm_rust_note_copy(struct uvm_rust_space *space, __u32 dst, __u32 src, __u32 cause, __u64 bytes);

/*
 * Root chunk @root_index of @gpu leaves @queue (UVM_RUST_QUEUE_*) to be
 * reclaimed. Caller holds the PMM's list_lock, a spinlock.
 */
void uvm_rust_note_reclaim(struct uvm_rust_gpu *gpu, __u32 root_index, __u32 queue);

/*
 * The chunks of a va_block of @space in root chunk @root_index are being taken.
 * Caller holds the va_block's lock.
 */
void uvm_rust_note_evicted(struct uvm_rust_space *space, __u32 gpu_index, __u32 root_index);

/* --- discard: called by C --------------------------------------------------- */

/* Pages of a va_block: upstream's uvm_page_mask_t, on pages of 4 KiB. */
struct uvm_rust_mask {
	__u64 words[8];
};

/* --- the tree prefetcher: called by C, with the va_block's lock held ------------ */

/* Pages @first to @outer - 1 of a va_block under a tree with @leaves leaves, from leaf @offset on. */
struct uvm_rust_tree {
	__u16 first, outer, offset, leaves;
};

/* Adds to @leaves the big pages, of @granule pages, with a fault and no page of @thrashing (or NULL). */
void uvm_rust_tree_grow(const struct uvm_rust_tree *tree, __u16 big_first, __u16 big_outer, __u16 granule,
			const struct uvm_rust_mask *faulted, const struct uvm_rust_mask *thrashing,
			struct uvm_rust_mask *leaves);

/* Fills @out with what comes along with the @faulted pages from @first to @outer - 1. */
void uvm_rust_tree_prefetch(const struct uvm_rust_tree *tree, __u16 first, __u16 outer, __u32 threshold,
			    const struct uvm_rust_mask *faulted, const struct uvm_rust_mask *leaves,
			    struct uvm_rust_mask *out);

/* --- discard, continued ---------------------------------------------------------- */

/* Something that holds chunks of a va_block: the host, or a GPU by its number. */
#define UVM_RUST_MEMORY_HOST	0
#define UVM_RUST_MEMORY_GPU(i)	(1 + (i))

/*
 * The discard state of a va_block, made by its first discard and kept in the
 * va_block. All calls hold the va_block's lock. The functions are those of
 * policy/discard.rs, which says what they mean and in which order they come.
 */
void uvm_rust_block_destroy(struct uvm_rust_block *block);

/* These fill @out and return whether it names a page. */
_Bool uvm_rust_block_stale(struct uvm_rust_block *block, const struct uvm_rust_mask *pages,
			   const struct uvm_rust_mask *resident_at_destination, struct uvm_rust_mask *out);
_Bool uvm_rust_block_zeroing(struct uvm_rust_block *block, __u32 memory, __u32 first, __u32 outer,
			     const struct uvm_rust_mask *wanted, const struct uvm_rust_mask *resident,
			     const struct uvm_rust_mask *resident_there, struct uvm_rust_mask *out);
_Bool uvm_rust_block_needless(struct uvm_rust_block *block, __u32 first, __u32 outer,
			      const struct uvm_rust_mask *resident_there, struct uvm_rust_mask *out);

void uvm_rust_block_dropped(struct uvm_rust_block *block, const struct uvm_rust_mask *pages);
void uvm_rust_block_added(struct uvm_rust_block *block, __u32 memory, __u32 first, __u32 outer, const struct uvm_rust_mask *zeroed);
void uvm_rust_block_released(struct uvm_rust_block *block, __u32 memory, const struct uvm_rust_mask *pages);
void uvm_rust_block_prepare(struct uvm_rust_block *block, __u32 memory, const struct uvm_rust_mask *pages);
void uvm_rust_block_accessed(struct uvm_rust_block *block, const struct uvm_rust_mask *pages);

/* A copy of the state from page @at on, for the upper half of a split; NULL without memory. */
struct uvm_rust_block *uvm_rust_block_upper(struct uvm_rust_block *block, __u32 at);
void uvm_rust_block_truncate(struct uvm_rust_block *block, __u32 at);

/* What a page is. */
#define UVM_RUST_PAGE_LIVE	0
#define UVM_RUST_PAGE_LAZY	1
#define UVM_RUST_PAGE_EAGER	2
__u32 uvm_rust_block_status(struct uvm_rust_block *block, __u32 page);

/* All pages that are not LIVE. */
void uvm_rust_block_discarded(struct uvm_rust_block *block, struct uvm_rust_mask *out);

/* What became of the blocks that a discard covers; added to what is there. */
struct uvm_seam_discarded {
	__u64 discarded, skipped, partial;
};

/*
 * Discards [base, base + length) by way of uvm_seam_discard_*(), which mean @call's VA space.
 * @granule: of blocks that are covered in part, in KiB. Returns an NV_STATUS. Sleeps.
 */
__u32 uvm_rust_discard_range(struct uvm_seam_discard *call, __u64 base, __u64 length, _Bool eager, __u32 granule,
			     struct uvm_seam_discarded *counts);

/* --- the SSD tier: called by C ---------------------------------------------- */

#include "uvm_rust_flash_ffi.h"

/* --- eviction queues: called by C -------------------------------------------- */

#define UVM_RUST_NO_CHUNK	0xffffffffu

/*
 * The order in which a GPU's root chunks are reclaimed, from
 * uvm_perf_heuristics_add_gpu() to uvm_perf_heuristics_remove_gpu(). All calls
 * but these two hold the PMM's list_lock, a spinlock. Returns NULL if there is no
 * memory.
 */
struct uvm_rust_queues *uvm_rust_queues_create(__u32 root_chunks);
void uvm_rust_queues_destroy(struct uvm_rust_queues *queues);

/*
 * What @chunk holds changed: UVM_RUST_QUEUE_UNUSED, _DISCARDED or _USED. It goes
 * to the tail of that queue if it is on one; if not, it will when it is unpinned.
 */
void uvm_rust_queues_set(struct uvm_rust_queues *queues, __u32 chunk, __u32 queue);

/* What has become of a root chunk: `Change` in policy/evict/lists.rs. */
#define UVM_RUST_CHUNK_FREE	0
#define UVM_RUST_CHUNK_PINNED	1
#define UVM_RUST_CHUNK_SPLIT	2
#define UVM_RUST_CHUNK_WHOLE	3

/*
 * @chunk changes its place in the PMM's lists; UVM_RUST_CHUNK_*. If it is whole it is @holder's,
 * as in uvm_rust_queues_used(): while it was pinned, nobody could tell.
 */
void uvm_rust_queues_change(struct uvm_rust_queues *queues, __u32 chunk, __u32 change, __u64 holder);

/*
 * The chunk to evict next, which stays where it is; UVM_RUST_NO_CHUNK if there is none. Asks
 * uvm_seam_chunk_evictable() of @pmm, whose queues they are.
 */
__u32 uvm_rust_queues_choose(struct uvm_rust_queues *queues, struct uvm_seam_pmm *pmm);

/*
 * The eviction of @chunk begins, which is on no queue from now on. Returns the queue it was
 * chosen from, or UVM_RUST_QUEUE_ADDRESS; UVM_RUST_QUEUE_FREE if it is @free.
 */
__u32 uvm_rust_queues_begin_eviction(struct uvm_rust_queues *queues, __u32 chunk, _Bool free);

/* All that @chunk held is gone. */
void uvm_rust_queues_evicted(struct uvm_rust_queues *queues, __u32 chunk);

/* The queue @chunk is on, or UVM_RUST_QUEUE_ADDRESS for none. */
__u32 uvm_rust_queues_of(struct uvm_rust_queues *queues, __u32 chunk);

/* How many chunks are on a queue. */
__u32 uvm_rust_queues_length(struct uvm_rust_queues *queues, __u32 queue);

/*
 * Whose a used chunk is (policy/evict/holders.rs): @holder is the address of a VA space, which
 * is never looked through; 0 is nobody. As uvm_rust_queues_set() with UVM_RUST_QUEUE_USED.
 */
void uvm_rust_queues_used(struct uvm_rust_queues *queues, __u32 chunk, __u64 holder);

/* --- no memory on a GPU: called by C (policy/evict/{reclaim,wait}.rs) ---------------- */

struct uvm_seam_alloc;	/* an allocation of chunks, for the length of a call */

/* So many GPUs' reclaim is known, by their index. */
#define UVM_RUST_MAX_GPUS		256

/*
 * Who reclaims memory of the GPU with index @gpu: a root chunk is evicted, or RM asks for memory.
 * @thread: a number that no other thread has. Of two calls that begin and end the same, the second
 * follows always. Callers of uvm_rust_eviction_ended() hold the PMM's lock.
 */
void uvm_rust_eviction_begins(__u32 gpu);
void uvm_rust_rm_call_begins(__u32 gpu);
/* @got: all that it asked for. */
void uvm_rust_rm_call_ended(__u32 gpu, _Bool got);

#define UVM_RUST_EVICTION_GOT		0
#define UVM_RUST_EVICTION_HELD		1
#define UVM_RUST_EVICTION_FAILED	2

/* An eviction ended so, UVM_RUST_EVICTION_*, at @now (uvm_seam_now()). Returns whether its thread is to give up. */
_Bool uvm_rust_eviction_ended(__u32 gpu, __u32 how, __u64 thread, __u64 now);

/* @thread is about to try to allocate. Returns what uvm_rust_wait_for_memory() takes. */
__u32 uvm_rust_reclaim_begin(__u32 gpu, __u64 thread);

/*
 * Goes on with an allocation whose first try found no memory, by way of uvm_seam_alloc_try().
 * @gains: what uvm_rust_reclaim_begin() gave before that try, and @began the time then.
 * Returns an NV_STATUS; NV_ERR_NO_MEMORY if there is none. Sleeps.
 */
__u32 uvm_rust_wait_for_memory(struct uvm_seam_alloc *alloc, __u32 gpu, __u64 thread, __u32 gains, __u64 began);

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

/* Text for debugfs. Caller keeps the object alive. */
void uvm_rust_gpu_show(struct uvm_rust_gpu *gpu, struct seq_file *seq);
void uvm_rust_space_show(struct uvm_rust_space *space, struct seq_file *seq);

/*
 * An ioctl that upstream does not know. Returns 0, -errno, or
 * UVM_RUST_NOT_OURS. Caller holds g_uvm_global.pm.lock in read mode.
 */
#define UVM_RUST_NOT_OURS	1
long uvm_rust_ioctl(struct file *filp, __u32 cmd, unsigned long arg);

/* --- fault service: called by C -------------------------------------------- */

/*
 * Of a parent GPU, fixed while it is in use; the meaning of each is that of
 * `Params` in policy/fault.rs.
 */
struct uvm_rust_fault_params {
	__u32 ring;
	__u32 max_batch;
	__u32 utlbs;
	__u32 policy;
	__u32 update_put_percent;
	__u32 max_batches;
	__u32 max_throttled;
	__u8 coalesce;
	__u8 cancels_by_address;
};

/*
 * The service loop of a parent GPU, made and unmade with its fault buffer, under
 * g_uvm_global.global_lock. Returns NULL if there is no memory.
 */
struct uvm_rust_fault_loop *uvm_rust_fault_create(const struct uvm_rust_fault_params *params);
void uvm_rust_fault_destroy(struct uvm_rust_fault_loop *loop);

/*
 * Services what is in the ring of @fault's GPU; returns an NV_STATUS. Caller: the
 * bottom half, holding the GPU's replayable-fault service lock, so that no two
 * calls for one @loop overlap. May sleep.
 */
__u32 uvm_rust_fault_service(struct uvm_rust_fault_loop *loop, struct uvm_seam_fault *fault);

/* --- called by Rust ------------------------------------------------------- */

/* The VA space of a file descriptor; NULL if it was not initialised. */
struct uvm_seam_space *uvm_seam_space_of(struct file *filp);

/* Take and give back the VA space's lock in read mode. */
void uvm_seam_space_lock(struct uvm_seam_space *space);
void uvm_seam_space_unlock(struct uvm_seam_space *space);

/* Our state of a VA space: what uvm_rust_space_create() gave. Caller holds its lock. */
struct uvm_rust_space *uvm_seam_space_state(struct uvm_seam_space *space);

/*
 * The number of the GPU with this uuid if it is registered in the VA space, else
 * UVM_RUST_CPU; @gpu receives what uvm_rust_gpu_create() gave. Caller holds the
 * VA space's lock, which keeps the GPU.
 */
__u32 uvm_seam_space_gpu(struct uvm_seam_space *space, const __u8 *uuid, struct uvm_rust_gpu **gpu);

/* Whether upstream works at all: false after a fatal error of the driver. */
_Bool uvm_seam_healthy(void);

/* Whether statistics are kept (module parameter uvm_rust_stats). */
_Bool uvm_seam_stats_enabled(void);

/*
 * Whether the calling thread may see what all processes together did: it has
 * CAP_SYS_ADMIN in the initial user namespace, or the module parameter
 * uvm_rust_stats_public is set. No locks; nothing is written to the audit log.
 */
_Bool uvm_seam_sees_others(void);

/* Which parts are turned on (module parameters). */
_Bool uvm_seam_discard_enabled(void);
_Bool uvm_seam_announce_enabled(void);
_Bool uvm_seam_tests_enabled(void);

/*
 * Discards [base, base + length). Takes the locks it needs, and waits for the GPUs
 * if @eager. Returns an NV_STATUS; NV_WARN_NOTHING_TO_DO for memory that is not
 * managed but known.
 */
__u32 uvm_seam_discard(struct uvm_seam_space *space, __u64 base, __u64 length, _Bool eager,
		       struct uvm_seam_discarded *counts);

/* UVM_TEST_VA_BLOCK_DISCARD_STATUS: whether the page at @address is discarded. */
__u32 uvm_seam_discard_status(struct uvm_seam_space *space, __u64 address, _Bool *discarded);

/* UVM_TEST_PMM_GET_ALLOC_LIST: the UVM_RUST_QUEUE_* of the GPU's root chunk at @address. */
__u32 uvm_seam_alloc_list(struct uvm_seam_space *space, __u64 address, const __u8 *uuid, __u32 *queue);

/*
 * Whether the lists of @pmm say that root chunk @chunk may be evicted; warns if not. Called
 * within uvm_rust_queues_choose(), which holds the PMM's list_lock.
 */
_Bool uvm_seam_chunk_evictable(struct uvm_seam_pmm *pmm, __u32 chunk);

/*
 * How many root chunks each queue of a GPU has, by UVM_RUST_QUEUE_* (room for
 * UVM_RUST_QUEUE_MAX); unchanged without such a GPU. Caller holds the VA space's lock.
 */
void uvm_seam_queued(struct uvm_seam_space *space, const __u8 *uuid, __u64 *queued);

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

/*
 * Takes the list_lock of the GPU's PMM, a spinlock, and gives its queues, with their generation;
 * NULL, with no lock held, if there are none.
 */
struct uvm_rust_queues *uvm_seam_prefetch_lock_chunks(struct uvm_seam_prefetch *call, __u32 *generation);
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

/* upstream's uvm_global_get_status(). */
__u32 uvm_seam_global_status(void);

void uvm_seam_seq_write(struct seq_file *seq, const __u8 *text, __kernel_size_t len);

/* --- discard: called by Rust, within uvm_rust_discard_range() ---------------------- */

/*
 * With its @call; each means what the method of the same name of `Machine` in
 * policy/discard/walk.rs means, which says what is called between what. Those that return
 * __u32 return an NV_STATUS unless said otherwise. Addresses are from the first to the last.
 */
struct uvm_rust_span {
	__u64 first, last;
};

#define UVM_RUST_KIND_MANAGED	0
#define UVM_RUST_KIND_ORDINARY	1
#define UVM_RUST_KIND_UNKNOWN	2

struct uvm_rust_held {
	struct uvm_rust_mask resident;
	__u32 memory;		/* UVM_RUST_MEMORY_* */
	_Bool one_place;
	_Bool root_chunk;
};

void uvm_seam_discard_enter(struct uvm_seam_discard *call);
void uvm_seam_discard_leave(struct uvm_seam_discard *call);
/* Called once, after leave, and nothing after it. */
__u32 uvm_seam_discard_wait(struct uvm_seam_discard *call);

/* These between enter and leave. */
_Bool uvm_seam_discard_has_non_faultable(struct uvm_seam_discard *call);
/* Returns UVM_RUST_KIND_*. */
__u32 uvm_seam_discard_kind(struct uvm_seam_discard *call, __u64 base, __u64 length);
__u32 uvm_seam_discard_open(struct uvm_seam_discard *call);
void uvm_seam_discard_close(struct uvm_seam_discard *call);

/* These between open and close, on memory of the kind UVM_RUST_KIND_MANAGED. */
_Bool uvm_seam_discard_range(struct uvm_seam_discard *call, __u64 at, __u64 last, struct uvm_rust_span *range);
/* @at is in the range that was chosen last. Chooses no block if it returns false. */
_Bool uvm_seam_discard_block(struct uvm_seam_discard *call, __u64 at, struct uvm_rust_span *block);
_Bool uvm_seam_discard_may_migrate(struct uvm_seam_discard *call, __u64 first, __u64 last);
void uvm_seam_discard_lock(struct uvm_seam_discard *call);

/* These between lock and unlock, on the block that was chosen last. */
void uvm_seam_discard_unlock(struct uvm_seam_discard *call);
/* Fills @resident, and returns whether some processor maps the block with one entry of 2 MiB. */
_Bool uvm_seam_discard_facts(struct uvm_seam_discard *call, struct uvm_rust_mask *resident);
/* The discard state of the block; NULL before its first discard. It changes only under the lock. */
struct uvm_rust_block *uvm_seam_discard_state(struct uvm_seam_discard *call);
/* The block has none. */
void uvm_seam_discard_keep(struct uvm_seam_discard *call, struct uvm_rust_block *state);
_Bool uvm_seam_discard_held(struct uvm_seam_discard *call, __u32 from, struct uvm_rust_held *held);
/* Sets @again if the lock was let go on the way, and returns NV_OK then. */
__u32 uvm_seam_discard_drop(struct uvm_seam_discard *call, const struct uvm_rust_mask *pages, _Bool *again);
void uvm_seam_discard_forget_thrashing(struct uvm_seam_discard *call, const struct uvm_rust_mask *pages);
void uvm_seam_discard_forget_stored(struct uvm_seam_discard *call, const struct uvm_rust_mask *pages);
/* @memory is one that uvm_seam_discard_held() gave with a root chunk. */
void uvm_seam_discard_requeue(struct uvm_seam_discard *call, __u32 memory);
__u32 uvm_seam_discard_note_work(struct uvm_seam_discard *call);

/* cond_resched(), and fatal_signal_pending() for the calling thread. */
void uvm_seam_rest(void);
_Bool uvm_seam_dying(void);

/* --- no memory on a GPU: called by Rust, within uvm_rust_wait_for_memory() ------------ */

/* Returns an NV_STATUS; NV_OK with @got false if there is no memory. */
__u32 uvm_seam_alloc_try(struct uvm_seam_alloc *alloc, _Bool evict, _Bool *got);
/* Sleeps for a moment, a millisecond at most. */
void uvm_seam_nap(void);
/* Milliseconds, from some time on. No locks. */
__u64 uvm_seam_now(void);

/* --- fault service: called by Rust ----------------------------------------- */

/*
 * All of these are called from within uvm_rust_fault_service() with its @fault,
 * and mean what the method of the same name of `Machine` in
 * policy/fault/service.rs means. Those that return __u32 return an NV_STATUS
 * unless said otherwise. A VA space is a number to Rust: its address.
 */

/* An entry of the ring; `Record` in policy/fault.rs. */
struct uvm_rust_fault {
	__u64 address;
	__u64 who;
	__u32 entry;
	__u16 instances;
	__u16 utlb;
	__u8 access;
	__u8 accesses;
	__u8 fatal;
	__u8 reserved[5];
};

#define UVM_RUST_TRANSLATED		0
#define UVM_RUST_STALE			1
#define UVM_RUST_NO_SUBCONTEXT		2

#define UVM_RUST_SERVED			0
#define UVM_RUST_SERVE_AGAIN		1
#define UVM_RUST_SERVE_AGAIN_IN_PLACE	2

struct uvm_rust_fault_served {
	__u32 faults;
	__u8 how;	/* UVM_RUST_SERVE* */
	__u8 fatal;
};

#define UVM_RUST_PREFETCH_FAULTS_FIXED	0
#define UVM_RUST_PREFETCH_FAULTS_ON	1
#define UVM_RUST_PREFETCH_FAULTS_OFF	2

struct uvm_rust_fault_outcome {
	__u64 fatal_space;	/* 0: none */
	__u64 prefetch_off_ns;
	__u32 duplicates;
	__u32 invalid_prefetches;
	__u32 prefetch_lapse_ms;
	__u8 prefetch_faults;	/* UVM_RUST_PREFETCH_FAULTS_* */
	__u8 throttled;
	__u8 in_test;
};

#define UVM_RUST_FLUSH_CACHED_PUT	0
#define UVM_RUST_FLUSH_UPDATE_PUT	1
#define UVM_RUST_FLUSH_WAIT_UPDATE_PUT	2

void uvm_seam_fault_ring(struct uvm_seam_fault *fault, __u32 *get, __u32 *put);
/* @entry + @n and @at are within the ring's size, and @out has room for @n. */
__u32 uvm_seam_fault_fetch(struct uvm_seam_fault *fault, __u32 at, __u32 n, __u32 entry,
			   struct uvm_rust_fault *out, __u32 *got);
__u32 uvm_seam_fault_wait_for(struct uvm_seam_fault *fault, __u32 at);
void uvm_seam_fault_set_get(struct uvm_seam_fault *fault, __u32 get);

void uvm_seam_fault_begin(struct uvm_seam_fault *fault);
/* Returns UVM_RUST_TRANSLATED and the VA space, or why there is none. */
__u32 uvm_seam_fault_translate(struct uvm_seam_fault *fault, __u32 entry, __u64 *space);
__u32 uvm_seam_fault_cancel_channel(struct uvm_seam_fault *fault, __u32 entry);
/* @records hold entries below @entries; so does each of @entries @representatives. */
void uvm_seam_fault_publish(struct uvm_seam_fault *fault, const struct uvm_rust_fault *records, __u32 n,
			    const __u32 *representatives, __u32 entries);
void uvm_seam_fault_outcome(struct uvm_seam_fault *fault, struct uvm_rust_fault_outcome *out);
void uvm_seam_fault_switch_prefetch(struct uvm_seam_fault *fault, _Bool on);

/* @space is one that translate gave in this call, which keeps it alive. */
_Bool uvm_seam_fault_enter(struct uvm_seam_fault *fault, __u64 space, _Bool to_cancel);
void uvm_seam_fault_leave(struct uvm_seam_fault *fault);
/* These four between enter and leave, with @first and @first + @n in the published order. */
__u32 uvm_seam_fault_service(struct uvm_seam_fault *fault, __u32 first, _Bool per_block, _Bool in_place,
			     struct uvm_rust_fault_served *served);
void uvm_seam_fault_found_fatal(struct uvm_seam_fault *fault, __u32 first);
__u32 uvm_seam_fault_invalidate(struct uvm_seam_fault *fault);
/* @reason: an NV_STATUS; 0 for none. */
__u32 uvm_seam_fault_cancel(struct uvm_seam_fault *fault, __u32 first, __u32 n, __u32 reason);

__u32 uvm_seam_fault_replay(struct uvm_seam_fault *fault);
/* @how: UVM_RUST_FLUSH_* */
__u32 uvm_seam_fault_flush(struct uvm_seam_fault *fault, __u32 how);
__u32 uvm_seam_fault_wait_replays(struct uvm_seam_fault *fault, _Bool settle);
__u32 uvm_seam_fault_wait_service(struct uvm_seam_fault *fault);
/* Not between enter and leave. */
__u32 uvm_seam_fault_cancel_utlbs(struct uvm_seam_fault *fault, __u32 reason);
void uvm_seam_fault_broken(struct uvm_seam_fault *fault, const __u8 *text, __kernel_size_t len);

#endif /* UVM_RUST_FFI_H */
