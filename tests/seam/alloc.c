// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What Rust is told of an allocation of a chunk, and what upstream is asked for: uvm_rust_pmm_gpu.h as it is, between
 * upstream and Rust, which are here. Who waits for memory, and what the caller hears, is Rust's (policy/evict/wait.rs).
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

/* What upstream says, and what it was asked for; what Rust was told, and what it says. */
static NV_STATUS says, answer;
static int asked_type, asked_flags, tries;
static bool evicts, for_users, frees, tries_to_evict;

static NV_STATUS alloc_chunk(uvm_pmm_gpu_t *pmm, uvm_pmm_gpu_memory_type_t type, uvm_chunk_size_t chunk_size,
			     uvm_pmm_alloc_flags_t flags, uvm_gpu_chunk_t **chunk)
{
	asked_type = type;
	asked_flags = flags;
	tries++;
	if (chunk_size == UVM_CHUNK_SIZE_MAX && pmm->root_chunks.count == 7)
		*chunk = (uvm_gpu_chunk_t *)&says;
	return says;
}

/* What Rust is: it tries once, and then says what it likes. */
__u32 uvm_rust_alloc(struct uvm_seam_alloc *alloc, __u32 gpu, __u64 thread, bool may_evict, bool of_users, bool of_who_frees)
{
	evicts = may_evict;
	for_users = of_users;
	frees = of_who_frees;
	answer = uvm_seam_alloc_try(alloc, tries_to_evict);
	return gpu == 0 && thread ? NV_ERR_INVALID_DEVICE : NV_OK;
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - an allocation: %s\n", holds ? "ok" : "not ok", ++number, name);
}

/* Whether all that upstream and Rust are told of an allocation is so. */
static bool allocates(uvm_pmm_gpu_memory_type_t type, uvm_pmm_alloc_flags_t flags, bool to_evict)
{
	static uvm_gpu_t gpu = { .id = { 1 }, .pmm.root_chunks.count = 7 };
	uvm_gpu_chunk_t *chunk = NULL;
	NV_STATUS status;

	tries = 0;
	tries_to_evict = to_evict;
	status = uvm_rust_alloc_chunk(&gpu.pmm, type, UVM_CHUNK_SIZE_MAX, flags, &chunk);
	return status == NV_ERR_INVALID_DEVICE && tries == 1 && chunk == (void *)&says && asked_type == (int)type &&
	       evicts == (flags == UVM_PMM_ALLOC_FLAGS_EVICT) && for_users == (type == UVM_PMM_GPU_MEMORY_TYPE_USER);
}

int main(void)
{
	const uvm_pmm_gpu_memory_type_t user = UVM_PMM_GPU_MEMORY_TYPE_USER, kernel = UVM_PMM_GPU_MEMORY_TYPE_KERNEL;
	const uvm_pmm_alloc_flags_t none = UVM_PMM_ALLOC_FLAGS_NONE, evict = UVM_PMM_ALLOC_FLAGS_EVICT;

	printf("TAP version 13\n");
	says = NV_ERR_MORE_PROCESSING_REQUIRED;
	say("is Rust's to try and to answer, and evicts as its caller said",
	    allocates(user, evict, true) && asked_flags == evict && !frees);
	say("Rust hears what upstream says", answer == NV_ERR_MORE_PROCESSING_REQUIRED);
	says = NV_OK;
	say("nothing is evicted if Rust says so", allocates(user, evict, false) && asked_flags == none && answer == NV_OK);
	say("or if the caller does", allocates(user, none, true) && asked_flags == none);
	say("the kernel's own memory is told from programs'", allocates(kernel, evict, true) && asked_flags == evict);
	thread_flags = PF_MEMALLOC;
	say("and who frees memory of Linux's from others", allocates(user, evict, true) && frees);
	printf("1..%d\n", number);
	return failed;
}
