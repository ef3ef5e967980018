// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C seam of what is done later, and of who pays: work items, which call Rust, and memory cgroups.
 * What there is of them, and when which is queued, is Rust's (ffi/work.rs, driver/tenant.rs).
 */
#include <linux/cred.h>
#include <linux/lockdep.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "uvm_api.h"
#include "uvm_common.h"

#include "uvm_rust_base_ffi.h"

struct uvm_seam_work {
	struct delayed_work item;
	void (*run)(struct uvm_rust_work_of *of);
	struct uvm_rust_work_of *of;
};

/* What is locked by one kind of work is no other kind's. */
static struct lock_class_key kinds[UVM_RUST_WORKS];

static void run_item(struct work_struct *item)
{
	struct uvm_seam_work *work = container_of(to_delayed_work(item), struct uvm_seam_work, item);

	UVM_ENTRY_VOID(work->run(work->of));
}

struct workqueue_struct *uvm_seam_queue_new(const char *name, __u32 most, bool urgent)
{
	return alloc_workqueue("%s", WQ_UNBOUND | (urgent ? WQ_HIGHPRI | WQ_MEM_RECLAIM : WQ_FREEZABLE), most, name);
}

struct uvm_seam_work *uvm_seam_work_new(__u32 kind, void (*run)(struct uvm_rust_work_of *), struct uvm_rust_work_of *of)
{
	struct uvm_seam_work *work = kzalloc(sizeof(*work), GFP_KERNEL_ACCOUNT);

	if (!work)
		return NULL;
	work->run = run;
	work->of = of;
	INIT_DELAYED_WORK(&work->item, run_item);
	lockdep_init_map(&work->item.work.lockdep_map, "uvm_rust_work", &kinds[kind], 0);
	return work;
}

void uvm_seam_work_queue(struct workqueue_struct *queue, struct uvm_seam_work *work, __u64 ms)
{
	(ms ? mod_delayed_work : queue_delayed_work)(queue, &work->item, msecs_to_jiffies(ms));
}

void uvm_seam_work_stop(struct uvm_seam_work *work, bool free)
{
	/* disable_work_sync() is 6.10's. */
	cancel_delayed_work_sync(&work->item);
	if (free)
		kfree(work);
}

struct mem_cgroup *uvm_seam_tenant_of_this_thread(__u32 *user)
{
	*user = __kuid_val(current_uid());
	return get_mem_cgroup_from_mm(current->mm);
}

void uvm_seam_memcg_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

struct mem_cgroup *uvm_seam_charge(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}
