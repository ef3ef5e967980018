/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c and uvm_pmm_sysmem.c: whom the host memory is charged to that an eviction takes.
 *
 * Upstream charges it to the memory cgroup of the process whose pages are evicted, which is not who needs the
 * GPU's memory. If that cgroup is full, Linux ends a process of it. If that makes no room the allocation fails, the
 * eviction with it, and then the GPU fault that it is for, and all others of that batch, of whichever process. A limit of
 * one tenant's so ends kernels of all. Here such memory is charged to its owner over the owner's limit: no process of
 * the cgroup is ended for an eviction, and what the owner takes next by itself finds the cgroup full.
 *
 * How far over the limit has a bound, or a tenant would have the host's memory without a limit, by way of the GPU's: as much as
 * the owner may have on its GPUs. Beyond that Linux ends a process of the cgroup, as with upstream, one for each block
 * that is evicted. The eviction still gets its memory: it may be somebody else's.
 *
 * A cgroup over memory.high makes its processes wait. Whoever evicts is not one of them, and may be the thread that
 * services all processes' faults: it does not wait, and what it evicted is not counted against its own cgroup.
 *
 * uvm_va_block.c knows that it evicts, and uvm_pmm_sysmem.c allocates: a flag of upstream's word goes from one to the
 * other.
 */
#ifndef UVM_RUST_CHARGE_H
#define UVM_RUST_CHARGE_H

#include <linux/memcontrol.h>
#include <linux/sched/signal.h>

#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"
#include "uvm_pmm_sysmem.h"

#include "uvm_rust_fixes.h"

/* Beside upstream's uvm_cpu_chunk_alloc_flags_t, of which there are four at most. */
#define UVM_RUST_EVICTED (1 << 30)
/* Beside UVM_RUST_EVICTED: the host itself has refused a page already. */
#define UVM_RUST_AGAIN (1 << 29)

#ifdef CONFIG_MEMCG
/* What one charge may count towards memory.high before Linux has the caller wait (MEMCG_CHARGE_BATCH). */
#define UVM_RUST_HIGH_PAGES 64

/* Whether the cgroup that is charged, or one above it, is more than @slack pages over its limit. */
static inline bool uvm_rust_charge_past(unsigned long slack)
{
	struct mem_cgroup *memcg;

	for (memcg = current->active_memcg; memcg; memcg = parent_mem_cgroup(memcg)) {
		unsigned long max = READ_ONCE(memcg->memory.max);
		unsigned long usage = page_counter_read(&memcg->memory);

		if (usage > max && usage - max > slack)
			return true;
	}
	return false;
}

/* Whether @pages more bring the cgroup that is charged, or one above it, over memory.high. */
static inline bool uvm_rust_charge_high(unsigned long pages)
{
	struct mem_cgroup *memcg;

	for (memcg = current->active_memcg; memcg; memcg = parent_mem_cgroup(memcg)) {
		if (page_counter_read(&memcg->memory) + pages > READ_ONCE(memcg->memory.high))
			return true;
	}
	return false;
}

/* What the caller has taken above memory.high, from here on @pages. */
static inline unsigned int uvm_rust_charge_swap_over(unsigned int pages)
{
	unsigned int before = current->memcg_nr_pages_over_high;

	current->memcg_nr_pages_over_high = pages;
	return before;
}
#else
#define UVM_RUST_HIGH_PAGES 1
static inline bool uvm_rust_charge_past(unsigned long slack) { return false; }
static inline bool uvm_rust_charge_high(unsigned long pages) { return false; }
static inline unsigned int uvm_rust_charge_swap_over(unsigned int pages) { return 0; }
#endif

/*
 * How many pages the owner of @block, which is evicted from a GPU, may have on all of its GPUs, if these are alike. Caller
 * holds the block's lock: a GPU that has pages of the block stays as long.
 */
