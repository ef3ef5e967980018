/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): the fault service loop, and the tree prefetcher.
 */
#ifndef UVM_RUST_FAULT_FFI_H
#define UVM_RUST_FAULT_FFI_H

#include "uvm_rust_types.h"

/* --- the tree prefetcher: called by C, with the va_block's lock held ------------ */

/* Pages @first to @outer - 1 of a va_block under a tree with @leaves leaves, from leaf @offset on. */
struct uvm_rust_tree {
	__u16 first, outer, offset, leaves;
};

/* Adds to @leaves the big pages, of @granule pages, with a fault and no page of @thrashing (or NULL). */
void uvm_rust_tree_grow(const struct uvm_rust_tree *tree, __u16 big_first, __u16 big_outer, __u16 granule,
			const struct uvm_rust_mask *faulted, const struct uvm_rust_mask *thrashing,
			struct uvm_rust_mask *leaves);

/* Fills @out with what comes along with the @faulted pages from @first to @outer - 1. */
void uvm_rust_tree_prefetch(const struct uvm_rust_tree *tree, __u16 first, __u16 outer, __u32 threshold,
			    const struct uvm_rust_mask *faulted, const struct uvm_rust_mask *leaves,
			    struct uvm_rust_mask *out);

/* --- fault service: called by C -------------------------------------------- */

/*
 * Of a parent GPU, fixed while it is in use; the meaning of each is that of
 * `Params` in policy/fault.rs.
 */
struct uvm_rust_fault_params {
	__u32 ring;
	__u32 max_batch;
	__u32 utlbs;
	__u32 policy;
	__u32 update_put_percent;
	__u32 max_batches;
	__u32 max_throttled;
	/* Whether the GPU can turn prefetch faults off, and whether it is a simulated one. */
	__u8 has_prefetch_switch;
	__u8 simulated;
	__u8 coalesce;
	__u8 cancels_by_address;
	/* Whether it is divided into partitions (MIG). */
	__u8 partitioned;
};

/*
 * The service loop of a parent GPU, by its number, made and unmade with its fault buffer, under
 * g_uvm_global.global_lock, where no fault can be serviced. Returns whether there is memory for
 * it. What was not made is unmade as well.
 */
_Bool uvm_rust_fault_create(__u32 parent, const struct uvm_rust_fault_params *params);
void uvm_rust_fault_destroy(__u32 parent);

/*
 * One call of the fault service: what upstream has of it, which does not change in the call. On the stack of the bottom
 * half, which holds the service lock.
 */
struct uvm_seam_fault {
	struct uvm_gpu_struct *gpu;
	struct uvm_fault_service_batch_context_struct *batch;
	/* Entries of the ring; and upstream's copies of GET and PUT. */
	__u32 ring, *get, *put;
	/* Of the running batch, which C counts as well: its number, and what there was of it. */
	__u32 *number, *replays, *duplicates, *invalid_prefetches;
	_Bool *throttled;
	/* Whether the GPU reports prefetches that miss. */
	_Bool *prefetches_are_on;
	/* The first VA space of it with a fatal fault; NULL for none. */
	struct uvm_va_space_struct **fatal_space;
};

/*
 * Services what is in the ring of @fault's GPU, which has number @gpu. Caller: the bottom half,
 * holding the GPU's replayable-fault service lock, so that no two calls for one GPU overlap.
 * May sleep.
 */
void uvm_rust_fault_service(__u32 parent, __u32 gpu, struct uvm_seam_fault *fault);

/*
 * A fault of @space, in this @batch, found its page mapped for its access: it is one more duplicate. True. Caller: as
 * above, in either loop, with @space's lock held in read mode and the va_block's.
 */
_Bool uvm_rust_note_mapped(__u32 parent, __u32 gpu, struct uvm_rust_space *space, __u32 batch);

/* --- fault service: called by Rust ----------------------------------------- */

/* Upstream's loop: the same of a GPU, as a whole. */
void uvm_seam_fault_upstream(struct uvm_gpu_struct *gpu);
/* The service ended by @status, maybe with faults that were cancelled: says so, in a release build too. */
void uvm_seam_fault_failed(struct uvm_seam_fault *fault, __u32 status);

/*
 * All of these are called from within uvm_rust_fault_service() with its @fault,
 * and mean what the method of the same name of `Machine` in
 * policy/fault/service.rs means. Those that return __u32 return an NV_STATUS
 * unless said otherwise. A VA space is a number to Rust: its address.
 */

/* An entry of the ring; `Record` in policy/fault.rs. */
struct uvm_rust_fault {
	__u64 address;
	__u64 who;
	__u32 entry;
	__u16 instances;
	__u16 utlb;
	__u8 access;
	__u8 accesses;
	__u8 fatal;
	__u8 reserved[5];
};

#define UVM_RUST_FLUSH_CACHED_PUT	0
#define UVM_RUST_FLUSH_UPDATE_PUT	1
#define UVM_RUST_FLUSH_WAIT_UPDATE_PUT	2

