/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_tools.c: a debugger's access to ordinary memory of a process.
 *
 * Upstream reads and writes such memory by way of a va_block, where that has a page. It asks Linux for the page as a GPU that only reads
 * would, and then writes to it: to pages of files that are mapped for reading, to Linux's pages of zeros, and to pages that a
 * process has in common with a child. Here Linux is asked for a page that may be accessed so. It looks at what the mapping allows,
 * gives the process a page of its own where it must, and brings what is on a GPU to the host.
 */
#ifndef UVM_RUST_ACCESS_H
#define UVM_RUST_ACCESS_H

#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "uvm_common.h"
#include "uvm_linux.h"

#include "uvm_rust_fixes.h"

/*
 * Reads @bytes at @addr of @mm, or writes them, in one page; @stage has what is written, and gets what is read, which goes to @user_va
 * of the caller then. Neither @mm's lock nor the VA space's is held: a page that is on a GPU comes by way of a CPU fault, which takes both.
 * That is also why upstream's lock checker is not told of mmap_lock.
 */
static NV_STATUS uvm_rust_access(struct mm_struct *mm, NvU64 addr, NvU64 user_va, void *stage, NvU64 bytes, bool is_write)
{
	struct page *page;
	int locked = 1;
	void *mapped, *at;
	long ret;

	nv_mmap_read_lock(mm);
	ret = NV_PIN_USER_PAGES_REMOTE(mm, addr & PAGE_MASK, 1, is_write ? FOLL_WRITE : 0, &page, &locked);
	if (locked)
		nv_mmap_read_unlock(mm);
	if (ret != 1)
		return ret < 0 ? errno_to_nv_status(ret) : NV_ERR_INVALID_ADDRESS;

	mapped = kmap_local_page(page);
	at = mapped + offset_in_page(addr);
	if (is_write)
		memcpy(at, stage, bytes);
	else
		memcpy(stage, at, bytes);
	kunmap_local(mapped);
	if (is_write)
		set_page_dirty_lock(page);
	NV_UNPIN_USER_PAGE(page);

	if (!is_write && copy_to_user(u64_to_user_ptr(user_va), stage, bytes))
		return NV_ERR_INVALID_ARGUMENT;
	return NV_OK;
}

#endif