static inline unsigned long uvm_rust_charge_slack(uvm_va_block_t *block)
{
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);
	uvm_gpu_id_t id = uvm_processor_mask_find_first_gpu_id(&block->resident);

	if (UVM_ID_IS_INVALID(id))
		return 0;
	return (uvm_va_space_get_gpu(va_space, id)->mem_info.size >> PAGE_SHIFT) *
	       uvm_processor_mask_get_count(&va_space->registered_gpus);
}

/* Whether all that @mm has goes soon. */
static inline bool uvm_rust_charge_ends(struct mm_struct *mm)
{
	bool ends = false;
#ifdef CONFIG_MEMCG
	struct task_struct *owner;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	ends = !owner || (READ_ONCE(owner->flags) & PF_EXITING) || fatal_signal_pending(owner);
	rcu_read_unlock();
#endif
	return ends;
}

/*
 * Has Linux make room in the cgroup that is charged, or end one of its processes: a page is taken that the cgroup cannot have, and
 * given back.
 */
static inline void uvm_rust_charge_enforce(void)
{
	unsigned int over = uvm_rust_charge_swap_over(0);
	struct page *page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	uvm_rust_charge_swap_over(over);
	if (page)
		__free_page(page);
}

/*
 * The flags of managed memory, which is charged. Caller has set the cause of @context's migration, holds @block's lock, and
 * is between uvm_memcg_context_start() and its end.
 */
static inline uvm_cpu_chunk_alloc_flags_t uvm_rust_account(uvm_va_block_t *block, const uvm_va_block_context_t *context)
{
	if (!uvm_rust_fix_charge || context->make_resident.cause != UVM_MAKE_RESIDENT_CAUSE_EVICTION)
		return UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;
	if (uvm_rust_charge_past(uvm_rust_charge_slack(block)) && !uvm_rust_charge_ends(context->mm))
		uvm_rust_charge_enforce();
	return UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT | UVM_RUST_EVICTED;
}

/*
 * More flags for Linux. By __GFP_NORETRY the cgroup's memory is reclaimed once or twice and none of its processes is ended; by
 * __GFP_HIGH the charge goes over the limit then (try_charge_memcg()).
 */
static inline gfp_t uvm_rust_charge_flags(uvm_cpu_chunk_alloc_flags_t flags)
{
	if (!(flags & UVM_RUST_EVICTED))
		return 0;
	return __GFP_HIGH | __GFP_NOWARN | (flags & UVM_RUST_AGAIN ? 0 : __GFP_NORETRY);
}

/* Whether a piece of @size counts more than a charge may before Linux has the caller wait: a smaller piece does. */
static inline bool uvm_rust_charge_refuses(uvm_chunk_size_t size)
{
	unsigned long pages = size / PAGE_SIZE;

	return pages > UVM_RUST_HIGH_PAGES && uvm_rust_charge_high(pages);
}

/* The page that @alloc gives, which is evaluated once at most; for an eviction the caller does not wait for memory.high. */
#define uvm_rust_charged(flags, size, alloc) ({							\
	struct page *__page = NULL;								\
	unsigned int __over;									\
												\
	if (!((flags) & UVM_RUST_EVICTED)) {							\
		__page = (alloc);								\
	} else if (!uvm_rust_charge_refuses(size)) {						\
		__over = uvm_rust_charge_swap_over(0);						\
		__page = (alloc);								\
		uvm_rust_charge_swap_over(__over);						\
	}											\
	__page;											\
})

/*
 * Whether to try again, as the host itself is short of single pages: now Linux may end any process for it, as with
 * upstream. The charge is not refused this time either. @flags says so then.
 */
static inline bool uvm_rust_charge_again(uvm_cpu_chunk_alloc_flags_t *flags, uvm_chunk_size_t size)
{
	if (!(*flags & UVM_RUST_EVICTED) || size > PAGE_SIZE)
		return false;
	*flags |= UVM_RUST_AGAIN;
	return true;
}

#endif
