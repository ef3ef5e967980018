/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
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
 *   EPERM   the file descriptor was not initialised with UVM_INITIALIZE; or the call, or
 *           what it asks for, is for CAP_SYS_ADMIN
 *   EAGAIN  the system sleeps, or is about to: UVM takes no call then; try again
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
#define UVM_RUST_VERSION		7

#define UVM_RUST_GET_VERSION		0x1000
#define UVM_RUST_GET_STATS		0x1001
#define UVM_RUST_DISCARD_BATCH		0x1002
#define UVM_RUST_ANNOUNCE		0x1003
#define UVM_RUST_GET_PREFETCH_STATS	0x1004
#define UVM_RUST_SET_QUOTA		0x1005
#define UVM_RUST_FLASH_ATTACH		0x1010
#define UVM_RUST_FLASH_DETACH		0x1011
#define UVM_RUST_FLASH_GET_STATS	0x1012
#define UVM_RUST_FLASH_MOVE		0x1013
#define UVM_RUST_FLASH_SUBMIT		0x1014
#define UVM_RUST_FLASH_REAP		0x1015

/* Features, as bits of struct uvm_rust_version.features. */
#define UVM_RUST_FEATURE_STATS		(1ULL << 0)
#define UVM_RUST_FEATURE_DISCARD	(1ULL << 1)	/* UVM_RUST_DISCARD_BATCH, and UVM_DISCARD (80) */
#define UVM_RUST_FEATURE_EXEC_ID	(1ULL << 2)	/* UVM_RUST_ANNOUNCE */
#define UVM_RUST_FEATURE_NATIVE_DISCARD	(1ULL << 3)	/* what discards is NVIDIA's, by its rules */
#define UVM_RUST_FEATURE_QUOTA		(1ULL << 4)	/* UVM_RUST_SET_QUOTA */
#define UVM_RUST_FEATURE_QUOTA_LOW	(1ULL << 5)	/* UVM_RUST_QUOTA_LOW */
#define UVM_RUST_FEATURE_FLASH		(1ULL << 8)	/* UVM_RUST_FLASH_ATTACH to _MOVE */
#define UVM_RUST_FEATURE_FLASH_QUEUE	(1ULL << 9)	/* UVM_RUST_FLASH_SUBMIT and _REAP */
#define UVM_RUST_FEATURE_FLASH_AFTER	(1ULL << 10)	/* UVM_RUST_FLASH_AFTER */

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
 * struct uvm_rust_traffic - pages that were copied in one direction for one cause
 * @bytes: how many bytes were copied
 * @pages: the same in 4 KiB pages
 */
struct uvm_rust_traffic {
	__u64 bytes;
	__u64 pages;
};

/*
 * Flag of struct uvm_rust_stats: count all processes on the GPU, not only this. What others
 * do is for CAP_SYS_ADMIN in the initial user namespace, or for everybody with the module
 * parameter uvm_rust_stats_public=1; EPERM for those whom it is not for.
 */
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
 *               finding the page already mapped for their access. The latter
 *               are not known, and do not count, where the GPU has the CPU's
 *               page tables (ATS), and where the driver has no hooks of ours
 *               in its fault loop (580 and later with UVM_RUST_WHOLE=0)
 * @batches:     out: fault batches; for a process, those that held a fault of it
 * @replays:     out: replays sent to the GPU; for a process, those sent by calls
 *               of the fault service that handled a fault of it
 * @evictions:   out: 2 MiB root chunks reclaimed, by queue; where the driver
 *               discards by itself (UVM_RUST_FEATURE_NATIVE_DISCARD), tries to.
 *               For a process, how often its own chunks were to be taken, also
 *               in vain; UVM_RUST_QUEUE_FREE is then 0
 * @queued:      out: 2 MiB root chunks that are on each queue now, of all
 *               processes; with uvm_rust_evict=0, on upstream's lists (since
 *               UVM_RUST_STATS_SIZE_V2). All 0 for a caller to whom
 *               UVM_RUST_STATS_WHOLE_GPU would give EPERM
 * @thrashed:    out: blocks of 2 MiB of which data were copied to this GPU again
 *               before as many further blocks had been evicted from it as it has
 *               chunks of 2 MiB; one for each such eviction (since
 *               UVM_RUST_STATS_SIZE_V3)
 * @prefetch_wasted: out: evictions of blocks that UVM_RUST_ANNOUNCE's prefetcher
 *               had brought, before the kernel began for which it had (since
 *               UVM_RUST_STATS_SIZE_V3)
 *
 * "This process" is the file descriptor's VA space; counting begins with its
 * first registration of the GPU and ends with the file descriptor. For the whole
 * GPU it begins when the first process registers it and ends when the last one
 * is gone. If no process keeps the GPU registered and it comes back later, all
 * counters begin at 0 again. Otherwise they never decrease; they wrap at 2^64.
 * They are read one by one while they change, so sums may be off by work in flight.
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
	__u64 thrashed;
	__u64 prefetch_wasted;
};

