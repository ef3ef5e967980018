// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier's workers, which write those pages to the device that have been longest in
 * host memory, when there are too many: what Rust, which decides (policy/flash/spill.rs), asks of
 * upstream and of the kernel; and their life.
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

uint uvm_rust_flash_depth = 4;
module_param(uvm_rust_flash_depth, uint, 0444);
MODULE_PARM_DESC(uvm_rust_flash_depth, "How many va_blocks are written at the same time, 1 to 64 (default 4)");

uint uvm_rust_flash_share = 100;
module_param(uvm_rust_flash_share, uint, 0644);
MODULE_PARM_DESC(uvm_rust_flash_share,
		 "Percent of the time that each worker writes, 1 to 100, to leave the device to others (default 100)");

/* While a device is attached. */
static struct workqueue_struct *workers;
struct worker {
	struct work_struct work;
	struct uvm_seam_flash_dev *dev;
	struct uvm_seam_flash_io *io;
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

/* --- spilling: a va_block ---------------------------------------------------------------- */

void uvm_seam_va_block_put(uvm_va_block_t *block)
{
	uvm_va_block_release(block);
}

void uvm_seam_va_block_lock(uvm_va_block_t *block)
{
	uvm_mutex_lock(&block->lock);
}

void uvm_seam_va_block_unlock(uvm_va_block_t *block)
{
	uvm_mutex_unlock(&block->lock);
}

struct uvm_rust_flash_block *uvm_seam_va_block_flash(uvm_va_block_t *block)
{
	return uvm_va_block_is_dead(block) ? NULL : uvm_rust_flash_of(block);
}

struct uvm_seam_space *uvm_seam_va_block_try_space(uvm_va_block_t *block)
{
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);

	return uvm_down_read_trylock(&va_space->lock) ? (struct uvm_seam_space *)va_space : NULL;
}

void uvm_seam_flash_leave_space(struct uvm_seam_space *space)
{
	uvm_up_read(&((uvm_va_space_t *)space)->lock);
}

struct uvm_seam_context *uvm_seam_context_new(struct mm_struct *mm)
{
	uvm_va_block_context_t *context = uvm_va_block_context_alloc(mm);

	if (context)
		uvm_rust_on_any_node(context);
	return (struct uvm_seam_context *)context;
}

void uvm_seam_context_free(struct uvm_seam_context *context)
{
	uvm_va_block_context_free((uvm_va_block_context_t *)context);
}

bool uvm_seam_flash_may_spill(uvm_va_block_t *block)
{
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);

	return !uvm_rust_has_non_faultable(va_space) &&
	       uvm_range_group_all_migratable(va_space, block->start, block->end);
}

void uvm_seam_flash_look(uvm_va_block_t *block, struct uvm_seam_flash_facts *facts)
{
	uvm_page_mask_t *only_host = (uvm_page_mask_t *)&facts->only_host;
	uvm_gpu_id_t id;

	uvm_page_mask_andnot(only_host, &block->cpu.resident, &block->read_duplicated_pages);
	for_each_gpu_id_in_mask(id, &block->resident)
		uvm_page_mask_andnot(only_host, only_host, uvm_rust_resident_mask(block, id));
	uvm_page_mask_copy((uvm_page_mask_t *)&facts->mapped, &block->maybe_mapped_pages);
	facts->has_unused = !uvm_page_mask_subset(&block->cpu.allocated, &block->cpu.resident);
}

bool uvm_seam_flash_use(uvm_va_block_t *block, struct uvm_seam_flash_dev *dev)
{
	struct mem_cgroup *before = uvm_rust_flash_charge(uvm_va_block_get_va_space(block));
	bool used = uvm_rust_flash_block_use(uvm_rust_flash_of(block), dev, uvm_va_block_num_cpu_pages(block));

	uvm_rust_flash_uncharge(before);
	return used;
}

bool uvm_seam_flash_wait_gpus(uvm_va_block_t *block)
{
	return uvm_tracker_wait(&block->tracker) == NV_OK;
}

void uvm_seam_flash_stale(uvm_va_block_t *block, const struct uvm_rust_mask *pages, struct uvm_rust_mask *out)
{
	struct uvm_rust_mask none = {};

	if (block->uvm_rust)
		uvm_rust_block_stale(block->uvm_rust, pages, &none, out);
}

void uvm_seam_flash_dropped(uvm_va_block_t *block, const struct uvm_rust_mask *pages)
{
	uvm_rust_block_dropped(block->uvm_rust, pages);
}

/* --- spilling: the worker ---------------------------------------------------------------- */

bool uvm_seam_flash_enter(void)
{
	return uvm_down_read_trylock(&g_uvm_global.pm.lock);
}

void uvm_seam_flash_leave(void)
{
	uvm_up_read(&g_uvm_global.pm.lock);
}

void uvm_seam_flash_tell(struct uvm_seam_flash_dev *dev, bool ended)
{
	if (ended)
		atomic_inc(&dev->progress);
	wake_up_all(&dev->wait);
}

u64 uvm_seam_flash_now_us(void)
{
	return ktime_to_us(ktime_get());
}

void uvm_seam_flash_sleep(u64 us)
{
	fsleep(us);
}

static void spill_work_entry(struct work_struct *work)
{
	struct worker *w = container_of(work, struct worker, work);

	UVM_ENTRY_VOID(uvm_rust_flash_work(w->dev, w->io));
}

void uvm_seam_flash_stop_workers(void)
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

int uvm_seam_flash_start_workers(struct uvm_seam_flash_dev *dev, u32 count)
{
	u32 i;

	workers = alloc_workqueue("uvm-rust-flash", WQ_UNBOUND | WQ_FREEZABLE, count);
	worker_array = kcalloc(count, sizeof(*worker_array), GFP_KERNEL);
	if (!workers || !worker_array) {
		uvm_seam_flash_stop_workers();
		return -ENOMEM;
	}
	static_branch_enable(&uvm_rust_flash_used_key);
	for (i = 0; i < count; i++) {
		struct worker *w = &worker_array[i];

		INIT_WORK(&w->work, spill_work_entry);
		w->dev = dev;
		w->io = uvm_rust_flash_io_alloc(true, false);
		worker_count = i + 1;
		if (!w->io) {
			uvm_seam_flash_stop_workers();
			return -ENOMEM;
		}
	}
	return 0;
}
