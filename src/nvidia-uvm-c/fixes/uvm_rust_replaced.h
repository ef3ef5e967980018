/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_hmm.c: managed memory that is mapped over ordinary memory which a GPU has used.
 *
 * mmap() with MAP_FIXED ends what was there. Linux unmaps its pages and frees its page tables, tells the va_blocks of that, and then
 * calls the driver. Since 6.12 the VMA is still found while the driver runs, although it is freed next. Upstream brings what is left of the va_blocks to
 * the host, and has Linux migrate in this VMA: Linux fills each hole of it with a new page. These pages then lie in the
 * managed memory, where no GPU's write reaches them, and lead to the VMA that was freed.
 */
#ifndef UVM_RUST_REPLACED_H
#define UVM_RUST_REPLACED_H

#include <linux/mm.h>

#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_fixes.h"

#if UVM_IS_CONFIG_HMM()
/*
 * The VMA from @addr on out of which @va_block's pages go to the host, before a range of UVM's takes its place; NULL if none. Where that
 * range is being mapped they have gone, on each Linux. Caller holds the VA space's lock for writing, as uvm_rust_maps needs, and mmap_lock of @mm.
 */
static inline struct vm_area_struct *uvm_rust_brings_from(uvm_va_block_t *va_block, struct mm_struct *mm, NvU64 addr)
{
	if (uvm_rust_fix_replaced && va_block->hmm.va_space->uvm_rust_maps)
		return NULL;
	return find_vma_intersection(mm, addr, va_block->end);
}
#endif

#endif
