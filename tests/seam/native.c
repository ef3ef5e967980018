// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The files for an upstream that discards by itself, uvm_rust_native.c and uvm_rust_seam.c, as
 * they are: the discard of a range, and the events that it sends without a va_block.
 */
#include <string.h>

#include "native.h"

/* --- what is not looked at ------------------------------------------------------------ */

struct user_namespace *test_user_ns;
struct uvm_global g_uvm_global;

bool ns_capable_noaudit(struct user_namespace *ns, int capability) { return false; }
void fsleep(unsigned long us) { }
int rwsem_is_contended(struct rw_semaphore *sem) { return sem->waiters; }
struct dentry *debugfs_create_dir(const char *name, struct dentry *parent) { return NULL; }
struct dentry *debugfs_create_file(const char *name, unsigned int mode, struct dentry *parent, void *data,
				   const void *fops) { return NULL; }
void debugfs_remove(struct dentry *file) { }
uvm_gpu_id_t uvm_gpu_id_from_index(NvU32 index) { return (uvm_gpu_id_t){ index + 1 }; }

void uvm_mutex_lock(uvm_mutex_t *lock) { }
void uvm_mutex_unlock(uvm_mutex_t *lock) { }
void uvm_spin_lock(uvm_spinlock_t *lock) { }
void uvm_spin_unlock(uvm_spinlock_t *lock) { }
/* What was locked and let go, a letter each, in order. */
static char did[16];

static void note(const char *what)
{
	if (strlen(did) < sizeof(did) - 1)
		strcat(did, what);
}

static struct mm_struct *const the_mm = (struct mm_struct *)&did;
void uvm_va_space_down_read(uvm_va_space_t *va_space) { note("d"); }
void uvm_va_space_up_read(uvm_va_space_t *va_space) { note("u"); }
void uvm_up_read(uvm_rw_semaphore_t *lock) { note("P"); }

bool uvm_down_read_trylock(uvm_rw_semaphore_t *lock)
{
	note(lock->sem.waiters ? "w" : "p");
	return !lock->sem.waiters;
}

struct mm_struct *uvm_va_space_mm_or_current_retain(uvm_va_space_t *va_space)
{
	note("k");
	return the_mm;
}

/* For a thread without an mm, which none is here; its VA space has none that lives. */
struct mm_struct *uvm_va_space_mm_retain(uvm_va_space_t *va_space)
{
	note("?");
	return NULL;
}

void uvm_record_lock_mmap_lock_read(struct mm_struct *mm) { note(mm == the_mm ? "r" : "?"); }

static bool mm_is_taken;
int mmap_read_lock_killable(struct mm_struct *mm)
{
	note("m");
	return mm_is_taken ? -1 : 0;
}

bool mmap_read_trylock(struct mm_struct *mm)
{
	note("t");
	return !mm_is_taken;
}

void uvm_va_space_mm_or_current_release(uvm_va_space_t *va_space, struct mm_struct *mm)
{
	note(mm == the_mm ? "K" : mm ? "?" : "");
}

void uvm_va_space_mm_or_current_release_unlock(uvm_va_space_t *va_space, struct mm_struct *mm)
{
	note(mm == the_mm ? "MK" : mm ? "?" : "");
}

uvm_va_space_t *uvm_fd_va_space(struct file *file) { return NULL; }
NV_STATUS uvm_global_get_status(void) { return NV_OK; }
static bool cannot_fault;
bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space) { return cannot_fault; }

void uvm_parent_gpu_service_replayable_faults__c(uvm_parent_gpu_t *parent_gpu) { }
NV_STATUS uvm_perf_heuristics_init__c(void) { return NV_OK; }
void uvm_perf_heuristics_exit__c(void) { }
NV_STATUS uvm_perf_heuristics_load__c(uvm_va_space_t *va_space) { return NV_OK; }
void uvm_perf_heuristics_stop__c(uvm_va_space_t *va_space) { }
void uvm_perf_heuristics_unload__c(uvm_va_space_t *va_space) { }
void uvm_perf_heuristics_register_gpu__c(uvm_va_space_t *va_space, uvm_gpu_t *gpu) { }

