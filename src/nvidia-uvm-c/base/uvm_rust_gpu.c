// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The C seam: what we have of each GPU, and when it comes and goes.
 *
 * tests/seam runs this file and uvm_rust_evict.c on the host, under all interleavings of a
 * GPU that comes and goes with an eviction there.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "uvm_common.h"
#include "uvm_gpu.h"
#include "uvm_perf_heuristics.h"
#include "uvm_pmm_gpu.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"
#include "uvm_rust_seam.h"

/*
 * Our state of each GPU, by uvm_id_gpu_index(). Written under g_uvm_global.global_lock and,
 * within it, the GPU's pmm.list_lock. What an entry points to is destroyed after it was
 * cleared, and lives for those who read it
 *   - under pmm.list_lock, as evictions do: PMA has chunks evicted while a GPU comes and
 *     goes, as upstream unregisters its callbacks only after it has told us;
 *   - with the GPU retained, as VA spaces do in which it is registered: upstream tells us
 *     when nobody retains it any more;
 *   - in the GPU's bottom half, which upstream has stopped by then.
 */
static struct uvm_rust_gpu *gpu_states[UVM_ID_MAX_GPUS];
/* Under g_uvm_global.global_lock. */
static struct dentry *gpu_files[UVM_ID_MAX_GPUS];

struct uvm_rust_gpu *uvm_rust_gpu_state(const uvm_gpu_t *gpu)
{
	return READ_ONCE(gpu_states[uvm_id_gpu_index(gpu->id)]);
}

static int gpu_show(struct seq_file *seq, void *unused)
{
	uvm_rust_gpu_show(seq->private, seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(gpu);

/* Returns what was there. Caller holds g_uvm_global.global_lock, under which it does not change. */
static struct uvm_rust_gpu *set_gpu_state(uvm_gpu_t *gpu, struct uvm_rust_gpu *state)
{
	struct uvm_rust_gpu **entry = &gpu_states[uvm_id_gpu_index(gpu->id)];

	/* Upstream removes a GPU also when it failed to come, and perhaps before its PMM was made. */
	if (!*entry && !state)
		return NULL;
	uvm_spin_lock(&gpu->pmm.list_lock);
	swap(*entry, state);
	uvm_spin_unlock(&gpu->pmm.list_lock);
	return state;
}

UVM_RUST_C_BODY(uvm_perf_heuristics_add_gpu);
UVM_RUST_C_BODY(uvm_perf_heuristics_remove_gpu);

NV_STATUS uvm_perf_heuristics_add_gpu(uvm_gpu_t *gpu)
{
	NvU32 index = uvm_id_gpu_index(gpu->id);
	char name[sizeof("gpu-") + 8];
	NV_STATUS status = uvm_perf_heuristics_add_gpu__c(gpu);
	struct uvm_rust_gpu *state;

	if (status != NV_OK)
		return status;
	if (UVM_RUST_HOOKED)
		status = uvm_rust_evict_add_gpu(gpu);
	if (status != NV_OK || !uvm_rust_stats || !uvm_rust_counts(gpu))
		return status;
	state = uvm_rust_gpu_create(gpu->pmm.root_chunks.count);
	if (!state)
		return NV_ERR_NO_MEMORY;
	set_gpu_state(gpu, state);
	snprintf(name, sizeof(name), "gpu-%u", uvm_id_value(gpu->id));
	gpu_files[index] = debugfs_create_file(name, 0400, uvm_rust_debug_dir(), state, &gpu_fops);
	return NV_OK;
}

void uvm_perf_heuristics_remove_gpu(uvm_gpu_t *gpu)
{
	NvU32 index = uvm_id_gpu_index(gpu->id);
	struct uvm_rust_gpu *state;

	/* Waits for readers. */
	debugfs_remove(gpu_files[index]);
	gpu_files[index] = NULL;
	state = set_gpu_state(gpu, NULL);
	if (state)
		uvm_rust_gpu_destroy(state);
	if (UVM_RUST_HOOKED)
		uvm_rust_evict_remove_gpu(gpu);
	/*
	 * The chunks of ordinary memory that the last process has let go are freed by a thread of
	 * upstream's. uvm_pmm_gpu_deinit() asserts that no chunk is left, and waits for that thread
	 * only then: on a busy machine the thread may not have run yet.
	 */
	if (uvm_rust_fix_lazy && gpu->pmm.initialized)
		nv_kthread_q_flush(&gpu->parent->lazy_free_q);
	uvm_perf_heuristics_remove_gpu__c(gpu);
}
