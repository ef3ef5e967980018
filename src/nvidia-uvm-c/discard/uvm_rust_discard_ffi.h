/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): discard.
 */
#ifndef UVM_RUST_DISCARD_FFI_H
#define UVM_RUST_DISCARD_FFI_H

#include "uvm_rust_types.h"

/* --- called by C ------------------------------------------------------------ */

/*
 * The discard state of a va_block, made by its first discard and kept in the
 * va_block. All calls hold the va_block's lock. The functions are those of
 * policy/discard.rs, which says what they mean and in which order they come.
 */
/* NULL is none. */
void uvm_rust_block_destroy(struct uvm_rust_block *block);

/* These fill @out and return whether it names a page. */
_Bool uvm_rust_block_stale(struct uvm_rust_block *block, const struct uvm_rust_mask *pages,
			   const struct uvm_rust_mask *resident_at_destination, struct uvm_rust_mask *out);
/* Of a chunk, which has pages @first to @outer - 1. */
_Bool uvm_rust_block_zeroing(struct uvm_rust_block *block, __u32 memory, __u32 first, __u32 outer,
			     const struct uvm_rust_mask *resident, const struct uvm_rust_mask *resident_there,
			     struct uvm_rust_mask *out);
_Bool uvm_rust_block_needless(struct uvm_rust_block *block, const struct uvm_rust_mask *leaving,
			      struct uvm_rust_mask *out);

void uvm_rust_block_dropped(struct uvm_rust_block *block, const struct uvm_rust_mask *pages);
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
 * where copies may have been staged; @evicted: by an eviction, which accesses nothing.
 */
void uvm_rust_block_made_resident(struct uvm_rust_block *block, __u32 memory, const struct uvm_rust_mask *pages,
				  const struct uvm_rust_mask *resident_there,
				  const struct uvm_rust_mask *resident_host, _Bool evicted);

/*
 * @upper: a copy of the state from page @at on, for the upper half of a split. False, and NULL,
 * without memory. Of no state, NULL, the upper half is none, and what is cut off nothing.
 */
_Bool uvm_rust_block_upper(struct uvm_rust_block *block, __u32 at, struct uvm_rust_block **upper);
void uvm_rust_block_truncate(struct uvm_rust_block *block, __u32 at);

/* What became of the blocks that a discard covers; added to what is there. */
struct uvm_seam_discarded {
	__u64 discarded, skipped, partial;
};

/*
 * The discard of one range: what C has of it, and what Rust keeps between two calls below. On the stack
 * of uvm_seam_discard().
 */
struct uvm_seam_discard {
	struct uvm_va_space_struct *va_space;
	void *tracker;	/* work to wait for */
	/* Between enter and leave, and between open and close. */
	struct mm_struct *mm;
	void *context;
	/* The ones that were chosen last; NULL for none. */
	struct uvm_va_range_struct *range;
	struct uvm_va_block_struct *block;
};

/*
 * Discards [base, base + length) by way of uvm_seam_discard_*(), which mean @call's VA space.
 * Returns an NV_STATUS. Sleeps.
 */
__u32 uvm_rust_discard_range(struct uvm_seam_discard *call, __u64 base, __u64 length, _Bool eager,
			     struct uvm_seam_discarded *counts);

/* Module parameters. */
extern _Bool uvm_rust_discard;
extern unsigned int uvm_rust_discard_granule;

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

/* The root chunk of the page at @address on a GPU, or UVM_RUST_NO_CHUNK. With the va_block locked. */
__u32 uvm_seam_block_chunk(struct uvm_va_block_struct *block, struct uvm_gpu_struct *gpu, __u64 address);

/* Upstream's: the va_block of managed memory that has @address, NV_ERR_OBJECT_NOT_FOUND if nobody touched it. */
__u32 uvm_va_block_find(struct uvm_va_space_struct *va_space, __u64 address, struct uvm_va_block_struct **block);

/*
 * Discards [base, base + length). Takes the locks it needs, and waits for the GPUs
 * if @eager. Returns an NV_STATUS; NV_WARN_NOTHING_TO_DO for memory that is not
 * managed but known.
 */
__u32 uvm_seam_discard(struct uvm_seam_space *space, __u64 base, __u64 length, _Bool eager,
		       struct uvm_seam_discarded *counts);

/* --- discard: called by Rust, within uvm_rust_discard_range() ---------------------- */

/*
 * With its @call; each means what the method of the same name of `Machine` in
 * policy/discard/walk.rs means, which says what is called between what. Those that return
 * __u32 return an NV_STATUS unless said otherwise. Addresses are from the first to the last.
 */

#define UVM_RUST_KIND_MANAGED	0
#define UVM_RUST_KIND_HMM	1
#define UVM_RUST_KIND_ATS	2

struct uvm_rust_held {
	struct uvm_rust_mask resident;
	__u32 memory;		/* UVM_RUST_MEMORY_* */
	_Bool one_place;
	_Bool root_chunk;
};

/* Returns whether a GPU is registered that cannot fault. */
_Bool uvm_seam_discard_enter(struct uvm_seam_discard *call);
void uvm_seam_discard_leave(struct uvm_seam_discard *call);
/* Called once, after leave, and nothing after it. */
__u32 uvm_seam_discard_wait(struct uvm_seam_discard *call);

/* These between enter and leave. */
/* Returns UVM_RUST_KIND_*, or another number. */
__u32 uvm_seam_discard_kind(struct uvm_seam_discard *call, __u64 base, __u64 length);
__u32 uvm_seam_discard_open(struct uvm_seam_discard *call);
void uvm_seam_discard_close(struct uvm_seam_discard *call);

/* These between open and close, on memory of the kind UVM_RUST_KIND_MANAGED. */
_Bool uvm_seam_discard_range(struct uvm_seam_discard *call, __u64 at, struct uvm_rust_span *range);
/* Chooses the block at @at, which is in the range that was chosen last, if there is one. */
void uvm_seam_discard_block(struct uvm_seam_discard *call, __u64 at);
/* Upstream's. */
_Bool uvm_range_group_all_migratable(struct uvm_va_space_struct *va_space, __u64 first, __u64 last);
/* These with the block that was chosen last, locked. */
/* Fills @resident, and returns whether some processor maps the block with one entry of 2 MiB. */
_Bool uvm_seam_discard_facts(struct uvm_seam_discard *call, struct uvm_rust_mask *resident);
_Bool uvm_seam_discard_held(struct uvm_seam_discard *call, __u32 from, struct uvm_rust_held *held);
/* NV_ERR_MORE_PROCESSING_REQUIRED: the lock was let go on the way. */
__u32 uvm_seam_discard_drop(struct uvm_seam_discard *call, const struct uvm_rust_mask *pages);
void uvm_seam_discard_forget_thrashing(struct uvm_seam_discard *call, const struct uvm_rust_mask *pages);
/* Forgets the copies of pages on the SSD. */
void uvm_rust_flash_discarded(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages);
/* @memory is one that uvm_seam_discard_held() gave with a root chunk. */
void uvm_seam_discard_requeue(struct uvm_seam_discard *call, __u32 memory);
__u32 uvm_seam_discard_note_work(struct uvm_seam_discard *call);

/* cond_resched(), and fatal_signal_pending() for the calling thread. */
void uvm_seam_rest(void);
_Bool uvm_seam_dying(void);

#endif
