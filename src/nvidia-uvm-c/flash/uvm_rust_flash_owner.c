// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: the tenants that use it (policy/tenants.rs).
 *
 * A tenant has a quota on the device, however many processes and descriptors it has. What is known
 * of it otherwise, and who is spilled, is Rust's (policy/flash/tier.rs).
 */
#include <linux/sched/mm.h>

#include "uvm_common.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_flash.h"

uint uvm_rust_flash_move_mib = 512;
module_param(uvm_rust_flash_move_mib, uint, 0644);
MODULE_PARM_DESC(uvm_rust_flash_move_mib,
		 "MiB a second that a tenant may write by UVM_RUST_FLASH_MOVE, which wears the device; 0 for any (default 512)");

/* --- life ------------------------------------------------------------------------------ */

struct uvm_rust_flash_owner *uvm_seam_flash_owner_new(struct mem_cgroup *memcg)
{
	struct uvm_rust_flash_owner *owner = kzalloc(sizeof(*owner), GFP_KERNEL_ACCOUNT);

	if (!owner)
		return NULL;
	mutex_init(&owner->moving);
	uvm_rust_flash_fetchers_init(owner);
	owner->memcg = memcg;
	owner->rust = uvm_rust_owner_create(uvm_rust_tier, owner);
	if (!owner->rust) {
		kfree(owner);
		return NULL;
	}
	return owner;
}

void uvm_seam_flash_owner_free(struct uvm_rust_flash_owner *owner)
{
	uvm_rust_flash_fetchers_exit(owner);
	uvm_rust_owner_destroy(owner->rust);
	kfree(owner);
}

NV_STATUS uvm_rust_flash_load(uvm_va_space_t *va_space)
{
	if (!static_branch_unlikely(&uvm_rust_flash_key))
		return NV_OK;
	va_space->uvm_rust_flash_tenant = uvm_rust_tenant_get();
	return va_space->uvm_rust_flash_tenant ? NV_OK : NV_ERR_NO_MEMORY;
}

/* Its blocks are gone. Also called when loading failed half-way. */
void uvm_rust_flash_unload(uvm_va_space_t *va_space)
{
	uvm_rust_tenant_put(va_space->uvm_rust_flash_tenant);
	va_space->uvm_rust_flash_tenant = NULL;
}

/* --- who pays for memory -------------------------------------------------------------------- */

/*
 * The state of va_blocks is charged to the memory cgroup of their tenant, also where a worker
 * makes it, or a GPU's fault. The device's table is not: extents and checksums stay when the
 * tenant is gone, and serve the next one; what a tenant can have of them, its quota says.
 */
struct mem_cgroup *uvm_rust_flash_charge(uvm_va_space_t *va_space)
{
	return set_active_memcg(uvm_rust_flash_owner_of(va_space)->memcg);
}

void uvm_rust_flash_uncharge(struct mem_cgroup *before)
{
	set_active_memcg(before);
}
