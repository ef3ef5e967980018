/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The walk over the va_blocks of a range, for uvm_rust_discard.c. tests/seam runs it on the
 * host.
 */
#ifndef UVM_RUST_WALK_H
#define UVM_RUST_WALK_H

#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "uvm_range_group.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"

/*
 * Calls @visit for each va_block of @range between @start and @end, a part of it, that was
 * touched and may migrate; counts the others in @skipped. Ends at the first @visit that fails,
 * or with NV_ERR_SIGNAL_PENDING when the thread is to die. Caller holds the VA space's lock.
 */
static inline NV_STATUS uvm_rust_walk_blocks(uvm_va_range_t *range, NvU64 start, NvU64 end, __u64 *skipped,
					     NV_STATUS (*visit)(uvm_va_block_t *block, uvm_va_block_region_t region,
								void *data),
					     void *data)
{
	size_t last = uvm_va_range_block_index(range, end);
	size_t i;

	for (i = uvm_va_range_block_index(range, start); i <= last; i++) {
		uvm_va_block_t *block = uvm_va_range_block(range, i);
		NvU64 from, to;
		NV_STATUS status;

		/*
		 * Here, where nothing comes past it: a range may be terabytes of blocks that are
		 * skipped, and a batch a million ranges, each of a block at least.
		 */
		cond_resched();
		if (fatal_signal_pending(current))
			return NV_ERR_SIGNAL_PENDING;
		/* Never touched: zeros everywhere. */
		if (!block) {
			(*skipped)++;
			continue;
		}
		from = max(start, block->start);
		to = min(end, block->end);
		/* Its mappings must stay: where migration is forbidden a fault may be fatal. */
		if (!uvm_range_group_all_migratable(range->va_space, from, to)) {
			(*skipped)++;
			continue;
		}
		status = visit(block, uvm_va_block_region_from_start_end(block, from, to), data);
		if (status != NV_OK)
			return status;
	}
	return NV_OK;
}

#endif
