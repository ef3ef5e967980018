/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * /dev/vgpu: what a program does with the software GPU.
 *
 * The GPU's memory is managed by nvidia-uvm.ko through /dev/nvidia-uvm, as on a
 * real machine. /dev/vgpu is the other half, what CUDA would do through
 * nvidia.ko: address spaces, channels and kernels. A program
 *
 *   1. opens /dev/vgpu (the open file is the client) and /dev/nvidia-uvm,
 *   2. asks VGPU_GET_INFO for the GPU's UUID and gives it to UVM_REGISTER_GPU,
 *   3. makes an address space with VGPU_VASPACE_CREATE and gives its h_client and
 *      h_vaspace to UVM_REGISTER_GPU_VASPACE,
 *   4. makes a channel with VGPU_CHANNEL_CREATE and gives its h_client and
 *      h_channel to UVM_REGISTER_CHANNEL (base and length 0),
 *   5. submits kernels with VGPU_SUBMIT and waits for them with VGPU_WAIT.
 *
 * Closing the file stops all its kernels at once and destroys its objects. An
 * object that UVM still uses lives on, stopped, until UVM lets go of it.
 *
 * Every structure starts with its size as the caller knows it. A kernel that
 * knows a longer one takes the missing part as zero and fills only what fits; a
 * kernel that knows a shorter one refuses (E2BIG) if the part it does not know
 * is not zero. So the ioctl numbers carry no size and never change.
 *
 * A call that fails changes nothing (VGPU_INJECT's evictions and an interrupted
 * VGPU_WAIT say their exceptions). Errors common to all calls:
 *   EFAULT   a pointer is null, or not readable or writable in full
 *   EINVAL   size below the first version's, unknown flag, reserved field not 0,
 *            a value out of the range its field states
 *   E2BIG    size over 4096, or unknown fields that are not 0
 *   ENODEV   no GPU of this index
 *   ENOENT   no such handle in this open file (another file's handle included)
 *   ENOMEM   memory could not be had
 *   ENOTTY   no such call
 */
#ifndef VGPU_H
#define VGPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VGPU_IOC_MAGIC		'V'

#define VGPU_GET_INFO		_IO(VGPU_IOC_MAGIC, 0x40)
#define VGPU_VASPACE_CREATE	_IO(VGPU_IOC_MAGIC, 0x41)
#define VGPU_CHANNEL_CREATE	_IO(VGPU_IOC_MAGIC, 0x42)
#define VGPU_DESTROY		_IO(VGPU_IOC_MAGIC, 0x43)
#define VGPU_SUBMIT		_IO(VGPU_IOC_MAGIC, 0x44)
#define VGPU_WAIT		_IO(VGPU_IOC_MAGIC, 0x45)
#define VGPU_GET_STATS		_IO(VGPU_IOC_MAGIC, 0x46)
#define VGPU_INJECT		_IO(VGPU_IOC_MAGIC, 0x47)
#define VGPU_TRANSLATE		_IO(VGPU_IOC_MAGIC, 0x48)

/* Bounds. Passing one of the first eight is ENOSPC, of the others EINVAL. */
#define VGPU_MAX_VASPACES	16	/* per open file and GPU */
#define VGPU_MAX_CHANNELS	16	/* per open file and GPU */
#define VGPU_MAX_CHANNELS_ALL	256	/* per GPU, of all open files together */
#define VGPU_MAX_CHANNELS_USER	64	/* of these, of one user's without CAP_SYS_ADMIN */
#define VGPU_MAX_CHANNELS_USERS	192	/* and of all such users together */
#define VGPU_MAX_QUEUED		128	/* unfinished kernels per channel */
#define VGPU_MAX_QUEUED_OPS	8192	/* ops of these, all together */
#define VGPU_MAX_QUEUED_WARPS	65536	/* warps of these that run together */
#define VGPU_MAX_RUNNING_WARPS	65536	/* of one user's kernels; what is beyond waits in its queue */
#define VGPU_MAX_OPS		1024	/* per kernel */
#define VGPU_MAX_WARPS		16384	/* per kernel, all ops together */
#define VGPU_MAX_ACCESSES	(1ULL << 40)	/* per op */
#define VGPU_KEPT_RESULTS	128	/* results per channel that WAIT can still give */

/* What freed vidmem is filled with, by 64 bit words, with VGPU_FEATURE_POISON. */
#define VGPU_POISON		0x5eed5eedbad0bad0ULL

/* Which GPU is emulated: struct vgpu_info.personality. */
#define VGPU_PERSONALITY_TURING	0	/* TU10x: host C46F, copy engine C5B5 */
#define VGPU_PERSONALITY_VOLTA	1	/* GV100: host C36F, copy engine C3B5 */
#define VGPU_PERSONALITY_AMPERE	2	/* GA100: host C56F, copy engine C6B5 */
#define VGPU_PERSONALITY_HOPPER	3	/* GH100: host C86F, copy engine C8B5 */
#define VGPU_PERSONALITY_BLACKWELL 4	/* GB202: host CA6F, copy engine CAB5 */

/* How vgpu.ko was loaded: struct vgpu_info.features. */
#define VGPU_FEATURE_TLB	(1ULL << 0)	/* software TLB on: missing invalidates show */
#define VGPU_FEATURE_POISON	(1ULL << 1)	/* freed memory is filled with a pattern */
#define VGPU_FEATURE_SIMULATED	(1ULL << 2)	/* reports itself to UVM as simulated */
#define VGPU_FEATURE_PCIE	(1ULL << 3)	/* GPUs reach each other's memory over PCIe, where an atomic reads, adds and writes */
#define VGPU_FEATURE_NVLINK	(1ULL << 4)	/* the same over NVLink, where atomics are atomic */

/**
 * struct vgpu_info - what one GPU is and has (VGPU_GET_INFO)
 * @size:          in: sizeof of the caller's structure; out: of the driver's
 * @gpu:           in: which GPU, from 0
 * @gpu_count:     out: how many there are, at most 8
 * @personality:   out: which GPU is emulated, VGPU_PERSONALITY_*
 * @uuid:          out: the UUID under which UVM knows it
 * @name:          out: for people, ends with a zero
 * @vidmem_bytes:  out: size of its memory
 * @reserved_bytes: out: of these, the bytes that UVM cannot have
 * @features:      out: how vgpu.ko was loaded, bits VGPU_FEATURE_*
 * @utlb_count:    out: number of µTLBs (4 GPCs with several each)
 * @utlb_faults:   out: outstanding faults per µTLB where a kernel does not say
 * @fault_entries: out: size of the replayable fault buffer, in entries
 * @reserved:      0
 *
 * ENODEV beyond the last GPU, so that counting up finds them all.
 */
struct vgpu_info {
	__u32 size;
	__u32 gpu;
	__u32 gpu_count;
	__u32 personality;
	__u8 uuid[16];
	char name[32];
	__u64 vidmem_bytes;
	__u64 reserved_bytes;
	__u64 features;
	__u32 utlb_count;
	__u32 utlb_faults;
	__u32 fault_entries;
	__u32 reserved;
};

#define VGPU_INFO_SIZE_V1	104

/**
 * struct vgpu_vaspace - an address space on one GPU (VGPU_VASPACE_CREATE)
 * @size:      in: sizeof of the caller's structure
 * @flags:     in: no flag is known yet: 0, else EINVAL
 * @gpu:       in: on which GPU, from 0
 * @h_client:  out: names this open file to UVM
 * @h_vaspace: out: names the address space, here and to UVM; never 0
 * @reserved:  0
 *
 * Until UVM_REGISTER_GPU_VASPACE sets its page directory nothing is mapped.
 */
struct vgpu_vaspace {
	__u32 size;
	__u32 flags;
	__u32 gpu;
	__u32 h_client;
	__u32 h_vaspace;
	__u32 reserved;
};

#define VGPU_VASPACE_SIZE_V1	24

/**
 * struct vgpu_channel - a queue of kernels (VGPU_CHANNEL_CREATE)
 * @size:      in: sizeof of the caller's structure
 * @flags:     in: no flag is known yet: 0, else EINVAL
 * @h_vaspace: in: the address space its kernels use
 * @h_client:  out: names this open file to UVM
 * @h_channel: out: names the channel, here and to UVM; never 0
 * @reserved:  0
 *
 * Kernels of one channel run one after another, those of several at the same
 * time. It takes kernels once UVM_REGISTER_CHANNEL has bound it, and stops for
 * good when UVM stops it (UVM_UNREGISTER_CHANNEL, UVM_UNREGISTER_GPU_VASPACE).
 */
struct vgpu_channel {
	__u32 size;
	__u32 flags;
	__u32 h_vaspace;
	__u32 h_client;
	__u32 h_channel;
	__u32 reserved;
};

#define VGPU_CHANNEL_SIZE_V1	24

/**
 * struct vgpu_destroy - give up an address space or a channel (VGPU_DESTROY)
 * @size:     in: sizeof of the caller's structure
 * @flags:    in: no flag is known yet: 0, else EINVAL
 * @handle:   in: an h_vaspace or h_channel
 * @reserved: 0
 *
 * A channel's kernels are stopped first. The handle is free at once; what UVM
 * still uses goes when UVM lets go of it. EBUSY: an address space with channels.
 */
struct vgpu_destroy {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

#define VGPU_DESTROY_SIZE_V1	16

/* What an op does: struct vgpu_op.kind. */
#define VGPU_OP_READ		0	/* add the elements up into vgpu_wait.sum */
#define VGPU_OP_WRITE		1	/* store the pattern */
#define VGPU_OP_ATOMIC_ADD	2	/* atomically add the pattern */
#define VGPU_OP_CHECK		3	/* read, and compare with the pattern */
#define VGPU_OP_PREFETCH	4	/* prefetch instruction: may fault, never waits */

/* struct vgpu_op.flags */
#define VGPU_OP_BARRIER		(1U << 0)	/* start when all earlier ops are done */
#define VGPU_OP_BLOCKED		(1U << 1)	/* each warp has a run of its own, see below */
#define VGPU_OP_PERMUTE		(1U << 2)	/* touch the accesses in a scattered order */

/**
 * struct vgpu_op - many memory accesses made by many warps
 * @kind:         what the accesses do, one of VGPU_OP_READ to VGPU_OP_PREFETCH
 * @flags:        any of VGPU_OP_BARRIER, VGPU_OP_BLOCKED and VGPU_OP_PERMUTE
 * @va:           address of the first access, a multiple of @width
 * @stride:       bytes from one access to the next in a row, a multiple of
 *                @width; may be negative or 0
 * @count:        accesses in a row, at least 1
 * @row_stride:   bytes from one row to the next, a multiple of @width
 * @rows:         number of rows; 0 is 1
 * @width:        bytes one access touches: 4 (one 32 bit element), or a power of
 *                two from 8 to 4096 (64 bit elements)
 * @warps:        how many warps share the op; 0 is 1
 * @lanes:        accesses that one warp makes with one instruction, 1 to 32;
 *                0 is 32
 * @utlb_first:   µTLB of warp 0, below vgpu_info.utlb_count
 * @utlb_count:   warps go round-robin over so many µTLBs from there (wrapping);
 *                0 is all
 * @reserved:     must be 0, else VGPU_SUBMIT is EINVAL
 * @value:        pattern: element k is @value + k * @value_stride (wrapping;
 *                of 32 bit elements the low half)
 * @value_stride: see @value
 *
 * Access number i = row * count + column touches @width bytes at
 * @va + row * @row_stride + column * @stride; its element e has k =
 * i * elements per access + e. Every access must lie below 2^57, or 2^49 on
 * GPUs before Hopper, else EINVAL.
 *
 * Instruction j of warp w makes accesses (j * warps + w) * lanes to
 * (j * warps + w) * lanes + lanes - 1, like a grid-stride loop; with
 * VGPU_OP_BLOCKED, warp w goes through a contiguous run of 1/warps of the
 * accesses. With VGPU_OP_PERMUTE, where access i stands in this order, access
 * (a * i + b) mod total is made instead, a fixed one-to-one map without locality.
 *
 * An instruction's lanes on one page fault once. A warp goes on when all lanes
 * of its instruction are done, save for VGPU_OP_PREFETCH. Ops without barrier
 * between them run at the same time. Writes of several warps to one place happen
 * in no stated order.
 */
struct vgpu_op {
	__u32 kind;
	__u32 flags;
	__u64 va;
	__s64 stride;
	__u64 count;
	__s64 row_stride;
	__u64 rows;
	__u32 width;
	__u32 warps;
	__u32 lanes;
	__u32 utlb_first;
	__u32 utlb_count;
	__u32 reserved;
	__u64 value;
	__u64 value_stride;
};

#define VGPU_OP_SIZE_V1		88

/**
 * struct vgpu_submit - queue a kernel (VGPU_SUBMIT)
 * @size:        in: sizeof of the caller's structure
 * @flags:       in: no flag is known yet: 0, else EINVAL
 * @h_channel:   in: where to queue it
 * @op_count:    in: number of ops, 1 to VGPU_MAX_OPS
 * @ops:         in: address of an array of struct vgpu_op
 * @op_size:     in: sizeof(struct vgpu_op) as the caller knows it
 * @utlb_faults: in: outstanding faults allowed per µTLB, 1 to 512; 0 is
 *               vgpu_info.utlb_faults. Accesses beyond wait for the next replay
 * @reserved:    must be 0, else EINVAL
 * @fence:       out: names the kernel to VGPU_WAIT; counts up from 1 by channel
 *
 * Returns without waiting. ENOTCONN: UVM has not bound the channel yet.
 * EPIPE: the channel is stopped. ENOSPC: VGPU_MAX_QUEUED,
 * VGPU_MAX_QUEUED_OPS or VGPU_MAX_QUEUED_WARPS would be passed.
 */
struct vgpu_submit {
	__u32 size;
	__u32 flags;
	__u32 h_channel;
	__u32 op_count;
	__u64 ops;
	__u32 op_size;
	__u32 utlb_faults;
	__u64 reserved;
	__u64 fence;
};

#define VGPU_SUBMIT_SIZE_V1	48

/* How a kernel ended: struct vgpu_wait.state. */
#define VGPU_KERNEL_DONE	1	/* all accesses made; look at @mismatches */
#define VGPU_KERNEL_FAULTED	2	/* UVM cancelled an access: a fatal fault; the
					   channel goes on with its next kernel */
#define VGPU_KERNEL_STOPPED	3	/* its channel was stopped or destroyed */
#define VGPU_KERNEL_ERROR	4	/* a mapping led nowhere; see the kernel log */

/* struct vgpu_wait.fault_type: what the walk of the page tables met. */
#define VGPU_FAULT_NONE			0xffffffffU
#define VGPU_FAULT_INVALID_PDE		0
#define VGPU_FAULT_INVALID_PTE		2
#define VGPU_FAULT_WRITE_TO_READ_ONLY	6
#define VGPU_FAULT_ATOMIC_DISABLED	15

#define VGPU_TIMEOUT_NEVER	(~0ULL)

/**
 * struct vgpu_wait - wait for a kernel and take its result (VGPU_WAIT)
 * @size:         in: sizeof of the caller's structure
 * @flags:        in: no flag is known yet: 0, else EINVAL
 * @h_channel:    in: the channel that the kernel was submitted to
 * @state:        out: how the kernel ended, VGPU_KERNEL_*
 * @fence:        in: what VGPU_SUBMIT gave
 * @timeout_ns:   in: how long to wait; 0 only looks, VGPU_TIMEOUT_NEVER has no
 *                limit
 * @accesses:     out: accesses that the kernel made
 * @faults:       out: fault buffer entries written for it
 * @duplicates:   out: of these, for a page that already had an entry since the
 *                last replay
 * @refaults:     out: of @faults, by accesses that had faulted before
 * @replays:      out: replays it waited for
 * @mismatches:   out: elements for which VGPU_OP_CHECK saw another value
 * @bad_va:       out: address of the first such element seen, 0 if none
 * @bad_expected: out: what should have stood there
 * @bad_seen:     out: what stood there
 * @sum:          out: sum of the elements that VGPU_OP_READ saw, modulo 2^64
 * @fault_va:     out: VGPU_KERNEL_FAULTED and _ERROR: the address; else 0
 * @fault_type:   out: VGPU_FAULT_* of that access; else VGPU_FAULT_NONE
 * @fault_kind:   out: VGPU_OP_* of the failed access
 * @elapsed_ns:   out: from start to end by the machine's clock. Under emulation
 *                this says nothing about a GPU
 *
 * May be called again for the last VGPU_KEPT_RESULTS kernels of the channel;
 * older ones, and fences not given yet, are ENOENT. ETIMEDOUT: not finished yet.
 * EINTR: a signal came; the kernel runs on and can be waited for again.
 */
struct vgpu_wait {
	__u32 size;
	__u32 flags;
	__u32 h_channel;
	__u32 state;
	__u64 fence;
	__u64 timeout_ns;
	__u64 accesses;
	__u64 faults;
	__u64 duplicates;
	__u64 refaults;
	__u64 replays;
	__u64 mismatches;
	__u64 bad_va;
	__u64 bad_expected;
	__u64 bad_seen;
	__u64 sum;
	__u64 fault_va;
	__u32 fault_type;
	__u32 fault_kind;
	__u64 elapsed_ns;
};

#define VGPU_WAIT_SIZE_V1	136

/**
 * struct vgpu_stats - everything one GPU did since vgpu.ko was loaded
 * (VGPU_GET_STATS)
 * @size:             in: sizeof of the caller's structure; out: of the driver's
 * @flags:            in: no flag is known yet: 0, else EINVAL
 * @gpu:              in: which GPU, from 0
 * @reserved:         must be 0, else EINVAL
 * @ce_copies:        copy engine launches that copied
 * @ce_memsets:       copy engine launches that filled
 * @memset_bytes:     bytes that such launches filled
 * @h2d_bytes:        copied from system memory to vidmem, both by physical address
 * @d2h_bytes:        copied from vidmem to system memory, by physical address
 * @d2d_bytes:        copied within vidmem, by physical address
 * @h2h_bytes:        copied within system memory, by physical address
 * @virtual_bytes:    copied with a virtual address on either side (page table
 *                    entries, NVIDIA's tests)
 * @pushes:           pushbuffer segments that channels executed
 * @methods:          methods in these segments that were executed
 * @unknown_methods:  methods, or operations of known ones, that are not emulated;
 *                    the channel was stopped
 * @channel_errors:   channels stopped by an error of any kind (the log says which)
 * @bad_addresses:    addresses that led nowhere: unmapped for a copy engine, beyond
 *                    vidmem, not memory, a peer that is none
 * @semaphore_releases: releases and reductions done
 * @semaphore_blocks: times a channel had to wait for an acquire
 * @membars:          memory barriers that channels executed, flushes included
 * @tlb_invalidates_all: invalidates of a whole address space or of all
 * @tlb_invalidates_targeted: invalidates of an address range
 * @tlb_invalidates_dropped: invalidates ignored on request (drop_invalidates)
 * @tlb_hits:         translations of SM accesses taken from the TLB
 * @walks:            page table walks, for SM accesses that the TLB did not have
 * @walk_misses:      of these, that ended without a translation
 * @faults:           fault buffer entries written
 * @fault_duplicates: of these, for a page that already had one since the last
 *                    replay
 * @faults_held:      times an access found the fault buffer full, or its µTLB at
 *                    its limit, and was held back
 * @replays_start:    replays, without waiting for acknowledgement
 * @replays_ack:      replays that asked for an acknowledgement
 * @cancels_targeted: 0: not emulated, an error
 * @cancels_global:   cancels of all faults
 * @cancels_va:       cancels of one address
 * @interrupts:       calls of UVM's top half
 * @access_notifications: access counter entries written
 * @access_clears:    commands that cleared access counters
 * @local_accesses:   SM accesses to vidmem
 * @remote_accesses:  SM accesses to system memory
 * @kernels:          kernels that ended, in whichever way
 * @pma_allocs:       2 MiB and smaller pages given to UVM
 * @pma_frees:        pages that UVM gave back
 * @pma_failures:     allocations of UVM's that were refused
 * @pma_bytes:        bytes UVM holds now
 * @poisoned_bytes:   bytes filled with the poison pattern
 * @stopped_faulting: of @kernels, those that ended as their channel did while a fault of
 *                    theirs was not served: warps waited for a replay
 * @peer_bytes:       copied from or to another GPU's memory, by addresses of either kind; not in the
 *                    counters above
 * @peer_accesses:    SM accesses to another GPU's memory
 *
 * Counters do not stop or start over, so measure by difference. They are read
 * under the GPU's lock: one reading is consistent.
 */
struct vgpu_stats {
	__u32 size;
	__u32 flags;
	__u32 gpu;
	__u32 reserved;
	__u64 ce_copies;
	__u64 ce_memsets;
	__u64 memset_bytes;
	__u64 h2d_bytes;
	__u64 d2h_bytes;
	__u64 d2d_bytes;
	__u64 h2h_bytes;
	__u64 virtual_bytes;
	__u64 pushes;
	__u64 methods;
	__u64 unknown_methods;
	__u64 channel_errors;
	__u64 bad_addresses;
	__u64 semaphore_releases;
	__u64 semaphore_blocks;
	__u64 membars;
	__u64 tlb_invalidates_all;
	__u64 tlb_invalidates_targeted;
	__u64 tlb_invalidates_dropped;
	__u64 tlb_hits;
	__u64 walks;
	__u64 walk_misses;
	__u64 faults;
	__u64 fault_duplicates;
	__u64 faults_held;
	__u64 replays_start;
	__u64 replays_ack;
	__u64 cancels_targeted;
	__u64 cancels_global;
	__u64 cancels_va;
	__u64 interrupts;
	__u64 access_notifications;
	__u64 access_clears;
	__u64 local_accesses;
	__u64 remote_accesses;
	__u64 kernels;
	__u64 pma_allocs;
	__u64 pma_frees;
	__u64 pma_failures;
	__u64 pma_bytes;
	__u64 poisoned_bytes;
	__u64 stopped_faulting;
	__u64 peer_bytes;
	__u64 peer_accesses;
};

#define VGPU_STATS_SIZE_V1	344	/* to @poisoned_bytes */
#define VGPU_STATS_SIZE_V2	352	/* to @stopped_faulting */
#define VGPU_STATS_SIZE_V3	368

/* What to make go wrong: struct vgpu_inject.kind. */
#define VGPU_INJECT_DROP_INVALIDATES	1	/* ignore the next @count TLB invalidates */
#define VGPU_INJECT_FAULT_BUFFER_FULL	2	/* find it full the next @count times */
#define VGPU_INJECT_PMA_FAILURE		3	/* after @skip, refuse @count allocations */
#define VGPU_INJECT_EVICT_PAGES		4	/* RM asks UVM for @count 2 MiB pages */
#define VGPU_INJECT_EVICT_RANGE		5	/* RM asks UVM for vidmem @begin to @end */
#define VGPU_INJECT_CHANNEL_ERROR	6	/* stop @handle as after a hardware error */
#define VGPU_INJECT_SUSPEND		7	/* the system sleeps for @count ms, with all its GPUs */
#define VGPU_INJECT_COPY		8	/* @handle's copy engine adds 1 to the word at @begin */

/* struct vgpu_inject.flags */
#define VGPU_INJECT_KEEP	(1U << 0)	/* keep evicted memory until the file closes */

#define VGPU_INJECT_FOREVER	(~0ULL)		/* as @count of kinds 1 to 3; 0 ends it */
#define VGPU_MAX_EVICT_PAGES	1024
#define VGPU_MAX_SUSPEND_MS	10000

/**
 * struct vgpu_inject - make something go wrong (VGPU_INJECT)
 * @size:   in: sizeof of the caller's structure
 * @flags:  in: 0 or, for the evictions, VGPU_INJECT_KEEP
 * @gpu:    in: which GPU, from 0
 * @kind:   in: what goes wrong, VGPU_INJECT_*
 * @count:  in: see the kinds; for EVICT_PAGES 1 to VGPU_MAX_EVICT_PAGES, for SUSPEND
 *          1 to VGPU_MAX_SUSPEND_MS; for COPY 1, or 0 only to look
 * @skip:   in: PMA_FAILURE only, else 0
 * @begin:  in: EVICT_PAGES and EVICT_RANGE: first byte of vidmem, a multiple of
 *          2 MiB; COPY with @count 1: an address, a multiple of 4; else 0
 * @end:    in: the byte after the last one; 0 is the end of vidmem
 * @handle: in: CHANNEL_ERROR: an h_channel of any client, or VGPU_UVM_CHANNEL | n
 *          for UVM's own channel n; COPY: an h_channel of any client; else 0
 * @status: out: evictions: UVM's NV_STATUS, 0 when all was given; SUSPEND: what it
 *          said when it was suspended, or, if that was 0, resumed; COPY: faults of the
 *          channel's copies so far
 * @bytes:  out: evictions: bytes that UVM gave up; COPY: copies that the channel has made
 *
 * Needs CAP_SYS_ADMIN (EPERM), as it is felt by every user of the GPU.
 * A full fault buffer or dropped invalidates end when their count is used up.
 * EAGAIN: an eviction, while UVM has no GPU registered; SUSPEND, while it is not
 * loaded. An eviction that UVM refuses returns 0 with @status set.
 * COPY begins an access and returns. The access is a write to a 32 bit word, and a fault of it is not
 * replayed: the channel's copies stand still until UVM clears its faulted bit. EINVAL: on GPUs other than
 * Turing's, which clear it in another way. EBUSY: the channel's last copy is not over. ENOTCONN,
 * EPIPE: as of VGPU_SUBMIT.
 * SUSPEND does what RM does when the system sleeps: users' channels are preempted,
 * UVM is suspended, and both go on after @count ms. Returns then. Memory keeps its
 * contents and the GPU its state.
 */
struct vgpu_inject {
	__u32 size;
	__u32 flags;
	__u32 gpu;
	__u32 kind;
	__u64 count;
	__u64 skip;
	__u64 begin;
	__u64 end;
	__u32 handle;
	__u32 status;
	__u64 bytes;
};

#define VGPU_INJECT_SIZE_V1	64
#define VGPU_UVM_CHANNEL	(1U << 31)

/* struct vgpu_translate.aperture */
#define VGPU_APERTURE_NONE	0	/* not mapped; @fault_type says where it ended */
#define VGPU_APERTURE_VIDMEM	1
#define VGPU_APERTURE_SYSMEM	2
#define VGPU_APERTURE_PEER	3	/* another GPU's vidmem */

/* struct vgpu_translate.permissions */
#define VGPU_MAY_READ		(1U << 0)
#define VGPU_MAY_WRITE		(1U << 1)
#define VGPU_MAY_ATOMIC		(1U << 2)

/**
 * struct vgpu_translate - walk the page tables for one address (VGPU_TRANSLATE)
 * @size:        in: sizeof of the caller's structure
 * @flags:       in: no flag is known yet: 0, else EINVAL
 * @h_vaspace:   in: the address space
 * @aperture:    out: where the page is, VGPU_APERTURE_*
 * @va:          in: any address below 2^57, or 2^49 on GPUs before Hopper, else EINVAL
 * @page_bytes:  out: size of the page: 4 KiB, 64 KiB, 2 MiB or, from Hopper on, 512 MiB; 0 if
 *               not mapped
 * @permissions: out: what an access may do, bits VGPU_MAY_*
 * @fault_type:  out: VGPU_FAULT_* of a read
 *
 * Looks at the page tables, not at the TLB, and makes no fault.
 */
struct vgpu_translate {
	__u32 size;
	__u32 flags;
	__u32 h_vaspace;
	__u32 aperture;
	__u64 va;
	__u64 page_bytes;
	__u32 permissions;
	__u32 fault_type;
};

#define VGPU_TRANSLATE_SIZE_V1	40

#endif /* VGPU_H */
