/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The SSD tier: what its C files have in common.
 *
 *   uvm_rust_flash.c        va_blocks: which have host memory
 *   uvm_rust_flash_owner.c  the tenants that they belong to: whom memory is charged to
 *   uvm_rust_flash_spill.c  what the workers that write them ask of upstream
 *   uvm_rust_flash_room.c   what needs host memory
 *   uvm_rust_flash_park.c   GPU faults that have to wait, which wait outside the service lock
 *   uvm_rust_flash_attach.c what attaching, detaching and moving ask of upstream
 *   uvm_rust_flash_block.h  va_blocks, what needs upstream's statics; in uvm_va_block.c
 *   uvm_rust_flash_io.c     the device: opening, encryption, reading and writing
 *
 * Locks, outermost first: an owner's mutex; uvm_rust_flash_attach_lock; a VA space's lock; a va_block's lock; the table's
 * mutex, and the tier's lock, a spinlock, both in Rust. Under a va_block's lock there is no I/O.
 */
#ifndef UVM_RUST_FLASH_H
#define UVM_RUST_FLASH_H

#include <linux/jump_label.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

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
struct uvm_seam_flash_dev {
	/* Held by the tier, by each va_block that has a state, and by each user for a while. */
	struct kref ref;
	struct file *file;
	struct crypto_skcipher *tfm;
	/* Rust's; NULL until it is made. */
	struct uvm_rust_flash_table *table;

	/* Raised when a read or a spill ends. Waited for without locks but a VA space's. */
	atomic_t progress;
	wait_queue_head_t wait;
};

/* A read or a write of pages of one va_block. */
struct uvm_seam_flash_io {
	/* By page of the va_block: those that are held. */
	struct page *pages[FLASH_SLOT_PAGES];
	/* For writes: what is encrypted into. */
	struct page *bounce[FLASH_SLOT_PAGES];
	struct bio_vec bvec[FLASH_SLOT_PAGES];
	u32 sums[FLASH_SLOT_PAGES];
};

/* --- va_blocks ---------------------------------------------------------------------- */

/* What is known of it, which is Rust's: NULL until it has host memory. Protected by its lock. */
static inline struct uvm_rust_flash_block *uvm_rust_flash_of(uvm_va_block_t *block)
{
	return block->uvm_rust_flash;
}

/* Pages of @block that @set names (UVM_RUST_FLASH_*); false for none. Caller holds its lock. */
static inline bool uvm_rust_flash_set(uvm_va_block_t *block, u32 set, uvm_page_mask_t *out)
{
	return uvm_rust_flash_pages(uvm_rust_flash_of(block), set, uvm_rust_mask_out(out));
}

/* Whether @set has page @index. Not inline: the mask is cleared where it is declared, and most calls need none. */
bool uvm_rust_flash_has(uvm_va_block_t *block, u32 set, uvm_page_index_t index);

/*
 * Somebody may write to those of @pages that are in memory from now on: whatever copies flash
 * has of them are no longer valid. Caller holds its lock.
 */
static inline void uvm_rust_flash_may_be_written(uvm_va_block_t *block, const uvm_page_mask_t *pages)
{
	uvm_rust_flash_may_write(uvm_rust_flash_of(block), uvm_rust_mask(pages));
}

/* --- uvm_rust_flash_owner.c --------------------------------------------------------- */

/* Somebody who reads what was asked for of an owner's blocks; in one queue with all others'. */
struct uvm_rust_flash_fetcher {
	struct work_struct work;
	/* Outlives the work. */
	struct uvm_rust_flash_owner *owner;
};

/*
 * A tenant (policy/tenants.rs), to the quota and to who is spilled, from its first VA space to
 * its last.
 */
struct uvm_rust_flash_owner {
	/* What is known of it. */
	struct uvm_rust_owner *rust;
	/* Whom its memory is charged to; its tenant's. */
	struct mem_cgroup *memcg;
	struct uvm_rust_flash_fetcher fetchers[UVM_RUST_FLASH_FETCHERS_EACH];
	/*
	 * Held by a call of UVM_RUST_FLASH_MOVE from its look at what is paid to the note of what it
	 * wrote, or all threads would look before the first has noted. Outside uvm_rust_flash_attach_lock.
	 */
	struct mutex moving;
};

static inline struct uvm_rust_flash_owner *uvm_rust_flash_owner_of(uvm_va_space_t *va_space)
{
	struct uvm_rust_tenant *tenant = va_space->uvm_rust_flash_tenant;

	return tenant ? uvm_rust_tenant_flash(tenant) : NULL;
}

/* Whom memory is charged to that is allocated in between: the tenant of the VA space. */
struct mem_cgroup *uvm_rust_flash_charge(uvm_va_space_t *va_space);
void uvm_rust_flash_uncharge(struct mem_cgroup *before);

/* --- uvm_rust_flash_spill.c --------------------------------------------------------- */

/* Waits for room, for a while. */
void uvm_rust_flash_wait_room(struct uvm_rust_flash_owner *owner);
/* --- uvm_rust_flash_room.c ---------------------------------------------------------- */

/*
 * Whether pages of host memory have to be made when @pages of a block become resident on @to,
 * there or for what leaves a GPU in their stead. Caller holds the VA space's lock and the block's.
 */
bool uvm_rust_flash_needs_host(uvm_va_block_t *block, uvm_processor_id_t to, const uvm_page_mask_t *pages);
/* The same for faults of a GPU, where upstream has not chosen yet where the pages go. */
bool uvm_rust_flash_fault_needs_host(uvm_va_block_t *block, uvm_gpu_t *gpu, const uvm_page_mask_t *pages);
/* The same for faults on a block that does not exist yet. Caller holds the VA space's lock. */
bool uvm_rust_flash_first_touch_needs_host(uvm_va_range_t *range, uvm_gpu_t *gpu);

/* --- uvm_rust_flash_park.c ---------------------------------------------------------- */

/* Whether GPU faults are put off: the loop in Rust services them, and the module parameter says so. */
bool uvm_rust_flash_parks(void);
/*
 * Of a GPU's faults from @first on, the number of those on one block that have to wait, and come
 * back by replay: nothing else is to be done for them. 0 if they can be serviced. Caller holds
 * the VA space's lock.
 */
__u32 uvm_rust_flash_park(uvm_va_space_t *va_space, uvm_gpu_t *gpu, uvm_fault_service_batch_context_t *batch,
			  __u32 first);
/* An owner's fetchers: none has anything to do at the end, as all its blocks are gone. */
void uvm_rust_flash_fetchers_init(struct uvm_rust_flash_owner *owner);
void uvm_rust_flash_fetchers_exit(struct uvm_rust_flash_owner *owner);
int uvm_rust_flash_park_init(void);
void uvm_rust_flash_park_exit(void);

/* --- uvm_rust_flash_block.h ------------------------------------------------------------ */

/* Unmaps pages from all processors; as uvm_rust_block_drop_pages(). */
NV_STATUS uvm_rust_block_unmap_pages(uvm_va_block_t *block, uvm_va_block_context_t *context,
				     const uvm_page_mask_t *pages);

#endif
