// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Who has Linux map pages of files, and what becomes of the faults that need them: uvm_rust_files.c as it is. Linux's page tables,
 * processes and work queue are made up; a work item runs when the test says so.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_SHIFT			12
#define PAGE_SIZE			(1ul << PAGE_SHIFT)
#define PAGES_PER_UVM_VA_BLOCK		512
#define HZ				1000
#define EIO_OF_LINUX			5
#define EFAULT				14
#define EBUSY				16
#define UVM_RUST_NOT_HERE		(-115)
#define CONFIG_MEMCG
#define IS_ENABLED(option)		true
#define min(a, b)			((a) < (b) ? (a) : (b))
#define max(a, b)			((a) > (b) ? (a) : (b))

#define HMM_PFN_VALID			(1ul << 63)
#define HMM_PFN_WRITE			(1ul << 62)
#define HMM_PFN_ERROR			(1ul << 61)
#define HMM_PFN_REQ_FAULT		HMM_PFN_VALID
#define HMM_PFN_REQ_WRITE		HMM_PFN_WRITE
#define FAULT_FLAG_WRITE		1
#define FAULT_FLAG_REMOTE		2
#define FAULT_FLAG_UNSHARE		4
/* What a page number says of the page of zeros. */
#define OF_ZEROS			1ul
#define hmm_pfn_to_page(pfn)		((pfn) & OF_ZEROS)
#define ZERO_PAGE(address)		((void)(address), OF_ZEROS)
#define GFP_NOWAIT			0
#define __GFP_NOWARN			0
#define WQ_UNBOUND			8
#define NV_OK				0
#define NV_ERR_NO_MEMORY		0x51
#define THIS_MODULE			NULL
typedef unsigned int NV_STATUS;
typedef unsigned long long u64;

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - pages of files: %s\n", holds ? "ok" : "not ok", ++number, name);
}

/* --- lists and bits, as Linux has them ------------------------------------------------------- */

struct list_head { struct list_head *next, *prev; };

#define container_of(at, type, member)	((type *)((char *)(at) - offsetof(type, member)))
#define LIST_HEAD(name)			struct list_head name = { &(name), &(name) }
#define list_for_each_entry_safe(at, n, head, member)							\
	for (at = container_of((head)->next, typeof(*at), member), n = container_of(at->member.next, typeof(*at), member);	\
	     &at->member != (head); at = n, n = container_of(n->member.next, typeof(*n), member))

static void INIT_LIST_HEAD(struct list_head *head) { head->next = head->prev = head; }

static void list_add(struct list_head *at, struct list_head *head)
{
	at->next = head->next;
	at->prev = head;
	head->next->prev = at;
	head->next = at;
}

static void list_del(struct list_head *at)
{
	at->prev->next = at->next;
	at->next->prev = at->prev;
}

static void list_move(struct list_head *at, struct list_head *head)
{
	list_del(at);
	list_add(at, head);
}

#define DECLARE_BITMAP(name, bits)	unsigned long name[(bits) / 64]
static void __set_bit(unsigned long bit, unsigned long *bits) { bits[bit / 64] |= 1ul << bit % 64; }
static bool test_bit(unsigned long bit, const unsigned long *bits) { return bits[bit / 64] >> bit % 64 & 1; }

static unsigned long find_first_bit(const unsigned long *bits, unsigned long n)
{
	unsigned long i = 0;

	while (i < n && !test_bit(i, bits))
		i++;
	return i;
}

static unsigned long find_last_bit(const unsigned long *bits, unsigned long n)
{
	unsigned long i = n;

	while (i && !test_bit(i - 1, bits))
		i--;
	return i ? i - 1 : n;
}

static bool bitmap_empty(const unsigned long *bits, unsigned long n) { return find_first_bit(bits, n) == n; }

static bool bitmap_intersects(const unsigned long *a, const unsigned long *b, unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		if (test_bit(i, a) && test_bit(i, b))
			return true;
	}
	return false;
}

/* --- Linux ------------------------------------------------------------------------------------- */

#define PAGES	8

typedef struct { int uid; } kuid_t;
#define INVALID_UID			((kuid_t){ -1 })
static bool uid_eq(kuid_t a, kuid_t b) { return a.uid == b.uid; }

struct cgroup { u64 id; };
static u64 cgroup_id(const struct cgroup *group) { return group->id; }

