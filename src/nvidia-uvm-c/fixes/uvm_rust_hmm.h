/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_hmm.c: what keeps lockdep useful, and a fix for what it found.
 */
#ifndef UVM_RUST_HMM_H
#define UVM_RUST_HMM_H

#include <linux/hmm.h>
#include <linux/lockdep.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>

#include "uvm_rust_fixes.h"
#include "uvm_rust_on_hmm.h"

#if UVM_IS_CONFIG_HMM()
#include <linux/random.h>

#include "uvm_rust_isolation.h"
#include "uvm_rust_charge.h"
#include "uvm_rust_files.h"
#include "uvm_rust_strangers.h"

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
 * (docs/fixes.md).
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
	struct uvm_rust_isolation *isolation = uvm_rust_isolation();
	bool before = uvm_rust_notifies(isolation, range), done;
	unsigned int flags = 0;

	if (uvm_rust_fix_reclaim) {
		flags = memalloc_noreclaim_save();
		lockdep_off();
	}
	done = READ_ONCE(uvm_rust_hmm_upstream_ops)->invalidate(notifier, range, cur_seq);
	if (uvm_rust_fix_reclaim) {
		lockdep_on();
		memalloc_noreclaim_restore(flags);
	}
	uvm_rust_notified(isolation, before);
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

#if UVM_IS_CONFIG_HMM()

/* --- pages that a forked process has as well ----------------------------------------- */

/*
 * After fork() parent and child map the same pages for reading only, until one of them writes and gets a page of its own.
 * Linux moves such a page to a GPU for both of them. Upstream then maps it for writing there, as the memory as a whole may be
 * written to, and what a GPU of the one writes the other sees.
 *
 * So whoever brings pages to a GPU asks first which of them may not be written to, in memory that may be. These go to the
 * host, and Linux is asked for them as for a write, which gives this process pages of its own. Mappings that nobody has faulted
 * for are for reading only: uvm_rust_mappings.h.
 */

/* Where upstream allocates a GPU's chunks before it knows which pages move, uvm_rust_on_hmm.h has both of these. */
#ifndef uvm_rust_free_ahead
#define uvm_rust_free_ahead(va_block, retry)	((void)0)

static NV_STATUS hmm_make_resident_cpu(uvm_va_block_t *va_block, struct vm_area_struct *vma, unsigned long *hmm_pfns,
				       uvm_va_block_region_t region, NvU8 *access_type,
				       uvm_page_mask_t *populated_page_mask);
#define uvm_rust_make_resident_cpu(va_block, retry, vma, pfns, region)	\
	hmm_make_resident_cpu(va_block, vma, pfns, region, NULL, NULL)
#endif

/* Such pages, from the first to the last, as numbers in @args. There are none if the region is empty. */
static inline uvm_va_block_region_t uvm_rust_shared(const struct migrate_vma *args)
{
	const unsigned long wanted = MIGRATE_PFN_VALID | MIGRATE_PFN_MIGRATE;
	uvm_va_block_region_t shared = {};

	if (!uvm_rust_fix_forked || !(args->vma->vm_flags & VM_WRITE))
		return shared;
	for (unsigned long i = 0; i < args->npages; i++) {
		if ((args->src[i] & (wanted | MIGRATE_PFN_WRITE)) != wanted)
			continue;
		if (!shared.outer)
			shared.first = i;
		shared.outer = i + 1;
	}
	return shared;
}

static inline bool uvm_rust_has_shared(const struct migrate_vma *args)
{
	return uvm_rust_shared(args).outer;
}

/* May all pages of @region be written to, by what Linux said last? */
static inline bool uvm_rust_all_writable(const unsigned long *pfns, uvm_va_block_region_t region)
{
	for (uvm_page_index_t page = region.first; page < region.outer; page++)
		if (!(pfns[page] & HMM_PFN_WRITE))
			return false;
	return true;
}

