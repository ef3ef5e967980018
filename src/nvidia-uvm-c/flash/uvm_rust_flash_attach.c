// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier's calls: attaching and detaching a device, moving a range, statistics.
 */
#include <linux/capability.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_flash.h"

static bool uvm_rust_flash;
module_param(uvm_rust_flash, bool, 0444);
MODULE_PARM_DESC(uvm_rust_flash, "Offer an SSD tier behind host memory; a device is attached by ioctl (default 0)");

/* Written to by attaching and detaching; outside all other locks. */
static DECLARE_RWSEM(attach_lock);
/* The attached device, and one that was not let go, as something is still on it; under attach_lock. */
static struct uvm_seam_flash_dev *attached_dev, *leaving_dev;

struct uvm_rust_tier *uvm_rust_tier;

/* --- attaching ----------------------------------------------------------------------------------- */

static int attach_locked(const struct uvm_rust_flash_attach *attach, const char *path)
{
	struct uvm_seam_flash_dev *dev;
	u32 workers = 0;
	int ret;

	if (attached_dev || leaving_dev)
		return -EEXIST;
	dev = uvm_rust_flash_open(path, attach->flags & UVM_RUST_FLASH_FORCE,
				  !(attach->flags & UVM_RUST_FLASH_NO_CHECKSUMS), attach->quota_bytes);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	static_branch_enable(&uvm_rust_flash_used_key);
	ret = uvm_rust_flash_start_workers(dev, &workers);
	if (ret) {
		uvm_seam_flash_dev_put(dev);
		return ret;
	}
	attached_dev = dev;
	uvm_rust_tier_attach(uvm_rust_tier, dev, attach->host_bytes / PAGE_SIZE, workers);
	pr_info("nvidia-uvm: flash: attached %s\n", path);
	return 0;
}

int uvm_seam_flash_attach(const struct uvm_rust_flash_attach *attach)
{
	char *path;
	int ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	path = strndup_user((const char __user *)(uintptr_t)attach->path, PATH_MAX);
	if (IS_ERR(path))
		return PTR_ERR(path);
	down_write(&attach_lock);
	ret = attach_locked(attach, path);
	up_write(&attach_lock);
	kfree(path);
	return ret;
}

/* --- detaching ----------------------------------------------------------------------------------- */

__u32 uvm_seam_flash_fetch_back(struct uvm_seam_va_block *block, struct uvm_seam_context *of,
				const struct uvm_rust_mask *pages, bool *again)
{
	uvm_va_block_context_t *context = (uvm_va_block_context_t *)of;
	NV_STATUS status;

	uvm_rust_on_any_node(context);
	status = uvm_rust_flash_fetch((uvm_va_block_t *)block, context, (const uvm_page_mask_t *)pages, false);
	*again = status == NV_ERR_MORE_PROCESSING_REQUIRED;
	return *again ? NV_OK : status;
}

u32 uvm_seam_flash_progress(struct uvm_seam_flash_dev *dev)
{
	return atomic_read(&dev->progress);
}

void uvm_seam_flash_wait(struct uvm_seam_flash_dev *dev, u32 progress)
{
	wait_event_timeout(dev->wait, atomic_read(&dev->progress) != progress, HZ);
}

/* Nobody spills to the attached device any more. */
static void stop(void)
{
	leaving_dev = attached_dev;
	attached_dev = NULL;
	uvm_rust_tier_detach(uvm_rust_tier);
	uvm_rust_flash_stop_workers();
}

static int detach_locked(void)
{
	struct uvm_seam_flash_dev *dev;

	if (attached_dev)
		stop();
	dev = leaving_dev;
	if (!dev)
		return -ENODEV;
	/* Nobody has to wait for room any more. */
	wake_up_all(&dev->wait);
	switch (uvm_rust_flash_drain(uvm_rust_tier, dev, dev->table)) {
	case UVM_RUST_FLASH_DRAINED:
		break;
	case UVM_RUST_FLASH_INTERRUPTED:
		return -EINTR;
	default:
		return -EBUSY;
	}
	uvm_rust_flash_close(dev);
	leaving_dev = NULL;
	uvm_seam_flash_dev_put(dev);
	pr_info("nvidia-uvm: flash: detached\n");
	return 0;
}

