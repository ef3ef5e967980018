/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The SSD tier's part of the boundary between C and Rust; see uvm_rust_ffi.h for
 * what holds of all of it. The functions are those of policy/flash.rs, which says
 * what they mean and in which order they come.
 *
 * A table has a mutex of its own, taken inside each call that has @table and inside
 * all other locks; such a call may sleep. A block's state is protected by the lock
 * of its va_block, which the caller of all that have @block holds.
 */
#ifndef UVM_RUST_FLASH_FFI_H
#define UVM_RUST_FLASH_FFI_H

#include "uvm_rust_types.h"

struct uvm_rust_flash_table;	/* the slots of a device */
struct uvm_rust_flash_state;	/* which pages of a va_block are there */
/* What is under way. */
struct uvm_rust_flash_spill;
struct uvm_rust_flash_read;
struct uvm_rust_flash_moving;

/* The slots of a device. Returns NULL if there is no memory. */
struct uvm_rust_flash_table *uvm_rust_flash_create(__u32 slots, _Bool checksums, __u64 quota_pages);
/* All blocks, reads, writes and moves of it have ended. */
void uvm_rust_flash_destroy(struct uvm_rust_flash_table *table);

struct uvm_rust_flash_usage {
	__u64 pages;
	__u32 slots;
	__u32 free_slots;
	__u32 extents;
	/* Reads, writes or moves are under way, maybe of pages that nobody needs any more. */
	__u32 busy;
};
void uvm_rust_flash_usage(struct uvm_rust_flash_table *table, struct uvm_rust_flash_usage *usage);

/* Pages that the tenant @key holds. */
__u64 uvm_rust_flash_held(struct uvm_rust_flash_table *table, __u64 key);

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

/*
 * A va_block of @pages pages. Returns NULL if there is no memory. @account: it is charged to the
 * memory cgroup of the thread, or to the one that is active.
 */
struct uvm_rust_flash_state *uvm_rust_flash_block_create(__u32 pages, _Bool account);
void uvm_rust_flash_block_destroy(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block);

/* Sets of pages of a block. */
#define UVM_RUST_FLASH_ON_FLASH		0
#define UVM_RUST_FLASH_IN_FLIGHT	1
#define UVM_RUST_FLASH_LOST		2
#define UVM_RUST_FLASH_SPILLING		3
#define UVM_RUST_FLASH_COPIES		4

/* Fills @out; returns whether it names a page. */
_Bool uvm_rust_flash_pages(struct uvm_rust_flash_state *block, __u32 set, struct uvm_rust_mask *out);

/* Whether nothing is known of it, so that it may be destroyed and made anew. */
_Bool uvm_rust_flash_idle(struct uvm_rust_flash_state *block);

void uvm_rust_flash_touched(struct uvm_rust_flash_state *block, const struct uvm_rust_mask *pages);
void uvm_rust_flash_forget(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, const struct uvm_rust_mask *pages);

void uvm_rust_flash_may_write(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, const struct uvm_rust_mask *pages);
/* Fills @moved; returns whether it names a page. */
_Bool uvm_rust_flash_drop_clean(struct uvm_rust_flash_state *block, const struct uvm_rust_mask *pages, struct uvm_rust_mask *moved);

/*
 * Before a split, while the VA space's lock is held in write mode, and after it: moves
 * the state of the pages from @at on to @upper, which was just created. Without memory
 * the first returns false, and nothing has changed.
 */
_Bool uvm_rust_flash_block_cut(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, __u32 at);
void uvm_rust_flash_block_split(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, __u32 at, struct uvm_rust_flash_state *upper);

/* How a spill or a read begins. */
#define UVM_RUST_FLASH_BEGUN	0
#define UVM_RUST_FLASH_NOTHING	1	/* no such page */
#define UVM_RUST_FLASH_BUSY	2	/* ask again when what is under way has ended */
#define UVM_RUST_FLASH_FULL	3	/* the device is, or has too many extents */
#define UVM_RUST_FLASH_QUOTA	4
#define UVM_RUST_FLASH_NO_MEMORY	5
#define UVM_RUST_FLASH_IS_LOST	6

/* @tenant: a key. BEGUN fills @op, @pages and @pieces, where the pages go until the spill ends. */
__u32 uvm_rust_flash_begin_spill(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, __u64 tenant, const struct uvm_rust_mask *wanted,
				 struct uvm_rust_flash_spill **op, struct uvm_rust_mask *pages, struct uvm_rust_flash_pieces *pieces);
