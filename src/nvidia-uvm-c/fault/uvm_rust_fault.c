// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C side of the replayable-fault service loop in Rust: its statics are
 * reached by including upstream's file, which Kbuild then does not compile on
 * its own. What calls what, and under which lock, is in uvm_rust_fault_ffi.h.
 */
#include "uvm_gpu.h"
#include "uvm_gpu_replayable_faults.h"
#include "uvm_tools.h"

#include "uvm_rust_base_ffi.h"
#include "uvm_rust_compat.h"

/*
 * Each replay that belongs to a batch is announced to the tools exactly once, in
 * either loop: say so there. Upstream's own count needs debug procfs.
 */
#define uvm_tools_broadcast_replay(gpu, push, batch_id, client_type)			\
	do {										\
		uvm_rust_note_replay(uvm_id_gpu_index((gpu)->id));			\
		uvm_tools_broadcast_replay(gpu, push, batch_id, client_type);		\
	} while (0)

/*
 * Each fault that is serviced is told to whoever listens in its VA space: the tools,
 * and debug procfs. If nobody does, leave it at that. Who begins to listen in this
 * very moment has no claim to a fault that came before.
 */
#define uvm_perf_event_notify_gpu_fault(events, ...)					\
	do {										\
		if (unlikely(!list_empty_careful(&(events)->event_callbacks[UVM_PERF_EVENT_FAULT])))	\
			uvm_perf_event_notify_gpu_fault(events, __VA_ARGS__);		\
	} while (0)

#include "uvm_rust_fault_ffi.h"
#include "uvm_rust_migrate_lock.h"

/*
 * Upstream asks this of each fault whose access is allowed, and is done with one whose page is mapped for it, which it
 * counts as if there had been something to do. Say so once: not as the va_block is tried again, not of a duplicate,
 * which is counted, and not of a fatal fault. The names are the caller's, which is one.
 */
#define uvm_va_block_page_is_gpu_authorized(block, page, on, prot)						\
	(uvm_va_block_page_is_gpu_authorized(block, page, on, prot) &&						\
	 (block_context->num_retries || is_duplicate || current_entry->is_fatal || uvm_rust_note_mapped(		\
	 uvm_parent_id_gpu_index(gpu->parent->id), uvm_id_gpu_index(on), va_space->uvm_rust, batch_context->batch_id)))

#include "uvm_rust_hooks.h"
#include "uvm_rust_on_fault.h"
#include "uvm_rust_on_ats.h"
#include "uvm_rust_on_fault_buffer.h"

static uvm_rust_ring_t *ring_of(struct uvm_seam_fault *f)
{
	return &uvm_rust_fault_buffer(f->gpu->parent)->replayable;
}

/* --- life ------------------------------------------------------------------- */

NV_STATUS uvm_parent_gpu_fault_buffer_init(uvm_parent_gpu_t *parent_gpu)
{
	uvm_rust_ring_t *ring = &uvm_rust_fault_buffer(parent_gpu)->replayable;
	NV_STATUS status = uvm_parent_gpu_fault_buffer_init__c(parent_gpu);
	struct uvm_rust_fault_params params;

	if (status != NV_OK || !uvm_rust_fault)
		return status;
	params = (struct uvm_rust_fault_params) {
		.ring = ring->max_faults,
		.max_batch = uvm_rust_fault_buffer(parent_gpu)->max_batch_size,
		.utlbs = ring->utlb_count,
		.policy = ring->replay_policy,
		.update_put_percent = ring->replay_update_put_ratio,
		.max_batches = uvm_perf_fault_max_batches_per_service,
		.max_throttled = uvm_perf_fault_max_throttle_per_service,
		.has_prefetch_switch = uvm_rust_can_switch_prefetch(parent_gpu),
		.simulated = parent_gpu->rm_info.isSimulated,
		.coalesce = uvm_perf_fault_coalesce != 0,
		.cancels_by_address = uvm_rust_cancels_by_address(parent_gpu),
		.partitioned = parent_gpu->smc.enabled,
	};
	BUILD_BUG_ON(UVM_PARENT_ID_MAX_GPUS > UVM_RUST_MAX_GPUS);
	if (uvm_rust_fault_create(uvm_parent_id_gpu_index(parent_gpu->id), &params))
		return NV_OK;
	uvm_parent_gpu_fault_buffer_deinit__c(parent_gpu);
	return NV_ERR_NO_MEMORY;
}

