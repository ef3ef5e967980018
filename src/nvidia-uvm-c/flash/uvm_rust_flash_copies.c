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

NV_STATUS uvm_rust_flash_drop_copied(struct uvm_seam_flash_dev *dev, uvm_va_block_t *block,
				     uvm_va_block_context_t *context, uvm_page_mask_t *pages)
{
	uvm_page_mask_t clean;
	NV_STATUS status;

	if (!uvm_rust_flash_set(block, UVM_RUST_FLASH_COPIES, &clean) ||
	    !uvm_page_mask_and(&clean, &clean, pages) || !uvm_rust_flash_is_sound(dev))
		return NV_OK;
	status = uvm_rust_flash_unmap(block, context, &clean);
	if (status != NV_OK)
		return status;
	uvm_rust_flash_leave_held(block, &clean);
	if (!uvm_rust_flash_drop_clean(uvm_rust_flash_of(block), uvm_rust_mask(&clean), uvm_rust_mask_out(&clean)))
		return NV_OK;
	uvm_rust_flash_left_host(block, &clean);
	uvm_page_mask_andnot(pages, pages, &clean);
	atomic64_add((u64)uvm_page_mask_weight(&clean) * PAGE_SIZE, &dev->unwritten);
	return NV_OK;
}

bool uvm_rust_flash_give_up_copies(struct uvm_seam_flash_dev *dev, uvm_va_block_t *of)
{
	uvm_va_block_t *block;
	u64 tenant = 0;
	u32 pages = 0;

	if (of) {
		uvm_mutex_lock(&of->lock);
		tenant = uvm_rust_flash_block_tenant(uvm_rust_flash_of(of));
		uvm_mutex_unlock(&of->lock);
	}
	while (pages < FLASH_SLOT_PAGES && (block = (uvm_va_block_t *)uvm_rust_tier_copies(uvm_rust_tier, tenant))) {
		uvm_mutex_lock(&block->lock);
		if (!uvm_va_block_is_dead(block) && uvm_rust_flash_block_is_on(uvm_rust_flash_of(block), dev))
			pages += uvm_rust_flash_give_up(uvm_rust_flash_of(block));
		uvm_mutex_unlock(&block->lock);
		uvm_va_block_release(block);
	}
	return pages > 0;
}
