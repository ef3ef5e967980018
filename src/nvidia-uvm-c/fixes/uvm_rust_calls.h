/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm.c and uvm_global.c: the system goes to sleep while upstream's calls are under way.
 *
 * A call of upstream's holds the lock of power management for reading from its beginning to its end, and copies from and to its
 * process meanwhile. Where that is memory of UVM's a CPU fault tries to have the lock once more, and is repeated until that
 * succeeds, which it does not while somebody waits to suspend: who suspends waits for the call, and the call for its fault, for
 * good. No signal ends that, as Linux looks for none between two such faults. Nor need it be the same thread: others hold the lock of a
 * process' memory while their faults are repeated, and the call may wait for that one.
 *
 * So whoever suspends lets no new call begin, and waits until the last has ended, before it waits for that lock. Until then
 * CPU faults have the lock as ever. Who holds it after that waits for no CPU fault: calls of ours have it for no copy and
 * no lock of memory.
 */
#ifndef UVM_RUST_CALLS_H
#define UVM_RUST_CALLS_H

#include <linux/rwsem.h>

#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_lock.h"

#include "uvm_rust_fixes.h"

/* Whether a call of upstream's may begin; if not, the process is to repeat it. Never waits. */
static inline bool uvm_rust_call_begins(void)
{
	return !uvm_rust_fix_params || down_read_trylock(&uvm_rust_calls);
}

static inline void uvm_rust_call_ends(void)
{
	if (uvm_rust_fix_params)
		up_read(&uvm_rust_calls);
}

/* Takes the lock of power management for writing. Caller has none. */
static inline void uvm_rust_down_write_pm(void)
{
	if (uvm_rust_fix_params)
		down_write(&uvm_rust_calls);
	uvm_down_write(&g_uvm_global.pm.lock);
	/* A call takes this one when it has the former, which it does not get any more. */
	if (uvm_rust_fix_params)
		up_write(&uvm_rust_calls);
}

#endif
