/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Upstream's file of replayable faults, which serves a parent GPU's, whatever parts it has: with its
 * functions that are replaced under other names; and what of its statics has other arguments elsewhere.
 * Only for uvm_rust_fault.c.
 */
#include "uvm_rust_on_parts.h"

UVM_RUST_C_BODY(uvm_parent_gpu_service_replayable_faults);
UVM_RUST_C_BODY(uvm_parent_gpu_fault_buffer_init);
UVM_RUST_C_BODY(uvm_parent_gpu_fault_buffer_deinit);
#define uvm_parent_gpu_service_replayable_faults	uvm_parent_gpu_service_replayable_faults__c
#define uvm_parent_gpu_fault_buffer_init	uvm_parent_gpu_fault_buffer_init__c
#define uvm_parent_gpu_fault_buffer_deinit	uvm_parent_gpu_fault_buffer_deinit__c
#include "uvm_gpu_replayable_faults.c"
#undef uvm_parent_gpu_service_replayable_faults
#undef uvm_parent_gpu_fault_buffer_init
#undef uvm_parent_gpu_fault_buffer_deinit

#define uvm_rust_base_to_va_space(of, entry)							\
	uvm_parent_gpu_fault_entry_to_va_space((of)->parent, entry, &(entry)->va_space, &(entry)->gpu)
#define uvm_rust_base_gpu_va_space_of_part(va_space, gpu)	uvm_gpu_va_space_get(va_space, gpu)
#define uvm_rust_base_set_gpu(entry, of)		((entry)->gpu = (of))
#define uvm_rust_base_set_fatal_gpu(batch, of)		((batch)->fatal_gpu = (of))
#define uvm_rust_base_flush(of, how, type, batch)	fault_buffer_flush_locked((of)->parent, of, how, type, batch)
#define uvm_rust_base_cancel_va(gpu, entry, mode)	cancel_fault_precise_va(entry, mode)
#define uvm_rust_base_cancel_batch_tlb(gpu, batch, reason)	cancel_fault_batch_tlb(batch, reason)

static void service(uvm_gpu_t *gpu);

/*
 * One GPU's are for Rust. Those of parts of a GPU (MIG), which come in one batch here, are left to upstream's loop.
 */
void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu)
{
	uvm_gpu_t *gpu = uvm_rust_served_in_c(parent_gpu) ? NULL : uvm_parent_gpu_find_first_valid_gpu(parent_gpu);

	if (gpu)
		service(gpu);
	else
		uvm_parent_gpu_service_replayable_faults__c(parent_gpu);
}

void uvm_seam_fault_upstream(uvm_gpu_t *gpu)
{
	uvm_parent_gpu_service_replayable_faults__c(gpu->parent);
}
