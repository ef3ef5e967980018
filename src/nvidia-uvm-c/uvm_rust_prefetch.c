// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The C seam of prefetching: announcements, the worker of each VA space, and what it
 * does to va_blocks. docs/prefetch.md has the whole.
 *
 * Locks of the worker, for one va_block at a time: pm.lock in read mode (tried only, so
 * that it neither delays a suspend nor waits behind one while a VA space's end waits for
 * it), the VA space's lock in read mode, the va_block's. It holds none while it learns,
 * or waits for the fault service.
 */
#include <linux/memcontrol.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_va_space.h"
#include "uvm_va_range.h"
#include "uvm_va_block.h"
#include "uvm_range_group.h"
#include "uvm_pmm_gpu.h"
#include "uvm_perf_events.h"
#include "uvm_perf_thrashing.h"

#include "uvm_rust_hooks.h"
#include "uvm_rust_tenant.h"

static bool uvm_rust_announce = true;
module_param(uvm_rust_announce, bool, 0444);
MODULE_PARM_DESC(uvm_rust_announce, "Take announcements of kernels, and learn from them (default 1)");

static bool uvm_rust_prefetch;
module_param(uvm_rust_prefetch, bool, 0444);
MODULE_PARM_DESC(uvm_rust_prefetch, "Prefetch what announced kernels are expected to access (default 0)");

static uint uvm_rust_preevict;
module_param(uvm_rust_preevict, uint, 0444);
MODULE_PARM_DESC(uvm_rust_preevict, "With uvm_rust_prefetch: keep so many 2 MiB chunks of a GPU ready by moving what is not expected to the host; 0: none (default 0)");

static uint uvm_rust_prefetch_ahead = 32;
module_param(uvm_rust_prefetch_ahead, uint, 0444);
MODULE_PARM_DESC(uvm_rust_prefetch_ahead, "Kernels to look ahead, 0 to 4096 (default 32)");

static uint uvm_rust_prefetch_rows = 2048;
module_param(uvm_rust_prefetch_rows, uint, 0444);
MODULE_PARM_DESC(uvm_rust_prefetch_rows, "Rows of a kernel's block table, 1 to 65536 (default 2048)");

static uint uvm_rust_prefetch_assoc = 2;
module_param(uvm_rust_prefetch_assoc, uint, 0444);
MODULE_PARM_DESC(uvm_rust_prefetch_assoc, "Blocks in a row, 1 to 16 (default 2)");

static uint uvm_rust_prefetch_succs = 4;
module_param(uvm_rust_prefetch_succs, uint, 0444);
MODULE_PARM_DESC(uvm_rust_prefetch_succs, "Successors of a block, 1 to 16 (default 4)");

static uint uvm_rust_prefetch_memory = 64;
module_param(uvm_rust_prefetch_memory, uint, 0444);
MODULE_PARM_DESC(uvm_rust_prefetch_memory, "MiB that the tables of a user in a memory cgroup may take for each GPU, in all VA spaces (default 64)");

/* One for all VA spaces; an item of it runs on one CPU at a time. */
static struct workqueue_struct *prefetch_wq;

/*
 * A GPU that a VA space announces kernels on. An entry is filled before it is counted, and
 * stays until the VA space is gone, whether or not the GPU is registered.
 */
struct gpu_prefetch {
	uvm_gpu_id_t id;
	void *rust;
	/* Of the parent GPU: which fault service goes first. */
	uvm_parent_gpu_id_t parent;
	/* Of the GPU's queues of that generation, 0 for none. Changed by the worker only, then by unload. */
	__u32 owner;
	__u32 generation;
	/* From uvm_rust_prefetch_stop() on: the GPU, if it was registered then, and so is there. */
	uvm_gpu_t *last;
};

/*
 * What uvm_va_space_t.uvm_rust_prefetch points to, from the first announcement on. Set
 * once, by cmpxchg, and freed under the VA space's lock in write mode.
 */
struct space_prefetch {
	uvm_va_space_t *va_space;
	/*
	 * Of the first announcement. What the worker, a kernel thread, allocates is charged to
	 * its memory cgroup.
	 */
	struct uvm_rust_tenant *tenant;
	struct work_struct work;
	bool stopping;
	/* Serialises announcements and protects the growth of @count. */
	struct mutex announcing;
	__u32 count;
	struct gpu_prefetch gpus[UVM_ID_MAX_GPUS];

