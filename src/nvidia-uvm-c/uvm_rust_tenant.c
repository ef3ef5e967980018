// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The registry of tenants, which the prefetcher's tables and the SSD tier's quotas are limited by.
 */
#include <linux/cred.h>
#include <linux/memcontrol.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "uvm_common.h"

#include "uvm_rust_ffi.h"
#include "uvm_rust_flash.h"
#include "uvm_rust_tenant.h"

/*
 * Protects the list, and what a tenant gets while it is in it. Inside the VA space's lock; of
 * locks only the allocator's, the SSD tier's spinlock and those of Rust's shares are taken inside.
 */
static DEFINE_MUTEX(tenants_lock);
static LIST_HEAD(tenants);

/* As uvm_rust_tenant_get(). Takes over the reference on @memcg. Caller holds tenants_lock. */
static struct uvm_rust_tenant *find_or_make(kuid_t uid, struct mem_cgroup *memcg)
{
	struct uvm_rust_tenant *tenant;

	list_for_each_entry(tenant, &tenants, node) {
		if (uid_eq(tenant->uid, uid) && tenant->memcg == memcg) {
			mem_cgroup_put(memcg);
			tenant->holders++;
			return tenant;
		}
	}
	tenant = kzalloc(sizeof(*tenant), GFP_KERNEL_ACCOUNT);
	if (!tenant) {
		mem_cgroup_put(memcg);
		return NULL;
	}
	tenant->uid = uid;
	tenant->memcg = memcg;
	tenant->holders = 1;
	list_add(&tenant->node, &tenants);
	return tenant;
}

struct uvm_rust_tenant *uvm_rust_tenant_get(bool flash)
{
	struct uvm_rust_tenant *tenant;

	mutex_lock(&tenants_lock);
	tenant = find_or_make(current_uid(), get_mem_cgroup_from_mm(current->mm));
	if (tenant && flash && !tenant->flash)
		tenant->flash = uvm_rust_flash_owner_new(tenant->memcg);
	mutex_unlock(&tenants_lock);
	if (tenant && flash && !tenant->flash) {
		uvm_rust_tenant_put(tenant);
		return NULL;
	}
	return tenant;
}

void uvm_rust_tenant_put(struct uvm_rust_tenant *tenant)
{
	bool last;
	__u32 i;

	if (!tenant)
		return;
	mutex_lock(&tenants_lock);
	last = --tenant->holders == 0;
	if (last)
		list_del(&tenant->node);
	mutex_unlock(&tenants_lock);
	if (!last)
		return;
	for (i = 0; i < UVM_ID_MAX_GPUS; i++) {
		if (tenant->shares[i])
			uvm_rust_share_destroy(tenant->shares[i]);
	}
	if (tenant->flash)
		uvm_rust_flash_owner_free(tenant->flash);
	mem_cgroup_put(tenant->memcg);
	kfree(tenant);
}

void *uvm_rust_tenant_share(struct uvm_rust_tenant *tenant, uvm_gpu_id_t id, __u64 bytes)
{
	void **share = &tenant->shares[uvm_id_gpu_index(id)];

	mutex_lock(&tenants_lock);
	if (!*share)
		*share = uvm_rust_share_create(bytes);
	mutex_unlock(&tenants_lock);
	return *share;
}
