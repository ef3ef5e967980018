/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_tools.c and uvm_channel.c: who hands out the tools' events looks at channels whose GPU may go meanwhile.
 *
 * A flush goes through all channels with an event that has yet to be handed out, of any process' GPU. Upstream notes in each that
 * it is looked at, and lets the list's lock go. Nothing keeps the GPU: whoever unregisters it for the last time frees its channels,
 * and asserts, in debug builds alone, that no such note is left.
 */
#ifndef UVM_RUST_FLUSH_H
#define UVM_RUST_FLUSH_H

#include <linux/rwsem.h>

#include "uvm_common.h"

#include "uvm_rust_fixes.h"

/* Each flush under way holds it for reading. No other lock is waited for with it but spinlocks, and those of channels. */
extern struct rw_semaphore uvm_rust_flushes;

/* For tests: time for others before a flush looks at a channel (uvm_rust_test_flush). Sleeps. */
void uvm_rust_test_flushes(void);

static inline void uvm_rust_flush_begins(void)
{
	if (uvm_rust_fix_flush)
		down_read(&uvm_rust_flushes);
}

static inline void uvm_rust_flush_ends(void)
{
	if (uvm_rust_fix_flush)
		up_read(&uvm_rust_flushes);
}

/*
 * Called before a channel is freed, all of whose work is done and noted: no event of it is left to be handed out, so that no
 * flush which begins after this looks at it. Sleeps.
 */
static inline void uvm_rust_flushes_end(void)
{
	if (uvm_rust_fix_flush) {
		down_write(&uvm_rust_flushes);
		up_write(&uvm_rust_flushes);
	}
}

#endif
