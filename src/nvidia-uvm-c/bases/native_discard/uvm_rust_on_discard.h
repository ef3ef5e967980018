/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Upstream's own discard, which answers UVM_DISCARD with uvm_rust_discard=0: then UVM_RUST_DISCARD_BATCH calls
 * what stands behind it, range by range (ffi/native.rs). While ours is on, it answers UVM_DISCARD before upstream
 * does (driver/ioctl.rs), and upstream takes no page for a discarded one.
 */
#include "uvm_va_range.h"

__u32 uvm_seam_native_discard(struct uvm_seam_space *space, struct uvm_seam_context *context, __u64 at, bool eager,
			      __u64 *last)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	uvm_va_range_t *range = uvm_va_space_iter_first(va_space, at, at);

	if (!range || range->type != UVM_VA_RANGE_TYPE_MANAGED)
		return NV_ERR_INVALID_ADDRESS;
	BUILD_BUG_ON(UVM_DISCARD_FLAGS_UNMAP != 1);
	*last = min(*last, range->node.end);
	/* Where CPU and GPU share their memory upstream does nothing, and says NV_OK. */
	if (uvm_va_space_has_integrated_gpu(va_space))
		return NV_WARN_NOTHING_TO_DO;
	return uvm_va_range_discard(uvm_va_range_to_managed(range), (uvm_va_block_context_t *)context, at, *last,
				    eager ? UVM_DISCARD_FLAGS_UNMAP : 0);
}