int uvm_seam_flash_detach(void)
{
	int ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	down_write(&attach_lock);
	ret = detach_locked();
	up_write(&attach_lock);
	return ret;
}

/* --- moving a range --------------------------------------------------------------------------------- */

struct move_request {
	struct uvm_seam_flash_dev *dev;
	struct uvm_seam_flash_io *io;
	uvm_va_block_context_t *context;
	bool to_host;
};

static NV_STATUS move_block(struct move_request *request, uvm_va_block_t *block, NvU64 from, NvU64 to)
{
	uvm_page_mask_t pages;

	uvm_page_mask_init_from_region(&pages, uvm_va_block_region_from_start_end(block, from, to), NULL);
	if (request->to_host)
		return UVM_VA_BLOCK_LOCK_RETRY(block, NULL, uvm_rust_flash_fetch(block, request->context, &pages, false));
	uvm_rust_flash_move_block(request->dev, block, &pages, request->io);
	return NV_OK;
}

static NV_STATUS move_range(struct move_request *request, uvm_va_range_t *range, NvU64 start, NvU64 end)
{
	size_t last = uvm_va_range_block_index(range, end);
	NV_STATUS status = NV_OK;
	size_t i;

	for (i = uvm_va_range_block_index(range, start); i <= last && status == NV_OK; i++) {
		uvm_va_block_t *block = uvm_va_range_block(range, i);

		if (fatal_signal_pending(current))
			return NV_ERR_SIGNAL_PENDING;
		if (block)
			status = move_block(request, block, max(start, block->start), min(end, block->end));
		cond_resched();
	}
	return status;
}

static NV_STATUS move_locked(struct move_request *request, uvm_va_space_t *va_space, struct mm_struct *mm,
			     NvU64 base, NvU64 length)
{
	NvU64 end = base + length - 1;
	uvm_va_range_t *range;
	NV_STATUS status = NV_OK;

	if (uvm_api_range_type_check(va_space, mm, base, length) != UVM_API_RANGE_TYPE_MANAGED)
		return NV_ERR_INVALID_ADDRESS;
	request->context = uvm_va_block_context_alloc(mm);
	if (!request->context)
		return NV_ERR_NO_MEMORY;
	uvm_rust_on_any_node(request->context);
	uvm_for_each_va_range_in_contig(range, va_space, base, end) {
		status = move_range(request, range, max(base, range->node.start), min(end, range->node.end));
		if (status != NV_OK)
			break;
	}
	uvm_va_block_context_free(request->context);
	return status;
}

static int move_attached(struct uvm_seam_flash_dev *dev, uvm_va_space_t *va_space, struct uvm_seam_flash_io *io,
			 NvU64 base, NvU64 length, bool to_host)
{
	struct move_request request = { .dev = dev, .io = io, .to_host = to_host };
	struct mm_struct *mm;
	NV_STATUS status;

	if (io)
		io->wrote = 0;
	mm = uvm_va_space_mm_or_current_retain_lock(va_space);
	uvm_va_space_down_read(va_space);
	status = move_locked(&request, va_space, mm, base, length);
	uvm_va_space_up_read(va_space);
	uvm_va_space_mm_or_current_release_unlock(va_space, mm);
	if (io)
		uvm_rust_flash_wrote(uvm_rust_flash_owner_of(va_space), io->wrote);

	switch (status) {
	case NV_OK:
		return 0;
	case NV_ERR_INVALID_ADDRESS:
		return -ENXIO;
	case NV_ERR_NO_MEMORY:
		return -ENOMEM;
	case NV_ERR_SIGNAL_PENDING:
		return -EINTR;
	default:
		return -EIO;
	}
}

/* What a call moves before it lets go of its locks. */
#define MOVE_AT_ONCE	(16ull << 20)

