/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Functions of uvm_va_block.c's whose arguments differ. Its file includes this one in front of it.
 */
#ifndef UVM_RUST_ON_BLOCK_H
#define UVM_RUST_ON_BLOCK_H

#include "uvm_va_block.h"

static NV_STATUS block_populate_pages_cpu(uvm_va_block_t *block, uvm_page_mask_t *pages, uvm_va_block_region_t region,
					  uvm_va_block_context_t *context);
#define uvm_rust_populate_pages_cpu	block_populate_pages_cpu

static inline void uvm_rust_drop_cpu_residency(uvm_va_block_t *block, const uvm_page_mask_t *drop)
{
	uvm_page_mask_andnot(&block->cpu.resident, &block->cpu.resident, drop);
}

#define UVM_RUST_CONTEXT(...)

#endif
