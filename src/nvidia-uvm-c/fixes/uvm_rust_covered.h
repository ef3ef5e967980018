/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_hmm.c: ordinary memory that is on a GPU where a process reserves addresses for memory of UVM's.
 *
 * Such a range ends the va_blocks of ordinary memory that it covers. Upstream brings their pages to the host first, but not where
 * the process' mm has gone, and not those that Linux leaves out: of memory that may not be read, of userfaultfd's, and
 * pages that a CPU faults on just then. These still lead to their chunks, which upstream frees with the va_block. Whoever gets
 * such a chunk next has it together with the process.
 */
#ifndef UVM_RUST_COVERED_H
#define UVM_RUST_COVERED_H

#include <linux/delay.h>
#include <linux/jiffies.h>

#include "uvm_global.h"
#include "uvm_lock.h"
#include "uvm_pmm_gpu.h"
#include "uvm_tracker.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_fixes.h"

#if UVM_IS_CONFIG_HMM()
/* How long a page is asked for that somebody holds, in milliseconds. */
#define COVERED_MS 1000

/* The device page that @va_block has at @addr on any GPU, by its number, or 0. */
static unsigned long pfn_on_gpu(uvm_va_block_t *va_block, NvU64 addr)
{
	unsigned long pfn = 0;
	uvm_gpu_chunk_t *chunk;
	uvm_gpu_t *gpu;

	uvm_mutex_lock(&va_block->lock);
	for_each_va_space_gpu(gpu, va_block->hmm.va_space) {
		if (!uvm_va_block_gpu_state_get(va_block, gpu->id))
			continue;
		chunk = uvm_va_block_lookup_gpu_chunk(va_block, gpu, addr);
		if (chunk)
			pfn = uvm_pmm_gpu_devmem_get_pfn(&gpu->pmm, chunk);
	}
	uvm_mutex_unlock(&va_block->lock);
	return pfn;
}

/*
 * A page goes by way of Linux, whose notifier has @va_block give it up. It does so before Linux looks whether somebody holds the page.
 * Then that stays on the GPU as nobody's, and a CPU's fault brings it, without a va_block (uvm_rust_has_block()).
 */
static NV_STATUS bring_covered(uvm_va_block_t *va_block, NvU64 addr)
{
	unsigned long pfn, until = jiffies + msecs_to_jiffies(COVERED_MS);
	NV_STATUS status;

	while ((pfn = pfn_on_gpu(va_block, addr))) {
		if (time_after(jiffies, until))
			return NV_ERR_BUSY_RETRY;
		status = uvm_rust_hmm_evict_pfn(pfn);
		if (status == NV_ERR_BUSY_RETRY)
			usleep_range(50, 100);
		else if (status != NV_OK)
			return status;
	}
	return NV_OK;
}

/*
 * Called before the notifier of @va_block is removed, which then ends. Until then Linux tells the va_block of each page that goes.
 * Where @mm is NULL its pages stay on the GPU as nobody's, and a CPU's fault brings them to the host without a va_block. Caller holds
 * the VA space's lock for writing, and mmap_lock of @mm.
 */
static NV_STATUS uvm_rust_covered(uvm_va_block_t *va_block, struct mm_struct *mm)
{
	uvm_va_space_t *va_space = va_block->hmm.va_space;
	uvm_va_block_region_t region = uvm_va_block_region_from_block(va_block);
	NV_STATUS status;
	uvm_gpu_t *gpu;
	NvU64 addr;

	if (!uvm_rust_fix_covered)
		return NV_OK;
	for (addr = va_block->start; mm && addr < va_block->end; addr += PAGE_SIZE) {
		status = bring_covered(va_block, addr);
		if (status != NV_OK)
			return status;
	}
	uvm_mutex_lock(&va_block->lock);
	for_each_va_space_gpu(gpu, va_space) {
		if (!uvm_processor_mask_test(&va_block->mapped, gpu->id))
			continue;
		status = uvm_va_block_unmap(va_block, uvm_va_space_block_context(va_space, mm), gpu->id, region, NULL,
					    &va_block->tracker);
		UVM_ASSERT(status == uvm_global_get_status());
	}
	uvm_va_block_munmap_region(va_block, region);
	if (uvm_tracker_wait(&va_block->tracker) != NV_OK)
		UVM_ASSERT(uvm_global_get_status() != NV_OK);
	uvm_mutex_unlock(&va_block->lock);
	return NV_OK;
}
#endif

#endif