struct mem_cgroup { struct { struct cgroup *cgroup; } css; struct cgroup group; };

/* How deep the lock is that keeps a task, and its cgroup. */
static int rcu;

struct task_struct { int uid; struct mem_cgroup *memcg; };
static struct mem_cgroup *mem_cgroup_from_task(const struct task_struct *task)
{
	if (!rcu)
		abort();
	return task->memcg;
}

static kuid_t task_uid(const struct task_struct *task) { return (kuid_t){ task->uid }; }

/* Whether nobody may write to memory that is of no file, in which case what is read first is the page of zeros. */
struct vm_area_struct { bool of_zeros; };
static bool uvm_rust_unshares_zeros(const struct vm_area_struct *vma) { return vma->of_zeros; }

/* A process' memory: eight pages of a file, what is mapped of them, and why one cannot be. */
struct mm_struct {
	int users, count;
	struct vm_area_struct vma;
	struct task_struct *owner, task;
	unsigned long pfns[PAGES];
	int errors[PAGES];
	/* What Linux was told when it mapped the last one. */
	unsigned int flags;
};

struct notifier { struct mm_struct *mm; };
struct hmm_range { struct notifier *notifier; unsigned long start, end, *hmm_pfns; void *dev_private_owner; };
struct work_struct { void (*func)(struct work_struct *work); struct work_struct *next; };
struct workqueue_struct { int most; };

typedef int spinlock_t;
static int locks, modules, allocated, forgotten;
static bool no_memory, in_mm, memory_is_locked;
static unsigned long jiffies = 5000;
static struct work_struct *queued;
static struct workqueue_struct queue;

#define DEFINE_SPINLOCK(name)		spinlock_t name
#define spin_lock(lock)			((void)(lock), locks++)
#define spin_unlock(lock)		((void)(lock), locks--)
#define lockdep_assert_held(lock)	((void)(lock), locks == 1 ? (void)0 : abort())
#define rcu_read_lock()			(rcu++)
#define rcu_read_unlock()		(rcu--)
#define rcu_dereference(of)		(of)
#define time_after(a, b)		((long)((b) - (a)) < 0)
#define uvm_rust_forget_over()		(forgotten++)
#define __module_get(of)		(modules++)
#define module_put(of)			(modules--)

static void kfree(void *at) { allocated -= at != NULL; free(at); }

static void *kzalloc(size_t size, int flags)
{
	void *got = no_memory ? NULL : calloc(1, size);

	allocated += got != NULL;
	return got;
}

static bool mmget_not_zero(struct mm_struct *mm) { return mm->users && mm->users++; }
/* Whether what has that memory was still on the list whenever the memory was put, and no lock was held. */
static bool lists(const struct mm_struct *mm);
static bool was_listed = true;
static void mmput(struct mm_struct *mm) { was_listed &= lists(mm) && !locks; mm->users--; }

static void mmgrab(struct mm_struct *mm) { mm->count++; }

static void mmdrop(struct mm_struct *mm)
{
	/* Not with a lock held: it may take others. */
	if (locks)
		abort();
	mm->count--;
}

static void kthread_use_mm(struct mm_struct *mm) { in_mm = mm->users > 0; }
static void kthread_unuse_mm(struct mm_struct *mm) { in_mm = false; }
static void mmap_read_lock(struct mm_struct *mm) { memory_is_locked = true; }
static void mmap_read_unlock(struct mm_struct *mm) { memory_is_locked = false; }

/* Linux maps a page, or says why not. */
static int fixup_user_fault(struct mm_struct *mm, unsigned long address, unsigned int flags, bool *unlocked)
{
	unsigned long page = address >> PAGE_SHIFT;

	if (!in_mm || !memory_is_locked || locks)
		abort();
	mm->flags = flags;
	if (mm->errors[page])
		return -mm->errors[page];
	if ((flags & FAULT_FLAG_WRITE) && (flags & FAULT_FLAG_UNSHARE))
		abort();
	if (!mm->pfns[page] && mm->vma.of_zeros && !(flags & FAULT_FLAG_WRITE))
		mm->pfns[page] = HMM_PFN_VALID | OF_ZEROS;
	else
		mm->pfns[page] = HMM_PFN_VALID | (flags & FAULT_FLAG_WRITE ? HMM_PFN_WRITE : 0) |
				 (flags & FAULT_FLAG_UNSHARE ? 0 : mm->pfns[page] & OF_ZEROS);
	return 0;
}

