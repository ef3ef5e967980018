/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* In front of uvm_va_space.c: a CPU's fault on ordinary memory that is on a GPU, within a range of UVM's. */
#ifndef UVM_RUST_IN_RANGE_H
#define UVM_RUST_IN_RANGE_H

#include <linux/mm.h>

#include "uvm_va_range.h"
#include "uvm_va_space.h"

#include "uvm_rust_fixes.h"

/*
 * Whether what a CPU faults on, ordinary memory on a GPU, goes to the host by a va_block of @va_space's. It does not if its mm is none of
 * the VA space's, nor if it lies in a range of UVM's. There mremap() has moved it, or it was left on the GPU when the range was
 * created: somebody held it, or it was not to be accessed. Upstream takes it that a range has no ordinary memory on a GPU, and makes a
 * va_block within the range. Caller holds the VA space's lock.
 */
static inline bool uvm_rust_has_block(uvm_va_space_t *va_space, struct vm_fault *vmf)
{
	return va_space->va_space_mm.mm == vmf->vma->vm_mm &&
	       !(uvm_rust_fix_covered && uvm_va_range_find(va_space, vmf->address));
}

#endif
