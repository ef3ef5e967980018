/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How pages of the host's are populated for what comes from elsewhere than upstream's moves. Only for
 * uvm_rust_flash_block.h.
 *
 * The context of a move names those of its pages that upstream's own discard has taken: what is populated for them
 * is zeroed, as they are not copied. None of ours is one of these; outside of a move there is what the memory held.
 */
static NV_STATUS uvm_rust_populate_for_data(uvm_va_block_t *block, uvm_page_mask_t *pages,
					    uvm_va_block_region_t region, uvm_va_block_context_t *context)
{
	uvm_page_mask_t discarded __uninitialized;
	NV_STATUS status;

	uvm_page_mask_copy(&discarded, &context->discard.discarded_pages);
	uvm_page_mask_zero(&context->discard.discarded_pages);
	status = uvm_rust_populate_pages_cpu(block, pages, region, context);
	uvm_page_mask_copy(&context->discard.discarded_pages, &discarded);
	return status;
}
