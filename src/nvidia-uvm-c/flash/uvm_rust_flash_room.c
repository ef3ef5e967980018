// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: what needs host memory, and so waits when there is too little.
 *
 * Whoever has its share of a host that is full waits for spills, but only with what would make
 * pages of host memory: pages that are to be there and have no memory yet, that are staged on
 * their way from one GPU to another, or that others leave a GPU for. What is in host memory
 * already, or only goes from there to a GPU with room, makes none: it goes on.
 */
#include "uvm_common.h"
#include "uvm_gpu.h"
#include "uvm_perf_thrashing.h"
#include "uvm_pmm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_policy.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"

#include "uvm_rust_compat.h"
#include "uvm_rust_flash.h"

/* Whether who needs a chunk of the GPU's memory gets one for which something goes to the host. */
static bool evicts_to_host(uvm_gpu_t *gpu)
{
	uvm_pmm_gpu_t *pmm = &gpu->pmm;
	__u32 index = uvm_rust_gpu_index(pmm);
	bool evicts;

	if (uvm_rust_pma_free_2m(pmm))
		return false;
	uvm_spin_lock(&pmm->list_lock);
	evicts = !uvm_rust_free_root_chunks(pmm, 1);
	if (evicts && uvm_rust_evict)
		evicts = !uvm_rust_queues_length(index, UVM_RUST_QUEUE_UNUSED) &&
			 !uvm_rust_queues_length(index, UVM_RUST_QUEUE_DISCARDED);
	else if (evicts)
		evicts = list_empty(&pmm->root_chunks.va_block_unused);
	uvm_spin_unlock(&pmm->list_lock);
	return evicts;
}

/* Whether some of @pages has no chunk of the GPU's yet. Caller holds the block's lock. */
static bool needs_chunk(uvm_va_block_t *block, uvm_gpu_t *gpu, const uvm_page_mask_t *pages)
{
	uvm_page_index_t page;

	for_each_va_block_page_in_mask(page, pages, block) {
		if (!uvm_va_block_lookup_gpu_chunk(block, gpu, uvm_va_block_cpu_page_address(block, page)))
			return true;
	}
	return false;
}

/* Adds to @host what comes to the GPU by way of host memory: from flash, or from a GPU that is no peer. */
static void add_staged(uvm_va_block_t *block, uvm_gpu_t *gpu, const uvm_page_mask_t *pages, uvm_page_mask_t *host)
{
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);
	uvm_page_mask_t some;
	uvm_gpu_id_t id;

	if (uvm_rust_flash_set(block, UVM_RUST_FLASH_ON_FLASH, &some) && uvm_page_mask_and(&some, &some, pages))
		uvm_page_mask_or(host, host, &some);
	for_each_gpu_id_in_mask(id, &block->resident) {
		if (uvm_id_equal(id, gpu->id) ||
		    uvm_processor_mask_test(&va_space->can_copy_from[uvm_id_value(gpu->id)], id))
			continue;
		uvm_page_mask_and(&some, uvm_rust_resident_mask(block, id), pages);
		uvm_page_mask_or(host, host, &some);
	}
}

bool uvm_rust_flash_needs_host(uvm_va_block_t *block, uvm_processor_id_t to, const uvm_page_mask_t *pages)
{
	uvm_page_mask_t host;

	if (UVM_ID_IS_CPU(to)) {
		uvm_page_mask_copy(&host, pages);
	}
	else {
		uvm_gpu_t *gpu = uvm_va_space_get_gpu(uvm_va_block_get_va_space(block), to);

		uvm_page_mask_zero(&host);
		add_staged(block, gpu, pages, &host);
		if (needs_chunk(block, gpu, pages) && evicts_to_host(gpu))
			return true;
	}
	return uvm_page_mask_andnot(&host, &host, &block->cpu.allocated);
}

/* Whether what is in the range may stay in host memory when a GPU faults on it. */
static bool may_go_to_host(uvm_va_range_t *range)
{
	return UVM_ID_IS_CPU(uvm_va_range_get_policy(range)->preferred_location);
}

bool uvm_rust_flash_fault_needs_host(uvm_va_block_t *block, uvm_gpu_t *gpu, const uvm_page_mask_t *pages)
{
	const uvm_page_mask_t *thrashing = uvm_perf_thrashing_get_thrashing_pages(block);
	uvm_page_mask_t wanted, pinned;

	/* What is on the GPU, and only to be mapped otherwise. */
	uvm_page_mask_copy(&wanted, pages);
	if (uvm_processor_mask_test(&block->resident, gpu->id) &&
	    !uvm_page_mask_andnot(&wanted, pages, uvm_rust_resident_mask(block, gpu->id)))
		return false;
	if (uvm_rust_flash_needs_host(block, gpu->id, &wanted))
		return true;
	/* Upstream may pin in host memory what thrashes. */
	if (may_go_to_host(block->va_range))
		return uvm_rust_flash_needs_host(block, UVM_ID_CPU, &wanted);
	return thrashing && uvm_page_mask_and(&pinned, &wanted, thrashing) &&
	       uvm_rust_flash_needs_host(block, UVM_ID_CPU, &pinned);
}

bool uvm_rust_flash_first_touch_needs_host(uvm_va_range_t *range, uvm_gpu_t *gpu)
{
	return may_go_to_host(range) || evicts_to_host(gpu);
}