void uvm_parent_gpu_fault_buffer_deinit(uvm_parent_gpu_t *parent_gpu)
{
	/* Also called for a GPU whose set-up failed. */
	uvm_rust_fault_destroy(uvm_parent_id_gpu_index(parent_gpu->id));
	uvm_parent_gpu_fault_buffer_deinit__c(parent_gpu);
}

static void service(uvm_gpu_t *gpu)
{
	uvm_rust_ring_t *ring = &uvm_rust_fault_buffer(gpu->parent)->replayable;
	uvm_fault_service_batch_context_t *batch = &ring->batch_service_context;
	struct uvm_seam_fault f = {
		.gpu = gpu, .batch = batch, .ring = ring->max_faults, .get = &ring->cached_get, .put = &ring->cached_put,
		.number = &batch->batch_id, .replays = &batch->num_replays, .duplicates = &batch->num_duplicate_faults,
		.invalid_prefetches = &batch->num_invalid_prefetch_faults, .throttled = &batch->has_throttled_faults,
		.fatal_space = &batch->fatal_va_space,
		.prefetches_are_on = &uvm_rust_fault_buffer(gpu->parent)->prefetch_faults_enabled,
	};

	uvm_rust_base_set_fatal_gpu(batch, gpu);
	uvm_tracker_init(&f.batch->tracker);
	uvm_rust_fault_service(uvm_parent_id_gpu_index(gpu->parent->id), uvm_id_gpu_index(gpu->id), &f);
	uvm_tracker_deinit(&f.batch->tracker);
}

void uvm_seam_fault_failed(struct uvm_seam_fault *f, __u32 status)
{
	pr_warn_ratelimited("nvidia-uvm: the service of faults on GPU %s failed: %s\n",
			    uvm_gpu_name(f->gpu), nvstatusToString(status));
}

/* --- the ring ---------------------------------------------------------------- */

void uvm_seam_fault_read_put(struct uvm_seam_fault *f)
{
	*f->put = f->gpu->parent->fault_buffer_hal->read_put(f->gpu->parent);
}

/* Fields of a fresh entry that upstream's code below the loop reads. */
static void entry_init(uvm_fault_buffer_entry_t *entry)
{
	entry->fault_address = UVM_PAGE_ALIGN_DOWN(entry->fault_address);
	entry->is_fatal = entry->fault_type >= UVM_FAULT_TYPE_FATAL;
	entry->fatal_reason = entry->is_fatal ? UvmEventFatalReasonInvalidFaultType : UvmEventFatalReasonInvalid;
	entry->va_space = NULL;
	entry->filtered = false;
	entry->replayable.cancel_va_mode = UVM_FAULT_CANCEL_VA_MODE_ALL;
}

/*
 * Equal for faults of the same channel and subcontext. Instance blocks are 4K
 * aligned. The hub reports subcontext 0 for all, so it must not look like a GPC.
 */
static __u64 who(const uvm_fault_buffer_entry_t *entry)
{
	BUILD_BUG_ON(UVM_APERTURE_MAX > 16);
	BUILD_BUG_ON(UVM_FAULT_CLIENT_TYPE_COUNT > 2);
	UVM_ASSERT(IS_ALIGNED(entry->instance_ptr.address, UVM_PAGE_SIZE_4K));

	return entry->instance_ptr.address |
	       (__u64)entry->instance_ptr.aperture << 8 |
	       (__u64)entry->fault_source.client_type << 63 |
	       entry->fault_source.ve_id;
}

__u32 uvm_seam_fault_fetch(struct uvm_seam_fault *f, __u32 at, __u32 n, __u32 entry,
			   struct uvm_rust_fault *out, __u32 *got)
{
	uvm_parent_gpu_t *parent_gpu = f->gpu->parent;
	const struct uvm_fault_buffer_hal_struct *hal = parent_gpu->fault_buffer_hal;
	NV_STATUS status = NV_OK;
	__u32 i;

	for (i = 0; i < n && hal->entry_is_valid(parent_gpu, at); i++) {
		uvm_fault_buffer_entry_t *e = &f->batch->fault_cache[entry + i];

		/* Nothing of the entry is read before its valid bit. */
		smp_mb__after_atomic();

		/* Clears the valid bit. */
		status = hal->parse_replayable_entry(parent_gpu, at, e);
		if (status != NV_OK)
			break;
		entry_init(e);

		UVM_ASSERT(e->fault_source.utlb_id < ring_of(f)->utlb_count);
		out[i] = (struct uvm_rust_fault) {
			.address = e->fault_address,
			.who = who(e),
			.entry = entry + i,
			.instances = 1,
			.utlb = e->fault_source.utlb_id,
			.access = e->fault_access_type,
			.accesses = uvm_fault_access_type_mask_bit(e->fault_access_type),
			.fatal = e->is_fatal,
		};
		at = at + 1 == f->ring ? 0 : at + 1;
	}
	*got = i;
	/* Once more, and reported then, if others came before. */
	return i ? NV_OK : status;
}

