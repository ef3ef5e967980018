/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_gpu_access_counters.c: a notification of ordinary memory is not waited for. The same thread services faults of all
 * processes, and the lock that it needs UVM_MIGRATE may have for as long as a file system likes (uvm_rust_migrate_lock.h).
 *
 * A notification does not come again as a fault does. Its counter is cleared, and so counts anew: what upstream does for pages that could not
 * be moved. The same goes for pages of a file that have yet to come: as an error that would end the batch.
 */
#ifndef UVM_RUST_GPU_ACCESS_COUNTERS_H
#define UVM_RUST_GPU_ACCESS_COUNTERS_H

#include "uvm_rust_migrate_lock.h"

/* In service_phys_single_va_block(), which lets its locks go at that label. */
#undef uvm_hmm_migrate_begin_wait
#define uvm_hmm_migrate_begin_wait(va_block)				\
	do {								\
		if (!uvm_rust_migrate_begins(va_block)) {		\
			*out_flags |= UVM_ACCESS_COUNTER_ACTION_CLEAR;	\
			goto done;					\
		}							\
	} while (0)

/* There, too, with what came of the service in that variable. */
#define uvm_hmm_migrate_finish(va_block)				\
	do {								\
		uvm_hmm_migrate_finish(va_block);			\
		if (status == NV_ERR_NOT_READY)				\
			status = NV_OK;					\
	} while (0)

#endif
