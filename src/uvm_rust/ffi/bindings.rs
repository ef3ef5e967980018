// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Written by scripts/bindings.sh.
// Of headers and options 929f5bf477c69ed5.
// By bindgen 0.72.1.

pub const UVM_RUST_VERSION: u32 = 7;
pub const UVM_RUST_GET_VERSION: u32 = 4096;
pub const UVM_RUST_GET_STATS: u32 = 4097;
pub const UVM_RUST_DISCARD_BATCH: u32 = 4098;
pub const UVM_RUST_ANNOUNCE: u32 = 4099;
pub const UVM_RUST_GET_PREFETCH_STATS: u32 = 4100;
pub const UVM_RUST_SET_QUOTA: u32 = 4101;
pub const UVM_RUST_FLASH_ATTACH: u32 = 4112;
pub const UVM_RUST_FLASH_DETACH: u32 = 4113;
pub const UVM_RUST_FLASH_GET_STATS: u32 = 4114;
pub const UVM_RUST_FLASH_MOVE: u32 = 4115;
pub const UVM_RUST_FLASH_SUBMIT: u32 = 4116;
pub const UVM_RUST_FLASH_REAP: u32 = 4117;
pub const UVM_RUST_FEATURE_STATS: u32 = 1;
pub const UVM_RUST_FEATURE_DISCARD: u32 = 2;
pub const UVM_RUST_FEATURE_EXEC_ID: u32 = 4;
pub const UVM_RUST_FEATURE_NATIVE_DISCARD: u32 = 8;
pub const UVM_RUST_FEATURE_QUOTA: u32 = 16;
pub const UVM_RUST_FEATURE_QUOTA_LOW: u32 = 32;
pub const UVM_RUST_FEATURE_FLASH: u32 = 256;
pub const UVM_RUST_FEATURE_FLASH_QUEUE: u32 = 512;
pub const UVM_RUST_FEATURE_FLASH_AFTER: u32 = 1024;
pub const UVM_RUST_VERSION_SIZE_V1: u32 = 16;
pub const UVM_RUST_CAUSE_FAULT: u32 = 0;
pub const UVM_RUST_CAUSE_PREFETCH: u32 = 1;
pub const UVM_RUST_CAUSE_EVICTION: u32 = 2;
pub const UVM_RUST_CAUSE_API: u32 = 3;
pub const UVM_RUST_CAUSE_ACCESS_COUNTER: u32 = 4;
pub const UVM_RUST_CAUSE_MAX: u32 = 8;
pub const UVM_RUST_QUEUE_FREE: u32 = 0;
pub const UVM_RUST_QUEUE_UNUSED: u32 = 1;
pub const UVM_RUST_QUEUE_DISCARDED: u32 = 2;
pub const UVM_RUST_QUEUE_USED: u32 = 3;
pub const UVM_RUST_QUEUE_ADDRESS: u32 = 4;
pub const UVM_RUST_QUEUE_MAX: u32 = 8;
pub const UVM_RUST_STATS_WHOLE_GPU: u32 = 1;
pub const UVM_RUST_STATS_SIZE_V1: u32 = 504;
pub const UVM_RUST_STATS_SIZE_V2: u32 = 568;
pub const UVM_RUST_STATS_SIZE_V3: u32 = 584;
pub const UVM_RUST_DISCARD_EAGER: u32 = 1;
pub const UVM_RUST_DISCARD_MAX_RANGES: u32 = 1048576;
pub const UVM_RUST_DISCARD_RANGE_SIZE_V1: u32 = 16;
pub const UVM_RUST_DISCARD_BATCH_SIZE_V1: u32 = 56;
pub const UVM_RUST_ANNOUNCE_IDLE: u32 = 1;
pub const UVM_RUST_ANNOUNCE_SIZE_V1: u32 = 32;
pub const UVM_RUST_PREFETCH_STATS_SIZE_V1: u32 = 176;
pub const UVM_RUST_QUOTA_MAX: u32 = 1;
pub const UVM_RUST_QUOTA_LOW: u32 = 2;
pub const UVM_RUST_QUOTA_SIZE_V1: u32 = 56;
pub const UVM_RUST_FLASH_FORCE: u32 = 1;
pub const UVM_RUST_FLASH_NO_CHECKSUMS: u32 = 2;
pub const UVM_RUST_FLASH_ATTACH_SIZE_V1: u32 = 32;
pub const UVM_RUST_FLASH_DETACH_SIZE_V1: u32 = 8;
pub const UVM_RUST_FLASH_STATS_SIZE_V1: u32 = 128;
pub const UVM_RUST_FLASH_STATS_SIZE_V2: u32 = 136;
pub const UVM_RUST_FLASH_STATS_SIZE_V3: u32 = 160;
pub const UVM_RUST_FLASH_STATS_SIZE_V4: u32 = 176;
pub const UVM_RUST_FLASH_TO_HOST: u32 = 1;
pub const UVM_RUST_FLASH_TO_GPU: u32 = 2;
pub const UVM_RUST_FLASH_MOVE_SIZE_V1: u32 = 24;
pub const UVM_RUST_FLASH_MOVE_SIZE_V2: u32 = 40;
pub const UVM_RUST_FLASH_FROM_GPUS: u32 = 4;
pub const UVM_RUST_FLASH_AFTER: u32 = 8;
pub const UVM_RUST_FLASH_EVENT: u32 = 1;
pub const UVM_RUST_FLASH_MAX_REQUESTS: u32 = 4096;
pub const UVM_RUST_FLASH_REQUEST_SIZE_V1: u32 = 48;
pub const UVM_RUST_FLASH_SUBMIT_SIZE_V1: u32 = 40;
pub const UVM_RUST_FLASH_COMPLETION_SIZE_V1: u32 = 24;
pub const UVM_RUST_FLASH_REAP_SIZE_V1: u32 = 48;
pub const UVM_RUST_NO_CHUNK: u32 = 4294967295;
pub const UVM_RUST_MAX_GPUS: u32 = 256;
pub const UVM_RUST_MEMORY_HOST: u32 = 0;
pub const UVM_RUST_MEMORY_NONE: u32 = 4294967295;
pub const UVM_RUST_LIST_ZEROED: u32 = 8;
pub const UVM_RUST_WORK_PREFETCH: u32 = 0;
pub const UVM_RUST_WORK_FETCH: u32 = 1;
pub const UVM_RUST_WORK_SPILL: u32 = 2;
pub const UVM_RUST_WORK_ALARM: u32 = 3;
pub const UVM_RUST_WORKS: u32 = 4;
pub const UVM_RUST_KIND_MANAGED: u32 = 0;
pub const UVM_RUST_KIND_HMM: u32 = 1;
pub const UVM_RUST_KIND_ATS: u32 = 2;
pub const UVM_RUST_HOLDER_UNKNOWN: u32 = 1;
pub const UVM_RUST_CHUNK_FREE: u32 = 0;
pub const UVM_RUST_CHUNK_PINNED: u32 = 1;
pub const UVM_RUST_CHUNK_SPLIT: u32 = 2;
pub const UVM_RUST_CHUNK_WHOLE: u32 = 3;
pub const UVM_RUST_CHUNK_FREE_ZEROED: u32 = 4;
pub const UVM_RUST_CHUNK_STAYS: u32 = 5;
pub const UVM_RUST_QUOTA_OTHER: u32 = 0;
pub const UVM_RUST_QUOTA_COUNTS: u32 = 1;
pub const UVM_RUST_QUOTA_FULL: u32 = 2;
pub const UVM_RUST_FLUSH_CACHED_PUT: u32 = 0;
pub const UVM_RUST_FLUSH_UPDATE_PUT: u32 = 1;
pub const UVM_RUST_FLUSH_WAIT_UPDATE_PUT: u32 = 2;
pub type __u8 = ::core::ffi::c_uchar;
pub type __u16 = ::core::ffi::c_ushort;
pub type __s32 = ::core::ffi::c_int;
pub type __u32 = ::core::ffi::c_uint;
pub type __s64 = ::core::ffi::c_longlong;
pub type __u64 = ::core::ffi::c_ulonglong;
pub type __kernel_ulong_t = ::core::ffi::c_ulong;
pub type __kernel_size_t = __kernel_ulong_t;
#[doc = " struct uvm_rust_version - what this driver offers\n @size:     in: sizeof of the caller's structure; out: of the driver's\n @version:  out: UVM_RUST_VERSION of the driver\n @features: out: UVM_RUST_FEATURE_*; a bit is set when the feature is built in\n            and not turned off by a module parameter\n\n Needs no UVM_INITIALIZE."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_version {
    pub size: __u32,
    pub version: __u32,
    pub features: __u64,
}
#[doc = " struct uvm_rust_traffic - pages that were copied in one direction for one cause\n @bytes: how many bytes were copied\n @pages: the same in 4 KiB pages"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_traffic {
    pub bytes: __u64,
    pub pages: __u64,
}
#[doc = " struct uvm_rust_stats - what one GPU did, for this process or for all\n @size:        in: sizeof of the caller's structure; out: of the driver's\n @flags:       in: 0 or UVM_RUST_STATS_WHOLE_GPU\n @gpu_uuid:    in: a GPU registered with this file descriptor\n @host_to_gpu: out: copied from host memory to this GPU, by cause\n @gpu_to_host: out: copied from this GPU to host memory, by cause\n @gpu_to_gpu:  out: copied to this GPU from another one, by cause\n @faults:      out: replayable faults taken off the fault buffer and resolved\n               to an address space; each instance of a duplicate counts\n @duplicates:  out: those among @faults for which nothing was left to do, being\n               the same access to the same page as another in their batch, or\n               finding the page already mapped for their access. The latter\n               are not known, and do not count, where the GPU has the CPU's\n               page tables (ATS), and where the driver has no hooks of ours\n               in its fault loop (580 and later with UVM_RUST_WHOLE=0)\n @batches:     out: fault batches; for a process, those that held a fault of it\n @replays:     out: replays sent to the GPU; for a process, those sent by calls\n               of the fault service that handled a fault of it\n @evictions:   out: 2 MiB root chunks reclaimed, by queue; where the driver\n               discards by itself (UVM_RUST_FEATURE_NATIVE_DISCARD), tries to.\n               For a process, how often its own chunks were to be taken, also\n               in vain; UVM_RUST_QUEUE_FREE is then 0\n @queued:      out: 2 MiB root chunks that are on each queue now, of all\n               processes; with uvm_rust_evict=0, on upstream's lists (since\n               UVM_RUST_STATS_SIZE_V2). All 0 for a caller to whom\n               UVM_RUST_STATS_WHOLE_GPU would give EPERM\n @thrashed:    out: blocks of 2 MiB of which data were copied to this GPU again\n               before as many further blocks had been evicted from it as it has\n               chunks of 2 MiB; one for each such eviction (since\n               UVM_RUST_STATS_SIZE_V3)\n @prefetch_wasted: out: evictions of blocks that UVM_RUST_ANNOUNCE's prefetcher\n               had brought, before the kernel began for which it had (since\n               UVM_RUST_STATS_SIZE_V3)\n\n \"This process\" is the file descriptor's VA space; counting begins with its\n first registration of the GPU and ends with the file descriptor. For the whole\n GPU it begins when the first process registers it and ends when the last one\n is gone. If no process keeps the GPU registered and it comes back later, all\n counters begin at 0 again. Otherwise they never decrease; they wrap at 2^64.\n They are read one by one while they change, so sums may be off by work in flight."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_stats {
    pub size: __u32,
    pub flags: __u32,
    pub gpu_uuid: [__u8; 16usize],
    pub host_to_gpu: [uvm_rust_traffic; 8usize],
    pub gpu_to_host: [uvm_rust_traffic; 8usize],
    pub gpu_to_gpu: [uvm_rust_traffic; 8usize],
    pub faults: __u64,
    pub duplicates: __u64,
    pub batches: __u64,
    pub replays: __u64,
    pub evictions: [__u64; 8usize],
    pub queued: [__u64; 8usize],
    pub thrashed: __u64,
    pub prefetch_wasted: __u64,
}
#[doc = " struct uvm_rust_discard_range - managed memory whose contents are not needed\n @base:   first byte, a multiple of the page size\n @length: bytes, a multiple of the page size, not 0"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_discard_range {
    pub base: __u64,
    pub length: __u64,
}
#[doc = " struct uvm_rust_discard_batch - discard several ranges (UVM_RUST_DISCARD_BATCH)\n @size:             in: sizeof of the caller's structure; out: of the driver's\n @flags:            in: 0 (lazy) or UVM_RUST_DISCARD_EAGER\n @ranges:           in: address of an array of struct uvm_rust_discard_range\n @range_count:      in: how many, 0 to UVM_RUST_DISCARD_MAX_RANGES\n @range_size:       in: bytes from one to the next, a multiple of 8, at least\n                    UVM_RUST_DISCARD_RANGE_SIZE_V1 and at most 256; what the\n                    driver does not know of an element must be 0\n @first_failed:     out: index of the range at which the call stopped;\n                    @range_count when all are done\n @reserved:         must be 0, or the call fails with EINVAL\n @blocks_discarded: out: 2 MiB blocks of which all that the ranges cover is now\n                    discarded\n @blocks_skipped:   out: blocks left as they were, being empty, or covered\n                    partly where the driver does not discard parts\n @blocks_partial:   out: blocks of which some of what is covered was left alone\n\n A block is 2 MiB of address space, aligned, or what a range of managed memory\n has of it. Each block that a range touches counts in exactly one of the three;\n one that several ranges touch counts for each.\n\n Ranges are discarded in order and may overlap. The call stops at the first one\n that fails: those before it stay discarded and are counted, the failed one may\n be discarded in part, and @first_failed and the counts are filled in, with any\n errno of the list below. Going on from @first_failed, with the cause removed or\n that range left out, completes the work.\n   EINVAL  base or length no multiple of the page size, length 0, or the end of\n           the range not below 2^64\n   EFAULT  this element of the array is not readable\n   E2BIG   unknown fields of this element that are not 0\n   ENXIO   the range is not, as a whole, managed memory of this file descriptor\n   EINTR   a fatal signal came\n   EAGAIN  the system sleeps, or is about to. @size stays as the caller gave it,\n           so that the same call can be made again, which begins anew\n   ENOMEM  no memory for the state of a block\n   EOPNOTSUPP  a GPU that cannot fault (before Pascal) is registered with this\n           file descriptor: it could not come back to what was unmapped. Met at\n           the first range, unless it is registered meanwhile\n\n Errors found before the first range (the list at the top of this file but for\n EAGAIN; EOPNOTSUPP when discard is turned off) leave all outputs unwritten: a caller\n that sets @first_failed to ~0 beforehand can tell the two EOPNOTSUPP apart.\n A structure that is not writable is one of them: nothing is discarded. EFAULT\n after ranges were discarded is left to who makes the structure unwritable\n during the call."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_discard_batch {
    pub size: __u32,
    pub flags: __u32,
    pub ranges: __u64,
    pub range_count: __u32,
    pub range_size: __u32,
    pub first_failed: __u32,
    pub reserved: __u32,
    pub blocks_discarded: __u64,
    pub blocks_skipped: __u64,
    pub blocks_partial: __u64,
}
#[doc = " struct uvm_rust_announce - which kernel runs next on a GPU (UVM_RUST_ANNOUNCE)\n @size:     in: sizeof of the caller's structure; out, with E2BIG only: the driver's\n @flags:    in: 0 or UVM_RUST_ANNOUNCE_IDLE\n @gpu_uuid: in: a GPU registered with this file descriptor\n @exec_id:  in: execution ID (DeepUM §3.1): equal for two launches when the\n            kernel and its arguments are; any value but 0. With\n            UVM_RUST_ANNOUNCE_IDLE 0\n\n Faults that this process causes on the GPU from now on are taken to belong to\n @exec_id, until the next announcement. It only guides prefetching and eviction\n of this file descriptor's own memory: a wrong one costs speed, nothing else.\n With uvm_rust_evict_policy=turns it also says whose turn on the GPU it is, by\n which it is decided whose memory goes first.\n Never waits for the GPU or for a migration, so that it can be called from a\n stream's host callback."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_announce {
    pub size: __u32,
    pub flags: __u32,
    pub gpu_uuid: [__u8; 16usize],
    pub exec_id: __u64,
}
#[doc = " struct uvm_rust_prefetch_stats - what was learnt of this process's kernels on a GPU,\n and done with it (UVM_RUST_GET_PREFETCH_STATS)\n @size:            in: sizeof of the caller's structure; out: of the driver's\n @flags:           no flag is known yet: 0, or the call fails with EINVAL\n @gpu_uuid:        in: a GPU registered with this file descriptor\n @kernels:         out: announcements taken into account\n @kernels_right:   out: those that had been predicted to come next\n @kernels_wrong:   out: those where another had been\n @dropped_kernels: out: announcements for which a queue had no room\n @blocks:          out: blocks of 2 MiB that kernels faulted on, repetitions not counted\n @blocks_unknown:  out: those that were not known of their kernel\n @dropped_faults:  out: faulted blocks for which a queue had no room\n @predicted:       out: blocks that were predicted\n @prefetched:      out: of these, moved to the GPU\n @resident:        out: of these, on the GPU already\n @held:            out: of these, not moved, as only blocks that are themselves predicted could make room\n @unfit:           out: of these, freed meanwhile, or kept elsewhere by policy\n @failed:          out: of these, not moved because of an error\n @bytes_in:        out: bytes moved to the GPU\n @pushed_out:      out: blocks moved to the host ahead of need\n @bytes_out:       out: bytes of these\n @table_bytes:     out: memory that the tables take now\n @ids_dropped:     out: execution IDs forgotten for lack of room\n @ids:             out: execution IDs known now\n @window:          out: how many kernels ahead is looked now\n\n All are 0 before the first announcement. Counters never go back."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_prefetch_stats {
    pub size: __u32,
    pub flags: __u32,
    pub gpu_uuid: [__u8; 16usize],
    pub kernels: __u64,
    pub kernels_right: __u64,
    pub kernels_wrong: __u64,
    pub dropped_kernels: __u64,
    pub blocks: __u64,
    pub blocks_unknown: __u64,
    pub dropped_faults: __u64,
    pub predicted: __u64,
    pub prefetched: __u64,
    pub resident: __u64,
    pub held: __u64,
    pub unfit: __u64,
    pub failed: __u64,
    pub bytes_in: __u64,
    pub pushed_out: __u64,
    pub bytes_out: __u64,
    pub table_bytes: __u64,
    pub ids_dropped: __u64,
    pub ids: __u32,
    pub window: __u32,
}
#[doc = " struct uvm_rust_quota - how much of a GPU this file descriptor may hold and keep (UVM_RUST_SET_QUOTA)\n @size:     in: sizeof of the caller's structure; out: of the driver's\n @flags:    UVM_RUST_QUOTA_MAX and UVM_RUST_QUOTA_LOW, together or alone, or 0; EINVAL for others\n @gpu_uuid: in: a GPU registered with this file descriptor\n @max:      in: how many bytes of the GPU, in whole 2 MiB blocks, the VA space may hold before it evicts its own;\n            all bits set: no maximum.\n            out: what is in force now\n @low:      in: how many bytes of the GPU, in whole 2 MiB blocks, other VA spaces leave to this one as long as there is\n            anything else to evict; 0: none.\n            out: what is in force now\n @held:     out: bytes of the GPU that count; all bits set if that is not known\n @beyond:   out: allocations that went on at the maximum, as none of the VA space's own memory could be evicted\n\n The call lowers the maximum and the low of its own file descriptor, whoever calls. To raise either takes\n CAP_SYS_ADMIN in the initial user namespace; EPERM without, and then neither is changed. ENODEV if the GPU is not\n registered, and ENOMEM if memory was short when it was. EOPNOTSUPP also with uvm_rust_stats=0 or uvm_rust_evict=0, as\n nobody then knows what is held, and for a GPU without replayable faults. Also in a driver of 580 or later that is built\n with UVM_RUST_WHOLE=0.\n\n EINVAL for a maximum of less than 640 MiB, or an eighth of the GPU if that is less: with less, a kernel could fault\n for ever on blocks that it needs at once. One instruction of a warp may need 64 blocks of 2 MiB, and a batch of faults brings\n 256.\n\n Before it returns, the call evicts what the VA space holds beyond the maximum, as long as chunks can\n be evicted and the caller is not killed; what is left goes when the VA space next wants memory there.\n After EFAULT in writing the result the limits are set all the same; likewise after ENODEV or EAGAIN that comes during\n the call, as the GPU is unregistered or the system is about to sleep.\n\n A maximum refuses no memory, and nothing waits for it: it is memory.high of cgroups, not memory.max. A VA space at\n its maximum evicts a chunk of its own for each further one, by faults and by migrations alike, whether or not the GPU\n has free memory. So it takes no block of another process for what is beyond the maximum, unless the GPU is full and\n another allocation takes the chunk first. The copy to the host is waited for, in the fault service too. Where no chunk of its own can be evicted, as threads\n work on all of them or host memory is short, the VA space gets the further one all the same (@beyond), and each later\n one evicts up to two. While evictions succeed, n threads that bring memory at the same time have the VA space\n hold n - 1 chunks of 2 MiB beyond its maximum at most; the fault service of a GPU is one thread.\n\n A low is memory.low of cgroups. Of a VA space that holds no more than its low, no chunk with pages in use is evicted for\n others, while a VA space that holds more than its own low, or none has, uses a chunk that may be evicted. If there is\n none, the chunk goes that would go without lows. So a low refuses no memory, nothing waits for it, and what of it is\n not held is lent. It does not keep a VA space at its maximum from evicting its own. The lows of a GPU may be more than\n the GPU has, and are not scaled then. Lows are not heeded:\n   - while all that is not protected is 640 MiB or less, or an eighth of the GPU if that is less, for the same reason as\n     above: so much of the GPU cannot be protected\n   - after nine evictions in a row that failed, until one succeeds\n   - for RM's memory, such as cudaMalloc's, where RM asks for certain addresses\n Chunks in which nothing is in use, or all is discarded, go first, whosever they are. 64 VA\n spaces that have chunks of a GPU can be protected at a time, and 32 whatever others there are without a low. A further\n VA space is protected once another one has no chunk or no low any more, and it gets its next chunk; what it had before\n is protected once its low is set again. No call tells that a VA space is not protected.\n\n What is counted are chunks of 2 MiB that are one VA space's, from their allocation until they are free: what\n fdinfo calls \"resident\", and chunks whose pages have all gone elsewhere. Chunks that are split are not counted:\n those of ordinary memory (HMM), and of managed memory in pieces of less than 2 MiB. Neither is what cudaMalloc takes.\n\n Both last as long as the file descriptor, also if the GPU is unregistered and comes back; then they are those of\n whatever GPU has the same number, but the maximum is no less than the least there. At first they are what the module\n parameters uvm_rust_gpu_max and uvm_rust_gpu_low say."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_quota {
    pub size: __u32,
    pub flags: __u32,
    pub gpu_uuid: [__u8; 16usize],
    pub max: __u64,
    pub low: __u64,
    pub held: __u64,
    pub beyond: __u64,
}
#[doc = " struct uvm_rust_flash_attach - use a device as SSD tier (UVM_RUST_FLASH_ATTACH)\n @size:        in: sizeof of the caller's structure\n @flags:       in: 0, or UVM_RUST_FLASH_FORCE and UVM_RUST_FLASH_NO_CHECKSUMS, together or alone\n @path:        in: address of the path of a block device or a file, NUL-terminated,\n               4096 bytes at most\n @host_bytes:  in: host memory for managed pages, of all processes, not 0: above it\n               pages are written to the device, those longest in host memory first\n @quota_bytes: in: what a tenant may have on the device, that is a user in a memory cgroup,\n               with all descriptors that its processes have initialized, whoever uses them;\n               0 for all of it\n\n Needs CAP_SYS_ADMIN, and the module parameter uvm_rust_flash=1. The device is opened\n exclusively and written to: what it held is lost. Its first 2 MiB are not used but for\n a mark that lets it be attached again without UVM_RUST_FLASH_FORCE.\n   EPERM       no CAP_SYS_ADMIN\n   EEXIST      a device is attached\n   EBUSY       it is mounted, or in use by something else\n   ENOTEMPTY   its first 128 KiB are not zeros, so something may be on it\n   ENOTBLK     neither a block device nor a regular file\n   ENOSPC      smaller than 8 MiB\n   EOPNOTSUPP  off by the module parameter, or no direct I/O, or no encryption (the\n               kernel lacks \"xts(aes)\")\n   and what opening, reading and writing it give"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_attach {
    pub size: __u32,
    pub flags: __u32,
    pub path: __u64,
    pub host_bytes: __u64,
    pub quota_bytes: __u64,
}
#[doc = " struct uvm_rust_flash_detach - stop using the device (UVM_RUST_FLASH_DETACH)\n @size:  in: sizeof of the caller's structure\n @flags: 0\n\n Needs CAP_SYS_ADMIN. Nothing more is written; what is on the device is brought back\n to host memory, which takes as long as that takes, and then it is let go.\n   EPERM   no CAP_SYS_ADMIN\n   ENODEV  none is attached\n   EINTR   a fatal signal came: it stays attached, writes nothing, and may be\n           detached again\n   EAGAIN  somebody waits to suspend the system; as above\n   EBUSY   memory for some page could not be had, a page could not be read, or a va_block\n           stayed in use; as above"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_detach {
    pub size: __u32,
    pub flags: __u32,
}
#[doc = " struct uvm_rust_flash_stats - what the SSD tier did (UVM_RUST_FLASH_GET_STATS)\n @size:         in: sizeof of the caller's structure; out: of the driver's\n @flags:        no flag is known yet: 0, or the call fails with EINVAL\n @attached:     out: 1 while a device is attached and written to, else 0\n @slots:        out: slots of 2 MiB of the device\n @free_slots:   out: those with no page\n @extents:      out: extents in use\n @pages:        out: pages of 4 KiB on the device\n @pages_mine:   out: those of the tenant (user in a memory cgroup) that initialized this file\n                descriptor, with all that its processes have initialized\n @host_pages:   out: pages of host memory allocated to managed memory\n @host_peak:    out: the most they ever were since attaching\n @written:      out: bytes written to the device for pages that left host memory, also\n                those that turned out to be in use\n @spilled:      out: bytes that left host memory\n @fetched:      out: bytes that came back to host memory\n @relocated:    out: bytes copied inside the device to gather free space\n @dropped:      out: bytes that left host memory unwritten, being discarded\n @write_errors: out: writes that failed; their pages stayed in host memory\n @read_errors:  out: reads that failed, were short, or had a wrong checksum\n @lost_pages:   out: pages that could not be read; their owners get SIGBUS, or a fatal\n                GPU fault. One that is read again later, in vain, counts again\n @refused:      out: va_blocks that were not written for want of room or by the quota\n @unwritten:    out: bytes that left host memory unwritten, as the device still had them;\n                not counted in @spilled (since UVM_RUST_FLASH_STATS_SIZE_V2)\n @parked:       out: GPU faults that were put off, and came back, as their pages were on the\n                device or host memory was full (since UVM_RUST_FLASH_STATS_SIZE_V3)\n @throttled:    out: times that UVM_RUST_FLASH_MOVE waited, as its tenant had written as much\n                as uvm_rust_flash_move_mib allows (since UVM_RUST_FLASH_STATS_SIZE_V3)\n @rested_us:    out: microseconds that workers left the device to others, as\n                uvm_rust_flash_share says (since UVM_RUST_FLASH_STATS_SIZE_V3)\n @fault_waits_most: out: the most operations of the device for others than faults, of up to\n                2 MiB each or a discard, that were under way between the moment at which a GPU fault asked\n                for pages and the beginning of the read of those (since\n                UVM_RUST_FLASH_STATS_SIZE_V4)\n @trimmed:      out: bytes that the device was told to forget, being needed no more\n                (uvm_rust_flash_trim; since UVM_RUST_FLASH_STATS_SIZE_V4)\n\n Counters begin with attaching and stay until the next one. Without a device all is 0.\n They are those of all processes together: but for @attached, @slots and @pages_mine all is 0\n to who has no CAP_SYS_ADMIN in the initial user namespace, unless the module parameter\n uvm_rust_stats_public is set."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_stats {
    pub size: __u32,
    pub flags: __u32,
    pub attached: __u32,
    pub slots: __u32,
    pub free_slots: __u32,
    pub extents: __u32,
    pub pages: __u64,
    pub pages_mine: __u64,
    pub host_pages: __u64,
    pub host_peak: __u64,
    pub written: __u64,
    pub spilled: __u64,
    pub fetched: __u64,
    pub relocated: __u64,
    pub dropped: __u64,
    pub write_errors: __u64,
    pub read_errors: __u64,
    pub lost_pages: __u64,
    pub refused: __u64,
    pub unwritten: __u64,
    pub parked: __u64,
    pub throttled: __u64,
    pub rested_us: __u64,
    pub fault_waits_most: __u64,
    pub trimmed: __u64,
}
#[doc = " struct uvm_rust_flash_move_range - move a range at once (UVM_RUST_FLASH_MOVE)\n @size:     in: sizeof of the caller's structure\n @flags:    in: 0, from host memory to the device, or one of UVM_RUST_FLASH_TO_HOST and\n            UVM_RUST_FLASH_TO_GPU\n @base:     in: first byte, a multiple of the page size\n @length:   in: bytes, a multiple of the page size, not 0\n @gpu_uuid: in: with UVM_RUST_FLASH_TO_GPU, a GPU registered with this file descriptor (since\n            UVM_RUST_FLASH_MOVE_SIZE_V2)\n\n G10's g10_pre_evict and g10_prefetch between host and SSD (§4.4); between GPU and host\n they are UVM_MIGRATE. Pages that are elsewhere, in use, or of which the quota or the\n device leaves no room, stay where they are. Returns when all is done.\n\n UVM_RUST_FLASH_TO_GPU is both ways at once: pages are read from the device while others are\n copied to the GPU. It moves what UVM_MIGRATE would, but leaves alone va_blocks (2 MiB) that nobody\n has touched, whose range group may not be moved, and that the GPU cannot address.\n\n From the device, what comes next is read ahead, by some reads at a time. A tenant may write a\n second's worth of the module parameter uvm_rust_flash_move_mib at once, and then waits.\n Each part of 16 MiB is moved by itself; after an error those before it have been moved.\n The state of what is on the device is charged to the tenant's memory cgroup. Host memory that\n pages come back to is charged to the process, as UVM's own; with\n UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE to the memory cgroup of the caller.\n   EAGAIN  the system is about to sleep: to be called again, which leaves alone what was moved\n   ENXIO   not, as a whole, managed memory of this file descriptor\n   ENODEV  no device is attached, or no such GPU is registered with this file descriptor\n   EINTR   a signal came, or the process is being killed\n   ENOMEM, EIO"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_move_range {
    pub size: __u32,
    pub flags: __u32,
    pub base: __u64,
    pub length: __u64,
    pub gpu_uuid: [__u8; 16usize],
}
#[doc = " struct uvm_rust_flash_request - a range that is to be moved (UVM_RUST_FLASH_SUBMIT)\n @base:      in: first byte, a multiple of the page size\n @length:    in: bytes, a multiple of the page size, not 0\n @user_data: in: comes back with the completion\n @flags:     in: as of struct uvm_rust_flash_move_range; and UVM_RUST_FLASH_FROM_GPUS, not with\n             UVM_RUST_FLASH_TO_GPU; and UVM_RUST_FLASH_AFTER, with any of them, if the driver has\n             UVM_RUST_FEATURE_FLASH_AFTER\n @reserved:  must be 0, or the call fails with EINVAL\n @gpu_uuid:  in: with UVM_RUST_FLASH_TO_GPU, a GPU registered with this file descriptor when the\n             request begins"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_request {
    pub base: __u64,
    pub length: __u64,
    pub user_data: __u64,
    pub flags: __u32,
    pub reserved: __u32,
    pub gpu_uuid: [__u8; 16usize],
}
#[doc = " struct uvm_rust_flash_submit - move ranges, without waiting (UVM_RUST_FLASH_SUBMIT)\n @size:          in: sizeof of the caller's structure; out: of the driver's\n @flags:         in: 0 or UVM_RUST_FLASH_EVENT\n @requests:      in: address of an array of struct uvm_rust_flash_request\n @request_count: in: how many, 0 to UVM_RUST_FLASH_MAX_REQUESTS\n @request_size:  in: bytes from one to the next, a multiple of 8, at least\n                 UVM_RUST_FLASH_REQUEST_SIZE_V1 and at most 256; what the driver does not know of an\n                 element must be 0\n @event_fd:      in: with UVM_RUST_FLASH_EVENT a descriptor of eventfd(2), which may be closed once the call\n                 has returned; else 0\n @taken:         out: how many of the requests were taken, from the first on\n @queue:         in: any number: UVM_RUST_FLASH_REAP with the same one gives these requests' completions. So\n                 several users of a file descriptor do not take each other's\n\n Each request does what UVM_RUST_FLASH_MOVE does, some time later, in a thread of the kernel's. With\n UVM_RUST_FLASH_FROM_GPUS it is G10's g10_pre_evict, from GPUs to host memory, and on to the device without\n UVM_RUST_FLASH_TO_HOST. Only what goes to the device needs one.\n\n Requests with UVM_RUST_FLASH_TO_GPU and the same @gpu_uuid begin and end in the order in which they were\n submitted; so do those with UVM_RUST_FLASH_TO_HOST and without UVM_RUST_FLASH_FROM_GPUS; and so do all\n others. Requests of different kinds are carried out at the same time, as far as there are threads for\n that, unless they share a va_block (2 MiB of addresses, aligned): then the one that was submitted first is\n done before the other begins. With more than eight GPUs at a time, what goes to some of them is in one order.\n\n A request with UVM_RUST_FLASH_AFTER begins only when all requests of the file descriptor that were submitted\n before it have ended, well or not, whichever their memory and their @queue: for what comes to a GPU that is\n full until something has left. Requests that are submitted later wait for it as for any other.\n\n All requests are looked at before the first one is taken. With less room than requests, as many are taken as\n there is room for. What has not begun when the last descriptor of the file is closed is dropped, and what is\n under way ends early. Memory for requests is charged to the caller's memory cgroup.\n   EINVAL  an unknown flag, base or length no multiple of the page size, length 0, the end of a range\n           not below 2^64, a reserved field that is not 0, too many requests, or @event_fd is\n           another kind of file\n   EBADF   @event_fd is no descriptor\n   EFAULT  an element of the array is not readable\n   E2BIG   unknown fields of an element that are not 0\n   EBUSY   there is no room for the first request: UVM_RUST_FLASH_REAP makes some\n   ENOMEM"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_submit {
    pub size: __u32,
    pub flags: __u32,
    pub requests: __u64,
    pub request_count: __u32,
    pub request_size: __u32,
    pub event_fd: __s32,
    pub taken: __u32,
    pub queue: __u64,
}
#[doc = " struct uvm_rust_flash_completion - what became of a request (UVM_RUST_FLASH_REAP)\n @user_data: out: what the request had there\n @order:     out: how many requests of this file descriptor were done before this one, plus 1\n @status:    out: 0, or -errno: one of those of struct uvm_rust_flash_move_range. What was moved before an\n             error stays so\n @reserved:  out: 0, in this version"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_completion {
    pub user_data: __u64,
    pub order: __u64,
    pub status: __s32,
    pub reserved: __u32,
}
#[doc = " struct uvm_rust_flash_reap - which requests are done (UVM_RUST_FLASH_REAP)\n @size:             in: sizeof of the caller's structure; out: of the driver's\n @flags:            no flag is known yet: 0, or the call fails with EINVAL\n @completions:      in: address of an array of struct uvm_rust_flash_completion\n @completion_count: in: for how many it has room\n @completion_size:  in: bytes from one to the next, a multiple of 8, at least\n                    UVM_RUST_FLASH_COMPLETION_SIZE_V1 and at most 256; what the driver does not know of an\n                    element is set to 0\n @wait_for:         in: return once this many completions are there, @completion_count at most, or no request\n                    of @queue is left that is not done; 0 returns at once\n @wait_ms:          in: return after this many milliseconds, or a moment later, in any case\n @reaped:           out: how many completions were given, in the order in which the requests were done\n @pending:          out: how many requests of @queue are not done\n @queue:            in: that of struct uvm_rust_flash_submit\n\n Each completion is given once. Its request has ended: what it moved is there.\n   EFAULT  the array is not writable. No completion is lost that could not be written there, unless @reaped\n           could not be\n   EINTR   a signal came while it waited; nothing is given\n   EAGAIN  the system is about to sleep; as above"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_flash_reap {
    pub size: __u32,
    pub flags: __u32,
    pub completions: __u64,
    pub completion_count: __u32,
    pub completion_size: __u32,
    pub wait_for: __u32,
    pub wait_ms: __u32,
    pub reaped: __u32,
    pub pending: __u32,
    pub queue: __u64,
}
unsafe extern "C" {
    pub static mut uvm_rust_stats: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_test_starve: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_stats_public: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_discard: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_discard_granule: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_test_unprepared: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_evict: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_evict_policy: *mut ::core::ffi::c_char;
}
unsafe extern "C" {
    pub static mut uvm_rust_gpu_max: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_gpu_low: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_fault: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_choose: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_fault_turn_us: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_link_quantum: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_announce: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_prefetch: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_preevict: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_prefetch_ahead: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_prefetch_rows: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_prefetch_assoc: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_prefetch_succs: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_prefetch_memory: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_depth: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_sets: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_share: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_move_mib: ::core::ffi::c_uint;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_park: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_trim: bool;
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_copies: bool;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dentry {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct file {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct seq_file {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mem_cgroup {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_fault_service_batch_context_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_gpu_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_gpu_va_space_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_va_block_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_va_range_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_va_space_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mm_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct task_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_space {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_context {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_rust_gpu {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_rust_space {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_rust_block {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_work {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_rust_work_of {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct workqueue_struct {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_mask {
    pub words: [__u64; 8usize],
}
unsafe extern "C" {
    pub fn uvm_rust_gpu_create(
        index: __u32,
        root_chunks: __u32,
        counted: bool,
        address: *const ::core::ffi::c_char,
    ) -> *mut uvm_rust_gpu;
}
unsafe extern "C" {
    pub fn uvm_rust_gpu_destroy(gpu: *mut uvm_rust_gpu);
}
unsafe extern "C" {
    pub fn uvm_rust_gpu_install(index: __u32, gpu: *mut uvm_rust_gpu) -> *mut uvm_rust_gpu;
}
unsafe extern "C" {
    pub fn uvm_rust_gpu_is_known(index: __u32) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_space_create(
        of: *mut uvm_seam_space,
        pid: __u32,
        gpus: __u32,
    ) -> *mut uvm_rust_space;
}
unsafe extern "C" {
    pub fn uvm_rust_space_destroy(space: *mut uvm_rust_space);
}
unsafe extern "C" {
    pub fn uvm_rust_space_stop(space: *mut uvm_rust_space);
}
unsafe extern "C" {
    pub fn uvm_rust_space_forget(space: *mut uvm_rust_space, first: __u64, last: __u64);
}
unsafe extern "C" {
    pub fn uvm_rust_block_freed(space: *mut uvm_rust_space, address: __u64);
}
unsafe extern "C" {
    pub fn uvm_rust_space_add_gpu(
        space: *mut uvm_rust_space,
        of: *mut uvm_gpu_struct,
        gpu_index: __u32,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_note_fault(
        space: *mut uvm_rust_space,
        gpu_index: __u32,
        batch: __u32,
        instances: __u64,
        duplicates: __u64,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_note_replay(gpu_index: __u32);
}
unsafe extern "C" {
    pub fn uvm_rust_note_served(gpu_index: __u32, replays: __u64);
}
unsafe extern "C" {
    pub fn uvm_rust_note_copy(
        space: *mut uvm_rust_space,
        dst: __u32,
        src: __u32,
        cause: __u32,
        address: __u64,
        bytes: __u64,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_link_next(of: *mut uvm_va_block_struct, dst: __u32, bytes: __u64);
}
unsafe extern "C" {
    pub fn uvm_rust_chunk_leaves(
        gpu_index: __u32,
        root_index: __u32,
        free: bool,
        gpu: *mut uvm_gpu_struct,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_note_evicted(
        space: *mut uvm_rust_space,
        gpu_index: __u32,
        root_index: __u32,
        address: __u64,
    ) -> __u64;
}
unsafe extern "C" {
    pub fn uvm_rust_evicted(
        space: *mut uvm_rust_space,
        gpu_index: __u32,
        root_index: __u32,
        address: __u64,
        eviction: __u64,
        status: __u32,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_init() -> __u32;
}
unsafe extern "C" {
    pub fn uvm_rust_exit();
}
unsafe extern "C" {
    pub fn uvm_rust_gpu_show(gpu_index: __u32, seq: *mut seq_file);
}
unsafe extern "C" {
    pub fn uvm_rust_space_show(space: *mut uvm_rust_space, seq: *mut seq_file);
}
unsafe extern "C" {
    pub fn uvm_rust_ioctl(
        filp: *mut file,
        cmd: ::core::ffi::c_uint,
        arg: ::core::ffi::c_ulong,
        result: *mut ::core::ffi::c_long,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_show_fdinfo(seq: *mut seq_file, filp: *mut file);
}
unsafe extern "C" {
    pub fn uvm_rust_fdinfo(seq: *mut seq_file, filp: *mut file);
}
unsafe extern "C" {
    pub fn uvm_seam_gpu_file(index: __u32) -> *mut dentry;
}
unsafe extern "C" {
    pub fn uvm_seam_gpu_file_remove(file: *mut dentry);
}
unsafe extern "C" {
    pub fn uvm_seam_space_of(filp: *mut file) -> *mut uvm_seam_space;
}
unsafe extern "C" {
    pub fn uvm_seam_mm_lock(
        space: *mut uvm_seam_space,
        waits: bool,
        locked: *mut *mut mm_struct,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_mm_unlock(space: *mut uvm_seam_space, mm: *mut mm_struct);
}
unsafe extern "C" {
    pub fn uvm_seam_space_lock(space: *mut uvm_seam_space);
}
unsafe extern "C" {
    pub fn uvm_seam_space_unlock(space: *mut uvm_seam_space);
}
unsafe extern "C" {
    pub fn uvm_seam_space_trylock(space: *mut uvm_seam_space) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_space_state(space: *mut uvm_seam_space) -> *mut uvm_rust_space;
}
unsafe extern "C" {
    pub fn uvm_seam_space_gpu(
        space: *mut uvm_seam_space,
        uuid: *const __u8,
        gpu: *mut *mut uvm_gpu_struct,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_lock_chunks(gpu: *mut uvm_gpu_struct);
}
unsafe extern "C" {
    pub fn uvm_seam_unlock_chunks(gpu: *mut uvm_gpu_struct);
}
unsafe extern "C" {
    pub fn uvm_seam_list_next(gpu: *mut uvm_gpu_struct, list: __u32, chunk: __u32) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_sees_others() -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_tenant_of_this_thread(user: *mut __u32) -> *mut mem_cgroup;
}
unsafe extern "C" {
    pub fn uvm_seam_memcg_put(memcg: *mut mem_cgroup);
}
unsafe extern "C" {
    pub fn uvm_seam_charge(memcg: *mut mem_cgroup) -> *mut mem_cgroup;
}
unsafe extern "C" {
    pub fn uvm_seam_queue_new(
        name: *const ::core::ffi::c_char,
        most: __u32,
        urgent: bool,
    ) -> *mut workqueue_struct;
}
unsafe extern "C" {
    pub fn destroy_workqueue(queue: *mut workqueue_struct);
}
unsafe extern "C" {
    pub fn uvm_seam_work_new(
        kind: __u32,
        run: ::core::option::Option<unsafe extern "C" fn(arg1: *mut uvm_rust_work_of)>,
        of: *mut uvm_rust_work_of,
    ) -> *mut uvm_seam_work;
}
unsafe extern "C" {
    pub fn uvm_seam_work_queue(queue: *mut workqueue_struct, work: *mut uvm_seam_work, ms: __u64);
}
unsafe extern "C" {
    pub fn uvm_seam_work_stop(work: *mut uvm_seam_work, free: bool);
}
unsafe extern "C" {
    pub fn uvm_seam_pm_trylock() -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_pm_unlock();
}
unsafe extern "C" {
    pub fn uvm_seam_native_discard(
        space: *mut uvm_seam_space,
        context: *mut uvm_seam_context,
        at: __u64,
        eager: bool,
        last: *mut __u64,
    ) -> __u32;
}
unsafe extern "C" {
    pub static mut uvm_enable_builtin_tests: ::core::ffi::c_int;
}
unsafe extern "C" {
    pub fn uvm_seam_global_status() -> __u32;
}
unsafe extern "C" {
    pub fn seq_write(
        seq: *mut seq_file,
        text: *const ::core::ffi::c_void,
        len: __kernel_size_t,
    ) -> ::core::ffi::c_int;
}
unsafe extern "C" {
    pub fn get_random_u64() -> __u64;
}
unsafe extern "C" {
    pub fn ktime_get() -> __s64;
}
unsafe extern "C" {
    pub fn msleep_interruptible(ms: ::core::ffi::c_uint) -> ::core::ffi::c_ulong;
}
unsafe extern "C" {
    pub fn uvm_seam_suspends() -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_sleep(us: __u64);
}
unsafe extern "C" {
    pub fn uvm_seam_rest() -> bool;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_tracker {
    _unused: [u8; 0],
}
unsafe extern "C" {
    pub fn uvm_rust_block_destroy(block: *mut uvm_rust_block);
}
unsafe extern "C" {
    pub fn uvm_rust_block_drop_stale(
        of: *mut uvm_va_block_struct,
        context: *mut uvm_seam_context,
        block: *mut uvm_rust_block,
        pages: *const uvm_rust_mask,
        resident_at_destination: *const uvm_rust_mask,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_rust_block_drop_needless(
        of: *mut uvm_va_block_struct,
        block: *mut uvm_rust_block,
        leaving: *const uvm_rust_mask,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_rust_block_drop_leaving(
        of: *mut uvm_va_block_struct,
        block: *mut *mut uvm_rust_block,
        resident: *const uvm_rust_mask,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_block_zeroing(
        block: *mut uvm_rust_block,
        memory: __u32,
        first: __u32,
        outer: __u32,
        resident: *const uvm_rust_mask,
        resident_there: *const uvm_rust_mask,
        out: *mut uvm_rust_mask,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_block_added(
        block: *mut uvm_rust_block,
        memory: __u32,
        first: __u32,
        outer: __u32,
        resident: *const uvm_rust_mask,
        was_zero: bool,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_block_prepare(
        block: *mut uvm_rust_block,
        memory: __u32,
        pages: *const uvm_rust_mask,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_block_zeroing_host(
        block: *mut uvm_rust_block,
        wanted: *const uvm_rust_mask,
        allocated: *const uvm_rust_mask,
        resident: *const uvm_rust_mask,
        out: *mut uvm_rust_mask,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_block_made_resident(
        of: *mut uvm_va_block_struct,
        block: *mut uvm_rust_block,
        memory: __u32,
        pages: *const uvm_rust_mask,
        resident_there: *const uvm_rust_mask,
        resident_host: *const uvm_rust_mask,
        evicted: bool,
    );
}
unsafe extern "C" {
    pub fn uvm_va_block_split(
        block: *mut uvm_va_block_struct,
        new_end: __u64,
        upper: *mut *mut uvm_va_block_struct,
        new_range: *mut uvm_va_range_struct,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_va_block_split__c(
        arg1: *mut uvm_va_block_struct,
        arg2: __u64,
        arg3: *mut *mut uvm_va_block_struct,
        arg4: *mut uvm_va_range_struct,
    ) -> __u32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_seam_discarded {
    pub discarded: __u64,
    pub skipped: __u64,
    pub partial: __u64,
}
unsafe extern "C" {
    pub fn uvm_rust_discard_range(
        space: *mut uvm_seam_space,
        mm: *mut mm_struct,
        tracker: *mut uvm_seam_tracker,
        base: __u64,
        length: __u64,
        eager: bool,
        counts: *mut uvm_seam_discarded,
    ) -> __u32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_span {
    pub first: __u64,
    pub last: __u64,
}
unsafe extern "C" {
    pub fn uvm_seam_block_span(block: *mut uvm_va_block_struct, span: *mut uvm_rust_span);
}
unsafe extern "C" {
    pub fn uvm_seam_block_lock(block: *mut uvm_va_block_struct) -> *mut *mut uvm_rust_block;
}
unsafe extern "C" {
    pub fn uvm_seam_block_unlock(block: *mut uvm_va_block_struct);
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_range {
    pub first: __u64,
    pub last: __u64,
    pub preferred: __u32,
    pub managed: bool,
    pub read_duplicated: bool,
}
unsafe extern "C" {
    pub fn uvm_seam_range(
        space: *mut uvm_seam_space,
        from: __u64,
        last: __u64,
        out: *mut uvm_rust_range,
    ) -> *mut uvm_va_range_struct;
}
unsafe extern "C" {
    pub fn uvm_seam_range_block(
        range: *mut uvm_va_range_struct,
        at: __u64,
    ) -> *mut uvm_va_block_struct;
}
unsafe extern "C" {
    pub fn uvm_seam_range_kind(
        space: *mut uvm_seam_space,
        mm: *mut mm_struct,
        base: __u64,
        length: __u64,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_has_non_faultable(space: *mut uvm_seam_space) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_context_new(mm: *mut mm_struct) -> *mut uvm_seam_context;
}
unsafe extern "C" {
    pub fn uvm_seam_context_free(context: *mut uvm_seam_context);
}
unsafe extern "C" {
    pub fn uvm_seam_block_unmap(
        block: *mut uvm_va_block_struct,
        context: *mut uvm_seam_context,
        pages: *const uvm_rust_mask,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_block_drop(
        block: *mut uvm_va_block_struct,
        pages: *const uvm_rust_mask,
        stays: bool,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_block_forget_thrashing(
        block: *mut uvm_va_block_struct,
        pages: *const uvm_rust_mask,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_block_chunk(
        block: *mut uvm_va_block_struct,
        gpu: *mut uvm_gpu_struct,
        address: __u64,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_va_block_find(
        va_space: *mut uvm_va_space_struct,
        address: __u64,
        block: *mut *mut uvm_va_block_struct,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_discard(
        space: *mut uvm_seam_space,
        mm: *mut mm_struct,
        base: __u64,
        length: __u64,
        eager: bool,
        counts: *mut uvm_seam_discarded,
    ) -> __u32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_held {
    pub resident: uvm_rust_mask,
    pub memory: __u32,
    pub one_place: bool,
    pub root_chunk: bool,
}
unsafe extern "C" {
    pub fn uvm_range_group_all_migratable(
        va_space: *mut uvm_va_space_struct,
        first: __u64,
        last: __u64,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_gpu_can_address(gpu: *mut uvm_gpu_struct, first: __u64, bytes: __u64) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_discard_facts(
        block: *mut uvm_va_block_struct,
        resident: *mut uvm_rust_mask,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_discard_held(
        space: *mut uvm_seam_space,
        block: *mut uvm_va_block_struct,
        from: __u32,
        held: *mut uvm_rust_held,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_discard_requeue(
        space: *mut uvm_seam_space,
        block: *mut uvm_va_block_struct,
        memory: __u32,
        queue: __u32,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_tracker_add(
        tracker: *mut uvm_seam_tracker,
        block: *mut uvm_va_block_struct,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_tracker_end(tracker: *mut uvm_seam_tracker) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_rust_queues_set(gpu: __u32, chunk: __u32, queue: __u32, holder: __u64);
}
unsafe extern "C" {
    pub fn uvm_rust_queues_change(gpu: __u32, chunk: __u32, change: __u32, holder: __u64);
}
unsafe extern "C" {
    pub fn uvm_rust_chunk_is_leaving(gpu: __u32, chunk: __u32) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_queues_choose(
        gpu: __u32,
        of: *mut uvm_gpu_struct,
        space: *mut uvm_seam_space,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_chunk_evictable(gpu: *mut uvm_gpu_struct, chunk: __u32) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_quota_begin(
        space: *mut uvm_seam_space,
        gpu: *mut uvm_gpu_struct,
        index: __u32,
        is_root: bool,
        evict: bool,
        frees: bool,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_rust_quota_end(
        space: *mut uvm_seam_space,
        gpu: *mut uvm_gpu_struct,
        index: __u32,
        chunk: __u32,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_evict_of(gpu: *mut uvm_gpu_struct, space: *mut uvm_seam_space) -> __u32;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_alloc {
    _unused: [u8; 0],
}
unsafe extern "C" {
    pub fn uvm_rust_eviction_begins(gpu: __u32);
}
unsafe extern "C" {
    pub fn uvm_rust_rm_call_begins(gpu: __u32);
}
unsafe extern "C" {
    pub fn uvm_rust_rm_call_ended(gpu: __u32, got: bool);
}
unsafe extern "C" {
    pub fn uvm_rust_eviction_ended(
        of: *mut uvm_gpu_struct,
        gpu: __u32,
        chunk: __u32,
        status: __u32,
        thread: __u64,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_rust_alloc(
        alloc: *mut uvm_seam_alloc,
        gpu: __u32,
        thread: __u64,
        evicts: bool,
        for_users: bool,
        frees: bool,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_alloc_try(alloc: *mut uvm_seam_alloc, evict: bool) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_pma_free(gpu: *mut uvm_gpu_struct) -> __u64;
}
unsafe extern "C" {
    pub fn uvm_seam_this_thread() -> __u64;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_tree {
    pub first: __u16,
    pub outer: __u16,
    pub offset: __u16,
    pub leaves: __u16,
}
unsafe extern "C" {
    pub fn uvm_rust_tree_grow(
        tree: *const uvm_rust_tree,
        big_first: __u16,
        big_outer: __u16,
        granule: __u16,
        faulted: *const uvm_rust_mask,
        thrashing: *const uvm_rust_mask,
        leaves: *mut uvm_rust_mask,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_tree_prefetch(
        tree: *const uvm_rust_tree,
        first: __u16,
        outer: __u16,
        threshold: __u32,
        faulted: *const uvm_rust_mask,
        leaves: *const uvm_rust_mask,
        out: *mut uvm_rust_mask,
    );
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_fault_params {
    pub ring: __u32,
    pub max_batch: __u32,
    pub utlbs: __u32,
    pub policy: __u32,
    pub update_put_percent: __u32,
    pub max_batches: __u32,
    pub max_throttled: __u32,
    pub has_prefetch_switch: __u8,
    pub simulated: __u8,
    pub coalesce: __u8,
    pub cancels_by_address: __u8,
    pub partitioned: __u8,
}
unsafe extern "C" {
    pub fn uvm_rust_fault_create(parent: __u32, params: *const uvm_rust_fault_params) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_fault_destroy(parent: __u32);
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_fault {
    pub gpu: *mut uvm_gpu_struct,
    pub batch: *mut uvm_fault_service_batch_context_struct,
    pub ring: __u32,
    pub get: *mut __u32,
    pub put: *mut __u32,
    pub number: *mut __u32,
    pub replays: *mut __u32,
    pub duplicates: *mut __u32,
    pub invalid_prefetches: *mut __u32,
    pub throttled: *mut bool,
    pub prefetches_are_on: *mut bool,
    pub fatal_space: *mut *mut uvm_va_space_struct,
}
impl Default for uvm_seam_fault {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn uvm_rust_fault_service(parent: __u32, gpu: __u32, fault: *mut uvm_seam_fault);
}
unsafe extern "C" {
    pub fn uvm_rust_note_mapped(
        parent: __u32,
        gpu: __u32,
        space: *mut uvm_rust_space,
        batch: __u32,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_upstream(gpu: *mut uvm_gpu_struct);
}
unsafe extern "C" {
    pub fn uvm_seam_fault_failed(fault: *mut uvm_seam_fault, status: __u32);
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_fault {
    pub address: __u64,
    pub who: __u64,
    pub entry: __u32,
    pub instances: __u16,
    pub utlb: __u16,
    pub access: __u8,
    pub accesses: __u8,
    pub fatal: __u8,
    pub reserved: [__u8; 5usize],
}
unsafe extern "C" {
    pub fn uvm_seam_fault_read_put(fault: *mut uvm_seam_fault);
}
unsafe extern "C" {
    pub fn uvm_seam_fault_fetch(
        fault: *mut uvm_seam_fault,
        at: __u32,
        n: __u32,
        entry: __u32,
        out: *mut uvm_rust_fault,
        got: *mut __u32,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_is_written(fault: *mut uvm_seam_fault, at: __u32) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_set_get(fault: *mut uvm_seam_fault, get: __u32);
}
unsafe extern "C" {
    pub fn uvm_seam_fault_translate(
        fault: *mut uvm_seam_fault,
        entry: __u32,
        space: *mut __u64,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_cancel_channel(
        fault: *mut uvm_seam_fault,
        entry: __u32,
        targeted: bool,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_publish(
        fault: *mut uvm_seam_fault,
        records: *const uvm_rust_fault,
        n: __u32,
        representatives: *const __u32,
        entries: __u32,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_fault_prefetch_off(fault: *mut uvm_seam_fault, lapse_ms: *mut __u32) -> __u64;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_switch_prefetch(fault: *mut uvm_seam_fault, on: bool);
}
unsafe extern "C" {
    pub fn uvm_seam_heeds_alarm(heeds: bool) -> *mut task_struct;
}
unsafe extern "C" {
    pub fn send_sig(
        signal: ::core::ffi::c_int,
        thread: *mut task_struct,
        by_kernel: ::core::ffi::c_int,
    ) -> ::core::ffi::c_int;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_entered {
    pub space: *mut uvm_seam_space,
    pub mm: *mut mm_struct,
    pub gpu_va_space: *mut uvm_gpu_va_space_struct,
    pub gpu: *mut uvm_gpu_struct,
    pub state: *mut uvm_rust_space,
}
impl Default for uvm_seam_entered {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn uvm_seam_fault_enter(
        fault: *mut uvm_seam_fault,
        in_: *mut uvm_seam_entered,
        to_cancel: bool,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_fault_service(
        fault: *mut uvm_seam_fault,
        in_: *const uvm_seam_entered,
        first: __u32,
        per_block: bool,
        in_place: bool,
        faults: *mut __u32,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_found_fatal(fault: *mut uvm_seam_fault, first: __u32);
}
unsafe extern "C" {
    pub fn uvm_seam_fault_invalidate(
        fault: *mut uvm_seam_fault,
        in_: *const uvm_seam_entered,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_is_fatal(fault: *mut uvm_seam_fault, at: __u32) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_cancel(fault: *mut uvm_seam_fault, at: __u32) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_refuse(fault: *mut uvm_seam_fault, at: __u32, reason: __u32) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_replay(fault: *mut uvm_seam_fault) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_flush(fault: *mut uvm_seam_fault, how: __u32) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_wait(fault: *mut uvm_seam_fault, for_replays: bool) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_settle(fault: *mut uvm_seam_fault) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_cancel_utlbs(fault: *mut uvm_seam_fault) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_fault_refuse_utlbs(fault: *mut uvm_seam_fault, reason: __u32);
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_rust_flash_block {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_flash_dev {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct page {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct skcipher_request {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rw_semaphore {
    _unused: [u8; 0],
}
unsafe extern "C" {
    pub fn uvm_rust_flash_note(block: *mut uvm_va_block_struct, used: bool);
}
unsafe extern "C" {
    pub fn uvm_rust_flash_block_gone(block: *mut uvm_va_block_struct);
}
unsafe extern "C" {
    pub fn uvm_rust_flash_is_lost(
        block: *mut uvm_rust_flash_block,
        page: __u32,
        by_gpu: bool,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_flash_may_only_read(
        block: *mut uvm_rust_flash_block,
        page: __u32,
        some_cannot_fault: bool,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_flash_add_stored(block: *mut uvm_rust_flash_block, pages: *mut uvm_rust_mask);
}
unsafe extern "C" {
    pub fn uvm_rust_flash_leave_copied(block: *mut uvm_rust_flash_block, pages: *mut uvm_rust_mask);
}
unsafe extern "C" {
    pub fn uvm_rust_flash_maps(
        block: *mut uvm_rust_flash_block,
        pages: *const uvm_rust_mask,
        writes: bool,
    );
}
unsafe extern "C" {
    pub fn uvm_rust_flash_along(
        block: *mut uvm_va_block_struct,
        to_gpu: bool,
        pages: *mut uvm_rust_mask,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_rust_flash_before_populate(
        block: *mut uvm_va_block_struct,
        context: *mut uvm_seam_context,
        gpu: *mut uvm_gpu_struct,
        cause: __u32,
        by_kernel: bool,
        wanted: *const uvm_rust_mask,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_rust_flash_debug(
        block: *mut uvm_va_block_struct,
        context: *mut uvm_seam_context,
        page: __u32,
        to_write: bool,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_hook(used: bool);
}
unsafe extern "C" {
    pub fn uvm_seam_flash_slot(block: *mut uvm_va_block_struct) -> *mut *mut uvm_rust_flash_block;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_host_pages(block: *mut uvm_va_block_struct) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_va_block_hold(block: *mut uvm_va_block_struct) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_va_block_put(block: *mut uvm_va_block_struct);
}
unsafe extern "C" {
    pub fn uvm_va_block_get_va_space(block: *mut uvm_va_block_struct) -> *mut uvm_va_space_struct;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_host(
        block: *mut uvm_va_block_struct,
        pages: *mut uvm_rust_mask,
        held: *mut *mut page,
        hold: bool,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_host_chunk(
        block: *mut uvm_va_block_struct,
        index: __u32,
        first: *mut __u16,
        outer: *mut __u16,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_host_chunk_free(block: *mut uvm_va_block_struct, first: __u16, outer: __u16);
}
unsafe extern "C" {
    pub fn uvm_seam_block_wait(block: *mut uvm_va_block_struct, waits: bool) -> __u32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_pages {
    pub allocated: uvm_rust_mask,
    pub host: uvm_rust_mask,
    pub duplicated: uvm_rust_mask,
    pub mapped: uvm_rust_mask,
    pub thrashing: uvm_rust_mask,
    pub there: uvm_rust_mask,
    pub staged: uvm_rust_mask,
    pub reached: uvm_rust_mask,
}
unsafe extern "C" {
    pub fn uvm_seam_block_pages(
        block: *mut uvm_va_block_struct,
        gpu: *mut uvm_gpu_struct,
        out: *mut uvm_rust_pages,
    );
}
unsafe extern "C" {
    pub fn uvm_seam_pages_new(of: *mut *mut page, order: __u32, account: bool, waits: bool)
        -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_pages_put(of: *mut *mut page, pages: __u32);
}
unsafe extern "C" {
    pub fn uvm_seam_page_bytes(page: *mut page) -> *mut __u8;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_bvec {
    pub words: [__u64; 2usize],
}
unsafe extern "C" {
    pub fn uvm_seam_flash_transfer(
        dev: *mut uvm_seam_flash_dev,
        of: *mut *mut page,
        room: *mut uvm_rust_bvec,
        pages: __u16,
        position: __u64,
        write: bool,
        level: __u8,
    ) -> ::core::ffi::c_int;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_discard(
        dev: *mut uvm_seam_flash_dev,
        position: __u64,
        bytes: __u64,
    ) -> ::core::ffi::c_int;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_crypt(
        dev: *mut uvm_seam_flash_dev,
        room: *mut skcipher_request,
        from: *mut *mut page,
        to: *mut *mut page,
        pages: __u32,
        stamp: __u64,
        encrypt: bool,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_sums(of: *mut *mut page, pages: __u32, stamp: __u64, sums: *mut __u32);
}
unsafe extern "C" {
    pub fn uvm_seam_flash_is_there(dev: *mut uvm_seam_flash_dev) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_populate(
        block: *mut uvm_va_block_struct,
        context: *mut uvm_seam_context,
        pages: *mut uvm_rust_mask,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_arrived(block: *mut uvm_va_block_struct, pages: *const uvm_rust_mask);
}
unsafe extern "C" {
    pub fn uvm_seam_flash_lost(block: *mut uvm_va_block_struct, pages: __u32, pid: __u32);
}
unsafe extern "C" {
    pub fn uvm_seam_flash_tell(dev: *mut uvm_seam_flash_dev);
}
unsafe extern "C" {
    pub fn uvm_seam_flash_wait(
        dev: *mut uvm_seam_flash_dev,
        progress: *const __u32,
        was: __u32,
        ms: __u32,
    );
}
unsafe extern "C" {
    pub static mut uvm_rust_flash_attach_lock: rw_semaphore;
}
unsafe extern "C" {
    pub fn down_read_interruptible(sem: *mut rw_semaphore) -> ::core::ffi::c_int;
}
unsafe extern "C" {
    pub fn down_read_trylock(sem: *mut rw_semaphore) -> ::core::ffi::c_int;
}
unsafe extern "C" {
    pub fn up_read(sem: *mut rw_semaphore);
}
unsafe extern "C" {
    pub fn down_write(sem: *mut rw_semaphore);
}
unsafe extern "C" {
    pub fn up_write(sem: *mut rw_semaphore);
}
unsafe extern "C" {
    pub fn capable(cap: ::core::ffi::c_int) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_open(
        path: *const ::core::ffi::c_char,
        dev: *mut *mut uvm_seam_flash_dev,
        bytes: *mut __u64,
        request: *mut __u32,
    ) -> ::core::ffi::c_int;
}
unsafe extern "C" {
    pub fn uvm_seam_flash_free(dev: *mut uvm_seam_flash_dev);
}
unsafe extern "C" {
    pub fn uvm_seam_flash_close(dev: *mut uvm_seam_flash_dev);
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct uvm_seam_prefetch {
    _unused: [u8; 0],
}
unsafe extern "C" {
    pub fn uvm_seam_gpu_numbers(
        gpu: *mut uvm_gpu_struct,
        number: *mut __u32,
        parent: *mut __u32,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_create(copies: __u32) -> *mut uvm_seam_prefetch;
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_free(call: *mut uvm_seam_prefetch, copies: __u32);
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_gpu(
        space: *mut uvm_seam_space,
        gpu: __u32,
        ending: bool,
    ) -> *mut uvm_gpu_struct;
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_holds(
        gpu: *mut uvm_gpu_struct,
        chunk: __u32,
        start: *mut __u64,
    ) -> *mut uvm_va_block_struct;
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_is_lite(
        range: *mut uvm_va_range_struct,
        gpu: *mut uvm_gpu_struct,
    ) -> bool;
}
unsafe extern "C" {
    pub fn uvm_va_space_mm_retain(va_space: *mut uvm_va_space_struct) -> *mut mm_struct;
}
unsafe extern "C" {
    pub fn uvm_va_space_mm_release(va_space: *mut uvm_va_space_struct);
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_lock(
        call: *mut uvm_seam_prefetch,
        block: *mut uvm_va_block_struct,
        mm: *mut mm_struct,
    ) -> *mut *mut uvm_rust_block;
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_unlock(call: *mut uvm_seam_prefetch, block: *mut uvm_va_block_struct);
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_migrate(
        call: *mut uvm_seam_prefetch,
        block: *mut uvm_va_block_struct,
        gpu: *mut uvm_gpu_struct,
        map: bool,
        copy: __u32,
        first: __u16,
        outer: __u16,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn uvm_seam_prefetch_settle(
        call: *mut uvm_seam_prefetch,
        copy: __u32,
        under_way: *mut bool,
    ) -> __u32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_trace_fault_batch {
    pub gpu: __u32,
    pub batch: __u32,
    pub entries: __u32,
    pub status: __u32,
    pub faults: __u64,
    pub duplicates: __u64,
}
unsafe extern "C" {
    pub fn uvm_seam_trace_fault_batch(of: *const uvm_rust_trace_fault_batch);
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_trace_evict {
    pub gpu: __u32,
    pub pid: __u32,
    pub address: __u64,
    pub bytes: __u64,
    pub queue: __u32,
    pub status: __u32,
}
unsafe extern "C" {
    pub fn uvm_seam_trace_evict(of: *const uvm_rust_trace_evict);
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_trace_discard {
    pub pid: __u32,
    pub eager: __u32,
    pub address: __u64,
    pub bytes: __u64,
    pub discarded: __u64,
    pub skipped: __u64,
    pub partial: __u64,
    pub status: __u32,
}
unsafe extern "C" {
    pub fn uvm_seam_trace_discard(of: *const uvm_rust_trace_discard);
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct uvm_rust_trace_spill {
    pub pid: __u32,
    pub errors: __u32,
    pub address: __u64,
    pub bytes: __u64,
    pub written: __u64,
}
unsafe extern "C" {
    pub fn uvm_seam_trace_spill(of: *const uvm_rust_trace_spill);
}
