/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The SSD tier's part of the boundary between C and Rust; see uvm_rust_ffi.h for
 * what holds of all of it. The functions are those of policy/flash.rs, which says
 * what they mean and in which order they come.
 *
 * A table has a mutex of its own, taken inside each call that has @table and inside
 * all other locks; such a call may sleep. What is known of a va_block is protected by its lock,
 * which the caller of all that have @block holds. The tier has a spinlock, inside all of these.
 */
#ifndef UVM_RUST_FLASH_FFI_H
#define UVM_RUST_FLASH_FFI_H

#include "uvm_rust_types.h"

struct uvm_rust_flash_table;	/* the slots of a device */
struct uvm_rust_flash_block;	/* what is known of a va_block: uvm_va_block_t.uvm_rust_flash */
struct uvm_rust_tier;		/* who uses the tier */
struct uvm_rust_owner;		/* what is known of a tenant */
struct uvm_seam_va_block;	/* upstream's uvm_va_block_t */
struct uvm_seam_flash_dev;	/* an open device, which is counted */
struct uvm_seam_flash_io;	/* a buffer for a read, a write or a copy */
struct uvm_seam_context;	/* upstream's uvm_va_block_context_t */
struct uvm_seam_space;
struct uvm_rust_flash_stats;
struct uvm_rust_flash_owner;	/* C's part of a tenant */
/* A read under way. */
struct uvm_rust_flash_read;

/* The slots of a device. Returns NULL if there is no memory. */
struct uvm_rust_flash_table *uvm_rust_flash_create(__u32 slots, _Bool checksums, __u64 quota_pages);
/* All blocks, reads, writes and moves of it have ended. */
void uvm_rust_flash_destroy(struct uvm_rust_flash_table *table);

/* What C counts, by the names of struct uvm_rust_flash_stats. Adds @n, and returns what is there then. */
#define UVM_RUST_FLASH_WRITTEN		0
#define UVM_RUST_FLASH_FETCHED		1
#define UVM_RUST_FLASH_WRITE_ERRORS	2
#define UVM_RUST_FLASH_READ_ERRORS	3
#define UVM_RUST_FLASH_LOST_PAGES	4
#define UVM_RUST_FLASH_PARKED		5
#define UVM_RUST_FLASH_THROTTLED	6
__u64 uvm_rust_flash_count(struct uvm_rust_flash_table *table, __u32 what, __u64 n);
/* Whether the device has failed anything. */
_Bool uvm_rust_flash_has_failed(struct uvm_rust_flash_table *table);
/* Fills in what is known of the device. */
void uvm_rust_flash_stats(struct uvm_rust_flash_table *table, struct uvm_rust_flash_stats *stats);

/* Neighbouring pages of a va_block that are neighbours on the device. */
struct uvm_rust_flash_piece {
	__u64 stamp;
	__u32 slot;
	__u16 offset;
	__u16 first;
	__u16 pages;
	__u16 reserved[3];
};

/* The most pieces of one va_block: 256 runs of pages, and a slot that ends in one. */
#define UVM_RUST_FLASH_PIECES	260

struct uvm_rust_flash_pieces {
	__u32 count;
	__u32 reserved;
	struct uvm_rust_flash_piece piece[UVM_RUST_FLASH_PIECES];
};

/* Checksums of the pages of @piece. False if they are not kept. */
_Bool uvm_rust_flash_sums(struct uvm_rust_flash_table *table, const struct uvm_rust_flash_piece *piece, __u32 *sums);
void uvm_rust_flash_set_sums(struct uvm_rust_flash_table *table, const struct uvm_rust_flash_piece *piece, const __u32 *sums);

/* --- a va_block: policy/flash/{block,wants}.rs ------------------------------------ */

/* Of a va_block of this tenant's, known to nobody yet. Returns NULL if there is no memory. */
struct uvm_rust_flash_block *uvm_rust_flash_block_create(struct uvm_rust_owner *owner);
/* It is of @of, which keeps it, from now on. */
void uvm_rust_flash_block_publish(struct uvm_rust_flash_block *block, struct uvm_seam_va_block *of);
/* Whether or not it was published. */
void uvm_rust_flash_block_destroy(struct uvm_rust_flash_block *block);

