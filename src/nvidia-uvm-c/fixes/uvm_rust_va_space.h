/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_space.c: how a CPU fault gets the VA space's lock, and ends where it is refused memory, which GPUs the VA space
 * keeps while it asks about them, what stands for nobody among its va_blocks, and who pays for its host memory where that is no mm's.
 */
#ifndef UVM_RUST_VA_SPACE_H
#define UVM_RUST_VA_SPACE_H

#include <linux/memcontrol.h>

#include "uvm_lock.h"
#include "uvm_va_space.h"

#include "uvm_rust_charge.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"
#include "uvm_rust_on_links.h"

/*
 * Takes @va_space's lock in read mode; false if somebody has it in write mode, or waits for that,
 * and the fault has to be repeated.
 *
 * Linux holds a reference on the page of the GPU's that a CPU faults on. Who unregisters a GPU brings its
 * pages to the host, and goes on until none is left, with this lock held in write mode. Linux
 * migrates no page that has one reference more: a fault that waited for the lock would keep it
 * for ever.
 */
static inline bool uvm_rust_lock_for_fault(uvm_va_space_t *va_space, bool is_hmm)
{
	if (is_hmm && uvm_rust_fix_cpu_fault)
		return uvm_down_read_trylock(&va_space->lock);
	uvm_va_space_down_read(va_space);
	return true;
}

/*
 * What a CPU fault of @va_space ends with. Linux repeats a fault for which there is no memory, as it expects that some becomes free. A
 * VA space that gets no more memory of a GPU may be refused it for ever, where CPUs access pages that are on a GPU: the process
 * gets SIGBUS. Caller holds the VA space's lock.
 */
static inline NV_STATUS uvm_rust_cpu_fault_ends(uvm_va_space_t *va_space, NV_STATUS status)
{
	return status == NV_ERR_NO_MEMORY && uvm_rust_gets_no_more(va_space) ? NV_ERR_INVALID_STATE : status;
}

/* The cgroup of this process pays for what @va_space takes of the host's memory, also when the process has gone (uvm_rust_charge.h). */
static inline void uvm_rust_opened(uvm_va_space_t *va_space)
{
#ifdef CONFIG_MEMCG
	if (uvm_rust_fix_charge)
		va_space->uvm_rust_payer = get_mem_cgroup_from_mm(current->mm);
#endif
}

/* Its memory is given back by now; also if uvm_rust_opened() was not reached. */
static inline void uvm_rust_closed(uvm_va_space_t *va_space)
{
#ifdef CONFIG_MEMCG
	mem_cgroup_put(va_space->uvm_rust_payer);
#endif
}

#endif
