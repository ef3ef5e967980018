/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
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

struct uvm_rust_flash_block;	/* what is known of a va_block: uvm_va_block_t.uvm_rust_flash */
struct uvm_seam_flash_dev;	/* an open device */
struct page;
struct skcipher_request;
struct rw_semaphore;

/* --- a va_block: policy/flash/{block,wants}.rs ------------------------------------ */

/*
 * The host memory of a va_block may have changed; @used: pages arrived there. Something is known of it
 * from its first page on. Ordinary memory is left alone.
 */
void uvm_rust_flash_note(struct uvm_va_block_struct *block, _Bool used);
/* It is being destroyed. */
void uvm_rust_flash_block_gone(struct uvm_va_block_struct *block);

/*
 * These take NULL for a block of which nothing is known. Whether page @page is lost, which a GPU asks for or a CPU; whether
 * who may write to it gets it only for reading until he writes. @some_cannot_fault: a GPU of the VA space cannot.
 */
_Bool uvm_rust_flash_is_lost(struct uvm_rust_flash_block *block, __u32 page, _Bool by_gpu);
_Bool uvm_rust_flash_may_only_read(struct uvm_rust_flash_block *block, __u32 page, _Bool some_cannot_fault);
/* Adds to @pages those that flash alone has. */
void uvm_rust_flash_add_stored(struct uvm_rust_flash_block *block, struct uvm_rust_mask *pages);
/* Takes those out of @pages that flash has copies of. */
void uvm_rust_flash_leave_copied(struct uvm_rust_flash_block *block, struct uvm_rust_mask *pages);
/*
 * Those of @pages that are in memory are about to be mapped: what is being written of them stays, and where the mapping
 * @writes, copies that flash has are no longer valid.
 */
void uvm_rust_flash_maps(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *pages, _Bool writes);
/*
 * Takes those out of @pages, which a fault of a GPU's or (not @to_gpu) of a CPU's is to bring along, that it should not. What
 * a thread of the kernel's brings to the host is for a GPU too: it services GPUs' faults and access counters.
 * False: that leaves none.
 */
_Bool uvm_rust_flash_along(struct uvm_va_block_struct *block, _Bool to_gpu, struct uvm_rust_mask *pages);

/*
 * Before @wanted pages are made resident on @gpu, or NULL for the host (policy/flash/room.rs): waits for room, and
 * brings what is on flash into host memory (policy/flash/fetch.rs). Caller holds the VA space's lock and the block's,
 * which is dropped for the I/O. @cause: upstream's; @by_kernel: a kernel thread services it. NV_OK:
 * none is on flash; NV_ERR_MORE_PROCESSING_REQUIRED: the lock was dropped, call again; NV_ERR_INVALID_OPERATION: one
 * is lost.
 */
__u32 uvm_rust_flash_before_populate(struct uvm_va_block_struct *block, struct uvm_seam_context *context,
				     struct uvm_gpu_struct *gpu, __u32 cause, _Bool by_kernel,
				     const struct uvm_rust_mask *wanted);
/*
 * The same before a debugger reads page @page, with @context, or one of Rust's for NULL; and what
 * uvm_rust_flash_maps() does before it writes there.
 */
__u32 uvm_rust_flash_debug(struct uvm_va_block_struct *block, struct uvm_seam_context *context, __u32 page,
			   _Bool to_write);

/* --- called by Rust ------------------------------------------------------------ */

/* Turns the hooks on: those that count host memory, or (@used) those for what a device has, from its attaching on. */
void uvm_seam_flash_hook(_Bool used);

/* Where a va_block keeps what is known of it, which its lock protects; NULL for ordinary memory, and if it is dead. */
struct uvm_rust_flash_block **uvm_seam_flash_slot(struct uvm_va_block_struct *block);
/* How many pages of host memory it has; its lock is held. */
__u32 uvm_seam_flash_host_pages(struct uvm_va_block_struct *block);
/* Under the tier's lock: a reference on a va_block, unless its last one is going. */
_Bool uvm_seam_va_block_hold(struct uvm_va_block_struct *block);
/*
 * A spill: `Machine` of policy/flash/spill.rs has what each is for. The caller has a reference on @block.
 * From uvm_va_block_get_va_space() on its lock is held, and it is alive.
 */
void uvm_seam_va_block_put(struct uvm_va_block_struct *block);
/* Upstream's: the VA space of a va_block. */
struct uvm_va_space_struct *uvm_va_block_get_va_space(struct uvm_va_block_struct *block);

/*
 * Leaves of @pages those with host memory: with @hold a reference on it goes to @held, by page of the block; else with
 * @held, only those whose memory is in there. Without @held, only those that nobody holds without a mapping: of pages that
 * are mapped, with @hold, that is a guess.
 */
void uvm_seam_flash_host(struct uvm_va_block_struct *block, struct uvm_rust_mask *pages, struct page **held, _Bool hold);
/*
 * The chunks of host memory that a page is in, one of a node, with what of other nodes' meets them: pages @first to @outer - 1.
 * Returns whether there is one for the page, and nobody holds any of them without a mapping.
 */
