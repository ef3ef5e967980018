/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Functions of uvm_va_block.c's whose arguments differ. Its file includes this one in front of it.
 */
#ifndef UVM_RUST_ON_BLOCK_H
#define UVM_RUST_ON_BLOCK_H

#include "uvm_va_block.h"

static void uvm_va_block_cpu_clear_resident_mask(uvm_va_block_t *va_block, int nid, const uvm_page_mask_t *mask);

static inline void uvm_rust_drop_cpu_residency(uvm_va_block_t *block, const uvm_page_mask_t *drop)
{
	int nid;

	for_each_possible_uvm_node(nid)
		uvm_va_block_cpu_clear_resident_mask(block, nid, drop);
}

/* What upstream's functions take as well from 550 on. */
#define UVM_RUST_CONTEXT(...)

#endif
