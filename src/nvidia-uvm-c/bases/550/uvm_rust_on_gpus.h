/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a GPU can do, and how it is found.
 */
#ifndef UVM_RUST_ON_GPUS_H
#define UVM_RUST_ON_GPUS_H

#include "uvm_gpu.h"
#include "uvm_global.h"
#include "uvm_va_space.h"

static inline bool uvm_rust_gpu_supports_eviction(uvm_gpu_t *gpu)
{
	return uvm_parent_gpu_supports_eviction(gpu->parent);
}

/* Is a GPU registered that cannot fault? Caller holds the VA space's lock. */
static inline bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space)
{
	return !uvm_processor_mask_empty(&va_space->non_faultable_processors);
}

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

/* A GPU that is registered in the VA space. */
static inline uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id)
{
	return uvm_gpu_get(id);
}

#endif