/* Reads PUT from the GPU. */
void uvm_seam_fault_read_put(struct uvm_seam_fault *fault);
/* @entry + @n and @at are within the ring's size, and @out has room for @n. */
__u32 uvm_seam_fault_fetch(struct uvm_seam_fault *fault, __u32 at, __u32 n, __u32 entry,
			   struct uvm_rust_fault *out, __u32 *got);
/* Whether the GPU has written the entry. */
_Bool uvm_seam_fault_is_written(struct uvm_seam_fault *fault, __u32 at);
void uvm_seam_fault_set_get(struct uvm_seam_fault *fault, __u32 get);

/* @space is written for NV_OK; NV_ERR_PAGE_TABLE_NOT_AVAIL: there is no such subcontext. */
__u32 uvm_seam_fault_translate(struct uvm_seam_fault *fault, __u32 entry, __u64 *space);
/* Cancels what the channel of the entry does: where its fault came from (@targeted), or on all of the GPU. */
__u32 uvm_seam_fault_cancel_channel(struct uvm_seam_fault *fault, __u32 entry, _Bool targeted);
/* @records hold entries below @entries; so does each of @entries @representatives. */
void uvm_seam_fault_publish(struct uvm_seam_fault *fault, const struct uvm_rust_fault *records, __u32 n,
			    const __u32 *representatives, __u32 entries);
/*
 * For how many nanoseconds prefetch faults have been off, if they are. @lapse_ms: for how long they stay off, which one of
 * NVIDIA's test ioctls changes.
 */
__u64 uvm_seam_fault_prefetch_off(struct uvm_seam_fault *fault, __u32 *lapse_ms);
void uvm_seam_fault_switch_prefetch(struct uvm_seam_fault *fault, _Bool on);

/*
 * Sets whether the calling thread, which is a kernel thread, @heeds the alarm: if it does, the alarm ends each killable wait
 * of the thread. Returns the thread. When the thread stops heeding the alarm, an alarm that has come is forgotten.
 */
struct task_struct *uvm_seam_heeds_alarm(_Bool heeds);
/* The kernel's: SIGKILL sent by the kernel itself (@by_kernel: 1) is the alarm of a thread, which must exist. Takes spinlocks. */
int send_sig(int signal, struct task_struct *thread, int by_kernel);
/* The VA space that is serviced, as long as its lock is held. */
struct uvm_seam_entered {
	/* By Rust: the VA space, and the memory of its process, which is locked as well; NULL if it is not. */
	struct uvm_seam_space *space;
	struct mm_struct *mm;
	/* By uvm_seam_fault_enter(): the GPU there, NULL for none; and what uvm_rust_space_create() gave. */
	struct uvm_gpu_va_space_struct *gpu_va_space;
	struct uvm_gpu_struct *gpu;
	struct uvm_rust_space *state;
};
/*
 * Fills @in. Its VA space, which translate gave in this call, is locked in read mode; before that, unless it is @to_cancel,
 * the process' memory, which uvm_seam_mm_lock() gave.
 */
void uvm_seam_fault_enter(struct uvm_seam_fault *fault, struct uvm_seam_entered *in, _Bool to_cancel);
/* The rest with a VA space entered, with @first and @at in the published order. */
/* How many @faults were looked at. NV_WARN_MORE_PROCESSING_REQUIRED: again; NV_WARN_MISMATCHED_TARGET: again, in place. */
__u32 uvm_seam_fault_service(struct uvm_seam_fault *fault, const struct uvm_seam_entered *in, __u32 first, _Bool per_block,
			     _Bool in_place, __u32 *faults);
/* Notes a fatal fault on the uTLB that it came from: a Pascal GPU cancels by uTLB. */
void uvm_seam_fault_found_fatal(struct uvm_seam_fault *fault, __u32 first);
__u32 uvm_seam_fault_invalidate(struct uvm_seam_fault *fault, const struct uvm_seam_entered *in);
/* Whether a fault is fatal, by its type or as its service found. */
_Bool uvm_seam_fault_is_fatal(struct uvm_seam_fault *fault, __u32 at);
/*
 * Cancels a fault: the first those accesses to its page that are fatal, for the reason that was found; the second all of
 * them, for @reason, an NV_STATUS.
 */
__u32 uvm_seam_fault_cancel(struct uvm_seam_fault *fault, __u32 at);
__u32 uvm_seam_fault_refuse(struct uvm_seam_fault *fault, __u32 at, __u32 reason);

__u32 uvm_seam_fault_replay(struct uvm_seam_fault *fault);
/* @how: UVM_RUST_FLUSH_* */
__u32 uvm_seam_fault_flush(struct uvm_seam_fault *fault, __u32 how);
/* Waits for the replays, or for the GPUs' work that the service has begun. */
__u32 uvm_seam_fault_wait(struct uvm_seam_fault *fault, _Bool for_replays);
__u32 uvm_seam_fault_settle(struct uvm_seam_fault *fault);
/* With no VA space entered. Cancels the uTLBs with fatal faults; those of all faults of the batch, for @reason. */
__u32 uvm_seam_fault_cancel_utlbs(struct uvm_seam_fault *fault);
void uvm_seam_fault_refuse_utlbs(struct uvm_seam_fault *fault, __u32 reason);

#endif
