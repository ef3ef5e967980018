// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Takes the place of uvm_rust_discard.c, uvm_rust_evict.c and uvm_rust_fault.c in a driver of 580 or later that is built
 * with UVM_RUST_WHOLE=0. UVM_DISCARD is then upstream's, and UVM_RUST_DISCARD_BATCH calls upstream's discard range by
 * range (ffi/native.rs). Upstream's eviction lists and fault loop stay as well; what they do is counted.
 */
#include "uvm_rust_hooks.h"
#include "uvm_global.h"
#include "uvm_gpu_replayable_faults.h"
#include "uvm_rust_on_discard.h"

/* --- statistics ------------------------------------------------------------------ */

UVM_RUST_C_BODY(uvm_parent_gpu_service_replayable_faults);

/* Caller: the bottom half, holding the GPU's replayable-fault service lock. */
void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu)
{
	NvU64 before = parent_gpu->fault_buffer.replayable.stats.num_replays;

	uvm_parent_gpu_service_replayable_faults__c(parent_gpu);
	if (parent_gpu->smc.enabled || !parent_gpu->gpus[0])
		return;
	uvm_rust_note_served(uvm_id_gpu_index(parent_gpu->gpus[0]->id),
			     parent_gpu->fault_buffer.replayable.stats.num_replays - before);
}