/*
 * The pages' state is of one device, and made by the first spill there, of a va_block of @pages pages.
 * False without memory, or while it is of a device that is gone. It is charged to the memory cgroup
 * that is active, if that has room.
 */
_Bool uvm_rust_flash_block_use(struct uvm_rust_flash_block *block, struct uvm_seam_flash_dev *dev,
			       struct uvm_rust_flash_table *table, __u32 pages);
/* These take NULL for a block of which nothing is known. */
_Bool uvm_rust_flash_block_is_used(struct uvm_rust_flash_block *block);
/* The device of its state, which keeps it; NULL without. */
struct uvm_seam_flash_dev *uvm_rust_flash_block_dev(struct uvm_rust_flash_block *block);
/* Sets of pages of a block. */
#define UVM_RUST_FLASH_ON_FLASH		0
#define UVM_RUST_FLASH_IN_FLIGHT	1
#define UVM_RUST_FLASH_LOST		2
#define UVM_RUST_FLASH_SPILLING		3
#define UVM_RUST_FLASH_COPIES		4

/* Fills @out; returns whether it names a page. These take NULL for @block. */
_Bool uvm_rust_flash_pages(struct uvm_rust_flash_block *block, __u32 set, struct uvm_rust_mask *out);
void uvm_rust_flash_touched(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages);
void uvm_rust_flash_forget(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages);
void uvm_rust_flash_may_write(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages);
/*
 * Before a split, while the VA space's lock is held in write mode: gives what @upper is to be, which
 * is not published, or NULL without memory, and then nothing has changed. Upstream destroys a range
 * whose split fails, with all that it holds, so that no memory cgroup is charged for it, whose limit
 * would make it fail. After it: moves the state of the pages from @at on there.
 */
struct uvm_rust_flash_block *uvm_rust_flash_block_cut(struct uvm_rust_flash_block *block, __u32 at);
void uvm_rust_flash_block_split(struct uvm_rust_flash_block *block, __u32 at, struct uvm_rust_flash_block *upper);

/* Whether a GPU's faults on @pages have to be put off; then what they wait for is asked for. */
_Bool uvm_rust_flash_block_parks(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages);
/* Has @pages, which are on flash, fetched by somebody else (uvm_seam_flash_fetch()). */
void uvm_rust_flash_block_ask(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages);
/* What was asked for; and it was tried to fetch it, which may have @failed. */
void uvm_rust_flash_block_asked(struct uvm_rust_flash_block *block, struct uvm_rust_mask *out);
void uvm_rust_flash_block_tried(struct uvm_rust_flash_block *block, _Bool failed);

/* How a read begins. */
#define UVM_RUST_FLASH_BEGUN	0
#define UVM_RUST_FLASH_NOTHING	1	/* no such page */
#define UVM_RUST_FLASH_BUSY	2	/* ask again when what is under way has ended */
#define UVM_RUST_FLASH_NO_MEMORY	3
#define UVM_RUST_FLASH_IS_LOST	4

/* BEGUN fills @op, @pages and @pieces, where they are until the read ends. */
__u32 uvm_rust_flash_begin_read(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *wanted,
				struct uvm_rust_flash_read **op, struct uvm_rust_mask *pages, struct uvm_rust_flash_pieces *pieces);
/* @keep: their copies on flash stay. Fills @arrived. */
void uvm_rust_flash_end_read(struct uvm_rust_flash_block *block, struct uvm_rust_flash_read *op, const struct uvm_rust_mask *good,
			     const struct uvm_rust_mask *failed, _Bool keep, struct uvm_rust_mask *arrived);

/* --- spilling: policy/flash/spill.rs -------------------------------------------------- */

/*
 * What a worker of @dev does when it is woken, one of @workers: spills what is to be spilled by way of
 * @io, and gathers free space. Sleeps.
 */
