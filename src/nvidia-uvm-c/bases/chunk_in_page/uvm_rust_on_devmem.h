/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The chunk of a page of device memory, which the page itself names. Only for files in front of
 * uvm_pmm_gpu.c; caller holds the list lock.
 */
#define uvm_rust_chunk_of_page		uvm_pmm_devmem_page_to_chunk
