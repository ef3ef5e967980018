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
struct uvm_va_block_struct;	/* upstream's uvm_va_block_t */
struct uvm_seam_flash_dev;	/* an open device, which is counted */
struct uvm_seam_flash_io;	/* a buffer for a read, a write or a copy */
struct uvm_seam_context;	/* upstream's uvm_va_block_context_t */
struct uvm_seam_space;
struct mm_struct;
struct rw_semaphore;
struct uvm_rust_flash_owner;	/* C's part of a tenant */

/* All blocks, reads, writes and moves of it have ended. */
void uvm_rust_flash_destroy(struct uvm_rust_flash_table *table);

/* Neighbouring pages of a va_block that are neighbours on the device. */
struct uvm_rust_flash_piece {
	__u64 stamp;
	__u32 slot;
	__u16 offset;
	__u16 first;
	__u16 pages;
	__u16 reserved[3];
};

/* Checksums of the pages of @piece. False if they are not kept. */
_Bool uvm_rust_flash_sums(struct uvm_rust_flash_table *table, const struct uvm_rust_flash_piece *piece, __u32 *sums);
void uvm_rust_flash_set_sums(struct uvm_rust_flash_table *table, const struct uvm_rust_flash_piece *piece, const __u32 *sums);

/* --- a va_block: policy/flash/{block,wants}.rs ------------------------------------ */

/*
 * The host memory of a va_block may have changed; @used: pages arrived there. Something is known of it
 * from its first page on. Ordinary memory is left alone.
 */
void uvm_rust_flash_note(struct uvm_va_block_struct *block, _Bool used);
/* It is being destroyed. */
void uvm_rust_flash_block_gone(struct uvm_va_block_struct *block);

/*
 * The pages' state is of one device, and made by the first spill there, of a va_block of @pages pages.
 * False without memory, or while it is of a device that is gone. It is charged to the memory cgroup
 * that is active, if that has room.
 */
_Bool uvm_rust_flash_block_use(struct uvm_rust_flash_block *block, struct uvm_seam_flash_dev *dev, __u32 pages);
/* These take NULL for a block of which nothing is known. */
_Bool uvm_rust_flash_block_is_used(struct uvm_rust_flash_block *block);
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
 * Before and after a split at page @at (policy/flash/split.rs), while the VA space's lock is held in write
 * mode, and no va_block's. The first returns an NV_STATUS, and fills @upper, NULL for nothing, which the other
 * takes; @upper_block: NULL if upstream has not split it. Upstream destroys a range whose split fails, with all
 * that it holds, so that no memory cgroup is charged for @upper, whose limit would make it fail.
 */
__u32 uvm_rust_flash_before_split(struct uvm_va_block_struct *block, __u32 at, struct uvm_rust_flash_block **upper);
void uvm_rust_flash_after_split(struct uvm_va_block_struct *block, struct uvm_va_block_struct *upper_block, __u32 at,
				struct uvm_rust_flash_block *upper);

/* Whether a GPU's faults on @pages have to be put off; then what they wait for is asked for. */
_Bool uvm_rust_flash_block_parks(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages);
/* Has @pages, which are on flash, fetched by somebody else (uvm_seam_flash_fetch()). */
void uvm_rust_flash_block_ask(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages);
/* What was asked for; and it was tried to fetch it, which may have @failed. */
void uvm_rust_flash_block_asked(struct uvm_rust_flash_block *block, struct uvm_rust_mask *out);
void uvm_rust_flash_block_tried(struct uvm_rust_flash_block *block, _Bool failed);

/*
 * Brings those of @wanted that are on flash into host memory (policy/flash/fetch.rs). Caller holds the VA space's
 * lock and the block's, which is dropped for the I/O. NV_OK: none is on flash; NV_ERR_MORE_PROCESSING_REQUIRED: the
 * lock was dropped, call again; NV_ERR_INVALID_OPERATION: one is lost. @fault: for a fault, which comes first.
 */
__u32 uvm_rust_flash_fetch(struct uvm_va_block_struct *block, struct uvm_seam_context *context,
			   const struct uvm_rust_mask *wanted, _Bool fault);

/* --- spilling: policy/flash/spill.rs -------------------------------------------------- */

/*
 * What a worker of @dev does when it is woken: spills what is to be spilled by way of @io, and gathers free
 * space. Sleeps.
 */
