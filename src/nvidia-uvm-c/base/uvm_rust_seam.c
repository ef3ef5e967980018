// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C seam: where upstream calls into Rust, and what Rust asks of upstream.
 *
 * The functions of upstream's that are replaced here live on as NAME__c in the
 * file that defines them (Kbuild renames them there), and each replacement calls
 * its C body, so that turning a part off leaves exactly upstream.
 */
#include <linux/capability.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>

#include "uvm_rust_hooks.h"
#include "uvm_rust_fixes.h"
#include "uvm_api.h"
#include "uvm_global.h"
#include "uvm_perf_events.h"
#include "uvm_perf_heuristics.h"
#include "uvm_test.h"

struct dentry *uvm_rust_debug_dir;

/* --- life of VA spaces ------------------------------------------------------ */

UVM_RUST_C_BODY(uvm_perf_heuristics_init);
UVM_RUST_C_BODY(uvm_perf_heuristics_exit);
UVM_RUST_C_BODY(uvm_perf_heuristics_load);
UVM_RUST_C_BODY(uvm_perf_heuristics_stop);
UVM_RUST_C_BODY(uvm_perf_heuristics_unload);
UVM_RUST_C_BODY(uvm_perf_heuristics_register_gpu);

static int show_processes(struct seq_file *seq)
{
	uvm_va_space_t *va_space;

	/* A VA space leaves this list before it is torn down. */
	uvm_mutex_lock(&g_uvm_global.va_spaces.lock);
	list_for_each_entry(va_space, &g_uvm_global.va_spaces.list, list_node)
		uvm_rust_space_show(va_space->uvm_rust, seq);
	uvm_mutex_unlock(&g_uvm_global.va_spaces.lock);
	return 0;
}

/* Upstream's locks may only be taken inside an entry that it can check. */
static int processes_show(struct seq_file *seq, void *unused)
{
	UVM_ENTRY_RET(show_processes(seq));
}
DEFINE_SHOW_ATTRIBUTE(processes);

void uvm_rust_fdinfo(struct seq_file *seq, struct file *filp)
{
	UVM_ENTRY_VOID(uvm_rust_show_fdinfo(seq, filp));
}

NV_STATUS uvm_perf_heuristics_init(void)
{
	NV_STATUS status = uvm_perf_heuristics_init__c();

	if (UVM_RUST_HOOKED)
		status = status ?: uvm_rust_fixes_init() ?: uvm_rust_init();
	if (status != NV_OK || !uvm_rust_stats)
		return status;
	uvm_rust_debug_dir = debugfs_create_dir("nvidia-uvm", NULL);
	debugfs_create_file("processes", 0400, uvm_rust_debug_dir, NULL, &processes_fops);
	return NV_OK;
}

void uvm_perf_heuristics_exit(void)
{
	debugfs_remove(uvm_rust_debug_dir);
	uvm_rust_debug_dir = NULL;
	if (UVM_RUST_HOOKED) {
		uvm_rust_exit();
		uvm_rust_fixes_exit();
	}
	uvm_perf_heuristics_exit__c();
}

/* Of the loop in C. Ours counts by itself, and so spares each fault an event. */
static void on_fault(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data)
{
	const uvm_fault_buffer_entry_t *entry = data->fault.gpu.buffer_entry;

	/* A CPU's fault has no entry. */
	if (UVM_ID_IS_CPU(data->fault.proc_id) || !entry->is_replayable)
		return;
	uvm_rust_note_fault(uvm_rust_fault_space(data)->uvm_rust, uvm_id_gpu_index(data->fault.proc_id),
			    data->fault.gpu.batch_id, entry->num_instances,
			    entry->num_instances - !data->fault.gpu.is_duplicate);
}

static void on_migration(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data)
{
	uvm_va_space_t *va_space = uvm_rust_migration_space(data);

	/* Rust knows these by their numbers (ffi/space.rs). */
	BUILD_BUG_ON(UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT != 0 || UVM_MAKE_RESIDENT_CAUSE_NON_REPLAYABLE_FAULT != 1);
	BUILD_BUG_ON(UVM_MAKE_RESIDENT_CAUSE_ACCESS_COUNTER != 2 || UVM_MAKE_RESIDENT_CAUSE_PREFETCH != 3);
	BUILD_BUG_ON(UVM_MAKE_RESIDENT_CAUSE_EVICTION != 4);
	uvm_rust_note_copy(va_space->uvm_rust, uvm_rust_memory(data->migration.dst), uvm_rust_memory(data->migration.src),
			   data->migration.cause, data->migration.address, data->migration.bytes);
}

