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
 * changes nothing:
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
#define UVM_RUST_VERSION		1

#define UVM_RUST_GET_VERSION		0x1000
#define UVM_RUST_GET_STATS		0x1001

/* Features, as bits of struct uvm_rust_version.features. */
#define UVM_RUST_FEATURE_STATS		(1ULL << 0)

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
#define UVM_RUST_QUEUE_DISCARDED	2	/* discarded; 0 until the driver has discard */
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
};

#define UVM_RUST_STATS_SIZE_V1		504

#endif /* UVM_RUST_IOCTL_H */
