/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c, behind uvm_rust_va_block.h: which locks the thread waits for that maps what was evicted.
 *
 * One thread of upstream's gives the processors of SetAccessedBy their mappings of evicted memory, for all processes. It takes the
 * lock of the owner's memory and that of the owner's VA space. A process may have these locks held for as long as it likes. Upstream's
 * thread waits for them, and whoever ends a VA space, or suspends, waits for that thread. Here it tries the locks for a while, and
 * all that it tries is a small part of its time. A processor that has no mapping makes a fault; where it is not the preferred
 * location, block_select_processor_residency() leaves the memory where it is and adds the mapping.
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

/* How often the thread tries the locks for a va_block, and what it sleeps in between. */
#define UVM_RUST_MAPPINGS_TRIES 20
#define UVM_RUST_MAPPINGS_US 100
/* So often it sleeps in a tenth of a second at most, for all VA spaces: no more than a fifth of its time. */
#define UVM_RUST_MAPPINGS_SLEEPS 100

/*
 * Whether to try the locks of a va_block's VA space once more after @tries. Who holds them for a moment shall not cost the mappings of
 * a va_block; who holds them for good, or many that take turns, shall not hold up the thread. Only g_uvm_global.global_q's one thread
 * calls this, so that what it counts needs no lock. Sleeps, with no lock.
 */
static inline bool uvm_rust_mappings_again(unsigned int tries)
{
	static unsigned long since;
	static unsigned int sleeps;

	if (tries == UVM_RUST_MAPPINGS_TRIES)
		return false;
	if (time_after(jiffies, since + HZ / 10)) {
		since = jiffies;
		sleeps = 0;
	}
	if (sleeps == UVM_RUST_MAPPINGS_SLEEPS)
		return false;
	sleeps++;
	usleep_range(UVM_RUST_MAPPINGS_US, 2 * UVM_RUST_MAPPINGS_US);
	return true;
}

/* A base whose GPUs are all newer defines this. */
#ifndef uvm_rust_has_fatal_engines
/*
 * Is a GPU in use on which a copy engine's access without a mapping is fatal, as before Volta? Of any VA space: the GPUs of one
 * may go while its lock is not held.
 */
static inline bool uvm_rust_has_fatal_engines(void)
{
	bool has = false;
	size_t i;

	uvm_spin_lock_irqsave(&g_uvm_global.gpu_table_lock);
	for (i = 0; i < ARRAY_SIZE(g_uvm_global.parent_gpus); i++) {
		const uvm_parent_gpu_t *gpu = g_uvm_global.parent_gpus[i];

		has |= gpu && !gpu->non_replayable_faults_supported;
	}
	uvm_spin_unlock_irqrestore(&g_uvm_global.gpu_table_lock);
	return has;
}
#endif

/*
 * The locks of @va_space were not had. An access of a GPU that cannot fault, or of a copy engine whose faults are fatal, would
 * be a fatal one, so where there is such a GPU the va_block goes behind the others in the queue. The first may be read without a lock:
 * who registers a GPU, or names one that may access, maps afterwards.
 *
 * The thread that calls this is waited for by who ends @va_space, so it is alive. If it has ended when the thread comes back,
 * the va_block is dead, and nothing is done.
 */
static inline void uvm_rust_mappings_later(uvm_va_space_t *va_space, uvm_va_block_t *va_block)
{
	static NvU64 slept;

	if (!uvm_rust_has_non_faultable(va_space) && !uvm_rust_has_fatal_engines())
		return;
	/* A thread that flushes the queue waits for all items in it, so the thread sleeps at most once in a millisecond. */
	if (ktime_get_ns() - slept > NSEC_PER_MSEC) {
		usleep_range(1000, 2000);
		slept = ktime_get_ns();
	}
	uvm_va_block_retain(va_block);
	if (!nv_kthread_q_schedule_q_item(&g_uvm_global.global_q, &va_block->eviction_mappings_q_item))
		uvm_va_block_release_no_destroy(va_block);
}

/* Takes the lock of the owner's memory, and gives that memory, which is NULL for nobody's. If false, nothing is taken. */
static inline bool uvm_rust_mappings_mm(uvm_va_space_t *va_space, uvm_va_block_t *va_block, struct mm_struct **mm)
{
	unsigned int tries = 0;

	if (!uvm_rust_fix_mappings) {
		*mm = uvm_va_space_mm_retain_lock(va_space);
		return true;
	}
	do {
		if (uvm_seam_mm_lock((struct uvm_seam_space *)va_space, false, mm))
			return true;
	} while (uvm_rust_mappings_again(tries++));
	*mm = NULL;
	uvm_rust_mappings_later(va_space, va_block);
	return false;
}

/*
 * Takes the VA space's lock in read mode. If false, the lock of @mm, which the caller has, is given back, and @mm is NULL. It is
 * given back for each sleep, too.
 */
static inline bool uvm_rust_mappings_space(uvm_va_space_t *va_space, uvm_va_block_t *va_block, struct mm_struct **mm)
{
	struct mm_struct *before = *mm;
	unsigned int tries = 0;

	if (!uvm_rust_fix_mappings) {
		uvm_va_space_down_read(va_space);
		return true;
	}
	while (!uvm_down_read_trylock(&va_space->lock)) {
		uvm_va_space_mm_release_unlock(va_space, *mm);
		do {
			*mm = NULL;
			if (!uvm_rust_mappings_again(tries++)) {
				uvm_rust_mappings_later(va_space, va_block);
				return false;
			}
		} while (!uvm_seam_mm_lock((struct uvm_seam_space *)va_space, false, mm));
		/* What the caller has begun is for that memory. */
		if (*mm != before) {
			uvm_va_space_mm_release_unlock(va_space, *mm);
			*mm = NULL;
			return false;
		}
	}
	return true;
}

/*
 * What a GPU may do with a page that it gets a mapping of without a fault: because SetAccessedBy says so, or as the page
 * thrashes. Of ordinary memory it may read, as a forked process may have the page as well (uvm_rust_hmm.h). A write faults.
 */
static inline uvm_prot_t uvm_rust_unasked_prot(uvm_va_block_t *va_block, uvm_prot_t prot)
{
	if (!uvm_rust_fix_forked || !uvm_va_block_is_hmm(va_block))
		return prot;
	return min(prot, UVM_PROT_READ_ONLY);
}

#endif
