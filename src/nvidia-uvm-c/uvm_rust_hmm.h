/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * In front of uvm_hmm.c: what keeps lockdep useful.
 */
#ifndef UVM_RUST_HMM_H
#define UVM_RUST_HMM_H

#include <linux/lockdep.h>
#include <linux/mmu_notifier.h>

#ifdef CONFIG_MMU_NOTIFIER

/*
 * As mmu_interval_notifier_insert(). That takes mmap_lock for writing for the
 * first notifier of an mm, and tells lockdep that it might each time. Upstream
 * calls it with the lock held for reading, which is safe, as a VA space has
 * registered a notifier before; but lockdep reports it, and is off from then on.
 */
static inline int uvm_rust_interval_notifier_insert(struct mmu_interval_notifier *notifier, struct mm_struct *mm,
						    unsigned long start, unsigned long length,
						    const struct mmu_interval_notifier_ops *ops)
{
	int ret;

	lockdep_off();
	ret = mmu_interval_notifier_insert(notifier, mm, start, length, ops);
	lockdep_on();
	return ret;
}
#define mmu_interval_notifier_insert uvm_rust_interval_notifier_insert
#endif

#endif
