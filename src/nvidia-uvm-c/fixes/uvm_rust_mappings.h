/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c, behind uvm_rust_va_block.h: which locks the thread waits for that maps what was evicted.
 *
 * One thread of upstream's gives the processors of SetAccessedBy their mappings of evicted memory, for all processes. It takes the
 * lock of the owner's memory and that of the owner's VA space. A process may have these locks held for as long as it likes. Upstream's
 * thread waits for them, and whoever ends a VA space, or suspends, waits for that thread. Here it only tries the locks. A processor
 * that has no mapping makes a fault, and block_select_processor_residency() leaves the memory where it is and adds the mapping.
 */
#ifndef UVM_RUST_MAPPINGS_H
#define UVM_RUST_MAPPINGS_H

#include <linux/delay.h>

#include "uvm_global.h"
#include "uvm_lock.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"

/* The thread sleeps for so many microseconds before it looks again. */
#define UVM_RUST_MAPPINGS_US 1000

/*
 * The locks of @va_space were not had. An access of a GPU that cannot fault would be a fatal one, so where there is such a GPU the thread
 * comes back later. It may read without a lock whether there is: who registers a GPU, or names one that may access, maps afterwards.
 *
 * The thread that calls this is waited for by who ends @va_space, so it is alive. If it has ended when the thread comes back,
 * the va_block is dead, and nothing is done. Sleeps, with no lock.
 */
static inline void uvm_rust_mappings_later(uvm_va_space_t *va_space, uvm_va_block_t *va_block)
{
	if (!uvm_rust_has_non_faultable(va_space))
		return;
	usleep_range(UVM_RUST_MAPPINGS_US, 2 * UVM_RUST_MAPPINGS_US);
	uvm_va_block_retain(va_block);
	if (!nv_kthread_q_schedule_q_item(&g_uvm_global.global_q, &va_block->eviction_mappings_q_item))
		uvm_va_block_release_no_destroy(va_block);
}

/* Takes the lock of the owner's memory, and gives that memory, which is NULL for nobody's. If false, nothing is taken. */
static inline bool uvm_rust_mappings_mm(uvm_va_space_t *va_space, uvm_va_block_t *va_block, struct mm_struct **mm)
{
	if (!uvm_rust_fix_mappings) {
		*mm = uvm_va_space_mm_retain_lock(va_space);
		return true;
	}
	if (uvm_seam_mm_lock((struct uvm_seam_space *)va_space, false, mm))
		return true;
	*mm = NULL;
	uvm_rust_mappings_later(va_space, va_block);
	return false;
}

/* Takes the VA space's lock in read mode. If false, the lock of @mm, which the caller has, is given back, and @mm is NULL. */
static inline bool uvm_rust_mappings_space(uvm_va_space_t *va_space, uvm_va_block_t *va_block, struct mm_struct **mm)
{
	if (!uvm_rust_fix_mappings) {
		uvm_va_space_down_read(va_space);
		return true;
	}
	if (uvm_down_read_trylock(&va_space->lock))
		return true;
	uvm_va_space_mm_release_unlock(va_space, *mm);
	*mm = NULL;
	uvm_rust_mappings_later(va_space, va_block);
	return false;
}

#endif
