/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Upstream's file of replayable faults, as in 550's header of this name, where functions of a parent GPU
 * are called as if they were a GPU's.
 */
NV_STATUS uvm_parent_gpu_fault_buffer_init(uvm_parent_gpu_t *parent_gpu);
void uvm_parent_gpu_fault_buffer_deinit(uvm_parent_gpu_t *parent_gpu);
UVM_RUST_C_BODY(uvm_gpu_service_replayable_faults);
UVM_RUST_C_BODY(uvm_parent_gpu_fault_buffer_init);
UVM_RUST_C_BODY(uvm_parent_gpu_fault_buffer_deinit);
#define uvm_gpu_service_replayable_faults	uvm_gpu_service_replayable_faults__c
#define uvm_gpu_fault_buffer_init		uvm_parent_gpu_fault_buffer_init__c
#define uvm_gpu_fault_buffer_deinit		uvm_parent_gpu_fault_buffer_deinit__c
#include "uvm_gpu_replayable_faults.c"
#undef uvm_gpu_service_replayable_faults
#undef uvm_gpu_fault_buffer_init
#undef uvm_gpu_fault_buffer_deinit

#define uvm_parent_gpu_fault_buffer_init	uvm_gpu_fault_buffer_init
#define uvm_parent_gpu_fault_buffer_deinit	uvm_gpu_fault_buffer_deinit
#define uvm_parent_gpu_enable_prefetch_faults	uvm_gpu_enable_prefetch_faults
#define uvm_parent_gpu_disable_prefetch_faults	uvm_gpu_disable_prefetch_faults
/* Moves nothing else. */
#define hw_fault_buffer_flush_locked(parent_gpu, mode) (hw_fault_buffer_flush_locked)(parent_gpu)

#define uvm_rust_base_to_va_space(gpu, entry)							\
	uvm_parent_gpu_fault_entry_to_va_space((gpu)->parent, entry, &(entry)->va_space)
#include "uvm_rust_fault_by_gpu.h"
