// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A GPU comes, goes and comes again while PMA has chunks of it evicted: upstream unregisters
 * PMA's callbacks only after it has told us that the GPU is gone. What runs is the driver's own
 * uvm_rust_gpu.c and uvm_rust_evict.c; here are Rust, whose objects know whether they are alive,
 * and locks.
 */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* --- locks ------------------------------------------------------------------------- */

void uvm_spin_lock(uvm_spinlock_t *lock)
{
	if (!lock->ready)
		explore_wrong("a lock is taken that was not made yet");
	explore_point();
	while (lock->held)
		explore_wait(&lock->held);
	lock->held = true;
	lock->holder = explore_self();
}

void uvm_spin_unlock(uvm_spinlock_t *lock)
{
	uvm_assert_spinlock_locked(lock);
	lock->held = false;
}

void uvm_assert_spinlock_locked(const uvm_spinlock_t *lock)
{
	if (!lock->held || lock->holder != explore_self())
		explore_wrong("a lock is not held");
}

/* --- Rust ---------------------------------------------------------------------------- */

#define OBJECTS 16

struct object {
	bool alive;
};

static struct object objects[OBJECTS];
static int made, alive;
/* How many objects there is memory for; less than none: for all. */
static int memory_for = -1;

static void *make(void)
{
	struct object *object = &objects[made++];

	if (!memory_for)
		return NULL;
	if (memory_for > 0)
		memory_for--;
	object->alive = true;
	alive++;
	return object;
}

/* It takes a while, in which it is not what it was. */
static void destroy(void *made_by_make)
{
	struct object *object = made_by_make;

	if (!object->alive)
		explore_wrong("it was destroyed before");
	object->alive = false;
	alive--;
	explore_point();
}

static void use(const void *made_by_make)
{
	const struct object *object = made_by_make;

	if (!object->alive)
		explore_wrong("used after it was destroyed");
	explore_point();
	if (!object->alive)
		explore_wrong("destroyed while it is used");
}

/* What stands in the place of each GPU. */
static struct object *places[UVM_ID_MAX_GPUS];
static uvm_gpu_t gpu;

static struct dentry *the_file;

struct uvm_rust_gpu *uvm_rust_gpu_create(__u32 index, __u32 root_chunks, bool counted, const char *address)
{
	void *object = make();

	if (object)
		the_file = uvm_seam_gpu_file(index);
	return object;
}

void uvm_rust_gpu_destroy(struct uvm_rust_gpu *state)
{
	uvm_seam_gpu_file_remove(the_file);
	the_file = NULL;
	destroy(state);
}

bool uvm_rust_gpu_is_known(__u32 index) { return places[index]; }

struct uvm_rust_gpu *uvm_rust_gpu_install(__u32 index, struct uvm_rust_gpu *state)
{
	void *before = places[index];

	uvm_assert_spinlock_locked(&gpu.pmm.list_lock);
	places[index] = (void *)state;
	return before;
}

static void find_and_use(__u32 index)
{
	uvm_assert_spinlock_locked(&gpu.pmm.list_lock);
	if (places[index])
		use(places[index]);
}

void uvm_rust_gpu_show(__u32 index, struct seq_file *seq) { use(places[index]); }
void uvm_rust_chunk_leaves(__u32 index, __u32 root_index, bool is_free, uvm_gpu_t *of) { find_and_use(index); }
static __u32 queued_on, queued, queued_to;

void uvm_rust_queues_set(__u32 index, __u32 chunk, __u32 queue, __u64 holder)
{
	find_and_use(index);
	queued_on = index;
	queued = chunk;
	queued_to = queue;
}



/* --- upstream, and Linux ----------------------------------------------------------------- */