bool uvm_seam_fault_is_written(struct uvm_seam_fault *f, __u32 at)
{
	return f->gpu->parent->fault_buffer_hal->entry_is_valid(f->gpu->parent, at);
}

void uvm_seam_fault_set_get(struct uvm_seam_fault *f, __u32 get)
{
	write_get(f->gpu->parent, get);
}

/* --- a batch ------------------------------------------------------------------ */

__u32 uvm_seam_fault_translate(struct uvm_seam_fault *f, __u32 entry, __u64 *space)
{
	uvm_fault_buffer_entry_t *e = &f->batch->fault_cache[entry];
	NV_STATUS status = uvm_rust_base_to_va_space(f->gpu, e);

	*space = (uintptr_t)e->va_space;
	return status;
}

__u32 uvm_seam_fault_cancel_channel(struct uvm_seam_fault *f, __u32 entry, bool targeted)
{
	uvm_fault_buffer_entry_t *e = &f->batch->fault_cache[entry];

	/* There is no page directory to aim at: cancel all of the channel group's. */
	if (targeted)
		return push_cancel_on_gpu_targeted(f->gpu, e->instance_ptr, e->fault_source.gpc_id,
						   e->fault_source.client_id, &f->batch->tracker);
	return push_cancel_on_gpu_global(f->gpu, e->instance_ptr, &f->batch->tracker);
}

void uvm_seam_fault_publish(struct uvm_seam_fault *f, const struct uvm_rust_fault *records, __u32 n,
			    const __u32 *representatives, __u32 entries)
{
	uvm_fault_service_batch_context_t *batch = f->batch;
	uvm_fault_buffer_entry_t *cache = batch->fault_cache;

	for (__u32 i = 0; i < n; i++) {
		uvm_fault_buffer_entry_t *e = &cache[records[i].entry];

		e->va_space = (uvm_va_space_t *)(uintptr_t)records[i].who;
		uvm_rust_base_set_gpu(e, f->gpu);
		e->num_instances = records[i].instances;
		e->access_type_mask = records[i].accesses;
		INIT_LIST_HEAD(&e->merged_instances_list);
		batch->ordered_fault_cache[i] = e;
	}
	for (__u32 i = 0; n != entries && i < entries; i++) {
		if (representatives[i] == i)
			continue;
		cache[i].filtered = true;
		list_add(&cache[i].merged_instances_list, &cache[representatives[i]].merged_instances_list);
	}
	batch->num_cached_faults = entries;
	batch->num_coalesced_faults = n;
	ring_of(f)->ats_invalidate.tlb_batch_pending = false;
}

__u64 uvm_seam_fault_prefetch_off(struct uvm_seam_fault *f, __u32 *lapse_ms)
{
	*lapse_ms = uvm_perf_reenable_prefetch_faults_lapse_msec;
	return NV_GETTIME() - uvm_rust_fault_buffer(f->gpu->parent)->disable_prefetch_faults_timestamp;
}

void uvm_seam_fault_switch_prefetch(struct uvm_seam_fault *f, bool on)
{
	(on ? uvm_parent_gpu_enable_prefetch_faults : uvm_parent_gpu_disable_prefetch_faults)(f->gpu->parent);
}

/* --- a VA space ---------------------------------------------------------------- */

struct task_struct *uvm_seam_heeds_alarm(bool heeds)
{
	/* disallow_signal() also forgets an alarm that has come. */
	(heeds ? allow_kernel_signal : disallow_signal)(SIGKILL);
	return current;
}

void uvm_seam_fault_enter(struct uvm_seam_fault *f, struct uvm_seam_entered *in, bool to_cancel)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)in->space;

	/* Without an mm only managed memory can be serviced. */
	if (!to_cancel)
		uvm_va_block_context_init(uvm_rust_block_context(&ring_of(f)->block_service_context), in->mm);
	/* The end of the VA space clears this pointer, with the VA space's lock held for writing. */
	in->state = va_space->uvm_rust;
	/* Without partitions a parent has one GPU, and need not look for it among eight. */
	in->gpu_va_space = f->gpu->parent->smc.enabled ? uvm_rust_base_gpu_va_space_of_part(va_space, f->gpu) :
			   va_space->gpu_va_spaces[uvm_id_gpu_index(f->gpu->id)];
	in->gpu = in->gpu_va_space ? in->gpu_va_space->gpu : NULL;
}