/* The CPUs of NUMA nodes; that without one has memory only. */
static unsigned int cpus_of[9];
#define num_online_cpus()		cpus_of_all()
#define for_each_online_node(node)	for ((node) = 0; (node) < 9; (node)++)
#define cpumask_of_node(node)		(&cpus_of[node])
#define cpumask_weight(of)		(*(of))

static unsigned int cpus_of_all(void)
{
	unsigned int all = 0, node;

	for_each_online_node(node)
		all += cpus_of[node];
	return all;
}

static bool is_crowded;
static struct vm_area_struct *find_vma(struct mm_struct *mm, unsigned long address) { return &mm->vma; }

static bool uvm_rust_is_crowded(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	return is_crowded && vma && start < end;
}

/* Of a page that is on a GPU, which its owner is told of. */
#define ON_GPU				(1ul << 60)

/* Nobody has it map a page in this thread. */
static bool asked;
static int looks_fail;

static int hmm_range_fault(struct hmm_range *range)
{
	unsigned long first = range->start >> PAGE_SHIFT;

	for (unsigned long i = 0; i < (range->end - range->start) >> PAGE_SHIFT; i++) {
		asked |= range->hmm_pfns[i] != 0;
		range->hmm_pfns[i] = range->notifier->mm->pfns[first + i];
		if (range->hmm_pfns[i] & ON_GPU)
			range->hmm_pfns[i] = range->dev_private_owner ? HMM_PFN_VALID | HMM_PFN_WRITE : 0;
	}
	return looks_fail;
}

#define INIT_WORK(work, does)		((work)->func = (does))

static void queue_work(struct workqueue_struct *on, struct work_struct *work)
{
	work->next = queued;
	queued = work;
}

static struct workqueue_struct *alloc_workqueue(const char *name, int flags, int most)
{
	queue.most = most;
	return no_memory || flags != WQ_UNBOUND ? NULL : &queue;
}

static void run_all(void)
{
	while (queued) {
		struct work_struct *work = queued;

		queued = work->next;
		work->func(work);
	}
}

static void destroy_workqueue(struct workqueue_struct *on)
{
	if (!on)
		abort();
	run_all();
}

NV_STATUS uvm_rust_files_init(void);
void uvm_rust_files_exit(void);
int uvm_rust_files_look(struct hmm_range *range);

#include "files.h"

static bool lists(const struct mm_struct *mm)
{
	struct file_work *work, *next;
	bool found = false;

	list_for_each_entry_safe(work, next, &works, list)
		found |= work->mm == mm && !work->error;
	return found;
}

/* --- the test -------------------------------------------------------------------------------- */

#define PROCESSES	(MOST_WORKS + 2)

static struct mm_struct processes[PROCESSES];
static struct mem_cgroup groups[PROCESSES];
static unsigned long pfns[PAGES];

/* A fault needs the pages from @first to @last of @mm, as pfns says. */
static int looks_at(struct mm_struct *mm, unsigned long first, unsigned long last)
{
	struct notifier notifier = { mm };
	struct hmm_range range = { &notifier, first << PAGE_SHIFT, (last + 1) << PAGE_SHIFT, pfns, &notifier };

	asked = false;
	return uvm_rust_files_look(&range);
}

/* The same, all to write to them or not. */
static int needs_all(struct mm_struct *mm, unsigned long first, unsigned long last, bool to_write)
{
	for (unsigned long i = 0; i <= last - first; i++)
		pfns[i] = HMM_PFN_REQ_FAULT | (to_write ? HMM_PFN_REQ_WRITE : 0);
	return looks_at(mm, first, last);
}

static int needs(struct mm_struct *mm, unsigned long page) { return needs_all(mm, page, page, false); }

static void start_over(void)
{
	memset(processes, 0, sizeof(processes));
	for (int i = 0; i < PROCESSES; i++) {
		groups[i] = (struct mem_cgroup){ .group.id = i + 1 };
		groups[i].css.cgroup = &groups[i].group;
		processes[i] = (struct mm_struct){ .users = 1, .count = 1, .task = { .uid = i, .memcg = &groups[0] } };
		processes[i].owner = &processes[i].task;
	}
	memset(cpus_of, 0, sizeof(cpus_of));
	cpus_of[0] = 4;
	no_memory = false;
	looks_fail = 0;
	was_listed = true;
	if (uvm_rust_files_init() != NV_OK)
		abort();
}

