/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether a page of a GPU's is @va_space's. A page leads to its chunk, the chunk to its va_block, and that to its VA space. Under the
 * list lock all three are there: a chunk is freed, and gets another va_block before its own is freed, under that lock, once the
 * page leads to it no more. For uvm_hmm.c, whose file includes this one in front of it.
 */
#if UVM_IS_CONFIG_HMM()
static inline bool uvm_rust_page_is_of(uvm_gpu_t *gpu, struct page *page, const uvm_va_space_t *va_space)
{
	bool is;

	if (!uvm_rust_fix_nobody)
		return uvm_pmm_devmem_page_to_va_space(page) == va_space;
	uvm_spin_lock(&gpu->pmm.list_lock);
	is = uvm_pmm_devmem_page_to_va_space(page) == va_space;
	uvm_spin_unlock(&gpu->pmm.list_lock);
	return is;
}
#endif
