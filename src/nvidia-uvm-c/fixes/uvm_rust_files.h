/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Pages of files that a GPU's fault needs, and others whose memory cgroup is full, or that have many mappings. For uvm_rust_hmm.h;
 * uvm_rust_files.c, uvm_rust_room.c and uvm_rust_crowd.c have the rest.
 */
#ifndef UVM_RUST_FILES_H
#define UVM_RUST_FILES_H

#include <linux/fs.h>
#include <linux/hmm.h>
#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/version.h>

#include "uvm_va_space.h"

#include "uvm_rust_alone.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"
#include "uvm_rust_params_ffi.h"

/* What uvm_rust_files_look() returns for pages that have yet to come: none of Linux's functions that are called there does. */
#define UVM_RUST_NOT_HERE	(-EINPROGRESS)

/*
 * In place of hmm_range_fault() for such pages, in a thread that services faults of all processes. It only looks: of pages that
 * are not mapped for the access it tells a thread of their own to have Linux map them, and returns UVM_RUST_NOT_HERE; the fault
 * is to come again. Called as hmm_range_fault(), for some pages of one va_block, all of which are asked for. Does not sleep for them.
 */
int uvm_rust_files_look(struct hmm_range *range);

/*
 * Has Linux map those of the @pages pages from @start on that @missing names, one at least: to be written to (@write), or as pages of the process' own (@unshare).
 * Caller has the lock of @mm. Returns UVM_RUST_NOT_HERE, or why Linux could not when it was asked before. Does not sleep.
 */
int uvm_rust_files_ask(struct mm_struct *mm, unsigned long start, unsigned long pages, const unsigned long *missing, bool write, bool unshare);

/*
 * Whether Linux may have to wait for others before it maps a page of @vma: for a file system that does not answer, or for a thread
 * that changes the file and hardly ever runs. Shared memory is no exception (uvm_rust_files.c). Pages of hugetlbfs are one: there who
 * only looks waits as well, for a lock that Linux has for each mapping of theirs.
 */
static inline bool uvm_rust_is_file(const struct vm_area_struct *vma)
{
	return vma->vm_file && !is_vm_hugetlb_page(vma);
}

/*
 * Whether a work item has to have Linux give the process pages of its own in @vma. What is read first there is Linux's one page of zeros, as
 * nobody may write to it. NVIDIA's code refuses that page (hmm_va_block_cpu_page_populate()), for which the kernel ends. Before 6.2 Linux
 * gives a page in place of it for a write alone, so that there is nothing to ask for.
 */
static inline bool uvm_rust_unshares_zeros(const struct vm_area_struct *vma)
{
	return LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0) && vma_is_anonymous(vma) && !(vma->vm_flags & VM_WRITE);
}

/*
 * Whether this thread may put faults of @va_space off. Only threads of the kernel's service faults here, and of those only faults
 * that come again may be put off: not those of upstream's loop.
 */
static inline bool uvm_rust_puts_off(uvm_va_space_t *va_space)
{
	return uvm_rust_fix_files && uvm_rust_fault && current->flags & PF_KTHREAD && uvm_rust_fails_alone(va_space);
}

/*
 * Whether the cgroup of the process whose memory @mm is, or one above it, may have no room for so many @pages more: Linux would reclaim
 * its memory to charge them, and end processes of it.
 */
bool uvm_rust_lacks_room(struct mm_struct *mm, unsigned long pages);

/*
 * Whether Linux would take long to isolate what @vma has from @start to @end. False where that cannot be told, as somebody changes the
 * mappings just now. Caller has the lock of the memory. Does not sleep.
 */
bool uvm_rust_is_crowded(struct vm_area_struct *vma, unsigned long start, unsigned long end);

/*
 * Whether @range is to be looked at by uvm_rust_files_look(): where Linux might wait for a file system, or for room in a cgroup, would
 * map its page of zeros, or would take long to isolate.
 */
static inline bool uvm_rust_files_serves(const struct hmm_range *range, uvm_va_space_t *va_space)
{
	struct vm_area_struct *vma;

	if (!uvm_rust_puts_off(va_space))
		return false;
	vma = find_vma(range->notifier->mm, range->start);
	return vma && (uvm_rust_is_file(vma) || uvm_rust_unshares_zeros(vma) ||
		       uvm_rust_lacks_room(range->notifier->mm, (range->end - range->start) >> PAGE_SHIFT) ||
		       uvm_rust_is_crowded(vma, range->start, range->end));
}

/* In place of errno_to_nv_status() in uvm_hmm.c: a fault whose page has yet to come is put off, as where that comes from an SSD. */
static inline NV_STATUS uvm_rust_hmm_status(int error)
{
	return error == UVM_RUST_NOT_HERE ? NV_ERR_NOT_READY : errno_to_nv_status(error);
}

#endif
