/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A page of a GPU's that one VA space of a process has, and another one is to have. For uvm_hmm.c and uvm_va_block.c, whose files
 * include this one in front of them.
 * Its chunk says whose it is, by its va_block.
 */
#ifndef UVM_RUST_ON_SPACES_H
#define UVM_RUST_ON_SPACES_H

#include "uvm_pmm_gpu.h"
#include "uvm_va_block.h"

#include "uvm_rust_fixes.h"

#if UVM_IS_CONFIG_HMM()
static void block_gpu_release_region(uvm_va_block_t *va_block, uvm_gpu_id_t gpu_id, uvm_va_block_gpu_state_t *gpu_state,
				     uvm_va_block_region_t region);
#define uvm_rust_release_region	block_gpu_release_region

/* The GPU that has @page, which is mapped or isolated. No lock is taken. */
static inline uvm_gpu_id_t uvm_rust_gpu_of_page(struct page *page)
{
	return uvm_gpu_chunk_get_gpu(uvm_pmm_devmem_page_to_chunk(page))->id;
}

/* Called for a page that Linux has only been asked about: nobody has told the va_block that has it. */
static inline bool uvm_rust_is_others(const uvm_va_block_t *va_block, struct page *page)
{
	uvm_gpu_t *gpu = uvm_gpu_chunk_get_gpu(uvm_pmm_devmem_page_to_chunk(page));
	bool is;

	if (!uvm_rust_fix_two_spaces)
		return false;
	/* Under which the va_block that the chunk names is not freed. */
	uvm_spin_lock(&gpu->pmm.list_lock);
	is = uvm_pmm_devmem_page_to_va_space(page) != va_block->hmm.va_space;
	uvm_spin_unlock(&gpu->pmm.list_lock);
	return is;
}

/* Called for a page that is isolated, so that no CPU's fault asks whose it is, and that its va_block has given up. */
static inline void uvm_rust_takes_page(uvm_va_block_t *va_block, struct page *page)
{
	uvm_gpu_chunk_t *chunk = uvm_pmm_devmem_page_to_chunk(page);
	uvm_gpu_t *gpu = uvm_gpu_chunk_get_gpu(chunk);

	if (!uvm_rust_fix_two_spaces)
		return;
	uvm_spin_lock(&gpu->pmm.list_lock);
	if (uvm_pmm_devmem_page_to_va_space(page) != va_block->hmm.va_space)
		chunk->va_block = va_block;
	uvm_spin_unlock(&gpu->pmm.list_lock);
}
#endif

#endif
