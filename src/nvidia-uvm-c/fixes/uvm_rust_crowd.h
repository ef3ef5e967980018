/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c: ordinary memory that Linux would take long to isolate is used where it is (uvm_rust_crowd.c), as upstream
 * uses a mapped file.
 */
#ifndef UVM_RUST_CROWD_H
#define UVM_RUST_CROWD_H

#include <linux/minmax.h>
#include <linux/mm.h>

#include "uvm_hmm.h"
#include "uvm_va_block.h"

#include "uvm_rust_files.h"

/* What upstream hands over: the VMA, or in 535 what names it. */
#define uvm_rust_vma_in(of)										\
	_Generic((of), struct vm_area_struct *: (of),							\
		 uvm_va_block_context_t *: ((uvm_va_block_context_t *)(void *)(of))->hmm.vma)

/*
 * Whether what @va_block has of @vma stays in the host: in a thread that services faults of all processes, and that may put them off,
 * as what is on a GPU comes to the host by a work item. Caller has the lock of the memory.
 */
static inline bool uvm_rust_stays_in_host(uvm_va_block_t *va_block, struct vm_area_struct *vma)
{
	if (!uvm_va_block_is_hmm(va_block) || !uvm_rust_puts_off(uvm_va_block_get_va_space(va_block)))
		return false;
	return uvm_rust_is_crowded(vma, max_t(NvU64, vma->vm_start, va_block->start), min_t(NvU64, vma->vm_end, va_block->end + 1));
}

/* By this upstream decides where a page goes that is faulted on, and whether who prefers to have it gets a mapping elsewhere. */
#define uvm_hmm_must_use_sysmem(va_block, of) \
	(uvm_hmm_must_use_sysmem(va_block, of) || uvm_rust_stays_in_host(va_block, uvm_rust_vma_in(of)))

#endif
