// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The SSD tier: which va_blocks have pages in host memory.
 *
 * With uvm_rust_flash=1 every managed va_block with host memory has a
 * struct uvm_rust_flash_block, made when pages first arrive there, which counts that
 * memory, and which dies with the block (the BLOCK_DESTROY event). Its state, which is
 * Rust's, is made by its first spill.
 */
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

struct uvm_rust_flash_tier uvm_rust_tier = {
	.lock = __SPIN_LOCK_UNLOCKED(uvm_rust_tier.lock),
	.owners = LIST_HEAD_INIT(uvm_rust_tier.owners),
	.all = LIST_HEAD_INIT(uvm_rust_tier.all),
	.copies = LIST_HEAD_INIT(uvm_rust_tier.copies),
};

/* --- host memory --------------------------------------------------------------------- */

static void count_host_pages(struct uvm_rust_flash_block *f, u32 pages)
{
	s64 now = atomic64_add_return((s64)pages - f->host_pages, &uvm_rust_tier.host_pages);
	s64 peak = atomic64_read(&uvm_rust_tier.host_peak);

	atomic64_add((s64)pages - f->host_pages, &f->owner->host_pages);
	f->host_pages = pages;
	while (now > peak && !atomic64_try_cmpxchg(&uvm_rust_tier.host_peak, &peak, now))
		;
}

static void enqueue(struct uvm_rust_flash_block *f)
{
	spin_lock(&uvm_rust_tier.lock);
	if (list_empty(&f->node)) {
		uvm_rust_tier.queue_length++;
		f->owner->queue_length++;
	}
	list_move_tail(&f->node, &f->owner->queue);
	spin_unlock(&uvm_rust_tier.lock);
}

void uvm_rust_flash_dequeue(struct uvm_rust_flash_block *f)
{
	spin_lock(&uvm_rust_tier.lock);
	if (!list_empty(&f->node)) {
		uvm_rust_tier.queue_length--;
		f->owner->queue_length--;
		/* It was not in vain that it was looked at: there is one less. */
		if (f->owner->vain)
			f->owner->vain--;
	}
	list_del_init(&f->node);
	spin_unlock(&uvm_rust_tier.lock);
}

static void unpublish(struct uvm_rust_flash_block *f)
{
	uvm_rust_flash_dequeue(f);
	spin_lock(&uvm_rust_tier.lock);
	list_del_init(&f->all);
	list_del_init(&f->copies);
	list_del_init(&f->asking);
	spin_unlock(&uvm_rust_tier.lock);
}

/*
 * Charged to the tenant as long as its memory cgroup has room, which is not waited for: a block
 * that is not known is neither counted nor spilled, and who could bring that about would be
 * beyond all limits.
 */
static struct uvm_rust_flash_block *new_block(uvm_va_space_t *va_space, uvm_va_block_t *block)
{
	struct mem_cgroup *before;
	struct uvm_rust_flash_block *f;

	before = uvm_rust_flash_charge(va_space);
	f = kzalloc(sizeof(*f), GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT);
	uvm_rust_flash_uncharge(before);
	if (!f)
		f = kzalloc(sizeof(*f), GFP_KERNEL);
	if (f) {
		f->owner = uvm_rust_flash_owner_of(va_space);
		INIT_LIST_HEAD(&f->node);
		INIT_LIST_HEAD(&f->all);
		INIT_LIST_HEAD(&f->copies);
		INIT_LIST_HEAD(&f->asking);
		f->block = block;
	}
	return f;
}

/* It belongs to its block now, whose lock the caller holds. */
static void publish(struct uvm_rust_flash_block *f)
{
	f->block->uvm_rust_flash = f;
	spin_lock(&uvm_rust_tier.lock);
	list_add_tail(&f->all, &uvm_rust_tier.all);
	spin_unlock(&uvm_rust_tier.lock);
}

void uvm_rust_flash_note(uvm_va_block_t *block, bool used)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	u32 pages;

	if (uvm_va_block_is_hmm(block))
		return;
	pages = uvm_page_mask_weight(&block->cpu.allocated);
	if (!f) {
		if (!pages)
			return;
		/* Without it the block is neither counted nor spilled. */
		f = new_block(uvm_va_block_get_va_space(block), block);
		if (!f)
			return;
		publish(f);
		used = true;
	}
	if (f->host_pages != pages)
		count_host_pages(f, pages);
	if (used && pages)
		enqueue(f);
	uvm_rust_flash_kick();
}