_Bool uvm_seam_host_chunk(struct uvm_va_block_struct *block, __u32 index, __u16 *first, __u16 *outer);
/* Frees host memory of which nothing is resident. The GPUs were waited for. */
void uvm_seam_host_chunk_free(struct uvm_va_block_struct *block, __u16 first, __u16 outer);
/* Waits for the GPUs' work on it, or only tells by NV_OK that it is done. Returns an NV_STATUS. Caller holds the block's lock. */
__u32 uvm_seam_block_wait(struct uvm_va_block_struct *block, _Bool waits);
/* Pages of a locked block, as @gpu, or NULL for none, sees them. */
struct uvm_rust_pages {
	struct uvm_rust_mask allocated, host;	/* with host memory, and resident there */
	struct uvm_rust_mask duplicated, mapped, thrashing;
	struct uvm_rust_mask there;		/* resident on the GPU */
	struct uvm_rust_mask staged, reached;	/* on other GPUs; from the first they come by way of the host */
};
void uvm_seam_block_pages(struct uvm_va_block_struct *block, struct uvm_gpu_struct *gpu, struct uvm_rust_pages *out);

/*
 * The first makes 1 << @order neighbouring pages; false if there is no memory, for which it @waits or does not. The
 * second gives back the references on pages, also on pages of the first, and sets each pointer to NULL; a pointer may be NULL
 * before. Pages that were made together are free once the last of them is given back. The third gives the bytes of a page
 * that the first made.
 */
_Bool uvm_seam_pages_new(struct page **of, __u32 order, _Bool account, _Bool waits);
void uvm_seam_pages_put(struct page **of, __u32 pages);
__u8 *uvm_seam_page_bytes(struct page *page);

/* Room for what the kernel says of a page. */
struct uvm_rust_bvec {
	__u64 words[2];
};

/*
 * The device. No lock is held. Pages are read or written at a position in bytes: 0 or -errno. @room: for as many.
 * @level: of best-effort I/O, 0 comes first.
 */
int uvm_seam_flash_transfer(struct uvm_seam_flash_dev *dev, struct page **of, struct uvm_rust_bvec *room, __u16 pages,
			    __u64 position, _Bool write, __u8 level);
/* Tells the device to forget these bytes, and sleeps until it has: 0 or -errno, -EOPNOTSUPP for a device that cannot. */
int uvm_seam_flash_discard(struct uvm_seam_flash_dev *dev, __u64 position, __u64 bytes);
/*
 * Encrypts pages into others, or decrypts them; the first has @stamp, the next the next. @room is what
 * uvm_seam_flash_open() asks for. Returns how many. Allocates nothing. Sleeps.
 */
__u32 uvm_seam_flash_crypt(struct uvm_seam_flash_dev *dev, struct skcipher_request *room, struct page **from,
			   struct page **to, __u32 pages, __u64 stamp, _Bool encrypt);
/* The checksum of each page and its stamp. */
void uvm_seam_flash_sums(struct page **of, __u32 pages, __u64 stamp, __u32 *sums);
/* Whether it is there. Any lock. */
_Bool uvm_seam_flash_is_there(struct uvm_seam_flash_dev *dev);

/*
 * Fetching, with the block's lock. Makes host memory for @pages, at least one, and may change them: an NV_STATUS,
 * upstream's.
 */
__u32 uvm_seam_flash_populate(struct uvm_va_block_struct *block, struct uvm_seam_context *context,
			      struct uvm_rust_mask *pages);
/* @pages, at least one, hold in host memory what was written. */
void uvm_seam_flash_arrived(struct uvm_va_block_struct *block, const struct uvm_rust_mask *pages);
/* Says that so many of its pages cannot be read, which are process @pid's. */
void uvm_seam_flash_lost(struct uvm_va_block_struct *block, __u32 pages, __u32 pid);
/*
 * The first wakes those who wait, after @progress was raised because a read or a write ended, or there is room. The second
 * waits until @progress differs from @was, for @ms milliseconds at most.
 */
void uvm_seam_flash_tell(struct uvm_seam_flash_dev *dev);
void uvm_seam_flash_wait(struct uvm_seam_flash_dev *dev, const __u32 *progress, __u32 was, __u32 ms);

/*
 * Attaching and detaching take this lock for writing, moving takes it for reading. A reader waits for it while it holds no
 * lock but a tenant's turn. Within a VA space's lock, which a process can keep held for as long as it likes, it only tries.
 */
extern struct rw_semaphore uvm_rust_flash_attach_lock;
/* The kernel's. */
int down_read_interruptible(struct rw_semaphore *sem);
int down_read_trylock(struct rw_semaphore *sem);
void up_read(struct rw_semaphore *sem);
void down_write(struct rw_semaphore *sem);
void up_write(struct rw_semaphore *sem);
_Bool capable(int cap);

/*
 * Opens what @path names, a block device or a file, and makes a key. Returns 0, how many @bytes it has and
 * how many a @request of uvm_seam_flash_crypt() needs, aligned as __u64; or -errno. @dev is to be freed in either case,
 * but where there was no memory for it.
 */
int uvm_seam_flash_open(const char *path, struct uvm_seam_flash_dev **dev, __u64 *bytes, __u32 *request);
void uvm_seam_flash_free(struct uvm_seam_flash_dev *dev);
/* Lets the device go, of which nothing is needed any more. */
void uvm_seam_flash_close(struct uvm_seam_flash_dev *dev);

#endif
