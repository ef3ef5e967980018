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
 * the owner may have on its GPUs, and VA spaces without an mm on others. Beyond that the process is ended whose memory is evicted then:
 * one at a time of those that are charged to the limit, and where the excess is twice the bound whichever it is (uvm_rust_charge.c).
 * Linux would choose by what a process has of the host's memory, among which evicted pages do not count, and go on choosing until the
 * cgroup is within its limit, while all wait who need the thread that evicts. The eviction still gets its memory.
 *
 * A VA space without an mm, as of several processes (UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE), or one whose process has
 * gone, is charged to the cgroup of the process that opened it. Upstream charges it to nobody, and any process may ask for that. Its process
 * may have gone though it has an mm: an open file keeps that, which another process may have as well.
 * No process is ended for it, as none has it alone: whoever is ended, others may go on with it. Over the limit it gets no more
 * memory of a GPU, so that what it has over the limit is at most what its GPUs hold, which any process of the cgroup may be over it: by
 * itself it has nobody ended, neither of its own cgroup nor where a cgroup above has the limit. Nor has a GPU's fault that needs the
 * host's memory: it is refused that where Linux would end a process for the limit.
 *
 * A process that was ended may stay for as long as it likes: who traces it may hold it on its way out, or a file system that does not
 * answer. Its kernels go on meanwhile. So where it is over the limit it gets no more memory of a GPU, either.
 *
 * A GPU that cannot cancel faults by address (Pascal) finds what to cancel by servicing faults again, and again for as long as that is
 * refused memory, with nobody else's faults serviced. Where upstream's loop services a GPU's faults, as those of its parts (MIG), it cancels
 * those of all for one that is refused memory. A VA space with such a GPU is refused nothing: it is charged over the limit.
 *
 * To go over the limit Linux wants __GFP_HIGH, by which the host gives of its reserve as well. So that is asked for only where
 * the host has just given as much without.
 *
 * A cgroup over memory.high makes its processes wait. Whoever evicts for another process may be the thread that
 * services all processes' faults: it does not wait, and what it evicted is not counted against its own cgroup. Nor does that thread wait
 * for what a fault takes of the host's memory, as where the CPU is the preferred location.
 *
 * uvm_va_block.c knows that it evicts, and uvm_pmm_sysmem.c allocates: a flag of upstream's word goes from one to the
 * other.
 */
#ifndef UVM_RUST_CHARGE_H
#define UVM_RUST_CHARGE_H

#include <linux/cgroup.h>
#include <linux/cpumask.h>
#include <linux/memcontrol.h>
#include <linux/sched/signal.h>

#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"
#include "uvm_pmm_sysmem.h"

#include "uvm_rust_alone.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_over_high.h"

/* Beside upstream's uvm_cpu_chunk_alloc_flags_t, of which there are four at most. */
#define UVM_RUST_EVICTED (1 << 30)
/* Beside UVM_RUST_EVICTED: the owner evicts its own memory, or for a VA space without an mm a process of the cgroup that pays. */
#define UVM_RUST_OWN (1 << 29)
/* Beside it: the charge may go over the limit. */
#define UVM_RUST_OVER (1 << 28)
/* Without these: the charge is refused where Linux would end a process for it. */
#define UVM_RUST_SPARES (1 << 27)

/* How long an ended process has to free its memory before another one is ended that is charged to the same limit. */
#define UVM_RUST_CHARGE_ENDS (10 * HZ)

/* How often a single page that the host has is lost to others before an eviction asks as upstream does. */
#define UVM_RUST_CHARGE_TRIES 3

#ifdef CONFIG_MEMCG
/* What one charge may count towards memory.high before Linux has the caller wait (MEMCG_CHARGE_BATCH). */
#define UVM_RUST_HIGH_PAGES 64

/* The cgroup that is charged now instead of the caller's. */
static inline struct mem_cgroup *uvm_rust_charged_now(void)
{
	return current->active_memcg;
}

/* How many pages @memcg has over its limit; less than 0 where there is room. */
static inline long uvm_rust_excess(struct mem_cgroup *memcg)
{
	return (long)page_counter_read(&memcg->memory) - (long)READ_ONCE(memcg->memory.max);
}

/* Of @memcg and those above it the highest one that is more than @slack pages over its limit; NULL for none. */
static inline struct mem_cgroup *uvm_rust_past(struct mem_cgroup *memcg, long slack)
{
	struct mem_cgroup *past = NULL;

	for (; memcg; memcg = parent_mem_cgroup(memcg)) {
		if (uvm_rust_excess(memcg) > slack)
			past = memcg;
	}
	return past;
}

/*
 * Whom memory of @va_space is charged to that comes for nobody's mm; NULL for nobody, too. A cgroup that was removed counts no
 * more, and nobody can raise its limit: the next one above it pays, which it keeps.
 */
