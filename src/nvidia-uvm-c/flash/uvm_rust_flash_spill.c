// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier's workers, which write those pages to the device that have been longest in
 * host memory, when there are too many.
 *
 * A spill takes no lock for longer than it needs to look: it unmaps the pages, writes a
 * copy that is encrypted, and comes back to see whether the pages are as it left them.
 * Whoever uses one of them in the meantime says so (the hook in block_populate_pages()),
 * or maps it (maybe_mapped_pages), and keeps it. What neither sees is a mapping that came
 * and went without a migration: those who make or end such cancel the block's spill
 * (cancel_range()).
 *
 * Nor is seen who reads or writes a page without a mapping: direct I/O, a buffer registered
 * with io_uring or for RDMA, a pipe. They hold a reference on the page for as long as they
 * may. Such a page stays (uvm_rust_flash_leave_held()): it would be written to, or read from,
 * after the process has got another one in its place. One look after the mappings have gone
 * is enough, as nobody gets a new reference without a mapping, and whoever makes one says so.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/workqueue.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_range_group.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_flash.h"

static uint uvm_rust_flash_depth = 4;
module_param(uvm_rust_flash_depth, uint, 0444);
MODULE_PARM_DESC(uvm_rust_flash_depth, "How many va_blocks are written at the same time, 1 to 64 (default 4)");

static uint uvm_rust_flash_share = 100;
module_param(uvm_rust_flash_share, uint, 0644);
MODULE_PARM_DESC(uvm_rust_flash_share,
		 "Percent of the time that each worker writes, 1 to 100, to leave the device to others (default 100)");

/* While a device is attached. */
static struct workqueue_struct *workers;
struct worker {
	struct work_struct work;
	struct uvm_seam_flash_dev *dev;
	struct uvm_rust_flash_io *io;
};
static struct worker *worker_array;
static u32 worker_count;

static void look_again(struct work_struct *work)
{
	uvm_rust_tier_kick(uvm_rust_tier);
}
static DECLARE_DELAYED_WORK(again_work, look_again);

/* --- waking, and waiting for, the workers -------------------------------------------- */

void uvm_seam_flash_wake(u32 count)
{
	while (count--)
		queue_work(workers, &worker_array[count].work);
}

void uvm_seam_flash_look_again(u64 ms)
{
	mod_delayed_work(workers, &again_work, msecs_to_jiffies(ms));
}

void uvm_rust_flash_wait_room(struct uvm_rust_flash_owner *owner)
{
	struct uvm_seam_flash_dev *dev = uvm_rust_tier_device(uvm_rust_tier);

	if (!dev)
		return;
	uvm_rust_tier_kick(uvm_rust_tier);
	wait_event_timeout(dev->wait, !uvm_rust_owner_must_wait(owner->rust), HZ / 10);
	uvm_seam_flash_dev_put(dev);
}

/* --- spilling --------------------------------------------------------------------------------- */

/* The block's state for this device, made if need be. Caller holds the block's lock. */
static bool have_state(uvm_va_block_t *block, struct uvm_seam_flash_dev *dev)
{
	struct mem_cgroup *before = uvm_rust_flash_charge(uvm_va_block_get_va_space(block));
	bool has = uvm_rust_flash_block_use(uvm_rust_flash_of(block), dev, dev->table,
					    uvm_va_block_num_cpu_pages(block));

	uvm_rust_flash_uncharge(before);
	return has;
}

/* Drops what was discarded and is still there. Changes @pages to what is worth a write. */
static NV_STATUS drop_discarded(struct uvm_seam_flash_dev *dev, uvm_va_block_t *block,
				uvm_va_block_context_t *context, uvm_page_mask_t *pages)
{
	uvm_page_mask_t none, stale;
	NV_STATUS status;

	uvm_page_mask_zero(&none);
	if (!block->uvm_rust ||
	    !uvm_rust_block_stale(block->uvm_rust, uvm_rust_mask(pages), uvm_rust_mask(&none),
				  uvm_rust_mask_out(&stale)))
		return NV_OK;
	status = uvm_rust_flash_unmap(block, context, &stale);
	if (status != NV_OK)
		return status;
	uvm_rust_flash_leave_held(block, &stale);
	uvm_rust_block_dropped(block->uvm_rust, uvm_rust_mask(&stale));
	uvm_rust_flash_left_host(block, &stale);
	uvm_page_mask_andnot(pages, pages, &stale);
	atomic64_add((u64)uvm_page_mask_weight(&stale) * PAGE_SIZE, &dev->dropped);
	return NV_OK;
}

