/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a migration notes of the links that it has used: it adds to a mask, which UVM_MIGRATE clears before,
 * and whose GPUs it asks for errors of NVLink's after. The prefetcher's worker copies between a GPU and the
 * host, and leaves asking to the fault, or the call, that uses the pages.
 */
#ifndef UVM_RUST_ON_LINKS_H
#define UVM_RUST_ON_LINKS_H

#include <linux/delay.h>

#include "uvm_global.h"
#include "uvm_va_space.h"

#include "uvm_rust_fixes.h"

#define uvm_rust_forget_links(context)	uvm_processor_mask_zero(&(context)->gpus_to_check_for_nvlink_errors)

/* How long a CPU fault rests at least that is to come again, in microseconds. */
#define UVM_RUST_ASKED_REST_US	50

/*
 * In uvm_va_space_cpu_fault(), before the lock of @va_space is let go to ask RM about @gpus: retains those until
 * uvm_rust_release_asked(). The lock alone keeps the GPUs of the VA space alive, and without it another thread may unregister
 * them. A GPU that this VA space has not registered, a peer of one of its GPUs, may go at any time, and took no part in a copy
 * of this VA space's: RM is not asked about it.
 *
 * Gives false if that leaves none: the page is not mapped before the interrupt of such a peer is over, which is RM's. So the fault is to
 * come again, and its thread can be killed in between.
 */
static inline bool uvm_rust_retain_asked(uvm_va_space_t *va_space, uvm_processor_mask_t *gpus)
{
	if (!uvm_rust_fix_nvlink_lock)
		return true;
	uvm_processor_mask_and(gpus, gpus, &va_space->registered_gpus);
	uvm_global_gpu_retain(gpus);
	return !uvm_processor_mask_empty(gpus);
}

/* Such a fault rests once it has let the lock go: the GPU copies the page each time. */
static inline void uvm_rust_rest_asked(void)
{
	usleep_range(UVM_RUST_ASKED_REST_US, 2 * UVM_RUST_ASKED_REST_US);
}

/* Caller holds no lock of a VA space: the last reference ends a GPU. */
static inline void uvm_rust_release_asked(const uvm_processor_mask_t *gpus)
{
	if (uvm_rust_fix_nvlink_lock)
		uvm_global_gpu_release(gpus);
}

#endif