void uvm_rust_flash_work(struct uvm_rust_tier *tier, struct uvm_seam_flash_dev *dev, struct uvm_rust_flash_table *table,
			 struct uvm_seam_flash_io *io, __u32 workers);
/*
 * Writes what of @pages the block has in host memory, by call. Caller holds the VA space's lock in read mode,
 * and keeps the device attached.
 */
void uvm_rust_flash_move_out(struct uvm_rust_tier *tier, struct uvm_seam_flash_dev *dev, struct uvm_rust_flash_table *table,
			     struct uvm_seam_flash_io *io, __u32 workers, struct uvm_seam_va_block *block,
			     const struct uvm_rust_mask *pages);
/* Gives up copies on @dev, a slot's if there are so many; whether there were any. No va_block is locked. */
_Bool uvm_rust_flash_give_up_copies(struct uvm_rust_tier *tier, struct uvm_seam_flash_dev *dev);

/*
 * Brings all that is on @dev to host memory, which the tier has not any more. If something stays, the device is to
 * be kept, and this called again. Sleeps, with no lock but that of attaching.
 */
#define UVM_RUST_FLASH_DRAINED		0
#define UVM_RUST_FLASH_INTERRUPTED	1
#define UVM_RUST_FLASH_STAYS		2
__u32 uvm_rust_flash_drain(struct uvm_rust_tier *tier, struct uvm_seam_flash_dev *dev, struct uvm_rust_flash_table *table);

struct uvm_rust_flash_move {
	__u32 from_slot, to_slot;
	__u16 from_offset, to_offset;
	__u16 pages;
	__u16 reserved;
};

/* --- who uses it: policy/flash/tier.rs --------------------------------------------- */

/*
 * All of these take the tier's lock. What gives a va_block gives a reference on it, too, or NULL.
 */
struct uvm_rust_tier *uvm_rust_tier_create(void);
/* All owners are gone, and no device is attached. */
void uvm_rust_tier_destroy(struct uvm_rust_tier *tier);

/* A device is there, for so many workers; with more than @limit pages there is too little host memory. */
void uvm_rust_tier_attach(struct uvm_rust_tier *tier, struct uvm_seam_flash_dev *dev, __u64 limit, __u32 workers);
/* It is not from now on: no worker is woken any more. The caller keeps it until here. */
void uvm_rust_tier_detach(struct uvm_rust_tier *tier);
/* The attached device with a reference, or NULL; and whether @dev is that one. */
struct uvm_seam_flash_dev *uvm_rust_tier_device(struct uvm_rust_tier *tier);
_Bool uvm_rust_tier_is_attached(struct uvm_rust_tier *tier, struct uvm_seam_flash_dev *dev);
/* Pages of host memory, and the most since the device was attached. */
void uvm_rust_tier_host(struct uvm_rust_tier *tier, __u64 *pages, __u64 *peak);

/* Wakes the workers if there is something for them (uvm_seam_flash_wake()). */
void uvm_rust_tier_kick(struct uvm_rust_tier *tier);
/* A tenant, whose C part @of outlives it. Returns NULL if there is no memory. */
struct uvm_rust_owner *uvm_rust_owner_create(struct uvm_rust_tier *tier, struct uvm_rust_flash_owner *of);
void uvm_rust_owner_destroy(struct uvm_rust_owner *owner);
/* Pages that the tenant holds on the device. */
__u64 uvm_rust_owner_held(struct uvm_rust_owner *owner, struct uvm_rust_flash_table *table);
/*
 * Whether too much host memory is in use, the tenant has its share of it, and waiting may help. Who has
 * less than its share does not wait for others.
 */
_Bool uvm_rust_owner_must_wait(struct uvm_rust_owner *owner);
/* Whether it may write by call again, at @now; and it has written, at @mib MiB a second. In nanoseconds. */
_Bool uvm_rust_owner_may_write(struct uvm_rust_owner *owner, __u64 now);
void uvm_rust_owner_wrote(struct uvm_rust_owner *owner, __u64 now, __u64 bytes, __u32 mib);