/* Whether one of the @pages that @asked names is still on a GPU and write-protected, by what Linux said last. */
static bool uvm_rust_on_gpu(const struct hmm_range *range, unsigned long pages, const unsigned long *asked)
{
	unsigned long i;

	for_each_set_bit(i, asked, pages) {
		unsigned long pfn = range->hmm_pfns[i];

		if ((pfn & (HMM_PFN_VALID | HMM_PFN_WRITE)) == HMM_PFN_VALID &&
		    is_device_private_page(hmm_pfn_to_page(pfn)))
			return true;
	}
	return false;
}

/* The VA space of @range, which is upstream's. */
static inline uvm_va_space_t *uvm_rust_space_of_range(const struct hmm_range *range)
{
	return container_of(range->notifier, uvm_va_block_t, hmm.notifier)->hmm.va_space;
}

/*
 * In place of hmm_range_fault() in uvm_hmm.c. Of a page that is still on a GPU, as it could not be moved, and that Linux has
 * write-protected, a write would have Linux call the driver as for a CPU fault: that takes locks that the caller has. So
 * whoever asks is told to ask again.
 *
 * Linux does not say where a page is that somebody has isolated, and who may put it back. So Linux is first asked for what it
 * does not know as for a read, for which a page may stay on its GPU.
 */
static int uvm_rust_range_fault(struct hmm_range *range)
{
	const unsigned long write = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE, pages = (range->end - range->start) >> PAGE_SHIFT;
	unsigned long asked[PAGES_PER_UVM_VA_BLOCK / BITS_PER_LONG] = { 0 };
	bool is_unknown = false;
	int ret;

	/* Linux would charge that to nobody (uvm_rust_charge.h). */
	if (uvm_rust_fix_charge && !uvm_rust_is_owned(range->notifier->mm) && uvm_rust_fails_alone(uvm_rust_space_of_range(range)))
		return -ENOMEM;
	if (pages > PAGES_PER_UVM_VA_BLOCK)
		return hmm_range_fault(range);
	if (uvm_rust_files_serves(range, uvm_rust_space_of_range(range)))
		return uvm_rust_files_look(range);
	if (!uvm_rust_fix_forked)
		return hmm_range_fault(range);
	for (unsigned long i = 0; i < pages; i++) {
		/* Whoever only looks is not told to ask again. */
		if (!(range->hmm_pfns[i] & HMM_PFN_REQ_FAULT))
			return hmm_range_fault(range);
		if (range->hmm_pfns[i] & HMM_PFN_REQ_WRITE)
			__set_bit(i, asked);
	}
	memset(range->hmm_pfns, 0, pages * sizeof(*range->hmm_pfns));
	ret = hmm_range_fault(range);
	if (!ret && uvm_rust_on_gpu(range, pages, asked))
		ret = -EBUSY;
	for (unsigned long i = 0; i < pages; i++) {
		bool is_known = range->hmm_pfns[i] & HMM_PFN_VALID;

		is_unknown |= !is_known;
		range->hmm_pfns[i] = is_known ? 0 : HMM_PFN_REQ_FAULT;
	}
	if (!ret && is_unknown) {
		ret = hmm_range_fault(range);
		if (!ret && uvm_rust_on_gpu(range, pages, asked))
			ret = -EBUSY;
	}
	for (unsigned long i = 0; i < pages; i++)
		range->hmm_pfns[i] = test_bit(i, asked) ? write : HMM_PFN_REQ_FAULT;
	return ret ? ret : hmm_range_fault(range);
}

#define hmm_range_fault uvm_rust_range_fault
#define errno_to_nv_status uvm_rust_hmm_status

/*
 * Gives back what @args, which begin with @region, have isolated, and gives the process pages of its own. Called with what a
 * migration holds; the va_block's lock is let go in between, as it is where upstream has Linux bring pages to the host.
 *
 * Returns NV_OK if it has them all, and the caller is to begin anew; NV_WARN_MORE_PROCESSING_REQUIRED if Linux moves one of the
 * pages for nobody at the moment, or changes them all the time; NV_ERR_MORE_PROCESSING_REQUIRED as upstream does; else why not:
 * userfaultfd protects a page from writing, or there is no memory.
 */
