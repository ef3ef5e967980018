// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: which va_blocks have pages in host memory, and a worker that writes
 * those to the device that have been there longest, when there are too many.
 *
 * With uvm_rust_flash=1 every managed va_block with host memory has a
 * struct uvm_rust_flash_block, made when pages first arrive there, which counts that
 * memory, and which dies with the block (the BLOCK_DESTROY event). Its state, which is
 * Rust's, is made by its first spill.
 *
 * A spill takes no lock for longer than it needs to look: it unmaps the pages, writes a
 * copy that is encrypted, and comes back to see whether the pages are as it left them.
 * Whoever uses one of them in the meantime says so (the hook in block_populate_pages()),
 * or maps it (maybe_mapped_pages), and keeps it. What neither sees is a mapping that came
 * and went without a migration: those who make or end such cancel the block's spill
 * (cancel_range()).
 */
#include <linux/capability.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_perf_prefetch.h"
#include "uvm_range_group.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_flash.h"

static bool uvm_rust_flash;
module_param(uvm_rust_flash, bool, 0444);
MODULE_PARM_DESC(uvm_rust_flash, "Offer an SSD tier behind host memory; a device is attached by ioctl (default 0)");

static uint uvm_rust_flash_depth = 4;
module_param(uvm_rust_flash_depth, uint, 0444);
MODULE_PARM_DESC(uvm_rust_flash_depth, "How many va_blocks are written at the same time, 1 to 64 (default 4)");

DEFINE_STATIC_KEY_FALSE(uvm_rust_flash_key);

/* Written to by attaching and detaching; outside all other locks. */
static DECLARE_RWSEM(attach_lock);
/* A device that was not let go, as something is still on it; under attach_lock. */
static struct uvm_rust_flash_dev *leaving_dev;

/* Blocks that may have something to spill, longest in host memory first. */
static LIST_HEAD(queue);
static u32 queue_length;
/* All blocks, in the queue or not. */
static LIST_HEAD(all_blocks);
/* The attached device, or NULL. Under queue_lock, as are the three above. */
static struct uvm_rust_flash_dev *flash_dev;
static DEFINE_SPINLOCK(queue_lock);

static atomic64_t host_pages, host_peak;

/* While a device is attached. */
static struct workqueue_struct *workers;
struct worker {
	struct work_struct work;
	struct uvm_rust_flash_dev *dev;
	struct uvm_rust_flash_io *io;
};
static struct worker *worker_array;
static u32 worker_count;

static struct uvm_rust_flash_dev *get_dev(void)
{
	struct uvm_rust_flash_dev *dev;

	spin_lock(&queue_lock);
	dev = flash_dev;
	if (dev)
		kref_get(&dev->ref);
	spin_unlock(&queue_lock);
	return dev;
}

/* --- host memory --------------------------------------------------------------------- */

/* Where there was nothing to do, there will be nothing for a while. */
static bool is_resting(struct uvm_rust_flash_dev *dev)
{
	return READ_ONCE(dev->stalled) && time_before(jiffies, READ_ONCE(dev->stalled_at) + READ_ONCE(dev->rest));
}

/* Wakes the workers if there is something for them. */
static void kick(void)
{
	struct uvm_rust_flash_dev *dev;
	u32 i;

	spin_lock(&queue_lock);
	dev = flash_dev;
	if (dev && atomic64_read(&host_pages) > dev->host_low && !is_resting(dev)) {
		for (i = 0; i < worker_count; i++)
			queue_work(workers, &worker_array[i].work);
	}
	spin_unlock(&queue_lock);
}

static void count_host_pages(struct uvm_rust_flash_block *f, u32 pages)
{
	s64 now = atomic64_add_return((s64)pages - f->host_pages, &host_pages);
	s64 peak = atomic64_read(&host_peak);

	f->host_pages = pages;
	while (now > peak && !atomic64_try_cmpxchg(&host_peak, &peak, now))
		;
}

static void enqueue(struct uvm_rust_flash_block *f)
{
	spin_lock(&queue_lock);
	if (list_empty(&f->node))
		queue_length++;
	list_move_tail(&f->node, &queue);
	spin_unlock(&queue_lock);
}

static void dequeue(struct uvm_rust_flash_block *f)
{
	spin_lock(&queue_lock);
	if (!list_empty(&f->node))
		queue_length--;
	list_del_init(&f->node);
	spin_unlock(&queue_lock);
}

static void unpublish(struct uvm_rust_flash_block *f)
{
	dequeue(f);
	spin_lock(&queue_lock);
	list_del_init(&f->all);
	spin_unlock(&queue_lock);
}

static struct uvm_rust_flash_block *new_block(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = kzalloc(sizeof(*f), GFP_KERNEL);

	if (f) {
		INIT_LIST_HEAD(&f->node);
		INIT_LIST_HEAD(&f->all);
		f->block = block;
	}
	return f;
}

