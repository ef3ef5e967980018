/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * What uvm-rust adds to /dev/nvidia-uvm.
 *
 * Numbers are raw, as all of UVM's are (no _IOC encoding), and start well above
 * NVIDIA's own. A driver without them answers EINVAL; ask UVM_RUST_GET_VERSION
 * first.
 *
 * Every structure starts with its size as the caller knows it. A kernel that
 * knows a longer one fills only what fits; a kernel that knows a shorter one
 * refuses (E2BIG) if the part it does not know is not zero, and sets @size to
 * what it knows. So old programs run on new drivers and new ones on old.
 *
 * Errors are errno values, unlike UVM's own rmStatus, and a call that fails
 * changes nothing, unless its description says otherwise:
 *   EFAULT  the pointer is null, or not readable or writable in full
 *   EINVAL  size below the first version's, unknown flag, reserved field not 0;
 *           or, from a driver without these calls, an unknown number
 *   E2BIG   a size over a page, or unknown fields that are not 0
 *   EPERM   the file descriptor was not initialised with UVM_INITIALIZE
 *   ENODEV  no such GPU is registered with this file descriptor
 *   EOPNOTSUPP  the feature is turned off by a module parameter
 *   EIO     the driver has met a fatal error and does nothing any more
 *   ENOMEM  memory for this process's statistics could not be had when the GPU
 *           was registered
 */
#ifndef UVM_RUST_IOCTL_H
#define UVM_RUST_IOCTL_H

#include <linux/types.h>

/* Raised when a call or a feature is added. */
#define UVM_RUST_VERSION		3

#define UVM_RUST_GET_VERSION		0x1000
#define UVM_RUST_GET_STATS		0x1001
#define UVM_RUST_DISCARD_BATCH		0x1002
#define UVM_RUST_ANNOUNCE		0x1003
#define UVM_RUST_GET_PREFETCH_STATS	0x1004

/* Features, as bits of struct uvm_rust_version.features. */
#define UVM_RUST_FEATURE_STATS		(1ULL << 0)
#define UVM_RUST_FEATURE_DISCARD	(1ULL << 1)	/* UVM_RUST_DISCARD_BATCH, and UVM_DISCARD (80) */
#define UVM_RUST_FEATURE_EXEC_ID	(1ULL << 2)	/* UVM_RUST_ANNOUNCE */

/**
 * struct uvm_rust_version - what this driver offers
 * @size:     in: sizeof of the caller's structure; out: of the driver's
 * @version:  out: UVM_RUST_VERSION of the driver
 * @features: out: UVM_RUST_FEATURE_*; a bit is set when the feature is built in
 *            and not turned off by a module parameter
 *
 * Needs no UVM_INITIALIZE.
 */
struct uvm_rust_version {
	__u32 size;
	__u32 version;
	__u64 features;
};

#define UVM_RUST_VERSION_SIZE_V1	16

/* Why bytes moved: index into the arrays of struct uvm_rust_stats. */
#define UVM_RUST_CAUSE_FAULT		0	/* a CPU or GPU access that had no page */
#define UVM_RUST_CAUSE_PREFETCH		1	/* brought along by the tree prefetcher */
#define UVM_RUST_CAUSE_EVICTION		2	/* pushed out to make room on a GPU */
#define UVM_RUST_CAUSE_API		3	/* UvmMigrate, policies, range groups, tools */
#define UVM_RUST_CAUSE_ACCESS_COUNTER	4	/* a GPU's access counter notification */
#define UVM_RUST_CAUSE_MAX		8	/* 5 to 7 are reserved and 0 */

/* Where a 2 MiB root chunk was reclaimed from. */
#define UVM_RUST_QUEUE_FREE		0	/* held by UVM, used by nothing */
#define UVM_RUST_QUEUE_UNUSED		1	/* a va_block's, with nothing resident */
#define UVM_RUST_QUEUE_DISCARDED	2	/* a va_block's, with nothing resident but what is discarded */
#define UVM_RUST_QUEUE_USED		3	/* a va_block's, with resident pages */
#define UVM_RUST_QUEUE_ADDRESS		4	/* not off a queue: asked for by address */
#define UVM_RUST_QUEUE_MAX		8	/* 5 to 7 are reserved and 0 */

/**
 * struct uvm_rust_traffic - pages copied
 * @bytes: bytes
 * @pages: the same in 4 KiB pages
 */
struct uvm_rust_traffic {
	__u64 bytes;
	__u64 pages;
};

/* Flag of struct uvm_rust_stats: count all processes on the GPU, not only this. */
#define UVM_RUST_STATS_WHOLE_GPU	(1U << 0)

