/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary between the C of nvidia-uvm.ko and the Rust in it.
 *
 * bindgen reads this file, so it names no type of NVIDIA's: what belongs to
 * upstream crosses as an opaque pointer, what belongs to Rust as a void pointer
 * that only Rust looks into. Neither side unwinds into the other.
 *
 * Functions named uvm_rust_* are Rust's and called by C; uvm_seam_* are C's and
 * called by Rust.
 */
#ifndef UVM_RUST_FFI_H
#define UVM_RUST_FFI_H

#include <linux/types.h>

struct file;
struct seq_file;
struct uvm_seam_space;	/* upstream's uvm_va_space_t */
struct uvm_seam_fault;	/* one call of the fault service */

/* Processors are numbered here as upstream numbers GPUs (uvm_id_gpu_index());
 * the CPU is UVM_RUST_CPU. */
#define UVM_RUST_CPU	0xffffffffu

/* --- statistics: called by C --------------------------------------------- */

/*
 * State of a GPU, from uvm_perf_heuristics_add_gpu() to
 * uvm_perf_heuristics_remove_gpu(), both under g_uvm_global.global_lock.
 * @root_chunks: how many 2 MiB chunks its memory has.
 * Returns NULL if there is no memory.
 */
void *uvm_rust_gpu_create(__u32 root_chunks);
void uvm_rust_gpu_destroy(void *gpu);

/*
 * State of a VA space, from uvm_perf_heuristics_load() to
 * uvm_perf_heuristics_unload(), both under the VA space's lock in write mode.
 * @gpus: how many GPU numbers there are. Returns NULL if there is no memory.
 */
void *uvm_rust_space_create(__u32 pid, __u32 gpus);
void uvm_rust_space_destroy(void *space);

/*
 * A GPU was registered in a VA space (again, perhaps). Caller holds the VA
 * space's lock in write mode. Without memory the GPU's work for this VA space
 * goes uncounted, and asking for it gives ENOMEM.
 */
void uvm_rust_space_add_gpu(void *space, __u32 gpu_index, void *gpu);

/*
 * One fault entry of a batch was looked at, standing for @instances faults, of
 * which @duplicates needed no work. Caller: the bottom half, holding the GPU's
 * replayable-fault service lock and the VA space's lock in read mode.
 */
void uvm_rust_note_fault(void *space, __u32 gpu_index, __u32 batch,
			 __u64 instances, __u64 duplicates);

/* The fault service sent @replays in one call. Caller: as above, but no VA space lock. */
void uvm_rust_note_replays(void *gpu, __u64 replays);

/*
 * @bytes of a va_block are being copied from @src to @dst; @cause is a
 * UVM_RUST_CAUSE_*. Caller holds the va_block's lock.
 */
void uvm_rust_note_copy(void *space, __u32 dst, __u32 src, __u32 cause, __u64 bytes);

/*
 * Root chunk @root_index of @gpu leaves @queue (UVM_RUST_QUEUE_*) to be
 * reclaimed. Caller holds the PMM's list_lock, a spinlock.
 */
void uvm_rust_note_reclaim(void *gpu, __u32 root_index, __u32 queue);

/*
 * The chunks of a va_block of @space in root chunk @root_index are being taken.
 * Caller holds the va_block's lock.
 */
void uvm_rust_note_evicted(void *space, __u32 gpu_index, __u32 root_index);

/* Text for debugfs. Caller keeps the object alive. */
void uvm_rust_gpu_show(void *gpu, struct seq_file *seq);
void uvm_rust_space_show(void *space, struct seq_file *seq);

/*
 * An ioctl that upstream does not know. Returns 0, -errno, or
 * UVM_RUST_NOT_OURS. Caller holds g_uvm_global.pm.lock in read mode.
 */
#define UVM_RUST_NOT_OURS	1
long uvm_rust_ioctl(struct file *filp, __u32 cmd, unsigned long arg);

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
 * The service loop of a parent GPU, made and unmade with its fault buffer, under
 * g_uvm_global.global_lock. Returns NULL if there is no memory.
 */
void *uvm_rust_fault_create(const struct uvm_rust_fault_params *params);
void uvm_rust_fault_destroy(void *loop);

/*
 * Services what is in the ring of @fault's GPU; returns an NV_STATUS. Caller: the
 * bottom half, holding the GPU's replayable-fault service lock, so that no two
 * calls for one @loop overlap. May sleep.
 */
__u32 uvm_rust_fault_service(void *loop, struct uvm_seam_fault *fault);

/* --- called by Rust ------------------------------------------------------- */

/* The VA space of a file descriptor; NULL if it was not initialised. */
struct uvm_seam_space *uvm_seam_space_of(struct file *filp);

/* Take and give back the VA space's lock in read mode. */
void uvm_seam_space_lock(struct uvm_seam_space *space);
void uvm_seam_space_unlock(struct uvm_seam_space *space);

/* Our state of a VA space: what uvm_rust_space_create() gave. Caller holds its lock. */
void *uvm_seam_space_state(struct uvm_seam_space *space);

/*
 * The number of the GPU with this uuid if it is registered in the VA space, else
 * UVM_RUST_CPU; @gpu receives what uvm_rust_gpu_create() gave. Caller holds the
 * VA space's lock, which keeps the GPU.
 */
__u32 uvm_seam_space_gpu(struct uvm_seam_space *space, const __u8 *uuid, void **gpu);

/* Whether upstream works at all: false after a fatal error of the driver. */
_Bool uvm_seam_healthy(void);

/* Whether statistics are kept (module parameter uvm_rust_stats). */
_Bool uvm_seam_stats_enabled(void);

void uvm_seam_seq_write(struct seq_file *seq, const __u8 *text, __kernel_size_t len);

/* --- fault service: called by Rust ----------------------------------------- */

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

#endif /* UVM_RUST_FFI_H */