/* It belongs to its block now, whose lock the caller holds. */
static void publish(struct uvm_rust_flash_block *f)
{
	f->block->uvm_rust_flash = f;
	spin_lock(&queue_lock);
	list_add_tail(&f->all, &all_blocks);
	spin_unlock(&queue_lock);
}

void uvm_rust_flash_note(uvm_va_block_t *block, bool used)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	u32 pages;

	if (uvm_va_block_is_hmm(block))
		return;
	pages = uvm_page_mask_weight(&block->cpu.allocated);
	if (!f) {
		if (!pages)
			return;
		/* Without it the block is neither counted nor spilled. */
		f = new_block(block);
		if (!f)
			return;
		publish(f);
		used = true;
	}
	if (f->host_pages != pages)
		count_host_pages(f, pages);
	if (used && pages)
		enqueue(f);
	kick();
}

static void drop_state(struct uvm_rust_flash_block *f)
{
	if (f->state)
		uvm_rust_flash_block_destroy(f->dev->table, f->state);
	if (f->dev)
		uvm_rust_flash_put(f->dev);
	f->state = NULL;
	f->dev = NULL;
}

void uvm_rust_flash_block_gone(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);

	if (!f)
		return;
	unpublish(f);
	count_host_pages(f, 0);
	drop_state(f);
	kfree(f);
	block->uvm_rust_flash = NULL;
}

bool uvm_rust_flash_must_wait(void)
{
	struct uvm_rust_flash_dev *dev = READ_ONCE(flash_dev);
	bool wait;

	if (likely(!dev))
		return false;
	spin_lock(&queue_lock);
	dev = flash_dev;
	wait = dev && !READ_ONCE(dev->stalled) && atomic64_read(&host_pages) > dev->host_limit;
	spin_unlock(&queue_lock);
	return wait;
}

void uvm_rust_flash_wait_room(void)
{
	struct uvm_rust_flash_dev *dev = get_dev();

	if (!dev)
		return;
	kick();
	wait_event_timeout(dev->wait,
			   READ_ONCE(dev->stalled) || atomic64_read(&host_pages) <= dev->host_limit, HZ / 10);
	uvm_rust_flash_put(dev);
}

/* --- what happens to a block ------------------------------------------------------------- */

void uvm_rust_flash_discarded(uvm_va_block_t *block, const struct uvm_rust_mask *pages)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);

	if (f && f->state)
		uvm_rust_flash_forget(f->dev->table, f->state, pages);
}

NV_STATUS uvm_rust_flash_before_split(uvm_va_block_t *block, u32 at, struct uvm_rust_flash_block **upper)
{
	struct uvm_rust_flash_block *f;
	NV_STATUS status = NV_OK;

	*upper = NULL;
	if (!static_branch_unlikely(&uvm_rust_flash_key))
		return NV_OK;
	uvm_mutex_lock(&block->lock);
	f = uvm_rust_flash_of(block);
	if (f && f->state) {
		*upper = new_block(NULL);
		if (*upper)
			(*upper)->state = uvm_rust_flash_block_create(0);
		if (!*upper || !(*upper)->state || !uvm_rust_flash_block_cut(f->dev->table, f->state, at)) {
			status = NV_ERR_NO_MEMORY;
		}
		else {
			kref_get(&f->dev->ref);
			(*upper)->dev = f->dev;
		}
	}
	if (status != NV_OK && *upper) {
		if ((*upper)->state)
			uvm_rust_flash_block_destroy(f->dev->table, (*upper)->state);
		kfree(*upper);
		*upper = NULL;
	}
	uvm_mutex_unlock(&block->lock);
	return status;
}

void uvm_rust_flash_after_split(uvm_va_block_t *block, uvm_va_block_t *upper_block, u32 at,
				struct uvm_rust_flash_block *upper)
{
	struct uvm_rust_flash_block *f;

	if (!static_branch_unlikely(&uvm_rust_flash_key))
		return;
	if (!upper_block) {
		if (upper) {
			drop_state(upper);
			kfree(upper);
		}
		return;
	}
	uvm_mutex_lock(&block->lock);
	f = uvm_rust_flash_of(block);
	if (upper)
		uvm_rust_flash_block_split(f->dev->table, f->state, at, upper->state);
	uvm_rust_flash_note(block, false);
	uvm_mutex_unlock(&block->lock);

	uvm_mutex_lock(&upper_block->lock);
	if (upper) {
		upper->block = upper_block;
		publish(upper);
	}
	uvm_rust_flash_note(upper_block, true);
	uvm_mutex_unlock(&upper_block->lock);
}

