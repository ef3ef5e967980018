// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C seam: when a GPU comes and goes, and what its lists of root chunks say. What there is of a
 * GPU is Rust's (ffi/gpu.rs), by uvm_id_gpu_index(); it changes under the PMM's list_lock.
 *
 * tests/seam runs this file and uvm_rust_evict.c on the host, under all interleavings of a
 * GPU that comes and goes with an eviction there.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "uvm_rust_hooks.h"
#include "uvm_perf_heuristics.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_on_lists.h"

static int gpu_show(struct seq_file *seq, void *unused)
{
	uvm_rust_gpu_show((uintptr_t)seq->private, seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(gpu);

struct dentry *uvm_seam_gpu_file(__u32 index)
{
	char name[sizeof("gpu-") + 8];

	snprintf(name, sizeof(name), "gpu-%u", uvm_id_value(uvm_gpu_id_from_index(index)));
	return debugfs_create_file(name, 0400, uvm_rust_debug_dir, (void *)(uintptr_t)index, &gpu_fops);
}

void uvm_seam_gpu_file_remove(struct dentry *file)
{
	/* Waits for readers. It may be none, or what its making failed with. */
	debugfs_remove(file);
}

/* Returns what was there. Caller holds g_uvm_global.global_lock. */
static struct uvm_rust_gpu *install(uvm_gpu_t *gpu, struct uvm_rust_gpu *state)
{
	uvm_spin_lock(&gpu->pmm.list_lock);
	state = uvm_rust_gpu_install(uvm_id_gpu_index(gpu->id), state);
	uvm_spin_unlock(&gpu->pmm.list_lock);
	return state;
}

UVM_RUST_C_BODY(uvm_perf_heuristics_add_gpu);
UVM_RUST_C_BODY(uvm_perf_heuristics_remove_gpu);

NV_STATUS uvm_perf_heuristics_add_gpu(uvm_gpu_t *gpu)
{
	NV_STATUS status = uvm_perf_heuristics_add_gpu__c(gpu);
	struct uvm_rust_gpu *state;

	if (status != NV_OK)
		return status;
	state = uvm_rust_gpu_create(uvm_id_gpu_index(gpu->id), gpu->pmm.root_chunks.count, uvm_rust_counts(gpu),
				    pci_name(gpu->parent->pci_dev));
	if (!state)
		return NV_ERR_NO_MEMORY;
	state = install(gpu, state);
	UVM_ASSERT(!state);
	return NV_OK;
}

void uvm_perf_heuristics_remove_gpu(uvm_gpu_t *gpu)
{
	/*
	 * The chunks of ordinary memory that the last process has let go are freed by a thread of
	 * upstream's. uvm_pmm_gpu_deinit() asserts that no chunk is left, and waits for that thread
	 * only then: on a busy machine the thread may not have run yet. The queues learn of these chunks,
	 * whose pages else would stay that process's in its statistics.
	 */
	if (uvm_rust_fix_lazy && gpu->pmm.initialized)
		nv_kthread_q_flush(&gpu->parent->lazy_free_q);
	/* Upstream removes a GPU also when it failed to come, and perhaps before its PMM was made. */
	if (uvm_rust_gpu_is_known(uvm_id_gpu_index(gpu->id)))
		uvm_rust_gpu_destroy(install(gpu, NULL));
	uvm_perf_heuristics_remove_gpu__c(gpu);
}

/* --- upstream's lists of root chunks ------------------------------------------------ */

/* The list of this number; NULL if upstream has none. */
static struct list_head *list_of(uvm_pmm_gpu_t *pmm, __u32 list)
{
	switch (list) {
	case UVM_RUST_QUEUE_UNUSED:
		return uvm_rust_unused_list(pmm);
	case UVM_RUST_QUEUE_DISCARDED:
		return uvm_rust_discarded_list(pmm);
	case UVM_RUST_QUEUE_USED:
		return uvm_rust_used_list(pmm);
	default:
		return uvm_rust_free_list(pmm, list == UVM_RUST_LIST_ZEROED);
	}
}

/* Called by the hook in uvm_pmm_gpu.c, before the chunk leaves its list; list_lock is held. */
void uvm_rust_chunk_start_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	uvm_rust_chunk_leaves(uvm_rust_gpu_index(pmm), uvm_rust_root_index(chunk),
			      chunk->state == UVM_PMM_GPU_CHUNK_STATE_FREE, uvm_pmm_to_gpu(pmm));
}

__u32 uvm_seam_list_next(uvm_gpu_t *gpu, __u32 list, __u32 chunk)
{
	const struct list_head *head = list_of(&gpu->pmm, list), *at = head;

	if (head && chunk != UVM_RUST_NO_CHUNK)
		at = &gpu->pmm.root_chunks.array[chunk].chunk.list;
	if (!head || at->next == head)
		return UVM_RUST_NO_CHUNK;
	return uvm_rust_root_index(list_entry(at->next, uvm_gpu_chunk_t, list));
}

void uvm_seam_lock_chunks(uvm_gpu_t *gpu)
	__acquires(&gpu->pmm.list_lock.lock)
{
	uvm_spin_lock(&gpu->pmm.list_lock);
}

void uvm_seam_unlock_chunks(uvm_gpu_t *gpu)
	__releases(&gpu->pmm.list_lock.lock)
{
	uvm_spin_unlock(&gpu->pmm.list_lock);
}