static inline struct mem_cgroup *uvm_rust_payer(uvm_va_space_t *va_space)
{
	struct mem_cgroup *memcg = va_space->uvm_rust_payer;

	while (memcg && !mem_cgroup_online(memcg))
		memcg = parent_mem_cgroup(memcg);
	return memcg;
}

/*
 * Whether @mm is some process', so that this one's cgroup is charged, and the process can be ended. Once no process has @mm none will have, though
 * an open file of upstream's may keep it: Linux charges nobody then. Caller holds @mm, or it is NULL.
 */
static inline bool uvm_rust_is_owned(const struct mm_struct *mm)
{
	return mm && rcu_access_pointer(mm->owner);
}

/*
 * A process that has the memory of @va_space; NULL where that has no mm, or none yet, or none any more, or one that is no process'.
 * Caller is in an RCU reader.
 */
static inline struct task_struct *uvm_rust_owner(uvm_va_space_t *va_space)
{
	uvm_va_space_mm_t *va_space_mm = &va_space->va_space_mm;
	struct task_struct *owner = NULL;

	uvm_spin_lock(&va_space_mm->lock);
	/* By its state the mm is kept. */
	if (uvm_va_space_mm_alive(va_space_mm))
		owner = rcu_dereference(va_space_mm->mm->owner);
	uvm_spin_unlock(&va_space_mm->lock);
	return owner;
}

/* Whether there is such a process. */
static inline bool uvm_rust_has_owner(uvm_va_space_t *va_space)
{
	bool has;

	rcu_read_lock();
	has = uvm_rust_owner(va_space);
	rcu_read_unlock();
	return has;
}

/* Whether @process was killed, or ends by itself. It may take as long as it likes. */
static inline bool uvm_rust_ends(const struct task_struct *process)
{
	return READ_ONCE(process->signal->flags) & SIGNAL_GROUP_EXIT;
}

/*
 * Whether a limit is used up beyond which @va_space gets no more memory of a GPU. That of who pays, where no process can be ended for it; that of its
 * process, where this one ends. Any other process is ended in time.
 */
static inline bool uvm_rust_is_at_limit(uvm_va_space_t *va_space, long slack)
{
	struct mem_cgroup *limit = NULL;
	struct task_struct *owner;
	bool is_past;

	rcu_read_lock();
	owner = uvm_rust_owner(va_space);
	if (!owner)
		limit = uvm_rust_payer(va_space);
	else if (uvm_rust_ends(owner))
		limit = mem_cgroup_from_task(owner);
	is_past = uvm_rust_past(limit, slack);
	rcu_read_unlock();
	return is_past;
}

/* Whether the caller is in the cgroup that pays for @va_space. */
static inline bool uvm_rust_pays(uvm_va_space_t *va_space)
{
	bool pays;

	rcu_read_lock();
	pays = mem_cgroup_from_task(current) == uvm_rust_payer(va_space);
	rcu_read_unlock();
	return pays;
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
#else
#define UVM_RUST_HIGH_PAGES 1
static inline struct mem_cgroup *uvm_rust_charged_now(void) { return NULL; }
static inline struct mem_cgroup *uvm_rust_past(struct mem_cgroup *memcg, long slack) { return NULL; }
static inline struct mem_cgroup *uvm_rust_payer(uvm_va_space_t *va_space) { return NULL; }
static inline bool uvm_rust_is_owned(const struct mm_struct *mm) { return mm; }
static inline bool uvm_rust_has_owner(uvm_va_space_t *va_space) { return true; }
static inline bool uvm_rust_is_at_limit(uvm_va_space_t *va_space, long slack) { return false; }
static inline bool uvm_rust_pays(uvm_va_space_t *va_space) { return false; }
static inline bool uvm_rust_charge_high(void) { return false; }
#endif

/*
 * What charges that Linux is about to refuse may count, in pages: it adds a charge before it compares, and takes it back then. A
 * cgroup whose limit is used up, as by a file's pages, so seems to be over it for moments. A CPU is at one charge at a time.
 */
static inline long uvm_rust_in_flight(void)
{
	return num_online_cpus() * (UVM_CHUNK_SIZE_MAX / PAGE_SIZE);
}

/*
 * How far over its limit the owner of @block may be, which is evicted from a GPU, in pages: as much as its GPUs hold, if these are alike,
 * and as the others do from which memory of VA spaces without an mm was evicted. The cgroup may be over its limit for those, whoever the
 * owner is. Is asked at each eviction, which notes what its GPUs hold. Caller holds the block's lock: a GPU that has pages of the block
 * stays as long.
 */
static inline long uvm_rust_charge_slack(uvm_va_block_t *block)
{
	static long without_mm[UVM_ID_MAX_GPUS];
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);
	long pages = 0, own = 0;
	uvm_gpu_id_t id;

	for_each_gpu_id_in_mask(id, &block->resident) {
		own = uvm_rust_gpu(va_space, id)->mem_info.size >> PAGE_SHIFT;
		if (!uvm_rust_has_owner(va_space))
			WRITE_ONCE(without_mm[uvm_id_gpu_index(id)], own);
	}
	for_each_gpu_id(id) {
		long others = READ_ONCE(without_mm[uvm_id_gpu_index(id)]);

		pages += uvm_processor_mask_test(&va_space->registered_gpus, id) ? max(own, others) : others;
	}
	return pages + uvm_rust_in_flight();
}

