// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Pages of files that a GPU's fault needs, and that are not mapped. One thread services the faults of all processes, and upstream
 * has Linux map such a page in it. Linux waits there for the file system, without an end and whatever signal comes: for a FUSE daemon
 * that does not answer, a device that is suspended, or until enough of what was written is on a disk.
 *
 * Here a work item has Linux map the pages, and the fault comes again until they are there. Who services it looks at what is
 * mapped, and never asks for more; but for an atomic Linux itself does (docs/fault.md). A work item belongs to the memory of a
 * process: it keeps that, and nothing of UVM's. So no VA space, GPU, suspend or other process waits for a work item that never ends. A
 * process that is killed has ended before, but its memory is freed once the work item is done.
 *
 * Shared memory (tmpfs, memfd) is such a file, too, though it comes from memory. While fallocate() takes pages of it away, each fault
 * on those waits until the call ends, whatever flags it has. Anybody may call from a thread that hardly ever runs: SCHED_IDLE, beside a thread that
 * spins. To map such pages in place while nobody changes the file (inode_trylock_shared()) would not be enough. A fault waits for
 * a page's own lock as well, and who reads the file, or clears a huge page of it, has that lock without the file's. So a page
 * that is in memory, but not mapped, also costs a work item.
 */
#include <linux/bitmap.h>
#include <linux/cgroup.h>
#include <linux/cpumask.h>
#include <linux/cred.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/workqueue.h>

#include "uvm_common.h"
#include "uvm_va_block.h"

#include "uvm_rust_files.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_over_high.h"

/*
 * How many work items Linux runs at a time (WQ_MAX_ACTIVE), and on one NUMA node at least (WQ_DFL_MIN_ACTIVE). How many tenants it takes to
 * have as many as there may be.
 */
#define MOST_WORKS	512
#define LEAST_WORKS	8u
#define MOST_TENANTS	8
/* For how long it is kept that Linux could not map a page. The fault comes again within some milliseconds, unless the thread is slow. */
#define KEPT_JIFFIES	(2 * HZ)
/*
 * For how many work items of a process' memory that is kept. Its other faults go on meanwhile, as a fault need not come again: its page may be
 * unmapped. Nor is one forgotten for another's sake. Where a kernel reads pages that cannot be mapped, each might be forgotten before
 * its fault has come again, for ever.
 */
#define MOST_KEPT	4

/* A user within a memory cgroup: containers have users of the same number (policy/tenants.rs). */
struct tenant {
	kuid_t user;
	/* No cgroup has the number of one that has gone. */
	u64 group;
};

/* Pages that are to be mapped, or of which one could not be. */
struct file_work {
	/* In works. */
	struct list_head list;
	struct work_struct work;
	/* With a reference, and while the work is under way one of what is mapped there as well. */
	struct mm_struct *mm;
	/* Whose process that is. */
	struct tenant tenant;
	/* From the first page to the end of the last. */
	unsigned long first, outer;
	/* To be written to; else, as one is that of zeros, pages of the process' own. */
	bool write, unshare;
	/* Under works_lock. 0 while the work is under way, then why the page at @first could not be mapped, and since when that is known. */
	int error;
	unsigned long since;
};

/* Of each process' memory one at most is under way, and MOST_KEPT are over, until they are freed. Under works_lock, a leaf. */
static LIST_HEAD(works);
static DEFINE_SPINLOCK(works_lock);
static struct workqueue_struct *works_queue;

/* --- the work item ------------------------------------------------------------------------ */

static void free_work(struct file_work *work)
{
	mmdrop(work->mm);
	kfree(work);
}

/*
 * Maps the pages as if the process had touched them, for which its memory cgroup is charged. @work->first becomes the page
 * that could not be mapped. Linux lets the lock of the memory go while it reads.
 */
static int map_pages(struct file_work *work)
{
	unsigned int access = work->write ? FAULT_FLAG_WRITE : work->unshare ? FAULT_FLAG_UNSHARE : 0;
	struct mm_struct *mm = work->mm;
	bool unlocked;
	int error = 0;

	kthread_use_mm(mm);
	mmap_read_lock(mm);
	for (; work->first < work->outer; work->first += PAGE_SIZE) {
		error = fixup_user_fault(mm, work->first, FAULT_FLAG_REMOTE | access, &unlocked);
		if (error)
			break;
	}
	mmap_read_unlock(mm);
	kthread_unuse_mm(mm);
	/* The thread's next work item, which is another process', does not wait for this one's memory.high. */
	uvm_rust_forget_over();
	return error;
}