/* Whether nothing is left, once the module has gone. */
static bool ends(void)
{
	bool is_clean = true;

	uvm_rust_files_exit();
	for (int i = 0; i < PROCESSES; i++)
		is_clean &= processes[i].users == 1 && processes[i].count == 1;
	return is_clean && !allocated && !modules && !locks && !rcu && !queued && !in_mm && !memory_is_locked;
}

static void pages(void)
{
	struct mm_struct *mm = &processes[0];

	start_over();
	say("one that is mapped is there at once", (mm->pfns[0] = HMM_PFN_VALID) && needs(mm, 0) == 0 && pfns[0] == HMM_PFN_VALID && !queued);
	say("one that is not is put off, and Linux maps none of it here", needs(mm, 1) == UVM_RUST_NOT_HERE && !asked && queued && !mm->pfns[1]);
	say("the module stays, and so does the memory", modules == 1 && mm->users == 2 && mm->count == 2);
	say("one at a time of a process", needs(mm, 2) == UVM_RUST_NOT_HERE && !queued->next && allocated == 1);
	run_all();
	say("as long as a process' memory is put it is counted", was_listed);
	say("what one process took is not held against the next", forgotten == 1 && !in_mm && !memory_is_locked);
	say("then it is there", needs(mm, 1) == 0 && mm->flags == FAULT_FLAG_REMOTE && mm->users == 1 && mm->count == 1 && !modules && !allocated);
	say("of many those from the first that is missing to the last are mapped", needs_all(mm, 0, 5, false) == UVM_RUST_NOT_HERE &&
	    (run_all(), needs_all(mm, 0, 5, false) == 0) && mm->pfns[5] && !mm->pfns[6]);
	say("for a write one that is only read is missing", needs_all(mm, 0, 0, true) == UVM_RUST_NOT_HERE && (run_all(),
	    mm->flags & FAULT_FLAG_WRITE) && needs_all(mm, 0, 0, true) == 0 && !(mm->pfns[1] & HMM_PFN_WRITE));
	pfns[0] = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE;
	pfns[1] = HMM_PFN_REQ_FAULT;
	mm->pfns[1] = 0;
	say("but one that is only read is not written to with others", looks_at(mm, 0, 1) == UVM_RUST_NOT_HERE && (run_all(), mm->flags) == FAULT_FLAG_REMOTE);
	mm->pfns[7] = HMM_PFN_ERROR;
	say("what Linux gives nobody is refused", needs_all(mm, 6, 7, false) == -EFAULT && !queued);
	mm->pfns[4] = ON_GPU;
	say("what is on a GPU is there", needs_all(mm, 4, 4, true) == 0 && !queued);
	is_crowded = true;
	say("unless it has many mappings", needs_all(mm, 4, 4, true) == UVM_RUST_NOT_HERE && queued && (run_all(), needs_all(mm, 4, 4, true) == 0));
	is_crowded = false;
	looks_fail = -EBUSY;
	say("what fails on the way fails", needs(mm, 0) == -EBUSY && !queued);
	looks_fail = 0;
	no_memory = true;
	say("without memory it comes again", needs(mm, 6) == UVM_RUST_NOT_HERE && !queued && !allocated);
	no_memory = false;
	mm->users = 0;
	say("a process that ends gets none", needs(mm, 6) == UVM_RUST_NOT_HERE && !queued && !allocated && mm->count == 1);
	mm->users = 1;
	needs(mm, 6);
	say("nothing is left", ends());
}