#define UVM_RUST_STATS_SIZE_V1		504
#define UVM_RUST_STATS_SIZE_V2		568
#define UVM_RUST_STATS_SIZE_V3		584

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
 * @reserved:         must be 0, or the call fails with EINVAL
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
 *   EAGAIN  the system sleeps, or is about to. @size stays as the caller gave it,
 *           so that the same call can be made again, which begins anew
 *   ENOMEM  no memory for the state of a block
 *   EOPNOTSUPP  a GPU that cannot fault (before Pascal) is registered with this
 *           file descriptor: it could not come back to what was unmapped. Met at
 *           the first range, unless it is registered meanwhile
 *
 * Errors found before the first range (the list at the top of this file but for
 * EAGAIN; EOPNOTSUPP when discard is turned off) leave all outputs unwritten: a caller
 * that sets @first_failed to ~0 beforehand can tell the two EOPNOTSUPP apart.
 * A structure that is not writable is one of them: nothing is discarded. EFAULT
 * after ranges were discarded is left to who makes the structure unwritable
 * during the call.
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
 * @size:     in: sizeof of the caller's structure; out, with E2BIG only: the driver's
 * @flags:    in: 0 or UVM_RUST_ANNOUNCE_IDLE
 * @gpu_uuid: in: a GPU registered with this file descriptor
 * @exec_id:  in: execution ID (DeepUM §3.1): equal for two launches when the
 *            kernel and its arguments are; any value but 0. With
 *            UVM_RUST_ANNOUNCE_IDLE 0
 *
 * Faults that this process causes on the GPU from now on are taken to belong to
 * @exec_id, until the next announcement. It only guides prefetching and eviction
 * of this file descriptor's own memory: a wrong one costs speed, nothing else.
 * With uvm_rust_evict_policy=turns it also says whose turn on the GPU it is, by
 * which it is decided whose memory goes first.
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
 * @flags:           no flag is known yet: 0, or the call fails with EINVAL
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
 * @held:            out: of these, not moved, as only blocks that are themselves predicted could make room
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

/* Flags of struct uvm_rust_quota. Without either of the two, the call tells what there is. */
#define UVM_RUST_QUOTA_MAX	(1U << 0)	/* @max is to be set */
#define UVM_RUST_QUOTA_LOW	(1U << 1)	/* @low is to be set, if the driver has UVM_RUST_FEATURE_QUOTA_LOW */

