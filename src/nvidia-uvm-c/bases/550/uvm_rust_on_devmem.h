/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The chunk of a page of device memory. Only for files in front of uvm_pmm_gpu.c; caller holds the list lock.
 */
#if UVM_IS_CONFIG_HMM()
static uvm_gpu_chunk_t *devmem_page_to_chunk_locked(struct page *page);
#define uvm_rust_chunk_of_page		devmem_page_to_chunk_locked
#endif
