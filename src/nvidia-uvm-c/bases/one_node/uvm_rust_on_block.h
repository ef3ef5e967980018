/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Functions of uvm_va_block.c's whose arguments differ. Its file includes this one in front of it.
 */
#ifndef UVM_RUST_ON_BLOCK_H
#define UVM_RUST_ON_BLOCK_H

#include "uvm_va_block.h"

static inline void uvm_rust_drop_cpu_residency(uvm_va_block_t *block, const uvm_page_mask_t *drop)
{
	uvm_page_mask_andnot(&block->cpu.resident, &block->cpu.resident, drop);
}

#define UVM_RUST_CONTEXT(...)

#endif
