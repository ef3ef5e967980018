/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Of upstream from 580 on, and of Linux, what uvm_rust_native.c and uvm_rust_seam.c use beyond
 * shim.h. uvm_rust_hooks.h and uvm_rust_on_events.h are the driver's own.
 */
#ifndef SEAM_NATIVE_H
#define SEAM_NATIVE_H

#include "shim.h"
#include "shim/linux/rwsem.h"

/* --- Linux ----------------------------------------------------------------------- */

#define CAP_SYS_ADMIN		21
#define BUILD_BUG_ON(wrong)	_Static_assert(!(wrong), #wrong)
#define list_for_each_entry(at, list, member)						\
	for ((at) = container_of((list)->next, __typeof__(*(at)), member);		\
	     &(at)->member != (list);							\
	     (at) = container_of((at)->member.next, __typeof__(*(at)), member))

struct file;
struct user_namespace;
extern struct user_namespace *test_user_ns;
#define init_user_ns		(*test_user_ns)
bool ns_capable_noaudit(struct user_namespace *ns, int capability);

void fsleep(unsigned long us);
struct dentry *debugfs_create_dir(const char *name, struct dentry *parent);

/* --- upstream -------------------------------------------------------------------- */

#define UVM_VA_BLOCK_SIZE	(2ull << 20)
#define UVM_ENTRY_RET(ret)	return (ret)
#define UVM_ENTRY_VOID(call)	((void)(call))

typedef struct { int unused; } uvm_mutex_t;
void uvm_mutex_lock(uvm_mutex_t *lock);
void uvm_mutex_unlock(uvm_mutex_t *lock);
void uvm_va_space_down_read(uvm_va_space_t *va_space);
void uvm_va_space_up_read(uvm_va_space_t *va_space);

typedef struct { struct rw_semaphore sem; } uvm_rw_semaphore_t;
int rwsem_is_contended(struct rw_semaphore *sem);
bool uvm_down_read_trylock(uvm_rw_semaphore_t *lock);
void uvm_up_read(uvm_rw_semaphore_t *lock);

struct uvm_global {
	struct {
		uvm_mutex_t lock;
		struct list_head list;
	} va_spaces;
	struct {
		uvm_rw_semaphore_t lock;
	} pm;
};
extern struct uvm_global g_uvm_global;
NV_STATUS uvm_global_get_status(void);

typedef struct uvm_tracker uvm_tracker_t;
typedef struct uvm_gpu_root_chunk uvm_gpu_root_chunk_t;
typedef struct { uint64_t words[8]; } uvm_page_mask_t;
typedef struct { NvU32 val; } uvm_parent_gpu_id_t;
typedef struct uvm_parent_gpu {
	uvm_gpu_t *gpus[1];
	struct { bool enabled; } smc;
	nv_kthread_q_t lazy_free_q;
	struct pci_dev *pci_dev;
	struct { struct { struct { NvU64 num_replays; } stats; } replayable; } fault_buffer;
} uvm_parent_gpu_t;
void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu);
NV_STATUS uvm_va_block_evict_chunks(uvm_va_block_t *va_block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk,
				    uvm_tracker_t *tracker);

uvm_va_space_t *uvm_fd_va_space(struct file *file);
struct mm_struct *uvm_va_space_mm_or_current_retain(uvm_va_space_t *va_space);
struct mm_struct *uvm_va_space_mm_retain(uvm_va_space_t *va_space);
int mmap_read_lock_killable(struct mm_struct *mm);
bool mmap_read_trylock(struct mm_struct *mm);
void uvm_record_lock_mmap_lock_read(struct mm_struct *mm);
void uvm_va_space_mm_or_current_release(uvm_va_space_t *va_space, struct mm_struct *mm);
void uvm_va_space_mm_or_current_release_unlock(uvm_va_space_t *va_space, struct mm_struct *mm);
bool uvm_va_space_has_integrated_gpu(uvm_va_space_t *va_space);
bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space);

NV_STATUS uvm_perf_heuristics_init(void);
void uvm_perf_heuristics_exit(void);
NV_STATUS uvm_perf_heuristics_load(uvm_va_space_t *va_space);
void uvm_perf_heuristics_stop(uvm_va_space_t *va_space);
void uvm_perf_heuristics_unload(uvm_va_space_t *va_space);
void uvm_perf_heuristics_register_gpu(uvm_va_space_t *va_space, uvm_gpu_t *gpu);

/* Ranges of managed memory, and their discard. */
enum { UVM_VA_RANGE_TYPE_MANAGED = 1 };
typedef struct {
	uvm_va_space_t *va_space;
	int type;
	struct { NvU64 start, end; } node;
} uvm_va_range_t;
typedef struct { NvU32 first, outer; } uvm_va_block_region_t;
typedef struct { uvm_va_range_t va_range; } uvm_va_range_managed_t;
#define UVM_DISCARD_FLAGS_UNMAP	1
#define uvm_va_range_to_managed(range)	container_of(range, uvm_va_range_managed_t, va_range)
uvm_va_range_t *uvm_va_space_iter_first(uvm_va_space_t *va_space, NvU64 start, NvU64 end);
void uvm_rust_on_any_node(uvm_va_block_context_t *context);
NV_STATUS uvm_va_range_discard(uvm_va_range_managed_t *range, uvm_va_block_context_t *context, NvU64 start, NvU64 end,
			       NvU64 flags);

/* Events: as much of them as is counted. */
typedef enum {
	UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT,
	UVM_MAKE_RESIDENT_CAUSE_NON_REPLAYABLE_FAULT,
	UVM_MAKE_RESIDENT_CAUSE_ACCESS_COUNTER,
	UVM_MAKE_RESIDENT_CAUSE_PREFETCH,
	UVM_MAKE_RESIDENT_CAUSE_EVICTION,
	UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE,
} uvm_make_resident_cause_t;
typedef struct {
	bool is_replayable;
	NvU32 num_instances;
} uvm_fault_buffer_entry_t;
typedef enum {
	UVM_PERF_EVENT_FAULT, UVM_PERF_EVENT_MIGRATION, UVM_PERF_EVENT_BLOCK_DESTROY, UVM_PERF_EVENT_RANGE_DESTROY, UVM_PERF_EVENT_COUNT,
} uvm_perf_event_t;
typedef union {
	struct {
		uvm_processor_id_t proc_id;
		struct {
			uvm_fault_buffer_entry_t *buffer_entry;
			NvU32 batch_id;
			bool is_duplicate;
		} gpu;
	} fault;
	struct {
		uvm_va_block_t *block;
		uvm_processor_id_t dst, src;
		NvU64 address, bytes;
		uvm_make_resident_cause_t cause;
	} migration;
} uvm_perf_event_data_t;
typedef void (*uvm_perf_event_callback_t)(uvm_va_space_t *va_space, uvm_perf_event_t event,
					  uvm_perf_event_data_t *data);
NV_STATUS uvm_perf_register_event_callback(void *events, uvm_perf_event_t event, uvm_perf_event_callback_t callback);
void uvm_perf_unregister_event_callback(void *events, uvm_perf_event_t event, uvm_perf_event_callback_t callback);
/* As a NULL block would make upstream's crash, the test says so, and goes on. */
uvm_va_space_t *uvm_va_block_get_va_space(uvm_va_block_t *block);

#include "uvm_rust_on_events.h"
void uvm_perf_heuristics_register_gpu(uvm_va_space_t *va_space, uvm_gpu_t *gpu);

#endif