/* The throttle counts with the device, which may be detached meanwhile. */
static int wait_to_write(uvm_va_space_t *va_space)
{
	struct uvm_seam_flash_dev *dev = uvm_rust_tier_device(uvm_rust_tier);
	int ret;

	if (!dev)
		return -ENODEV;
	ret = uvm_rust_flash_throttle(dev, uvm_rust_flash_owner_of(va_space));
	uvm_seam_flash_dev_put(dev);
	return ret;
}

/* Moves a part. @io: NULL for those to the host. */
static int move_part(uvm_va_space_t *va_space, struct uvm_seam_flash_io *io, NvU64 base, NvU64 length)
{
	int ret = -ENODEV;

	down_read(&attach_lock);
	if (attached_dev)
		ret = move_attached(attached_dev, va_space, io, base, length, !io);
	up_read(&attach_lock);
	return ret;
}

/* Writes a part when it may. Who waits has no memory of ours. */
static int write_part(uvm_va_space_t *va_space, NvU64 base, NvU64 length)
{
	struct uvm_rust_flash_owner *owner = uvm_rust_flash_owner_of(va_space);
	struct uvm_seam_flash_io *io;
	int ret;

	if (mutex_lock_interruptible(&owner->moving))
		return -EINTR;
	ret = wait_to_write(va_space);
	if (ret == 0) {
		io = uvm_rust_flash_io_alloc(true, GFP_KERNEL_ACCOUNT);
		ret = io ? move_part(va_space, io, base, length) : -ENOMEM;
		uvm_rust_flash_io_free(io);
	}
	mutex_unlock(&owner->moving);
	return ret;
}

int uvm_seam_flash_move(struct uvm_seam_space *space, __u64 base, __u64 length, bool to_host)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	int ret = 0;

	if (uvm_api_range_invalid(base, length))
		return -ENXIO;
	/* Some at a time: whoever has written much waits in between, with the ioctl's lock only. */
	while (length && ret == 0) {
		/* Up to the end of a va_block, which is written as a whole. */
		NvU64 some = min_t(NvU64, length, MOVE_AT_ONCE - base % FLASH_SLOT_SIZE);

		ret = to_host ? move_part(va_space, NULL, base, some) : write_part(va_space, base, some);
		base += some;
		length -= some;
		/* What was moved is not moved again when the caller asks once more. */
		if (ret == 0 && length && rwsem_is_contended(&g_uvm_global.pm.lock.sem))
			ret = -EAGAIN;
	}
	return ret;
}

/* --- statistics, and the module's life ----------------------------------------------------------------- */

void uvm_seam_flash_stats(struct uvm_seam_space *space, struct uvm_rust_flash_stats *stats)
{
	struct uvm_rust_flash_owner *owner;
	struct uvm_seam_flash_dev *dev;

	down_read(&attach_lock);
	dev = attached_dev ? attached_dev : leaving_dev;
	if (dev) {
		uvm_rust_flash_stats(dev->table, stats);
		stats->attached = attached_dev != NULL;
		owner = space ? uvm_rust_flash_owner_of((uvm_va_space_t *)space) : NULL;
		stats->pages_mine = owner ? uvm_rust_owner_held(owner->rust, dev->table) : 0;
		uvm_rust_tier_host(uvm_rust_tier, &stats->host_pages, &stats->host_peak);
	}
	up_read(&attach_lock);
}

bool uvm_seam_flash_enabled(void)
{
	return uvm_rust_tier;
}

void uvm_rust_flash_init(void)
{
	if (uvm_rust_flash)
		uvm_rust_tier = uvm_rust_tier_create();
	if (!uvm_rust_tier)
		return;
	if (uvm_rust_flash_park_init())
		pr_warn("nvidia-uvm: flash: no memory: GPU faults wait for the device by themselves\n");
	static_branch_enable(&uvm_rust_flash_key);
}

void uvm_rust_flash_exit(void)
{
	if (!uvm_rust_tier)
		return;
	if (attached_dev)
		stop();
	uvm_rust_flash_park_exit();
	if (leaving_dev)
		uvm_seam_flash_dev_put(leaving_dev);
	leaving_dev = NULL;
	uvm_rust_tier_destroy(uvm_rust_tier);
	uvm_rust_tier = NULL;
}
