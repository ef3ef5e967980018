/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The chunk of a page of device memory, which the page itself names. Only for files in front of
 * uvm_pmm_gpu.c; caller holds the list lock.
 */
#define uvm_rust_chunk_of_page		uvm_pmm_devmem_page_to_chunk

#if UVM_IS_CONFIG_HMM()
/*
 * The VA space of @page, on which a CPU faulted; NULL once that VA space has ended. The fault holds a reference of the page, so
 * the page keeps its chunk. The chunk's va_block may give it up meanwhile and be freed, where another process has the
 * page as well. That va_block gives the chunk up under the list lock first.
 */
static uvm_va_space_t *uvm_rust_va_space_of_fault(struct page *page)
{
	uvm_pmm_gpu_t *pmm = &uvm_gpu_chunk_get_gpu(uvm_pmm_devmem_page_to_chunk(page))->pmm;
	uvm_va_space_t *va_space;

	if (!uvm_rust_fix_nobody)
		return uvm_pmm_devmem_page_to_va_space(page);
	uvm_spin_lock(&pmm->list_lock);
	va_space = uvm_pmm_devmem_page_to_va_space(page);
	uvm_spin_unlock(&pmm->list_lock);
	return va_space;
}
#endif
