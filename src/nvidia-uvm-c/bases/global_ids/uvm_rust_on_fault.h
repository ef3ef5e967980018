/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * As gpu_faults has it, which is so of these releases as well, but for what a GPU's number in a VA space and 535's lack of ordinary memory
 * change.
 */
#include_next "uvm_rust_on_fault.h"

/* Without HMM that asks for a service in place. */
#define service_fault_batch_dispatch(va_space, gpu_va_space, batch, first, faults, per_block, may_migrate) \
	((void)(may_migrate), \
	 (service_fault_batch_dispatch)(va_space, gpu_va_space, batch, first, faults, per_block))

#undef uvm_rust_base_to_va_space
#define uvm_rust_base_to_va_space(gpu, entry)		uvm_gpu_fault_entry_to_va_space(gpu, entry, &(entry)->va_space)
