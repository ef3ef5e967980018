/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary between the C of nvidia-uvm.ko and the Rust in it.
 *
 * bindgen reads this file, so it names no type of NVIDIA's: what belongs to
 * upstream crosses as an opaque pointer, what belongs to Rust as a void pointer
 * that only Rust looks into. Neither side unwinds into the other.
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
void *uvm_rust_gpu_create(__u32 root_chunks);
void uvm_rust_gpu_destroy(void *gpu);

/*
 * State of a VA space, from uvm_perf_heuristics_load() to
 * uvm_perf_heuristics_unload(), both under the VA space's lock in write mode.
 * @gpus: how many GPU numbers there are. Returns NULL if there is no memory.
 */
void *uvm_rust_space_create(__u32 pid, __u32 gpus);
void uvm_rust_space_destroy(void *space);

/*
 * A GPU was registered in a VA space (again, perhaps). Caller holds the VA
 * space's lock in write mode. Without memory the GPU's work for this VA space
 * goes uncounted, and asking for it gives ENOMEM.
 */
void uvm_rust_space_add_gpu(void *space, __u32 gpu_index, void *gpu);

/*
 * One fault entry of a batch was looked at, standing for @instances faults, of
 * which @duplicates needed no work. Caller: the bottom half, holding the GPU's
 * replayable-fault service lock and the VA space's lock in read mode.
 */
void uvm_rust_note_fault(void *space, __u32 gpu_index, __u32 batch,
			 __u64 instances, __u64 duplicates);

/* The fault service sent @replays in one call. Caller: as above, but no VA space lock. */
void uvm_rust_note_replays(void *gpu, __u64 replays);

/*
 * @bytes of a va_block are being copied from @src to @dst; @cause is a
 * UVM_RUST_CAUSE_*. Caller holds the va_block's lock.
 */
void uvm_rust_note_copy(void *space, __u32 dst, __u32 src, __u32 cause, __u64 bytes);

/*
 * Root chunk @root_index of @gpu leaves @queue (UVM_RUST_QUEUE_*) to be
 * reclaimed. Caller holds the PMM's list_lock, a spinlock.
 */
void uvm_rust_note_reclaim(void *gpu, __u32 root_index, __u32 queue);

/*
 * The chunks of a va_block of @space in root chunk @root_index are being taken.
 * Caller holds the va_block's lock.
 */
void uvm_rust_note_evicted(void *space, __u32 gpu_index, __u32 root_index);

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
 *
 * Created: NULL if there is no memory. @pages: length of the va_block.
 */
void *uvm_rust_block_create(__u32 pages);
void uvm_rust_block_destroy(void *block);

/* False if there is no memory, which costs zeroing and nothing else. */
_Bool uvm_rust_block_track(void *block, __u32 memory, const struct uvm_rust_mask *resident);

struct uvm_rust_discard {
	__u32 first, outer;		/* in: pages asked for */
	__u32 granule_shift;		/* in: of partial discards, in pages */
	_Bool eager;			/* in */
	_Bool mapped_2m;		/* in: some processor maps the block with one entry */
	struct uvm_rust_mask resident;	/* in: on any processor */
	struct uvm_rust_mask drop;	/* out: to unmap, and to take residency of, everywhere */
	struct uvm_rust_mask done;	/* out: discarded when all is carried out */
	__u32 discarded, ignored;	/* out: pages */
};

/* Nothing changes before uvm_rust_block_commit(), which wants the lock kept. */
void uvm_rust_block_plan(void *block, struct uvm_rust_discard *discard);
void uvm_rust_block_commit(void *block);

/* UVM_RUST_QUEUE_* for the root chunk that backs this 2 MiB va_block in @memory. */
__u32 uvm_rust_block_queue(void *block, __u32 memory, const struct uvm_rust_mask *resident_there);

/* These fill @out and return whether it names a page. */
_Bool uvm_rust_block_stale(void *block, const struct uvm_rust_mask *pages,
			   const struct uvm_rust_mask *resident_at_destination, struct uvm_rust_mask *out);
_Bool uvm_rust_block_zeroing(void *block, __u32 memory, __u32 first, __u32 outer,
			     const struct uvm_rust_mask *wanted, const struct uvm_rust_mask *resident,
			     const struct uvm_rust_mask *resident_there, struct uvm_rust_mask *out);
_Bool uvm_rust_block_needless(void *block, __u32 first, __u32 outer,
			      const struct uvm_rust_mask *resident_there, struct uvm_rust_mask *out);