	/* The worker's. */
	uvm_rust_move_context_t *context;
	uvm_page_mask_t pages;
};

/* A turn of the worker, for one GPU. */
struct uvm_seam_prefetch {
	struct space_prefetch *space;
	struct gpu_prefetch *entry;
};

bool uvm_seam_announce_enabled(void)
{
	return uvm_rust_announce;
}

static struct space_prefetch *prefetch_of(uvm_va_space_t *va_space)
{
	/* Pairs with the release in get_or_create(). */
	return smp_load_acquire((struct space_prefetch **)&va_space->uvm_rust_prefetch);
}

static struct gpu_prefetch *entry_of(struct space_prefetch *space, uvm_gpu_id_t id)
{
	/* Pairs with the release in announce_locked(). */
	__u32 i, count = smp_load_acquire(&space->count);

	for (i = 0; i < count; i++) {
		if (uvm_id_equal(space->gpus[i].id, id))
			return &space->gpus[i];
	}
	return NULL;
}

/* --- announcements -------------------------------------------------------------- */

static void work_entry(struct work_struct *work);

static void space_free(struct space_prefetch *space)
{
	uvm_rust_tenant_put(space->tenant);
	if (space->context)
		uvm_rust_move_context_free(space->context);
	uvm_kvfree(space);
}

static struct space_prefetch *space_create(uvm_va_space_t *va_space)
{
	struct space_prefetch *space = uvm_kvmalloc_zero(sizeof(*space));

	if (!space)
		return NULL;
	space->context = uvm_rust_move_context_alloc(NULL);
	space->tenant = uvm_rust_tenant_get(false);
	if (!space->context || !space->tenant) {
		space_free(space);
		return NULL;
	}
	space->va_space = va_space;
	mutex_init(&space->announcing);
	INIT_WORK(&space->work, work_entry);
	return space;
}

static struct space_prefetch *get_or_create(uvm_va_space_t *va_space)
{
	struct space_prefetch *space = prefetch_of(va_space), *created;

	if (space)
		return space;
	/* No lock of all processes is held where one's memory limit may be met. */
	created = space_create(va_space);
	if (!created)
		return NULL;
	space = cmpxchg((struct space_prefetch **)&va_space->uvm_rust_prefetch, NULL, created);
	if (space) {
		/* Another thread of the process was first. */
		space_free(created);
		return space;
	}
	return created;
}

static NV_STATUS announce_locked(struct space_prefetch *space, const uvm_gpu_t *gpu, __u64 exec_id)
{
	struct gpu_prefetch *entry = entry_of(space, gpu->id);

	if (!entry) {
		const struct uvm_rust_prefetch_params params = {
			.seed = get_random_u64(),
			.ahead = uvm_rust_prefetch_ahead,
			.rows = uvm_rust_prefetch_rows,
			.assoc = uvm_rust_prefetch_assoc,
			.succs = uvm_rust_prefetch_succs,
			.act = uvm_rust_prefetch,
			.push_out = uvm_rust_preevict != 0,
		};

		void *share = uvm_rust_tenant_share(space->tenant, gpu->id, (__u64)uvm_rust_prefetch_memory << 20);

		if (!share)
			return NV_ERR_NO_MEMORY;
		entry = &space->gpus[space->count];
		entry->id = gpu->id;
		entry->parent = gpu->parent->id;
		entry->rust = uvm_rust_prefetch_create(&params, share);
		if (!entry->rust)
			return NV_ERR_NO_MEMORY;
		smp_store_release(&space->count, space->count + 1);
	}
	uvm_rust_prefetch_announce(entry->rust, exec_id);
	return NV_OK;
}

__u32 uvm_seam_announce(struct uvm_seam_space *seam_space, const __u8 *uuid, __u64 exec_id)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)seam_space;
	struct space_prefetch *space;
	NV_STATUS status = NV_OK;
	uvm_gpu_t *gpu;

	uvm_va_space_down_read(va_space);
	gpu = uvm_va_space_get_gpu_by_uuid(va_space, (const NvProcessorUuid *)uuid);
	if (!gpu) {
		status = NV_ERR_INVALID_DEVICE;
		goto out;
	}
	if (!gpu->parent->replayable_faults_supported) {
		status = NV_ERR_NOT_SUPPORTED;
		goto out;
	}
	space = get_or_create(va_space);
	if (!space) {
		status = NV_ERR_NO_MEMORY;
		goto out;
	}
	mutex_lock(&space->announcing);
	status = announce_locked(space, gpu, exec_id);
	mutex_unlock(&space->announcing);
	queue_work(prefetch_wq, &space->work);