static NV_STATUS uvm_rust_unshare(uvm_va_block_t *va_block, uvm_va_block_retry_t *retry,
				  uvm_rust_hmm_context_t *context, uvm_va_block_region_t region,
				  struct migrate_vma *args)
{
	unsigned long *pfns = uvm_rust_hmm_block_context(context)->hmm.src_pfns;
	struct vm_area_struct *vma = args->vma;
	uvm_va_block_region_t shared = uvm_rust_shared(args);
	NV_STATUS status;

	shared = uvm_va_block_region(region.first + shared.first, region.first + shared.outer);
	migrate_vma_finalize(args);
	uvm_rust_free_ahead(va_block, retry);
	status = uvm_hmm_va_block_migrate_locked(va_block, retry, context, UVM_ID_CPU, shared,
						 UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE);
	if (status != NV_OK && status != NV_WARN_MORE_PROCESSING_REQUIRED)
		return status;
	/* The first time Linux changes them and says to ask again, the second time they are there. */
	for (unsigned int i = 0; i < 4; i++) {
		status = uvm_rust_make_resident_cpu(va_block, retry, vma, pfns, shared);
		if (status != NV_WARN_MORE_PROCESSING_REQUIRED)
			break;
	}
	if (status == NV_OK && !uvm_rust_all_writable(pfns, shared))
		status = NV_WARN_MORE_PROCESSING_REQUIRED;
	return status;
}

/* The service of a fault begins anew, in any case but an error. */
static inline NV_STATUS uvm_rust_fault_shared(NV_STATUS status)
{
	return status == NV_OK ? NV_WARN_MORE_PROCESSING_REQUIRED : status;
}

/*
 * UVM_MIGRATE begins anew as well. Else it would map the pages that it leaves on the GPU. Upstream begins anew without end, and
 * holds mmap_lock and the VA space's lock meanwhile; so who is to die does not. Neither does the thread that services faults: it
 * comes back to the fault, and to those of others before.
 */
static inline NV_STATUS uvm_rust_migrate_anew(void)
{
	if (fatal_signal_pending(current))
		return NV_ERR_BUSY_RETRY;
	return current->flags & PF_KTHREAD ? NV_WARN_MORE_PROCESSING_REQUIRED : NV_ERR_MORE_PROCESSING_REQUIRED;
}

static inline NV_STATUS uvm_rust_migrate_shared(NV_STATUS status)
{
	return status == NV_OK || status == NV_WARN_MORE_PROCESSING_REQUIRED ? uvm_rust_migrate_anew() : status;
}

/* --- pages that nobody has touched, where the cgroup is full ------------------------------- */

/* Of a va_block's pages those that go to processor @id for the faults that are serviced: the region of these may have others in between. */
#define uvm_rust_moving(service_context, id)	(&(service_context)->per_processor_masks[uvm_id_value(id)].new_residency)

/* Is page @i of @args, which begin with @region, one that nobody has touched, and one of @moving? */
static inline bool uvm_rust_is_new(const struct migrate_vma *args, unsigned long i, uvm_va_block_region_t region, const uvm_page_mask_t *moving)
{
	return (args->src[i] & (MIGRATE_PFN_MIGRATE | MIGRATE_PFN_VALID)) == MIGRATE_PFN_MIGRATE &&
	       uvm_page_mask_test(moving, region.first + i);
}

/*
 * Whether pages have to be touched first. Those on strangers' GPUs have to come to the host. And to move to a GPU a page that nobody has touched Linux
 * charges it (migrate_vma_insert_page()): @args, which begin with @region and which Linux has isolated, have more of these among @moving than the cgroup
 * has room for, in a thread that services faults of all processes.
 */
static inline bool uvm_rust_finds_no_room(const struct migrate_vma *args, uvm_va_block_t *va_block, uvm_va_block_region_t region,
					  const uvm_page_mask_t *moving)
{
	unsigned long pages = 0;

	if (uvm_rust_has_away(va_block, args, region, moving))
		return true;
	if (!uvm_rust_puts_off(va_block->hmm.va_space))
		return false;
	/* A work item would touch the page of zeros alone, for ever. */
	if (!(args->vma->vm_flags & VM_WRITE) && !uvm_rust_unshares_zeros(args->vma))
		return false;
	for (unsigned long i = 0; i < args->npages; i++)
		pages += uvm_rust_is_new(args, i, region, moving);
	return pages && uvm_rust_lacks_room(args->vma->vm_mm, pages);
}