/* Pages that only the host has. */
static void spillable(uvm_va_block_t *block, const uvm_page_mask_t *wanted, uvm_page_mask_t *pages)
{
	uvm_gpu_id_t id;

	uvm_page_mask_andnot(pages, &block->cpu.resident, &block->read_duplicated_pages);
	for_each_gpu_id_in_mask(id, &block->resident)
		uvm_page_mask_andnot(pages, pages, uvm_rust_resident_mask(block, id));
	if (wanted)
		uvm_page_mask_and(pages, pages, wanted);
}

/* Host memory of pages that are elsewhere or nowhere, kept for their return; returns whether there was any. */
static bool free_unused(uvm_va_block_t *block)
{
	u32 before = uvm_page_mask_weight(&block->cpu.allocated);
	uvm_page_mask_t none;

	if (uvm_page_mask_subset(&block->cpu.allocated, &block->cpu.resident))
		return false;
	/* A copy out of it may be under way. */
	if (uvm_tracker_wait(&block->tracker) != NV_OK)
		return false;
	uvm_page_mask_zero(&none);
	uvm_rust_flash_left_host(block, &none);
	return uvm_page_mask_weight(&block->cpu.allocated) < before;
}

/* With the block's and the VA space's lock held: has io->spill begun if FLASH_MOVED is returned. */
static enum uvm_rust_flash_outcome spill_begin(struct uvm_seam_flash_dev *dev, uvm_va_block_t *block,
				uvm_va_block_context_t *context, const uvm_page_mask_t *wanted,
				struct uvm_rust_flash_io *io)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);
	const uvm_page_mask_t *begun = (const uvm_page_mask_t *)&io->mask;
	uvm_page_mask_t pages, none;
	NV_STATUS status;

	/* Where a fault is fatal, mappings must stay. */
	if (uvm_rust_has_non_faultable(va_space) ||
	    !uvm_range_group_all_migratable(va_space, block->start, block->end))
		return FLASH_NOTHING;
	spillable(block, wanted, &pages);
	uvm_rust_flash_leave_held(block, &pages);
	if (uvm_page_mask_empty(&pages))
		return free_unused(block) ? FLASH_MOVED : FLASH_NOTHING;
	if (!have_state(block, dev))
		return FLASH_LATER;
	do {
		status = drop_discarded(dev, block, context, &pages);
		if (status == NV_OK)
			status = uvm_rust_flash_drop_copied(dev, block, context, &pages);
		/* The lock was dropped. */
		if (status == NV_ERR_MORE_PROCESSING_REQUIRED) {
			spillable(block, wanted, &pages);
			uvm_rust_flash_leave_held(block, &pages);
		}
	} while (status == NV_ERR_MORE_PROCESSING_REQUIRED);
	if (status != NV_OK)
		return FLASH_LATER;
	if (uvm_page_mask_empty(&pages))
		return FLASH_MOVED;

	switch (uvm_rust_flash_begin_spill(f, uvm_rust_mask(&pages), &io->spill, &io->mask, &io->pieces)) {
	case UVM_RUST_FLASH_BEGUN:
		break;
	case UVM_RUST_FLASH_NOTHING:
		return FLASH_NOTHING;
	case UVM_RUST_FLASH_FULL:
		return FLASH_NO_ROOM;
	case UVM_RUST_FLASH_QUOTA:
		return FLASH_NO_QUOTA;
	default:
		return FLASH_LATER;
	}
	do {
		status = uvm_rust_flash_unmap(block, context, begun);
	} while (status == NV_ERR_MORE_PROCESSING_REQUIRED);
	/* Somebody may have taken hold of one of them since. The next time, it is left out. */
	uvm_page_mask_copy(&pages, begun);
	if (status == NV_OK && !uvm_rust_flash_leave_held(block, &pages) &&
	    uvm_rust_flash_hold_pages(block, begun, io))
		return FLASH_MOVED;
	uvm_page_mask_zero(&none);
	uvm_rust_flash_end_spill(dev->table, f, io->spill, uvm_rust_mask(&none), uvm_rust_mask_out(&pages));
	return FLASH_LATER;
}

/* With the block's lock held: @written is on the device. */
static enum uvm_rust_flash_outcome spill_end(struct uvm_seam_flash_dev *dev, uvm_va_block_t *block,
			      struct uvm_rust_flash_io *io, uvm_page_mask_t *written)
{
	struct uvm_rust_flash_block *f = uvm_va_block_is_dead(block) ? NULL : uvm_rust_flash_of(block);
	uvm_page_mask_t still, moved;