void uvm_rust_flash_drop_state(struct uvm_rust_flash_block *f)
{
	if (f->state)
		uvm_rust_flash_block_destroy(f->dev->table, f->state);
	if (f->dev)
		uvm_rust_flash_put(f->dev);
	f->state = NULL;
	f->dev = NULL;
}

void uvm_rust_flash_block_gone(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);

	if (!f)
		return;
	unpublish(f);
	count_host_pages(f, 0);
	uvm_rust_flash_drop_state(f);
	kfree(f);
	block->uvm_rust_flash = NULL;
}

/* --- what happens to a block ------------------------------------------------------------- */

void uvm_rust_flash_discarded(uvm_va_block_t *block, const struct uvm_rust_mask *pages)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);

	if (f && f->state)
		uvm_rust_flash_forget(f->dev->table, f->state, pages);
}

/*
 * Prepares the split of the block's state at page @at; @upper gets one for the rest. Caller holds its lock.
 * Upstream destroys a range whose split fails, with all that it holds, so that the memory for it is not
 * charged to a memory cgroup, whose limit would make it fail.
 */
static NV_STATUS cut_state(struct uvm_rust_flash_block *f, u32 at, struct uvm_rust_flash_block **upper)
{
	struct uvm_rust_flash_block *rest = new_block(uvm_va_block_get_va_space(f->block), NULL);

	if (rest)
		rest->state = uvm_rust_flash_block_create(0, false);
	if (!rest || !rest->state || !uvm_rust_flash_block_cut(f->dev->table, f->state, at)) {
		if (rest && rest->state)
			uvm_rust_flash_block_destroy(f->dev->table, rest->state);
		kfree(rest);
		return NV_ERR_NO_MEMORY;
	}
	kref_get(&f->dev->ref);
	rest->dev = f->dev;
	rest->tenant = f->tenant;
	*upper = rest;
	return NV_OK;
}

NV_STATUS uvm_rust_flash_before_split(uvm_va_block_t *block, u32 at, struct uvm_rust_flash_block **upper)
{
	struct uvm_rust_flash_dev *dev = NULL;
	struct uvm_rust_flash_block *f;
	NV_STATUS status;

	*upper = NULL;
	if (!static_branch_unlikely(&uvm_rust_flash_key))
		return NV_OK;
	do {
		status = NV_OK;
		uvm_mutex_lock(&block->lock);
		f = uvm_rust_flash_of(block);
		if (f && f->state) {
			/* The block's state keeps it: who drains a device needs the VA space's lock. */
			dev = f->dev;
			status = cut_state(f, at, upper);
		}
		uvm_mutex_unlock(&block->lock);
		/* Without memory for an extent, those that copies have will do. */
	} while (status != NV_OK && uvm_rust_flash_give_up_copies(dev, NULL));
	return status;
}

void uvm_rust_flash_after_split(uvm_va_block_t *block, uvm_va_block_t *upper_block, u32 at,
				struct uvm_rust_flash_block *upper)
{
	struct uvm_rust_flash_block *f;

	if (!static_branch_unlikely(&uvm_rust_flash_key))
		return;
	if (!upper_block) {
		if (upper) {
			uvm_rust_flash_drop_state(upper);
			kfree(upper);
		}
		return;
	}
	uvm_mutex_lock(&block->lock);
	f = uvm_rust_flash_of(block);
	if (upper)
		uvm_rust_flash_block_split(f->dev->table, f->state, at, upper->state);
	uvm_rust_flash_note(block, false);
	uvm_mutex_unlock(&block->lock);

	uvm_mutex_lock(&upper_block->lock);
	if (upper) {
		upper->block = upper_block;
		publish(upper);
		uvm_rust_flash_note_copies(upper_block);
	}
	uvm_rust_flash_note(upper_block, true);
	uvm_mutex_unlock(&upper_block->lock);
}

/* A spill of this block comes to nothing. Caller holds its lock. */
static void cancel_spill(uvm_va_block_t *block)
{
	struct uvm_rust_flash_block *f = uvm_rust_flash_of(block);
	uvm_page_mask_t all;

	if (!f || !f->state)
		return;
	uvm_page_mask_init_from_region(&all, uvm_va_block_region_from_block(block), NULL);
	uvm_rust_flash_touched(f->state, uvm_rust_mask(&all));
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
		uvm_rust_flash_ask(block, &pages);
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
	return uvm_rust_flash_fetch(block, context, &page, false);
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