/* Memory of no file that is for reading only. */
static void zeros(void)
{
	const unsigned long own = HMM_PFN_VALID, of_zeros = HMM_PFN_VALID | OF_ZEROS;
	struct mm_struct *mm = &processes[0], *other = &processes[1];

	start_over();
	mm->vma.of_zeros = true;
	mm->pfns[1] = own;
	say("one that nobody has touched becomes that of zeros", needs_all(mm, 0, 2, false) == UVM_RUST_NOT_HERE && (run_all(),
	    mm->flags == FAULT_FLAG_REMOTE) && mm->pfns[0] == of_zeros && mm->pfns[2] == of_zeros);
	say("which is put off as well", needs_all(mm, 0, 2, false) == UVM_RUST_NOT_HERE && !asked && queued);
	run_all();
	say("Linux gives one of the process' own instead", mm->flags == (FAULT_FLAG_REMOTE | FAULT_FLAG_UNSHARE) &&
	    mm->pfns[0] == own && mm->pfns[2] == own);
	say("and all of them are there", needs_all(mm, 0, 2, false) == 0 && pfns[0] == own && pfns[1] == own && !queued);
	mm->pfns[3] = of_zeros;
	say("so with one that is alone", needs(mm, 3) == UVM_RUST_NOT_HERE && (run_all(), needs(mm, 3) == 0) && !mm->pfns[4]);
	mm->pfns[4] = of_zeros;
	say("a write asks for no more than a write", needs_all(mm, 4, 4, true) == UVM_RUST_NOT_HERE && (run_all(),
	    mm->flags) == (FAULT_FLAG_REMOTE | FAULT_FLAG_WRITE));
	other->pfns[0] = of_zeros;
	say("elsewhere it is a page like others", needs(other, 0) == 0 && !queued);
	say("nothing is left", ends());
}

static void errors(void)
{
	struct mm_struct *mm = &processes[0], *other = &processes[1];

	start_over();
	mm->errors[3] = EFAULT;
	say("one that cannot be mapped is put off first", needs_all(mm, 2, 4, false) == UVM_RUST_NOT_HERE);
	run_all();
	say("those before it are mapped, those behind it are not", mm->pfns[2] && !mm->pfns[4]);
	say("the process is let go, which nobody is told before", mm->users == 1 && !modules && was_listed);
	say("another fault does not wait until that is told", needs(mm, 5) == UVM_RUST_NOT_HERE && (run_all(), needs(mm, 5) == 0));
	say("another process' does not, and is told nothing", needs(other, 3) == UVM_RUST_NOT_HERE && queued);
	run_all();
	say("nor is one whose page is not among those that are missing", (mm->pfns[3] = HMM_PFN_VALID) &&
	    needs_all(mm, 2, 4, false) == UVM_RUST_NOT_HERE);
	run_all();
	mm->pfns[3] = 0;
	say("it is refused when it comes again", needs_all(mm, 3, 4, false) == -EFAULT && !asked);
	say("once", needs(mm, 3) == UVM_RUST_NOT_HERE && queued);
	mm->errors[3] = EIO_OF_LINUX;
	run_all();
	say("by what Linux said", needs(mm, 3) == -EIO_OF_LINUX);
	needs(mm, 3);
	run_all();
	jiffies += KEPT_JIFFIES;
	say("what nobody comes for is kept", needs(mm, 3) == -EIO_OF_LINUX);
	needs(mm, 3);
	run_all();
	jiffies += KEPT_JIFFIES + 1;
	say("not for long", needs(mm, 3) == UVM_RUST_NOT_HERE && queued && allocated == 1);
	run_all();
	say("and what is new is told", needs(mm, 3) == -EIO_OF_LINUX && !allocated);
	/* Of the same page: it may no longer be written to, or the address may be another file's by then. */
	mm->errors[2] = EFAULT;
	mm->pfns[2] = 0;
	needs_all(mm, 2, 2, true);
	run_all();
	mm->errors[2] = 0;
	say("a read is not told what came of a write", needs(mm, 2) == UVM_RUST_NOT_HERE && (run_all(), needs(mm, 2) == 0));
	say("but the write is", needs_all(mm, 2, 2, true) == -EFAULT);
	mm->errors[2] = EFAULT;
	needs_all(mm, 2, 2, true);
	run_all();
	jiffies += KEPT_JIFFIES + 1;
	say("and nobody what is old", needs_all(mm, 2, 2, true) == UVM_RUST_NOT_HERE && queued);
	run_all();
	say("which is told when it is new", needs_all(mm, 2, 2, true) == -EFAULT);
	mm->pfns[3] = 0;
	needs(mm, 3);
	run_all();
	say("nothing is left, also of what nobody came for", allocated == 1 && ends());
}

