/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The SSD tier: what its C files have in common.
 *
 *   uvm_rust_flash.c        va_blocks: which have host memory
 *   uvm_rust_flash_spill.c  the workers that write them
 *   uvm_rust_flash_copies.c pages that are on flash as well
 *   uvm_rust_flash_attach.c attaching, detaching, moving, statistics
 *   uvm_rust_flash_block.h  va_blocks, what needs upstream's statics; in uvm_va_block.c
 *   uvm_rust_flash_io.c     the device: opening, encryption, reading and writing
 *
 * Locks, outermost first: attach_lock; a VA space's lock; a va_block's lock; the table's
 * mutex, in Rust; uvm_rust_tier.lock, a spinlock. Under a va_block's lock there is no I/O.
 */
#ifndef UVM_RUST_FLASH_H
#define UVM_RUST_FLASH_H

#include <linux/jump_label.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "uvm_rust_ffi.h"
#include "uvm_rust_hooks.h"

/*
 * On if uvm_rust_flash=1: without it, every hook is a nop. With it, host memory is counted by
 * va_block, as a device may be attached at any time.
 */
DECLARE_STATIC_KEY_FALSE(uvm_rust_flash_key);
/*
 * On from the first attachment on, which turns it on before anybody can spill: without it no
 * va_block has a state, so nothing is on flash and the other hooks are nops. Who finds it off
 * under a va_block's lock, or a VA space's for writing, is right until letting go of that:
 * spills take both.
 */
DECLARE_STATIC_KEY_FALSE(uvm_rust_flash_used_key);

/* --- the device: uvm_rust_flash_io.c --------------------------------------------- */

#define FLASH_SLOT_PAGES	512u
#define FLASH_SLOT_SIZE		(FLASH_SLOT_PAGES * PAGE_SIZE)

struct crypto_skcipher;

/* An attached device. Fields are fixed while it is, but for the atomic ones. */
struct uvm_rust_flash_dev {
	/* Held by the tier, by each va_block that has a state, and by each user for a while. */
	struct kref ref;
	struct file *file;
	struct crypto_skcipher *tfm;
	void *table;
	bool checksums;
	/* Pages of host memory above which faults wait for spills, and above which spills begin. */
	u64 host_limit, host_low;

	/* Raised when a read or a spill ends. Waited for without locks but a VA space's. */
	atomic_t progress;
	wait_queue_head_t wait;
	/* What the workers did since one of them moved something: looks in vain, and failed writes among them. */
	atomic_t fruitless, failures;
	/*
	 * All blocks were looked at in vain, or writes failed, at that time (jiffies): do not
	 * wait for a spill, and begin none for a while, which grows as long as writes fail.
	 */
	bool stalled;
	unsigned long stalled_at, rest;

	atomic64_t written, spilled, fetched, relocated, dropped, unwritten;
	atomic64_t write_errors, read_errors, lost_pages, refused;
};

/* A read or a write of pages of one va_block. */
struct uvm_rust_flash_io {
	void *op;
	/* A read that somebody waits for in a fault. */
	bool fault;
	struct uvm_rust_mask mask;
	struct uvm_rust_flash_pieces pieces;
	/* By page of the va_block; those in @mask are held. */
	struct page *pages[FLASH_SLOT_PAGES];
	/* For writes: what is encrypted into. */
	struct page *bounce[FLASH_SLOT_PAGES];
	struct bio_vec bvec[FLASH_SLOT_PAGES];
	u32 sums[FLASH_SLOT_PAGES];
};

struct uvm_rust_flash_io *uvm_rust_flash_io_alloc(bool bounce);
void uvm_rust_flash_io_free(struct uvm_rust_flash_io *io);

/* Opens the device and makes a key. Returns it with one reference, or an error. */
struct uvm_rust_flash_dev *uvm_rust_flash_open(const char *path, bool force, bool checksums, u64 quota);
void uvm_rust_flash_put(struct uvm_rust_flash_dev *dev);
/* Lets the device go, of which nothing is needed any more. */
void uvm_rust_flash_close(struct uvm_rust_flash_dev *dev);

/*
 * Reads io->pieces into io->pages. Pages that arrived are set in @good, those that never
 * will in @failed; what is in neither may be tried again. No lock is held that a fault
 * needs.
 */
void uvm_rust_flash_read(struct uvm_rust_flash_dev *dev, struct uvm_rust_flash_io *io,
			 uvm_page_mask_t *good, uvm_page_mask_t *failed);