/* Blocks that are read for GPU faults at the same time, and those of them that are one tenant's. */
#define UVM_RUST_FLASH_FETCHERS		16
#define UVM_RUST_FLASH_FETCHERS_EACH	(UVM_RUST_FLASH_FETCHERS / 2)

/* The tenant's block that asked first. And a fetcher has done what it found: whether there is more. */
struct uvm_seam_va_block *uvm_rust_owner_asking(struct uvm_rust_owner *owner);
_Bool uvm_rust_owner_fetched(struct uvm_rust_owner *owner, __u32 fetcher);

/* The block has so many pages of host memory; @used: some have just come there. Wakes workers. */
void uvm_rust_flash_block_counted(struct uvm_rust_flash_block *block, __u32 pages, _Bool used);
/* Some of its pages may be on flash as well now. */
void uvm_rust_flash_block_note_copies(struct uvm_rust_flash_block *block);
/* --- called by Rust ------------------------------------------------------------ */

struct uvm_rust_flash_attach;

/* Whether there is an SSD tier (module parameter uvm_rust_flash). */
_Bool uvm_seam_flash_enabled(void);

/* Under the tier's lock: wakes the first @count workers, or one of them in @ms milliseconds, of the attached device. */
void uvm_seam_flash_wake(__u32 count);
void uvm_seam_flash_look_again(__u64 ms);
/* Wakes a fetcher of the tenant's. */
void uvm_seam_flash_fetch(struct uvm_rust_flash_owner *owner, __u32 fetcher);
/* Under the tier's lock: a reference on a va_block, unless its last one is going. */
_Bool uvm_seam_va_block_hold(struct uvm_seam_va_block *block);
/* References on a device. The last one may sleep. */
void uvm_seam_flash_dev_get(struct uvm_seam_flash_dev *dev);
void uvm_seam_flash_dev_put(struct uvm_seam_flash_dev *dev);
/*
 * Memory for what is known of a va_block, or NULL. It is charged to the tenant as long as its memory
 * cgroup has room, which is not waited for: a block that is not known is neither counted nor spilled,
 * and who could bring that about would be beyond all limits.
 */
struct uvm_rust_flash_block *uvm_seam_flash_block_alloc(struct uvm_rust_flash_owner *owner, __u64 bytes);
void uvm_seam_flash_block_free(struct uvm_rust_flash_block *block);

/*
 * A spill: `Machine` of policy/flash/spill.rs has what each is for. The caller has a reference on @block.
 * From _try_space() on its lock is held, and from _may_spill() on it is alive.
 */
void uvm_seam_va_block_put(struct uvm_seam_va_block *block);
void uvm_seam_va_block_lock(struct uvm_seam_va_block *block);
void uvm_seam_va_block_unlock(struct uvm_seam_va_block *block);
/* What is known of it, with its lock held; NULL if it is dead. */
struct uvm_rust_flash_block *uvm_seam_va_block_flash(struct uvm_seam_va_block *block);
/* Its VA space, whose lock is held in read mode then; NULL if that cannot be had at once. */
struct uvm_seam_space *uvm_seam_va_block_try_space(struct uvm_seam_va_block *block);
void uvm_seam_flash_leave_space(struct uvm_seam_space *space);
/* NULL without memory. */
struct uvm_seam_context *uvm_seam_context_new(void);
void uvm_seam_context_free(struct uvm_seam_context *context);

struct uvm_seam_flash_facts {
	struct uvm_rust_mask only_host, mapped;
	_Bool has_unused;
};
/* The first with the VA space's lock held, too. */
_Bool uvm_seam_flash_may_spill(struct uvm_seam_va_block *block);
void uvm_seam_flash_look(struct uvm_seam_va_block *block, struct uvm_seam_flash_facts *facts);
/* Gives it a state on the device (uvm_rust_flash_block_use()). */
_Bool uvm_seam_flash_use(struct uvm_seam_va_block *block, struct uvm_seam_flash_dev *dev);
/* Takes those out of @pages that somebody holds without a mapping. */
void uvm_seam_flash_leave_held(struct uvm_seam_va_block *block, struct uvm_rust_mask *pages);
/* Returns an NV_STATUS; with *@again the lock was let go. The VA space's lock is held, too. */
__u32 uvm_seam_flash_unmap(struct uvm_seam_va_block *block, struct uvm_seam_context *context,
			   const struct uvm_rust_mask *pages, _Bool *again);
