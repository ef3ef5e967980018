/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What some old GPUs cannot do. Only for uvm_rust_compat.h.
 */
/* Whether the GPU only ever reads and writes the range where it is. */
#define uvm_rust_is_lite(range, gpu)		uvm_processor_mask_test(&(range)->uvm_lite_gpus, (gpu)->id)
#define uvm_rust_gpu_can_fault(gpu)		((gpu)->parent->replayable_faults_supported)
#define uvm_rust_cancels_by_address(parent_gpu)	((parent_gpu)->fault_cancel_va_supported)
#define uvm_rust_can_switch_prefetch(parent_gpu)	((parent_gpu)->prefetch_fault_supported)

/* Where some GPUs cannot fault, upstream takes a VA space, and whether migrations are allowed, as well. */
#define uvm_rust_is_read_duplicate(policy, va_space)	uvm_va_policy_is_read_duplicate(policy, va_space)
#define UVM_RUST_MAY_MIGRATE(...)		__VA_ARGS__
/* Of a host page that UVM has written to itself. */
#define uvm_rust_mark_dirty(chunk, page)	uvm_cpu_chunk_mark_dirty(chunk, page)
