// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: GPU faults that have to wait.
 *
 * A GPU's faults of all processes are serviced by one thread, which holds the lock of the
 * parent GPU. So that none of them waits for a device or for room on another's behalf, faults
 * on pages that are on flash, and those that would make more host memory of a process that has
 * its share of one that is full (uvm_rust_flash_room.c), are put off: the loop leaves them out,
 * as upstream does with faults on pages that thrash, and the replay at the end of the batch
 * brings them back. Somebody else (a worker below) reads meanwhile what they want.
 */
#include <linux/delay.h>
#include <linux/workqueue.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_compat.h"
#include "uvm_rust_flash.h"


static bool uvm_rust_flash_park_faults = true;
module_param_named(uvm_rust_flash_park, uvm_rust_flash_park_faults, bool, 0644);
MODULE_PARM_DESC(uvm_rust_flash_park,
		 "Put off GPU faults that wait for the SSD tier, instead of letting all others wait as well (default 1)");

/* While the module is loaded with the tier. */
static struct workqueue_struct *fetchers;

/*
 * Reads until nothing of what is asked for is on flash; whether that is so. Both locks are held; the block's is
 * dropped. Whoever wants the pages next finds out by itself what has failed, and says so to the program.
 */
static bool fetch_asked(uvm_va_space_t *va_space, uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	/* Host memory is charged as upstream does in a fault: to that of the process, if it is one's. */
	struct mm_struct *mm = uvm_va_space_mm_retain(va_space);
	uvm_va_block_context_t *context = uvm_va_block_context_alloc(mm);
	NV_STATUS status = NV_ERR_NO_MEMORY;

	if (context) {
		struct mem_cgroup *before = uvm_rust_flash_charge(va_space);
		uvm_page_mask_t asked;

		uvm_rust_on_any_node(context);
		do {
			uvm_rust_flash_block_asked(f, uvm_rust_mask_out(&asked));
			status = uvm_rust_flash_fetch(block, (struct uvm_seam_context *)context, uvm_rust_mask(&asked),
						      true);
		} while (status == NV_ERR_MORE_PROCESSING_REQUIRED);
		uvm_rust_flash_uncharge(before);
		uvm_va_block_context_free(context);
	}
	if (mm)
		uvm_va_space_mm_release(va_space);
	return status == NV_OK;
}

/* Whether what is asked for needs host memory that is not there: read, it would be in host memory. */
static bool asked_must_wait(uvm_va_space_t *va_space, uvm_va_block_t *block)
{
	uvm_page_mask_t asked;

	uvm_rust_flash_block_asked(uvm_rust_flash_of(block), uvm_rust_mask_out(&asked));
	return uvm_rust_owner_must_wait(uvm_rust_flash_owner_of(va_space)->rust) &&
	       uvm_rust_flash_needs_host(block, UVM_ID_CPU, &asked);
}

/* Reads what is asked for of a block, which the caller has a reference on. */
static void fetch_block(uvm_va_block_t *block)
{
	uvm_va_space_t *va_space = NULL;
	bool awake = uvm_down_read_trylock(&g_uvm_global.pm.lock);
	struct uvm_rust_flash_block *f;
	bool failed = false;

	uvm_mutex_lock(&block->lock);
	f = uvm_va_block_is_dead(block) ? NULL : uvm_rust_flash_of(block);
	/* Out of order, so only tried. If it cannot be had now, the fault will be back. */
	if (f && awake) {
		va_space = uvm_va_block_get_va_space(block);
		if (!uvm_down_read_trylock(&va_space->lock))
			va_space = NULL;
	}
	/* Without room the faults wait for that first. */
	if (va_space && asked_must_wait(va_space, block))
		uvm_rust_tier_kick(uvm_rust_tier);
	else if (va_space)
		failed = !fetch_asked(va_space, block);
	/* Without the VA space's lock the block's was never dropped. */
	if (f)
		uvm_rust_flash_block_tried(f, failed);
	/* The block's lock is the last: who ends the VA space needs it, and frees the other lock then. */
	if (va_space)
		uvm_up_read(&va_space->lock);
	uvm_mutex_unlock(&block->lock);
	if (awake)
		uvm_up_read(&g_uvm_global.pm.lock);
}

/* One block at a time: then the others' fetchers, which stand in the same queue, have their turn. */
static void fetch_work(struct uvm_rust_flash_fetcher *fetcher)
{
	struct uvm_rust_owner *owner = fetcher->owner->rust;
	uvm_va_block_t *block = uvm_rust_owner_asking(owner);

	if (block) {
		fetch_block(block);
		uvm_va_block_release(block);
	}
	if (uvm_rust_owner_fetched(owner, fetcher - fetcher->owner->fetchers))
		queue_work(fetchers, &fetcher->work);
}

bool uvm_rust_flash_parks(void)
{
	return READ_ONCE(uvm_rust_flash_park_faults) && fetchers && uvm_rust_fault;
}

static void fetch_work_entry(struct work_struct *work)
{
	struct uvm_rust_flash_fetcher *fetcher = container_of(work, struct uvm_rust_flash_fetcher, work);

	UVM_ENTRY_VOID(fetch_work(fetcher));
}