/* A kernel that reads what cannot be mapped, in more places than one. */
static void many_errors(void)
{
	struct mm_struct *mm = &processes[0];
	bool are_told = true;

	start_over();
	for (int i = 0; i < MOST_KEPT; i++) {
		mm->errors[i] = EFAULT;
		needs(mm, i);
		run_all();
	}
	say("errors are kept beside each other", allocated == MOST_KEPT);
	say("but not without end", needs(mm, 7) == UVM_RUST_NOT_HERE && !queued && allocated == MOST_KEPT);
	say("another process has its own", needs(&processes[1], 7) == UVM_RUST_NOT_HERE && queued);
	run_all();
	say("once one is told others go on", needs(mm, 0) == -EFAULT && needs(mm, 7) == UVM_RUST_NOT_HERE && queued);
	run_all();
	for (int i = 1; i < MOST_KEPT; i++)
		are_told &= needs(mm, i) == -EFAULT;
	say("and each is told", are_told && !allocated);
	say("nothing is left", ends());
}

static int queued_now(void)
{
	int n = 0;

	for (struct work_struct *work = queued; work; work = work->next)
		n++;
	return n;
}

/* Of so many users everybody needs a page, one process after the other; 0 for processes that are nobody's. Returns how many are mapped at a time. */
static int most_at_once(int users)
{
	int most;

	for (int i = 0; i < PROCESSES; i++) {
		processes[i].task.uid = users ? i % users : 0;
		processes[i].owner = users ? &processes[i].task : NULL;
		processes[i].pfns[0] = 0;
		needs(&processes[i], 0);
	}
	most = queued_now();
	run_all();
	return most;
}

/*
 * So many processes of the user 0 need a page, of each of so many cgroups; those that have asked before are others. Returns how many are
 * mapped at a time more than before.
 */
static int of_tenants(int tenants, int each)
{
	int before = queued_now(), i;

	for (i = 0; i < tenants * each; i++) {
		struct mm_struct *mm = &processes[(before + i) % PROCESSES];

		mm->task = (struct task_struct){ .memcg = &groups[before + i / each] };
		mm->pfns[1] = 0;
		needs(mm, 1);
	}
	return queued_now() - before;
}

static void bounds(void)
{
	int of_user;

	start_over();
	for (int i = 0; i < PROCESSES; i++) {
		processes[i].task.uid = 0;
		needs(&processes[i], 0);
	}
	of_user = queued_now();
	say("a user of a cgroup has so many at a time", of_user == 64 && allocated == of_user);
	processes[PROCESSES - 1].task.uid = 1;
	needs(&processes[PROCESSES - 1], 0);
	say("and others go on", allocated == of_user + 1);
	run_all();
	say("once they are done more may come", needs(&processes[of_user], 0) == UVM_RUST_NOT_HERE && queued);
	run_all();
	say("who has the same number in another cgroup goes on as well", of_tenants(1, 65) == 64 && of_tenants(1, 65) == 64 &&
	    (processes[PROCESSES - 1].task.memcg = NULL, needs(&processes[PROCESSES - 1], 1), allocated == 129));
	run_all();
	say("eight cgroups cannot have all", of_tenants(8, 64) == 7 * 64 + 32 && of_tenants(1, 65) == 16);
	run_all();
	say("those that are nobody's are one user's", most_at_once(0) == 64);
	say("and so many in all, as many as Linux runs", most_at_once(PROCESSES) == 512 && queue.most == 512);
	say("nothing is left", ends());
	no_memory = true;
	say("without memory there is no module", uvm_rust_files_init() == NV_ERR_NO_MEMORY);
	uvm_rust_files_exit();
}

/* Linux divides what it runs of a queue among the nodes. */
static void nodes(void)
{
	start_over();
	cpus_of[1] = 4;
	say("of two nodes each runs half of them", most_at_once(PROCESSES) == 256 && most_at_once(1) == 32);
	cpus_of[2] = 0;
	cpus_of[3] = 56;
	say("the smallest counts, but not one without a CPU", most_at_once(PROCESSES) == 32 && most_at_once(1) == 4);
	cpus_of[4] = 1;
	cpus_of[5] = 448;
	say("a node runs eight at least", most_at_once(PROCESSES) == 8 && most_at_once(1) == 1);
	say("nothing is left", ends());
}

int main(void)
{
	printf("TAP version 13\n");
	pages();
	zeros();
	errors();
	many_errors();
	bounds();
	nodes();
	printf("1..%d\n", number);
	return failed;
}
