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
void uvm_rust_block_destroy(struct uvm_rust_block *block);

/* These fill @out and return whether it names a page. */
_Bool uvm_rust_block_stale(struct uvm_rust_block *block, const struct uvm_rust_mask *pages,
			   const struct uvm_rust_mask *resident_at_destination, struct uvm_rust_mask *out);
/*
 * @wanted: of the chunk, pages @first to @outer - 1; NULL is all of them. @resident_there: NULL where
 * nothing is gained by zeroing more than is wanted.
 */
_Bool uvm_rust_block_zeroing(struct uvm_rust_block *block, __u32 memory, __u32 first, __u32 outer,
			     const struct uvm_rust_mask *wanted, const struct uvm_rust_mask *resident,
			     const struct uvm_rust_mask *resident_there, struct uvm_rust_mask *out);
_Bool uvm_rust_block_needless(struct uvm_rust_block *block, __u32 first, __u32 outer,
			      const struct uvm_rust_mask *resident_there, struct uvm_rust_mask *out);

void uvm_rust_block_dropped(struct uvm_rust_block *block, const struct uvm_rust_mask *pages);
/* Upstream has just zeroed what is not @resident anywhere, unless the chunk @was_zero as it came. */
void uvm_rust_block_added(struct uvm_rust_block *block, __u32 memory, __u32 first, __u32 outer,
			  const struct uvm_rust_mask *resident, _Bool was_zero);
/* What is not @allocated in @memory comes unprepared; upstream zeroes it before it is resident there. */
void uvm_rust_block_keeps(struct uvm_rust_block *block, __u32 memory, const struct uvm_rust_mask *allocated);
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
 * Returns an NV_STATUS. Sleeps.
 */
__u32 uvm_rust_discard_range(struct uvm_seam_discard *call, __u64 base, __u64 length, _Bool eager,
			     struct uvm_seam_discarded *counts);

/* Module parameters. */
extern _Bool uvm_rust_discard;
extern unsigned int uvm_rust_discard_granule;

/* --- called by Rust ----------------------------------------------------------- */

/*
 * Discards [base, base + length). Takes the locks it needs, and waits for the GPUs
 * if @eager. Returns an NV_STATUS; NV_WARN_NOTHING_TO_DO for memory that is not
 * managed but known.
 */
__u32 uvm_seam_discard(struct uvm_seam_space *space, __u64 base, __u64 length, _Bool eager,
		       struct uvm_seam_discarded *counts);

/*
 * What NVIDIA's tests ask of the page at @address: what it is, UVM_RUST_PAGE_*, unchanged where it was
 * never discarded; or, with @uuid, the UVM_RUST_QUEUE_* of that GPU's root chunk there.
 */
__u32 uvm_seam_test_look(struct uvm_seam_space *space, __u64 address, const __u8 *uuid, __u32 *found);

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
/*
 * Returns where the block has its discard state, which is NULL before its first discard, and changes
 * only under the lock.
 */
struct uvm_rust_block **uvm_seam_discard_lock(struct uvm_seam_discard *call);

/* These between lock and unlock, on the block that was chosen last. */
void uvm_seam_discard_unlock(struct uvm_seam_discard *call);
/* Fills @resident, and returns whether some processor maps the block with one entry of 2 MiB. */
_Bool uvm_seam_discard_facts(struct uvm_seam_discard *call, struct uvm_rust_mask *resident);
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

#endif
