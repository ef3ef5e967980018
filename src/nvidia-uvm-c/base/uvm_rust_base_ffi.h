/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): GPUs and VA spaces, what is counted of them, and ioctls.
 */
#ifndef UVM_RUST_BASE_FFI_H
#define UVM_RUST_BASE_FFI_H

#include "uvm_rust_types.h"

/* --- statistics: called by C --------------------------------------------- */

/*
 * What there is of a GPU, from uvm_perf_heuristics_add_gpu() to uvm_perf_heuristics_remove_gpu():
 * what is counted of it, and the queues of its root chunks, of which there are @root_chunks.
 * @counted: unless it is one of those that are not. Returns NULL if there is no memory.
 */
struct uvm_rust_gpu *uvm_rust_gpu_create(__u32 root_chunks, _Bool counted);
void uvm_rust_gpu_destroy(struct uvm_rust_gpu *gpu);

/*
 * Puts it, or NULL, in the place of the GPU with number @index, and returns what was there, which
 * is destroyed after that. Caller holds g_uvm_global.global_lock and, within it, the PMM's
 * list_lock. It lives for those who find it by the GPU's number
 *   - under that list_lock, as evictions do: PMA has chunks evicted while a GPU comes and
 *     goes, as upstream unregisters its callbacks only after it has told us;
 *   - with the GPU retained, as VA spaces do in which it is registered: upstream tells us
 *     when nobody retains it any more;
 *   - in the GPU's bottom half, which upstream has stopped by then;
 *   - in the file of debugfs that shows it, which is removed before.
 */
struct uvm_rust_gpu *uvm_rust_gpu_install(__u32 index, struct uvm_rust_gpu *gpu);

/* Whether there is something. Caller holds g_uvm_global.global_lock. */
_Bool uvm_rust_gpu_is_known(__u32 index);

/*
 * State of a VA space, from uvm_perf_heuristics_load() to
 * uvm_perf_heuristics_unload(), both under the VA space's lock in write mode.
 * @gpus: how many GPU numbers there are. Returns NULL if there is no memory.
 */
struct uvm_rust_space *uvm_rust_space_create(__u32 pid, __u32 gpus);
void uvm_rust_space_destroy(struct uvm_rust_space *space);

/*
 * A GPU was registered in a VA space (again, perhaps). Caller holds the VA
 * space's lock in write mode. Without memory the GPU's work for this VA space
 * goes uncounted, and asking for it gives ENOMEM.
 */
void uvm_rust_space_add_gpu(struct uvm_rust_space *space, __u32 gpu_index);

/*
 * One fault entry of a batch was looked at, standing for @instances faults, of
 * which @duplicates needed no work. Caller: the bottom half, holding the GPU's
 * replayable-fault service lock and the VA space's lock in read mode.
 */
void uvm_rust_note_fault(struct uvm_rust_space *space, __u32 gpu_index, __u32 batch,
			 __u64 instances, __u64 duplicates);

/*
 * The fault service sent @replays; a call of it ends. Caller: as above, but no VA space lock is
 * needed.
 */
void uvm_rust_note_replays(__u32 gpu_index, __u64 replays);
void uvm_rust_note_served(__u32 gpu_index);

/*
 * @bytes of a va_block are being copied from @src to @dst; @cause is a
 * UVM_RUST_CAUSE_*. Caller holds the va_block's lock.
 */
void uvm_rust_note_copy(struct uvm_rust_space *space, __u32 dst, __u32 src, __u32 cause, __u64 bytes);

/*
 * Root chunk @root_index of a GPU is about to be reclaimed. Asks uvm_seam_list_of() of @pmm, which is that
 * GPU's, if it has no queues. Caller holds the PMM's list_lock, a spinlock.
 */
void uvm_rust_chunk_leaves(__u32 gpu_index, __u32 root_index, struct uvm_seam_pmm *pmm);

/*
 * The chunks of a va_block of @space in root chunk @root_index are being taken.
 * Caller holds the va_block's lock.
 */
void uvm_rust_note_evicted(struct uvm_rust_space *space, __u32 gpu_index, __u32 root_index);

/* With the module; at its end no VA space exists. The first says whether there is memory for it. */
_Bool uvm_rust_tenants_init(void);
void uvm_rust_tenants_exit(void);