/* Begins to listen for an event of @va_space, if it is @wanted. */
static NV_STATUS listen(uvm_va_space_t *va_space, bool wanted, uvm_perf_event_t event, uvm_perf_event_callback_t callback)
{
	return wanted ? uvm_perf_register_event_callback(&va_space->perf_events, event, callback) : NV_OK;
}

NV_STATUS uvm_perf_heuristics_load(uvm_va_space_t *va_space)
{
	NV_STATUS status = uvm_perf_heuristics_load__c(va_space);

	if (status != NV_OK)
		return status;
	va_space->uvm_rust = uvm_rust_space_create((struct uvm_seam_space *)va_space, current->tgid, UVM_ID_MAX_GPUS);
	if (!va_space->uvm_rust)
		return NV_ERR_NO_MEMORY;
	if (UVM_RUST_HOOKED)
		status = listen(va_space, true, UVM_PERF_EVENT_BLOCK_DESTROY, uvm_rust_on_block_destroy) ?:
			 listen(va_space, uvm_rust_announce, UVM_PERF_EVENT_RANGE_DESTROY, uvm_rust_on_range_destroy);
	return status ?: listen(va_space, uvm_rust_stats && !(UVM_RUST_HOOKED && uvm_rust_fault), UVM_PERF_EVENT_FAULT, on_fault) ?:
			 listen(va_space, uvm_rust_stats, UVM_PERF_EVENT_MIGRATION, on_migration);
}

void uvm_perf_heuristics_stop(uvm_va_space_t *va_space)
{
	if (UVM_RUST_HOOKED && va_space->uvm_rust)
		uvm_rust_space_stop(va_space->uvm_rust);
	uvm_perf_heuristics_stop__c(va_space);
}

void uvm_perf_heuristics_unload(uvm_va_space_t *va_space)
{
	typeof(va_space->perf_events) *events = &va_space->perf_events;

	/* Also called when load failed half-way, or was not called, as there were no events to load for. */
	if (!events->va_space)
		return uvm_perf_heuristics_unload__c(va_space);
	if (UVM_RUST_HOOKED) {
		uvm_perf_unregister_event_callback(events, UVM_PERF_EVENT_RANGE_DESTROY, uvm_rust_on_range_destroy);
		uvm_perf_unregister_event_callback(events, UVM_PERF_EVENT_BLOCK_DESTROY, uvm_rust_on_block_destroy);
	}
	uvm_perf_unregister_event_callback(events, UVM_PERF_EVENT_FAULT, on_fault);
	uvm_perf_unregister_event_callback(events, UVM_PERF_EVENT_MIGRATION, on_migration);
	uvm_rust_space_destroy(va_space->uvm_rust);
	va_space->uvm_rust = NULL;
	uvm_perf_heuristics_unload__c(va_space);
}

/* 535 and 545 say whether they could. */
typeof(uvm_perf_heuristics_register_gpu(NULL, NULL)) uvm_perf_heuristics_register_gpu(uvm_va_space_t *va_space, uvm_gpu_t *gpu)
{
	uvm_rust_space_add_gpu(va_space->uvm_rust, gpu, uvm_id_gpu_index(gpu->id));
	return uvm_perf_heuristics_register_gpu__c(va_space, gpu);
}

/* --- eviction ----------------------------------------------------------------- */

NV_STATUS uvm_va_block_evict_chunks(uvm_va_block_t *va_block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk,
				    uvm_tracker_t *tracker)
{
	/* Whose chunks have no va_block: uvm_rust_evict_rest() takes them. Its VA space may be gone at any moment. */
	bool nobodys = UVM_RUST_HOOKED && uvm_rust_is_nobody(va_block);
	/* NULL once the block was killed; else its VA space outlives our hold on the block's lock. */
	uvm_va_space_t *va_space = nobodys ? NULL : uvm_va_block_get_va_space_maybe_dead(va_block);
	struct uvm_rust_space *counted = va_space ? va_space->uvm_rust : NULL;
	__u32 index = uvm_id_gpu_index(gpu->id), root = uvm_rust_root_index(root_chunk);
	__u64 eviction = counted ? uvm_rust_note_evicted(counted, index, root, va_block->start) : 0;
	NV_STATUS status;

	if (nobodys)
		return NV_OK;
	status = (UVM_RUST_HOOKED && va_space ? uvm_rust_drop_needless(va_block, gpu, root_chunk) : NV_OK) ?:
		 uvm_va_block_evict_chunks__c(va_block, gpu, root_chunk, tracker);
	/* Page tables may have taken memory meanwhile, for which the block's lock is let go. */
	if (counted && uvm_va_block_get_va_space_maybe_dead(va_block))
		uvm_rust_evicted(counted, index, root, va_block->start, eviction, status);
	/* No page could be moved: all chunks stay (uvm_rust_chunk_stays()). */
	return UVM_RUST_HOOKED && status == NV_WARN_MORE_PROCESSING_REQUIRED ? NV_OK : status;
}

