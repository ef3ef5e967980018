/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_hmm.c: Linux learns that a GPU may have written to a page of ordinary memory in the host.
 *
 * By the CPUs' page tables alone such a page may be clean, as a GPU's writes do not go through them. Linux drops a clean page
 * instead of writing it to swap: of shared memory that no CPU has written to, of what is in swap already, and what MADV_FREE was
 * called for. The next access sees zeros, or what is in swap.
 */
#ifndef UVM_RUST_DIRTY_H
#define UVM_RUST_DIRTY_H

#include <linux/hmm.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "uvm_rust_fixes.h"

/*
 * The page of @pfn, of which hmm_range_fault() says what the CPUs may do. The caller has the va_block's lock, and no notifier has
 * come since Linux said so, so that the page stays where it is. Whatever has Linux take the page for clean later on, as when it has
 * gone to swap, calls the notifier first; then a GPU gets the page by way of here again.
 *
 * Pages of a regular file are left alone: Linux lets nobody write to one before it is dirty, and the file system wants to know before.
 */
static inline struct page *uvm_rust_page_of_host(unsigned long pfn)
{
	struct page *page = hmm_pfn_to_page(pfn);
	struct folio *folio = page_folio(page);

	if (uvm_rust_fix_dirty && (pfn & HMM_PFN_WRITE) && !is_device_private_page(page) &&
	    (folio_test_anon(folio) || folio_test_swapbacked(folio)))
		folio_mark_dirty(folio);
	return page;
}

/* Locks a page of the host's that gets what a GPU has, which only the GPU may have written. */
static inline void uvm_rust_lock_host_page(struct page *page)
{
	lock_page(page);
	if (uvm_rust_fix_dirty)
		folio_mark_dirty(page_folio(page));
}

/* Upstream has the first in populate_region() alone, and locks no other pages. */
#define hmm_pfn_to_page uvm_rust_page_of_host
#define lock_page uvm_rust_lock_host_page

#endif /* UVM_RUST_DIRTY_H */
