/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * In front of uvm_hmm.c: what keeps lockdep useful, and a fix for what it found.
 */
#ifndef UVM_RUST_HMM_H
#define UVM_RUST_HMM_H

#include <linux/lockdep.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>

#ifdef CONFIG_MMU_NOTIFIER

/* Upstream's one table of this kind. Set before the first notifier that needs it. */
static const struct mmu_interval_notifier_ops *uvm_rust_hmm_upstream_ops;

/*
 * Upstream's notifier, which allocates as if it might reclaim memory (its thread
 * context, before anything else). Reclaim calls notifiers: without memory it could
 * wait for itself. Here it may use what is kept for reclaim, as it may when reclaim
 * has called it.
 *
 * lockdep does not look: what it would report next is upstream's, and it is off from
 * then on. The notifier takes the va_block's lock, under which upstream calls
 * migrate_vma_setup(), whose notifiers come back here and then take no lock, as UVM
 * is the owner; but also allocates memory that may have to be reclaimed first
 * (docs/vgpu.md).
 *
 * It looks away for the whole call, though the va_block's lock is taken and released once in
 * hmm_invalidate() itself. Taken unseen, that lock must be released unseen, and it is released
 * and taken again far inside, where unmapping a part of a big page needs page tables
 * (block_alloc_pt_range_with_retry): lockdep would report a release of what nobody holds. And
 * of the locks inside, the PMM's alone is held elsewhere in upstream while memory is allocated
 * with GFP_KERNEL (split_gpu_chunk), so that it makes the same report as the va_block's.
 * (Both by reading 550's source.) What the driver does under these locks lockdep sees where
 * faults, migrations and evictions do the same; not seen is only that reclaim comes before it.
 */
static inline bool uvm_rust_hmm_invalidate(struct mmu_interval_notifier *notifier,
					   const struct mmu_notifier_range *range, unsigned long cur_seq)
{
	unsigned int flags = memalloc_noreclaim_save();
	bool done;

	lockdep_off();
	done = READ_ONCE(uvm_rust_hmm_upstream_ops)->invalidate(notifier, range, cur_seq);
	lockdep_on();
	memalloc_noreclaim_restore(flags);
	return done;
}

static const struct mmu_interval_notifier_ops uvm_rust_hmm_notifier_ops = {
	.invalidate = uvm_rust_hmm_invalidate,
};

/*
 * As mmu_interval_notifier_insert(), with ours around the notifier of @ops. That
 * takes mmap_lock for writing for the first notifier of an mm, and tells lockdep
 * that it might each time. Upstream calls it with the lock held for reading, which
 * is safe, as a VA space has registered a notifier before; but lockdep reports it,
 * and is off from then on.
 */
static inline int uvm_rust_interval_notifier_insert(struct mmu_interval_notifier *notifier, struct mm_struct *mm,
						    unsigned long start, unsigned long length,
						    const struct mmu_interval_notifier_ops *ops)
{
	int ret;

	WRITE_ONCE(uvm_rust_hmm_upstream_ops, ops);
	lockdep_off();
	ret = mmu_interval_notifier_insert(notifier, mm, start, length, &uvm_rust_hmm_notifier_ops);
	lockdep_on();
	return ret;
}
#define mmu_interval_notifier_insert uvm_rust_interval_notifier_insert
#endif

#include "uvm_rust_hooks.h"

/* The notifier is the one place of uvm_hmm.c that makes and frees such a context. */
#define uvm_va_block_context_alloc	uvm_rust_notifier_context
#define uvm_va_block_context_free	uvm_rust_notifier_context_free

/* For uvm_rust_evict_rest(). */
#if UVM_IS_CONFIG_HMM()
#if UVM_RUST_UPSTREAM >= 550
static NV_STATUS uvm_hmm_pmm_gpu_evict_pfn(unsigned long pfn);
#endif

NV_STATUS uvm_rust_hmm_evict_pfn(unsigned long pfn)
{
	return uvm_hmm_pmm_gpu_evict_pfn(pfn);
}
#endif

#endif