/**
 * struct uvm_rust_quota - how much of a GPU this file descriptor may hold and keep (UVM_RUST_SET_QUOTA)
 * @size:     in: sizeof of the caller's structure; out: of the driver's
 * @flags:    UVM_RUST_QUOTA_MAX and UVM_RUST_QUOTA_LOW, together or alone, or 0; EINVAL for others
 * @gpu_uuid: in: a GPU registered with this file descriptor
 * @max:      in: how many bytes of the GPU, in whole 2 MiB blocks, the VA space may hold before it evicts its own;
 *            all bits set: no maximum.
 *            out: what is in force now
 * @low:      in: how many bytes of the GPU, in whole 2 MiB blocks, other VA spaces leave to this one as long as there is
 *            anything else to evict; 0: none.
 *            out: what is in force now
 * @held:     out: bytes of the GPU that count; all bits set if that is not known
 * @beyond:   out: allocations that went on at the maximum, as none of the VA space's own memory could be evicted
 *
 * The call lowers the maximum and the low of its own file descriptor, whoever calls. To raise either takes
 * CAP_SYS_ADMIN in the initial user namespace; EPERM without, and then neither is changed. ENODEV if the GPU is not
 * registered, and ENOMEM if memory was short when it was. EOPNOTSUPP also with uvm_rust_stats=0 or uvm_rust_evict=0, as
 * nobody then knows what is held, and for a GPU without replayable faults. Also in a driver of 580 or later that is built
 * with UVM_RUST_WHOLE=0.
 *
 * EINVAL for a maximum of less than 640 MiB, or an eighth of the GPU if that is less: with less, a kernel could fault
 * for ever on blocks that it needs at once. One instruction of a warp may need 64 blocks of 2 MiB, and a batch of faults brings
 * 256.
 *
 * Before it returns, the call evicts what the VA space holds beyond the maximum, as long as chunks can
 * be evicted and the caller is not killed; what is left goes when the VA space next wants memory there.
 * After EFAULT in writing the result the limits are set all the same; likewise after ENODEV or EAGAIN that comes during
 * the call, as the GPU is unregistered or the system is about to sleep.
 *
 * A maximum refuses no memory, and nothing waits for it: it is memory.high of cgroups, not memory.max. A VA space at
 * its maximum evicts a chunk of its own for each further one, by faults and by migrations alike, whether or not the GPU
 * has free memory. So it takes no block of another process for what is beyond the maximum, unless the GPU is full and
 * another allocation takes the chunk first. The copy to the host is waited for, in the fault service too. Where no chunk of its own can be evicted, as threads
 * work on all of them or host memory is short, the VA space gets the further one all the same (@beyond), and each later
 * one evicts up to two. While evictions succeed, n threads that bring memory at the same time have the VA space
 * hold n - 1 chunks of 2 MiB beyond its maximum at most; the fault service of a GPU is one thread.
 *
 * A low is memory.low of cgroups. Of a VA space that holds no more than its low, no chunk with pages in use is evicted for
 * others, while a VA space that holds more than its own low, or none has, uses a chunk that may be evicted. If there is
 * none, the chunk goes that would go without lows. So a low refuses no memory, nothing waits for it, and what of it is
 * not held is lent. It does not keep a VA space at its maximum from evicting its own. The lows of a GPU may be more than
 * the GPU has, and are not scaled then. Lows are not heeded:
 *   - while all that is not protected is 640 MiB or less, or an eighth of the GPU if that is less, for the same reason as
 *     above: so much of the GPU cannot be protected
 *   - after nine evictions in a row that failed, until one succeeds
 *   - for RM's memory, such as cudaMalloc's, where RM asks for certain addresses
 * Chunks in which nothing is in use, or all is discarded, go first, whosever they are. 64 VA
 * spaces that have chunks of a GPU can be protected at a time, and 32 whatever others there are without a low. A further
 * VA space is protected once another one has no chunk or no low any more, and it gets its next chunk; what it had before
 * is protected once its low is set again. No call tells that a VA space is not protected.
 *
 * What is counted are chunks of 2 MiB that are one VA space's, from their allocation until they are free: what
 * fdinfo calls "resident", and chunks whose pages have all gone elsewhere. Chunks that are split are not counted:
 * those of ordinary memory (HMM), and of managed memory in pieces of less than 2 MiB. Neither is what cudaMalloc takes.
 *
 * Both last as long as the file descriptor, also if the GPU is unregistered and comes back; then they are those of
 * whatever GPU has the same number, but the maximum is no less than the least there. At first they are what the module
 * parameters uvm_rust_gpu_max and uvm_rust_gpu_low say.
 */
struct uvm_rust_quota {
	__u32 size;
	__u32 flags;
	__u8 gpu_uuid[16];
	__u64 max;
	__u64 low;
	__u64 held;
	__u64 beyond;
};

#define UVM_RUST_QUOTA_SIZE_V1		56

/* Flags of struct uvm_rust_flash_attach. */
#define UVM_RUST_FLASH_FORCE		(1U << 0)	/* even if something seems to be on it; not if it is in use */
#define UVM_RUST_FLASH_NO_CHECKSUMS	(1U << 1)	/* trust the device to give back what was written */