/* A spill of this block comes to nothing. Caller holds its lock. */
static void cancel_spill(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	uvm_page_mask_t all;

	if (!f || !f->state)
		return;
	uvm_page_mask_init_from_region(&all, uvm_va_block_region_from_block(block), NULL);
	uvm_rust_flash_touched(f->state, uvm_rust_mask(&all));
}

static void cancel_range(uvm_va_range_t *range)
{
	uvm_va_block_t *block;

	if (!static_branch_unlikely(&uvm_rust_flash_key))
		return;
	for_each_va_block_in_va_range(range, block) {
		uvm_mutex_lock(&block->lock);
		cancel_spill(block);
		uvm_mutex_unlock(&block->lock);
	}
}

/* --- functions of upstream's that are replaced ---------------------------------------------- */

NV_STATUS uvm_va_range_set_accessed_by__c(uvm_va_range_t *range, uvm_processor_id_t id, struct mm_struct *mm,
					  uvm_tracker_t *tracker);
void uvm_va_range_unset_accessed_by__c(uvm_va_range_t *range, uvm_processor_id_t id, uvm_tracker_t *tracker);
void uvm_va_block_remove_gpu_va_space__c(uvm_va_block_t *block, uvm_gpu_va_space_t *gpu_va_space,
					 uvm_va_block_context_t *context);
NV_STATUS uvm_va_block_check_logical_permissions__c(uvm_va_block_t *block, uvm_va_block_context_t *context,
						    uvm_processor_id_t id, uvm_page_index_t index,
						    uvm_fault_access_type_t access, bool allow_migration);
void uvm_perf_prefetch_get_hint_va_block__c(uvm_va_block_t *block, uvm_va_block_context_t *context,
					    uvm_processor_id_t new_residency, const uvm_page_mask_t *faulted,
					    uvm_va_block_region_t faulted_region,
					    uvm_perf_prefetch_bitmap_tree_t *tree, uvm_perf_prefetch_hint_t *hint);
NV_STATUS uvm_va_block_read_to_cpu__c(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_mem_t *dst,
				      NvU64 src, size_t size);

NV_STATUS uvm_va_range_set_accessed_by(uvm_va_range_t *range, uvm_processor_id_t id, struct mm_struct *mm,
				       uvm_tracker_t *tracker)
{
	NV_STATUS status = uvm_va_range_set_accessed_by__c(range, id, mm, tracker);

	cancel_range(range);
	return status;
}

void uvm_va_range_unset_accessed_by(uvm_va_range_t *range, uvm_processor_id_t id, uvm_tracker_t *tracker)
{
	cancel_range(range);
	uvm_va_range_unset_accessed_by__c(range, id, tracker);
}

void uvm_va_block_remove_gpu_va_space(uvm_va_block_t *block, uvm_gpu_va_space_t *gpu_va_space,
				      uvm_va_block_context_t *context)
{
	cancel_spill(block);
	uvm_va_block_remove_gpu_va_space__c(block, gpu_va_space, context);
}

/* A GPU's access to a page that is lost is as fatal as one to a page that it may not access. */
NV_STATUS uvm_va_block_check_logical_permissions(uvm_va_block_t *block, uvm_va_block_context_t *context,
						 uvm_processor_id_t id, uvm_page_index_t index,
						 uvm_fault_access_type_t access, bool allow_migration)
{
	uvm_page_mask_t lost;

	if (static_branch_unlikely(&uvm_rust_flash_key) && uvm_rust_flash_set(block, UVM_RUST_FLASH_LOST, &lost) &&
	    uvm_page_mask_test(&lost, index))
		return NV_ERR_INVALID_OPERATION;
	return uvm_va_block_check_logical_permissions__c(block, context, id, index, access, allow_migration);
}

/* Such pages are not brought along with others. */
void uvm_perf_prefetch_get_hint_va_block(uvm_va_block_t *block, uvm_va_block_context_t *context,
					 uvm_processor_id_t new_residency, const uvm_page_mask_t *faulted,
					 uvm_va_block_region_t faulted_region,
					 uvm_perf_prefetch_bitmap_tree_t *tree, uvm_perf_prefetch_hint_t *hint)
{
	uvm_page_mask_t lost;

	uvm_perf_prefetch_get_hint_va_block__c(block, context, new_residency, faulted, faulted_region, tree, hint);
	if (static_branch_unlikely(&uvm_rust_flash_key) && uvm_rust_flash_set(block, UVM_RUST_FLASH_LOST, &lost) &&
	    !uvm_page_mask_andnot(&hint->prefetch_pages_mask, &hint->prefetch_pages_mask, &lost))
		hint->residency = UVM_ID_INVALID;
}

