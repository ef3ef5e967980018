/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_tools.c: memory of a process that UVM writes events to for as long as the process likes.
 *
 * Upstream takes any size. Where Linux does not map that much, it goes on without a queue, and the next event is written to NULL.
 * And it takes pages of files, which the file system believes to be clean once it has written them to the disk.
 */
#ifndef UVM_RUST_QUEUES_H
#define UVM_RUST_QUEUES_H

#include <linux/backing-dev.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <linux/mm.h>

#include "uvm_rust_fixes.h"

/* How many events a queue may have room for, which are 72 MiB. What the kernel itself needs for a queue is charged to nobody. */
#define QUEUE_MAX (1 << 20)

static inline NvU64 uvm_rust_queue_max(void)
{
	return uvm_rust_fix_queues ? QUEUE_MAX : UINT_MAX;
}

/* Whether what is written to @vma goes to a file on a disk. Linux refuses such a pin from 6.5 on, if it is told that it is to last. */
static inline bool uvm_rust_is_written_back(struct vm_area_struct *vma)
{
	return uvm_rust_fix_queues && (vma->vm_flags & VM_SHARED) && vma->vm_file && mapping_can_writeback(vma->vm_file->f_mapping);
}

/* Of a page that is let go, whose file may be truncated meanwhile. */
static inline void uvm_rust_dirty_page(struct page *page)
{
	if (uvm_rust_fix_queues)
		set_page_dirty_lock(page);
	else
		set_page_dirty(page);
}

#define set_page_dirty uvm_rust_dirty_page

#endif
