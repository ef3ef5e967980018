// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: the tenants that use it (policy/tenants.rs).
 *
 * A tenant has a quota on the device, however many processes and descriptors it has. When host
 * memory is short, the tenant that has most of it is spilled, so that none that has less than its
 * equal share is spilled for another's sake, or waits for room.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/rwsem.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_flash.h"

static uint uvm_rust_flash_move_mib = 512;
module_param(uvm_rust_flash_move_mib, uint, 0644);
MODULE_PARM_DESC(uvm_rust_flash_move_mib,
		 "MiB a second that a tenant may write by UVM_RUST_FLASH_MOVE, which wears the device; 0 for any (default 512)");

/* --- life ------------------------------------------------------------------------------ */

struct uvm_rust_flash_owner *uvm_seam_flash_owner_new(struct mem_cgroup *memcg)
{
	static u64 last_key;
	struct uvm_rust_flash_owner *owner = kzalloc(sizeof(*owner), GFP_KERNEL_ACCOUNT);

	if (!owner)
		return NULL;
	INIT_LIST_HEAD(&owner->queue);
	mutex_init(&owner->moving);
	uvm_rust_flash_fetchers_init(owner);
	owner->memcg = memcg;
	spin_lock(&uvm_rust_tier.lock);
	owner->key = ++last_key;
	list_add_tail(&owner->node, &uvm_rust_tier.owners);
	spin_unlock(&uvm_rust_tier.lock);
	return owner;
}

void uvm_seam_flash_owner_free(struct uvm_rust_flash_owner *owner)
{
	spin_lock(&uvm_rust_tier.lock);
	list_del(&owner->node);
	spin_unlock(&uvm_rust_tier.lock);
	uvm_rust_flash_fetchers_exit(owner);
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

/* --- whose turn it is -------------------------------------------------------------------- */

u64 uvm_rust_flash_mine(struct uvm_rust_flash_owner *owner, u64 *owners)
{
	struct uvm_rust_flash_owner *other;

	*owners = 0;
	list_for_each_entry(other, &uvm_rust_tier.owners, node)
		*owners += other == owner || atomic64_read(&other->host_pages) > 0;
	return max_t(s64, atomic64_read(&owner->host_pages), 0);
}

struct uvm_rust_flash_owner *uvm_rust_flash_next_owner(void)
{
	struct uvm_rust_flash_owner *owner, *most = NULL;
	u64 mine, owners;

	list_for_each_entry(owner, &uvm_rust_tier.owners, node) {
		/* All of its blocks were looked at, and none could go: others have to. */
		if (owner->vain > owner->queue_length || list_empty(&owner->queue))
			continue;
		if (!most || atomic64_read(&owner->host_pages) > atomic64_read(&most->host_pages))
			most = owner;
	}
	if (!most || !uvm_rust_tier.dev)
		return NULL;
	mine = uvm_rust_flash_mine(most, &owners);
	return uvm_rust_pressure_may_spill(uvm_rust_tier.dev->pressure, mine, owners) ? most : NULL;
}

void uvm_rust_flash_hope(struct uvm_rust_flash_owner *owner)
{
	struct uvm_rust_flash_owner *each;

	spin_lock(&uvm_rust_tier.lock);
	list_for_each_entry(each, &uvm_rust_tier.owners, node) {
		if (!owner || owner == each)
			each->vain = 0;
	}
	spin_unlock(&uvm_rust_tier.lock);
}

/* --- wear ------------------------------------------------------------------------------- */

int uvm_rust_flash_throttle(struct uvm_rust_flash_dev *dev, struct uvm_rust_flash_owner *owner)
{
	bool waited = false;

	while (READ_ONCE(uvm_rust_flash_move_mib)) {
		u64 paid;

		spin_lock(&uvm_rust_tier.lock);
		paid = owner->paid;
		spin_unlock(&uvm_rust_tier.lock);
		if (uvm_rust_pace_may_write(paid, ktime_get_ns()))
			break;
		/* Who suspends waits for this call, and meanwhile all others are refused. */
		if (rwsem_is_contended(&g_uvm_global.pm.lock.sem))
			return -EAGAIN;
		if (!waited)
			atomic64_inc(&dev->throttled);
		waited = true;
		/* In short sleeps: the parameter may change, and the process be killed. */
		if (msleep_interruptible(10) && signal_pending(current))
			return -EINTR;
	}
	return 0;
}

void uvm_rust_flash_wrote(struct uvm_rust_flash_owner *owner, u64 bytes)
{
	spin_lock(&uvm_rust_tier.lock);
	owner->paid = uvm_rust_pace_paid(owner->paid, ktime_get_ns(), bytes, READ_ONCE(uvm_rust_flash_move_mib));
	spin_unlock(&uvm_rust_tier.lock);
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
