/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* In front of uvm.c: what is mapped while the mm of a VA space goes. */
#ifndef UVM_RUST_MM_GONE_H
#define UVM_RUST_MM_GONE_H

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

#endif