/**
 * struct uvm_rust_flash_attach - use a device as SSD tier (UVM_RUST_FLASH_ATTACH)
 * @size:        in: sizeof of the caller's structure
 * @flags:       in: 0, or UVM_RUST_FLASH_FORCE and UVM_RUST_FLASH_NO_CHECKSUMS, together or alone
 * @path:        in: address of the path of a block device or a file, NUL-terminated,
 *               4096 bytes at most
 * @host_bytes:  in: host memory for managed pages, of all processes, not 0: above it
 *               pages are written to the device, those longest in host memory first
 * @quota_bytes: in: what a tenant may have on the device, that is a user in a memory cgroup,
 *               with all descriptors that its processes have initialized, whoever uses them;
 *               0 for all of it
 *
 * Needs CAP_SYS_ADMIN, and the module parameter uvm_rust_flash=1. The device is opened
 * exclusively and written to: what it held is lost. Its first 2 MiB are not used but for
 * a mark that lets it be attached again without UVM_RUST_FLASH_FORCE.
 *   EPERM       no CAP_SYS_ADMIN
 *   EEXIST      a device is attached
 *   EBUSY       it is mounted, or in use by something else
 *   ENOTEMPTY   its first 128 KiB are not zeros, so something may be on it
 *   ENOTBLK     neither a block device nor a regular file
 *   ENOSPC      smaller than 8 MiB
 *   EOPNOTSUPP  off by the module parameter, or no direct I/O, or no encryption (the
 *               kernel lacks "xts(aes)")
 *   and what opening, reading and writing it give
 */
struct uvm_rust_flash_attach {
	__u32 size;
	__u32 flags;
	__u64 path;
	__u64 host_bytes;
	__u64 quota_bytes;
};

#define UVM_RUST_FLASH_ATTACH_SIZE_V1	32

/**
 * struct uvm_rust_flash_detach - stop using the device (UVM_RUST_FLASH_DETACH)
 * @size:  in: sizeof of the caller's structure
 * @flags: 0
 *
 * Needs CAP_SYS_ADMIN. Nothing more is written; what is on the device is brought back
 * to host memory, which takes as long as that takes, and then it is let go.
 *   EPERM   no CAP_SYS_ADMIN
 *   ENODEV  none is attached
 *   EINTR   a fatal signal came: it stays attached, writes nothing, and may be
 *           detached again
 *   EAGAIN  somebody waits to suspend the system; as above
 *   EBUSY   memory for some page could not be had, a page could not be read, or a va_block
 *           stayed in use; as above
 */
struct uvm_rust_flash_detach {
	__u32 size;
	__u32 flags;
};

#define UVM_RUST_FLASH_DETACH_SIZE_V1	8