/* Encrypts io->pages into io->bounce and writes that; @good gets what the device took. */
void uvm_rust_flash_write(struct uvm_rust_flash_dev *dev, struct uvm_rust_flash_io *io, uvm_page_mask_t *good);
/* Copies inside the device by way of io->bounce, as it is. */
bool uvm_rust_flash_copy(struct uvm_rust_flash_dev *dev, struct uvm_rust_flash_io *io,
			 const struct uvm_rust_flash_move *move);
/* Whether it is there, and nothing that it was asked for has failed. */
bool uvm_rust_flash_is_sound(struct uvm_rust_flash_dev *dev);

/* --- va_blocks ---------------------------------------------------------------------- */

/* What we know of a va_block: uvm_va_block_t.uvm_rust_flash. Protected by its lock. */
struct uvm_rust_flash_block {
	/* In the queue of those that may have pages to spill; under uvm_rust_tier.lock. */
	struct list_head node;
	/* Among all; under uvm_rust_tier.lock. */
	struct list_head all;
	/* In the list of those that may have copies; under uvm_rust_tier.lock. */
	struct list_head copies;
	/* The detaching that has seen it; that one's. */
	u32 seen;
	uvm_va_block_t *block;
	/* Pages of host memory that it was last counted with. */
	u32 host_pages;
	/* Whose quota its pages count to; 0 until its first spill. */
	u64 tenant;
	/* NULL until its first spill, as is state; state is Rust's. */
	struct uvm_rust_flash_dev *dev;
	void *state;
};

static inline struct uvm_rust_flash_block *uvm_rust_flash_of(uvm_va_block_t *block)
{
	return block->uvm_rust_flash;
}

/* Pages of @block that @set names (UVM_RUST_FLASH_*); false for none. Caller holds its lock. */
static inline bool uvm_rust_flash_set(uvm_va_block_t *block, u32 set, uvm_page_mask_t *out)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);

	return f && f->state && uvm_rust_flash_pages(f->state, set, uvm_rust_mask_out(out));
}

/* Whether @set has page @index. Not inline: the mask is cleared where it is declared, and most calls need none. */
bool uvm_rust_flash_has(uvm_va_block_t *block, u32 set, uvm_page_index_t index);

/*
 * Somebody may write to those of @pages that are in memory from now on: whatever copies flash
 * has of them are no longer valid. Caller holds its lock.
 */
static inline void uvm_rust_flash_may_be_written(uvm_va_block_t *block, const uvm_page_mask_t *pages)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);

	if (f && f->state)
		uvm_rust_flash_may_write(f->dev->table, f->state, uvm_rust_mask(pages));
}

/* Its host memory may have changed; @used: pages arrived there. Caller holds its lock. */
void uvm_rust_flash_note(uvm_va_block_t *block, bool used);
/* It is being destroyed, discarded, or split. Caller holds its lock. */
void uvm_rust_flash_block_gone(uvm_va_block_t *block);
void uvm_rust_flash_discarded(uvm_va_block_t *block, const struct uvm_rust_mask *pages);
/*
 * Before and after a split at page @at; the caller holds the VA space's lock in write
 * mode, and no va_block's. @upper: what the first gave, which the second takes.
 */
NV_STATUS uvm_rust_flash_before_split(uvm_va_block_t *block, u32 at, struct uvm_rust_flash_block **upper);
void uvm_rust_flash_after_split(uvm_va_block_t *block, uvm_va_block_t *upper_block, u32 at,
				struct uvm_rust_flash_block *upper);

/* What there is but once. */
struct uvm_rust_flash_tier {
	/* Protects all but the atomic ones. */
	spinlock_t lock;
	/* Blocks that may have something to spill, longest in host memory first. */
	struct list_head queue;
	u32 queue_length;
	/* All blocks, in the queue or not. */
	struct list_head all;
	/* Those that may have copies, the oldest first. */
	struct list_head copies;
	/* The attached device, or NULL. */
	struct uvm_rust_flash_dev *dev;
	atomic64_t host_pages, host_peak;
};

extern struct uvm_rust_flash_tier uvm_rust_tier;

/* A block leaves the queue. */
void uvm_rust_flash_dequeue(struct uvm_rust_flash_block *f);
/* Forgets the block's state, which holds nothing, or is not needed. Caller holds its lock. */
void uvm_rust_flash_drop_state(struct uvm_rust_flash_block *f);

/* --- uvm_rust_flash_copies.c -------------------------------------------------------- */

