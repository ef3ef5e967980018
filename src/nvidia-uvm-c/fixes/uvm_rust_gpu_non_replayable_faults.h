/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_gpu_non_replayable_faults.c: what becomes of a batch of copy engines' faults of which one cannot be serviced.
 *
 * Upstream takes a batch from RM, of all processes, and kills the channel of the first fault that it cannot service. Then it
 * leaves, and RM has the other faults no more: nobody switches their channels in again, and their processes wait for ever. A tenant
 * whose limit is used up may be refused memory as often as it likes (uvm_rust_charge.h); and any process may have a copy engine read
 * beyond the end of a file that it has mapped.
 */
#ifndef UVM_RUST_GPU_NON_REPLAYABLE_FAULTS_H
#define UVM_RUST_GPU_NON_REPLAYABLE_FAULTS_H

#include "uvm_global.h"
#include "uvm_tracker.h"

#include "uvm_rust_fixes.h"

/*
 * How the service of a fault ended, for the loop, which leaves unless that is NV_OK. A fault whose channel is killed is over, and so is
 * one whose channel has gone; only a driver that has failed as a whole services no other. @tracker has what was begun for it, which the
 * va_block waits for as well: nothing of that shall stay for the next fault, as a GPU in it may go until then.
 */
static inline NV_STATUS uvm_rust_fault_ended(NV_STATUS status, uvm_tracker_t *tracker)
{
	if (!uvm_rust_fix_charge || status == NV_OK || uvm_global_get_status() != NV_OK)
		return status;
	uvm_tracker_clear(tracker);
	return NV_OK;
}

#endif