void uvm_rust_flash_fetchers_init(struct uvm_rust_flash_owner *owner)
{
	u32 i;

	for (i = 0; i < UVM_RUST_FLASH_FETCHERS_EACH; i++) {
		INIT_WORK(&owner->fetchers[i].work, fetch_work_entry);
		owner->fetchers[i].owner = owner;
	}
}

void uvm_rust_flash_fetchers_exit(struct uvm_rust_flash_owner *owner)
{
	u32 i;

	for (i = 0; i < UVM_RUST_FLASH_FETCHERS_EACH; i++)
		cancel_work_sync(&owner->fetchers[i].work);
}

void uvm_seam_flash_fetch(struct uvm_rust_flash_owner *owner, u32 fetcher)
{
	queue_work(fetchers, &owner->fetchers[fetcher].work);
}

/* --- which faults have to wait ------------------------------------------------------------ */

/* Whether the faults on @pages have to be put off. Caller holds the block's lock. */
static bool must_park(uvm_va_block_t *block, uvm_gpu_t *gpu, const uvm_page_mask_t *pages)
{
	if (uvm_va_block_is_dead(block))
		return false;
	if (uvm_rust_owner_must_wait(uvm_rust_flash_owner_of(uvm_va_block_get_va_space(block))->rust) &&
	    uvm_rust_flash_fault_needs_host(block, gpu, pages)) {
		uvm_rust_tier_kick(uvm_rust_tier);
		return true;
	}
	return uvm_rust_flash_block_parks(uvm_rust_flash_of(block), uvm_rust_mask(pages));
}

/* The faults of a batch from @first on that are of one VA space and between two addresses. */
struct faults {
	uvm_va_space_t *va_space;
	uvm_fault_service_batch_context_t *batch;
	__u32 first;
	NvU64 start, end;
};

/* Whether there is a fault @i, and it is one of these. */
static bool is_one(const struct faults *of, __u32 i)
{
	const uvm_fault_buffer_entry_t *e;

	if (i >= of->batch->num_coalesced_faults)
		return false;
	e = of->batch->ordered_fault_cache[i];
	return e->va_space == of->va_space && !e->is_fatal && e->fault_address >= of->start &&
	       e->fault_address <= of->end;
}

/* How many faults on @block have to be put off. */
static __u32 park_of_block(struct faults *of, uvm_va_block_t *block, uvm_gpu_t *gpu)
{
	uvm_page_mask_t pages;
	bool park;
	__u32 i;

	if (uvm_va_block_is_hmm(block))
		return 0;
	of->start = block->start;
	of->end = block->end;
	uvm_page_mask_zero(&pages);
	for (i = of->first; is_one(of, i); i++)
		uvm_page_mask_set(&pages, uvm_va_block_cpu_page_index(block,
								      of->batch->ordered_fault_cache[i]->fault_address));
	uvm_mutex_lock(&block->lock);
	park = i > of->first && must_park(block, gpu, &pages);
	uvm_mutex_unlock(&block->lock);
	return park ? i - of->first : 0;
}

/* How many faults on a block that does not exist yet have to be put off. */
static __u32 park_first_touch(struct faults *of, NvU64 address, uvm_gpu_t *gpu)
{
	uvm_va_range_t *range = uvm_va_range_find(of->va_space, address);
	__u32 i = of->first;

	if (!range || range->type != UVM_VA_RANGE_TYPE_MANAGED ||
	    !uvm_rust_owner_must_wait(uvm_rust_flash_owner_of(of->va_space)->rust) ||
	    !uvm_rust_flash_first_touch_needs_host(range, gpu))
		return 0;
	uvm_rust_tier_kick(uvm_rust_tier);
	of->start = max(range->node.start, UVM_VA_BLOCK_ALIGN_DOWN(address));
	of->end = min(range->node.end, UVM_VA_BLOCK_ALIGN_DOWN(address) + UVM_VA_BLOCK_SIZE - 1);
	while (is_one(of, i))
		i++;
	return i - of->first;
}

__u32 uvm_rust_flash_park(uvm_va_space_t *va_space, uvm_gpu_t *gpu, uvm_fault_service_batch_context_t *batch,
			  __u32 first)
{
	struct faults of = { .va_space = va_space, .batch = batch, .first = first };
	NvU64 address = batch->ordered_fault_cache[first]->fault_address;
	uvm_va_block_t *block;
	NV_STATUS status;
	__u32 parked;

	if (!uvm_rust_flash_parks())
		return 0;
	status = uvm_va_block_find(va_space, address, &block);
	if (status == NV_OK)
		parked = park_of_block(&of, block, gpu);
	else
		parked = status == NV_ERR_OBJECT_NOT_FOUND ? park_first_touch(&of, address, gpu) : 0;
	if (!parked)
		return 0;
	/* The GPU repeats them at once: leave the CPU to those who can help. */
	if (first == 0)
		usleep_range(50, 100);
	uvm_rust_tier_parked(uvm_rust_tier, parked);
	batch->has_throttled_faults = true;
	return parked;
}

int uvm_rust_flash_park_init(void)
{
	fetchers = alloc_workqueue("uvm-rust-fetch", WQ_UNBOUND | WQ_FREEZABLE, UVM_RUST_FLASH_FETCHERS);
	return fetchers ? 0 : -ENOMEM;
}

void uvm_rust_flash_park_exit(void)
{
	if (fetchers)
		destroy_workqueue(fetchers);
	fetchers = NULL;
}
