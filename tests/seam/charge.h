/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Of Linux and of upstream, what the files that charge.c tests use: as little of each type as they touch. */
#ifndef SEAM_CHARGE_H
#define SEAM_CHARGE_H

#include <limits.h>
#include <string.h>

#define SEAM_VA_SPACE_FIELDS	int registered_gpus, lock; struct mem_cgroup *uvm_rust_payer; bool has_mm; \
				struct uvm_va_space_mm_struct { int lock; struct mm_struct *mm; } va_space_mm;
#define SEAM_VA_BLOCK_FIELDS	int resident; bool is_hmm;
#define task_struct		shim_task_struct
#include "shim.h"
#undef task_struct
#undef current

#ifndef NO_MEMCG
#define CONFIG_MEMCG
#endif
#define UVM_CGROUP_ACCOUNTING_SUPPORTED()	1

typedef unsigned int gfp_t;
enum { __GFP_HIGH = 1, __GFP_NORETRY = 2, __GFP_NOWARN = 4, __GFP_ACCOUNT = 8, __GFP_RETRY_MAYFAIL = 16 };
#define PAGE_SHIFT		12
#define PAGE_SIZE		(1ul << PAGE_SHIFT)
#define PAGE_COUNTER_MAX	((unsigned long)LONG_MAX / PAGE_SIZE)
#define SIGNAL_GROUP_EXIT	1
#define PF_KTHREAD		1
#define SIGKILL			9
#define HZ			100

struct counter { unsigned long max, high, usage; };
struct mem_cgroup {
	struct { int references; } css;
	bool removed;
	struct counter memory, swap;
	struct mem_cgroup *parent;
};
struct signal_struct { int flags; struct task_struct *thread_head; };
struct pid { struct task_struct *task; int references; };
struct task_struct {
	struct mm_struct *mm;
#ifdef CONFIG_MEMCG
	unsigned int memcg_nr_pages_over_high;
	struct mem_cgroup *active_memcg;
#endif
	struct mem_cgroup *memcg;
	struct signal_struct *signal;
	struct pid *pid;
	struct task_struct *thread_node;
	int exit_state, flags;
	const char *comm;
};
struct mm_struct { struct task_struct *owner; };
struct page { bool is_charged; };
struct vm_area_struct { int nothing; };
struct migrate_vma { struct vm_area_struct *vma; unsigned long *src, *dst, npages, start, end; };
#define UVM_IS_CONFIG_HMM()	1
typedef struct { struct mem_cgroup *new_memcg, *old_memcg; } uvm_memcg_context_t;

/* The cgroup above both has no limit of its own until a test gives it one. */
static struct mem_cgroup above, full, other;
/* What Linux charges where a memory is no process'. */
static struct mem_cgroup nobodys;
static struct signal_struct signals[4];
static struct pid pids[4];
static struct mm_struct memory[4];
static struct task_struct tasks[4] = { { .comm = "opener" }, { .comm = "elder" }, { .comm = "younger" }, { .comm = "kernel's" } };
static struct task_struct *running, *init;
/* Who was ended last, how often anybody was, and the time. */
static struct task_struct *ended;
static int ends;
static unsigned long jiffies;

#define current				running
#define page_counter_read(counter)	((counter)->usage)
#define parent_mem_cgroup(memcg)	((memcg)->parent)
#define mem_cgroup_online(memcg)	(!(memcg)->removed)
#define mem_cgroup_from_task(task)	((task)->memcg)
#define css_get(css)			((css)->references++)
#define rcu_read_lock()
#define rcu_read_unlock()
#define rcu_dereference(p)		(p)
#define rcu_access_pointer(p)		(p)
#define for_each_process(process)	for ((process) = tasks; (process) < tasks + 4; (process)++)
#define is_global_init(process)		((process) == init)
#define time_before(a, b)		((long)((a) - (b)) < 0)
#define task_tgid(task)			((task)->pid)
#define task_tgid_nr(task)		0
#define num_online_cpus()		1
#define pr_warn_ratelimited(...)	((void)(0 && printf(__VA_ARGS__)))
#define get_order(size)			((size) / PAGE_SIZE)
#define PIDTYPE_TGID			0
#define pid_task(pid, type)		((pid)->task)
#define get_pid(pid)			((pid)->references++, (pid))
#define list_for_each_entry_rcu(at, head, member)	for ((at) = *(head); (at); (at) = (at)->member)

static void put_pid(struct pid *pid)
{
	if (pid)
		pid->references--;
}

void spin_lock(spinlock_t *lock)
{
	explore_point();
	while (lock->held)
		explore_wait(&lock->held);
	lock->held = true;
}

void spin_unlock(spinlock_t *lock)
{
	lock->held = false;
}