/*
 * Gives back what @args, which begin with @region, have isolated, and has the pages among @moving touched that nobody has, or that are on strangers'
 * GPUs: here, one run after the other, until there is no room for one of them, and that one and strangers' by a work item. The fault comes
 * again, and moves what was touched, for which nothing more is charged. Memory that is for reading only takes two work items: what is touched first is Linux's one page of zeros, which is as new to a
 * GPU as none, and the second time a page of the process' own (uvm_rust_unshares_zeros()).
 */
static NV_STATUS uvm_rust_touch_first(uvm_va_block_t *va_block, uvm_va_block_retry_t *retry, uvm_rust_hmm_context_t *context,
				      uvm_va_block_region_t region, const uvm_page_mask_t *moving, struct migrate_vma *args)
{
	unsigned long *pfns = uvm_rust_hmm_block_context(context)->hmm.src_pfns;
	struct vm_area_struct *vma = args->vma;
	uvm_va_block_region_t run;
	NV_STATUS status = NV_OK;
	uvm_page_mask_t new;

	/* Where Linux says what is isolated is where it says next what is mapped. */
	uvm_page_mask_zero(&new);
	for (unsigned long i = 0; i < args->npages; i++) {
		if (uvm_rust_is_new(args, i, region, moving) || uvm_rust_is_away(va_block, args, i, region, moving))
			uvm_page_mask_set(&new, region.first + i);
	}
	migrate_vma_finalize(args);
	uvm_rust_free_ahead(va_block, retry);
	for (run = region; status == NV_OK && run.first < region.outer; run.first = run.outer) {
		run.outer = run.first + 1;
		if (!uvm_page_mask_test(&new, run.first))
			continue;
		while (run.outer < region.outer && uvm_page_mask_test(moving, run.outer))
			run.outer++;
		status = uvm_rust_make_resident_cpu(va_block, retry, vma, pfns, run);
	}
	return uvm_rust_fault_shared(status);
}

/*
 * In place of migrate_vma_pages() after that: what others have taken meanwhile is charged over the limit, by no more than
 * the pages of a va_block.
 */
static inline void uvm_rust_migrate_pages(struct migrate_vma *args, uvm_va_block_t *va_block)
{
	bool is_forced = uvm_rust_fix_charge && uvm_rust_puts_off(va_block->hmm.va_space);
	unsigned int flags = is_forced ? memalloc_noreclaim_save() : 0;

	migrate_vma_pages(args);
	if (is_forced)
		memalloc_noreclaim_restore(flags);
}

/* --- va_blocks that others have locked -------------------------------------------------- */

/* Of uvm_rust_two_spaces.h, for the hook in hmm_invalidate(): @va_block, whose lock is held, has none of the chunks of @region any more. GPUs have it unmapped. */
void uvm_rust_gives_up(uvm_va_block_t *va_block, uvm_va_block_region_t region);

/*
 * Called by the hook in hmm_invalidate(): of which pages the GPUs of @va_block lose their mappings, for those of @region. To unmap a
 * part of a large mapping needs page tables, and where there is no memory for them an eviction, which may need the va_block that
 * this thread has. All of a va_block needs none.
 */
static inline uvm_va_block_region_t uvm_rust_unmaps(uvm_va_block_t *va_block, const struct mmu_notifier_range *range,
						    uvm_va_block_region_t region)
{
	return uvm_rust_is_announced(range) ? uvm_va_block_region_from_block(va_block) : region;
}

static inline bool uvm_rust_gave_up(const struct migrate_vma *args)
{
	return !args->npages;
}

/*
 * UVM_MIGRATE has isolated nothing, as others had a va_block that it needs: uvm_rust_isolation.h. Upstream would leave the pages
 * where they are, and say that it has moved them. The va_block's lock is let go, as those others may need it.
 */
