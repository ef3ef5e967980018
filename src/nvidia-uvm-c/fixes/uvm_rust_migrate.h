/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_migrate.c: what its hook calls.
 */
#ifndef UVM_RUST_MIGRATE_H
#define UVM_RUST_MIGRATE_H

#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_compat.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_flash.h"

/*
 * With the pages to map for writing in the context's caller_page_mask. Caller
 * holds the block's lock.
 *
 * Upstream takes pages that nobody maps for pages with one copy. A page that is
 * read-duplicated while it is not mapped (evicted to the host, say, and then
 * migrated back with read duplication on) has two: mapped for writing, the copies
 * part, and whoever reads the other one reads an old value.
 *
 * A page that flash has a copy of is not mapped for writing before somebody writes.
 */
static inline void uvm_rust_keep_read_duplicated(uvm_va_block_t *va_block, uvm_va_block_context_t *context)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key))
		uvm_rust_flash_leave_copied(va_block->uvm_rust_flash, uvm_rust_mask_out(&context->caller_page_mask));
	if (uvm_rust_fix_duplicates)
		uvm_page_mask_andnot(&context->caller_page_mask, &context->caller_page_mask,
				     &va_block->read_duplicated_pages);
}

/*
 * In uvm_va_block_migrate_locked() of an upstream that discards by itself: whether the pages that are discarded are moved after
 * those that were to be duplicated, with @status. Upstream moves them in any case, and their status takes the place of the first:
 * UVM_MIGRATE then says that all pages have moved, or does not try again, though the first ones stayed.
 */
static inline bool uvm_rust_goes_on(NV_STATUS status)
{
	return status == NV_OK || !uvm_rust_fix_duplicates;
}

#include "uvm_rust_on_migrate.h"

#endif