static struct mem_cgroup *set_active_memcg(struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	swap(current->active_memcg, memcg);
#endif
	return memcg;
}

static int kill_pid(struct pid *pid, int signal, int priv)
{
	ended = pid->task;
	ended->signal->flags = SIGNAL_GROUP_EXIT;
	ends++;
	return 0;
}

/* --- upstream ----------------------------------------------------------------------- */

typedef unsigned long uvm_chunk_size_t;
typedef enum {
	UVM_CPU_CHUNK_ALLOC_FLAGS_NONE = 0,
	UVM_CPU_CHUNK_ALLOC_FLAGS_ZERO = 1,
	UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT = 2,
	UVM_CPU_CHUNK_ALLOC_FLAGS_STRICT = 4,
} uvm_cpu_chunk_alloc_flags_t;
enum { UVM_MAKE_RESIDENT_CAUSE_EVICTION = 1 };
struct uvm_va_block_context_struct {
	struct mm_struct *mm;
	struct { int cause; } make_resident;
};

/* What the GPUs hold. A mask of them has the first one in its lowest bit. */
#define GPU_PAGES	1000
#define SMALL_GPU_PAGES	500
static struct sized_parent { bool cancels_by_address; struct { bool enabled; } smc; uvm_gpu_id_t id; } parents[2] = { { .id = { 1 } }, { .id = { 2 } } };
static const struct sized_gpu { struct { unsigned long size; } mem_info; struct sized_parent *parent; } gpus[2] = {
	{ { GPU_PAGES * PAGE_SIZE }, &parents[0] },
	{ { SMALL_GPU_PAGES * PAGE_SIZE }, &parents[1] },
};
#define uvm_gpu_t				struct sized_gpu
#define uvm_parent_gpu_t			struct sized_parent
#define UVM_PARENT_ID_MAX_GPUS			2
#define uvm_parent_id_gpu_index(id)		uvm_id_gpu_index(id)
typedef struct { struct { NvU64 address; } instance_ptr; NvU64 fault_address; } uvm_fault_buffer_entry_t;
static int rests;
static void usleep_range(int min, int max) { rests += min < max; }
/* Of a copy engine. */
typedef struct { const struct sized_gpu *gpu; } uvm_user_channel_t;
#define uvm_rust_gpu(space, id)			(&gpus[uvm_id_gpu_index(id)])
#define uvm_rust_cancels_by_address(parent)	((parent)->cancels_by_address)
#define for_each_gpu_id(id)			for ((id).val = 1; (id).val <= 2; (id).val++)
#define uvm_processor_mask_test(mask, id)	(*(mask) >> uvm_id_gpu_index(id) & 1)
#define for_each_gpu_id_in_mask(id, mask)	for_each_gpu_id(id) if (uvm_processor_mask_test(mask, id))
#define uvm_va_block_get_va_space(block)	((block)->va_space)
#define uvm_va_space_mm_enabled(space)		((space)->has_mm)
typedef struct uvm_va_space_mm_struct uvm_va_space_mm_t;
#define uvm_va_space_mm_alive(kept)		(container_of(kept, uvm_va_space_t, va_space_mm)->has_mm && (kept)->mm)
#define uvm_spin_lock(taken)			((*(taken))++)
#define uvm_spin_unlock(taken)			((*(taken))--)
#define uvm_va_block_is_hmm(block)		((block)->is_hmm)

static void uvm_memcg_context_start(uvm_memcg_context_t *context, struct mm_struct *mm)
{
	context->new_memcg = mm ? mm->owner ? mm->owner->memcg : &nobodys : NULL;
	nobodys.css.references += context->new_memcg == &nobodys;
	if (mm)
		context->old_memcg = set_active_memcg(context->new_memcg);
}

static void __free_pages(struct page *what, unsigned int pages);

/* Memory of a slab, of which the host has enough. */
struct kmem_cache { int given, refused, waits; };
static void *nv_kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags);

/* What the service of a copy engine's fault has begun. */
typedef struct { int entries; } uvm_tracker_t;
static void uvm_tracker_clear(uvm_tracker_t *tracker)
{
	tracker->entries = 0;
}

/* What has ended the driver, if anything. */
static NV_STATUS global_status;
static NV_STATUS uvm_global_get_status(void)
{
	return global_status;
}

/* Locks of one thread. */
#define uvm_down_read_trylock(held)		(!(*(held))++)
#define uvm_va_space_down_read(space)		((space)->lock++)
static struct mem_cgroup *get_mem_cgroup_from_mm(struct mm_struct *mm)
{
	css_get(&mm->owner->memcg->css);
	return mm->owner->memcg;
}
static void mem_cgroup_put(struct mem_cgroup *memcg)
{
	if (memcg)
		memcg->css.references--;
}

#endif