/* --- ioctls ------------------------------------------------------------------ */

struct uvm_seam_space *uvm_seam_space_of(struct file *filp)
{
	return (struct uvm_seam_space *)uvm_fd_va_space(filp);
}

bool uvm_seam_mm_lock(struct uvm_seam_space *space, bool waits, struct mm_struct **locked)
{
	uvm_va_space_t *of = (uvm_va_space_t *)space;
	struct mm_struct *mm = *locked = current->mm ? uvm_va_space_mm_or_current_retain(of) : uvm_va_space_mm_retain(of);
	bool taken = !mm || (waits ? !mmap_read_lock_killable(mm) : mmap_read_trylock(mm));

	if (mm && taken)
		uvm_record_lock_mmap_lock_read(mm);
	else
		uvm_va_space_mm_or_current_release(of, mm);
	return taken;
}

void uvm_seam_mm_unlock(struct uvm_seam_space *space, struct mm_struct *mm)
{
	uvm_va_space_mm_or_current_release_unlock((uvm_va_space_t *)space, mm);
}

void uvm_seam_space_lock(struct uvm_seam_space *space)
{
	uvm_va_space_down_read((uvm_va_space_t *)space);
}

void uvm_seam_space_unlock(struct uvm_seam_space *space)
{
	uvm_va_space_up_read((uvm_va_space_t *)space);
}

bool uvm_seam_has_non_faultable(struct uvm_seam_space *space)
{
	return uvm_rust_has_non_faultable((uvm_va_space_t *)space);
}

__u32 uvm_seam_range_kind(struct uvm_seam_space *space, struct mm_struct *mm, __u64 base, __u64 length)
{
	BUILD_BUG_ON(UVM_API_RANGE_TYPE_MANAGED != UVM_RUST_KIND_MANAGED);
	BUILD_BUG_ON(UVM_API_RANGE_TYPE_HMM != UVM_RUST_KIND_HMM || UVM_API_RANGE_TYPE_ATS != UVM_RUST_KIND_ATS);
	return uvm_api_range_type_check((uvm_va_space_t *)space, mm, base, length);
}

struct uvm_seam_context *uvm_seam_context_new(struct mm_struct *mm)
{
	uvm_va_block_context_t *context = uvm_va_block_context_alloc(mm);

	if (context)
		uvm_rust_on_any_node(context);
	return (struct uvm_seam_context *)context;
}

void uvm_seam_context_free(struct uvm_seam_context *context)
{
	uvm_va_block_context_free((uvm_va_block_context_t *)context);
}

struct uvm_rust_space *uvm_seam_space_state(struct uvm_seam_space *space)
{
	return ((uvm_va_space_t *)space)->uvm_rust;
}

__u32 uvm_seam_space_gpu(struct uvm_seam_space *space, const __u8 *uuid, uvm_gpu_t **gpu)
{
	*gpu = uvm_va_space_get_gpu_by_uuid((uvm_va_space_t *)space, (const NvProcessorUuid *)uuid);
	return *gpu ? uvm_rust_memory((*gpu)->id) : UVM_RUST_MEMORY_HOST;
}

__u32 uvm_seam_global_status(void)
{
	return uvm_global_get_status();
}

bool uvm_seam_sees_others(void)
{
	/* Of the initial user namespace: a container's root is one tenant among others. */
	return uvm_rust_stats_public || ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
}

bool uvm_seam_suspends(void)
{
	return rwsem_is_contended(&g_uvm_global.pm.lock.sem);
}

bool uvm_seam_pm_trylock(void)
{
	return uvm_down_read_trylock(&g_uvm_global.pm.lock);
}

void uvm_seam_pm_unlock(void)
{
	uvm_up_read(&g_uvm_global.pm.lock);
}

void uvm_seam_sleep(__u64 us)
{
	fsleep(us);
}

bool uvm_seam_rest(void)
{
	cond_resched();
	return fatal_signal_pending(current);
}
