/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Tenants: whom limits are for that several descriptors have together.
 */
#ifndef UVM_RUST_TENANT_H
#define UVM_RUST_TENANT_H

#include <linux/list.h>
#include <linux/uidgid.h>

#include "uvm_processors.h"

struct mem_cgroup;
struct uvm_rust_flash_owner;

/*
 * A user within a memory cgroup, from the first VA space that is one of its to the last. Not a
 * process: descriptors outlive the children that set them up, each of which would bring limits
 * of its own. Not a user alone: containers have users of the same number. Who may make memory
 * cgroups may make tenants.
 */
struct uvm_rust_tenant {
	/* The registry's, under its lock (uvm_rust_tenant.c). */
	struct list_head node;
	unsigned int holders;
	/* Who it is; fixed. A reference on @memcg is held; NULL where there are no memory cgroups. */
	kuid_t uid;
	struct mem_cgroup *memcg;
	/*
	 * What its prefetch tables may take together, by GPU. Each is set once, under the registry's
	 * lock (uvm_rust_tenant_share()), and stays as long as the tenant.
	 */
	struct uvm_rust_share *shares[UVM_ID_MAX_GPUS];
	/* To the SSD tier (uvm_rust_flash_owner.c); set once under the registry's lock, and stays as well. */
	struct uvm_rust_flash_owner *flash;
};

/*
 * The tenant that this thread belongs to, held once more; NULL without memory. The thread has an
 * mm, and may sleep. With @flash the tenant has one of these, too.
 */
struct uvm_rust_tenant *uvm_rust_tenant_get(bool flash);
/* Lets it go; NULL is nobody. The last one frees it. May sleep. */
void uvm_rust_tenant_put(struct uvm_rust_tenant *tenant);
/* What the tables for a GPU share (uvm_rust_share_create()), made of @bytes if need be; NULL without memory. */
struct uvm_rust_share *uvm_rust_tenant_share(struct uvm_rust_tenant *tenant, uvm_gpu_id_t id, __u64 bytes);

#endif