out:
	uvm_va_space_up_read(va_space);
	return status;
}

void *uvm_seam_prefetch_of(struct uvm_seam_space *seam_space, const __u8 *uuid)
{
	uvm_va_space_t *va_space = (uvm_va_space_t *)seam_space;
	uvm_gpu_t *gpu = uvm_va_space_get_gpu_by_uuid(va_space, (const NvProcessorUuid *)uuid);
	struct space_prefetch *space = prefetch_of(va_space);
	struct gpu_prefetch *entry = gpu && space ? entry_of(space, gpu->id) : NULL;

	return entry ? entry->rust : NULL;
}

void uvm_rust_prefetch_note_fault(uvm_va_space_t *va_space, uvm_gpu_id_t gpu_id, NvU64 address)
{
	struct space_prefetch *space = prefetch_of(va_space);
	struct gpu_prefetch *entry = space ? entry_of(space, gpu_id) : NULL;

	if (entry && uvm_rust_prefetch_fault(entry->rust, address))
		queue_work(prefetch_wq, &space->work);
}

/* --- the worker ------------------------------------------------------------------ */

static void work(struct space_prefetch *space)
{
	__u32 i, count = smp_load_acquire(&space->count);
	bool more = false;

	for (i = 0; i < count; i++) {
		struct uvm_seam_prefetch call = { .space = space, .entry = &space->gpus[i] };

		more |= uvm_rust_prefetch_work(call.entry->rust, &call);
	}
	/* In turns, so that no VA space keeps a thread for itself. */
	if (more)
		queue_work(prefetch_wq, &space->work);
}

static void work_entry(struct work_struct *item)
{
	struct space_prefetch *space = container_of(item, struct space_prefetch, work);
	struct mem_cgroup *before = set_active_memcg(space->tenant->memcg);

	UVM_ENTRY_VOID(work(space));
	set_active_memcg(before);
}

/* The GPU, if it can use this VA space now. Caller holds the VA space's lock. */
static uvm_gpu_t *usable_gpu(struct uvm_seam_prefetch *call)
{
	uvm_va_space_t *va_space = call->space->va_space;

	if (!uvm_processor_mask_test(&va_space->registered_gpu_va_spaces, call->entry->id))
		return NULL;
	return uvm_va_space_get_gpu(va_space, call->entry->id);
}

/* Takes the locks under which a va_block may be moved; false if it is not the time. */
static bool enter(struct uvm_seam_prefetch *call)
{
	struct space_prefetch *space = call->space;

	if (READ_ONCE(space->stopping) || !uvm_down_read_trylock(&g_uvm_global.pm.lock))
		return false;
	uvm_va_space_down_read(space->va_space);
	if (uvm_global_get_status() == NV_OK && usable_gpu(call))
		return true;
	uvm_va_space_up_read(space->va_space);
	uvm_up_read(&g_uvm_global.pm.lock);
	return false;
}

static void leave(struct uvm_seam_prefetch *call)
{
	uvm_va_space_up_read(call->space->va_space);
	uvm_up_read(&g_uvm_global.pm.lock);
}

/* --- expectations ------------------------------------------------------------------ */

/* The GPU's queues are those that gave @entry its number. Caller holds the PMM's list lock. */
static bool is_owner(const struct gpu_prefetch *entry, uvm_gpu_t *gpu)
{
	return entry->owner && entry->generation == uvm_rust_pmm_queues_generation(&gpu->pmm);
}

void uvm_seam_prefetch_now(struct uvm_seam_prefetch *call, __u32 now)
{
	void *queues;
	uvm_gpu_t *gpu;

	if (!uvm_rust_prefetch || !enter(call))
		return;
	gpu = usable_gpu(call);
	uvm_spin_lock(&gpu->pmm.list_lock);
	queues = uvm_rust_pmm_queues(&gpu->pmm);
	if (queues && (!is_owner(call->entry, gpu) || !uvm_rust_queues_set_now(queues, call->entry->owner, now))) {
		/* The first time, or the GPU was away, or others took our place. */
		call->entry->owner = uvm_rust_queues_add_owner(queues);
		call->entry->generation = uvm_rust_pmm_queues_generation(&gpu->pmm);
		uvm_rust_queues_set_now(queues, call->entry->owner, now);
	}
	uvm_spin_unlock(&gpu->pmm.list_lock);
	leave(call);
}

