// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Built instead of uvm_rust_discard.c, uvm_rust_evict.c and uvm_rust_fault.c into an
 * upstream that discards by itself (580 and later): UVM_DISCARD is then upstream's, and
 * UVM_RUST_DISCARD_BATCH calls what stands behind it, range by range. Its eviction lists
 * and its fault loop stay as well, and are counted.
 */
#include <linux/sched/signal.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_gpu_replayable_faults.h"
#include "uvm_pmm_gpu.h"

#include "uvm_rust_hooks.h"

/* 2 MiB blocks of which [start, end] has a part. */
static __u64 blocks_of(NvU64 start, NvU64 end)
{
	return end / UVM_VA_BLOCK_SIZE - start / UVM_VA_BLOCK_SIZE + 1;
}

static NV_STATUS discard_locked(uvm_va_space_t *va_space, struct mm_struct *mm, NvU64 base, NvU64 end, bool eager,
				struct uvm_seam_discarded *counts)
{
	uvm_va_range_managed_t *range;
	uvm_va_block_context_t *context;
	NV_STATUS status = NV_OK;

	/* 580 checks it, 595 does not. */
	if (uvm_rust_has_non_faultable(va_space))
		return NV_ERR_INVALID_DEVICE;

	switch (uvm_api_range_type_check(va_space, mm, base, end - base + 1)) {
	case UVM_API_RANGE_TYPE_MANAGED:
		break;
	case UVM_API_RANGE_TYPE_HMM:
	case UVM_API_RANGE_TYPE_ATS:
		return NV_WARN_NOTHING_TO_DO;
	default:
		return NV_ERR_INVALID_ADDRESS;
	}

	/* Where CPU and GPU share their memory upstream does nothing, and says NV_OK. */
	if (uvm_va_space_has_integrated_gpu(va_space)) {
		counts->skipped += blocks_of(base, end);
		return NV_OK;
	}

	context = uvm_va_block_context_alloc(mm);
	if (!context)
		return NV_ERR_NO_MEMORY;
	uvm_for_each_va_range_managed_in_contig(range, va_space, base, end) {
		NvU64 from = max(base, range->va_range.node.start);
		NvU64 to = min(end, range->va_range.node.end);

		/* A range may be one of a million. */
		cond_resched();
		if (fatal_signal_pending(current))
			status = NV_ERR_SIGNAL_PENDING;
		else
			status = uvm_va_range_discard(range, context, from, to, eager ? UVM_DISCARD_FLAGS_UNMAP : 0);
		if (status != NV_OK)
			break;
		/* It keeps its state by 4 KiB page, so no part is left alone. */
		counts->discarded += blocks_of(from, to);
	}
	uvm_va_block_context_free(context);
	return status;
}

__u32 uvm_seam_discard(struct uvm_seam_space *space, __u64 base, __u64 length, bool eager,
		       struct uvm_seam_discarded *counts)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	struct mm_struct *mm;
	NV_STATUS status;

	if (uvm_api_range_invalid(base, length))
		return NV_ERR_INVALID_ADDRESS;

	mm = uvm_va_space_mm_or_current_retain_lock(va_space);
	uvm_va_space_down_read(va_space);
	status = discard_locked(va_space, mm, base, base + length - 1, eager, counts);
	uvm_va_space_up_read(va_space);
	uvm_va_space_mm_or_current_release_unlock(va_space, mm);
	return status;
}

/* --- statistics ------------------------------------------------------------------ */

UVM_RUST_C_BODY(uvm_parent_gpu_service_replayable_faults);

/* Caller: the bottom half, holding the GPU's replayable-fault service lock. */
void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu)
{
	NvU64 before = parent_gpu->fault_buffer.replayable.stats.num_replays;

	uvm_parent_gpu_service_replayable_faults__c(parent_gpu);
	if (parent_gpu->smc.enabled || !parent_gpu->gpus[0])
		return;
	uvm_rust_note_replays(uvm_id_gpu_index(parent_gpu->gpus[0]->id),
			      parent_gpu->fault_buffer.replayable.stats.num_replays - before);
	uvm_rust_note_served(uvm_id_gpu_index(parent_gpu->gpus[0]->id));
}