void nv_kthread_q_flush(nv_kthread_q_t *q) { }
NV_STATUS uvm_perf_heuristics_add_gpu__c(uvm_gpu_t *gpu) { return NV_OK; }
void uvm_perf_heuristics_remove_gpu__c(uvm_gpu_t *gpu) { }
struct uvm_rust_gpu *uvm_rust_gpu_create(__u32 index, __u32 root_chunks, bool counted, const char *address) { return NULL; }
void uvm_rust_gpu_destroy(struct uvm_rust_gpu *gpu) { }
struct uvm_rust_gpu *uvm_rust_gpu_install(__u32 index, struct uvm_rust_gpu *gpu) { return NULL; }
bool uvm_rust_gpu_is_known(__u32 index) { return false; }
void uvm_rust_gpu_show(__u32 index, struct seq_file *seq) { }
void uvm_rust_note_served(__u32 gpu_index, __u64 replays) { }
void uvm_rust_note_fault(struct uvm_rust_space *space, __u32 gpu_index, __u32 batch, __u64 instances, __u64 duplicates) { }
void uvm_rust_space_show(struct uvm_rust_space *space, struct seq_file *seq) { }
void uvm_rust_space_add_gpu(struct uvm_rust_space *space, uvm_gpu_t *of, __u32 gpu_index) { }

/* --- a discard of a range ------------------------------------------------------------------ */

static uvm_va_range_managed_t managed = { .va_range = { .type = UVM_VA_RANGE_TYPE_MANAGED, .node = { 0x1000, 0x2fff } } };
static bool integrated;
static NvU64 discarded_from, discarded_to, flagged;

static uvm_api_range_type_t type;

uvm_api_range_type_t uvm_api_range_type_check(uvm_va_space_t *va_space, struct mm_struct *mm, NvU64 base,
					      NvU64 length)
{
	return mm == the_mm && base == 7 && length == 8 ? type : UVM_API_RANGE_TYPE_INVALID;
}

bool uvm_va_space_has_integrated_gpu(uvm_va_space_t *va_space) { return integrated; }

uvm_va_range_t *uvm_va_space_iter_first(uvm_va_space_t *va_space, NvU64 start, NvU64 end)
{
	return start <= managed.va_range.node.end && end >= managed.va_range.node.start ? &managed.va_range : NULL;
}

NV_STATUS uvm_va_range_discard(uvm_va_range_managed_t *range, uvm_va_block_context_t *context, NvU64 start, NvU64 end,
			       NvU64 flags)
{
	discarded_from = range == &managed ? start : 0;
	discarded_to = end;
	flagged = flags;
	return NV_ERR_INVALID_DEVICE;
}

void cond_resched(void) { }
bool fatal_signal_pending(void *task) { return true; }
void uvm_rust_on_any_node(uvm_va_block_context_t *context) { }

struct uvm_va_block_context_struct {
	struct mm_struct *mm;
};
static uvm_va_block_context_t the_context;
static bool no_memory;

uvm_va_block_context_t *uvm_va_block_context_alloc(struct mm_struct *mm)
{
	the_context.mm = mm;
	return no_memory ? NULL : &the_context;
}

void uvm_va_block_context_free(uvm_va_block_context_t *context) { context->mm = NULL; }

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - seam of 580: %s\n", holds ? "ok" : "not ok", ++number, name);
}

static NV_STATUS discard(__u64 at, __u64 *last, bool eager)
{
	static uvm_va_space_t va_space;

	return uvm_seam_native_discard((struct uvm_seam_space *)&va_space, NULL, at, eager, last);
}

static void discard_tests(void)
{
	__u64 last = 0x5fff;

	say("a discard ends with its range, and says what upstream says",
	    discard(0x2000, &last, true) == NV_ERR_INVALID_DEVICE && last == 0x2fff && discarded_from == 0x2000 &&
	    discarded_to == 0x2fff && flagged == UVM_DISCARD_FLAGS_UNMAP);
	last = 0x1fff;
	say("or where it is to end", discard(0x1000, &last, false) == NV_ERR_INVALID_DEVICE && last == 0x1fff &&
	    discarded_to == 0x1fff && !flagged);
	managed.va_range.type++;
	say("it is for managed memory only", discard(0x1000, &last, false) == NV_ERR_INVALID_ADDRESS &&
	    discard(0x3000, &last, false) == NV_ERR_INVALID_ADDRESS);
	managed.va_range.type--;
	integrated = true;
	discarded_to = 0;
	last = 0x5fff;
	say("nothing is done where the GPU has no memory of its own",
	    discard(0x1000, &last, false) == NV_WARN_NOTHING_TO_DO && last == 0x2fff && !discarded_to);
	say("who is to die is told so", uvm_seam_rest());
}

