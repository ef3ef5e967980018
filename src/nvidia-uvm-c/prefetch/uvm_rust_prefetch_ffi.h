/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): announcements of kernels, and prefetching.
 */
#ifndef UVM_RUST_PREFETCH_FFI_H
#define UVM_RUST_PREFETCH_FFI_H

#include "uvm_rust_types.h"

struct uvm_seam_prefetch;	/* what the worker of a VA space works with */

/* --- called by Rust --------------------------------------------------------------- */

/* Of a GPU, which the caller keeps: whether it has replayable faults, and its number and that of its parent GPU. */
_Bool uvm_seam_gpu_numbers(struct uvm_gpu_struct *gpu, __u32 *number, __u32 *parent);

/*
 * What a worker moves blocks with in a turn, by so many @copies at a time; NULL if there is no memory. It is freed before the module
 * goes, with the same number.
 */
struct uvm_seam_prefetch *uvm_seam_prefetch_create(__u32 copies);
void uvm_seam_prefetch_free(struct uvm_seam_prefetch *call, __u32 copies);

/*
 * One turn of the worker. Each function is the `Machine` method of that name (policy/prefetch/worker.rs). One thread at a
 * time uses a @call. The GPU and va_block belong to the VA space since its lock was taken.
 */

/* The GPU, if the VA space has it; if it is @ending, if it is registered there. Caller holds its lock. */
struct uvm_gpu_struct *uvm_seam_prefetch_gpu(struct uvm_seam_space *space, __u32 gpu, _Bool ending);

/*
 * The va_block that @chunk holds, and its address in @start. Caller holds the list_lock; @chunk is below the number of root
 * chunks.
 */
struct uvm_va_block_struct *uvm_seam_prefetch_holds(struct uvm_gpu_struct *gpu, __u32 chunk, __u64 *start);

/* Whether the GPU is one of managed memory's UVM-Lite GPUs. Caller holds the VA space's lock. */
_Bool uvm_seam_prefetch_is_lite(struct uvm_va_range_struct *range, struct uvm_gpu_struct *gpu);

/* Upstream's: the mm of a VA space, held until the second is called; NULL if it has none, or it ends. */
struct mm_struct *uvm_va_space_mm_retain(struct uvm_va_space_struct *va_space);
void uvm_va_space_mm_release(struct uvm_va_space_struct *va_space);

/*
 * Locks a va_block, to move it; what it takes on the host is charged to @mm. Returns the place of its discard state, as
 * uvm_seam_block_lock() does.
 */
struct uvm_rust_block **uvm_seam_prefetch_lock(struct uvm_seam_prefetch *call, struct uvm_va_block_struct *block,
					       struct mm_struct *mm);
void uvm_seam_prefetch_unlock(struct uvm_seam_prefetch *call, struct uvm_va_block_struct *block);

/*
 * With the va_block locked: moves pages @first to @outer - 1 to @gpu, NULL is the host, and with @map maps them there. The
 * copies are numbered @copy, below what @call is for. Returns an NV_STATUS; NV_ERR_MORE_PROCESSING_REQUIRED: the lock was let
 * go meanwhile.
 */
__u32 uvm_seam_prefetch_migrate(struct uvm_seam_prefetch *call, struct uvm_va_block_struct *block,
				struct uvm_gpu_struct *gpu, _Bool map, __u32 copy, __u16 first, __u16 outer);

/* Waits until the copies numbered @copy are done; tells whether they were still @under_way. Returns an NV_STATUS. */
__u32 uvm_seam_prefetch_settle(struct uvm_seam_prefetch *call, __u32 copy, _Bool *under_way);

#endif
