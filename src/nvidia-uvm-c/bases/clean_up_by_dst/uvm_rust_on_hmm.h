/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How uvm_hmm.c, whose file includes this one in front of it, gives up the new pages of a migration that
 * fails. It does by itself when a CPU faults or UVM_MIGRATE is called, and not for an eviction; a second
 * time does no harm. And how it has Linux bring pages to the host: since the same releases with what a
 * retry keeps, as it allocates a GPU's chunks before it knows which pages move.
 */
#ifndef UVM_RUST_ON_HMM_H
#define UVM_RUST_ON_HMM_H

#include "uvm_va_block.h"

#if UVM_IS_CONFIG_HMM()
static void clean_up_non_migrating_pages(uvm_va_block_t *va_block, unsigned long *dst_pfns,
					 uvm_va_block_region_t region, const uvm_page_mask_t *page_mask);
#define uvm_rust_clean_up(va_block, src_pfns, dst_pfns, region, page_mask)	\
	clean_up_non_migrating_pages(va_block, dst_pfns, region, page_mask)

static NV_STATUS hmm_make_resident_cpu(uvm_va_block_t *va_block, uvm_va_block_retry_t *va_block_retry,
				       struct vm_area_struct *vma, unsigned long *hmm_pfns,
				       uvm_va_block_region_t region, NvU8 *access_type,
				       uvm_page_mask_t *populated_page_mask);
#define uvm_rust_make_resident_cpu(va_block, retry, vma, pfns, region)	\
	hmm_make_resident_cpu(va_block, retry, vma, pfns, region, NULL, NULL)

static void gpu_chunk_free_preallocated(uvm_va_block_t *va_block, uvm_va_block_retry_t *va_block_retry);
/* Who only moves pages to the host has no such chunks, and no @retry: split_block_if_needed(). */
#define uvm_rust_free_ahead(va_block, retry)	\
	do {					\
		if (retry)			\
			gpu_chunk_free_preallocated(va_block, retry);	\
	} while (0)
#endif

#endif
