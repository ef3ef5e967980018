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
 * the owner may have on its GPUs. Beyond that the process is ended whose memory is evicted then, one in ten seconds of a cgroup.
 * Linux would choose by what a process has of the host's memory, among which evicted pages do not count, and go on choosing until the
 * cgroup is within its limit, while all wait who need the thread that evicts. The eviction still gets its memory.
 *
 * A cgroup over memory.high makes its processes wait. Whoever evicts for another process may be the thread that
 * services all processes' faults: it does not wait, and what it evicted is not counted against its own cgroup.
 *
 * uvm_va_block.c knows that it evicts, and uvm_pmm_sysmem.c allocates: a flag of upstream's word goes from one to the
 * other.
 */
#ifndef UVM_RUST_CHARGE_H
#define UVM_RUST_CHARGE_H

#include <linux/memcontrol.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>

#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"
#include "uvm_pmm_sysmem.h"

#include "uvm_rust_fixes.h"

/* Beside upstream's uvm_cpu_chunk_alloc_flags_t, of which there are four at most. */
#define UVM_RUST_EVICTED (1 << 30)
/* Beside UVM_RUST_EVICTED: the owner evicts its own memory. */
#define UVM_RUST_OWN (1 << 29)

/* How long an ended process has to free its memory before another process of its cgroup is ended. */
#define UVM_RUST_CHARGE_ENDS (10 * HZ)

/* How often the host is asked to make room for a single page before an eviction asks as upstream does. */
#define UVM_RUST_CHARGE_TRIES 3

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

/* Whether the cgroup that is charged, or one above it, may have Linux wait for memory.high or memory.swap.high. */
static inline bool uvm_rust_charge_high(void)
{
	struct mem_cgroup *memcg;

	for (memcg = current->active_memcg; memcg; memcg = parent_mem_cgroup(memcg)) {
		if (READ_ONCE(memcg->memory.high) != PAGE_COUNTER_MAX || READ_ONCE(memcg->swap.high) != PAGE_COUNTER_MAX)
			return true;
	}
	return false;
}

/* Returns how many pages the calling thread has taken above memory.high, and sets the count to 0. */
static inline unsigned int uvm_rust_charge_forget_over(void)
{
	unsigned int before = current->memcg_nr_pages_over_high;

	current->memcg_nr_pages_over_high = 0;
	return before;
}
/*
 * Sets the count again: to @before, and if the thread evicts its own memory, plus what the eviction took. The thread waits for
 * that on its return to user space.
 */
static inline void uvm_rust_charge_paid(uvm_cpu_chunk_alloc_flags_t flags, unsigned int before)
{
	if (flags & UVM_RUST_OWN)
		before += current->memcg_nr_pages_over_high;
	current->memcg_nr_pages_over_high = before;
}
#else
#define UVM_RUST_HIGH_PAGES 1
static inline void uvm_rust_charge_paid(uvm_cpu_chunk_alloc_flags_t flags, unsigned int before) { }
static inline bool uvm_rust_charge_past(unsigned long slack) { return false; }
static inline bool uvm_rust_charge_high(void) { return false; }
static inline unsigned int uvm_rust_charge_forget_over(void) { return 0; }
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
	return (uvm_rust_gpu(va_space, id)->mem_info.size >> PAGE_SHIFT) *
	       uvm_processor_mask_get_count(&va_space->registered_gpus);
}

/*
 * Ends the process whose memory @mm is. What it has goes when it closes its files, and until then the cgroup stays beyond the
 * bound: no other process of it is ended for so long, or for UVM_RUST_CHARGE_ENDS.
 */
static inline void uvm_rust_charge_end(struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	static const struct mem_cgroup *last;
	static unsigned long ended;
	struct task_struct *owner;

	if (READ_ONCE(last) == current->active_memcg && time_before(jiffies, READ_ONCE(ended) + UVM_RUST_CHARGE_ENDS))
		return;
	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner && !(READ_ONCE(owner->signal->flags) & SIGNAL_GROUP_EXIT)) {
		pr_warn_ratelimited("process %d (%s) is ended: what is evicted from its GPUs is beyond its memory cgroup's limit by more than these hold\n",
				    task_tgid_nr(owner), owner->comm);
		kill_pid(task_tgid(owner), SIGKILL, 1);
		WRITE_ONCE(ended, jiffies);
		WRITE_ONCE(last, current->active_memcg);
	}
	rcu_read_unlock();
#endif
}

/*
 * The flags of managed memory, which is charged. Caller has set the cause of @context's migration, holds @block's lock, and
 * is between uvm_memcg_context_start() and its end.
 */
static inline uvm_cpu_chunk_alloc_flags_t uvm_rust_account(uvm_va_block_t *block, const uvm_va_block_context_t *context)
{
	uvm_cpu_chunk_alloc_flags_t flags = UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;

	if (!uvm_rust_fix_charge || context->make_resident.cause != UVM_MAKE_RESIDENT_CAUSE_EVICTION)
		return flags;
	if (uvm_rust_charge_past(uvm_rust_charge_slack(block)))
		uvm_rust_charge_end(context->mm);
	return flags | UVM_RUST_EVICTED | (current->mm == context->mm ? UVM_RUST_OWN : 0);
}

/*
 * More flags for Linux. By __GFP_NORETRY the cgroup's memory is reclaimed once or twice and none of its processes is ended; by
 * __GFP_HIGH the charge goes over the limit then (try_charge_memcg()).
 */
static inline gfp_t uvm_rust_charge_flags(uvm_cpu_chunk_alloc_flags_t flags)
{
	return flags & UVM_RUST_EVICTED ? __GFP_HIGH | __GFP_NORETRY | __GFP_NOWARN : 0;
}

/* Whether a piece of @size counts more than a charge may before Linux has the caller wait: a smaller piece does not. */
static inline bool uvm_rust_charge_refuses(uvm_chunk_size_t size)
{
	return size / PAGE_SIZE > UVM_RUST_HIGH_PAGES && uvm_rust_charge_high();
}

/*
 * Whether to try again, as the host itself is short of single pages. The host has been asked to make room by then, for nobody: with the
 * charge it would end processes of the owner's cgroup for it. In the end @flags says to ask as upstream does.
 */
static inline bool uvm_rust_charge_again(uvm_cpu_chunk_alloc_flags_t *flags, uvm_chunk_size_t size, unsigned int tries)
{
	struct page *page;

	if (size > PAGE_SIZE)
		return false;
	if (tries == UVM_RUST_CHARGE_TRIES) {
		*flags &= ~(UVM_RUST_EVICTED | UVM_RUST_OWN);
		return false;
	}
	page = alloc_page(NV_UVM_GFP_FLAGS | __GFP_NOWARN);
	if (page)
		__free_page(page);
	return true;
}

/*
 * The page that @alloc gives, which goes by @flags, an lvalue, and is evaluated as often as is tried. For an eviction the caller
 * does not wait here for memory.high.
 */
#define uvm_rust_charged(flags, size, alloc) ({							\
	struct page *__page = NULL;								\
	unsigned int __over, __tries = 0;							\
												\
	while ((flags) & UVM_RUST_EVICTED) {							\
		if (uvm_rust_charge_refuses(size))						\
			break;									\
		__over = uvm_rust_charge_forget_over();						\
		__page = (alloc);								\
		uvm_rust_charge_paid(flags, __over);						\
		if (__page || !uvm_rust_charge_again(&(flags), size, __tries++))		\
			break;									\
	}											\
	if (!((flags) & UVM_RUST_EVICTED))							\
		__page = (alloc);								\
	__page;											\
})

#endif
