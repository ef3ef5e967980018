/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which VA spaces' faults may be refused something, or put off, and nobody else notices. For uvm_rust_charge.h and uvm_rust_files.h.
 *
 * The loop in Rust cancels a VA space's faults alone (F-own in docs/fault.md), and leaves those out that are put off. Upstream's loop cancels
 * the whole batch for either, whosever the faults are.
 */
#ifndef UVM_RUST_ALONE_H
#define UVM_RUST_ALONE_H

#include "uvm_gpu.h"
#include "uvm_va_space.h"

#include "uvm_rust_compat.h"
#include "uvm_rust_on_parts.h"

/*
 * Whether @va_space is such a one: each of its GPUs can cancel by address, and has its faults serviced by the loop in Rust, if that is on.
 * Caller holds the VA space's lock.
 */
static inline bool uvm_rust_fails_alone(uvm_va_space_t *va_space)
{
	uvm_gpu_id_t id;

	for_each_gpu_id_in_mask(id, &va_space->registered_gpus) {
		uvm_parent_gpu_t *parent_gpu = uvm_rust_gpu(va_space, id)->parent;

		if (!uvm_rust_cancels_by_address(parent_gpu) || uvm_rust_served_in_c(parent_gpu))
			return false;
	}
	return true;
}

#endif