/**
 * struct uvm_rust_stats - what one GPU did, for this process or for all
 * @size:        in: sizeof of the caller's structure; out: of the driver's
 * @flags:       in: 0 or UVM_RUST_STATS_WHOLE_GPU
 * @gpu_uuid:    in: a GPU registered with this file descriptor
 * @host_to_gpu: out: copied from host memory to this GPU, by cause
 * @gpu_to_host: out: copied from this GPU to host memory, by cause
 * @gpu_to_gpu:  out: copied to this GPU from another one, by cause
 * @faults:      out: replayable faults taken off the fault buffer and resolved
 *               to an address space; each instance of a duplicate counts
 * @duplicates:  out: those among @faults for which nothing was left to do, being
 *               the same access to the same page as another in their batch, or
 *               finding the page already mapped
 * @batches:     out: fault batches; for a process, those that held a fault of it
 * @replays:     out: replays sent to the GPU; for a process, those sent by calls
 *               of the fault service that handled a fault of it
 * @evictions:   out: 2 MiB root chunks reclaimed, by queue. For a process, its
 *               own chunks that were taken; UVM_RUST_QUEUE_FREE is then 0
 * @queued:      out: 2 MiB root chunks that are on each queue now, of all
 *               processes; with uvm_rust_evict=0, on upstream's lists (since
 *               UVM_RUST_STATS_SIZE_V2)
 *
 * "This process" is the file descriptor's VA space; counting begins with its
 * first registration of the GPU and ends with the file descriptor. For the whole
 * GPU it begins when the first process registers it and ends when the last one
 * is gone. Counters never go back and wrap at 2^64. They are read one by one
 * while they change, so sums may be off by work in flight.
 */
struct uvm_rust_stats {
	__u32 size;
	__u32 flags;
	__u8 gpu_uuid[16];
	struct uvm_rust_traffic host_to_gpu[UVM_RUST_CAUSE_MAX];
	struct uvm_rust_traffic gpu_to_host[UVM_RUST_CAUSE_MAX];
	struct uvm_rust_traffic gpu_to_gpu[UVM_RUST_CAUSE_MAX];
	__u64 faults;
	__u64 duplicates;
	__u64 batches;
	__u64 replays;
	__u64 evictions[UVM_RUST_QUEUE_MAX];
	__u64 queued[UVM_RUST_QUEUE_MAX];
};

#define UVM_RUST_STATS_SIZE_V1		504
#define UVM_RUST_STATS_SIZE_V2		568

/**
 * struct uvm_rust_discard_range - managed memory whose contents are not needed
 * @base:   first byte, a multiple of the page size
 * @length: bytes, a multiple of the page size, not 0
 */
struct uvm_rust_discard_range {
	__u64 base;
	__u64 length;
};

/*
 * Flag of struct uvm_rust_discard_batch: unmap at once (UvmDiscard), as
 * UVM_DISCARD does with its flag 1. Without it the discard is lazy
 * (UvmDiscardLazy): nothing is unmapped, and the memory must be prefetched with
 * UVM_MIGRATE before it is used again.
 */
#define UVM_RUST_DISCARD_EAGER		(1U << 0)

/* The most ranges one call takes. */
#define UVM_RUST_DISCARD_MAX_RANGES	(1U << 20)

/**
 * struct uvm_rust_discard_batch - discard several ranges (UVM_RUST_DISCARD_BATCH)
 * @size:             in: sizeof of the caller's structure; out: of the driver's
 * @flags:            in: 0 (lazy) or UVM_RUST_DISCARD_EAGER
 * @ranges:           in: address of an array of struct uvm_rust_discard_range
 * @range_count:      in: how many, 0 to UVM_RUST_DISCARD_MAX_RANGES
 * @range_size:       in: bytes from one to the next, a multiple of 8, at least
 *                    UVM_RUST_DISCARD_RANGE_SIZE_V1 and at most 256; what the
 *                    driver does not know of an element must be 0
 * @first_failed:     out: index of the range at which the call stopped;
 *                    @range_count when all are done
 * @reserved:         0
 * @blocks_discarded: out: 2 MiB blocks of which all that the ranges cover is now
 *                    discarded
 * @blocks_skipped:   out: blocks left as they were, being empty, or covered
 *                    partly where the driver does not discard parts
 * @blocks_partial:   out: blocks of which some of what is covered was left alone
 *
 * A block is 2 MiB of address space, aligned, or what a range of managed memory
 * has of it. Each block that a range touches counts in exactly one of the three;
 * one that several ranges touch counts for each.
 *
 * Ranges are discarded in order and may overlap. The call stops at the first one
 * that fails: those before it stay discarded and are counted, the failed one may
 * be discarded in part, and @first_failed and the counts are filled in, with any
 * errno of the list below. Going on from @first_failed, with the cause removed or
 * that range left out, completes the work.
 *   EINVAL  base or length no multiple of the page size, length 0, or the end of
 *           the range not below 2^64
 *   EFAULT  this element of the array is not readable
 *   E2BIG   unknown fields of this element that are not 0
 *   ENXIO   the range is not, as a whole, managed memory of this file descriptor
 *   EINTR   a fatal signal came
 *   ENOMEM  no memory for the state of a block
 *   EOPNOTSUPP  a GPU that cannot fault (before Pascal) is registered with this
 *           file descriptor: it could not come back to what was unmapped. Met at
 *           the first range, unless it is registered meanwhile
 * Errors found before the first range (the list at the top of this file;
 * EOPNOTSUPP when discard is turned off) leave all outputs unwritten: a caller
 * that sets @first_failed to ~0 beforehand can tell the two EOPNOTSUPP apart.
 */