/* Marks the chunk that backs @block. Caller holds its lock. */
static void expect(struct uvm_seam_prefetch *call, uvm_va_block_t *block, uvm_gpu_t *gpu, __u32 until)
{
	uvm_gpu_chunk_t *chunk = uvm_va_block_lookup_gpu_chunk(block, gpu, block->start);
	void *queues;

	if (!chunk)
		return;
	uvm_spin_lock(&gpu->pmm.list_lock);
	queues = uvm_rust_pmm_queues(&gpu->pmm);
	if (queues && is_owner(call->entry, gpu))
		uvm_rust_queues_expect(queues, uvm_rust_root_index(chunk), call->entry->owner, until);
	uvm_spin_unlock(&gpu->pmm.list_lock);
}

/* Whether a chunk can be had without evicting what is expected. */
static bool has_room(uvm_gpu_t *gpu)
{
	uvm_pmm_gpu_t *pmm = &gpu->pmm;
	void *queues;
	bool room;

	if (uvm_rust_pma_free_2m(pmm))
		return true;
	uvm_spin_lock(&pmm->list_lock);
	queues = uvm_rust_pmm_queues(pmm);
	room = uvm_rust_has_free_root_chunk(pmm) || !queues || !uvm_rust_queues_pick_is_expected(queues);
	uvm_spin_unlock(&pmm->list_lock);
	return room;
}

/* --- into the GPU -------------------------------------------------------------------- */

/* Pages of @block that are worth moving to @gpu, in space->pages. Caller holds its lock. */
static void wanted_pages(struct space_prefetch *space, uvm_va_block_t *block)
{
	const uvm_page_mask_t *thrashing = uvm_perf_thrashing_get_thrashing_pages(block);
	uvm_page_mask_t *pages = &space->pages;
	uvm_page_index_t page;

	/* Never populated: the first access decides where. */
	uvm_rust_resident_anywhere(block, pages);
	if (thrashing)
		uvm_page_mask_andnot(pages, pages, thrashing);
	/* A guess must not bring back what was discarded. */
	if (!block->uvm_rust)
		return;
	for_each_va_block_page_in_mask(page, pages, block) {
		if (uvm_rust_block_status(block->uvm_rust, page) != UVM_RUST_PAGE_LIVE)
			uvm_page_mask_clear(pages, page);
	}
}

struct into {
	__u32 until;
	__u32 pages;
	__u32 outcome;
	uvm_tracker_t tracker;
};

static NV_STATUS into_gpu_locked(struct uvm_seam_prefetch *call, uvm_va_block_t *block, uvm_va_block_retry_t *retry,
				 uvm_gpu_t *gpu, struct into *into)
{
	struct space_prefetch *space = call->space;
	const uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, gpu->id);
	uvm_va_block_region_t region = uvm_va_block_region_from_block(block), part;
	__u32 there, wanted;

	wanted_pages(space, block);
	wanted = uvm_page_mask_weight(&space->pages);
	there = 0;
	if (state && wanted) {
		uvm_page_mask_t *both = &uvm_rust_move_block_context(space->context)->caller_page_mask;

		uvm_page_mask_and(both, &space->pages, &state->resident);
		there = uvm_page_mask_weight(both);
	}
	if (there == wanted) {
		into->outcome = UVM_RUST_PREFETCH_RESIDENT;
		expect(call, block, gpu, into->until);
		return NV_OK;
	}
	if (!uvm_processor_mask_test(&block->resident, gpu->id) && !has_room(gpu)) {
		into->outcome = UVM_RUST_PREFETCH_NO_ROOM;
		return NV_OK;
	}
	into->pages = wanted - there;
	for_each_va_block_subregion_in_mask(part, &space->pages, region) {
		NV_STATUS status = uvm_va_block_migrate_locked(block, retry, space->context, part, gpu->id,
							       UVM_MIGRATE_MODE_MAKE_RESIDENT_AND_MAP, &into->tracker);

		if (status != NV_OK)
			return status;
	}
	into->outcome = UVM_RUST_PREFETCHED;
	expect(call, block, gpu, into->until);
	return NV_OK;
}

