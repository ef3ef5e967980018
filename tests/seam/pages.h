/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Of upstream from 570.124 on, what leads from a page of device memory to its VA space, beyond shim.h.
 */
#ifndef SEAM_PAGES_H
#define SEAM_PAGES_H

#define SEAM_VA_SPACE_FIELDS
#define SEAM_VA_BLOCK_FIELDS	struct { struct uvm_va_space_struct *va_space; } hmm; bool freed;
#include "shim.h"

#define UVM_IS_CONFIG_HMM()	1
struct page { uvm_gpu_chunk_t *zone_device_data; };
extern bool uvm_rust_fix_nobody;
uvm_gpu_t *uvm_gpu_chunk_get_gpu(uvm_gpu_chunk_t *chunk);
uvm_gpu_chunk_t *uvm_pmm_devmem_page_to_chunk(struct page *page);
uvm_va_space_t *uvm_pmm_devmem_page_to_va_space(struct page *page);

#endif
