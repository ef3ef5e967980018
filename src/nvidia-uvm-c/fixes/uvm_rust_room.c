// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whether there is room for ordinary memory that a GPU's fault needs, in the memory cgroup of the process. If not, Linux reclaims memory
 * of the cgroup while it charges a page, and may have a process of it end, and another one, until there is room. A thread that services
 * the faults of all processes leaves that to the work item of uvm_rust_files.c.
 */
#include <linux/cgroup.h>
#include <linux/cpumask.h>
#include <linux/memcontrol.h>
#include <linux/page_counter.h>

#include "uvm_rust_files.h"

/* What Linux charges at once for each CPU, which may not be needed (MEMCG_CHARGE_BATCH), in pages. */
#define AHEAD 64

#ifdef CONFIG_MEMCG
static bool lacks(struct page_counter *counter, unsigned long pages)
{
	return page_counter_read(counter) + pages > READ_ONCE(counter->max);
}

/* Memory and swap together have a limit in cgroups of the first kind. In those of the second the counter is that of swap. */
static bool lacks_of_both(struct mem_cgroup *memcg, unsigned long pages)
{
	return !cgroup_subsys_on_dfl(memory_cgrp_subsys) && lacks(&memcg->memsw, pages);
}
#endif

bool uvm_rust_lacks_room(struct mm_struct *mm, unsigned long pages)
{
	bool is_full = false;
#ifdef CONFIG_MEMCG
	struct mem_cgroup *of_mm, *memcg;

	if (!uvm_rust_fix_charge)
		return false;
	pages += num_online_cpus() * AHEAD;
	of_mm = get_mem_cgroup_from_mm(mm);
	for (memcg = of_mm; memcg && !is_full; memcg = parent_mem_cgroup(memcg))
		is_full = lacks(&memcg->memory, pages) || lacks_of_both(memcg, pages);
	mem_cgroup_put(of_mm);
#endif
	return is_full;
}