/* The debugger's way to read memory, which takes what is resident nowhere for zeros. */
NV_STATUS uvm_va_block_read_to_cpu(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_mem_t *dst,
				   NvU64 src, size_t size)
{
	if (static_branch_unlikely(&uvm_rust_flash_key) && !uvm_va_block_is_hmm(block)) {
		uvm_page_mask_t page;
		NV_STATUS status;

		context->make_resident.dest_nid = NUMA_NO_NODE;
		uvm_page_mask_zero(&page);
		uvm_page_mask_set(&page, uvm_va_block_cpu_page_index(block, src));
		status = uvm_rust_flash_fetch(block, context, &page);
		if (status != NV_OK)
			return status;
	}
	return uvm_va_block_read_to_cpu__c(block, context, dst, src, size);
}

/* --- spilling --------------------------------------------------------------------------------- */

enum outcome {
	MOVED,		/* some pages left host memory */
	NOTHING,	/* there is nothing to move now; a later arrival queues it again */
	LATER,		/* something is in the way */
	NO_ROOM,	/* the device has none, or the process may have no more */
	FAILED,		/* the device took nothing of what it was given */
};

/* The block's state for this device, made if need be. Caller holds the block's lock. */
static bool have_state(struct uvm_rust_flash_block *f, struct uvm_rust_flash_dev *dev)
{
	/* Of a device that is gone, for which it holds nothing. */
	if (f->state && f->dev != dev && uvm_rust_flash_idle(f->state))
		drop_state(f);
	if (!f->state) {
		f->state = uvm_rust_flash_block_create(uvm_va_block_num_cpu_pages(f->block));
		if (!f->state)
			return false;
		kref_get(&dev->ref);
		f->dev = dev;
	}
	return f->dev == dev;
}

/* Drops what was discarded and is still there. Changes @pages to what is worth a write. */
static NV_STATUS drop_discarded(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block,
				uvm_va_block_context_t *context, uvm_page_mask_t *pages)
{
	uvm_page_mask_t none, stale;
	NV_STATUS status;

	uvm_page_mask_zero(&none);
	if (!block->uvm_rust ||
	    !uvm_rust_block_stale(block->uvm_rust, uvm_rust_mask(pages), uvm_rust_mask(&none),
				  uvm_rust_mask_out(&stale)))
		return NV_OK;
	status = uvm_rust_block_unmap_pages(block, context, &stale);
	if (status == NV_OK)
		status = uvm_tracker_wait(&block->tracker);
	if (status != NV_OK)
		return status;
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
		uvm_page_mask_andnot(pages, pages, uvm_va_block_resident_mask_get(block, id, NUMA_NO_NODE));
	if (wanted)
		uvm_page_mask_and(pages, pages, wanted);
}

/* With the block's and the VA space's lock held: has io->op begun if MOVED is returned. */
static enum outcome spill_begin(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block,
				uvm_va_block_context_t *context, const uvm_page_mask_t *wanted,
				struct uvm_rust_flash_io *io)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);
	const uvm_page_mask_t *begun = (const uvm_page_mask_t *)&io->mask;
	uvm_page_mask_t pages, none;
	NV_STATUS status;

	/* Where a fault is fatal, mappings must stay. */
	if (!uvm_processor_mask_empty(&va_space->non_faultable_processors) ||
	    !uvm_range_group_all_migratable(va_space, block->start, block->end))
		return NOTHING;
	spillable(block, wanted, &pages);
	if (uvm_page_mask_empty(&pages))
		return NOTHING;
	if (!have_state(f, dev))
		return LATER;
	do {
		status = drop_discarded(dev, block, context, &pages);
	} while (status == NV_ERR_MORE_PROCESSING_REQUIRED);
	if (status != NV_OK)
		return LATER;
	/* Unmapping may have dropped the lock. */
	spillable(block, wanted, &none);
	uvm_page_mask_and(&pages, &pages, &none);
	if (uvm_page_mask_empty(&pages))
		return MOVED;

	switch (uvm_rust_flash_begin_spill(dev->table, f->state, (u64)(uintptr_t)va_space, uvm_rust_mask(&pages),
					   &io->op, &io->mask, &io->pieces)) {
	case UVM_RUST_FLASH_BEGUN:
		break;
	case UVM_RUST_FLASH_NOTHING:
		return NOTHING;
	case UVM_RUST_FLASH_FULL:
	case UVM_RUST_FLASH_QUOTA:
		atomic64_inc(&dev->refused);
		return NO_ROOM;
	default:
		return LATER;
	}
	do {
		status = uvm_rust_block_unmap_pages(block, context, begun);
	} while (status == NV_ERR_MORE_PROCESSING_REQUIRED);
	/* A GPU may have been writing until now. */
	if (status == NV_OK)
		status = uvm_tracker_wait(&block->tracker);
	if (status == NV_OK && uvm_rust_flash_hold_pages(block, begun, io))
		return MOVED;
	uvm_page_mask_zero(&none);
	uvm_rust_flash_end_spill(dev->table, f->state, io->op, uvm_rust_mask(&none), uvm_rust_mask_out(&pages));
	return LATER;
}

