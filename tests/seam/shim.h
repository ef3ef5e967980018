/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Of upstream and of Linux, what uvm_rust_gpu.c, uvm_rust_evict.c and uvm_rust_notifier.c
 * use: as little of each type as they touch. Locks and what others read are points at which
 * another thread may go on.
 * native.h has what the files for 580 and later use besides, discard.h what uvm_rust_discard.c does.
 */
#ifndef SEAM_SHIM_H
#define SEAM_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../../src/nvidia-uvm-c/base/uvm_rust_ffi.h"
#include "../../include/uapi/uvm_rust_ioctl.h"
#include "explore.h"

/* --- Linux ----------------------------------------------------------------------- */

#define module_param(name, type, mode)
#define MODULE_PARM_DESC(name, text)
#define READ_ONCE(x)		(explore_point(), *(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, to)	(explore_point(), *(volatile __typeof__(x) *)&(x) = (to))
#define swap(a, b)		do { __typeof__(a) tmp = (a); (a) = (b); (b) = tmp; } while (0)
#define U32_MAX			UINT32_MAX
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
struct task_struct { int tgid; struct mm_struct *mm; };
#define current			(&(struct task_struct){ .tgid = 1, .mm = (struct mm_struct *)8 })
bool fatal_signal_pending(void *task);
void cond_resched(void);
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define DEFINE_SHOW_ATTRIBUTE(name) static const int name##_fops = sizeof(&name##_show)

typedef unsigned int uint;
#define unlikely(x)		(x)
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))

typedef struct { bool held; } spinlock_t;
#define DEFINE_SPINLOCK(name)	spinlock_t name
void spin_lock(spinlock_t *lock);
void spin_unlock(spinlock_t *lock);
/* Until another thread has done something. */
long schedule_timeout_uninterruptible(long timeout);

struct list_head {
	struct list_head *next, *prev;
};
#define __acquires(lock)
#define __releases(lock)
#define list_empty(list)	((list)->next == (list))
#define list_entry(at, type, member)	container_of(at, type, member)

struct seq_file {
	void *private;
};
struct dentry {
	void *data;
};

/* Nobody reads it here. */
#define pci_name(device)	((device) ? "device" : "none")

/* Whoever has the file open reads what it shows until this returns. */
struct dentry *debugfs_create_file(const char *name, unsigned int mode, struct dentry *parent, void *data,
				   const void *fops);
void debugfs_remove(struct dentry *file);

/* --- upstream -------------------------------------------------------------------- */

typedef uint32_t NvU32;
typedef uint64_t NvU64;
typedef enum {
	NV_OK,
	NV_ERR_INVALID_ADDRESS,
	NV_ERR_INVALID_ARGUMENT,
	NV_ERR_INVALID_DEVICE,
	NV_ERR_INVALID_STATE,
	NV_ERR_MORE_PROCESSING_REQUIRED,
	NV_ERR_NOT_READY,
	NV_ERR_NO_MEMORY,
	NV_ERR_OBJECT_NOT_FOUND,
	NV_ERR_SIGNAL_PENDING,
	NV_WARN_MORE_PROCESSING_REQUIRED,
	NV_WARN_NOTHING_TO_DO,
} NV_STATUS;
typedef struct { uint8_t uuid[16]; } NvProcessorUuid;

#define UVM_ASSERT(holds)	((holds) ? (void)0 : explore_wrong("UVM_ASSERT(" #holds ")"))
#define UVM_ID_MAX_GPUS		4
#define UVM_CHUNK_SIZE_MAX	(2u << 20)

typedef struct { NvU32 val; } uvm_gpu_id_t;
typedef uvm_gpu_id_t uvm_processor_id_t;
#define UVM_ID_IS_CPU(id)	((id).val == 0)
#define uvm_id_gpu_index(id)	((id).val - 1)
#define uvm_id_value(id)	((id).val)

typedef struct {
	bool ready, held;
	int holder;
} uvm_spinlock_t;

void uvm_spin_lock(uvm_spinlock_t *lock);
void uvm_spin_unlock(uvm_spinlock_t *lock);
void uvm_assert_spinlock_locked(const uvm_spinlock_t *lock);

/* What a test's own header adds. */
#ifndef SEAM_VA_SPACE_FIELDS
#define SEAM_VA_SPACE_FIELDS
#define SEAM_VA_BLOCK_FIELDS
#endif
#ifndef SEAM_GPU_STATE_FIELDS
#define SEAM_GPU_STATE_FIELDS
#endif
#ifndef SEAM_CHUNK_FIELDS
#define SEAM_CHUNK_FIELDS
#endif
/* How many chunks a va_block has on a GPU. */
#ifndef SEAM_CHUNKS
#define SEAM_CHUNKS		1
#endif

typedef struct uvm_va_space_struct {
	struct list_head list_node;
	/* As far as they are used: whether there are any. */
	struct { void *va_space; } perf_events;
	/* What our hook adds. */
	struct uvm_rust_space *uvm_rust;
	SEAM_VA_SPACE_FIELDS
} uvm_va_space_t;
typedef struct uvm_va_block_struct {
	uvm_va_space_t *va_space;
	NvU64 start, end;
	SEAM_VA_BLOCK_FIELDS
} uvm_va_block_t;
#define uvm_va_block_get_va_space_maybe_dead(block) ((block)->va_space)