static void run(struct work_struct *item)
{
	struct file_work *work = container_of(item, struct file_work, work);
	int error = map_pages(work);

	/*
	 * Perhaps the last of a process that has ended. Then Linux waits here for what the process has read asynchronously, for as long as the
	 * file system likes: the work item is on the list until then, so that it counts.
	 */
	mmput(work->mm);
	spin_lock(&works_lock);
	if (!error)
		list_del(&work->list);
	work->error = error;
	work->since = jiffies;
	spin_unlock(&works_lock);
	/* What could not be mapped is freed by others, from now on. */
	if (!error)
		free_work(work);
	/* The module's exit waits for the end of this function. */
	module_put(THIS_MODULE);
}

/* --- who services faults ------------------------------------------------------------------ */

/*
 * How many work items there may be. Linux runs so many of one queue at a time, but divides them among the NUMA nodes by their CPUs
 * (wq_update_node_max_active()), and a work item is of the node that its thread runs on. If there were more than the share of the node
 * with the fewest CPUs, work items that never end could be all that a node runs.
 */
static unsigned int most_works(void)
{
	unsigned int cpus, all_cpus = num_online_cpus(), most = MOST_WORKS;
	int node;

	for_each_online_node(node) {
		cpus = cpumask_weight(cpumask_of_node(node));
		if (cpus)
			most = min(most, MOST_WORKS * cpus / all_cpus);
	}
	return max(most, LEAST_WORKS);
}

/* Whose a process is, by its memory; the user is invalid where that is nobody's, all of which counts as one's, or Linux does not say. */
static struct tenant tenant_of(struct mm_struct *mm)
{
	struct tenant tenant = { .user = INVALID_UID };
#ifdef CONFIG_MEMCG
	struct mem_cgroup *memcg;
	struct task_struct *owner;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner) {
		memcg = mem_cgroup_from_task(owner);
		tenant.user = task_uid(owner);
		tenant.group = memcg ? cgroup_id(memcg->css.cgroup) : 0;
	}
	rcu_read_unlock();
#endif
	return tenant;
}

static bool is_same(struct tenant a, struct tenant b)
{
	return uid_eq(a.user, b.user) && a.group == b.group;
}

/*
 * How many of the @most work items, of which there are @all, may be one tenant's: a part, and fewer than as many as are free. Whoever
 * makes a few cgroups, or has a few users, so leaves something to others.
 */
static unsigned int most_of_tenant(unsigned int most, unsigned int all)
{
	return IS_ENABLED(CONFIG_MEMCG) ? min(most / MOST_TENANTS, most - min(most, all)) : most;
}

/* Has Linux map what @wanted wants. False if it cannot be now. */
static bool begin(struct file_work *wanted)
{
	lockdep_assert_held(&works_lock);
	/* The memory of a process that ends is not brought back. */
	if (!mmget_not_zero(wanted->mm))
		return false;
	mmgrab(wanted->mm);
	__module_get(THIS_MODULE);
	list_add(&wanted->list, &works);
	queue_work(works_queue, &wanted->work);
	return true;
}

/*
 * Has Linux map what @wanted wants, unless something of that memory is under way, or too much at all. @missing has those of the pages from
 * @start on that are not mapped. Takes @wanted. Returns UVM_RUST_NOT_HERE, or why one of the pages cannot be mapped, once.
 */
static int ask_for(struct file_work *wanted, unsigned long start, const unsigned long *missing)
{
	unsigned int all = 0, of_tenant = 0, kept = 0, most = most_works();
	struct file_work *work, *next;
	int error = UVM_RUST_NOT_HERE;
	bool is_busy = false;
	LIST_HEAD(old);

	spin_lock(&works_lock);
	list_for_each_entry_safe(work, next, &works, list) {
		bool is_old = work->error && time_after(jiffies, work->since + KEPT_JIFFIES);
		/* What a read is told of a write may be that the memory is for reading only since. */
		bool is_told = work->error && !is_old && (wanted->write || !work->write) && work->mm == wanted->mm &&
			       work->first >= wanted->first && work->first < wanted->outer &&
			       test_bit((work->first - start) >> PAGE_SHIFT, missing);

		if (is_told)
			error = work->error;
		if (is_told || is_old) {
			list_move(&work->list, &old);
			continue;
		}
		if (work->mm == wanted->mm) {
			is_busy |= !work->error;
			kept++;
		}
		of_tenant += is_same(work->tenant, wanted->tenant);
		all++;
	}
	if (error == UVM_RUST_NOT_HERE && !is_busy && kept < MOST_KEPT && of_tenant < most_of_tenant(most, all) && begin(wanted))
		wanted = NULL;
	spin_unlock(&works_lock);
	list_for_each_entry_safe(work, next, &old, list)
		free_work(work);
	kfree(wanted);
	return error;
}