/* With the block's lock held: @written is on the device. */
static enum outcome spill_end(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block,
			      struct uvm_rust_flash_io *io, uvm_page_mask_t *written)
{
	struct uvm_rust_flash_block *f = uvm_va_block_is_dead(block) ? NULL : uvm_rust_flash_of(block);
	uvm_page_mask_t still, moved;

	if (!f || f->dev != dev) {
		uvm_rust_flash_end_spill(dev->table, NULL, io->op, uvm_rust_mask(written), uvm_rust_mask_out(&moved));
		return NOTHING;
	}
	/* A copy out of the host's memory may be under way, and frees nothing before it has ended. */
	spillable(block, NULL, &still);
	if (uvm_tracker_wait(&block->tracker) != NV_OK)
		uvm_page_mask_zero(&still);
	uvm_page_mask_and(written, written, &still);
	uvm_page_mask_andnot(written, written, &block->maybe_mapped_pages);
	uvm_rust_flash_end_spill(dev->table, f->state, io->op, uvm_rust_mask(written), uvm_rust_mask_out(&moved));
	if (uvm_page_mask_empty(&moved))
		return LATER;
	uvm_rust_flash_left_host(block, &moved);
	uvm_rust_flash_note(block, false);
	atomic64_add((u64)uvm_page_mask_weight(&moved) * PAGE_SIZE, &dev->spilled);
	return MOVED;
}

/*
 * Writes what of @wanted (NULL: all) the block has in host memory. Caller holds a
 * reference on the block and no lock; or, with @locked, the VA space's lock in read mode.
 */
