/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): discard.
 */
#ifndef UVM_RUST_DISCARD_FFI_H
#define UVM_RUST_DISCARD_FFI_H

#include "uvm_rust_types.h"

struct uvm_seam_tracker;	/* upstream's uvm_tracker_t */

/* --- called by C ------------------------------------------------------------ */

/*
 * The discard state of a va_block, made by its first discard and kept in the
 * va_block. All calls hold the va_block's lock. The functions are those of
 * policy/discard.rs, which says what they mean and in which order they come.
 */
/* NULL is none. */
void uvm_rust_block_destroy(struct uvm_rust_block *block);

/*
 * Before @pages are made resident where @resident_at_destination is: drops what is discarded lazily instead of copying
 * it. And before @leaving pages are evicted. Return an NV_STATUS; that of the first is also that the lock was let go.
 */
__u32 uvm_rust_block_drop_stale(struct uvm_va_block_struct *of, struct uvm_seam_context *context,
				struct uvm_rust_block *block, const struct uvm_rust_mask *pages,
				const struct uvm_rust_mask *resident_at_destination);
__u32 uvm_rust_block_drop_needless(struct uvm_va_block_struct *of, struct uvm_rust_block *block,
				   const struct uvm_rust_mask *leaving);
/*
 * The second of all that is @resident on a GPU that leaves the VA space, whose lock is held in write mode, and again if
 * the block's lock was let go (policy/discard/leaving.rs). @block, where the va_block has its state, and @resident, which is
 * its own mask, are read before each try.
 */
void uvm_rust_block_drop_leaving(struct uvm_va_block_struct *of, struct uvm_rust_block **block,
				 const struct uvm_rust_mask *resident);

/* These fill @out and return whether it names a page. */
/* Of a chunk, which has pages @first to @outer - 1. */
_Bool uvm_rust_block_zeroing(struct uvm_rust_block *block, __u32 memory, __u32 first, __u32 outer,
			     const struct uvm_rust_mask *resident, const struct uvm_rust_mask *resident_there,
			     struct uvm_rust_mask *out);
/* Upstream has just zeroed what is not @resident anywhere, unless the chunk @was_zero as it came. */
void uvm_rust_block_added(struct uvm_rust_block *block, __u32 memory, __u32 first, __u32 outer,
			  const struct uvm_rust_mask *resident, _Bool was_zero);
void uvm_rust_block_prepare(struct uvm_rust_block *block, __u32 memory, const struct uvm_rust_mask *pages);
/*
 * uvm_rust_block_zeroing() on the host, of @wanted pages that are @allocated there; the others come
 * unprepared, and upstream zeroes them before they are resident there.
 */
_Bool uvm_rust_block_zeroing_host(struct uvm_rust_block *block, const struct uvm_rust_mask *wanted,
				  const struct uvm_rust_mask *allocated, const struct uvm_rust_mask *resident,
				  struct uvm_rust_mask *out);
/*
 * @pages were made resident in @memory, where @resident_there is by now, and @resident_host on the host,
 * where copies may have been staged; @evicted: by an eviction, which accesses nothing. Else the VA space's lock is held.
 */
void uvm_rust_block_made_resident(struct uvm_va_block_struct *of, struct uvm_rust_block *block, __u32 memory,
				  const struct uvm_rust_mask *pages, const struct uvm_rust_mask *resident_there,
				  const struct uvm_rust_mask *resident_host, _Bool evicted);

/*
 * Upstream's: splits a va_block (policy/discard/split.rs) whose lower half ends with @new_end. Caller holds the VA
 * space's lock in write mode. Returns an NV_STATUS, and fills @upper, unless that is NULL, for NV_OK. And upstream's own
 * body of it, which splits what upstream has of a va_block.
 */
#ifndef UVM_RUST_NATIVE
#include "uvm_rust_on_split.h"
__u32 uvm_va_block_split(struct uvm_va_block_struct *block, __u64 new_end, struct uvm_va_block_struct **upper,
			 UVM_RUST_SPLIT_RANGE *new_range);
UVM_RUST_C_BODY(uvm_va_block_split);
#endif

/* What became of the blocks that a discard covers; added to what is there. */
struct uvm_seam_discarded {
	__u64 discarded, skipped, partial;
};

/*
 * Discards [base, base + length) of a VA space by way of uvm_seam_discard_*(). @mm: as for uvm_seam_discard(). @tracker:
 * for work to wait for, on the stack of that. Returns an NV_STATUS. Sleeps.
 */
__u32 uvm_rust_discard_range(struct uvm_seam_space *space, struct mm_struct *mm, struct uvm_seam_tracker *tracker,
			     __u64 base, __u64 length, _Bool eager, struct uvm_seam_discarded *counts);

/* --- called by Rust ----------------------------------------------------------- */

struct uvm_rust_span {
	__u64 first, last;
};

/* A va_block's addresses. Caller holds the VA space's lock. */
void uvm_seam_block_span(struct uvm_va_block_struct *block, struct uvm_rust_span *span);

/*
 * Locks a va_block, of a VA space whose lock is held. Returns where the block has its discard state, which is
 * NULL before its first discard, and changes only under the lock.
 */
struct uvm_rust_block **uvm_seam_block_lock(struct uvm_va_block_struct *block);
void uvm_seam_block_unlock(struct uvm_va_block_struct *block);

