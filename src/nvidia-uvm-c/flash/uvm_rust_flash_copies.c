// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: pages that are in memory, and on flash as well.
 *
 * What is fetched into read-mostly memory keeps its place on flash while nobody may have
 * written to it, and need not be written when it leaves the host again. All mappings are
 * made by uvm_va_block_map(), in front of which uvm_rust_flash_block.h gives copies up of
 * what is mapped for writing.
 */
#include "uvm_common.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_flash.h"

void uvm_rust_flash_note_copies(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	uvm_page_mask_t copies;

	if (!uvm_rust_flash_set(block, UVM_RUST_FLASH_COPIES, &copies))
		return;
	spin_lock(&uvm_rust_tier.lock);
	if (list_empty(&f->copies))
		list_add_tail(&f->copies, &uvm_rust_tier.copies);
	spin_unlock(&uvm_rust_tier.lock);
}

NV_STATUS uvm_rust_flash_drop_copied(struct uvm_rust_flash_dev *dev, uvm_va_block_t *block,
				     uvm_va_block_context_t *context, uvm_page_mask_t *pages)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	uvm_page_mask_t clean;
	NV_STATUS status;

	if (!uvm_rust_flash_set(block, UVM_RUST_FLASH_COPIES, &clean) ||
	    !uvm_page_mask_and(&clean, &clean, pages) || !uvm_rust_flash_is_sound(dev))
		return NV_OK;
	status = uvm_rust_flash_unmap(block, context, &clean);
	if (status != NV_OK)
		return status;
	uvm_rust_flash_leave_held(block, &clean);
	if (!uvm_rust_flash_drop_clean(f->state, uvm_rust_mask(&clean), uvm_rust_mask_out(&clean)))
		return NV_OK;
	uvm_rust_flash_left_host(block, &clean);
	uvm_page_mask_andnot(pages, pages, &clean);
	atomic64_add((u64)uvm_page_mask_weight(&clean) * PAGE_SIZE, &dev->unwritten);
	return NV_OK;
}

/* A block that may have copies, of @tenant or, if that is 0, of anybody; taken from the list, with a reference. */
static uvm_va_block_t *next_with_copies(u64 tenant)
{
	struct uvm_rust_flash_block *f, *next;
	uvm_va_block_t *block = NULL;
	u32 looks = 256;

	spin_lock(&uvm_rust_tier.lock);
	list_for_each_entry_safe(f, next, &uvm_rust_tier.copies, copies) {
		if (block || !looks--)
			break;
		if (tenant && READ_ONCE(f->tenant) != tenant) {
			list_move_tail(&f->copies, &uvm_rust_tier.copies);
			continue;
		}
		list_del_init(&f->copies);
		if (atomic_inc_not_zero(&f->block->kref.refcount))
			block = f->block;
	}
	spin_unlock(&uvm_rust_tier.lock);
	return block;
}

static u64 tenant_of(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f;
	u64 tenant = 0;

	uvm_mutex_lock(&block->lock);
	f = uvm_rust_flash_of(block);
	if (f)
		tenant = f->tenant;
	uvm_mutex_unlock(&block->lock);
	return tenant;
}

u32 uvm_rust_flash_give_up_block(uvm_va_block_t *block)
{
	uvm_page_mask_t copies;

	if (!uvm_rust_flash_set(block, UVM_RUST_FLASH_COPIES, &copies))
		return 0;
	uvm_rust_flash_may_be_written(block, &copies);
	return uvm_page_mask_weight(&copies);
}

bool uvm_rust_flash_give_up_copies(struct uvm_rust_flash_dev *dev, uvm_va_block_t *of)
{
	u64 tenant = of ? tenant_of(of) : 0;
	uvm_va_block_t *block;
	u32 pages = 0;

	while (pages < FLASH_SLOT_PAGES && (block = next_with_copies(tenant))) {
		uvm_mutex_lock(&block->lock);
		if (!uvm_va_block_is_dead(block) && uvm_rust_flash_of(block) && uvm_rust_flash_of(block)->dev == dev)
			pages += uvm_rust_flash_give_up_block(block);
		uvm_mutex_unlock(&block->lock);
		uvm_va_block_release(block);
	}
	return pages > 0;
}