void uvm_rust_flash_work(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io);
/* Lets all devices go, before the module does: no VA space exists, and no call is under way. */
void uvm_rust_flash_let_go(void);

/* --- who uses it: policy/flash/tier.rs --------------------------------------------- */

/*
 * All of these take the tier's lock. What gives a va_block gives a reference on it, too, or NULL.
 */
struct uvm_rust_tier *uvm_rust_tier_create(void);
/* It; NULL unless there is one. Fixed from the module's init to its exit. */
extern struct uvm_rust_tier *uvm_rust_tier;
/* All owners are gone, and no device is attached. */
void uvm_rust_tier_destroy(struct uvm_rust_tier *tier);

/* The attached device with a reference, or NULL. */
struct uvm_seam_flash_dev *uvm_rust_tier_device(struct uvm_rust_tier *tier);
/* So many GPU faults were put off. */
void uvm_rust_tier_parked(struct uvm_rust_tier *tier, __u32 faults);

/* Wakes the workers if there is something for them (uvm_seam_flash_wake()). */
void uvm_rust_tier_kick(struct uvm_rust_tier *tier);
/* A tenant, whose C part @of outlives it. Returns NULL if there is no memory. */
struct uvm_rust_owner *uvm_rust_owner_create(struct uvm_rust_tier *tier, struct uvm_rust_flash_owner *of);
void uvm_rust_owner_destroy(struct uvm_rust_owner *owner);
/*
 * Whether too much host memory is in use, the tenant has its share of it, and waiting may help. Who has
 * less than its share does not wait for others.
 */
_Bool uvm_rust_owner_must_wait(struct uvm_rust_owner *owner);

/* Blocks that are read for GPU faults at the same time, and those of them that are one tenant's. */
#define UVM_RUST_FLASH_FETCHERS		16
#define UVM_RUST_FLASH_FETCHERS_EACH	(UVM_RUST_FLASH_FETCHERS / 2)

/* The tenant's block that asked first. And a fetcher has done what it found: whether there is more. */
struct uvm_va_block_struct *uvm_rust_owner_asking(struct uvm_rust_owner *owner);
_Bool uvm_rust_owner_fetched(struct uvm_rust_owner *owner, __u32 fetcher);

/* --- called by Rust ------------------------------------------------------------ */

struct uvm_rust_flash_attach;

/* Whether there is an SSD tier (module parameter uvm_rust_flash). */
_Bool uvm_seam_flash_enabled(void);

/* Under the tier's lock: wakes the first @count workers, or one of them in @ms milliseconds, of the attached device. */
void uvm_seam_flash_wake(__u32 count);
void uvm_seam_flash_look_again(__u64 ms);
/* Wakes a fetcher of the tenant's. */
void uvm_seam_flash_fetch(struct uvm_rust_flash_owner *owner, __u32 fetcher);
/* Where a va_block keeps what is known of it, which its lock protects; NULL for ordinary memory. */
struct uvm_rust_flash_block **uvm_seam_flash_slot(struct uvm_va_block_struct *block);
/* How many pages of host memory it has; its lock is held. And its tenant. */
__u32 uvm_seam_flash_host_pages(struct uvm_va_block_struct *block);
struct uvm_rust_owner *uvm_seam_flash_owner(struct uvm_va_block_struct *block);
/* Under the tier's lock: a reference on a va_block, unless its last one is going. */
_Bool uvm_seam_va_block_hold(struct uvm_va_block_struct *block);
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
void uvm_seam_va_block_put(struct uvm_va_block_struct *block);
void uvm_seam_va_block_lock(struct uvm_va_block_struct *block);
void uvm_seam_va_block_unlock(struct uvm_va_block_struct *block);
/* What is known of it, with its lock held; NULL if it is dead. */
struct uvm_rust_flash_block *uvm_seam_va_block_flash(struct uvm_va_block_struct *block);
/* Its VA space, whose lock is held in read mode then; NULL if that cannot be had at once. */
struct uvm_seam_space *uvm_seam_va_block_try_space(struct uvm_va_block_struct *block);
void uvm_seam_flash_leave_space(struct uvm_seam_space *space);
/* NULL without memory, which is charged as upstream does for @mm; NULL for nobody's. */
struct uvm_seam_context *uvm_seam_context_new(struct mm_struct *mm);
void uvm_seam_context_free(struct uvm_seam_context *context);

