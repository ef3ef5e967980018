/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm.c: a VA space that is closed while the system sleeps.
 *
 * Its end is left to a thread of the driver's then, which goes on when the system wakes up. Each thread that
 * is in UVM has a context in which debug builds record the locks that the thread holds. That thread has none in upstream: the first
 * lock that it takes is recorded in NULL, and the kernel oopses.
 */
#ifndef UVM_RUST_DEFERRED_H
#define UVM_RUST_DEFERRED_H

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_lock.h"

#include "uvm_rust_fixes.h"

static void uvm_release_deferred(void *va_space);

/* Called in place of the former, by the thread that destroys what could not be destroyed at once. */
static void uvm_rust_release_deferred(void *va_space)
{
	if (uvm_rust_fix_deferred)
		UVM_ENTRY_VOID(uvm_release_deferred(va_space));
	else
		uvm_release_deferred(va_space);
}

#endif