static inline NV_STATUS uvm_rust_migrate_later(uvm_va_block_t *va_block, uvm_va_block_retry_t *retry)
{
	uvm_rust_free_ahead(va_block, retry);
	uvm_mutex_unlock(&va_block->lock);
	uvm_rust_isolation_turn();
	uvm_mutex_lock(&va_block->lock);
	return uvm_rust_migrate_anew();
}

/* --- copies to the host that fail ---------------------------------------------------- */

/*
 * Pages of ordinary memory go to the host in three steps: Linux isolates them and puts
 * migration entries where they were mapped, UVM allocates pages and copies, and Linux moves
 * the mappings and lets the old pages go. If UVM fails in between, upstream calls Linux's last
 * step all the same, with the new pages that it had allocated: Linux then restores the mappings
 * of those, which have none, and lets the old pages go, which nobody refers to any more. Their
 * chunks are free, and the data is lost; a new page is freed, too, though the va_block still
 * names it, and copies into it what comes next.
 *
 * So the new pages are given up first, by upstream's own function for pages that do not
 * migrate. Linux puts back what it finds without a new page.
 */
/* What an earlier migration in the same context left behind is no page of this one. */
static inline int uvm_rust_migrate_vma_setup(struct migrate_vma *args)
{
	if (uvm_rust_fix_copies)
		memset(args->dst, 0, ((args->end - args->start) >> PAGE_SHIFT) * sizeof(*args->dst));
	return uvm_rust_isolate_vma(args);
}
#define migrate_vma_setup uvm_rust_migrate_vma_setup
#define migrate_device_range uvm_rust_isolate_range

/*
 * Whether a page that is to be moved has no new page: upstream forgets that an allocation
 * failed if a later one succeeds.
 */
static bool uvm_rust_lacks_page(uvm_va_block_region_t region, const uvm_page_mask_t *mask,
				const unsigned long *src_pfns, const unsigned long *dst_pfns)
{
	uvm_page_index_t page;

	for_each_va_block_page_in_region_mask(page, mask, region) {
		struct page *src = migrate_pfn_to_page(src_pfns[page]);

		if ((src_pfns[page] & MIGRATE_PFN_MIGRATE) && !dst_pfns[page] && src && is_device_private_page(src))
			return true;
	}
	return false;
}

/* As upstream's, for an eviction and for UVM_MIGRATE. */
static NV_STATUS uvm_rust_hmm_make_resident_copy(uvm_va_block_t *va_block, uvm_va_block_retry_t *retry,
						 uvm_va_block_context_t *context, uvm_processor_id_t to,
						 uvm_va_block_region_t region, uvm_page_mask_t *mask,
						 const uvm_page_mask_t *prefetch, uvm_make_resident_cause_t cause)
{
	unsigned long *src_pfns = context->hmm.src_pfns, *dst_pfns = context->hmm.dst_pfns;
	NV_STATUS status = NV_OK;

	if (UVM_ID_IS_CPU(to))
		uvm_rust_test_isolated();
	if (UVM_ID_IS_CPU(to) &&
	    (uvm_rust_test_copy_fails() ||
	     (uvm_rust_fix_copies && uvm_rust_lacks_page(region, mask, src_pfns, dst_pfns))))
		status = NV_ERR_NO_MEMORY;
	if (status == NV_OK)
		status = uvm_va_block_make_resident_copy(va_block, retry, context, to, region, mask, prefetch, cause);
	if (status != NV_OK && UVM_ID_IS_CPU(to) && uvm_rust_fix_copies)
		uvm_rust_clean_up(va_block, src_pfns, dst_pfns, region, mask);
	return status;
}
#define uvm_va_block_make_resident_copy uvm_rust_hmm_make_resident_copy