struct uvm_seam_flash_facts {
	struct uvm_rust_mask only_host, mapped;
	_Bool has_unused;
};
/* The first with the VA space's lock held, too. */
_Bool uvm_seam_flash_may_spill(struct uvm_va_block_struct *block);
void uvm_seam_flash_look(struct uvm_va_block_struct *block, struct uvm_seam_flash_facts *facts);
/* Gives it a state on the device (uvm_rust_flash_block_use()). */
_Bool uvm_seam_flash_use(struct uvm_va_block_struct *block, struct uvm_seam_flash_dev *dev);
/* Takes those out of @pages that somebody holds without a mapping. */
void uvm_seam_flash_leave_held(struct uvm_va_block_struct *block, struct uvm_rust_mask *pages);
/* Returns an NV_STATUS; with *@again the lock was let go. The VA space's lock is held, too. */
__u32 uvm_seam_flash_unmap(struct uvm_va_block_struct *block, struct uvm_seam_context *context,
			   const struct uvm_rust_mask *pages, _Bool *again);
_Bool uvm_seam_flash_wait_gpus(struct uvm_va_block_struct *block);
/* Fills @out with those of @pages that were discarded, which are dropped then. */
void uvm_seam_flash_stale(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages, struct uvm_rust_mask *out);
void uvm_seam_flash_dropped(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages);
/* Whether host memory was freed. */
_Bool uvm_seam_flash_left_host(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages);
/* Keeps the host memory of @pages in @io; false if some page has none. */
_Bool uvm_seam_flash_hold(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages, struct uvm_seam_flash_io *io);

/* The device. No lock is held. A piece that is held in @io is written: 0, -errno, or that it was not tried. */
#define UVM_RUST_FLASH_NOT_WRITTEN	1
int uvm_seam_flash_write(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			 const struct uvm_rust_flash_piece *piece);
/* Reads pages into buffers of @io's own, or writes them from there: 0 or -errno. */
int uvm_seam_flash_copy(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io, __u32 slot, __u16 offset,
			__u16 pages, _Bool write);
/* A piece is read into what is held in @io; @fault: for a fault, which comes first. 0 or -errno. */
int uvm_seam_flash_read(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			const struct uvm_rust_flash_piece *piece, _Bool fault);
/* What was read is decrypted there. Adds to @right what is what was written, to @wrong what is something else. */
void uvm_seam_flash_decrypt(struct uvm_seam_flash_dev *dev, struct uvm_seam_flash_io *io,
			    const struct uvm_rust_flash_piece *piece, struct uvm_rust_mask *right,
			    struct uvm_rust_mask *wrong);
/* Lets go what is held in @io. */
void uvm_seam_flash_release(struct uvm_seam_flash_io *io);
/* Whether it is there. Any lock. */
_Bool uvm_seam_flash_is_there(struct uvm_seam_flash_dev *dev);
/* Wakes those who wait for room and, if one has @ended, for reads and writes. */
void uvm_seam_flash_tell(struct uvm_seam_flash_dev *dev, _Bool ended);

/*
 * Fetching, with the block's lock. Makes host memory for @pages, at least one, and may change them: an NV_STATUS,
 * upstream's.
 */
__u32 uvm_seam_flash_populate(struct uvm_va_block_struct *block, struct uvm_seam_context *context,
			      struct uvm_rust_mask *pages);
/* Takes those out of @pages that have other host memory now than what is held in @io. */
void uvm_seam_flash_unchanged(struct uvm_va_block_struct *block, struct uvm_seam_flash_io *io, struct uvm_rust_mask *pages);
/* @pages, at least one, hold in host memory what was written. */
void uvm_seam_flash_arrived(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages);
/* Elsewhere who reads a page gets to write to it, too. */
_Bool uvm_seam_flash_is_read_mostly(struct uvm_va_block_struct *block);
extern _Bool uvm_rust_flash_copies;
/* Says that so many of its pages cannot be read. */
void uvm_seam_flash_lost(struct uvm_va_block_struct *block, __u32 pages);
/* Changes whenever a read or a write ends; waits until it is not @progress, or a second. */
__u32 uvm_seam_flash_progress(struct uvm_seam_flash_dev *dev);
void uvm_seam_flash_wait(struct uvm_seam_flash_dev *dev, __u32 progress);

