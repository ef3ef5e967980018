/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): GPUs and VA spaces, what is counted of them, and ioctls.
 */
#ifndef UVM_RUST_BASE_FFI_H
#define UVM_RUST_BASE_FFI_H

#include "uvm_rust_types.h"

/* --- statistics: called by C --------------------------------------------- */

/*
 * Rust's state of the GPU with number @index, from uvm_perf_heuristics_add_gpu() to uvm_perf_heuristics_remove_gpu():
 * its statistics, with their file in debugfs, and the queues of its root chunks, of which there are @root_chunks.
 * @counted: whether it has statistics. @address: of its PCI device, read within the call. Returns NULL if
 * there is no memory. Callers hold g_uvm_global.global_lock.
 */
struct uvm_rust_gpu *uvm_rust_gpu_create(__u32 index, __u32 root_chunks, _Bool counted, const char *address);
void uvm_rust_gpu_destroy(struct uvm_rust_gpu *gpu);

/*
 * Puts @gpu, or NULL, in the place of the GPU with number @index, and returns the former content, which
 * the caller destroys after that. Caller holds g_uvm_global.global_lock and, within it, the PMM's
 * list_lock. The state may be used by whoever finds it by the GPU's number
 *   - under that list_lock, as evictions do: PMA has chunks evicted while a GPU comes and
 *     goes, as upstream unregisters its callbacks only after it has told us;
 *   - with the GPU retained, as VA spaces do in which it is registered: upstream tells us
 *     when nobody retains it any more;
 *   - in the GPU's bottom half, which upstream has stopped by then;
 *   - in the file of debugfs that shows it, which uvm_rust_gpu_destroy() removes first.
 */
struct uvm_rust_gpu *uvm_rust_gpu_install(__u32 index, struct uvm_rust_gpu *gpu);

/* Whether Rust has a state of the GPU with this number. Caller holds g_uvm_global.global_lock. */
_Bool uvm_rust_gpu_is_known(__u32 index);

/*
 * Rust's state of a VA space, from uvm_perf_heuristics_load() to uvm_perf_heuristics_unload(), both under the
 * VA space's lock in write mode. It has the statistics, if they are on; what the kernels are known to do, if
 * announcements are taken; and the tenant, if there is an SSD tier. @gpus: how many GPU numbers there are. Called
 * by a thread that has an mm. Returns NULL if there is no memory, which may be destroyed too.
 */
struct uvm_rust_space *uvm_rust_space_create(struct uvm_seam_space *of, __u32 pid, __u32 gpus);
void uvm_rust_space_destroy(struct uvm_rust_space *space);

/*
 * The VA space ends. Its worker does not run after this; faults may still come. Takes the VA space's
 * lock.
 */
void uvm_rust_space_stop(struct uvm_rust_space *space);

/* Addresses from @first to @last are memory no more. Caller holds the VA space's lock in write mode. */
void uvm_rust_space_forget(struct uvm_rust_space *space, __u64 first, __u64 last);

/* The va_block of @space at @address is freed. Caller holds the va_block's lock. */
void uvm_rust_block_freed(struct uvm_rust_space *space, __u64 address);

/*
 * A GPU, @of, was registered in a VA space (again, perhaps), whose set-up may have
 * failed: NULL. Caller holds the VA space's lock in write mode. Without memory the GPU's work for this VA space
 * goes uncounted, and asking for it gives ENOMEM.
 */
void uvm_rust_space_add_gpu(struct uvm_rust_space *space, struct uvm_gpu_struct *of, __u32 gpu_index);

/*
 * One fault entry of a batch was looked at, standing for @instances faults, of
 * which @duplicates needed no work. Caller: the bottom half, holding the GPU's
 * replayable-fault service lock and the VA space's lock in read mode.
 */
void uvm_rust_note_fault(struct uvm_rust_space *space, __u32 gpu_index, __u32 batch, __u64 instances, __u64 duplicates);

/*
 * The fault service sent a replay; a call of it ends, which sent so many @replays besides. Caller: as above, but no VA
 * space lock is needed.
 */
void uvm_rust_note_replay(__u32 gpu_index);
void uvm_rust_note_served(__u32 gpu_index, __u64 replays);