/* @block: NULL if it died. Fills @moved. */
void uvm_rust_flash_end_spill(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, struct uvm_rust_flash_spill *op, const struct uvm_rust_mask *written,
			      struct uvm_rust_mask *moved);

__u32 uvm_rust_flash_begin_read(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, const struct uvm_rust_mask *wanted,
				struct uvm_rust_flash_read **op, struct uvm_rust_mask *pages, struct uvm_rust_flash_pieces *pieces);
/* @keep: their copies on flash stay. Fills @arrived. */
void uvm_rust_flash_end_read(struct uvm_rust_flash_table *table, struct uvm_rust_flash_state *block, struct uvm_rust_flash_read *op, const struct uvm_rust_mask *good,
			     const struct uvm_rust_mask *failed, _Bool keep, struct uvm_rust_mask *arrived);

struct uvm_rust_flash_move {
	__u32 from_slot, to_slot;
	__u16 from_offset, to_offset;
	__u16 pages;
	__u16 reserved;
};

/* The next copy that gathers dead space, if @reserve slots or fewer are free; NULL if there is none. */
struct uvm_rust_flash_moving *uvm_rust_flash_begin_move(struct uvm_rust_flash_table *table, __u32 reserve, struct uvm_rust_flash_move *move);
/* Returns how many pages are at the new place. */
__u32 uvm_rust_flash_end_move(struct uvm_rust_flash_table *table, struct uvm_rust_flash_moving *op, _Bool copied);

/* --- too little host memory: policy/flash/pressure.rs ---------------------------- */

/*
 * What the workers of a device have met. All calls but these two hold the tier's lock, a spinlock. @limit:
 * pages of host memory above which there is too little. Returns NULL if there is no memory.
 */
struct uvm_rust_pressure;
struct uvm_rust_pressure *uvm_rust_pressure_create(__u64 limit);
void uvm_rust_pressure_destroy(struct uvm_rust_pressure *pressure);

/*
 * With @host pages of host memory in use, at @now (uvm_seam_now()): whether a worker tries another
 * va_block, and how many of @workers to wake.
 */
_Bool uvm_rust_pressure_goes_on(struct uvm_rust_pressure *pressure, __u64 host, __u64 now);
__u32 uvm_rust_pressure_wakes(struct uvm_rust_pressure *pressure, __u64 host, __u32 workers, __u64 now);

/*
 * Of a tenant that has @mine of those pages, as one of @tenants that have any: whether it waits
 * before it makes more, and whether its pages may be spilled.
 */
_Bool uvm_rust_pressure_must_wait(struct uvm_rust_pressure *pressure, __u64 host, __u64 mine, __u64 tenants);
_Bool uvm_rust_pressure_may_spill(struct uvm_rust_pressure *pressure, __u64 mine, __u64 tenants);

/* How a try ended. */
#define UVM_RUST_TRIED_MOVED		0
#define UVM_RUST_TRIED_NOTHING		1
#define UVM_RUST_TRIED_FAILED		2
#define UVM_RUST_TRIED_SUSPENDED	3

/*
 * A worker's try ended so. @candidates: the va_blocks that may have something to spill. Returns
 * whether the worker ends, and those are woken who wait for room. Then *@again is set to when one has to look
 * again, in milliseconds; 0: somebody does.
 */
_Bool uvm_rust_pressure_ended(struct uvm_rust_pressure *pressure, __u32 tried, __u32 candidates, __u32 workers,
			      __u64 now, __u64 *again);

/* policy/flash/pace.rs. How long to rest after a write that @took so long, both in microseconds. */
__u64 uvm_rust_pace_rest(__u64 took, __u32 percent);
/* Whether who has paid until @paid may write again, and until when it has paid with @bytes more; in nanoseconds. */
_Bool uvm_rust_pace_may_write(__u64 paid, __u64 now);
__u64 uvm_rust_pace_paid(__u64 paid, __u64 now, __u64 bytes, __u32 mib);

/* --- called by Rust ------------------------------------------------------------ */

struct uvm_seam_space;
struct uvm_rust_flash_attach;
struct uvm_rust_flash_stats;

/* Whether there is an SSD tier (module parameter uvm_rust_flash). */
_Bool uvm_seam_flash_enabled(void);

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