/* As upstream's, when a CPU has faulted on pages of a GPU. Called by uvm_hmm.c: uvm_rust_on_cpu_copy.h says how. */
static NV_STATUS uvm_rust_hmm_fault_copy(uvm_processor_id_t processor, uvm_processor_id_t to,
					 uvm_va_block_t *va_block, uvm_va_block_retry_t *retry,
					 uvm_service_block_context_t *service)
{
	uvm_va_block_context_t *context = uvm_rust_block_context(service);
	uvm_page_mask_t all;
	NV_STATUS status = NV_ERR_NO_MEMORY;

	if (!uvm_rust_test_copy_fails())
		status = uvm_va_block_service_copy(processor, to, va_block, retry, service);
	if (status != NV_OK && uvm_rust_fix_copies) {
		uvm_page_mask_init_from_region(&all, service->region, NULL);
		uvm_rust_clean_up(va_block, context->hmm.src_pfns, context->hmm.dst_pfns, service->region,
					     &all);
	}
	return status;
}

#include "uvm_rust_on_cpu_copy.h"

/*
 * Called by the hook in uvm_hmm.c, where an eviction ends with an error. All pages of the
 * va_block that are in the root chunk have been isolated, and upstream gives back those of
 * @region, which has one policy, only. The others would stay locked for ever, and whoever
 * touches them would wait.
 */
static void uvm_rust_hmm_give_back_rest(uvm_va_block_t *va_block, unsigned long *src_pfns, unsigned long *dst_pfns,
					uvm_va_block_region_t region)
{
	uvm_page_index_t end = uvm_va_block_num_cpu_pages(va_block);

	if (region.outer < end && uvm_rust_fix_copies)
		migrate_device_finalize(src_pfns + region.outer, dst_pfns + region.outer, end - region.outer);
}

/* --- strays ------------------------------------------------------------------------------ */

#include "uvm_rust_on_strays.h"

/* --- whose a page is -------------------------------------------------------------------- */

#include "uvm_rust_on_pages.h"

static int migrate_vma_setup_locked(struct migrate_vma *args, uvm_va_block_t *va_block);

/*
 * Of GPUs which the VA space has registered. A fault that wants pages in the host asks where they are before it isolates any. Those of a
 * GPU's that another VA space has are isolated for a moment, so that its va_block gives them up, and are this one's then. Returns whether
 * there are such pages, so that the fault has to begin anew.
 */
static bool uvm_rust_had_others(uvm_va_block_t *va_block, struct vm_area_struct *vma, const unsigned long *pfns,
				uvm_va_block_region_t region)
{
	uvm_page_index_t index;
	bool had = false;

	for_each_va_block_page_in_region(index, region) {
		unsigned long src = 0, dst = 0;
		struct migrate_vma args = {
			.vma = vma,
			.src = &src,
			.dst = &dst,
			.start = uvm_va_block_cpu_page_address(va_block, index),
			.end = uvm_va_block_cpu_page_address(va_block, index) + PAGE_SIZE,
			.pgmap_owner = &g_uvm_global,
			.flags = MIGRATE_VMA_SELECT_DEVICE_PRIVATE,
		};
		struct page *page;

		if ((pfns[index] & (HMM_PFN_VALID | HMM_PFN_ERROR)) != HMM_PFN_VALID)
			continue;
		page = hmm_pfn_to_page(pfns[index]);
		if (!is_device_private_page(page) || !uvm_rust_is_others(va_block, page))
			continue;
		had = true;
		if (migrate_vma_setup_locked(&args, va_block))
			continue;
		page = src & MIGRATE_PFN_MIGRATE ? migrate_pfn_to_page(src) : NULL;
		if (page)
			uvm_rust_takes_page(va_block, page);
		migrate_vma_finalize(&args);
	}
	return had;
}

/*
 * Called by the hook in hmm_make_resident_cpu(), with what Linux has just said of @region: NV_OK if other VA spaces of the process have none of
 * these pages on a GPU.
 */
static NV_STATUS uvm_rust_has_elsewhere(uvm_va_block_t *va_block, struct vm_area_struct *vma, const unsigned long *pfns,
					uvm_va_block_region_t region)
{
	NV_STATUS status = uvm_rust_asks_strangers(va_block, vma, pfns, region);

	if (status == NV_OK && uvm_rust_had_others(va_block, vma, pfns, region))
		return NV_WARN_MORE_PROCESSING_REQUIRED;
	return status;
}

#endif /* UVM_IS_CONFIG_HMM() */

#endif
