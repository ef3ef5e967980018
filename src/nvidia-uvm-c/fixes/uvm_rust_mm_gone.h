/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* In front of uvm_va_space.c and uvm.c: CPUs' faults once the mm of a VA space has gone, and what is mapped then. */
#ifndef UVM_RUST_MM_GONE_H
#define UVM_RUST_MM_GONE_H

#include "uvm_global.h"
#include "uvm_hmm.h"
#include "uvm_lock.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_fixes.h"

/*
 * Whether mmap() comes too late, as @va_space's mm has gone since it was looked at, without the lock. What makes room for managed
 * memory among ordinary memory looks for the mm once more. Caller holds the VA space's lock.
 */
static inline bool uvm_rust_mm_left(uvm_va_space_t *va_space)
{
	return uvm_rust_fix_mm_gone && uvm_va_space_mm_enabled(va_space) && !va_space->va_space_mm.mm;
}

#if UVM_IS_CONFIG_HMM()
/*
 * A CPU faults on a page that @va_space has on a GPU, and that is brought to the host without its va_block, as if another process had
 * it. But where the VA space's mm has gone while the process lives, a va_block has it still. That va_block gives it up first: nobody tells
 * it later, and its chunk is freed with the page. Caller holds the VA space's lock.
 */
static inline void uvm_rust_gives_up(uvm_va_space_t *va_space, const struct vm_fault *vmf)
{
	NvU64 addr = vmf->address;
	uvm_va_block_t *va_block;

	if (!uvm_rust_fix_mm_gone || uvm_hmm_va_block_find(va_space, addr, &va_block) != NV_OK ||
	    va_block->hmm.notifier.mm != vmf->vma->vm_mm)
		return;
	uvm_mutex_lock(&va_block->lock);
	uvm_va_block_munmap_region(va_block, uvm_va_block_region_for_page(uvm_va_block_cpu_page_index(va_block, addr)));
	if (uvm_tracker_wait(&va_block->tracker) != NV_OK)
		UVM_ASSERT(uvm_global_get_status() != NV_OK);
	uvm_mutex_unlock(&va_block->lock);
}
#else
#define uvm_rust_gives_up(va_space, vmf)
#endif

#endif