__u32 uvm_seam_fault_service(struct uvm_seam_fault *f, const struct uvm_seam_entered *in, __u32 first, bool per_block,
			     bool in_place, __u32 *faults)
{
	return service_fault_batch_dispatch((uvm_va_space_t *)in->space, in->gpu_va_space, f->batch, first, faults, per_block,
					    !in_place);
}

void uvm_seam_fault_found_fatal(struct uvm_seam_fault *f, __u32 first)
{
	f->batch->utlbs[f->batch->ordered_fault_cache[first]->fault_source.utlb_id].has_fatal_faults = true;
}

__u32 uvm_seam_fault_invalidate(struct uvm_seam_fault *f, const struct uvm_seam_entered *in)
{
	uvm_ats_fault_invalidate_t *of = &ring_of(f)->ats_invalidate;

	/* As upstream's own function asks first, which is not in line. */
	return of->tlb_batch_pending ? uvm_ats_invalidate_tlbs(in->gpu_va_space, of, &f->batch->tracker) : NV_OK;
}

/* --- replays and cancels --------------------------------------------------------- */

__u32 uvm_seam_fault_replay(struct uvm_seam_fault *f)
{
	return push_replay_on_gpu(f->gpu, UVM_FAULT_REPLAY_TYPE_START, f->batch);
}

__u32 uvm_seam_fault_flush(struct uvm_seam_fault *f, __u32 how)
{
	BUILD_BUG_ON(UVM_GPU_BUFFER_FLUSH_MODE_CACHED_PUT != UVM_RUST_FLUSH_CACHED_PUT);
	BUILD_BUG_ON(UVM_GPU_BUFFER_FLUSH_MODE_UPDATE_PUT != UVM_RUST_FLUSH_UPDATE_PUT);
	BUILD_BUG_ON(UVM_GPU_BUFFER_FLUSH_MODE_WAIT_UPDATE_PUT != UVM_RUST_FLUSH_WAIT_UPDATE_PUT);
	return uvm_rust_base_flush(f->gpu, how, UVM_FAULT_REPLAY_TYPE_START, f->batch);
}

__u32 uvm_seam_fault_wait(struct uvm_seam_fault *f, bool for_replays)
{
	return uvm_tracker_wait(for_replays ? &ring_of(f)->replay_tracker : &f->batch->tracker);
}

/* Where GSP owns the ring, it must first copy into the one that we see. */
__u32 uvm_seam_fault_settle(struct uvm_seam_fault *f)
{
	return hw_fault_buffer_flush_locked(f->gpu->parent, HW_FAULT_BUFFER_FLUSH_MODE_MOVE);
}

bool uvm_seam_fault_is_fatal(struct uvm_seam_fault *f, __u32 at)
{
	return f->batch->ordered_fault_cache[at]->is_fatal;
}

__u32 uvm_seam_fault_cancel(struct uvm_seam_fault *f, __u32 at)
{
	uvm_fault_buffer_entry_t *e = f->batch->ordered_fault_cache[at];

	return uvm_rust_base_cancel_va(f->gpu, e, e->replayable.cancel_va_mode);
}

__u32 uvm_seam_fault_refuse(struct uvm_seam_fault *f, __u32 at, __u32 reason)
{
	uvm_fault_buffer_entry_t *e = f->batch->ordered_fault_cache[at];

	e->fatal_reason = uvm_tools_status_to_fatal_fault_reason(reason);
	return uvm_rust_base_cancel_va(f->gpu, e, UVM_FAULT_CANCEL_VA_MODE_ALL);
}

__u32 uvm_seam_fault_cancel_utlbs(struct uvm_seam_fault *f)
{
	/* Upstream counts, from entry to entry, up to which uTLB there may be notes of faults. Here any may have some. */
	f->batch->max_utlb_id = ring_of(f)->utlb_count - 1;
	return cancel_faults_precise_tlb(f->gpu, f->batch);
}

void uvm_seam_fault_refuse_utlbs(struct uvm_seam_fault *f, __u32 reason)
{
	uvm_rust_base_cancel_batch_tlb(f->gpu, f->batch, uvm_tools_status_to_fatal_fault_reason(reason));
}
