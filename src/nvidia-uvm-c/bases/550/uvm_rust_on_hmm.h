/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How uvm_hmm.c, whose file includes this one in front of it, gives up the new pages of a migration that
 * fails.
 */
#ifndef UVM_RUST_ON_HMM_H
#define UVM_RUST_ON_HMM_H

#include "uvm_va_block.h"

#if UVM_IS_CONFIG_HMM()
static void clean_up_non_migrating_pages(uvm_va_block_t *va_block, const unsigned long *src_pfns,
					 unsigned long *dst_pfns, uvm_va_block_region_t region,
					 uvm_page_mask_t *page_mask);
#define uvm_rust_clean_up	clean_up_non_migrating_pages
#endif

#endif
