// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The SSD tier: what Rust, which decides (policy/flash/), asks of upstream and of the kernel, and where
 * upstream's functions lead to it.
 *
 * With uvm_rust_flash=1 something is known of every managed va_block with host memory
 * (struct uvm_rust_flash_block, which is Rust's). It is made when pages first arrive there,
 * counts that memory, and dies with the block (the BLOCK_DESTROY event).
 */
#include "uvm_rust_flash.h"
#include "uvm_api.h"
#include "uvm_global.h"
#include "uvm_perf_thrashing.h"
#include "uvm_rust_on_ranges.h"
#include "uvm_rust_on_hints.h"

DEFINE_STATIC_KEY_FALSE(uvm_rust_flash_key);
DEFINE_STATIC_KEY_FALSE(uvm_rust_flash_used_key);

/*
 * Attaching and detaching write it, outside all other locks but a tenant's turn, and only try the lock of a VA space. A move has
 * that of its VA space, and only tries to read this one.
 */
DECLARE_RWSEM(uvm_rust_flash_attach_lock);

void uvm_seam_flash_hook(bool used)
{
	static_branch_enable(used ? &uvm_rust_flash_used_key : &uvm_rust_flash_key);
}

/* --- va_blocks -------------------------------------------------------------------------- */

bool uvm_seam_va_block_hold(uvm_va_block_t *block)
{
	return atomic_inc_not_zero(&block->kref.refcount);
}

struct uvm_rust_flash_block **uvm_seam_flash_slot(uvm_va_block_t *block)
{
	return uvm_va_block_is_hmm(block) || uvm_va_block_is_dead(block) ? NULL : &block->uvm_rust_flash;
}

u32 uvm_seam_flash_host_pages(uvm_va_block_t *block)
{
	return uvm_page_mask_weight(&block->cpu.allocated);
}

void uvm_seam_va_block_put(uvm_va_block_t *block)
{
	uvm_va_block_release(block);
}

__u32 uvm_seam_block_wait(uvm_va_block_t *block, bool waits)
{
	return waits ? uvm_tracker_wait(&block->tracker) : uvm_tracker_is_completed(&block->tracker) ? NV_OK : NV_ERR_BUSY_RETRY;
}

void uvm_seam_block_pages(uvm_va_block_t *block, uvm_gpu_t *gpu, struct uvm_rust_pages *out)
{
	const uvm_page_mask_t *thrashing = uvm_perf_thrashing_get_thrashing_pages(block);
	uvm_gpu_id_t id;

	*out = (struct uvm_rust_pages){
		.allocated = *uvm_rust_mask(&block->cpu.allocated), .host = *uvm_rust_mask(&block->cpu.resident),
		.duplicated = *uvm_rust_mask(&block->read_duplicated_pages),
		.mapped = *uvm_rust_mask(&block->maybe_mapped_pages),
	};
	if (thrashing)
		out->thrashing = *uvm_rust_mask(thrashing);
	for_each_gpu_id_in_mask(id, &block->resident) {
		uvm_page_mask_t *to = (uvm_page_mask_t *)&out->reached;

		if (gpu && uvm_id_equal(id, gpu->id))
			to = (uvm_page_mask_t *)&out->there;
		else if (gpu && !uvm_processor_mask_test(
					&uvm_va_block_get_va_space(block)->can_copy_from[uvm_id_value(gpu->id)], id))
			to = (uvm_page_mask_t *)&out->staged;
		uvm_page_mask_or(to, to, uvm_rust_resident_mask(block, id));
	}
}

/* --- functions of upstream's that are replaced ---------------------------------------------- */

UVM_RUST_C_BODY(uvm_va_block_check_logical_permissions);
UVM_RUST_C_BODY(uvm_perf_prefetch_get_hint_va_block);
UVM_RUST_C_BODY(uvm_va_block_write_from_cpu);
UVM_RUST_C_BODY(uvm_va_block_read_to_cpu);

/* A GPU's access to a page that is lost is as fatal as one to a page that it may not access. */
NV_STATUS uvm_va_block_check_logical_permissions(uvm_va_block_t *block, uvm_va_block_context_t *context,
						 uvm_processor_id_t id, uvm_page_index_t index,
						 uvm_fault_access_type_t access UVM_RUST_MAY_MIGRATE(, bool may_migrate))
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key) &&
	    uvm_rust_flash_is_lost(block->uvm_rust_flash, index, UVM_ID_IS_GPU(id)))
		return NV_ERR_INVALID_OPERATION;
	return uvm_va_block_check_logical_permissions__c(block, context, id, index, access UVM_RUST_MAY_MIGRATE(, may_migrate));
}

void uvm_perf_prefetch_get_hint_va_block(uvm_va_block_t *block, uvm_va_block_context_t *context,
					 uvm_processor_id_t new_residency, const uvm_page_mask_t *faulted,
					 uvm_va_block_region_t faulted_region,
					 uvm_perf_prefetch_bitmap_tree_t *tree, uvm_perf_prefetch_hint_t *hint)
{
	uvm_perf_prefetch_get_hint_va_block__c(block, context, new_residency, faulted, faulted_region, tree, hint);
	if (static_branch_unlikely(&uvm_rust_flash_used_key) && UVM_ID_IS_VALID(hint->residency) &&
	    !uvm_rust_flash_along(block, UVM_ID_IS_GPU(new_residency) || current->flags & PF_KTHREAD,
				  uvm_rust_mask_out(&hint->prefetch_pages_mask)))
		hint->residency = UVM_ID_INVALID;
}

/* The debugger's way to memory, which maps nothing, and takes what is resident nowhere for zeros. */
static NV_STATUS debug(uvm_va_block_t *block, uvm_va_block_context_t *context, NvU64 address, bool to_write)
{
	if (!static_branch_unlikely(&uvm_rust_flash_used_key))
		return NV_OK;
	if (!to_write)
		uvm_rust_on_any_node(context);
	return uvm_rust_flash_debug(block, (struct uvm_seam_context *)context,
				    uvm_va_block_cpu_page_index(block, address), to_write);
}

NV_STATUS uvm_va_block_write_from_cpu(uvm_va_block_t *block, uvm_va_block_context_t *context, NvU64 dst,
				      uvm_mem_t *src, size_t size)
{
	NV_STATUS status = debug(block, context, dst, true);

	return status != NV_OK ? status : uvm_va_block_write_from_cpu__c(block, context, dst, src, size);
}

#include "uvm_rust_on_debugger.h"