void uvm_rust_block_dropped(void *block, const struct uvm_rust_mask *pages);
void uvm_rust_block_added(void *block, __u32 memory, __u32 first, __u32 outer, const struct uvm_rust_mask *zeroed);
void uvm_rust_block_released(void *block, __u32 memory, const struct uvm_rust_mask *pages);
void uvm_rust_block_prepare(void *block, __u32 memory, const struct uvm_rust_mask *pages);
void uvm_rust_block_accessed(void *block, const struct uvm_rust_mask *pages);

/* A copy of the state from page @at on, for the upper half of a split; NULL without memory. */
void *uvm_rust_block_upper(void *block, __u32 at);
void uvm_rust_block_truncate(void *block, __u32 at);

/* What a page is. */
#define UVM_RUST_PAGE_LIVE	0
#define UVM_RUST_PAGE_LAZY	1
#define UVM_RUST_PAGE_EAGER	2
__u32 uvm_rust_block_status(void *block, __u32 page);

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
void *uvm_rust_queues_create(__u32 root_chunks);
void uvm_rust_queues_destroy(void *queues);

/*
 * What @chunk holds changed: UVM_RUST_QUEUE_UNUSED, _DISCARDED or _USED. It goes
 * to the tail of that queue if it is on one; if not, it will when it is unpinned.
 */
void uvm_rust_queues_set(void *queues, __u32 chunk, __u32 queue);

/*
 * @chunk may be evicted from now on: it goes to the tail of the queue last set, and is
 * @holder's, as in uvm_rust_queues_used(): while it was pinned, nobody could tell.
 */
void uvm_rust_queues_insert(void *queues, __u32 chunk, __u64 holder);

/* @chunk may not be evicted from now on. Returns the queue it was on, or UVM_RUST_QUEUE_ADDRESS. */
__u32 uvm_rust_queues_remove(void *queues, __u32 chunk);

/* The chunk to reclaim next, which stays where it is; UVM_RUST_NO_CHUNK if there is none. */
__u32 uvm_rust_queues_pick(void *queues);

/* The queue @chunk is on, or UVM_RUST_QUEUE_ADDRESS for none. */
__u32 uvm_rust_queues_of(void *queues, __u32 chunk);

/* How many chunks are on a queue. */
__u32 uvm_rust_queues_length(void *queues, __u32 queue);

/*
 * Expectations (policy/evict/roots.rs): a process that prefetches marks the chunks that
 * it needs soon, under a number of its own (never 0), and they are reclaimed last. Setting
 * the current kernel's number gives false if the owner has to be added again.
 */
__u32 uvm_rust_queues_add_owner(void *queues);
void uvm_rust_queues_remove_owner(void *queues, __u32 owner);
_Bool uvm_rust_queues_set_now(void *queues, __u32 owner, __u32 now);
void uvm_rust_queues_expect(void *queues, __u32 chunk, __u32 owner, __u32 until);
void uvm_rust_queues_unexpect(void *queues, __u32 chunk);

/* Whether the chunk to reclaim next is used, and expected. */
_Bool uvm_rust_queues_pick_is_expected(void *queues);

/*
 * Whose a used chunk is (policy/evict/holders.rs): @holder is the address of a VA space, which
 * is never looked through; 0 is nobody. As uvm_rust_queues_set() with UVM_RUST_QUEUE_USED.
 */
void uvm_rust_queues_used(void *queues, __u32 chunk, __u64 holder);

/*
 * The oldest used chunk of @holder, to be pushed out ahead of need; UVM_RUST_NO_CHUNK if it has
 * none, or those within reach are expected. One that turns out not to be movable is passed
 * over until it is used again, or was pinned, unless it is another's by then.
 */
__u32 uvm_rust_queues_pick_early(void *queues, __u64 holder);
void uvm_rust_queues_pass_over(void *queues, __u32 chunk, __u64 holder);

/* @chunk is free: on no queue, nobody's, and expected by nobody. */
void uvm_rust_queues_free(void *queues, __u32 chunk);

/* --- prefetching: called by C -------------------------------------------------- */

struct uvm_seam_prefetch;	/* prefetching of a VA space, on one GPU, for the length of a call */

/*
 * What the tables of one tenant (a user in a memory cgroup) for one GPU may take together,
 * @limit bytes, in however many VA spaces. Returns NULL if there is no memory. What was made with it may outlive it.
 */
void *uvm_rust_share_create(__u64 limit);
void uvm_rust_share_destroy(void *share);

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
	_Bool push_out;		/* pre-evict */
};
void *uvm_rust_prefetch_create(const struct uvm_rust_prefetch_params *params, void *share);
void uvm_rust_prefetch_destroy(void *prefetch);