/**
 * struct uvm_rust_flash_stats - what the SSD tier did (UVM_RUST_FLASH_GET_STATS)
 * @size:         in: sizeof of the caller's structure; out: of the driver's
 * @flags:        no flag is known yet: 0, or the call fails with EINVAL
 * @attached:     out: 1 while a device is attached and written to, else 0
 * @slots:        out: slots of 2 MiB of the device
 * @free_slots:   out: those with no page
 * @extents:      out: extents in use
 * @pages:        out: pages of 4 KiB on the device
 * @pages_mine:   out: those of the tenant (user in a memory cgroup) that initialized this file
 *                descriptor, with all that its processes have initialized
 * @host_pages:   out: pages of host memory allocated to managed memory
 * @host_peak:    out: the most they ever were since attaching
 * @written:      out: bytes written to the device for pages that left host memory, also
 *                those that turned out to be in use
 * @spilled:      out: bytes that left host memory
 * @fetched:      out: bytes that came back to host memory
 * @relocated:    out: bytes copied inside the device to gather free space
 * @dropped:      out: bytes that left host memory unwritten, being discarded
 * @write_errors: out: writes that failed; their pages stayed in host memory
 * @read_errors:  out: reads that failed, were short, or had a wrong checksum
 * @lost_pages:   out: pages that could not be read; their owners get SIGBUS, or a fatal
 *                GPU fault. One that is read again later, in vain, counts again
 * @refused:      out: va_blocks that were not written for want of room or by the quota
 * @unwritten:    out: bytes that left host memory unwritten, as the device still had them;
 *                not counted in @spilled (since UVM_RUST_FLASH_STATS_SIZE_V2)
 * @parked:       out: GPU faults that were put off, and came back, as their pages were on the
 *                device or host memory was full (since UVM_RUST_FLASH_STATS_SIZE_V3)
 * @throttled:    out: times that UVM_RUST_FLASH_MOVE waited, as its tenant had written as much
 *                as uvm_rust_flash_move_mib allows (since UVM_RUST_FLASH_STATS_SIZE_V3)
 * @rested_us:    out: microseconds that workers left the device to others, as
 *                uvm_rust_flash_share says (since UVM_RUST_FLASH_STATS_SIZE_V3)
 * @fault_waits_most: out: the most operations of the device for others than faults, of up to
 *                2 MiB each or a discard, that were under way between the moment at which a GPU fault asked
 *                for pages and the beginning of the read of those (since
 *                UVM_RUST_FLASH_STATS_SIZE_V4)
 * @trimmed:      out: bytes that the device was told to forget, being needed no more
 *                (uvm_rust_flash_trim; since UVM_RUST_FLASH_STATS_SIZE_V4)
 *
 * Counters begin with attaching and stay until the next one. Without a device all is 0.
 * They are those of all processes together: but for @attached, @slots and @pages_mine all is 0
 * to who has no CAP_SYS_ADMIN in the initial user namespace, unless the module parameter
 * uvm_rust_stats_public is set.
 */
struct uvm_rust_flash_stats {
	__u32 size;
	__u32 flags;
	__u32 attached;
	__u32 slots;
	__u32 free_slots;
	__u32 extents;
	__u64 pages;
	__u64 pages_mine;
	__u64 host_pages;
	__u64 host_peak;
	__u64 written;
	__u64 spilled;
	__u64 fetched;
	__u64 relocated;
	__u64 dropped;
	__u64 write_errors;
	__u64 read_errors;
	__u64 lost_pages;
	__u64 refused;
	__u64 unwritten;
	__u64 parked;
	__u64 throttled;
	__u64 rested_us;
	__u64 fault_waits_most;
	__u64 trimmed;
};

#define UVM_RUST_FLASH_STATS_SIZE_V1	128
#define UVM_RUST_FLASH_STATS_SIZE_V2	136
#define UVM_RUST_FLASH_STATS_SIZE_V3	160
#define UVM_RUST_FLASH_STATS_SIZE_V4	176

/* Flags of struct uvm_rust_flash_move_range. */
#define UVM_RUST_FLASH_TO_HOST		(1U << 0)	/* from the device to host memory */
#define UVM_RUST_FLASH_TO_GPU		(1U << 1)	/* from the device and from host memory to a GPU */

/**
 * struct uvm_rust_flash_move_range - move a range at once (UVM_RUST_FLASH_MOVE)
 * @size:     in: sizeof of the caller's structure
 * @flags:    in: 0, from host memory to the device, or one of UVM_RUST_FLASH_TO_HOST and
 *            UVM_RUST_FLASH_TO_GPU
 * @base:     in: first byte, a multiple of the page size
 * @length:   in: bytes, a multiple of the page size, not 0
 * @gpu_uuid: in: with UVM_RUST_FLASH_TO_GPU, a GPU registered with this file descriptor (since
 *            UVM_RUST_FLASH_MOVE_SIZE_V2)
 *
 * G10's g10_pre_evict and g10_prefetch between host and SSD (§4.4); between GPU and host
 * they are UVM_MIGRATE. Pages that are elsewhere, in use, or of which the quota or the
 * device leaves no room, stay where they are. Returns when all is done.
 *
 * UVM_RUST_FLASH_TO_GPU is both ways at once: pages are read from the device while others are
 * copied to the GPU. It moves what UVM_MIGRATE would, but leaves alone va_blocks (2 MiB) that nobody
 * has touched, whose range group may not be moved, and that the GPU cannot address.
 *
 * From the device, what comes next is read ahead, by some reads at a time. A tenant may write a
 * second's worth of the module parameter uvm_rust_flash_move_mib at once, and then waits.
 * Each part of 16 MiB is moved by itself; after an error those before it have been moved.
 * The state of what is on the device is charged to the tenant's memory cgroup. Host memory that
 * pages come back to is charged to the process, as UVM's own; with
 * UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE to the memory cgroup of the caller.
 *   EAGAIN  the system is about to sleep: to be called again, which leaves alone what was moved
 *   ENXIO   not, as a whole, managed memory of this file descriptor
 *   ENODEV  no device is attached, or no such GPU is registered with this file descriptor
 *   EINTR   a signal came, or the process is being killed
 *   ENOMEM, EIO
 */
