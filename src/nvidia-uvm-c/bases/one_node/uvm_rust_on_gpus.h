/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a GPU can do, and how it is found. A GPU and its parent share one number space, which has no
 * name of its own.
 */
#ifndef UVM_RUST_ON_GPUS_H
#define UVM_RUST_ON_GPUS_H

#include "uvm_gpu.h"
#include "uvm_va_space.h"

#define UVM_PARENT_ID_MAX_GPUS		UVM_ID_MAX_GPUS
#define uvm_parent_id_gpu_index(id)	uvm_id_gpu_index(id)
typedef uvm_gpu_id_t uvm_parent_gpu_id_t;

static inline bool uvm_rust_gpu_supports_eviction(uvm_gpu_t *gpu)
{
	return uvm_gpu_supports_eviction(gpu);
}

/* Is a GPU registered that cannot fault? Caller holds the VA space's lock. */
static inline bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space)
{
	uvm_gpu_t *gpu;

	for_each_va_space_gpu(gpu, va_space) {
		if (!uvm_processor_mask_test(&va_space->faultable_processors, gpu->id))
			return true;
	}
	return false;
}

#define uvm_rust_is_lite(range, gpu)		uvm_processor_mask_test(&(range)->uvm_lite_gpus, (gpu)->id)
#define uvm_rust_gpu_can_fault(gpu)		((gpu)->parent->replayable_faults_supported)
#define uvm_rust_cancels_by_address(parent_gpu)	((parent_gpu)->fault_cancel_va_supported)
#define uvm_rust_can_switch_prefetch(parent_gpu)	((parent_gpu)->prefetch_fault_supported)

/* Where some GPUs cannot fault, upstream takes a VA space, and whether migrations are allowed, as well. */
#define uvm_rust_is_read_duplicate(policy, va_space)	uvm_va_policy_is_read_duplicate(policy, va_space)
#define UVM_RUST_MAY_MIGRATE(...)		__VA_ARGS__
/* Of a host page that UVM has written to itself. */
#define uvm_rust_mark_dirty(chunk, page)	uvm_cpu_chunk_mark_dirty(chunk, page)

static inline uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id)
{
	return uvm_va_space_get_gpu(va_space, id);
}

#endif