NV_STATUS uvm_perf_heuristics_add_gpu__c(uvm_gpu_t *gpu) { return NV_OK; }
void uvm_perf_heuristics_remove_gpu__c(uvm_gpu_t *gpu) { }
void uvm_pmm_gpu_mark_root_chunk_used__c(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { }
void uvm_pmm_gpu_mark_root_chunk_unused__c(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { }
void uvm_pmm_gpu_mark_chunk_evicted__c(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { }
uvm_gpu_t *uvm_va_space_get_gpu_by_uuid(uvm_va_space_t *space, const NvProcessorUuid *uuid) { return NULL; }
struct list_head *uvm_rust_free_list(uvm_pmm_gpu_t *pmm, bool zeroed) { return NULL; }
struct dentry *uvm_rust_debug_dir;

static struct dentry file;

struct dentry *debugfs_create_file(const char *name, unsigned int mode, struct dentry *parent, void *data,
				   const void *fops)
{
	if (strcmp(name, "gpu-1") || data != (void *)0 || mode != 0400)
		explore_wrong("its file has another name, or shows another GPU");
	file.data = &file;
	return &file;
}

void debugfs_remove(struct dentry *removed)
{
	if (removed)
		removed->data = NULL;
}

/* --- what is run ------------------------------------------------------------------------- */

static struct uvm_parent_gpu parent;

void nv_kthread_q_flush(nv_kthread_q_t *q)
{
	if (!q->ready)
		explore_wrong("a thread is waited for that was not made");
	if (q->waiting && !places[uvm_id_gpu_index(gpu.id)])
		explore_wrong("the queues do not learn of chunks that are freed");
	explore_point();
	q->waiting = 0;
}

static void begin(void)
{
	memset(objects, 0, sizeof(objects));
	memset(places, 0, sizeof(places));
	made = alive = 0;
	parent = (struct uvm_parent_gpu){ .lazy_free_q.ready = true };
	gpu = (uvm_gpu_t){ .id.val = 1, .pmm.list_lock.ready = true, .pmm.root_chunks.count = 8,
			   .pmm.initialized = true, .parent = &parent };
	gpu.pmm.root_chunks.va_block_used.next = &gpu.pmm.root_chunks.va_block_used;
	gpu.pmm.root_chunks.va_block_unused.next = &gpu.pmm.root_chunks.va_block_unused;
	if (uvm_perf_heuristics_add_gpu(&gpu) != NV_OK)
		explore_wrong("the GPU did not come");
}

static void end(void)
{
	uvm_perf_heuristics_remove_gpu(&gpu);
	if (alive || file.data)
		explore_wrong("something of the GPU is left");
}

static void evict(void)
{
	uvm_gpu_chunk_t chunk = { .address = 3 * UVM_CHUNK_SIZE_MAX, .state = UVM_PMM_GPU_CHUNK_STATE_ALLOCATED };

	uvm_spin_lock(&gpu.pmm.list_lock);
	uvm_rust_chunk_start_eviction(&gpu.pmm, &chunk);
	uvm_spin_unlock(&gpu.pmm.list_lock);
}

static void go_and_come(void)
{
	uvm_perf_heuristics_remove_gpu(&gpu);
	if (uvm_perf_heuristics_add_gpu(&gpu) != NV_OK)
		explore_wrong("the GPU did not come back");
}

static const char *evictions(unsigned long *orders)
{
	const struct explore what = { .begin = begin, .end = end, .threads = { evict, go_and_come, evict } };
	const char *why;

	*orders = explore(&what, &why);
	return why;
}

/* Upstream calls us for a GPU whose coming failed, too, and before there is a PMM of it. */
static void nothing(void)
{
}

static void never_came(void)
{
	parent = (struct uvm_parent_gpu){};
	gpu = (uvm_gpu_t){ .id.val = 2, .parent = &parent };
	uvm_perf_heuristics_remove_gpu(&gpu);
}

/* Upstream asserts soon after that no chunk is left, and does not wait for them before. */
static void frees_lazily(void)
{
	begin();
	parent.lazy_free_q.waiting = 3;
	end();
	if (parent.lazy_free_q.waiting)
		explore_wrong("chunks wait to be freed");
}

static void came_half_way(void)
{
	begin();
	end();
	memory_for = 0;
	if (uvm_perf_heuristics_add_gpu(&gpu) == NV_OK)
		explore_wrong("it came without memory");
	memory_for = -1;
	uvm_perf_heuristics_remove_gpu(&gpu);
	if (alive)
		explore_wrong("something of the GPU is left");
}

/* A GPU that shares the host's memory has none of its own, and PMA nothing to say. */
static void has_no_memory(void)
{
	const struct uvm_pma_stats stats = { .numFreePages2m = 5 };

	gpu = (uvm_gpu_t){ .id.val = 1, .pmm.pma_stats = &stats };
	if (uvm_seam_pma_free(&gpu) != 5)
		explore_wrong("PMA's number is another");
	gpu.pmm.pma_stats = NULL;
	if (uvm_seam_pma_free(&gpu) != 0)
		explore_wrong("chunks of no memory");
}

/* The first chunk of a va_block on a GPU, by the number of that among memories. */
static uvm_va_block_gpu_state_t on_gpu;
uvm_gpu_id_t uvm_gpu_id_from_index(NvU32 index) { return (uvm_gpu_id_t){ index + 1 }; }
uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id) { return id.val == gpu.id.val ? &gpu : NULL; }
uvm_va_block_gpu_state_t *uvm_va_block_gpu_state_get(uvm_va_block_t *block, uvm_gpu_id_t id) { return &on_gpu; }

static void is_discarded(void)
{
	uvm_gpu_chunk_t chunk = { .address = 3 * UVM_CHUNK_SIZE_MAX };

	begin();
	on_gpu.chunks[0] = &chunk;
	uvm_seam_discard_requeue(NULL, NULL, UVM_RUST_MEMORY_GPU(0), UVM_RUST_QUEUE_DISCARDED);
	if (queued_on != 0 || queued != 3 || queued_to != UVM_RUST_QUEUE_DISCARDED)
		explore_wrong("another chunk was queued, or elsewhere");
	uvm_seam_discard_requeue(NULL, NULL, UVM_RUST_MEMORY_GPU(0), UVM_RUST_QUEUE_USED);
	if (queued_on != 0 || queued != 3 || queued_to != UVM_RUST_QUEUE_USED)
		explore_wrong("what is live again is queued elsewhere");
	end();
}

static const char *alone(void (*thread)(void), unsigned long *orders)
{
	const struct explore what = { .begin = nothing, .end = nothing, .threads = { thread } };
	const char *why;

	*orders = explore(&what, &why);
	return why;
}

static int tests, failed;

static void say(const char *name, const char *why, unsigned long orders)
{
	failed |= why != NULL;
	if (why)
		printf("not ok %d - seam: %s # %s, in order %lu\n", ++tests, name, why, orders);
	else
		printf("ok %d - seam: %s # %lu orders\n", ++tests, name, orders);
}

int main(void)
{
	unsigned long orders;
	const char *why;

	printf("TAP version 13\n1..%d\n", 6 + NOTIFIER_TESTS);
	why = evictions(&orders);
	say("a GPU goes and comes again while its chunks are evicted", why, orders);
	why = alone(never_came, &orders);
	say("a GPU goes that never had a PMM", why, orders);
	why = alone(came_half_way, &orders);
	say("a GPU goes that came half-way", why, orders);
	why = alone(has_no_memory, &orders);
	say("a GPU without memory of its own has no free chunks", why, orders);
	why = alone(frees_lazily, &orders);
	say("a GPU's chunks that are freed lazily are free before it goes", why, orders);
	why = alone(is_discarded, &orders);
	say("a chunk whose block is discarded is queued as such", why, orders);
	return failed | notifier_tests(tests + 1);
}