/* An ID is announced; 0 for none. Caller serialises these for one @prefetch. */
void uvm_rust_prefetch_announce(void *prefetch, __u64 exec_id);

/*
 * A fault at @address was serviced. Caller holds the GPU's replayable-fault service lock.
 * Returns whether the worker has something to do. Neither sleeps nor allocates.
 */
_Bool uvm_rust_prefetch_fault(void *prefetch, __u64 address);

/*
 * Learns, and prefetches. Called by the VA space's worker only, with no lock held.
 * Returns whether there is more to do.
 */
_Bool uvm_rust_prefetch_work(void *prefetch, struct uvm_seam_prefetch *call);

/* Addresses from @first to @last are memory no more. Caller holds the VA space's lock in write mode. */
void uvm_rust_prefetch_forget(void *prefetch, __u64 first, __u64 last);

void uvm_rust_prefetch_show(void *prefetch, struct seq_file *seq);

/* Text for debugfs. Caller keeps the object alive. */
void uvm_rust_gpu_show(void *gpu, struct seq_file *seq);
void uvm_rust_space_show(void *space, struct seq_file *seq);

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
void *uvm_rust_fault_create(const struct uvm_rust_fault_params *params);
void uvm_rust_fault_destroy(void *loop);

/*
 * Services what is in the ring of @fault's GPU; returns an NV_STATUS. Caller: the
 * bottom half, holding the GPU's replayable-fault service lock, so that no two
 * calls for one @loop overlap. May sleep.
 */
__u32 uvm_rust_fault_service(void *loop, struct uvm_seam_fault *fault);

/* --- called by Rust ------------------------------------------------------- */

/* The VA space of a file descriptor; NULL if it was not initialised. */
struct uvm_seam_space *uvm_seam_space_of(struct file *filp);

/* Take and give back the VA space's lock in read mode. */
void uvm_seam_space_lock(struct uvm_seam_space *space);
void uvm_seam_space_unlock(struct uvm_seam_space *space);

/* Our state of a VA space: what uvm_rust_space_create() gave. Caller holds its lock. */
void *uvm_seam_space_state(struct uvm_seam_space *space);

/*
 * The number of the GPU with this uuid if it is registered in the VA space, else
 * UVM_RUST_CPU; @gpu receives what uvm_rust_gpu_create() gave. Caller holds the
 * VA space's lock, which keeps the GPU.
 */
__u32 uvm_seam_space_gpu(struct uvm_seam_space *space, const __u8 *uuid, void **gpu);

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

/* What became of the blocks that a discard covers; added to what is there. */
struct uvm_seam_discarded {
	__u64 discarded, skipped, partial;
};

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
void *uvm_seam_prefetch_of(struct uvm_seam_space *space, const __u8 *uuid);

/* --- prefetching: called by Rust, within uvm_rust_prefetch_work() --------------- */

#define UVM_RUST_PREFETCHED		0	/* pages are on their way */
#define UVM_RUST_PREFETCH_RESIDENT	1	/* they were there */
#define UVM_RUST_PREFETCH_NO_ROOM	2	/* without evicting what is expected */
#define UVM_RUST_PREFETCH_UNFIT		3	/* no such memory any more, or it has another place by policy */
#define UVM_RUST_PREFETCH_FAILED	4	/* an error */
#define UVM_RUST_PREFETCH_STOP		5	/* the VA space ends, the GPU left it, or the system suspends */

/*
 * Brings the va_block at @address to the GPU, and marks its chunk as expected up to kernel
 * number @until. Waits for the fault service to be idle first. @pages: how many were moved.
 */
__u32 uvm_seam_prefetch_block(struct uvm_seam_prefetch *call, __u64 address, __u32 until, __u32 *pages);

/* The current kernel has number @now. */
void uvm_seam_prefetch_now(struct uvm_seam_prefetch *call, __u32 now);

/*
 * Pre-eviction: where fewer chunks can be had without a copy than the watermark says, moves
 * what a used chunk of this VA space holds, and nobody expects, to the host. Gives
 * UVM_RUST_PREFETCHED, or why not: UVM_RUST_PREFETCH_RESIDENT with enough chunks,
 * UVM_RUST_PREFETCH_NO_ROOM without such a victim.
 */
__u32 uvm_seam_push_out(struct uvm_seam_prefetch *call, __u32 *pages);

/* upstream's uvm_global_get_status(). */
__u32 uvm_seam_global_status(void);

void uvm_seam_seq_write(struct seq_file *seq, const __u8 *text, __kernel_size_t len);

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
