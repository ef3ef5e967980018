/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What both sides of the boundary between C and Rust (uvm_rust_ffi.h) call things by.
 */
#ifndef UVM_RUST_TYPES_H
#define UVM_RUST_TYPES_H

#include <linux/types.h>

#include "uvm_rust_params_ffi.h"

struct dentry;
struct file;
struct seq_file;
struct mem_cgroup;
/* Upstream's, by their tags: nothing is known of what is in them. */
struct uvm_fault_service_batch_context_struct;
struct uvm_gpu_struct;
struct uvm_gpu_va_space_struct;
struct uvm_va_block_struct;
struct uvm_va_range_struct;
struct uvm_va_space_struct;
struct mm_struct;
struct task_struct;
struct uvm_seam_space;	/* upstream's uvm_va_space_t */
struct uvm_seam_context;	/* upstream's uvm_va_block_context_t */
struct uvm_rust_gpu;	/* what is counted of a GPU, and its eviction queues */
struct uvm_rust_space;	/* what there is of a VA space */
struct uvm_rust_block;	/* what of a va_block is discarded */
struct uvm_seam_work;		/* something that is done later */
struct uvm_rust_work_of;	/* what that is done with */
struct workqueue_struct;

/* Root chunks by their number; this is none. */
#define UVM_RUST_NO_CHUNK	0xffffffffu

/* So many GPUs are known, by the number that upstream has of each (uvm_id_gpu_index()). */
#define UVM_RUST_MAX_GPUS	256

/*
 * Declares the C body of a function of upstream's that is replaced by name (Kbuild): with the type
 * that upstream's own header gives it, so that a version with other arguments does not compile,
 * where one declared by hand would link.
 */
#define UVM_RUST_C_BODY(f)	extern typeof(f) f##__c

/* Pages of a va_block: upstream's uvm_page_mask_t, on pages of 4 KiB. */
struct uvm_rust_mask {
	__u64 words[8];
};

/* Something that holds chunks of a va_block: the host, or a GPU by its number. */
#define UVM_RUST_MEMORY_HOST	0
#define UVM_RUST_MEMORY_GPU(i)	(1 + (i))
#define UVM_RUST_MEMORY_NONE	0xffffffffu

#endif
