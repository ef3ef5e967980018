/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_tools.c and uvm_va_space.c: a process hears of the replays of its own faults, and of no others'.
 *
 * Upstream tells each replay of each GPU to every VA space that listens, also to one without a GPU: when the faults of other processes
 * are serviced, and in what batches, tells what they compute.
 *
 * A VA space that listens notes in which batches it had a fault, and a replay is told to those that had one which has not been replayed.
 */
#ifndef UVM_RUST_REPLAYS_H
#define UVM_RUST_REPLAYS_H

#include "uvm_common.h"
#include "uvm_gpu.h"
#include "uvm_tools.h"
#include "uvm_va_space.h"

#include "uvm_rust_compat.h"
#include "uvm_rust_fixes.h"

/* Whether @va_space can note its faults; called before it listens to what is in the mask @events. Sleeps. */
bool uvm_rust_replays_listen(uvm_va_space_t *va_space, NvU64 events);
/* @va_space, which listens, has this fault in the batch @batch of @gpu's. */
void uvm_rust_replays_note(uvm_va_space_t *va_space, uvm_gpu_t *gpu, const uvm_fault_buffer_entry_t *fault, NvU32 batch);
/* Whether @va_space hears of the replay of that batch; asked once for each. @parent: the GPU's index among parents. */
bool uvm_rust_replays_hears(uvm_va_space_t *va_space, NvU32 parent, uvm_fault_client_type_t client, NvU32 batch);
#ifndef UVM_PARENT_ID_MAX_GPUS
#define UVM_PARENT_ID_MAX_GPUS	UVM_ID_MAX_GPUS
#endif

#ifdef UVM_RUST_BROADCAST_EVENT
/* Until 550.40.07 one function tells all VA spaces of any event. The other that goes to all is for tests. */
static inline bool uvm_rust_hears_entry(uvm_va_space_t *va_space, const UvmEventEntry *entry)
{
	typeof(&entry->eventData.gpuFaultReplay) replay = &entry->eventData.gpuFaultReplay;
	bool hub = replay->clientType == UvmEventFaultClientTypeHub;

	if (replay->eventType != UvmEventTypeGpuFaultReplay)
		return true;
	return uvm_rust_replays_hears(va_space, replay->gpuIndex - UVM_ID_GPU0_VALUE,
				      hub ? UVM_FAULT_CLIENT_TYPE_HUB : UVM_FAULT_CLIENT_TYPE_GPC, replay->batchId);
}

/* Whether @va_space hears of what the function tells that asks this, by its arguments. */
#define uvm_rust_hears(va_space)	uvm_rust_hears_entry(va_space, entry)
#else
#define uvm_rust_hears(va_space)	\
	uvm_rust_replays_hears(va_space, uvm_parent_id_value_from_processor_id(gpu_id) - UVM_PARENT_ID_GPU0_VALUE, client_type, batch_id)
#endif

/* @gpu is no longer @va_space's; its batches may count from the beginning when it comes again. */
void uvm_rust_replays_forget(uvm_va_space_t *va_space, uvm_gpu_t *gpu);
/* Nobody listens any more, and nothing is noted. */
void uvm_rust_replays_end(uvm_va_space_t *va_space);

#endif