/*
 * @bytes of a va_block, from @address on, are being copied from @src to @dst, UVM_RUST_MEMORY_*; @cause is
 * upstream's uvm_make_resident_cause_t. Caller holds the va_block's lock.
 */
void uvm_rust_note_copy(struct uvm_rust_space *space, __u32 dst, __u32 src, __u32 cause, __u64 address, __u64 bytes);

/*
 * Before UVM_MIGRATE moves @bytes of a va_block to @dst, UVM_RUST_MEMORY_*: waits while its VA space has much on its way and others
 * copy as well. Caller holds the VA space's lock, and no va_block's.
 */
void uvm_rust_link_next(struct uvm_va_block_struct *of, __u32 dst, __u64 bytes);

/*
 * Root chunk @root_index of a GPU, which is @free or not, is about to be reclaimed. Asks uvm_seam_list_next() of
 * @gpu, which is that GPU, if it has no queues. Caller holds the PMM's list_lock, a spinlock.
 */
void uvm_rust_chunk_leaves(__u32 gpu_index, __u32 root_index, _Bool free, struct uvm_gpu_struct *gpu);

/*
 * The chunks of a va_block of @space in root chunk @root_index are being taken. Returns the @eviction of the second, which
 * the same thread calls after that. @address: the va_block's; @status: an NV_STATUS. Caller holds the va_block's lock.
 */
__u64 uvm_rust_note_evicted(struct uvm_rust_space *space, __u32 gpu_index, __u32 root_index, __u64 address);
void uvm_rust_evicted(struct uvm_rust_space *space, __u32 gpu_index, __u32 root_index, __u64 address, __u64 eviction,
		      __u32 status);

/*
 * Called as the module is loaded and unloaded; at its end no VA space exists. The first returns an NV_STATUS. The second
 * frees what the first has made, also after an error.
 */
__u32 uvm_rust_init(void);
void uvm_rust_exit(void);

/* Text for debugfs. Caller keeps the object alive; a VA space may have none. */
void uvm_rust_gpu_show(__u32 gpu_index, struct seq_file *seq);
void uvm_rust_space_show(struct uvm_rust_space *space, struct seq_file *seq);

/* Whether an ioctl is ours; @result is what it returns then. Caller holds none of upstream's locks. */
_Bool uvm_rust_ioctl(struct file *filp, unsigned int cmd, unsigned long arg, long *result);

/*
 * Of an open file of the driver's, for /proc/PID/fdinfo. The caller keeps the file, and holds none of upstream's locks. The
 * hook in uvm_fops is C's, which calls Rust inside an entry of upstream's.
 */
void uvm_rust_show_fdinfo(struct seq_file *seq, struct file *filp);
void uvm_rust_fdinfo(struct seq_file *seq, struct file *filp);

/* --- called by Rust ------------------------------------------------------- */

/* The file in debugfs that calls uvm_rust_gpu_show() with @index. The second waits for its readers. */
struct dentry *uvm_seam_gpu_file(__u32 index);
void uvm_seam_gpu_file_remove(struct dentry *file);

/* The VA space of a file descriptor; NULL if it was not initialised. */
struct uvm_seam_space *uvm_seam_space_of(struct file *filp);

/*
 * Takes the lock of the process' memory in read mode, outside the VA space's, and gives that memory, or NULL if there is
 * none. In a kernel thread it is the memory of the VA space's process, if that process exists and lives. False: no lock was
 * taken. With @waits that means that the caller was killed, without @waits that others have the lock. A caller that @waits
 * holds no lock, also not that of power management. The service of replayable faults alone @waits with a lock, its own: an
 * alarm ends its wait. The second function gives the lock back.
 */
_Bool uvm_seam_mm_lock(struct uvm_seam_space *space, _Bool waits, struct mm_struct **locked);
void uvm_seam_mm_unlock(struct uvm_seam_space *space, struct mm_struct *mm);

/* Takes the VA space's lock in read mode. The second gives it back. */
void uvm_seam_space_lock(struct uvm_seam_space *space);
void uvm_seam_space_unlock(struct uvm_seam_space *space);

_Bool uvm_seam_space_trylock(struct uvm_seam_space *space);

/* Our state of a VA space: what uvm_rust_space_create() gave. Caller holds its lock. */
struct uvm_rust_space *uvm_seam_space_state(struct uvm_seam_space *space);