/* Whether @va_space gets no more memory of a GPU: its limit is used up, and nobody can be ended for it, or was. Caller holds its lock. */
static inline bool uvm_rust_gets_no_more(uvm_va_space_t *va_space)
{
	return uvm_rust_fix_charge && uvm_rust_is_at_limit(va_space, uvm_rust_in_flight()) && uvm_rust_fails_alone(va_space);
}

/*
 * The same of @block's VA space. Ordinary memory is charged by Linux, and so to nobody where it is no process' any more: it gets nothing then. Such
 * a kernel ends as if the process had taken its files with it.
 */
static inline bool uvm_rust_has_enough(uvm_va_block_t *block)
{
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);
	bool is_nobodys = uvm_rust_fix_charge && uvm_va_block_is_hmm(block) && !uvm_rust_has_owner(va_space);

	return (is_nobodys && uvm_rust_fails_alone(va_space)) || uvm_rust_gets_no_more(va_space);
}

/*
 * Ends the processes whose memory @mm is, as @past, to which it is charged, is more than @slack pages over its limit; unless another
 * that is charged to it is on its way. Caller holds @mm, and @past by what is charged.
 */
void uvm_rust_charge_end(struct mm_struct *mm, struct mem_cgroup *past, long slack);

/* Until uvm_memcg_context_end() the owner of @block is charged, whose memory is @mm, or who pays where that is no process'. */
static inline void uvm_rust_memcg_context_start(uvm_memcg_context_t *context, uvm_va_block_t *block, struct mm_struct *mm)
{
#if UVM_CGROUP_ACCOUNTING_SUPPORTED() && defined(CONFIG_MEMCG)
	struct mem_cgroup *payer = uvm_rust_is_owned(mm) ? NULL : uvm_rust_payer(uvm_va_block_get_va_space(block));

	if (payer)
		mm = NULL;
#endif

	uvm_memcg_context_start(context, mm);
#if UVM_CGROUP_ACCOUNTING_SUPPORTED() && defined(CONFIG_MEMCG)
	if (payer) {
		context->new_memcg = payer;
		css_get(&context->new_memcg->css);
		context->old_memcg = set_active_memcg(context->new_memcg);
	}
#endif
}

/* Whether who allocates for @block is its owner. */
static inline bool uvm_rust_charge_is_own(uvm_va_block_t *block, const struct mm_struct *mm)
{
	return uvm_rust_is_owned(mm) ? current->mm == mm : uvm_rust_pays(uvm_va_block_get_va_space(block));
}

/*
 * The flags of managed memory, which is charged if upstream charges it (@is_charged), or there is who pays for it now. Who pays for a VA
 * space without an mm, or without one any more, has no process ended for what GPUs' faults need either. Caller has set the cause of
 * @context's migration, holds @block's lock, for anything but an eviction that of its VA space, and is between
 * uvm_rust_memcg_context_start() and its end.
 */
static inline uvm_cpu_chunk_alloc_flags_t uvm_rust_account(uvm_va_block_t *block, const uvm_va_block_context_t *context,
							   bool is_charged)
{
	uvm_cpu_chunk_alloc_flags_t flags = UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;
	uvm_va_space_t *va_space = uvm_va_block_get_va_space(block);
	struct mem_cgroup *payer = uvm_rust_payer(va_space), *past = NULL;
	bool is_evicted;
	long slack = 0;

	if (!is_charged && (context->mm || !payer || !uvm_rust_charged_now()))
		return UVM_CPU_CHUNK_ALLOC_FLAGS_NONE;
	if (!uvm_rust_is_owned(context->mm))
		is_charged = false;
	is_evicted = context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_EVICTION;
	if (!uvm_rust_fix_charge || (is_charged && !is_evicted))
		return flags;
	if (!is_evicted && uvm_rust_fails_alone(va_space))
		return flags | UVM_RUST_SPARES;
	if (is_evicted)
		slack = uvm_rust_charge_slack(block);
	if (is_evicted && context->mm && uvm_va_space_mm_enabled(va_space))
		past = uvm_rust_past(uvm_rust_charged_now(), slack);
	if (past)
		uvm_rust_charge_end(context->mm, past, slack);
	return flags | UVM_RUST_EVICTED | (uvm_rust_charge_is_own(block, context->mm) ? UVM_RUST_OWN : 0);
}