struct uvm_rust_flash_move_range {
	__u32 size;
	__u32 flags;
	__u64 base;
	__u64 length;
	__u8 gpu_uuid[16];
};

#define UVM_RUST_FLASH_MOVE_SIZE_V1	24
#define UVM_RUST_FLASH_MOVE_SIZE_V2	40

/**
 * struct uvm_rust_flash_request - a range that is to be moved (UVM_RUST_FLASH_SUBMIT)
 * @base:      in: first byte, a multiple of the page size
 * @length:    in: bytes, a multiple of the page size, not 0
 * @user_data: in: comes back with the completion
 * @flags:     in: as of struct uvm_rust_flash_move_range; and UVM_RUST_FLASH_FROM_GPUS, not with
 *             UVM_RUST_FLASH_TO_GPU; and UVM_RUST_FLASH_AFTER, with any of them, if the driver has
 *             UVM_RUST_FEATURE_FLASH_AFTER
 * @reserved:  must be 0, or the call fails with EINVAL
 * @gpu_uuid:  in: with UVM_RUST_FLASH_TO_GPU, a GPU registered with this file descriptor when the
 *             request begins
 */
struct uvm_rust_flash_request {
	__u64 base;
	__u64 length;
	__u64 user_data;
	__u32 flags;
	__u32 reserved;
	__u8 gpu_uuid[16];
};

/* Flag of struct uvm_rust_flash_request: what is on GPUs goes to host memory first. */
#define UVM_RUST_FLASH_FROM_GPUS	(1U << 2)

/* Flag of struct uvm_rust_flash_request: the request begins when all submitted before it have ended. */
#define UVM_RUST_FLASH_AFTER		(1U << 3)

/* Flag of struct uvm_rust_flash_submit: each completion of these requests adds 1 to @event_fd. */
#define UVM_RUST_FLASH_EVENT		(1U << 0)

/* The most requests of a file descriptor that are not done, or done and not reaped. */
#define UVM_RUST_FLASH_MAX_REQUESTS	4096

/**
 * struct uvm_rust_flash_submit - move ranges, without waiting (UVM_RUST_FLASH_SUBMIT)
 * @size:          in: sizeof of the caller's structure; out: of the driver's
 * @flags:         in: 0 or UVM_RUST_FLASH_EVENT
 * @requests:      in: address of an array of struct uvm_rust_flash_request
 * @request_count: in: how many, 0 to UVM_RUST_FLASH_MAX_REQUESTS
 * @request_size:  in: bytes from one to the next, a multiple of 8, at least
 *                 UVM_RUST_FLASH_REQUEST_SIZE_V1 and at most 256; what the driver does not know of an
 *                 element must be 0
 * @event_fd:      in: with UVM_RUST_FLASH_EVENT a descriptor of eventfd(2), which may be closed once the call
 *                 has returned; else 0
 * @taken:         out: how many of the requests were taken, from the first on
 * @queue:         in: any number: UVM_RUST_FLASH_REAP with the same one gives these requests' completions. So
 *                 several users of a file descriptor do not take each other's
 *
 * Each request does what UVM_RUST_FLASH_MOVE does, some time later, in a thread of the kernel's. With
 * UVM_RUST_FLASH_FROM_GPUS it is G10's g10_pre_evict, from GPUs to host memory, and on to the device without
 * UVM_RUST_FLASH_TO_HOST. Only what goes to the device needs one.
 *
 * Requests with UVM_RUST_FLASH_TO_GPU and the same @gpu_uuid begin and end in the order in which they were
 * submitted; so do those with UVM_RUST_FLASH_TO_HOST and without UVM_RUST_FLASH_FROM_GPUS; and so do all
 * others. Requests of different kinds are carried out at the same time, as far as there are threads for
 * that, unless they share a va_block (2 MiB of addresses, aligned): then the one that was submitted first is
 * done before the other begins. With more than eight GPUs at a time, what goes to some of them is in one order.
 *
 * A request with UVM_RUST_FLASH_AFTER begins only when all requests of the file descriptor that were submitted
 * before it have ended, well or not, whichever their memory and their @queue: for what comes to a GPU that is
 * full until something has left. Requests that are submitted later wait for it as for any other.
 *
 * All requests are looked at before the first one is taken. With less room than requests, as many are taken as
 * there is room for. What has not begun when the last descriptor of the file is closed is dropped, and what is
 * under way ends early. Memory for requests is charged to the caller's memory cgroup.
 *   EINVAL  an unknown flag, base or length no multiple of the page size, length 0, the end of a range
 *           not below 2^64, a reserved field that is not 0, too many requests, or @event_fd is
 *           another kind of file
 *   EBADF   @event_fd is no descriptor
 *   EFAULT  an element of the array is not readable
 *   E2BIG   unknown fields of an element that are not 0
 *   EBUSY   there is no room for the first request: UVM_RUST_FLASH_REAP makes some
 *   ENOMEM
 */
