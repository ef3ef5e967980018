// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier's calls: what Rust, which attaches, detaches and moves (ffi/flash/attach.rs, policy/flash/moves.rs),
 * asks of upstream; and the module's life.
 */
#include <linux/sched/signal.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_flash.h"

static bool uvm_rust_flash;
module_param(uvm_rust_flash, bool, 0444);
MODULE_PARM_DESC(uvm_rust_flash, "Offer an SSD tier behind host memory; a device is attached by ioctl (default 0)");

/* Written to by attaching and detaching; outside all other locks but a tenant's turn. */
DECLARE_RWSEM(uvm_rust_flash_attach_lock);

struct uvm_rust_tier *uvm_rust_tier;

/* --- detaching ----------------------------------------------------------------------------------- */

u32 uvm_seam_flash_progress(struct uvm_seam_flash_dev *dev)
{
	return atomic_read(&dev->progress);
}

void uvm_seam_flash_wait(struct uvm_seam_flash_dev *dev, u32 progress)
{
	wait_event_timeout(dev->wait, atomic_read(&dev->progress) != progress, HZ);
}

/* --- moving a range --------------------------------------------------------------------------------- */

struct mm_struct *uvm_seam_flash_enter_space(struct uvm_seam_space *space)
{
	struct mm_struct *mm = uvm_va_space_mm_or_current_retain_lock((uvm_va_space_t *)space);

	uvm_va_space_down_read((uvm_va_space_t *)space);
	return mm;
}

void uvm_seam_flash_exit_space(struct uvm_seam_space *space, struct mm_struct *mm)
{
	uvm_va_space_up_read((uvm_va_space_t *)space);
	uvm_va_space_mm_or_current_release_unlock((uvm_va_space_t *)space, mm);
}

bool uvm_seam_flash_is_managed(struct uvm_seam_space *space, struct mm_struct *mm, __u64 base, __u64 length)
{
	return uvm_api_range_type_check((uvm_va_space_t *)space, mm, base, length) == UVM_API_RANGE_TYPE_MANAGED;
}

uvm_va_block_t *uvm_seam_flash_next_block(struct uvm_seam_space *space, __u64 *start, __u64 end,
					  struct uvm_rust_mask *pages)
{
	uvm_va_range_t *range;

	uvm_for_each_va_range_in_contig(range, (uvm_va_space_t *)space, *start, end) {
		NvU64 first = max_t(NvU64, *start, range->node.start);
		NvU64 last = min_t(NvU64, end, range->node.end);
		size_t i;

		for (i = uvm_va_range_block_index(range, first); i <= uvm_va_range_block_index(range, last); i++) {
			uvm_va_block_t *block = uvm_va_range_block(range, i);

			if (!block)
				continue;
			*start = block->end + 1;
			uvm_page_mask_init_from_region((uvm_page_mask_t *)pages,
						       uvm_va_block_region_from_start_end(block, max(first, block->start),
											  min(last, block->end)), NULL);
			return block;
		}
	}
	return NULL;
}

bool uvm_seam_flash_suspends(void)
{
	return rwsem_is_contended(&g_uvm_global.pm.lock.sem);
}

bool uvm_seam_flash_nap(u32 ms)
{
	return msleep_interruptible(ms) && signal_pending(current);
}

bool uvm_seam_flash_take_turn(struct uvm_rust_flash_owner *owner)
{
	return mutex_lock_interruptible(&owner->moving) == 0;
}

void uvm_seam_flash_end_turn(struct uvm_rust_flash_owner *owner)
{
	mutex_unlock(&owner->moving);
}

struct uvm_rust_owner *uvm_seam_flash_owner_of(struct uvm_seam_space *space)
{
	return uvm_rust_flash_owner_of((uvm_va_space_t *)space)->rust;
}

/* --- the module's life ---------------------------------------------------------------------------------- */

bool uvm_seam_flash_enabled(void)
{
	return uvm_rust_tier;
}

void uvm_rust_flash_init(void)
{
	if (uvm_rust_flash)
		uvm_rust_tier = uvm_rust_tier_create();
	if (!uvm_rust_tier)
		return;
	if (uvm_rust_flash_park_init())
		pr_warn("nvidia-uvm: flash: no memory: GPU faults wait for the device by themselves\n");
	static_branch_enable(&uvm_rust_flash_key);
}

void uvm_rust_flash_exit(void)
{
	if (!uvm_rust_tier)
		return;
	uvm_rust_flash_let_go();
	uvm_rust_flash_park_exit();
	uvm_rust_tier_destroy(uvm_rust_tier);
	uvm_rust_tier = NULL;
}
