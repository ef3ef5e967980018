// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What an allocation of a chunk says that found no memory: uvm_rust_pmm_gpu.h as it is, between upstream and Rust, which
 * are here. From 580.142 on upstream says that it is to be called again, at once, and its callers call until it says
 * something else.
 */
#define SEAM_CHUNK_FIELDS	int type; bool is_zero; void *parent;
#include "shim.h"

/* What is in front of upstream's file besides is not asked for here. */
#define UVM_RUST_PMM_FIXES_H
#define ENOENT			2
#define ERR_PTR(error)		((void *)(intptr_t)(error))
#define likely(x)		(x)
#define WARN_ON_ONCE(x)		((void)(x))
#define PF_MEMALLOC		0x800
#undef current
#define current			(&(struct { unsigned int flags; }){ thread_flags })
static unsigned int thread_flags;

enum { UVM_PMM_GPU_CHUNK_STATE_IS_SPLIT = 7 };
typedef enum { UVM_PMM_GPU_MEMORY_TYPE_USER, UVM_PMM_GPU_MEMORY_TYPE_KERNEL } uvm_pmm_gpu_memory_type_t;
#define uvm_pmm_gpu_memory_type_is_user(type)	((type) == UVM_PMM_GPU_MEMORY_TYPE_USER)
typedef NvU32 uvm_chunk_size_t;
typedef enum { UVM_PMM_ALLOC_FLAGS_NONE, UVM_PMM_ALLOC_FLAGS_EVICT } uvm_pmm_alloc_flags_t;
typedef enum { UVM_PMM_LIST_NO_ZERO, UVM_PMM_LIST_ZERO } uvm_pmm_list_zero_t;
typedef __typeof__(*((uvm_pmm_gpu_t *)0)->root_chunks.array) uvm_gpu_root_chunk_t;

bool uvm_rust_evict = true;
static bool uvm_rust_may_be_pinned;

#include "uvm_rust_pmm_gpu.h"

static struct list_head *find_free_list(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type, uvm_chunk_size_t chunk_size,
					uvm_pmm_list_zero_t zero_type) { return NULL; }
static bool chunk_is_root_chunk_pinned(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { return false; }
static bool chunk_is_evictable(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { return true; }
static void chunk_start_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { }
void uvm_spin_lock(uvm_spinlock_t *lock) { }
void uvm_spin_unlock(uvm_spinlock_t *lock) { }
void uvm_rust_queues_change(__u32 gpu, __u32 chunk, __u32 change, __u64 holder) { }
void uvm_rust_queues_set(__u32 gpu, __u32 chunk, __u32 queue, __u64 holder) { }
bool uvm_rust_chunk_is_leaving(__u32 gpu, __u32 chunk) { return false; }
__u32 uvm_rust_queues_choose(__u32 gpu, uvm_gpu_t *of, struct uvm_seam_space *space) { return UVM_RUST_NO_CHUNK; }
bool uvm_rust_gpu_is_known(__u32 index) { return true; }

/* What upstream says, first and then; whether the thread guesses; what the wait comes to; how many tries evict. */
static NV_STATUS says, says_then, waited;
static bool guesses;
static int tries, evicting, waits;

static NV_STATUS alloc_chunk(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type, uvm_chunk_size_t chunk_size,
			     uvm_pmm_alloc_flags_t flags, uvm_gpu_chunk_t **chunk)
{
	evicting += flags == UVM_PMM_ALLOC_FLAGS_EVICT;
	return tries++ ? says_then : says;
}

__u32 uvm_rust_reclaim_begin(__u32 gpu, __u64 thread) { return 5; }
bool uvm_rust_guesses(__u64 thread) { return guesses; }

__u32 uvm_rust_wait_for_memory(struct uvm_seam_alloc *alloc, __u32 gpu, __u64 thread, __u32 gains)
{
	bool got = true;

	waits += gains == 5 && uvm_seam_alloc_try(alloc, true, &got) == NV_OK && !got;
	return waited;
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - an allocation: %s\n", holds ? "ok" : "not ok", ++number, name);
}

static NV_STATUS allocate(NV_STATUS first, NV_STATUS then, bool guess, uvm_pmm_alloc_flags_t flags)
{
	static uvm_gpu_t gpu = { .id = { 1 } };
	uvm_gpu_chunk_t *chunk = NULL;

	says = first;
	says_then = then;
	guesses = guess;
	tries = evicting = waits = 0;
	return uvm_rust_alloc_chunk(&gpu.pmm, UVM_PMM_GPU_MEMORY_TYPE_USER, UVM_CHUNK_SIZE_MAX, flags, &chunk);
}

int main(void)
{
	const uvm_pmm_alloc_flags_t evict = UVM_PMM_ALLOC_FLAGS_EVICT;
	const NV_STATUS again = NV_ERR_MORE_PROCESSING_REQUIRED, none = NV_ERR_NO_MEMORY;

	printf("TAP version 13\n");
	say("what is found at once is not waited for", allocate(NV_OK, NV_OK, false, evict) == NV_OK && tries == 1 && !waits);
	waited = none;
	say("where memory is still on its way, who needs it is told to call again",
	    allocate(none, again, false, evict) == again && waits == 1 && evicting == 2);
	say("or that there is none, as upstream said last", allocate(again, none, false, evict) == none && waits == 1);
	say("who guesses is told that there is none, and so does not call again at once",
	    allocate(again, again, true, evict) == none && waits == 1);
	waited = NV_OK;
	say("memory that came meanwhile is memory", allocate(again, none, true, evict) == NV_OK);
	waited = NV_ERR_INVALID_DEVICE;
	say("and what goes wrong goes wrong", allocate(again, again, false, evict) == NV_ERR_INVALID_DEVICE);
	say("who may not evict does not wait",
	    allocate(again, again, false, UVM_PMM_ALLOC_FLAGS_NONE) == again && tries == 1 && !waits);
	thread_flags = PF_MEMALLOC;
	say("nor does who frees memory of Linux's", allocate(none, again, false, evict) == none && tries == 1 && !waits);
	printf("1..%d\n", number);
	return failed;
}
