/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of the files that service faults: what a fault on ordinary memory needs first, its va_block's migrate_lock.
 *
 * UVM_MIGRATE has that lock while Linux brings it a page of a file, for as long as the file system likes, and while it waits for its
 * turn to isolate (uvm_rust_isolation.h). Upstream waits for the lock in the thread that services the faults of all processes. Here that
 * thread only tries it, and the fault comes again.
 */
#ifndef UVM_RUST_MIGRATE_LOCK_H
#define UVM_RUST_MIGRATE_LOCK_H

#include "uvm_hmm.h"
#include "uvm_va_block.h"

#include "uvm_rust_files.h"

/* Whether this thread has the lock now. */
static inline bool uvm_rust_migrate_begins(uvm_va_block_t *va_block)
{
	if (uvm_rust_puts_off(uvm_va_block_get_va_space(va_block)))
		return uvm_hmm_migrate_begin(va_block) == NV_OK;
	uvm_hmm_migrate_begin_wait(va_block);
	return true;
}

#define uvm_hmm_migrate_begin_wait(va_block)				\
	do {								\
		if (!uvm_rust_migrate_begins(va_block))			\
			return NV_ERR_NOT_READY;			\
	} while (0)

#endif