/* Whether policy leaves it to us where the memory of @block is. Caller holds the VA space's lock. */
static bool may_move(uvm_va_space_t *va_space, uvm_va_range_t *range, uvm_va_block_t *block, uvm_gpu_t *gpu)
{
	uvm_va_policy_t *policy = uvm_va_range_get_policy(range);

	if (UVM_ID_IS_VALID(policy->preferred_location) && !uvm_id_equal(policy->preferred_location, gpu->id))
		return false;
	return !uvm_va_policy_is_read_duplicate(policy, va_space) &&
	       !uvm_processor_mask_test(&range->uvm_lite_gpus, gpu->id) &&
	       uvm_range_group_all_migratable(va_space, block->start, block->end);
}

static void into_gpu(struct uvm_seam_prefetch *call, uvm_va_range_t *range, NvU64 address, struct into *into)
{
	struct space_prefetch *space = call->space;
	uvm_gpu_t *gpu = usable_gpu(call);
	uvm_va_block_t *block;
	uvm_va_block_retry_t retry;
	NV_STATUS status;

	if (range->type != UVM_VA_RANGE_TYPE_MANAGED)
		return;
	block = uvm_va_range_block(range, uvm_va_range_block_index(range, max(address, range->node.start)));
	if (!block || !may_move(space->va_space, range, block, gpu))
		return;
	uvm_va_block_context_init(uvm_rust_move_block_context(space->context), NULL);
	status = UVM_VA_BLOCK_LOCK_RETRY(block, &retry, into_gpu_locked(call, block, &retry, gpu, into));
	if (status != NV_OK)
		into->outcome = UVM_RUST_PREFETCH_FAILED;
}

__u32 uvm_seam_prefetch_block(struct uvm_seam_prefetch *call, __u64 address, __u32 until, __u32 *pages)
{
	struct into into = { .until = until, .outcome = UVM_RUST_PREFETCH_UNFIT };
	uvm_va_space_t *va_space = call->space->va_space;
	uvm_va_range_t *range;
	__u32 outcome = UVM_RUST_PREFETCH_UNFIT;
	NV_STATUS status;

	/* Faults first. With no lock held, which the fault service might wait for. */
	uvm_rust_wait_fault_service(call->entry->parent);
	if (!enter(call))
		return UVM_RUST_PREFETCH_STOP;
	uvm_tracker_init(&into.tracker);
	/* Several va_blocks, where ranges are smaller than 2 MiB or not aligned. */
	uvm_for_each_va_range_in(range, va_space, address, address + UVM_VA_BLOCK_SIZE - 1) {
		into.outcome = UVM_RUST_PREFETCH_UNFIT;
		into.pages = 0;
		into_gpu(call, range, address, &into);
		*pages += into.pages;
		if (into.outcome == UVM_RUST_PREFETCHED || outcome == UVM_RUST_PREFETCH_UNFIT)
			outcome = into.outcome;
		if (into.outcome == UVM_RUST_PREFETCH_NO_ROOM || into.outcome == UVM_RUST_PREFETCH_FAILED)
			break;
	}
	/* One at a time, so that a fault's copy waits for one of ours at most. */
	status = uvm_tracker_wait_deinit(&into.tracker);
	leave(call);
	return status == NV_OK ? outcome : UVM_RUST_PREFETCH_FAILED;
}

/* --- out of the GPU ------------------------------------------------------------------- */

/* The most chunks of a turn that turn out not to be movable. Those of the next turn are others. */
#define PUSH_OUT_TRIES	16

/* A chunk that may be pushed out, and what it holds. */
struct push_out {
	__u32 index;
	uvm_va_block_t *block;
	NvU64 start;
};

/*
 * The oldest chunk of this VA space that nobody expects; false if there is none, or if there
 * are chunks enough, with @why.
 */