/* The worker. The lock of power management in read mode, if that can be had at once. */
_Bool uvm_seam_flash_enter(void);
void uvm_seam_flash_leave(void);
/* Microseconds from some time on; sleeps so many. */
__u64 uvm_seam_flash_now_us(void);
void uvm_seam_flash_sleep(__u64 us);

/* Module parameters, of which root may change the last two at any time. */
extern unsigned int uvm_rust_flash_depth;
extern unsigned int uvm_rust_flash_share;
extern unsigned int uvm_rust_flash_move_mib;

/*
 * Attaching and detaching write this lock, moving and statistics read it. It is outside all others but a tenant's
 * turn.
 */
extern struct rw_semaphore uvm_rust_flash_attach_lock;
/* The kernel's. */
void down_read(struct rw_semaphore *sem);
void up_read(struct rw_semaphore *sem);
void down_write(struct rw_semaphore *sem);
void up_write(struct rw_semaphore *sem);
_Bool capable(int cap);

/*
 * Opens what @path names in user space, a block device or a file, and makes a key. Returns 0 and fills @dev, with
 * one reference, or -errno.
 */
int uvm_seam_flash_open(__u64 path, struct uvm_seam_flash_dev **dev);
/* How long it is; so many slots in front of the first one are not for pages. */
#define UVM_RUST_FLASH_RESERVED_SLOTS	1
__u64 uvm_seam_flash_bytes(struct uvm_seam_flash_dev *dev);
/* Marks it as ours, which it must be already, or empty, unless by @force. Returns 0 or -errno. */
int uvm_seam_flash_probe(struct uvm_seam_flash_dev *dev, _Bool force);
/* Where it keeps its table, which its last reference destroys. */
struct uvm_rust_flash_table **uvm_seam_flash_table(struct uvm_seam_flash_dev *dev);
/* Lets the device go, of which nothing is needed any more. */
void uvm_seam_flash_close(struct uvm_seam_flash_dev *dev);
/*
 * Makes @count workers that spill to @dev: 0 or -errno. Nobody wakes them before the tier has the device, or when
 * they are to stop. Caller has the lock above in write mode.
 */
int uvm_seam_flash_start_workers(struct uvm_seam_flash_dev *dev, __u32 count);
void uvm_seam_flash_stop_workers(void);
/* A buffer, with @bounce also for what a write or a copy needs, which are 2 MiB; NULL without memory. */
struct uvm_seam_flash_io *uvm_rust_flash_io_alloc(_Bool bounce, _Bool account);
void uvm_rust_flash_io_free(struct uvm_seam_flash_io *io);

/* Moving a range. Takes the VA space's lock in read mode, and that of the process' memory, which may be nobody's. */
struct mm_struct *uvm_seam_flash_enter_space(struct uvm_seam_space *space);
void uvm_seam_flash_exit_space(struct uvm_seam_space *space, struct mm_struct *mm);
/* With them: whether all of a range is managed memory. */
_Bool uvm_seam_flash_is_managed(struct uvm_seam_space *space, struct mm_struct *mm, __u64 base, __u64 length);
/* The first va_block with pages from @start to @end, which are filled in; then @start is behind it. NULL for none. */
struct uvm_va_block_struct *uvm_seam_flash_next_block(struct uvm_seam_space *space, __u64 *start, __u64 end,
						      struct uvm_rust_mask *pages);
/* Whether somebody waits to suspend, who waits for this call, too. */
_Bool uvm_seam_flash_suspends(void);
/* Sleeps; whether a signal has come. */
_Bool uvm_seam_flash_nap(__u32 ms);
/* A tenant's turn, which one thread has at a time; false: a signal has come. */
_Bool uvm_seam_flash_take_turn(struct uvm_rust_flash_owner *owner);
void uvm_seam_flash_end_turn(struct uvm_rust_flash_owner *owner);
struct uvm_rust_owner *uvm_seam_flash_owner_of(struct uvm_seam_space *space);

/* With the tenant, which says whom it charges. Returns NULL without memory. */
struct uvm_rust_flash_owner *uvm_seam_flash_owner_new(struct mem_cgroup *memcg);
/* Nobody has a block of its any more. */
void uvm_seam_flash_owner_free(struct uvm_rust_flash_owner *owner);

#endif
