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

/*
 * What upstream asks for: accesses to a page, where it decides where the page goes, or none, where it decides whether who prefers to
 * have memory gets a mapping elsewhere. The two are told apart by what they call the va_block.
 */
#define uvm_rust_asked_by_va_block	access_type_mask
#define uvm_rust_asked_by_block		0u

/*
 * An atomic is not served in the host, as may_stay() in policy/fault/service.rs says. Where the CPU has a huge page there, Linux takes
 * none but its first page from the CPU.
 */
static inline bool uvm_rust_has_atomic(NvU32 access_type_mask)
{
	return access_type_mask && uvm_fault_access_type_mask_highest(access_type_mask) >= UVM_FAULT_ACCESS_TYPE_ATOMIC_STRONG;
}

#define uvm_hmm_must_use_sysmem(va_block, of) \
	(uvm_hmm_must_use_sysmem(va_block, of) || \
	 (!uvm_rust_has_atomic(uvm_rust_asked_by_##va_block) && uvm_rust_stays_in_host(va_block, uvm_rust_vma_in(of))))

#endif
