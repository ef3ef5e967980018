/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_space.c: how a CPU fault gets the VA space's lock, which GPUs it keeps while it asks about them, and what stands
 * for nobody among its va_blocks.
 */
#ifndef UVM_RUST_VA_SPACE_H
#define UVM_RUST_VA_SPACE_H

#include "uvm_lock.h"
#include "uvm_va_space.h"

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

#endif
