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

#include "uvm_rust_prefetch_ffi.h"
#include "uvm_rust_flash.h"
#include "uvm_rust_tenant.h"

/*
 * Protects the list, and what a tenant gets while it is in it. Inside the VA space's lock, and
 * no lock is taken inside. All processes share it: what is charged to one of them is allocated
 * before, so that nobody waits here for another's memory limit.
 */
static DEFINE_MUTEX(tenants_lock);
static LIST_HEAD(tenants);

/*
 * The tenant of @uid and @memcg with one holder more. If there is none, @made becomes it, with
 * its reference on the group, and is set to NULL. NULL if there is neither.
 */
static struct uvm_rust_tenant *find_or_add(kuid_t uid, struct mem_cgroup *memcg, struct uvm_rust_tenant **made)
{
	struct uvm_rust_tenant *tenant;

	mutex_lock(&tenants_lock);
	list_for_each_entry(tenant, &tenants, node) {
		if (uid_eq(tenant->uid, uid) && tenant->memcg == memcg) {
			tenant->holders++;
			goto out;
		}
	}
	tenant = *made;
	*made = NULL;
	if (tenant)
		list_add(&tenant->node, &tenants);
out:
	mutex_unlock(&tenants_lock);
	return tenant;
}

/* The caller's tenant, with one holder more, or NULL without memory. */
static struct uvm_rust_tenant *get_or_make(void)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(current->mm);
	struct uvm_rust_tenant *made = NULL, *tenant = find_or_add(current_uid(), memcg, &made);

	if (!tenant) {
		made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT);
		if (made) {
			made->uid = current_uid();
			made->memcg = memcg;
			made->holders = 1;
			tenant = find_or_add(made->uid, memcg, &made);
			/* The new tenant has the reference, unless another thread was first. */
			if (!made)
				return tenant;
			kfree(made);
		}
	}
	mem_cgroup_put(memcg);
	return tenant;
}

struct uvm_rust_tenant *uvm_rust_tenant_get(bool flash)
{
	struct uvm_rust_tenant *tenant = get_or_make();
	struct uvm_rust_flash_owner *owner;

	if (!tenant || !flash || smp_load_acquire(&tenant->flash))
		return tenant;
	owner = uvm_rust_flash_owner_new(tenant->memcg);
	if (!owner) {
		uvm_rust_tenant_put(tenant);
		return NULL;
	}
	mutex_lock(&tenants_lock);
	if (!tenant->flash) {
		smp_store_release(&tenant->flash, owner);
		owner = NULL;
	}
	mutex_unlock(&tenants_lock);
	if (owner)
		uvm_rust_flash_owner_free(owner);
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

struct uvm_rust_share *uvm_rust_tenant_share(struct uvm_rust_tenant *tenant, uvm_gpu_id_t id, __u64 bytes)
{
	struct uvm_rust_share **share = &tenant->shares[uvm_id_gpu_index(id)], *made;

	if (smp_load_acquire(share))
		return *share;
	made = uvm_rust_share_create(bytes);
	if (!made)
		return NULL;
	mutex_lock(&tenants_lock);
	if (!*share) {
		smp_store_release(share, made);
		made = NULL;
	}
	mutex_unlock(&tenants_lock);
	if (made)
		uvm_rust_share_destroy(made);
	return *share;
}