/* --- an event without a va_block ---------------------------------------------------------- */

static uvm_perf_event_callback_t callbacks[UVM_PERF_EVENT_COUNT];
static int counted_for, no_block;
static __u64 counted, counted_at;

NV_STATUS uvm_perf_register_event_callback(void *events, uvm_perf_event_t event, uvm_perf_event_callback_t callback)
{
	callbacks[event] = callback;
	return NV_OK;
}

void uvm_perf_unregister_event_callback(void *events, uvm_perf_event_t event, uvm_perf_event_callback_t callback)
{
	callbacks[event] = NULL;
}

/* What Rust has of a VA space. */
struct uvm_rust_space {
	int nothing;
};
static struct uvm_rust_space state;

struct uvm_rust_space *uvm_rust_space_create(struct uvm_seam_space *of, __u32 pid, __u32 gpus)
{
	return &state;
}

void uvm_rust_space_destroy(struct uvm_rust_space *space)
{
}

void uvm_rust_note_copy(struct uvm_rust_space *space, __u32 dst, __u32 src, __u32 cause, __u64 address, __u64 bytes)
{
	counted_for += space == &state;
	counted += bytes;
	counted_at = address;
}

void uvm_rust_show_fdinfo(struct seq_file *seq, struct file *filp)
{
}

static uvm_va_space_t nobody;

uvm_va_space_t *uvm_va_block_get_va_space(uvm_va_block_t *block)
{
	no_block += !block;
	return block ? block->va_space : &nobody;
}

/* With ATS, pages move that no va_block has; the event says so by NULL. */
static void event_tests(void)
{
	uvm_va_space_t va_space = { .perf_events.va_space = &va_space };
	uvm_va_block_t block = { .va_space = &va_space };
	uvm_perf_event_data_t data = { .migration = { .dst.val = 1, .address = 0x7000, .bytes = 4096 } };
	NV_STATUS status = uvm_perf_heuristics_load(&va_space);
	bool holds = status == NV_OK && callbacks[UVM_PERF_EVENT_MIGRATION];

	if (holds)
		callbacks[UVM_PERF_EVENT_MIGRATION](&va_space, UVM_PERF_EVENT_MIGRATION, &data);
	say("a migration without a va_block is counted for the event's VA space",
	    holds && counted_for == 1 && counted == 4096 && counted_at == 0x7000 && !no_block);
	data.migration.block = &block;
	if (holds)
		callbacks[UVM_PERF_EVENT_MIGRATION](&va_space, UVM_PERF_EVENT_MIGRATION, &data);
	say("as is one with a va_block", holds && counted_for == 2 && counted == 8192);
	uvm_perf_heuristics_unload(&va_space);
	say("and none once the VA space is gone", !callbacks[UVM_PERF_EVENT_MIGRATION] && !va_space.uvm_rust);
}

/* --- upstream's lists --------------------------------------------------------------------- */

static uvm_gpu_t gpu;
static __u32 left;

uvm_gpu_t *uvm_va_space_get_gpu_by_uuid(uvm_va_space_t *space, const NvProcessorUuid *uuid) { return &gpu; }
static struct list_head free_lists[2];
struct list_head *uvm_rust_free_list(uvm_pmm_gpu_t *pmm, bool zeroed) { return &free_lists[zeroed]; }

/* As Rust does it. */
void uvm_rust_chunk_leaves(__u32 index, __u32 root_index, bool is_free, uvm_gpu_t *of)
{
	left = is_free ? UVM_RUST_QUEUE_FREE : UVM_RUST_QUEUE_USED;
	while (left > UVM_RUST_QUEUE_FREE && uvm_seam_list_next(of, left, UVM_RUST_NO_CHUNK) != root_index)
		left--;
	if (!is_free && left == UVM_RUST_QUEUE_FREE)
		left = UVM_RUST_QUEUE_ADDRESS;
}

