// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: which va_blocks have pages in host memory.
 *
 * With uvm_rust_flash=1 something is known of every managed va_block with host memory
 * (struct uvm_rust_flash_block, which is Rust's). It is made when pages first arrive there,
 * counts that memory, and dies with the block (the BLOCK_DESTROY event).
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_gpu.h"
#include "uvm_perf_prefetch.h"
#include "uvm_va_block.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"

#include "uvm_rust_flash.h"

DEFINE_STATIC_KEY_FALSE(uvm_rust_flash_key);
DEFINE_STATIC_KEY_FALSE(uvm_rust_flash_used_key);

/* --- host memory --------------------------------------------------------------------- */

struct uvm_rust_flash_block *uvm_seam_flash_block_alloc(struct uvm_rust_flash_owner *owner, __u64 bytes)
{
	struct mem_cgroup *before = set_active_memcg(owner->memcg);
	struct uvm_rust_flash_block *f = kmalloc(bytes, GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT);

	set_active_memcg(before);
	return f ? f : kmalloc(bytes, GFP_KERNEL);
}

void uvm_seam_flash_block_free(struct uvm_rust_flash_block *f)
{
	kfree(f);
}

bool uvm_seam_va_block_hold(uvm_va_block_t *block)
{
	return atomic_inc_not_zero(&block->kref.refcount);
}

struct uvm_rust_flash_block **uvm_seam_flash_slot(uvm_va_block_t *block)
{
	return uvm_va_block_is_hmm(block) ? NULL : &block->uvm_rust_flash;
}

u32 uvm_seam_flash_host_pages(uvm_va_block_t *block)
{
	return uvm_page_mask_weight(&block->cpu.allocated);
}

struct uvm_rust_owner *uvm_seam_flash_owner(uvm_va_block_t *block)
{
	return uvm_rust_flash_owner_of(uvm_va_block_get_va_space(block))->rust;
}

/* --- what happens to a block ------------------------------------------------------------- */

void uvm_rust_flash_discarded(uvm_va_block_t *block, const struct uvm_rust_mask *pages)
{
	uvm_rust_flash_forget(uvm_rust_flash_of(block), pages);
}

/* A spill of this block comes to nothing. Caller holds its lock. */
static void cancel_spill(uvm_va_block_t *block)
{
	uvm_page_mask_t all;

	if (!uvm_rust_flash_block_is_used(uvm_rust_flash_of(block)))
		return;
	uvm_page_mask_init_from_region(&all, uvm_va_block_region_from_block(block), NULL);
	uvm_rust_flash_touched(uvm_rust_flash_of(block), uvm_rust_mask(&all));
}

static void cancel_range(uvm_va_range_t *range)
{
	uvm_va_block_t *block;

	if (!static_branch_unlikely(&uvm_rust_flash_used_key))
		return;
	for_each_va_block_in_va_range(range, block) {
		uvm_mutex_lock(&block->lock);
		cancel_spill(block);
		uvm_mutex_unlock(&block->lock);
	}
}

/* --- functions of upstream's that are replaced ---------------------------------------------- */

UVM_RUST_C_BODY(uvm_va_range_set_accessed_by);
UVM_RUST_C_BODY(uvm_va_range_unset_accessed_by);
UVM_RUST_C_BODY(uvm_va_block_remove_gpu_va_space);
UVM_RUST_C_BODY(uvm_va_block_check_logical_permissions);
UVM_RUST_C_BODY(uvm_perf_prefetch_get_hint_va_block);
UVM_RUST_C_BODY(uvm_va_block_write_from_cpu);
UVM_RUST_C_BODY(uvm_va_block_read_to_cpu);

NV_STATUS uvm_va_range_set_accessed_by(uvm_va_range_t *range, uvm_processor_id_t id, struct mm_struct *mm,
				       uvm_tracker_t *tracker)
{
	NV_STATUS status = uvm_va_range_set_accessed_by__c(range, id, mm, tracker);

	cancel_range(range);
	return status;
}

void uvm_va_range_unset_accessed_by(uvm_va_range_t *range, uvm_processor_id_t id, uvm_tracker_t *tracker)
{
	cancel_range(range);
	uvm_va_range_unset_accessed_by__c(range, id, tracker);
}

void uvm_va_block_remove_gpu_va_space(uvm_va_block_t *block, uvm_gpu_va_space_t *gpu_va_space,
				      uvm_va_block_context_t *context)
{
	cancel_spill(block);
	uvm_va_block_remove_gpu_va_space__c(block, gpu_va_space, context);
}

noinline bool uvm_rust_flash_has(uvm_va_block_t *block, u32 set, uvm_page_index_t index)
{
	uvm_page_mask_t pages;

	return uvm_rust_flash_set(block, set, &pages) && uvm_page_mask_test(&pages, index);
}

/* A GPU's access to a page that is lost is as fatal as one to a page that it may not access. */
NV_STATUS uvm_va_block_check_logical_permissions(uvm_va_block_t *block, uvm_va_block_context_t *context,
						 uvm_processor_id_t id, uvm_page_index_t index,
						 uvm_fault_access_type_t access, bool allow_migration)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key) && uvm_rust_flash_has(block, UVM_RUST_FLASH_LOST, index))
		return NV_ERR_INVALID_OPERATION;
	return uvm_va_block_check_logical_permissions__c(block, context, id, index, access, allow_migration);
}

