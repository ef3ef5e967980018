/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a GPU can do, where all can fault and have memory that can be evicted; and how it is found.
 */
#ifndef UVM_RUST_ON_GPUS_H
#define UVM_RUST_ON_GPUS_H

#include "uvm_gpu.h"
#include "uvm_global.h"
#include "uvm_va_space.h"

#define uvm_rust_gpu_supports_eviction(gpu)	((void)(gpu), true)
#define uvm_rust_has_non_faultable(va_space)	((void)(va_space), false)
#define uvm_rust_is_lite(range, gpu)		((void)(range), (void)(gpu), false)
#define uvm_rust_gpu_can_fault(gpu)		((void)(gpu), true)
#define uvm_rust_cancels_by_address(parent_gpu)	((void)(parent_gpu), true)
#define uvm_rust_can_switch_prefetch(parent_gpu)	((void)(parent_gpu), true)

#define uvm_rust_is_read_duplicate(policy, va_space)	((void)(va_space), uvm_va_policy_is_read_duplicate(policy))
#define UVM_RUST_MAY_MIGRATE(...)
/* Upstream keeps no account of it. */
#define uvm_rust_mark_dirty(chunk, page)	((void)(chunk), (void)(page))

static inline uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id)
{
	return uvm_gpu_get(id);
}

#endif