	if (!uvm_rust_flash_block_is_on(f, dev)) {
		uvm_rust_flash_end_spill(dev->table, NULL, io->spill, uvm_rust_mask(written), uvm_rust_mask_out(&moved));
		return FLASH_NOTHING;
	}
	/* A copy out of the host's memory may be under way, and frees nothing before it has ended. */
	spillable(block, NULL, &still);
	if (uvm_tracker_wait(&block->tracker) != NV_OK)
		uvm_page_mask_zero(&still);
	uvm_page_mask_and(written, written, &still);
	uvm_page_mask_andnot(written, written, &block->maybe_mapped_pages);
	uvm_rust_flash_end_spill(dev->table, f, io->spill, uvm_rust_mask(written), uvm_rust_mask_out(&moved));
	if (uvm_page_mask_empty(&moved))
		return FLASH_LATER;
	uvm_rust_flash_left_host(block, &moved);
	atomic64_add((u64)uvm_page_mask_weight(&moved) * PAGE_SIZE, &dev->spilled);
	return FLASH_MOVED;
}

/* As uvm_rust_flash_spill(), which see, with the room there is. */
static enum uvm_rust_flash_outcome spill_once(struct uvm_seam_flash_dev *dev, uvm_va_block_t *block,
					      const uvm_page_mask_t *wanted, struct uvm_rust_flash_io *io,
					      bool locked)
{
	uvm_va_block_context_t *context = uvm_va_block_context_alloc(NULL);
	uvm_va_space_t *va_space = NULL;
	enum uvm_rust_flash_outcome outcome = FLASH_LATER;
	uvm_page_mask_t written;
	bool failed;

	if (!context)
		return FLASH_LATER;
	io->spill = NULL;
	uvm_mutex_lock(&block->lock);
	if (uvm_va_block_is_dead(block) || !uvm_rust_flash_of(block)) {
		outcome = FLASH_NOTHING;
	}
	else {
		va_space = uvm_va_block_get_va_space(block);
		/*
		 * Out of order, so only tried: whoever waits to write comes first, and a thread
		 * that waits for us holds it in read mode.
		 */
		if (!locked && !uvm_down_read_trylock(&va_space->lock))
			va_space = NULL;
		if (va_space)
			outcome = spill_begin(dev, block, context, wanted, io);
	}
	uvm_mutex_unlock(&block->lock);
	if (va_space && !locked)
		uvm_up_read(&va_space->lock);
	uvm_va_block_context_free(context);
	if (outcome != FLASH_MOVED)
		return outcome;
	if (!io->spill) {
		wake_up_all(&dev->wait);
		return outcome;
	}

	uvm_rust_flash_write(dev, io, &written);
	uvm_rust_flash_release_pages(io);
	/* Before those are taken out that were used in the meantime: the device is not at fault for them. */
	failed = uvm_page_mask_empty(&written);

	uvm_mutex_lock(&block->lock);
	outcome = spill_end(dev, block, io, &written);
	uvm_mutex_unlock(&block->lock);
	if (failed)
		outcome = FLASH_FAILED;
	atomic_inc(&dev->progress);
	wake_up_all(&dev->wait);
	return outcome;
}

/*
 * Writes what of @wanted (NULL: all) the block has in host memory. Caller holds a
 * reference on the block and no lock; or, with @locked, the VA space's lock in read mode.
 */
enum uvm_rust_flash_outcome uvm_rust_flash_spill(struct uvm_seam_flash_dev *dev, uvm_va_block_t *block,
				const uvm_page_mask_t *wanted, struct uvm_rust_flash_io *io, bool locked)
{
	enum uvm_rust_flash_outcome outcome;
	bool again;

	do {
		outcome = spill_once(dev, block, wanted, io, locked);
		/* What must leave comes before copies of what is here. */
		again = (outcome == FLASH_NO_ROOM && uvm_rust_flash_give_up_copies(dev, NULL)) ||
			(outcome == FLASH_NO_QUOTA && uvm_rust_flash_give_up_copies(dev, block));
	} while (again);
	if (outcome == FLASH_NO_ROOM || outcome == FLASH_NO_QUOTA)
		atomic64_inc(&dev->refused);
	return outcome;
}

/* A block of its owner's was spilled. */
static void hope(uvm_va_block_t *block)
{
	uvm_mutex_lock(&block->lock);
	if (!uvm_va_block_is_dead(block) && uvm_rust_flash_of(block))
		uvm_rust_flash_block_spilled(uvm_rust_flash_of(block));
	uvm_mutex_unlock(&block->lock);
}

static void set_aside(uvm_va_block_t *block)
{
	uvm_mutex_lock(&block->lock);
	if (!uvm_va_block_is_dead(block) && uvm_rust_flash_of(block)) {
		uvm_page_mask_t pages;

		/* It may have got some in the meantime. */
		spillable(block, NULL, &pages);
		if (uvm_page_mask_empty(&pages))
			uvm_rust_flash_block_set_aside(uvm_rust_flash_of(block));
	}
	uvm_mutex_unlock(&block->lock);
}

