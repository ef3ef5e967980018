/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm.c and uvm_va_space_mm.c: a process' memory is given back while the system goes to sleep, or wakes up.
 *
 * Whoever gives it back flushes the fault buffers of the process' GPUs, without the VA space's lock. Upstream does that without the
 * lock of power management, too. So it writes to a GPU that sleeps, or sets back where the buffer is read while whoever
 * wakes the GPU up asks for that. Or it waits for a fault that never comes, and nobody's faults are serviced any more.
 *
 * Here it holds that lock, but not while it waits for those who have retained the memory: some wait for the lock of
 * that memory, which a process may hold for as long as it likes, and the system's sleep would wait with them. No
 * GPU is touched by then.
 */
#ifndef UVM_RUST_RESUME_H
#define UVM_RUST_RESUME_H

#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_lock.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_fixes.h"

/* Does what uvm_va_space_mm_unregister() does, if @is_locked with the lock of power management. Caller holds no lock of UVM's. */
static inline void uvm_rust_mm_unregister(uvm_va_space_t *va_space, bool is_locked)
{
	if (is_locked)
		uvm_down_read(&g_uvm_global.pm.lock);
	/* One thread at a time is here. */
	va_space->uvm_rust_pm_locked = is_locked;
	uvm_va_space_mm_unregister(va_space);
}

/* Hook of uvm_va_space_mm.c, by the former, where nothing is left but to wait for those who have retained the memory. */
static inline void uvm_rust_mm_shut_down(uvm_va_space_t *va_space)
{
	if (!va_space->uvm_rust_pm_locked)
		return;
	va_space->uvm_rust_pm_locked = false;
	uvm_up_read(&g_uvm_global.pm.lock);
}

#endif