/* The chunks on a list, a digit each. */
static __u32 listed(__u32 list)
{
	__u32 chunk = UVM_RUST_NO_CHUNK, all = 0;

	while ((chunk = uvm_seam_list_next(&gpu, list, chunk)) != UVM_RUST_NO_CHUNK)
		all = all * 10 + chunk;
	return all;
}

static void chain(struct list_head *list, uvm_gpu_chunk_t *chunks, int length)
{
	list->next = list->prev = list;
	while (length--) {
		chunks[length].list = (struct list_head){ .next = list->next, .prev = list };
		list->next = &chunks[length].list;
	}
}

static __u32 leaves(uvm_gpu_chunk_t *chunk)
{
	uvm_rust_chunk_start_eviction(&gpu.pmm, chunk);
	return left;
}

static void list_tests(void)
{
	uvm_gpu_chunk_t chunks[9] = {};
	int i;

	for (i = 0; i < 9; i++) {
		chunks[i].state = UVM_PMM_GPU_CHUNK_STATE_ALLOCATED;
		chunks[i].address = i * UVM_CHUNK_SIZE_MAX;
	}
	gpu.id.val = 1;
	gpu.pmm.root_chunks.array = (void *)chunks;
	chain(&gpu.pmm.root_chunks.va_block_unused, &chunks[0], 1);
	chain(&gpu.pmm.root_chunks.va_block_discarded, &chunks[1], 2);
	chain(&gpu.pmm.root_chunks.va_block_used, &chunks[3], 3);
	chain(&free_lists[false], &chunks[6], 2);
	chain(&free_lists[true], &chunks[8], 1);
	say("a chunk leaves the list that it is the first of, or was asked for by address",
	    leaves(&chunks[0]) == UVM_RUST_QUEUE_UNUSED && leaves(&chunks[1]) == UVM_RUST_QUEUE_DISCARDED &&
	    leaves(&chunks[3]) == UVM_RUST_QUEUE_USED && leaves(&chunks[4]) == UVM_RUST_QUEUE_ADDRESS);
	chunks[4].state = UVM_PMM_GPU_CHUNK_STATE_FREE;
	say("a free one leaves none of them", leaves(&chunks[4]) == UVM_RUST_QUEUE_FREE);
	say("each list has its chunks, in order", listed(UVM_RUST_QUEUE_FREE) == 67 && listed(UVM_RUST_LIST_ZEROED) == 8 &&
	    listed(UVM_RUST_QUEUE_DISCARDED) == 12 && listed(UVM_RUST_QUEUE_USED) == 345);
	chain(&gpu.pmm.root_chunks.va_block_unused, NULL, 0);
	say("an empty one has none",
	    uvm_seam_list_next(&gpu, UVM_RUST_QUEUE_UNUSED, UVM_RUST_NO_CHUNK) == UVM_RUST_NO_CHUNK);
}

/* --- an eviction ---------------------------------------------------------------------------- */

static NV_STATUS eviction_ends;
static __u64 told_of;

__u64 uvm_rust_note_evicted(struct uvm_rust_space *space, __u32 gpu_index, __u32 root_index, __u64 address)
{
	note("n");
	told_of = address;
	return root_index + 70;
}

NV_STATUS uvm_va_block_evict_chunks__c(uvm_va_block_t *block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk,
				       uvm_tracker_t *tracker)
{
	note("c");
	return eviction_ends;
}

void uvm_rust_evicted(struct uvm_rust_space *space, __u32 gpu_index, __u32 root_index, __u64 address, __u64 before,
		      __u32 status)
{
	note("t");
	told_of = status == eviction_ends && before == root_index + 70 && told_of == address ? address : 0;
}

