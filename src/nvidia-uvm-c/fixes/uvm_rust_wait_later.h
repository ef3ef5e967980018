/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c, uvm_hmm.c and uvm_mmu.c: who is above memory.high does not wait for it with a va_block's lock held. What Linux
 * charges there beside managed memory (uvm_rust_charge.h) is
 *   page tables of the CPU, where managed memory is mapped;
 *   ordinary memory that nobody has touched yet, where UVM_MIGRATE brings it to a GPU, with page tables;
 *   page tables of a GPU, where they are the host's memory.
 *
 * The thread that services all processes' faults may wait for that lock. So whoever has a process waits when its call or fault is over; a
 * thread of the kernel's does not. Each is charged alone, beginning with no page counted (uvm_rust_over_high.h).
 *
 * Linux still has a thread wait at once that it interrupts in the middle, if others take what it has charged in advance (the CPU's stock),
 * and the thread then needs more than that.
 */
#ifndef UVM_RUST_WAIT_LATER_H
#define UVM_RUST_WAIT_LATER_H

#include <linux/gfp.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "uvm_linux.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_over_high.h"

/* Returns the count for uvm_rust_waits_after(), and begins with none. */
static inline unsigned int uvm_rust_waits_before(void)
{
	return uvm_rust_fix_charge ? uvm_rust_forget_over() : 0;
}

static inline void uvm_rust_waits_after(unsigned int before)
{
	if (uvm_rust_fix_charge)
		uvm_rust_remember_over(before, current->mm);
}

static inline int uvm_rust_insert_page(struct vm_area_struct *vma, unsigned long address, struct page *page)
{
	unsigned int before = uvm_rust_waits_before();
	int ret = vm_insert_page(vma, address, page);

	uvm_rust_waits_after(before);
	return ret;
}
#define vm_insert_page uvm_rust_insert_page

static inline struct page *uvm_rust_alloc_pages(gfp_t flags, unsigned int order)
{
	unsigned int before = uvm_rust_waits_before();
	struct page *page = alloc_pages(flags, order);

	uvm_rust_waits_after(before);
	return page;
}
#undef alloc_pages
#define alloc_pages uvm_rust_alloc_pages

#if UVM_IS_CONFIG_HMM()
/* How many pages are moved at a time: so few that what Linux charges in advance is enough for the rest, once it has charged for one. */
#define UVM_RUST_PAGES_AT_ONCE 32ul

/* As Linux's. Pages that are moved were charged before; those that nobody has touched are charged here, one by one. */
static inline void uvm_rust_migrate_vma_pages(struct migrate_vma *args)
{
	struct migrate_vma part = *args;
	unsigned long done;

	if (!uvm_rust_fix_charge || !current->mm) {
		migrate_vma_pages(args);
		return;
	}
	for (done = 0; done < args->npages; done += part.npages) {
		unsigned int before = uvm_rust_waits_before();

		part.src = args->src + done;
		part.dst = args->dst + done;
		part.npages = min(args->npages - done, UVM_RUST_PAGES_AT_ONCE);
		part.start = args->start + done * PAGE_SIZE;
		part.end = part.start + part.npages * PAGE_SIZE;
		migrate_vma_pages(&part);
		uvm_rust_waits_after(before);
	}
}
#define migrate_vma_pages uvm_rust_migrate_vma_pages
#endif

#endif