struct uvm_rust_discard_batch {
	__u32 size;
	__u32 flags;
	__u64 ranges;
	__u32 range_count;
	__u32 range_size;
	__u32 first_failed;
	__u32 reserved;
	__u64 blocks_discarded;
	__u64 blocks_skipped;
	__u64 blocks_partial;
};

#define UVM_RUST_DISCARD_RANGE_SIZE_V1	16
#define UVM_RUST_DISCARD_BATCH_SIZE_V1	56

/* Flag of struct uvm_rust_announce: no kernel follows; what comes is unknown. */
#define UVM_RUST_ANNOUNCE_IDLE		(1U << 0)

/**
 * struct uvm_rust_announce - which kernel runs next on a GPU (UVM_RUST_ANNOUNCE)
 * @size:     in: sizeof of the caller's structure; out: of the driver's
 * @flags:    in: 0 or UVM_RUST_ANNOUNCE_IDLE
 * @gpu_uuid: in: a GPU registered with this file descriptor
 * @exec_id:  in: execution ID (DeepUM §3.1): equal for two launches when the
 *            kernel and its arguments are; any value but 0. With
 *            UVM_RUST_ANNOUNCE_IDLE 0
 *
 * Faults that this process causes on the GPU from now on are taken to belong to
 * @exec_id, until the next announcement. It only guides prefetching and eviction
 * of this file descriptor's own memory: a wrong one costs speed, nothing else.
 * Never waits for the GPU or for a migration, so that it can be called from a
 * stream's host callback.
 */
struct uvm_rust_announce {
	__u32 size;
	__u32 flags;
	__u8 gpu_uuid[16];
	__u64 exec_id;
};

#define UVM_RUST_ANNOUNCE_SIZE_V1	32

/**
 * struct uvm_rust_prefetch_stats - what was learnt of this process's kernels on a GPU,
 * and done with it (UVM_RUST_GET_PREFETCH_STATS)
 * @size:            in: sizeof of the caller's structure; out: of the driver's
 * @flags:           0
 * @gpu_uuid:        in: a GPU registered with this file descriptor
 * @kernels:         out: announcements taken into account
 * @kernels_right:   out: those that had been predicted to come next
 * @kernels_wrong:   out: those where another had been
 * @dropped_kernels: out: announcements for which a queue had no room
 * @blocks:          out: blocks of 2 MiB that kernels faulted on, repetitions not counted
 * @blocks_unknown:  out: those that were not known of their kernel
 * @dropped_faults:  out: faulted blocks for which a queue had no room
 * @predicted:       out: blocks that were predicted
 * @prefetched:      out: of these, moved to the GPU
 * @resident:        out: of these, on the GPU already
 * @held:            out: of these, with no room but what was predicted itself
 * @unfit:           out: of these, freed meanwhile, or kept elsewhere by policy
 * @failed:          out: of these, not moved because of an error
 * @bytes_in:        out: bytes moved to the GPU
 * @pushed_out:      out: blocks moved to the host ahead of need
 * @bytes_out:       out: bytes of these
 * @table_bytes:     out: memory that the tables take now
 * @ids_dropped:     out: execution IDs forgotten for lack of room
 * @ids:             out: execution IDs known now
 * @window:          out: how many kernels ahead is looked now
 *
 * All are 0 before the first announcement. Counters never go back.
 */
struct uvm_rust_prefetch_stats {
	__u32 size;
	__u32 flags;
	__u8 gpu_uuid[16];
	__u64 kernels;
	__u64 kernels_right;
	__u64 kernels_wrong;
	__u64 dropped_kernels;
	__u64 blocks;
	__u64 blocks_unknown;
	__u64 dropped_faults;
	__u64 predicted;
	__u64 prefetched;
	__u64 resident;
	__u64 held;
	__u64 unfit;
	__u64 failed;
	__u64 bytes_in;
	__u64 pushed_out;
	__u64 bytes_out;
	__u64 table_bytes;
	__u64 ids_dropped;
	__u32 ids;
	__u32 window;
};

#define UVM_RUST_PREFETCH_STATS_SIZE_V1	176

#endif /* UVM_RUST_IOCTL_H */
