// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C seam of prefetching: the working memory of a worker's turn, and the operations that the
 * worker calls. Rust decides which operation comes when (policy/prefetch/worker.rs), and keeps the
 * state of a VA space (driver/prefetch.rs). docs/prefetch.md describes the whole.
 *
 * The worker takes these locks for a few va_blocks at a time: pm.lock in read mode, the VA space's
 * lock in read mode, and the lock of one va_block. It only tries to take pm.lock: so it neither
 * delays a suspend, nor waits behind one while the end of a VA space waits for the worker. It holds
 * no lock while it waits for the fault service, and does not wait for memory of the GPU at all.
 */
#include "uvm_rust_hooks.h"
#include "uvm_api.h"
#include "uvm_global.h"
#include "uvm_kvmalloc.h"
#include "uvm_va_range.h"
#include "uvm_range_group.h"
#include "uvm_perf_events.h"
#include "uvm_rust_on_links.h"

/*
 * The working memory of a worker's turn, of upstream's types, which upstream charges to nobody. Rust owns it from uvm_seam_prefetch_create()
 * to uvm_seam_prefetch_free(), says how many copies it is for, and gives it to one turn after the other, of whichever VA space.
 */
struct uvm_seam_prefetch {
	uvm_rust_move_context_t *context;
	uvm_va_block_retry_t retry;
	/* The work of each copy that is to be waited for, by the copy's number. */
	uvm_tracker_t copies[];
};

/* --- life ------------------------------------------------------------------------------- */

struct uvm_seam_prefetch *uvm_seam_prefetch_create(__u32 copies)
{
	struct uvm_seam_prefetch *call = uvm_kvmalloc_zero(struct_size(call, copies, copies));

	if (!call)
		return NULL;
	for (__u32 i = 0; i < copies; i++)
		uvm_tracker_init(&call->copies[i]);
	call->context = uvm_rust_move_context_alloc(NULL);
	if (call->context)
		return call;
	uvm_seam_prefetch_free(call, copies);
	return NULL;
}

void uvm_seam_prefetch_free(struct uvm_seam_prefetch *call, __u32 copies)
{
	/* Each turn has emptied the trackers before it ended. */
	while (copies--)
		uvm_tracker_deinit(&call->copies[copies]);
	if (call->context)
		uvm_rust_move_context_free(call->context);
	uvm_kvfree(call);
}

_Bool uvm_seam_gpu_numbers(uvm_gpu_t *gpu, __u32 *number, __u32 *parent)
{
	*number = uvm_id_gpu_index(gpu->id);
	*parent = uvm_parent_id_gpu_index(gpu->parent->id);
	return uvm_rust_gpu_can_fault(gpu);
}

void uvm_rust_on_range_destroy(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data)
{
	const uvm_va_range_t *range = data->range_destroy.range;

	if (range->type == UVM_VA_RANGE_TYPE_MANAGED)
		uvm_rust_space_forget(range->va_space->uvm_rust, range->node.start, range->node.end);
}

/* --- the worker's operations: uvm_rust_prefetch_ffi.h says what each is for ------------------ */

uvm_gpu_t *uvm_seam_prefetch_gpu(struct uvm_seam_space *space, __u32 gpu, _Bool ending)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)space;
	uvm_gpu_id_t id = uvm_gpu_id_from_index(gpu);

	return uvm_processor_mask_test(ending ? &va_space->registered_gpus : &va_space->registered_gpu_va_spaces, id) ?
		       uvm_rust_gpu(va_space, id) : NULL;
}

uvm_va_block_t *uvm_seam_prefetch_holds(uvm_gpu_t *gpu, __u32 index, __u64 *start)
{
	const uvm_gpu_chunk_t *chunk = &gpu->pmm.root_chunks.array[index].chunk;

	/* The lock keeps an allocated chunk's va_block alive. */
	if (chunk->state != UVM_PMM_GPU_CHUNK_STATE_ALLOCATED || !chunk->va_block)
		return NULL;
	*start = chunk->va_block->start;
	return chunk->va_block;
}

bool uvm_seam_prefetch_is_lite(uvm_va_range_t *range, uvm_gpu_t *gpu)
{
	return uvm_rust_is_lite(range, gpu);
}

/* As UVM_VA_BLOCK_LOCK_RETRY(), with what is between in Rust. */
struct uvm_rust_block **uvm_seam_prefetch_lock(struct uvm_seam_prefetch *call, uvm_va_block_t *block, struct mm_struct *mm)
{
	uvm_va_block_context_init(uvm_rust_move_block_context(call->context), mm);
	uvm_rust_forget_links(call->context);
	uvm_va_block_retry_init(&call->retry);
	uvm_mutex_lock(&block->lock);
	return &block->uvm_rust;
}

void uvm_seam_prefetch_unlock(struct uvm_seam_prefetch *call, uvm_va_block_t *block)
{
	uvm_mutex_unlock(&block->lock);
	uvm_va_block_retry_deinit(&call->retry, block);
}

__u32 uvm_seam_prefetch_migrate(struct uvm_seam_prefetch *call, uvm_va_block_t *block, uvm_gpu_t *gpu, bool map, __u32 copy,
				__u16 first, __u16 outer)
{
	uvm_migrate_mode_t mode = map ? UVM_MIGRATE_MODE_MAKE_RESIDENT_AND_MAP : UVM_MIGRATE_MODE_MAKE_RESIDENT;
	NV_STATUS status = uvm_va_block_migrate_locked(block, &call->retry, call->context, uvm_va_block_region(first, outer),
						       gpu ? gpu->id : UVM_ID_CPU, mode, &call->copies[copy]);

	/*
	 * The chunks that were allocated for this move are in use now. 570 and later free the chunks that are still
	 * set aside for a block if a later copy to the GPU fails. Where the move is to be tried again, those that it has
	 * filled by then stay all the same (uvm_rust_failed_copy.h).
	 */
	if (status == NV_OK) {
		uvm_va_block_retry_deinit(&call->retry, block);
		uvm_va_block_retry_init(&call->retry);
	}
	return status;
}

__u32 uvm_seam_prefetch_settle(struct uvm_seam_prefetch *call, __u32 copy, _Bool *under_way)
{
	NV_STATUS status;

	*under_way = !uvm_tracker_is_completed(&call->copies[copy]);
	status = uvm_tracker_wait(&call->copies[copy]);
	/* After a failed wait the tracker still names channels, which may be gone later. */
	uvm_tracker_clear(&call->copies[copy]);
	return status;
}
