/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Upstream's file of replayable faults, which serves one GPU's, with its functions that are replaced under
 * other names; and what of its statics has other arguments elsewhere. Only for uvm_rust_fault.c.
 */
UVM_RUST_C_BODY(uvm_gpu_service_replayable_faults);
UVM_RUST_C_BODY(uvm_parent_gpu_fault_buffer_init);
UVM_RUST_C_BODY(uvm_parent_gpu_fault_buffer_deinit);
#define uvm_gpu_service_replayable_faults	uvm_gpu_service_replayable_faults__c
#define uvm_parent_gpu_fault_buffer_init	uvm_parent_gpu_fault_buffer_init__c
#define uvm_parent_gpu_fault_buffer_deinit	uvm_parent_gpu_fault_buffer_deinit__c
#include "uvm_gpu_replayable_faults.c"
#undef uvm_gpu_service_replayable_faults
#undef uvm_parent_gpu_fault_buffer_init
#undef uvm_parent_gpu_fault_buffer_deinit

#define uvm_rust_base_to_va_space(gpu, entry)							\
	uvm_parent_gpu_fault_entry_to_va_space((gpu)->parent, entry, &(entry)->va_space)
#include "uvm_rust_fault_by_gpu.h"