/*
 * The tenant that this thread belongs to, held once more, with what it is to the SSD tier; NULL
 * without memory. The thread has an mm, and may sleep.
 */
struct uvm_rust_tenant *uvm_rust_tenant_get(void);
/* Lets it go; NULL is nobody. The last one frees it. May sleep. */
void uvm_rust_tenant_put(struct uvm_rust_tenant *tenant);
/* What it is to the SSD tier; it stays as long as the tenant. */
struct uvm_rust_flash_owner *uvm_rust_tenant_flash(struct uvm_rust_tenant *tenant);

/* Text for debugfs. Caller keeps the object alive. */
void uvm_rust_gpu_show(__u32 gpu_index, struct seq_file *seq);
void uvm_rust_space_show(struct uvm_rust_space *space, struct seq_file *seq);

/*
 * An ioctl that upstream does not know. Returns 0, -errno, or
 * UVM_RUST_NOT_OURS. Caller holds g_uvm_global.pm.lock in read mode.
 */
#define UVM_RUST_NOT_OURS	1
long uvm_rust_ioctl(struct file *filp, __u32 cmd, unsigned long arg);

/* --- called by Rust ------------------------------------------------------- */

/* The VA space of a file descriptor; NULL if it was not initialised. */
struct uvm_seam_space *uvm_seam_space_of(struct file *filp);

/* Take and give back the VA space's lock in read mode. */
void uvm_seam_space_lock(struct uvm_seam_space *space);
void uvm_seam_space_unlock(struct uvm_seam_space *space);

/* Our state of a VA space: what uvm_rust_space_create() gave. Caller holds its lock. */
struct uvm_rust_space *uvm_seam_space_state(struct uvm_seam_space *space);

/*
 * The number of the GPU with this uuid if it is registered in the VA space, and @gpu, else
 * UVM_RUST_CPU. Caller holds the VA space's lock, which keeps the GPU.
 */
__u32 uvm_seam_space_gpu(struct uvm_seam_space *space, const __u8 *uuid, struct uvm_gpu_struct **gpu);

/* Takes the list_lock of a GPU's PMM, a spinlock. Caller keeps the GPU. */
void uvm_seam_lock_chunks(struct uvm_gpu_struct *gpu);
void uvm_seam_unlock_chunks(struct uvm_gpu_struct *gpu);

/*
 * Of upstream's lists, by UVM_RUST_QUEUE_*: how long one is, 0 where there is none; and the one
 * that root chunk @index is on, _ADDRESS for none. Caller holds the list_lock.
 */
__u64 uvm_seam_list_length(struct uvm_gpu_struct *gpu, __u32 queue);
__u32 uvm_seam_list_with(struct uvm_gpu_struct *gpu, __u32 index);

/*
 * Of upstream's lists, the one that root chunk @index is the first of, UVM_RUST_QUEUE_*; _FREE if it is
 * free, _ADDRESS if it is the first of none. Called within uvm_rust_chunk_leaves().
 */
__u32 uvm_seam_list_of(struct uvm_seam_pmm *pmm, __u32 index);

/*
 * Module parameters, of which Rust reads those of the other subjects as well; nobody writes them
 * once the module is loaded.
 */
extern _Bool uvm_rust_stats;

/*
 * Whether the calling thread may see what all processes together did: it has
 * CAP_SYS_ADMIN in the initial user namespace, or the module parameter
 * uvm_rust_stats_public is set. No locks; nothing is written to the audit log.
 */
_Bool uvm_seam_sees_others(void);

/*
 * The memory cgroup of this thread, which has an mm, with a reference more, and its user; NULL where
 * there are no memory cgroups. The second gives the reference back.
 */
struct mem_cgroup *uvm_seam_tenant_of_this_thread(__u32 *user);
void uvm_seam_memcg_put(struct mem_cgroup *memcg);

/* Whether NVIDIA's tests may be called. */
_Bool uvm_seam_tests_enabled(void);

/* upstream's uvm_global_get_status(): not NV_OK after a fatal error of the driver. */
__u32 uvm_seam_global_status(void);

void uvm_seam_seq_write(struct seq_file *seq, const __u8 *text, __kernel_size_t len);

#endif