/* Gathers free space, some at a time. */
void uvm_rust_flash_relocate(struct uvm_seam_flash_dev *dev, struct uvm_rust_flash_io *io)
{
	struct uvm_rust_flash_move move;
	u32 i;

	for (i = 0; i < 16; i++) {
		struct uvm_rust_flash_moving *op = uvm_rust_flash_begin_move(dev->table, worker_count + 1, &move);
		bool copied;
		u32 pages;

		if (!op)
			return;
		copied = uvm_rust_flash_copy(dev, io, &move);
		pages = uvm_rust_flash_end_move(dev->table, op, copied);
		atomic64_add((u64)pages * PAGE_SIZE, &dev->relocated);
		if (!copied)
			return;
	}
}

/* A worker's try ended so, UVM_RUST_TRIED_*. Returns whether the worker is to end. */
static bool ended(struct uvm_seam_flash_dev *dev, u32 tried)
{
	bool stop = uvm_rust_tier_ended(uvm_rust_tier, dev, tried);

	if (stop)
		wake_up_all(&dev->wait);
	return stop;
}

static u32 tried_of(enum uvm_rust_flash_outcome outcome)
{
	switch (outcome) {
	case FLASH_MOVED:
		return UVM_RUST_TRIED_MOVED;
	case FLASH_FAILED:
		return UVM_RUST_TRIED_FAILED;
	default:
		return UVM_RUST_TRIED_NOTHING;
	}
}

/* After a write that began at @start. Others of the device's users have their share then. */
static void rest_after(struct uvm_seam_flash_dev *dev, ktime_t start)
{
	u64 took = max_t(s64, ktime_us_delta(ktime_get(), start), 0);
	u64 rest = uvm_rust_pace_rest(took, READ_ONCE(uvm_rust_flash_share));
	ktime_t rests = ktime_get();

	if (!rest)
		return;
	fsleep(rest);
	/* What it was, not what it was to be. */
	atomic64_add(max_t(s64, ktime_us_delta(ktime_get(), rests), 0), &dev->rested_us);
}

static void spill_work(struct worker *w)
{
	struct uvm_seam_flash_dev *dev = w->dev;

	while (uvm_rust_tier_goes_on(uvm_rust_tier, dev) && uvm_global_get_status() == NV_OK) {
		enum uvm_rust_flash_outcome outcome = FLASH_NOTHING;
		uvm_va_block_t *block = (uvm_va_block_t *)uvm_rust_tier_victim(uvm_rust_tier);
		ktime_t start = ktime_get();

		if (block) {
			/* Suspend comes first; it may be waiting for one who waits for us. */
			if (!uvm_down_read_trylock(&g_uvm_global.pm.lock)) {
				uvm_va_block_release(block);
				ended(dev, UVM_RUST_TRIED_SUSPENDED);
				break;
			}
			outcome = uvm_rust_flash_spill(dev, block, NULL, w->io, false);
			if (outcome == FLASH_NOTHING)
				set_aside(block);
			else if (outcome == FLASH_MOVED)
				hope(block);
			uvm_up_read(&g_uvm_global.pm.lock);
			uvm_va_block_release(block);
		}
		uvm_rust_flash_relocate(dev, w->io);
		if (ended(dev, tried_of(outcome)))
			break;
		if (outcome == FLASH_MOVED)
			rest_after(dev, start);
		cond_resched();
	}
	/* The next time, all are looked at. */
	uvm_rust_tier_hope(uvm_rust_tier);
}

static void spill_work_entry(struct work_struct *work)
{
	struct worker *w = container_of(work, struct worker, work);

	UVM_ENTRY_VOID(spill_work(w));
}

void uvm_rust_flash_stop_workers(void)
{
	u32 i;

	cancel_delayed_work_sync(&again_work);
	if (workers)
		destroy_workqueue(workers);
	workers = NULL;
	for (i = 0; i < worker_count; i++)
		uvm_rust_flash_io_free(worker_array[i].io);
	worker_count = 0;
	kfree(worker_array);
	worker_array = NULL;
}

int uvm_rust_flash_start_workers(struct uvm_seam_flash_dev *dev, u32 *out)
{
	u32 count = clamp(uvm_rust_flash_depth, 1U, 64U);
	u32 i;

	workers = alloc_workqueue("uvm-rust-flash", WQ_UNBOUND | WQ_FREEZABLE, count);
	worker_array = kcalloc(count, sizeof(*worker_array), GFP_KERNEL);
	if (!workers || !worker_array) {
		uvm_rust_flash_stop_workers();
		return -ENOMEM;
	}
	for (i = 0; i < count; i++) {
		struct worker *w = &worker_array[i];

		INIT_WORK(&w->work, spill_work_entry);
		w->dev = dev;
		w->io = uvm_rust_flash_io_alloc(true, GFP_KERNEL);
		worker_count = i + 1;
		if (!w->io) {
			uvm_rust_flash_stop_workers();
			return -ENOMEM;
		}
	}
	*out = count;
	return 0;
}