static bool pick_to_push_out(struct uvm_seam_prefetch *call, uvm_gpu_t *gpu, struct push_out *what, __u32 *why)
{
	uvm_pmm_gpu_t *pmm = &gpu->pmm;
	NvU64 ready = uvm_rust_pma_free_2m(pmm);
	void *queues;

	*why = UVM_RUST_PREFETCH_NO_ROOM;
	*what = (struct push_out){ .index = UVM_RUST_NO_CHUNK };
	uvm_spin_lock(&pmm->list_lock);
	queues = uvm_rust_pmm_queues(pmm);
	if (queues) {
		if (ready < uvm_rust_preevict)
			ready += uvm_rust_free_root_chunks(pmm);
		ready += uvm_rust_queues_length(queues, UVM_RUST_QUEUE_UNUSED) +
			 uvm_rust_queues_length(queues, UVM_RUST_QUEUE_DISCARDED);
		if (ready < uvm_rust_preevict)
			what->index = uvm_rust_queues_pick_early(queues, (uintptr_t)call->space->va_space);
		else
			*why = UVM_RUST_PREFETCH_RESIDENT;
	}
	if (what->index != UVM_RUST_NO_CHUNK) {
		const uvm_gpu_chunk_t *chunk = &pmm->root_chunks.array[what->index].chunk;

		/* The lock keeps what an allocated chunk belongs to. */
		if (chunk->state == UVM_PMM_GPU_CHUNK_STATE_ALLOCATED && chunk->va_block) {
			what->block = chunk->va_block;
			what->start = what->block->start;
		}
	}
	uvm_spin_unlock(&pmm->list_lock);
	return what->index != UVM_RUST_NO_CHUNK;
}

/* Whether policy lets it go. Caller holds the VA space's lock, which keeps the block. */
static bool may_push_out(struct uvm_seam_prefetch *call, uvm_gpu_t *gpu, const struct push_out *what)
{
	uvm_va_space_t *va_space = call->space->va_space;
	uvm_va_range_t *range;

	if (!what->block)
		return false;
	/* It is ours, and alive, if our own tree says so. */
	range = uvm_va_range_find(va_space, what->start);
	if (!range || range->type != UVM_VA_RANGE_TYPE_MANAGED ||
	    uvm_va_range_block(range, uvm_va_range_block_index(range, what->start)) != what->block)
		return false;
	return may_move(va_space, range, what->block, gpu);
}

/* It would be picked again, and nothing else. */
static void pass_over(struct uvm_seam_prefetch *call, uvm_gpu_t *gpu, const struct push_out *what)
{
	void *queues;

	uvm_spin_lock(&gpu->pmm.list_lock);
	queues = uvm_rust_pmm_queues(&gpu->pmm);
	if (queues)
		uvm_rust_queues_pass_over(queues, what->index, (uintptr_t)call->space->va_space);
	uvm_spin_unlock(&gpu->pmm.list_lock);
}

/* What to push out; false if nothing, with @why. Caller holds the VA space's lock. */
static bool find_to_push_out(struct uvm_seam_prefetch *call, uvm_gpu_t *gpu, struct push_out *what, __u32 *why)
{
	int tries;

	for (tries = 0; tries < PUSH_OUT_TRIES; tries++) {
		if (!pick_to_push_out(call, gpu, what, why))
			return false;
		if (may_push_out(call, gpu, what))
			return true;
		pass_over(call, gpu, what);
	}
	return false;
}

static NV_STATUS push_out_locked(struct uvm_seam_prefetch *call, uvm_va_block_t *block, uvm_va_block_retry_t *retry,
				 uvm_gpu_t *gpu, __u32 *pages, uvm_tracker_t *tracker)
{
	struct space_prefetch *space = call->space;
	const uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(block, gpu->id);
	uvm_va_block_region_t region = uvm_va_block_region_from_block(block), part;

	if (!state)
		return NV_OK;
	uvm_page_mask_copy(&space->pages, &state->resident);
	*pages = uvm_page_mask_weight(&space->pages);
	for_each_va_block_subregion_in_mask(part, &space->pages, region) {
		NV_STATUS status = uvm_va_block_migrate_locked(block, retry, space->context, part, UVM_ID_CPU,
							       UVM_MIGRATE_MODE_MAKE_RESIDENT, tracker);

		if (status != NV_OK)
			return status;
	}
	return NV_OK;
}