/*
 * The GPU with this uuid if it is registered in the VA space, and its UVM_RUST_MEMORY_*, else that of the host.
 * Caller holds the VA space's lock, which keeps the GPU.
 */
__u32 uvm_seam_space_gpu(struct uvm_seam_space *space, const __u8 *uuid, struct uvm_gpu_struct **gpu);

/* Takes the list_lock of a GPU's PMM, a spinlock. Caller keeps the GPU. */
void uvm_seam_lock_chunks(struct uvm_gpu_struct *gpu);
void uvm_seam_unlock_chunks(struct uvm_gpu_struct *gpu);

/*
 * Of upstream's list of root chunks by UVM_RUST_QUEUE_*, or of those that are free and zeroed: the chunk behind @chunk;
 * the first if that is UVM_RUST_NO_CHUNK, which also stands for the end, and for a list that there is not. Caller holds
 * the list_lock.
 */
#define UVM_RUST_LIST_ZEROED	UVM_RUST_QUEUE_MAX
__u32 uvm_seam_list_next(struct uvm_gpu_struct *gpu, __u32 list, __u32 chunk);

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
/* What this thread allocates is charged to @memcg from now on. Returns to whom it was before. */
struct mem_cgroup *uvm_seam_charge(struct mem_cgroup *memcg);

/*
 * Work that is done later, with no lock held, by a thread of a queue that at most so many have at a time; 0: many. @urgent
 * work goes first, also where there is no memory for a thread, and while processes are frozen.
 */
struct workqueue_struct *uvm_seam_queue_new(const char *name, __u32 most, _Bool urgent);
/* The kernel's. Nothing is queued there any more. */
void destroy_workqueue(struct workqueue_struct *queue);

#define UVM_RUST_WORK_PREFETCH	0
#define UVM_RUST_WORK_FETCH	1
#define UVM_RUST_WORK_SPILL	2
#define UVM_RUST_WORK_ALARM	3
#define UVM_RUST_WORKS		4

/*
 * A work item that calls @run with @of, in one thread at a time. @kind: UVM_RUST_WORK_*, by the locks that @run takes. NULL
 * without memory.
 */
struct uvm_seam_work *uvm_seam_work_new(__u32 kind, void (*run)(struct uvm_rust_work_of *), struct uvm_rust_work_of *of);
/*
 * Queues the work; if it is running, it runs once more. With @ms other than 0 it does not run before so many milliseconds.
 * Any context that may take a spinlock.
 */
void uvm_seam_work_queue(struct workqueue_struct *queue, struct uvm_seam_work *work, __u64 ms);
/*
 * Takes the work off its queue, and waits until it does not run. From the call on, nobody but the work itself queues it.
 * @free: frees it as well.
 */
void uvm_seam_work_stop(struct uvm_seam_work *work, _Bool free);

/* The lock of power management in read mode, if that can be had at once. */
_Bool uvm_seam_pm_trylock(void);
void uvm_seam_pm_unlock(void);

/*
 * Where upstream discards by itself: discards what the managed range that holds @at has up to @last, which becomes the
 * last address of that. Returns an NV_STATUS; NV_WARN_NOTHING_TO_DO: the GPU has no memory of its own. Caller holds
 * the VA space's lock.
 */
__u32 uvm_seam_native_discard(struct uvm_seam_space *space, struct uvm_seam_context *context, __u64 at, _Bool eager,
			      __u64 *last);

/* Upstream's: whether its tests may be called. */
extern int uvm_enable_builtin_tests;

/* upstream's uvm_global_get_status(): not NV_OK after a fatal error of the driver. */
__u32 uvm_seam_global_status(void);

/* The kernel's; the clock counts nanoseconds. */
int seq_write(struct seq_file *seq, const void *text, __kernel_size_t len);
__u64 get_random_u64(void);
__s64 ktime_get(void);
unsigned long msleep_interruptible(unsigned int ms);

/* Whether the system is about to be suspended; the suspend waits for the calling thread, too. */
_Bool uvm_seam_suspends(void);
/* Sleeps so many microseconds, or up to twice as long. */
void uvm_seam_sleep(__u64 us);
/* Lets other threads run; returns whether the calling thread is being killed. No spinlock is held. */
_Bool uvm_seam_rest(void);

#endif
