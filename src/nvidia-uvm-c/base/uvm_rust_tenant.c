// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The C seam of tenants: who a thread is. The registry of them is Rust's (driver/tenant.rs).
 */
#include <linux/cred.h>
#include <linux/memcontrol.h>
#include <linux/sched.h>

#include "uvm_rust_base_ffi.h"

struct mem_cgroup *uvm_seam_tenant_of_this_thread(__u32 *user)
{
	*user = __kuid_val(current_uid());
	return get_mem_cgroup_from_mm(current->mm);
}

void uvm_seam_memcg_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}
