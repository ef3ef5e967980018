/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm.c: managed memory of a VA space that processes share, of which one ends.
 *
 * GPUs may be using that memory, so it is to stay as a zombie. Upstream takes a process to be ending where the thread has no memory
 * of its own, as a thread that exits has none any more. But who last lets the memory of a process go takes it down, and may be whoever has
 * looked at it: ps, or a read of /proc/PID/mem.
 */
#ifndef UVM_RUST_ZOMBIES_H
#define UVM_RUST_ZOMBIES_H

#include <linux/mm_types.h>
#include <linux/sched.h>

#include "uvm_rust_fixes.h"

/* Whether @vma, which is being closed, goes as all of its process' memory does. */
static inline bool uvm_rust_is_ending(const struct vm_area_struct *vma)
{
	return !current->mm || (uvm_rust_fix_zombies && !atomic_read(&vma->vm_mm->mm_users));
}

#endif
