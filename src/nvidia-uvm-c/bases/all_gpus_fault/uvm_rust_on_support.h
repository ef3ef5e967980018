/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is so of all GPUs, as none is old. Only for uvm_rust_compat.h.
 */
#define uvm_rust_is_lite(range, gpu)		((void)(range), (void)(gpu), false)
#define uvm_rust_gpu_can_fault(gpu)		((void)(gpu), true)
#define uvm_rust_cancels_by_address(parent_gpu)	((void)(parent_gpu), true)
#define uvm_rust_can_switch_prefetch(parent_gpu)	((void)(parent_gpu), true)

#define uvm_rust_is_read_duplicate(policy, va_space)	((void)(va_space), uvm_va_policy_is_read_duplicate(policy))
#define UVM_RUST_MAY_MIGRATE(...)
/* Upstream keeps no account of it. */
#define uvm_rust_mark_dirty(chunk, page)	((void)(chunk), (void)(page))
#define uvm_va_block_mark_cpu_dirty(block)	((void)(block))
