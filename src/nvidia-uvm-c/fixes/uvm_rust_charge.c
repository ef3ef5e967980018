// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Who is ended as what was evicted is beyond the bound of a limit (uvm_rust_charge.h), and who is spared for it.
 *
 * Memory comes back when the process that is ended closes its files. Until then all that is evicted is beyond the bound, also what
 * belongs to others who are charged to the limit: these are spared. If they were spared any longer, who needs memory could have
 * helpers ended for it, one after the other, and take without a bound meanwhile. So nobody is spared for a process that has closed
 * them, nor for one that takes longer than UVM_RUST_CHARGE_ENDS, nor where the excess is twice the bound.
 *
 * A process that ends for another reason, as by Linux for want of memory, makes room just as well: others are spared for it, too.
 *
 * Several processes may have the memory, and the files, of one (CLONE_VM, CLONE_FILES). They are ended together, as Linux does for want of memory.
 */
#include <linux/memcontrol.h>
#include <linux/pid.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>

#include "uvm_common.h"

#include "uvm_rust_charge.h"
#include "uvm_rust_fixes.h"

#ifdef CONFIG_MEMCG

/*
 * How many dying processes are remembered. A new one replaces the oldest of its own limit, and another limit's only if its
 * own has none.
 */
#define DYING 16

/* The processes that are ended, or end by themselves, and were seen to be beyond a bound. One that takes too long stays until it is gone. */
static struct dying {
	/* NULL: the place is free. Else there is a reference on both this and the cgroup. */
	struct pid *pid;
	/* Whose limit it was beyond. The process is charged to it, or to a cgroup below it. */
	struct mem_cgroup *past;
	/* How far that may be over the limit, in pages, by the bound of who was evicted then. */
	long slack;
	unsigned long since;
} dying[DYING];

/* For dying[]. A leaf, which is taken with a va_block's lock held; nothing under it sleeps. */
static DEFINE_SPINLOCK(dying_lock);

/* Makes the place free. Caller holds dying_lock. */
static void forget(struct dying *one)
{
	put_pid(one->pid);
	mem_cgroup_put(one->past);
	*one = (struct dying){ 0 };
}

/*
 * Whether the process of @pid has closed its files: a thread has when it is a zombie, which it may be for as long as its parent, or who
 * traces it, likes. Caller is in an RCU reader.
 */
static bool is_gone(struct pid *pid)
{
	struct task_struct *process = pid_task(pid, PIDTYPE_TGID), *thread;

	if (!process)
		return true;
	/* for_each_thread() may name tasklist_lock, which modules have not got. */
	list_for_each_entry_rcu(thread, &process->signal->thread_head, thread_node) {
		if (!READ_ONCE(thread->exit_state))
			return false;
	}
	return true;
}

/* Whether what @one gives back makes @past have less: its own limit is that one's, or one's below it. */
static bool makes_room(const struct dying *one, const struct mem_cgroup *past)
{
	struct mem_cgroup *memcg = one->past;

	while (memcg && memcg != past)
		memcg = parent_mem_cgroup(memcg);
	return memcg;
}

/* Whether for the moment nobody is ended for @past's limit, as @one will have gone soon. */
static bool spares(const struct dying *one, struct mem_cgroup *past, long slack)
{
	return time_before(jiffies, one->since + UVM_RUST_CHARGE_ENDS) && makes_room(one, past) &&
	       uvm_rust_excess(past) <= 2 * max(slack, one->slack);
}

/* Of the two places the one to take for a process beyond @past's limit: a free one, then one of that limit's, then the older one. */
static struct dying *better_of(struct dying *a, struct dying *b, const struct mem_cgroup *past)
{
	if (!a->pid || !b->pid)
		return a->pid ? b : a;
	if ((a->past == past) != (b->past == past))
		return a->past == past ? a : b;
	return time_before(b->since, a->since) ? b : a;
}

/*
 * Remembers @pid as dying, unless it is known or others are spared (a process that @exits is noted all the same). Returns
 * whether it must be killed. Caller is in an RCU reader, and holds dying_lock.
 */
static bool note(struct pid *pid, struct mem_cgroup *past, long slack, bool exits)
{
	struct dying *one, *place = dying;
	bool is_spared = false;

	for (one = dying; one < dying + DYING; one++) {
		if (one->pid && is_gone(one->pid))
			forget(one);
		if (one->pid == pid)
			return false;
		is_spared |= one->pid && spares(one, past, slack);
		place = better_of(place, one, past);
	}
	if (is_spared && !exits)
		return false;
	forget(place);
	css_get(&past->css);
	*place = (struct dying){ .pid = get_pid(pid), .past = past, .slack = slack, .since = jiffies };
	return !exits;
}

/* Whether a thread of @process works in @mm. Caller is in an RCU reader. */
static bool has_mm(struct task_struct *process, const struct mm_struct *mm)
{
	struct task_struct *thread;

	/* Which may be lent a process' memory. */
	if (process->flags & PF_KTHREAD)
		return false;
	/* The first thread may have gone alone. */
	list_for_each_entry_rcu(thread, &process->signal->thread_head, thread_node) {
		if (READ_ONCE(thread->mm) == mm)
			return true;
	}
	return false;
}

/*
 * Kills all processes that have @mm. One that comes meanwhile is behind the one that made it, which makes no other once it is killed. Caller is
 * in an RCU reader.
 */
static void kill_all_of(const struct mm_struct *mm)
{
	struct task_struct *process;

	for_each_process(process) {
		if (has_mm(process, mm) && !is_global_init(process))
			kill_pid(task_tgid(process), SIGKILL, 1);
	}
}

void uvm_rust_charge_end(struct mm_struct *mm, struct mem_cgroup *past, long slack)
{
	struct task_struct *owner;
	struct pid *pid;
	bool ends = false;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	/* NULL, too, once its parent has asked for it. */
	pid = owner ? task_tgid(owner) : NULL;
	if (pid) {
		spin_lock(&dying_lock);
		ends = note(pid, past, slack, uvm_rust_ends(owner));
		spin_unlock(&dying_lock);
	}
	if (ends) {
		pr_warn_ratelimited("process %d (%s) is ended: what is evicted from its GPUs is beyond its memory cgroup's limit by more than these hold\n",
				    task_tgid_nr(owner), owner->comm);
		kill_all_of(mm);
	}
	rcu_read_unlock();
}

void uvm_rust_charge_exit(void)
{
	struct dying *one;

	spin_lock(&dying_lock);
	for (one = dying; one < dying + DYING; one++)
		forget(one);
	spin_unlock(&dying_lock);
}

#else
void uvm_rust_charge_end(struct mm_struct *mm, struct mem_cgroup *past, long slack) { }
void uvm_rust_charge_exit(void) { }
#endif