/* Is @pfn, which Linux has said of a page in memory for reading only, that of zeros? A huge one of zeros NVIDIA's code takes. */
static bool is_of_zeros(unsigned long pfn, unsigned long address)
{
	return (pfn & HMM_PFN_VALID) && hmm_pfn_to_page(pfn) == ZERO_PAGE(address);
}

int uvm_rust_files_ask(struct mm_struct *mm, unsigned long start, unsigned long pages, const unsigned long *missing, bool write, bool unshare)
{
	struct file_work *wanted = kzalloc(sizeof(*wanted), GFP_NOWAIT | __GFP_NOWARN);

	if (!wanted)
		return UVM_RUST_NOT_HERE;
	*wanted = (struct file_work) {
		.mm = mm,
		.tenant = tenant_of(mm),
		.first = start + (find_first_bit(missing, pages) << PAGE_SHIFT),
		.outer = start + ((find_last_bit(missing, pages) + 1) << PAGE_SHIFT),
		.write = write,
		.unshare = unshare,
	};
	INIT_WORK(&wanted->work, run);
	return ask_for(wanted, start, missing);
}

int uvm_rust_files_look(struct hmm_range *range)
{
	const unsigned long pages = (range->end - range->start) >> PAGE_SHIFT;
	DECLARE_BITMAP(missing, PAGES_PER_UVM_VA_BLOCK) = { 0 };
	DECLARE_BITMAP(write, PAGES_PER_UVM_VA_BLOCK) = { 0 };
	struct mm_struct *mm = range->notifier->mm;
	struct vm_area_struct *vma = find_vma(mm, range->start);
	bool may_be_zeros = uvm_rust_unshares_zeros(vma), has_zeros = false;
	unsigned long i;
	int ret;

	for (i = 0; i < pages; i++) {
		if (range->hmm_pfns[i] & HMM_PFN_REQ_WRITE)
			__set_bit(i, write);
	}
	/* What is on a GPU is as good as not there where it is to be in the host, and this thread must not move it. */
	if (uvm_rust_is_crowded(vma, range->start, range->end))
		range->dev_private_owner = NULL;
	/* What is not asked for Linux does not map. */
	memset(range->hmm_pfns, 0, pages * sizeof(*range->hmm_pfns));
	ret = hmm_range_fault(range);
	if (ret)
		return ret;
	for (i = 0; i < pages; i++) {
		unsigned long pfn = range->hmm_pfns[i];
		bool is_zeros = may_be_zeros && is_of_zeros(pfn, range->start + (i << PAGE_SHIFT));

		/* A device's, say: Linux gives nobody such a page. */
		if (pfn & HMM_PFN_ERROR)
			return -EFAULT;
		if (is_zeros || !(pfn & HMM_PFN_VALID) || (test_bit(i, write) && !(pfn & HMM_PFN_WRITE)))
			__set_bit(i, missing);
		has_zeros |= is_zeros;
	}
	if (bitmap_empty(missing, pages))
		return 0;
	/* What was not there at all becomes the page of zeros first, and comes again. */
	return uvm_rust_files_ask(mm, range->start, pages, missing, bitmap_intersects(missing, write, pages), has_zeros);
}

/* --- life --------------------------------------------------------------------------------- */

NV_STATUS uvm_rust_files_init(void)
{
	works_queue = alloc_workqueue("uvm_rust_files", WQ_UNBOUND, MOST_WORKS);
	return works_queue ? NV_OK : NV_ERR_NO_MEMORY;
}

void uvm_rust_files_exit(void)
{
	struct file_work *work, *next;

	/* Also called where the former failed. Those that are under way keep the module: of others only the last steps are waited for. */
	if (works_queue)
		destroy_workqueue(works_queue);
	list_for_each_entry_safe(work, next, &works, list)
		free_work(work);
	INIT_LIST_HEAD(&works);
}