/* Takes @pages out of what is brought along with others. */
static void leave_out(uvm_perf_prefetch_hint_t *hint, const uvm_page_mask_t *pages)
{
	if (!uvm_page_mask_andnot(&hint->prefetch_pages_mask, &hint->prefetch_pages_mask, pages))
		hint->residency = UVM_ID_INVALID;
}

/*
 * Pages that are lost are not brought along with others. Nor are those on flash brought along
 * to a GPU: the faults of all processes would wait for the read. It is begun, and the next
 * fault nearby brings them.
 */
static noinline void choose_along(uvm_va_block_t *block, uvm_processor_id_t to, uvm_perf_prefetch_hint_t *hint)
{
	uvm_page_mask_t pages;

	if (UVM_ID_IS_INVALID(hint->residency))
		return;
	if (uvm_rust_flash_set(block, UVM_RUST_FLASH_LOST, &pages))
		leave_out(hint, &pages);
	if (UVM_ID_IS_CPU(to) || !uvm_rust_flash_parks())
		return;
	if (uvm_rust_flash_set(block, UVM_RUST_FLASH_IN_FLIGHT, &pages))
		leave_out(hint, &pages);
	if (uvm_rust_flash_set(block, UVM_RUST_FLASH_ON_FLASH, &pages) &&
	    uvm_page_mask_and(&pages, &pages, &hint->prefetch_pages_mask)) {
		uvm_rust_flash_block_ask(uvm_rust_flash_of(block), uvm_rust_mask(&pages));
		leave_out(hint, &pages);
	}
}

void uvm_perf_prefetch_get_hint_va_block(uvm_va_block_t *block, uvm_va_block_context_t *context,
					 uvm_processor_id_t new_residency, const uvm_page_mask_t *faulted,
					 uvm_va_block_region_t faulted_region,
					 uvm_perf_prefetch_bitmap_tree_t *tree, uvm_perf_prefetch_hint_t *hint)
{
	uvm_perf_prefetch_get_hint_va_block__c(block, context, new_residency, faulted, faulted_region, tree, hint);
	if (static_branch_unlikely(&uvm_rust_flash_used_key))
		choose_along(block, new_residency, hint);
}

/* The debugger's way to write to memory, which maps nothing. */
NV_STATUS uvm_va_block_write_from_cpu(uvm_va_block_t *block, uvm_va_block_context_t *context, NvU64 dst,
				      uvm_mem_t *src, size_t size)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key)) {
		uvm_page_mask_t page;

		uvm_page_mask_zero(&page);
		uvm_page_mask_set(&page, uvm_va_block_cpu_page_index(block, dst));
		uvm_rust_flash_may_be_written(block, &page);
	}
	return uvm_va_block_write_from_cpu__c(block, context, dst, src, size);
}

static NV_STATUS fetch_to_read(uvm_va_block_t *block, uvm_va_block_context_t *context, NvU64 src)
{
	uvm_page_mask_t page;

	uvm_rust_on_any_node(context);
	uvm_page_mask_zero(&page);
	uvm_page_mask_set(&page, uvm_va_block_cpu_page_index(block, src));
	return uvm_rust_flash_fetch(block, (struct uvm_seam_context *)context, uvm_rust_mask(&page), false);
}

/* The debugger's way to read memory, which takes what is resident nowhere for zeros. */
#if UVM_RUST_UPSTREAM < 550
NV_STATUS uvm_va_block_read_to_cpu(uvm_va_block_t *block, uvm_mem_t *dst, NvU64 src, size_t size)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key) && !uvm_va_block_is_hmm(block)) {
		uvm_va_block_context_t *context = uvm_va_block_context_alloc(NULL);
		NV_STATUS status;

		if (!context)
			return NV_ERR_NO_MEMORY;
		status = fetch_to_read(block, context, src);
		uvm_va_block_context_free(context);
		if (status != NV_OK)
			return status;
	}
	return uvm_va_block_read_to_cpu__c(block, dst, src, size);
}
#else
NV_STATUS uvm_va_block_read_to_cpu(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_mem_t *dst,
				   NvU64 src, size_t size)
{
	if (static_branch_unlikely(&uvm_rust_flash_used_key) && !uvm_va_block_is_hmm(block)) {
		NV_STATUS status = fetch_to_read(block, context, src);

		if (status != NV_OK)
			return status;
	}
	return uvm_va_block_read_to_cpu__c(block, context, dst, src, size);
}
#endif