#define UVM_RUST_KIND_MANAGED	0
#define UVM_RUST_KIND_HMM	1
#define UVM_RUST_KIND_ATS	2

/*
 * The memory of a process, with the lock of its VA space held: its addresses, and whether it is managed; then also where
 * it prefers to be, and whether it is kept in several places while it is only read.
 */
struct uvm_rust_range {
	__u64 first, last;
	__u32 preferred;	/* UVM_RUST_MEMORY_*, or _NONE */
	_Bool managed, read_duplicated;
};
/* The first memory with a part from @from to @last; NULL if there is none. */
struct uvm_va_range_struct *uvm_seam_range(struct uvm_seam_space *space, __u64 from, __u64 last,
					   struct uvm_rust_range *out);
/* The va_block at @at of a range of managed memory, in which that is; NULL if nobody touched it. */
struct uvm_va_block_struct *uvm_seam_range_block(struct uvm_va_range_struct *range, __u64 at);
/* With the VA space's lock, and that of its @mm: what all of a range is, UVM_RUST_KIND_*, or another number. */
__u32 uvm_seam_range_kind(struct uvm_seam_space *space, struct mm_struct *mm, __u64 base, __u64 length);
/* Whether a GPU is registered that cannot fault. */
_Bool uvm_seam_has_non_faultable(struct uvm_seam_space *space);
/* What upstream works with. NULL without memory, which is charged as upstream does for @mm; NULL for nobody's. */
struct uvm_seam_context *uvm_seam_context_new(struct mm_struct *mm);
void uvm_seam_context_free(struct uvm_seam_context *context);

/*
 * With the va_block locked: unmaps @pages from all processors. Returns an NV_STATUS; NV_ERR_MORE_PROCESSING_REQUIRED: the
 * lock was let go. And takes residency of @pages, which are mapped nowhere, from all of them; nothing is copied. Unless the
 * host's memory @stays, the caller frees all that @pages have there.
 */
__u32 uvm_seam_block_unmap(struct uvm_va_block_struct *block, struct uvm_seam_context *context,
			   const struct uvm_rust_mask *pages);
void uvm_seam_block_drop(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages, _Bool stays);
/*
 * @pages are resident nowhere any more: UVM forgets what its thrashing detector knows of them, as for pages that
 * HMM lost. Otherwise UVM would believe them to be where they were pinned.
 */
void uvm_seam_block_forget_thrashing(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages);

/* The root chunk of the page at @address on a GPU, or UVM_RUST_NO_CHUNK. With the va_block locked. */
__u32 uvm_seam_block_chunk(struct uvm_va_block_struct *block, struct uvm_gpu_struct *gpu, __u64 address);

/* Upstream's: the va_block of managed memory that has @address, NV_ERR_OBJECT_NOT_FOUND if nobody touched it. */
__u32 uvm_va_block_find(struct uvm_va_space_struct *va_space, __u64 address, struct uvm_va_block_struct **block);

/*
 * Discards [base, base + length). Gives back @mm, of uvm_seam_mm_lock(), and takes all
 * other locks that it needs. Waits for the GPUs if @eager. Returns an NV_STATUS;
 * NV_WARN_NOTHING_TO_DO for memory that is not managed but known.
 */
__u32 uvm_seam_discard(struct uvm_seam_space *space, struct mm_struct *mm, __u64 base, __u64 length, _Bool eager,
		       struct uvm_seam_discarded *counts);

/* --- discard: called by Rust, within uvm_rust_discard_range() ---------------------- */

/*
 * Each means what the method of the same name of `Machine` in policy/discard/walk.rs means, which says what is
 * called between what. Those that return __u32 return an NV_STATUS. Of the VA space the lock is held, and of a
 * block, which is managed memory, its own.
 */

struct uvm_rust_held {
	struct uvm_rust_mask resident;
	__u32 memory;		/* UVM_RUST_MEMORY_* */
	_Bool one_place;
	_Bool root_chunk;
};

/* Upstream's. */
_Bool uvm_range_group_all_migratable(struct uvm_va_space_struct *va_space, __u64 first, __u64 last);
_Bool uvm_gpu_can_address(struct uvm_gpu_struct *gpu, __u64 first, __u64 bytes);
/* Fills @resident, and returns whether some processor maps the block with one entry of 2 MiB. */
_Bool uvm_seam_discard_facts(struct uvm_va_block_struct *block, struct uvm_rust_mask *resident);
_Bool uvm_seam_discard_held(struct uvm_seam_space *space, struct uvm_va_block_struct *block, __u32 from,
			    struct uvm_rust_held *held);
/* @memory is one that uvm_seam_discard_held() gave with a root chunk; @queue: UVM_RUST_QUEUE_DISCARDED or _USED. */
void uvm_seam_discard_requeue(struct uvm_seam_space *space, struct uvm_va_block_struct *block, __u32 memory, __u32 queue);
/* Notes what GPUs do with the block. The second waits for all that was noted, with the VA space's lock held. */
__u32 uvm_seam_tracker_add(struct uvm_seam_tracker *tracker, struct uvm_va_block_struct *block);
__u32 uvm_seam_tracker_end(struct uvm_seam_tracker *tracker);

#endif
