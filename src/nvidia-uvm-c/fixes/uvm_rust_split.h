/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c: a va_block is split without a report of lockdep's, which would be off from then on.
 *
 * Upstream locks the new va_block while it has the lock of the one that is split, and lets the latter go and takes it again where
 * memory has to be evicted for page tables. lockdep takes that for two orders of two locks. It is safe: the new
 * va_block is nobody else's before the split is done, so that no thread has its lock and waits for the other one. So lockdep does not see
 * the new va_block's lock: what is taken unseen is released unseen.
 */
#ifndef UVM_RUST_SPLIT_H
#define UVM_RUST_SPLIT_H

#include <linux/lockdep.h>

#include "uvm_lock.h"

/* Before 550 upstream itself hides that lock. */
#ifdef uvm_mutex_lock_nested
static inline void uvm_rust_lock_new(uvm_mutex_t *mutex)
{
	lockdep_off();
	uvm_mutex_lock_nested(mutex);
	lockdep_on();
}

static inline void uvm_rust_unlock_new(uvm_mutex_t *mutex)
{
	lockdep_off();
	uvm_mutex_unlock_nested(mutex);
	lockdep_on();
}

#undef uvm_mutex_lock_nested
#define uvm_mutex_lock_nested uvm_rust_lock_new
#undef uvm_mutex_unlock_nested
#define uvm_mutex_unlock_nested uvm_rust_unlock_new
#endif

#endif