/* Some of its pages may be on flash as well now. Caller holds its lock. */
void uvm_rust_flash_note_copies(uvm_va_block_t *block);
/*
 * Takes those of @pages, which only the host has, out of its memory that flash has a copy of.
 * Changes @pages to what must be written. Caller holds the block's lock, which may be
 * dropped: NV_ERR_MORE_PROCESSING_REQUIRED.
 */
NV_STATUS uvm_rust_flash_drop_copied(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block,
				     uvm_va_block_context_t *context, uvm_page_mask_t *pages);
/* Gives up the copies of a block, and returns how many pages had one. Caller holds its lock. */
u32 uvm_rust_flash_give_up_block(uvm_va_block_t *block);
/*
 * Gives up copies, those of a slot if there are so many, of anybody or, with @of, of its owner.
 * Returns whether there were any. Caller holds no va_block's lock.
 */
bool uvm_rust_flash_give_up_copies(struct uvm_rust_flash_dev *dev, uvm_va_block_t *of);

/* --- uvm_rust_flash_spill.c --------------------------------------------------------- */

enum uvm_rust_flash_outcome {
	FLASH_MOVED,		/* some pages left host memory */
	FLASH_NOTHING,	/* there is nothing to move now; a later arrival queues it again */
	FLASH_LATER,		/* something is in the way */
	FLASH_NO_ROOM,	/* the device has none */
	FLASH_NO_QUOTA,	/* the process may have no more */
	FLASH_FAILED,		/* the device took nothing of what it was given */
};

/*
 * Writes what of @wanted (NULL: all) the block has in host memory. Caller holds a
 * reference on the block and no lock; or, with @locked, the VA space's lock in read mode.
 */
enum uvm_rust_flash_outcome uvm_rust_flash_spill(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block,
						 const uvm_page_mask_t *wanted, struct uvm_rust_flash_io *io,
						 bool locked);
/* Gathers free space, some at a time. */
void uvm_rust_flash_relocate(struct uvm_rust_flash_dev *dev, struct uvm_rust_flash_io *io);
/* Wakes the workers if there is something for them. */
void uvm_rust_flash_kick(void);
/* Whether too much host memory is in use and waiting may help; then waits, for a while. */
bool uvm_rust_flash_must_wait(void);
void uvm_rust_flash_wait_room(void);
/* While a device is attached. Caller is alone in attaching and detaching. */
int uvm_rust_flash_start_workers(struct uvm_rust_flash_dev *dev);
void uvm_rust_flash_stop_workers(void);

/* --- uvm_rust_flash_attach.c -------------------------------------------------------- */

/* With the module; at its end no VA space exists. */
void uvm_rust_flash_init(void);
void uvm_rust_flash_exit(void);

/* --- uvm_rust_flash_block.h ------------------------------------------------------------ */

/*
 * Brings those of @wanted that are on flash into host memory. Caller holds the VA space's
 * lock and the block's, which is dropped for the I/O. NV_OK: none is on flash;
 * NV_ERR_MORE_PROCESSING_REQUIRED: the lock was dropped, call again; NV_ERR_INVALID_OPERATION:
 * one is lost. @fault: for a fault, which comes first.
 */
NV_STATUS uvm_rust_flash_fetch(uvm_va_block_t *block, uvm_va_block_context_t *context,
			       const uvm_page_mask_t *wanted, bool fault);

/* Unmaps pages from all processors; as uvm_rust_block_drop_pages(). */
NV_STATUS uvm_rust_block_unmap_pages(uvm_va_block_t *block, uvm_va_block_context_t *context,
				     const uvm_page_mask_t *pages);
/*
 * Unmaps pages and waits for the GPUs' work on the block, one of which may have been writing
 * until then; as uvm_rust_block_drop_pages().
 */
NV_STATUS uvm_rust_flash_unmap(uvm_va_block_t *block, uvm_va_block_context_t *context,
			       const uvm_page_mask_t *pages);
/*
 * Takes residency of pages that are mapped nowhere, frees the host memory of which nothing
 * is resident, and counts what is left. Caller has waited for the block's tracker.
 */
void uvm_rust_flash_left_host(uvm_va_block_t *block, const uvm_page_mask_t *pages);

/* Holds the host memory of @mask in io->pages. False if some page has none. */
bool uvm_rust_flash_hold_pages(uvm_va_block_t *block, const uvm_page_mask_t *mask, struct uvm_rust_flash_io *io);
void uvm_rust_flash_release_pages(struct uvm_rust_flash_io *io);

#endif