static enum outcome spill_block(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block,
				const uvm_page_mask_t *wanted, struct uvm_rust_flash_io *io, bool locked)
{
	uvm_va_block_context_t *context = uvm_va_block_context_alloc(NULL);
	uvm_va_space_t *va_space = NULL;
	enum outcome outcome = LATER;
	uvm_page_mask_t written;

	if (!context)
		return LATER;
	io->op = NULL;
	uvm_mutex_lock(&block->lock);
	if (uvm_va_block_is_dead(block) || !uvm_rust_flash_of(block)) {
		outcome = NOTHING;
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
	if (outcome != MOVED || !io->op)
		return outcome;

	uvm_rust_flash_write(dev, io, &written);
	uvm_rust_flash_release_pages(io);

	uvm_mutex_lock(&block->lock);
	outcome = spill_end(dev, block, io, &written);
	uvm_mutex_unlock(&block->lock);
	if (uvm_page_mask_empty(&written))
		outcome = FAILED;
	atomic_inc(&dev->progress);
	wake_up_all(&dev->wait);
	return outcome;
}

/* The block that is next, with a reference; moved to the end of the queue. */
static uvm_va_block_t *next_block(void)
{
	struct uvm_rust_flash_block *f;
	uvm_va_block_t *block = NULL;

	spin_lock(&queue_lock);
	f = list_first_entry_or_null(&queue, struct uvm_rust_flash_block, node);
	if (f) {
		list_move_tail(&f->node, &queue);
		/* It leaves the queue before it dies, but its last reference may be going now. */
		if (atomic_inc_not_zero(&f->block->kref.refcount))
			block = f->block;
	}
	spin_unlock(&queue_lock);
	return block;
}

static void set_aside(uvm_va_block_t *block)
{
	uvm_mutex_lock(&block->lock);
	if (!uvm_va_block_is_dead(block) && uvm_rust_flash_of(block)) {
		uvm_page_mask_t pages;

		/* It may have got some in the meantime. */
		spillable(block, NULL, &pages);
		if (uvm_page_mask_empty(&pages))
			dequeue(uvm_rust_flash_of(block));
	}
	uvm_mutex_unlock(&block->lock);
}

/* Gathers free space, some at a time. */
static void relocate(struct uvm_rust_flash_dev *dev, struct uvm_rust_flash_io *io)
{
	struct uvm_rust_flash_move move;
	u32 i;

	for (i = 0; i < 16; i++) {
		void *op = uvm_rust_flash_begin_move(dev->table, worker_count + 1, &move);
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

/* Nothing is to be had now: nobody is to wait for it. */
static void stall(struct uvm_rust_flash_dev *dev, bool failing)
{
	unsigned long rest = failing ? 2 * READ_ONCE(dev->rest) : 0;

	WRITE_ONCE(dev->rest, clamp_t(unsigned long, rest, HZ / 10, 10 * HZ));
	WRITE_ONCE(dev->stalled_at, jiffies);
	WRITE_ONCE(dev->stalled, true);
	wake_up_all(&dev->wait);
}

static void spill_work(struct worker *w)
{
	struct uvm_rust_flash_dev *dev = w->dev;
	u32 fruitless = 0, failed = 0;

	while (atomic64_read(&host_pages) > dev->host_low && READ_ONCE(flash_dev) == dev) {
		uvm_va_block_t *block;
		enum outcome outcome;

		/* All were looked at in vain, or the device is at fault. */
		if (fruitless > READ_ONCE(queue_length) || failed > 2 || uvm_global_get_status() != NV_OK)
			break;
		block = next_block();
		if (!block) {
			fruitless++;
			continue;
		}
		/* Suspend comes first; it may be waiting for one who waits for us. */
		if (!uvm_down_read_trylock(&g_uvm_global.pm.lock)) {
			uvm_va_block_release(block);
			break;
		}
		atomic_inc(&dev->active);
		outcome = spill_block(dev, block, NULL, w->io, false);
		atomic_dec(&dev->active);
		if (outcome == NOTHING)
			set_aside(block);
		uvm_up_read(&g_uvm_global.pm.lock);
		uvm_va_block_release(block);
		if (outcome == NO_ROOM)
			relocate(dev, w->io);
		if (outcome == FAILED)
			failed++;
		if (outcome == MOVED) {
			fruitless = 0;
			failed = 0;
			WRITE_ONCE(dev->stalled, false);
		}
		else {
			fruitless++;
		}
		relocate(dev, w->io);
		cond_resched();
	}
	/* If others are still at it, they will find out. */
	if (atomic64_read(&host_pages) > dev->host_low && fruitless && !atomic_read(&dev->active))
		stall(dev, failed > 0);
}

static void spill_work_entry(struct work_struct *work)
{
	struct worker *w = container_of(work, struct worker, work);

	UVM_ENTRY_VOID(spill_work(w));
}

/* --- attaching ----------------------------------------------------------------------------------- */

static void stop_workers(void)
{
	u32 i, count;

	spin_lock(&queue_lock);
	count = worker_count;
	worker_count = 0;
	spin_unlock(&queue_lock);
	if (workers)
		destroy_workqueue(workers);
	workers = NULL;
	for (i = 0; i < count; i++)
		uvm_rust_flash_io_free(worker_array[i].io);
	kfree(worker_array);
	worker_array = NULL;
}

static int start_workers(struct uvm_rust_flash_dev *dev)
{
	u32 count = clamp(uvm_rust_flash_depth, 1U, 64U);
	u32 i;

	workers = alloc_workqueue("uvm-rust-flash", WQ_UNBOUND | WQ_FREEZABLE, count);
	worker_array = kcalloc(count, sizeof(*worker_array), GFP_KERNEL);
	if (!workers || !worker_array) {
		stop_workers();
		return -ENOMEM;
	}
	for (i = 0; i < count; i++) {
		struct worker *w = &worker_array[i];

		INIT_WORK(&w->work, spill_work_entry);
		w->dev = dev;
		w->io = uvm_rust_flash_io_alloc(true);
		worker_count = i + 1;
		if (!w->io) {
			stop_workers();
			return -ENOMEM;
		}
	}
	return 0;
}

static int attach_locked(const struct uvm_rust_flash_attach *attach, const char *path)
{
	struct uvm_rust_flash_dev *dev;
	int ret;

	if (flash_dev || leaving_dev)
		return -EEXIST;
	dev = uvm_rust_flash_open(path, attach->flags & UVM_RUST_FLASH_FORCE,
				  !(attach->flags & UVM_RUST_FLASH_NO_CHECKSUMS), attach->quota_bytes);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	dev->host_limit = max_t(u64, attach->host_bytes / PAGE_SIZE, 1);
	dev->host_low = dev->host_limit - dev->host_limit / 8;
	ret = start_workers(dev);
	if (ret) {
		uvm_rust_flash_put(dev);
		return ret;
	}
	atomic64_set(&host_peak, atomic64_read(&host_pages));
	spin_lock(&queue_lock);
	flash_dev = dev;
	spin_unlock(&queue_lock);
	kick();
	pr_info("nvidia-uvm: flash: attached %s\n", path);
	return 0;
}

int uvm_seam_flash_attach(const struct uvm_rust_flash_attach *attach)
{
	char *path;
	int ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	path = strndup_user((const char __user *)(uintptr_t)attach->path, PATH_MAX);
	if (IS_ERR(path))
		return PTR_ERR(path);
	down_write(&attach_lock);
	ret = attach_locked(attach, path);
	up_write(&attach_lock);
	kfree(path);
	return ret;
}

/* --- detaching ----------------------------------------------------------------------------------- */

/* A block that this detaching has not seen yet, with a reference. */
static uvm_va_block_t *next_unseen(u32 detaching)
{
	struct uvm_rust_flash_block *f;
	uvm_va_block_t *block = NULL;

	spin_lock(&queue_lock);
	/* Those that were seen are at the end. */
	while (!block) {
		f = list_first_entry_or_null(&all_blocks, struct uvm_rust_flash_block, all);
		if (!f || f->seen == detaching)
			break;
		f->seen = detaching;
		list_move_tail(&f->all, &all_blocks);
		if (atomic_inc_not_zero(&f->block->kref.refcount))
			block = f->block;
	}
	spin_unlock(&queue_lock);
	return block;
}

/* Caller holds the block's lock. */
static void bring_back(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	uvm_va_block_context_t *context = uvm_va_block_context_alloc(NULL);
	uvm_page_mask_t pages;
	NV_STATUS status;

	if (!context)
		return;
	context->make_resident.dest_nid = NUMA_NO_NODE;
	do {
		uvm_rust_flash_set(block, UVM_RUST_FLASH_ON_FLASH, &pages);
		status = uvm_rust_flash_fetch(block, context, &pages);
	} while (status == NV_ERR_MORE_PROCESSING_REQUIRED && !fatal_signal_pending(current));
	uvm_va_block_context_free(context);
	if (status == NV_OK && uvm_rust_flash_idle(f->state))
		drop_state(f);
}

/* Brings what the block has on @dev to host memory. Caller has a reference on it. */
static void drain_block(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block)
{
	u32 tries;

	for (tries = 0; tries < 1000; tries++) {
		struct uvm_rust_flash_block *f;
		uvm_va_space_t *va_space = NULL;
		bool done = false;

		uvm_mutex_lock(&block->lock);
		f = uvm_va_block_is_dead(block) ? NULL : uvm_rust_flash_of(block);
		if (!f || f->dev != dev) {
			done = true;
		}
		else {
			va_space = uvm_va_block_get_va_space(block);
			if (!uvm_down_read_trylock(&va_space->lock))
				va_space = NULL;
		}
		if (va_space) {
			bring_back(block);
			done = true;
		}
		uvm_mutex_unlock(&block->lock);
		if (va_space)
			uvm_up_read(&va_space->lock);
		if (done || fatal_signal_pending(current))
			return;
		/* Somebody writes to the VA space. */
		usleep_range(100, 1000);
	}
}

static int detach_locked(void)
{
	static u32 detaching;
	struct uvm_rust_flash_usage usage;
	struct uvm_rust_flash_dev *dev;
	uvm_va_block_t *block;

	if (flash_dev) {
		spin_lock(&queue_lock);
		leaving_dev = flash_dev;
		WRITE_ONCE(flash_dev, NULL);
		spin_unlock(&queue_lock);
		stop_workers();
	}
	dev = leaving_dev;
	if (!dev)
		return -ENODEV;
	WRITE_ONCE(dev->stalled, true);
	wake_up_all(&dev->wait);

	detaching++;
	while ((block = next_unseen(detaching))) {
		drain_block(dev, block);
		uvm_va_block_release(block);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	uvm_rust_flash_usage(dev->table, &usage);
	if (usage.pages)
		return -EBUSY;
	uvm_rust_flash_close(dev);
	leaving_dev = NULL;
	uvm_rust_flash_put(dev);
	pr_info("nvidia-uvm: flash: detached\n");
	return 0;
}

int uvm_seam_flash_detach(void)
{
	int ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	down_write(&attach_lock);
	ret = detach_locked();
	up_write(&attach_lock);
	return ret;
}

/* --- moving a range --------------------------------------------------------------------------------- */

struct move_request {
	struct uvm_rust_flash_dev *dev;
	struct uvm_rust_flash_io *io;
	uvm_va_block_context_t *context;
	bool to_host;
};

static NV_STATUS move_block(struct move_request *request, uvm_va_block_t *block, NvU64 from, NvU64 to)
{
	uvm_page_mask_t pages;

	uvm_page_mask_init_from_region(&pages, uvm_va_block_region_from_start_end(block, from, to), NULL);
	if (request->to_host)
		return UVM_VA_BLOCK_LOCK_RETRY(block, NULL, uvm_rust_flash_fetch(block, request->context, &pages));
	if (spill_block(request->dev, block, &pages, request->io, true) == NO_ROOM)
		relocate(request->dev, request->io);
	return NV_OK;
}

static NV_STATUS move_range(struct move_request *request, uvm_va_range_t *range, NvU64 start, NvU64 end)
{
	size_t last = uvm_va_range_block_index(range, end);
	NV_STATUS status = NV_OK;
	size_t i;

	for (i = uvm_va_range_block_index(range, start); i <= last && status == NV_OK; i++) {
		uvm_va_block_t *block = uvm_va_range_block(range, i);

		if (fatal_signal_pending(current))
			return NV_ERR_SIGNAL_PENDING;
		if (block)
			status = move_block(request, block, max(start, block->start), min(end, block->end));
		cond_resched();
	}
	return status;
}

static NV_STATUS move_locked(struct move_request *request, uvm_va_space_t *va_space, struct mm_struct *mm,
			     NvU64 base, NvU64 length)
{
	NvU64 end = base + length - 1;
	uvm_va_range_t *range;
	NV_STATUS status = NV_OK;

	if (uvm_api_range_type_check(va_space, mm, base, length) != UVM_API_RANGE_TYPE_MANAGED)
		return NV_ERR_INVALID_ADDRESS;
	request->context = uvm_va_block_context_alloc(mm);
	if (!request->context)
		return NV_ERR_NO_MEMORY;
	request->context->make_resident.dest_nid = NUMA_NO_NODE;
	uvm_for_each_va_range_in_contig(range, va_space, base, end) {
		status = move_range(request, range, max(base, range->node.start), min(end, range->node.end));
		if (status != NV_OK)
			break;
	}
	uvm_va_block_context_free(request->context);
	return status;
}

static int move_attached(struct uvm_rust_flash_dev *dev, uvm_va_space_t *va_space, NvU64 base, NvU64 length,
			 bool to_host)
{
	struct move_request request = { .dev = dev, .to_host = to_host };
	struct mm_struct *mm;
	NV_STATUS status;

	request.io = uvm_rust_flash_io_alloc(true);
	if (!request.io)
		return -ENOMEM;
	mm = uvm_va_space_mm_or_current_retain_lock(va_space);
	uvm_va_space_down_read(va_space);
	status = move_locked(&request, va_space, mm, base, length);
	uvm_va_space_up_read(va_space);
	uvm_va_space_mm_or_current_release_unlock(va_space, mm);
	uvm_rust_flash_io_free(request.io);

	switch (status) {
	case NV_OK:
		return 0;
	case NV_ERR_INVALID_ADDRESS:
		return -ENXIO;
	case NV_ERR_NO_MEMORY:
		return -ENOMEM;
	case NV_ERR_SIGNAL_PENDING:
		return -EINTR;
	default:
		return -EIO;
	}
}

int uvm_seam_flash_move(struct uvm_seam_space *space, __u64 base, __u64 length, bool to_host)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	int ret = -ENODEV;

	if (uvm_api_range_invalid(base, length))
		return -ENXIO;
	down_read(&attach_lock);
	if (flash_dev)
		ret = move_attached(flash_dev, va_space, base, length, to_host);
	up_read(&attach_lock);
	return ret;
}

/* --- statistics, and the module's life ----------------------------------------------------------------- */

void uvm_seam_flash_stats(struct uvm_seam_space *space, struct uvm_rust_flash_stats *stats)
{
	struct uvm_rust_flash_usage usage;
	struct uvm_rust_flash_dev *dev;

	down_read(&attach_lock);
	dev = flash_dev ? flash_dev : leaving_dev;
	if (dev) {
		uvm_rust_flash_usage(dev->table, &usage);
		stats->attached = flash_dev != NULL;
		stats->slots = usage.slots;
		stats->free_slots = usage.free_slots;
		stats->extents = usage.extents;
		stats->pages = usage.pages;
		stats->pages_mine = space ? uvm_rust_flash_held(dev->table, (u64)(uintptr_t)space) : 0;
		stats->host_pages = atomic64_read(&host_pages);
		stats->host_peak = atomic64_read(&host_peak);
		stats->written = atomic64_read(&dev->written);
		stats->spilled = atomic64_read(&dev->spilled);
		stats->fetched = atomic64_read(&dev->fetched);
		stats->relocated = atomic64_read(&dev->relocated);
		stats->dropped = atomic64_read(&dev->dropped);
		stats->write_errors = atomic64_read(&dev->write_errors);
		stats->read_errors = atomic64_read(&dev->read_errors);
		stats->lost_pages = atomic64_read(&dev->lost_pages);
		stats->refused = atomic64_read(&dev->refused);
	}
	up_read(&attach_lock);
}

bool uvm_seam_flash_enabled(void)
{
	return uvm_rust_flash;
}

void uvm_rust_flash_init(void)
{
	if (uvm_rust_flash)
		static_branch_enable(&uvm_rust_flash_key);
}

void uvm_rust_flash_exit(void)
{
	struct uvm_rust_flash_dev *dev = flash_dev ? flash_dev : leaving_dev;

	spin_lock(&queue_lock);
	WRITE_ONCE(flash_dev, NULL);
	spin_unlock(&queue_lock);
	leaving_dev = NULL;
	stop_workers();
	if (dev)
		uvm_rust_flash_put(dev);
}
