/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_gpu_non_replayable_faults.c: what becomes of a batch of copy engines' faults of which one cannot be serviced.
 *
 * Upstream takes a batch from RM, of all processes, and kills the channel of the first fault whose service ends by an error. Then it
 * leaves, and RM has the other faults no more: nobody switches their channels in again, and their processes wait for ever. A tenant
 * whose limit is used up may be refused memory as often as it likes (uvm_rust_charge.h); and any process may have a copy engine read
 * beyond the end of a file that it has mapped.
 */
#ifndef UVM_RUST_GPU_NON_REPLAYABLE_FAULTS_H
#define UVM_RUST_GPU_NON_REPLAYABLE_FAULTS_H

#include <linux/delay.h>

#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_tracker.h"
#include "uvm_user_channel.h"

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

/* --- pages that cannot be moved -------------------------------------------------------------- */

/* How often in a row the page of a fault may move to its GPU, before it is used where it is (F-again in docs/fault.md). */
#define UVM_RUST_COPY_TRIES	8

/* Of the copy engines' faults of a GPU. */
struct uvm_rust_copies {
	/* Which fault was serviced last, and how often in a row. */
	NvU64 instance, address;
	unsigned int tries;
	/* The handler has seen a fault that comes again. */
	bool again;
};

/* Guarded by the GPU's service lock. */
static inline struct uvm_rust_copies *uvm_rust_copies_of(uvm_parent_gpu_t *parent_gpu)
{
	static struct uvm_rust_copies all[UVM_PARENT_ID_MAX_GPUS];

	return &all[uvm_parent_id_gpu_index(parent_gpu->id)];
}

/* Upstream's functions have a GPU before 560, and from then on its parent. */
#define uvm_rust_parent_of(of)									\
	_Generic((of), uvm_parent_gpu_t *: (uvm_parent_gpu_t *)(void *)(of), uvm_gpu_t *: ((uvm_gpu_t *)(void *)(of))->parent)

/*
 * Whether the page of @entry, a fault that is about to be serviced, may move to its GPU. Linux moves no page of ordinary memory that
 * somebody holds, and upstream tries it for as long, in the thread that services the faults of all processes.
 */
static inline bool uvm_rust_copy_moves(uvm_parent_gpu_t *parent_gpu, const uvm_fault_buffer_entry_t *entry)
{
	struct uvm_rust_copies *last = uvm_rust_copies_of(parent_gpu);

	if (last->instance != entry->instance_ptr.address || last->address != entry->fault_address) {
		last->instance = entry->instance_ptr.address;
		last->address = entry->fault_address;
		last->tries = 0;
	}
	if (!uvm_rust_fix_held || ++last->tries <= UVM_RUST_COPY_TRIES)
		return true;
	/* The next time it may again: the page may have been moved back each time. */
	last->tries = 0;
	return false;
}

/* --- pages that are on an SSD, or in a file -------------------------------------------------- */

/* How long the handler rests at least before such a fault may come again, in microseconds. */
#define UVM_RUST_COPIES_REST_US	50

/*
 * How the service of a fault of @channel's ended (@status), for upstream, which clears the channel's faulted bit if that is NV_OK. It is
 * also where the fault's page has to come from an SSD or a file first, for which somebody was asked: the copy engine then faults anew, as
 * others do after a replay, and this thread, which services the faults of all processes, does not wait for the page.
 */
static inline NV_STATUS uvm_rust_copy_again(uvm_user_channel_t *channel, NV_STATUS status)
{
	if (status != NV_ERR_NOT_READY)
		return status;
	uvm_rust_copies_of(channel->gpu->parent)->again = true;
	return NV_OK;
}

/*
 * Called after the handler has serviced all faults that it fetched, of which there were some. Whether it ends, and does not look whether
 * there are more: there would be until the page is there, and nobody else's be serviced. Whatever comes meanwhile has the handler run
 * again, by its own interrupt. So this thread rests in between.
 */
static inline bool uvm_rust_copies_end(uvm_parent_gpu_t *parent_gpu)
{
	struct uvm_rust_copies *copies = uvm_rust_copies_of(parent_gpu);
	bool ends = copies->again;

	copies->again = false;
	if (ends)
		usleep_range(UVM_RUST_COPIES_REST_US, 2 * UVM_RUST_COPIES_REST_US);
	return ends;
}

#endif