_Bool uvm_seam_flash_wait_gpus(struct uvm_seam_va_block *block);
/* Fills @out with those of @pages that were discarded, which are dropped then. */
void uvm_seam_flash_stale(struct uvm_seam_va_block *block, const struct uvm_rust_mask *pages, struct uvm_rust_mask *out);
void uvm_seam_flash_dropped(struct uvm_seam_va_block *block, const struct uvm_rust_mask *pages);
/* Whether host memory was freed. */
_Bool uvm_seam_flash_left_host(struct uvm_seam_va_block *block, const struct uvm_rust_mask *pages);
/* Keeps the host memory of @pages in @io; false if some page has none. */
_Bool uvm_seam_flash_hold(struct uvm_seam_va_block *block, const struct uvm_rust_mask *pages, struct uvm_seam_flash_io *io);

/* The device. No lock is held. What was held in @io, at its pieces, is written, and let go; @good: what was taken. */
struct uvm_rust_flash_pieces *uvm_seam_flash_pieces(struct uvm_seam_flash_io *io);
void uvm_seam_flash_write(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io, struct uvm_rust_mask *good);
_Bool uvm_seam_flash_copy(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io, const struct uvm_rust_flash_move *move);
/* Whether it is there, and has failed nothing. Any lock. */
_Bool uvm_seam_flash_is_sound(struct uvm_seam_flash_dev *dev);
/* Wakes those who wait for room and, if one has @ended, for reads and writes. */
void uvm_seam_flash_tell(struct uvm_seam_flash_dev *dev, _Bool ended);

/*
 * Detaching. Brings those of @pages that are on flash to host memory: an NV_STATUS; with *@again the lock was let
 * go, and there may be more. The VA space's lock is held, too.
 */
__u32 uvm_seam_flash_fetch_back(struct uvm_seam_va_block *block, struct uvm_seam_context *context,
				const struct uvm_rust_mask *pages, _Bool *again);
/* Changes whenever a read or a write ends; waits until it is not @progress, or a second. */
__u32 uvm_seam_flash_progress(struct uvm_seam_flash_dev *dev);
void uvm_seam_flash_wait(struct uvm_seam_flash_dev *dev, __u32 progress);

/* The worker. The lock of power management in read mode, if that can be had at once. */
_Bool uvm_seam_flash_enter(void);
void uvm_seam_flash_leave(void);
/* Microseconds from some time on; sleeps so many; percent of the time that a worker writes in. */
__u64 uvm_seam_flash_now_us(void);
void uvm_seam_flash_sleep(__u64 us);
__u32 uvm_seam_flash_share(void);

/*
 * What the ioctls of these names do, once their structures are found valid; they
 * return 0 or -errno. Attaching and detaching ask for CAP_SYS_ADMIN.
 */
int uvm_seam_flash_attach(const struct uvm_rust_flash_attach *attach);
int uvm_seam_flash_detach(void);
int uvm_seam_flash_move(struct uvm_seam_space *space, __u64 base, __u64 length, _Bool to_host);
/* @space: NULL for none. Fills all but size and flags. */
void uvm_seam_flash_stats(struct uvm_seam_space *space, struct uvm_rust_flash_stats *stats);

/* With the tenant, which says whom it charges. Returns NULL without memory. */
struct uvm_rust_flash_owner *uvm_seam_flash_owner_new(struct mem_cgroup *memcg);
/* Nobody has a block of its any more. */
void uvm_seam_flash_owner_free(struct uvm_rust_flash_owner *owner);

#endif