static void eviction_tests(void)
{
	uvm_va_space_t va_space = { .uvm_rust = (struct uvm_rust_space *)&did };
	uvm_va_block_t block = { .va_space = &va_space, .start = 0x400000 };
	uvm_gpu_chunk_t chunk = { .address = 3 * UVM_CHUNK_SIZE_MAX };

	did[0] = 0;
	eviction_ends = NV_ERR_NO_MEMORY;
	say("an eviction is told of before and behind it, also one that fails",
	    uvm_va_block_evict_chunks(&block, &gpu, &chunk, NULL) == NV_ERR_NO_MEMORY && !strcmp(did, "nct") &&
	    told_of == block.start);
	did[0] = 0;
	eviction_ends = NV_OK;
	block.va_space = NULL;
	say("and that of a va_block without a VA space is not",
	    uvm_va_block_evict_chunks(&block, &gpu, &chunk, NULL) == NV_OK && !strcmp(did, "c"));
}

/* Inner locks are let go first. */
static void lock_tests(void)
{
	uvm_va_space_t va_space = {};
	struct uvm_seam_space *space = (struct uvm_seam_space *)&va_space;
	struct mm_struct *mm = NULL;

	did[0] = 0;
	if (!uvm_seam_mm_lock(space, true, &mm) || !uvm_seam_mm_lock(space, false, &mm) || mm != the_mm)
		note("wrong");
	uvm_seam_mm_unlock(space, mm);
	say("the lock of a process' memory is waited for or tried, and kept with that memory", !strcmp(did, "kmrktrMK"));
	did[0] = 0;
	mm_is_taken = true;
	if (uvm_seam_mm_lock(space, true, &mm) || uvm_seam_mm_lock(space, false, &mm))
		note("wrong");
	mm_is_taken = false;
	say("and who does not get it keeps nothing", !strcmp(did, "kmKktK"));
	did[0] = 0;
	uvm_seam_space_lock(space);
	uvm_seam_space_unlock(space);
	say("the lock of a VA space is another", !strcmp(did, "du"));
	g_uvm_global.pm.lock.sem.waiters = 1;
	did[0] = uvm_seam_suspends();
	g_uvm_global.pm.lock.sem.waiters = 0;
	say("who suspends waits for the lock of power management", did[0] == 1 && !uvm_seam_suspends());
	did[0] = 0;
	g_uvm_global.pm.lock.sem.waiters = 1;
	if (uvm_seam_pm_trylock())
		note("wrong");
	g_uvm_global.pm.lock.sem.waiters = 0;
	if (uvm_seam_pm_trylock())
		uvm_seam_pm_unlock();
	say("and nobody takes it who comes meanwhile", !strcmp(did, "wpP"));
}

/* What a discard asks of a VA space, whoever carries it out. */
static void space_tests(void)
{
	static const __u32 kinds[] = {
		[UVM_API_RANGE_TYPE_MANAGED] = UVM_RUST_KIND_MANAGED, [UVM_API_RANGE_TYPE_HMM] = UVM_RUST_KIND_HMM,
		[UVM_API_RANGE_TYPE_ATS] = UVM_RUST_KIND_ATS,
	};
	uvm_va_space_t va_space = {};
	struct uvm_seam_space *space = (struct uvm_seam_space *)&va_space;
	struct uvm_seam_context *context = uvm_seam_context_new(the_mm);
	bool holds = true;

	for (type = UVM_API_RANGE_TYPE_MANAGED; type < UVM_API_RANGE_TYPE_INVALID; type++)
		holds &= uvm_seam_range_kind(space, the_mm, 7, 8) == kinds[type];
	say("a range is of the kind that upstream says", holds && uvm_seam_range_kind(space, the_mm, 7, 9) > UVM_RUST_KIND_ATS);
	holds = context && the_context.mm == the_mm;
	uvm_seam_context_free(context);
	no_memory = true;
	say("a context is of a process' memory", holds && !the_context.mm && !uvm_seam_context_new(the_mm));
	holds = !uvm_seam_has_non_faultable(space);
	cannot_fault = true;
	say("a GPU that cannot fault is told of", holds && uvm_seam_has_non_faultable(space));
}

int main(void)
{
	printf("TAP version 13\n");
	discard_tests();
	event_tests();
	list_tests();
	eviction_tests();
	lock_tests();
	space_tests();
	printf("1..%d\n", number);
	return failed;
}
