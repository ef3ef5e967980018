/* SPDX-License-Identifier: GPL-2.0 OR MIT */
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

/* Module parameter: whether faults are serviced, and counted, by the loop in Rust. */
extern _Bool uvm_rust_fault;

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
	__u8 coalesce;
	__u8 cancels_by_address;
};

/*
 * The service loop of a parent GPU, by its number, made and unmade with its fault buffer, under
 * g_uvm_global.global_lock, where no fault can be serviced. Returns whether there is memory for
 * it. What was not made is unmade as well.
 */
_Bool uvm_rust_fault_create(__u32 parent, const struct uvm_rust_fault_params *params);
void uvm_rust_fault_destroy(__u32 parent);

/*
 * Services what is in the ring of @fault's GPU; returns an NV_STATUS. Caller: the
 * bottom half, holding the GPU's replayable-fault service lock, so that no two
 * calls for one GPU overlap. May sleep.
 */
__u32 uvm_rust_fault_service(__u32 parent, struct uvm_seam_fault *fault);

/* --- fault service: called by Rust ----------------------------------------- */

/*
 * All of these that have @fault are called from within uvm_rust_fault_service() with it,
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

#define UVM_RUST_TRANSLATED		0
#define UVM_RUST_STALE			1
#define UVM_RUST_NO_SUBCONTEXT		2

#define UVM_RUST_SERVED			0
#define UVM_RUST_SERVE_AGAIN		1
#define UVM_RUST_SERVE_AGAIN_IN_PLACE	2

struct uvm_rust_fault_served {
	__u32 faults;
	__u8 how;	/* UVM_RUST_SERVE* */
	__u8 fatal;
};

#define UVM_RUST_PREFETCH_FAULTS_FIXED	0
#define UVM_RUST_PREFETCH_FAULTS_ON	1
#define UVM_RUST_PREFETCH_FAULTS_OFF	2

struct uvm_rust_fault_outcome {
	__u64 fatal_space;	/* 0: none */
	__u64 prefetch_off_ns;
	__u32 duplicates;
	__u32 invalid_prefetches;
	__u32 prefetch_lapse_ms;
	__u8 prefetch_faults;	/* UVM_RUST_PREFETCH_FAULTS_* */
	__u8 throttled;
	__u8 in_test;
};

#define UVM_RUST_FLUSH_CACHED_PUT	0
#define UVM_RUST_FLUSH_UPDATE_PUT	1
#define UVM_RUST_FLUSH_WAIT_UPDATE_PUT	2

/*
 * Whether the faults of a parent GPU, by its number, are being serviced: any thread's business. The
 * second waits until they are not, or a tenth of a second; whether they are not. No lock is held.
 */
_Bool uvm_seam_fault_busy(__u32 parent);
_Bool uvm_seam_fault_wait_idle(__u32 parent);

void uvm_seam_fault_ring(struct uvm_seam_fault *fault, __u32 *get, __u32 *put);
/* @entry + @n and @at are within the ring's size, and @out has room for @n. */
__u32 uvm_seam_fault_fetch(struct uvm_seam_fault *fault, __u32 at, __u32 n, __u32 entry,
			   struct uvm_rust_fault *out, __u32 *got);
__u32 uvm_seam_fault_wait_for(struct uvm_seam_fault *fault, __u32 at);
void uvm_seam_fault_set_get(struct uvm_seam_fault *fault, __u32 get);

void uvm_seam_fault_begin(struct uvm_seam_fault *fault);
/* Returns UVM_RUST_TRANSLATED and the VA space, or why there is none. */
__u32 uvm_seam_fault_translate(struct uvm_seam_fault *fault, __u32 entry, __u64 *space);
__u32 uvm_seam_fault_cancel_channel(struct uvm_seam_fault *fault, __u32 entry);
/* @records hold entries below @entries; so does each of @entries @representatives. */
void uvm_seam_fault_publish(struct uvm_seam_fault *fault, const struct uvm_rust_fault *records, __u32 n,
			    const __u32 *representatives, __u32 entries);
void uvm_seam_fault_outcome(struct uvm_seam_fault *fault, struct uvm_rust_fault_outcome *out);
void uvm_seam_fault_switch_prefetch(struct uvm_seam_fault *fault, _Bool on);

/* @space is one that translate gave in this call, which keeps it alive. */
_Bool uvm_seam_fault_enter(struct uvm_seam_fault *fault, __u64 space, _Bool to_cancel);
void uvm_seam_fault_leave(struct uvm_seam_fault *fault);
/* These four between enter and leave, with @first and @first + @n in the published order. */
__u32 uvm_seam_fault_service(struct uvm_seam_fault *fault, __u32 first, _Bool per_block, _Bool in_place,
			     struct uvm_rust_fault_served *served);
void uvm_seam_fault_found_fatal(struct uvm_seam_fault *fault, __u32 first);
__u32 uvm_seam_fault_invalidate(struct uvm_seam_fault *fault);
/* @reason: an NV_STATUS; 0 for none. */
__u32 uvm_seam_fault_cancel(struct uvm_seam_fault *fault, __u32 first, __u32 n, __u32 reason);

__u32 uvm_seam_fault_replay(struct uvm_seam_fault *fault);
/* @how: UVM_RUST_FLUSH_* */
__u32 uvm_seam_fault_flush(struct uvm_seam_fault *fault, __u32 how);
__u32 uvm_seam_fault_wait_replays(struct uvm_seam_fault *fault, _Bool settle);
__u32 uvm_seam_fault_wait_service(struct uvm_seam_fault *fault);
/* Not between enter and leave. */
__u32 uvm_seam_fault_cancel_utlbs(struct uvm_seam_fault *fault, __u32 reason);
void uvm_seam_fault_broken(struct uvm_seam_fault *fault, const __u8 *text, __kernel_size_t len);

#endif