enum { UVM_PMM_GPU_CHUNK_STATE_FREE, UVM_PMM_GPU_CHUNK_STATE_ALLOCATED };

typedef struct {
	struct list_head list;
	NvU64 address;
	int state;
	uvm_va_block_t *va_block;
	SEAM_CHUNK_FIELDS
} uvm_gpu_chunk_t;

struct uvm_pma_stats {
	volatile NvU64 numFreePages2m;
};

typedef struct {
	bool initialized;
	uvm_spinlock_t list_lock;
	/* NULL without framebuffer memory. */
	const struct uvm_pma_stats *pma_stats;
	struct {
		size_t count;
		struct list_head va_block_used, va_block_unused, va_block_discarded;
		struct { uvm_gpu_chunk_t chunk; } *array;
	} root_chunks;
} uvm_pmm_gpu_t;

/* A thread, and how much it has still to do. */
typedef struct { bool ready; int waiting; } nv_kthread_q_t;
void nv_kthread_q_flush(nv_kthread_q_t *q);

struct uvm_parent_gpu;
/* Else native.h has another. */
#ifndef UVM_RUST_NATIVE
struct uvm_parent_gpu {
	nv_kthread_q_t lazy_free_q;
	struct pci_dev *pci_dev;
};
#endif
typedef struct uvm_gpu_struct {
	uvm_gpu_id_t id;
	uvm_pmm_gpu_t pmm;
	struct uvm_parent_gpu *parent;
} uvm_gpu_t;

#define uvm_pmm_to_gpu(at)	container_of(at, uvm_gpu_t, pmm)
/* Says so if there is no such GPU, as upstream asserts it. */
uvm_gpu_id_t uvm_gpu_id_from_index(NvU32 index);
uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id);
typedef struct test_gpu_state {
	uvm_gpu_chunk_t *chunks[SEAM_CHUNKS];
	SEAM_GPU_STATE_FIELDS
} uvm_va_block_gpu_state_t;
uvm_va_block_gpu_state_t *uvm_va_block_gpu_state_get(uvm_va_block_t *block, uvm_gpu_id_t id);
uvm_gpu_t *uvm_va_space_get_gpu_by_uuid(uvm_va_space_t *va_space, const NvProcessorUuid *uuid);

/* What a notifier works with: notifier.c. */
struct mm_struct;
typedef struct uvm_va_block_context_struct uvm_va_block_context_t;
uvm_va_block_context_t *uvm_va_block_context_alloc(struct mm_struct *mm);
void uvm_va_block_context_free(uvm_va_block_context_t *context);
void uvm_va_block_context_init(uvm_va_block_context_t *context, struct mm_struct *mm);
extern int uvm_enable_builtin_tests;

/* --- the seam: what uvm_rust_hooks.h declares ----------------------- */

#define uvm_rust_counts(gpu)		true
/* Else these are uvm_rust_hooks.h's. */
#ifdef UVM_RUST_HOOKS_H
#define UVM_RUST_HOOKED			true
#define uvm_rust_root_index(chunk)	((__u32)((chunk)->address / UVM_CHUNK_SIZE_MAX))
#define uvm_rust_gpu_index(pmm)		uvm_id_gpu_index(uvm_pmm_to_gpu(pmm)->id)
NV_STATUS uvm_rust_notifier_init(void);
void uvm_rust_notifier_exit(void);
#endif

/* What upstream's headers declare. */
void uvm_pmm_gpu_mark_root_chunk_used(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
void uvm_pmm_gpu_mark_root_chunk_unused(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
void uvm_pmm_gpu_mark_chunk_evicted(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);

struct list_head *uvm_rust_free_list(uvm_pmm_gpu_t *pmm, bool zeroed);
void uvm_rust_chunk_start_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);
extern struct dentry *uvm_rust_debug_dir;
NV_STATUS uvm_perf_heuristics_add_gpu(uvm_gpu_t *gpu);
void uvm_perf_heuristics_remove_gpu(uvm_gpu_t *gpu);

uvm_va_block_context_t *uvm_rust_notifier_context(struct mm_struct *mm);
void uvm_rust_notifier_context_free(uvm_va_block_context_t *context);

typedef enum {
	UVM_API_RANGE_TYPE_MANAGED,
	UVM_API_RANGE_TYPE_HMM,
	UVM_API_RANGE_TYPE_ATS,
	UVM_API_RANGE_TYPE_INVALID,
} uvm_api_range_type_t;
uvm_api_range_type_t uvm_api_range_type_check(uvm_va_space_t *va_space, struct mm_struct *mm, NvU64 base,
					      NvU64 length);

/* --- the tests ------------------------------------------------------------------- */

/* Each prints its tests, from number @first on; whether one failed. */
#define NOTIFIER_TESTS	3
int notifier_tests(int first);

#endif