/*
 * More flags for Linux. By __GFP_NORETRY the cgroup's memory is reclaimed once or twice and none of its processes is ended; by
 * __GFP_HIGH the charge goes over the limit then (try_charge_memcg()). By __GFP_RETRY_MAYFAIL it is reclaimed as often as Linux would
 * before it ends a process, and the charge fails instead; so does the page where Linux would end one because the host has none.
 */
static inline gfp_t uvm_rust_charge_flags(uvm_cpu_chunk_alloc_flags_t flags)
{
	if (flags & UVM_RUST_SPARES)
		return __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
	if (!(flags & UVM_RUST_EVICTED))
		return 0;
	return __GFP_NORETRY | __GFP_NOWARN | (flags & UVM_RUST_OVER ? __GFP_HIGH : 0);
}

/* Whether a piece of @size counts more than a charge may before Linux has the caller wait: a smaller piece does not. */
static inline bool uvm_rust_charge_refuses(uvm_chunk_size_t size)
{
	return size / PAGE_SIZE > UVM_RUST_HIGH_PAGES && uvm_rust_charge_high();
}

/*
 * Whether the caller takes charged memory, and does not wait for memory.high here: all of a GPU's faults wait for the thread that services
 * them, and that one may wait for a va_block whose lock this caller has.
 */
static inline bool uvm_rust_charge_waits_later(uvm_cpu_chunk_alloc_flags_t flags)
{
	return uvm_rust_fix_charge && flags & UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;
}

/* Flags to ask the host for a piece, for nobody and without its reserve: it waits for it, and may end any process. */
static inline uvm_cpu_chunk_alloc_flags_t uvm_rust_charge_asks(uvm_cpu_chunk_alloc_flags_t flags)
{
	return flags & ~(UVM_RUST_EVICTED | UVM_RUST_OWN | UVM_RUST_OVER | UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT | UVM_CPU_CHUNK_ALLOC_FLAGS_ZERO);
}

/*
 * Whether the charge may go over the limit, as the host gave @page of @size for nobody, which is given back. Else there is no such
 * piece, or after some @tries, for a single page, @flags say to ask as upstream does. Where one NUMA node is asked that fails
 * alone: upstream asks for the same on any node then.
 */
static inline bool uvm_rust_charge_over(uvm_cpu_chunk_alloc_flags_t *flags, struct page *page, uvm_chunk_size_t size, unsigned int tries)
{
	if (page)
		__free_pages(page, get_order(size));
	if (page && tries < UVM_RUST_CHARGE_TRIES) {
		*flags |= UVM_RUST_OVER;
		return true;
	}
	if (size == PAGE_SIZE && !(*flags & UVM_CPU_CHUNK_ALLOC_FLAGS_STRICT))
		*flags &= ~(UVM_RUST_EVICTED | UVM_RUST_OWN | UVM_RUST_OVER);
	return false;
}

/*
 * The page that @alloc gives, which goes by @flags, an lvalue, and is evaluated as often as is tried. While the cgroup has room the
 * charge does not go over its limit. Nobody waits here for memory.high: who has a process does once its call or fault is over, and a
 * thread of the kernel's, which evicts or services a GPU's fault, does not.
 */
#define uvm_rust_charged(flags, size, alloc) ({							\
	struct page *__page = NULL;								\
	const uvm_cpu_chunk_alloc_flags_t __asked = (flags);					\
	bool __full = uvm_rust_past(uvm_rust_charged_now(), -(long)((size) / PAGE_SIZE));	\
	unsigned int __before, __tries = 0;							\
												\
	while (((flags) & UVM_RUST_EVICTED) && !__page && !uvm_rust_charge_refuses(size)) {	\
		if (__full) {									\
			(flags) = uvm_rust_charge_asks(__asked);				\
			__page = (alloc);							\
			(flags) = __asked;							\
			if (!uvm_rust_charge_over(&(flags), __page, size, __tries++)) {		\
				__page = NULL;							\
				break;								\
			}									\
		}										\
		__before = uvm_rust_forget_over();						\
		__page = (alloc);								\
		uvm_rust_remember_over(__before, (flags) & UVM_RUST_OWN);			\
		if (__full && (size) > PAGE_SIZE)						\
			break;									\
		__full = true;									\
	}											\
	if (!((flags) & UVM_RUST_EVICTED) && !uvm_rust_charge_waits_later(flags)) {			\
		__page = (alloc);								\
	} else if (!((flags) & UVM_RUST_EVICTED) && !uvm_rust_charge_refuses(size)) {		\
		__before = uvm_rust_forget_over();						\
		__page = (alloc);								\
		uvm_rust_remember_over(__before, current->mm);					\
	}											\
	__page;											\
})

#endif