__u32 uvm_seam_push_out(struct uvm_seam_prefetch *call, __u32 *pages)
{
	uvm_tracker_t tracker = UVM_TRACKER_INIT();
	uvm_va_block_retry_t retry;
	struct push_out what;
	__u32 outcome;
	uvm_gpu_t *gpu;

	uvm_rust_wait_fault_service(call->entry->parent);
	if (!enter(call))
		return UVM_RUST_PREFETCH_STOP;
	gpu = usable_gpu(call);
	if (find_to_push_out(call, gpu, &what, &outcome)) {
		/* As upstream's evictions: the pages of the host are charged to the process's memory cgroup. */
		struct mm_struct *mm = uvm_va_space_mm_retain(call->space->va_space);
		NV_STATUS status, waited;

		uvm_va_block_context_init(uvm_rust_move_block_context(call->space->context), mm);
		status = UVM_VA_BLOCK_LOCK_RETRY(what.block, &retry,
						 push_out_locked(call, what.block, &retry, gpu, pages, &tracker));
		waited = uvm_tracker_wait(&tracker);
		if (mm)
			uvm_va_space_mm_release(call->space->va_space);
		if (status == NV_OK)
			status = waited;
		outcome = status == NV_OK && *pages ? UVM_RUST_PREFETCHED : UVM_RUST_PREFETCH_FAILED;
		if (outcome == UVM_RUST_PREFETCH_FAILED)
			pass_over(call, gpu, &what);
	}
	uvm_tracker_deinit(&tracker);
	leave(call);
	return outcome;
}

/* --- life ------------------------------------------------------------------------------- */

static void on_range_destroy(uvm_perf_event_t event_id, uvm_perf_event_data_t *data)
{
	const uvm_va_range_t *range = data->range_destroy.range;
	struct space_prefetch *space = prefetch_of(range->va_space);
	__u32 i;

	if (!space || READ_ONCE(space->stopping) || range->type != UVM_VA_RANGE_TYPE_MANAGED)
		return;
	for (i = 0; i < smp_load_acquire(&space->count); i++)
		uvm_rust_prefetch_forget(space->gpus[i].rust, range->node.start, range->node.end);
}

NV_STATUS uvm_rust_prefetch_init(void)
{
	prefetch_wq = alloc_workqueue("uvm_rust_prefetch", WQ_UNBOUND | WQ_FREEZABLE, 0);
	return prefetch_wq ? NV_OK : NV_ERR_NO_MEMORY;
}

void uvm_rust_prefetch_exit(void)
{
	/* Also called when initialisation failed. */
	if (prefetch_wq)
		destroy_workqueue(prefetch_wq);
	prefetch_wq = NULL;
}

NV_STATUS uvm_rust_prefetch_load(uvm_va_space_t *va_space)
{
	if (!uvm_rust_announce)
		return NV_OK;
	return uvm_perf_register_event_callback(&va_space->perf_events, UVM_PERF_EVENT_RANGE_DESTROY,
						on_range_destroy);
}

void uvm_rust_prefetch_stop(uvm_va_space_t *va_space)
{
	struct space_prefetch *space = prefetch_of(va_space);
	__u32 i;

	if (!space)
		return;
	WRITE_ONCE(space->stopping, true);
	/* Faults may still come, and their notes, but the worker does not any more. */
	disable_work_sync(&space->work);

	uvm_va_space_down_read(va_space);
	for (i = 0; i < smp_load_acquire(&space->count); i++) {
		struct gpu_prefetch *entry = &space->gpus[i];

		if (uvm_processor_mask_test(&va_space->registered_gpus, entry->id))
			entry->last = uvm_va_space_get_gpu(va_space, entry->id);
	}
	uvm_va_space_up_read(va_space);
}

static void remove_owner(const struct gpu_prefetch *entry)
{
	void *queues;

	if (!entry->owner || !entry->last)
		return;
	uvm_spin_lock(&entry->last->pmm.list_lock);
	queues = uvm_rust_pmm_queues(&entry->last->pmm);
	if (queues && is_owner(entry, entry->last))
		uvm_rust_queues_remove_owner(queues, entry->owner);
	uvm_spin_unlock(&entry->last->pmm.list_lock);
}

void uvm_rust_prefetch_unload(uvm_va_space_t *va_space)
{
	struct space_prefetch *space = prefetch_of(va_space);
	__u32 i;

	uvm_perf_unregister_event_callback(&va_space->perf_events, UVM_PERF_EVENT_RANGE_DESTROY, on_range_destroy);
	if (!space)
		return;
	va_space->uvm_rust_prefetch = NULL;
	for (i = 0; i < space->count; i++) {
		remove_owner(&space->gpus[i]);
		uvm_rust_prefetch_destroy(space->gpus[i].rust);
	}
	space_free(space);
}

void uvm_rust_prefetch_show_space(uvm_va_space_t *va_space, struct seq_file *seq)
{
	struct space_prefetch *space = prefetch_of(va_space);
	__u32 i;

	for (i = 0; space && i < smp_load_acquire(&space->count); i++)
		uvm_rust_prefetch_show(space->gpus[i].rust, seq);
}