struct uvm_rust_flash_submit {
	__u32 size;
	__u32 flags;
	__u64 requests;
	__u32 request_count;
	__u32 request_size;
	__s32 event_fd;
	__u32 taken;
	__u64 queue;
};

#define UVM_RUST_FLASH_REQUEST_SIZE_V1	48
#define UVM_RUST_FLASH_SUBMIT_SIZE_V1	40

/**
 * struct uvm_rust_flash_completion - what became of a request (UVM_RUST_FLASH_REAP)
 * @user_data: out: what the request had there
 * @order:     out: how many requests of this file descriptor were done before this one, plus 1
 * @status:    out: 0, or -errno: one of those of struct uvm_rust_flash_move_range. What was moved before an
 *             error stays so
 * @reserved:  out: 0, in this version
 */
struct uvm_rust_flash_completion {
	__u64 user_data;
	__u64 order;
	__s32 status;
	__u32 reserved;
};

/**
 * struct uvm_rust_flash_reap - which requests are done (UVM_RUST_FLASH_REAP)
 * @size:             in: sizeof of the caller's structure; out: of the driver's
 * @flags:            no flag is known yet: 0, or the call fails with EINVAL
 * @completions:      in: address of an array of struct uvm_rust_flash_completion
 * @completion_count: in: for how many it has room
 * @completion_size:  in: bytes from one to the next, a multiple of 8, at least
 *                    UVM_RUST_FLASH_COMPLETION_SIZE_V1 and at most 256; what the driver does not know of an
 *                    element is set to 0
 * @wait_for:         in: return once this many completions are there, @completion_count at most, or no request
 *                    of @queue is left that is not done; 0 returns at once
 * @wait_ms:          in: return after this many milliseconds, or a moment later, in any case
 * @reaped:           out: how many completions were given, in the order in which the requests were done
 * @pending:          out: how many requests of @queue are not done
 * @queue:            in: that of struct uvm_rust_flash_submit
 *
 * Each completion is given once. Its request has ended: what it moved is there.
 *   EFAULT  the array is not writable. No completion is lost that could not be written there, unless @reaped
 *           could not be
 *   EINTR   a signal came while it waited; nothing is given
 *   EAGAIN  the system is about to sleep; as above
 */
struct uvm_rust_flash_reap {
	__u32 size;
	__u32 flags;
	__u64 completions;
	__u32 completion_count;
	__u32 completion_size;
	__u32 wait_for;
	__u32 wait_ms;
	__u32 reaped;
	__u32 pending;
	__u64 queue;
};

#define UVM_RUST_FLASH_COMPLETION_SIZE_V1	24
#define UVM_RUST_FLASH_REAP_SIZE_V1		48

#endif /* UVM_RUST_IOCTL_H */
