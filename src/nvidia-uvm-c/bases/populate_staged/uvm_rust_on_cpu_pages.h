/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How uvm_va_block.c, whose file includes this one in front of it, populates pages of the host's. Only for uvm_rust_va_block.h.
 */
static NV_STATUS block_populate_pages_cpu(uvm_va_block_t *block, const uvm_page_mask_t *pages,
					  uvm_va_block_region_t region, uvm_va_block_context_t *context, bool staged);
#define uvm_rust_populate_pages_cpu(block, pages, region, context)	\
	block_populate_pages_cpu(block, pages, region, context, false)
