// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Written by scripts/bindings.sh.
// Of headers and options 3d6c61f258f75b53.
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
pub const VGPU_IOC_MAGIC: u8 = 86u8;
pub const VGPU_GET_INFO: u32 = 22080;
pub const VGPU_VASPACE_CREATE: u32 = 22081;
pub const VGPU_CHANNEL_CREATE: u32 = 22082;
pub const VGPU_DESTROY: u32 = 22083;
pub const VGPU_SUBMIT: u32 = 22084;
pub const VGPU_WAIT: u32 = 22085;
pub const VGPU_GET_STATS: u32 = 22086;
pub const VGPU_INJECT: u32 = 22087;
pub const VGPU_TRANSLATE: u32 = 22088;
pub const VGPU_MAX_VASPACES: u32 = 16;
pub const VGPU_MAX_CHANNELS: u32 = 16;
pub const VGPU_MAX_CHANNELS_ALL: u32 = 256;
pub const VGPU_MAX_CHANNELS_USER: u32 = 64;
pub const VGPU_MAX_CHANNELS_USERS: u32 = 192;
pub const VGPU_MAX_QUEUED: u32 = 128;
pub const VGPU_MAX_QUEUED_OPS: u32 = 8192;
pub const VGPU_MAX_QUEUED_WARPS: u32 = 65536;
pub const VGPU_MAX_RUNNING_WARPS: u32 = 65536;
pub const VGPU_MAX_OPS: u32 = 1024;
pub const VGPU_MAX_WARPS: u32 = 16384;
pub const VGPU_MAX_ACCESSES: u64 = 1099511627776;
pub const VGPU_KEPT_RESULTS: u32 = 128;
pub const VGPU_POISON: u64 = 6840227784180153040;
pub const VGPU_PERSONALITY_TURING: u32 = 0;
pub const VGPU_PERSONALITY_VOLTA: u32 = 1;
pub const VGPU_PERSONALITY_AMPERE: u32 = 2;
pub const VGPU_PERSONALITY_HOPPER: u32 = 3;
pub const VGPU_PERSONALITY_BLACKWELL: u32 = 4;
pub const VGPU_FEATURE_TLB: u32 = 1;
pub const VGPU_FEATURE_POISON: u32 = 2;
pub const VGPU_FEATURE_SIMULATED: u32 = 4;
pub const VGPU_FEATURE_PCIE: u32 = 8;
pub const VGPU_FEATURE_NVLINK: u32 = 16;
pub const VGPU_INFO_SIZE_V1: u32 = 104;
pub const VGPU_VASPACE_SIZE_V1: u32 = 24;
pub const VGPU_CHANNEL_SIZE_V1: u32 = 24;
pub const VGPU_DESTROY_SIZE_V1: u32 = 16;
pub const VGPU_OP_READ: u32 = 0;
pub const VGPU_OP_WRITE: u32 = 1;
pub const VGPU_OP_ATOMIC_ADD: u32 = 2;
pub const VGPU_OP_CHECK: u32 = 3;
pub const VGPU_OP_PREFETCH: u32 = 4;
pub const VGPU_OP_BARRIER: u32 = 1;
pub const VGPU_OP_BLOCKED: u32 = 2;
pub const VGPU_OP_PERMUTE: u32 = 4;
pub const VGPU_OP_SIZE_V1: u32 = 88;
pub const VGPU_SUBMIT_SIZE_V1: u32 = 48;
pub const VGPU_KERNEL_DONE: u32 = 1;
pub const VGPU_KERNEL_FAULTED: u32 = 2;
pub const VGPU_KERNEL_STOPPED: u32 = 3;
pub const VGPU_KERNEL_ERROR: u32 = 4;
pub const VGPU_FAULT_NONE: u32 = 4294967295;
pub const VGPU_FAULT_INVALID_PDE: u32 = 0;
pub const VGPU_FAULT_INVALID_PTE: u32 = 2;
pub const VGPU_FAULT_WRITE_TO_READ_ONLY: u32 = 6;
pub const VGPU_FAULT_ATOMIC_DISABLED: u32 = 15;
pub const VGPU_TIMEOUT_NEVER: i32 = -1;
pub const VGPU_WAIT_SIZE_V1: u32 = 136;
pub const VGPU_STATS_SIZE_V1: u32 = 344;
pub const VGPU_STATS_SIZE_V2: u32 = 352;
pub const VGPU_STATS_SIZE_V3: u32 = 368;
pub const VGPU_INJECT_DROP_INVALIDATES: u32 = 1;
pub const VGPU_INJECT_FAULT_BUFFER_FULL: u32 = 2;
pub const VGPU_INJECT_PMA_FAILURE: u32 = 3;
pub const VGPU_INJECT_EVICT_PAGES: u32 = 4;
pub const VGPU_INJECT_EVICT_RANGE: u32 = 5;
pub const VGPU_INJECT_CHANNEL_ERROR: u32 = 6;
pub const VGPU_INJECT_SUSPEND: u32 = 7;
pub const VGPU_INJECT_COPY: u32 = 8;
pub const VGPU_INJECT_KEEP: u32 = 1;
pub const VGPU_INJECT_FOREVER: i32 = -1;
pub const VGPU_MAX_EVICT_PAGES: u32 = 1024;
pub const VGPU_MAX_SUSPEND_MS: u32 = 10000;
pub const VGPU_INJECT_SIZE_V1: u32 = 64;
pub const VGPU_UVM_CHANNEL: u32 = 2147483648;
pub const VGPU_APERTURE_NONE: u32 = 0;
pub const VGPU_APERTURE_VIDMEM: u32 = 1;
pub const VGPU_APERTURE_SYSMEM: u32 = 2;
pub const VGPU_APERTURE_PEER: u32 = 3;
pub const VGPU_MAY_READ: u32 = 1;
pub const VGPU_MAY_WRITE: u32 = 2;
pub const VGPU_MAY_ATOMIC: u32 = 4;
pub const VGPU_TRANSLATE_SIZE_V1: u32 = 40;
pub type __u8 = ::core::ffi::c_uchar;
pub type __s32 = ::core::ffi::c_int;
pub type __u32 = ::core::ffi::c_uint;
pub type __s64 = ::core::ffi::c_longlong;
pub type __u64 = ::core::ffi::c_ulonglong;
#[doc = " struct uvm_rust_version - what this driver offers\n @size:     in: sizeof of the caller's structure; out: of the driver's\n @version:  out: UVM_RUST_VERSION of the driver\n @features: out: UVM_RUST_FEATURE_*; a bit is set when the feature is built in\n            and not turned off by a module parameter\n\n Needs no UVM_INITIALIZE."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_version {
    pub size: __u32,
    pub version: __u32,
    pub features: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_version"][::core::mem::size_of::<uvm_rust_version>() - 16usize];
    ["Alignment of uvm_rust_version"][::core::mem::align_of::<uvm_rust_version>() - 8usize];
    ["Offset of field: uvm_rust_version::size"]
        [::core::mem::offset_of!(uvm_rust_version, size) - 0usize];
    ["Offset of field: uvm_rust_version::version"]
        [::core::mem::offset_of!(uvm_rust_version, version) - 4usize];
    ["Offset of field: uvm_rust_version::features"]
        [::core::mem::offset_of!(uvm_rust_version, features) - 8usize];
};
#[doc = " struct uvm_rust_traffic - pages that were copied in one direction for one cause\n @bytes: how many bytes were copied\n @pages: the same in 4 KiB pages"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_traffic {
    pub bytes: __u64,
    pub pages: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_traffic"][::core::mem::size_of::<uvm_rust_traffic>() - 16usize];
    ["Alignment of uvm_rust_traffic"][::core::mem::align_of::<uvm_rust_traffic>() - 8usize];
    ["Offset of field: uvm_rust_traffic::bytes"]
        [::core::mem::offset_of!(uvm_rust_traffic, bytes) - 0usize];
    ["Offset of field: uvm_rust_traffic::pages"]
        [::core::mem::offset_of!(uvm_rust_traffic, pages) - 8usize];
};
#[doc = " struct uvm_rust_stats - what one GPU did, for this process or for all\n @size:        in: sizeof of the caller's structure; out: of the driver's\n @flags:       in: 0 or UVM_RUST_STATS_WHOLE_GPU\n @gpu_uuid:    in: a GPU registered with this file descriptor\n @host_to_gpu: out: copied from host memory to this GPU, by cause\n @gpu_to_host: out: copied from this GPU to host memory, by cause\n @gpu_to_gpu:  out: copied to this GPU from another one, by cause\n @faults:      out: replayable faults taken off the fault buffer and resolved\n               to an address space; each instance of a duplicate counts\n @duplicates:  out: those among @faults for which nothing was left to do, being\n               the same access to the same page as another in their batch, or\n               finding the page already mapped for their access. The latter\n               are not known, and do not count, where the GPU has the CPU's\n               page tables (ATS), and where the driver has no hooks of ours\n               in its fault loop (580 and later with UVM_RUST_WHOLE=0)\n @batches:     out: fault batches; for a process, those that held a fault of it\n @replays:     out: replays sent to the GPU; for a process, those sent by calls\n               of the fault service that handled a fault of it\n @evictions:   out: 2 MiB root chunks reclaimed, by queue; where the driver\n               discards by itself (UVM_RUST_FEATURE_NATIVE_DISCARD), tries to.\n               For a process, how often its own chunks were to be taken, also\n               in vain; UVM_RUST_QUEUE_FREE is then 0\n @queued:      out: 2 MiB root chunks that are on each queue now, of all\n               processes; with uvm_rust_evict=0, on upstream's lists (since\n               UVM_RUST_STATS_SIZE_V2). All 0 for a caller to whom\n               UVM_RUST_STATS_WHOLE_GPU would give EPERM\n @thrashed:    out: blocks of 2 MiB of which data were copied to this GPU again\n               before as many further blocks had been evicted from it as it has\n               chunks of 2 MiB; one for each such eviction (since\n               UVM_RUST_STATS_SIZE_V3)\n @prefetch_wasted: out: evictions of blocks that UVM_RUST_ANNOUNCE's prefetcher\n               had brought, before the kernel began for which it had (since\n               UVM_RUST_STATS_SIZE_V3)\n\n \"This process\" is the file descriptor's VA space; counting begins with its\n first registration of the GPU and ends with the file descriptor. For the whole\n GPU it begins when the first process registers it and ends when the last one\n is gone. If no process keeps the GPU registered and it comes back later, all\n counters begin at 0 again. Otherwise they never decrease; they wrap at 2^64.\n They are read one by one while they change, so sums may be off by work in flight."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
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
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_stats"][::core::mem::size_of::<uvm_rust_stats>() - 584usize];
    ["Alignment of uvm_rust_stats"][::core::mem::align_of::<uvm_rust_stats>() - 8usize];
    ["Offset of field: uvm_rust_stats::size"]
        [::core::mem::offset_of!(uvm_rust_stats, size) - 0usize];
    ["Offset of field: uvm_rust_stats::flags"]
        [::core::mem::offset_of!(uvm_rust_stats, flags) - 4usize];
    ["Offset of field: uvm_rust_stats::gpu_uuid"]
        [::core::mem::offset_of!(uvm_rust_stats, gpu_uuid) - 8usize];
    ["Offset of field: uvm_rust_stats::host_to_gpu"]
        [::core::mem::offset_of!(uvm_rust_stats, host_to_gpu) - 24usize];
    ["Offset of field: uvm_rust_stats::gpu_to_host"]
        [::core::mem::offset_of!(uvm_rust_stats, gpu_to_host) - 152usize];
    ["Offset of field: uvm_rust_stats::gpu_to_gpu"]
        [::core::mem::offset_of!(uvm_rust_stats, gpu_to_gpu) - 280usize];
    ["Offset of field: uvm_rust_stats::faults"]
        [::core::mem::offset_of!(uvm_rust_stats, faults) - 408usize];
    ["Offset of field: uvm_rust_stats::duplicates"]
        [::core::mem::offset_of!(uvm_rust_stats, duplicates) - 416usize];
    ["Offset of field: uvm_rust_stats::batches"]
        [::core::mem::offset_of!(uvm_rust_stats, batches) - 424usize];
    ["Offset of field: uvm_rust_stats::replays"]
        [::core::mem::offset_of!(uvm_rust_stats, replays) - 432usize];
    ["Offset of field: uvm_rust_stats::evictions"]
        [::core::mem::offset_of!(uvm_rust_stats, evictions) - 440usize];
    ["Offset of field: uvm_rust_stats::queued"]
        [::core::mem::offset_of!(uvm_rust_stats, queued) - 504usize];
    ["Offset of field: uvm_rust_stats::thrashed"]
        [::core::mem::offset_of!(uvm_rust_stats, thrashed) - 568usize];
    ["Offset of field: uvm_rust_stats::prefetch_wasted"]
        [::core::mem::offset_of!(uvm_rust_stats, prefetch_wasted) - 576usize];
};
#[doc = " struct uvm_rust_discard_range - managed memory whose contents are not needed\n @base:   first byte, a multiple of the page size\n @length: bytes, a multiple of the page size, not 0"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_discard_range {
    pub base: __u64,
    pub length: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_discard_range"][::core::mem::size_of::<uvm_rust_discard_range>() - 16usize];
    ["Alignment of uvm_rust_discard_range"]
        [::core::mem::align_of::<uvm_rust_discard_range>() - 8usize];
    ["Offset of field: uvm_rust_discard_range::base"]
        [::core::mem::offset_of!(uvm_rust_discard_range, base) - 0usize];
    ["Offset of field: uvm_rust_discard_range::length"]
        [::core::mem::offset_of!(uvm_rust_discard_range, length) - 8usize];
};
#[doc = " struct uvm_rust_discard_batch - discard several ranges (UVM_RUST_DISCARD_BATCH)\n @size:             in: sizeof of the caller's structure; out: of the driver's\n @flags:            in: 0 (lazy) or UVM_RUST_DISCARD_EAGER\n @ranges:           in: address of an array of struct uvm_rust_discard_range\n @range_count:      in: how many, 0 to UVM_RUST_DISCARD_MAX_RANGES\n @range_size:       in: bytes from one to the next, a multiple of 8, at least\n                    UVM_RUST_DISCARD_RANGE_SIZE_V1 and at most 256; what the\n                    driver does not know of an element must be 0\n @first_failed:     out: index of the range at which the call stopped;\n                    @range_count when all are done\n @reserved:         must be 0, or the call fails with EINVAL\n @blocks_discarded: out: 2 MiB blocks of which all that the ranges cover is now\n                    discarded\n @blocks_skipped:   out: blocks left as they were, being empty, or covered\n                    partly where the driver does not discard parts\n @blocks_partial:   out: blocks of which some of what is covered was left alone\n\n A block is 2 MiB of address space, aligned, or what a range of managed memory\n has of it. Each block that a range touches counts in exactly one of the three;\n one that several ranges touch counts for each.\n\n Ranges are discarded in order and may overlap. The call stops at the first one\n that fails: those before it stay discarded and are counted, the failed one may\n be discarded in part, and @first_failed and the counts are filled in, with any\n errno of the list below. Going on from @first_failed, with the cause removed or\n that range left out, completes the work.\n   EINVAL  base or length no multiple of the page size, length 0, or the end of\n           the range not below 2^64\n   EFAULT  this element of the array is not readable\n   E2BIG   unknown fields of this element that are not 0\n   ENXIO   the range is not, as a whole, managed memory of this file descriptor\n   EINTR   a fatal signal came\n   EAGAIN  the system sleeps, or is about to. @size stays as the caller gave it,\n           so that the same call can be made again, which begins anew\n   ENOMEM  no memory for the state of a block\n   EOPNOTSUPP  a GPU that cannot fault (before Pascal) is registered with this\n           file descriptor: it could not come back to what was unmapped. Met at\n           the first range, unless it is registered meanwhile\n\n Errors found before the first range (the list at the top of this file but for\n EAGAIN; EOPNOTSUPP when discard is turned off) leave all outputs unwritten: a caller\n that sets @first_failed to ~0 beforehand can tell the two EOPNOTSUPP apart.\n A structure that is not writable is one of them: nothing is discarded. EFAULT\n after ranges were discarded is left to who makes the structure unwritable\n during the call."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
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
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_discard_batch"][::core::mem::size_of::<uvm_rust_discard_batch>() - 56usize];
    ["Alignment of uvm_rust_discard_batch"]
        [::core::mem::align_of::<uvm_rust_discard_batch>() - 8usize];
    ["Offset of field: uvm_rust_discard_batch::size"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, size) - 0usize];
    ["Offset of field: uvm_rust_discard_batch::flags"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, flags) - 4usize];
    ["Offset of field: uvm_rust_discard_batch::ranges"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, ranges) - 8usize];
    ["Offset of field: uvm_rust_discard_batch::range_count"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, range_count) - 16usize];
    ["Offset of field: uvm_rust_discard_batch::range_size"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, range_size) - 20usize];
    ["Offset of field: uvm_rust_discard_batch::first_failed"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, first_failed) - 24usize];
    ["Offset of field: uvm_rust_discard_batch::reserved"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, reserved) - 28usize];
    ["Offset of field: uvm_rust_discard_batch::blocks_discarded"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, blocks_discarded) - 32usize];
    ["Offset of field: uvm_rust_discard_batch::blocks_skipped"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, blocks_skipped) - 40usize];
    ["Offset of field: uvm_rust_discard_batch::blocks_partial"]
        [::core::mem::offset_of!(uvm_rust_discard_batch, blocks_partial) - 48usize];
};
#[doc = " struct uvm_rust_announce - which kernel runs next on a GPU (UVM_RUST_ANNOUNCE)\n @size:     in: sizeof of the caller's structure; out, with E2BIG only: the driver's\n @flags:    in: 0 or UVM_RUST_ANNOUNCE_IDLE\n @gpu_uuid: in: a GPU registered with this file descriptor\n @exec_id:  in: execution ID (DeepUM §3.1): equal for two launches when the\n            kernel and its arguments are; any value but 0. With\n            UVM_RUST_ANNOUNCE_IDLE 0\n\n Faults that this process causes on the GPU from now on are taken to belong to\n @exec_id, until the next announcement. It only guides prefetching and eviction\n of this file descriptor's own memory: a wrong one costs speed, nothing else.\n With uvm_rust_evict_policy=turns it also says whose turn on the GPU it is, by\n which it is decided whose memory goes first.\n Never waits for the GPU or for a migration, so that it can be called from a\n stream's host callback."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_announce {
    pub size: __u32,
    pub flags: __u32,
    pub gpu_uuid: [__u8; 16usize],
    pub exec_id: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_announce"][::core::mem::size_of::<uvm_rust_announce>() - 32usize];
    ["Alignment of uvm_rust_announce"][::core::mem::align_of::<uvm_rust_announce>() - 8usize];
    ["Offset of field: uvm_rust_announce::size"]
        [::core::mem::offset_of!(uvm_rust_announce, size) - 0usize];
    ["Offset of field: uvm_rust_announce::flags"]
        [::core::mem::offset_of!(uvm_rust_announce, flags) - 4usize];
    ["Offset of field: uvm_rust_announce::gpu_uuid"]
        [::core::mem::offset_of!(uvm_rust_announce, gpu_uuid) - 8usize];
    ["Offset of field: uvm_rust_announce::exec_id"]
        [::core::mem::offset_of!(uvm_rust_announce, exec_id) - 24usize];
};
#[doc = " struct uvm_rust_prefetch_stats - what was learnt of this process's kernels on a GPU,\n and done with it (UVM_RUST_GET_PREFETCH_STATS)\n @size:            in: sizeof of the caller's structure; out: of the driver's\n @flags:           no flag is known yet: 0, or the call fails with EINVAL\n @gpu_uuid:        in: a GPU registered with this file descriptor\n @kernels:         out: announcements taken into account\n @kernels_right:   out: those that had been predicted to come next\n @kernels_wrong:   out: those where another had been\n @dropped_kernels: out: announcements for which a queue had no room\n @blocks:          out: blocks of 2 MiB that kernels faulted on, repetitions not counted\n @blocks_unknown:  out: those that were not known of their kernel\n @dropped_faults:  out: faulted blocks for which a queue had no room\n @predicted:       out: blocks that were predicted\n @prefetched:      out: of these, moved to the GPU\n @resident:        out: of these, on the GPU already\n @held:            out: of these, not moved, as only blocks that are themselves predicted could make room\n @unfit:           out: of these, freed meanwhile, or kept elsewhere by policy\n @failed:          out: of these, not moved because of an error\n @bytes_in:        out: bytes moved to the GPU\n @pushed_out:      out: blocks moved to the host ahead of need\n @bytes_out:       out: bytes of these\n @table_bytes:     out: memory that the tables take now\n @ids_dropped:     out: execution IDs forgotten for lack of room\n @ids:             out: execution IDs known now\n @window:          out: how many kernels ahead is looked now\n\n All are 0 before the first announcement. Counters never go back."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
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
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_prefetch_stats"]
        [::core::mem::size_of::<uvm_rust_prefetch_stats>() - 176usize];
    ["Alignment of uvm_rust_prefetch_stats"]
        [::core::mem::align_of::<uvm_rust_prefetch_stats>() - 8usize];
    ["Offset of field: uvm_rust_prefetch_stats::size"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, size) - 0usize];
    ["Offset of field: uvm_rust_prefetch_stats::flags"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, flags) - 4usize];
    ["Offset of field: uvm_rust_prefetch_stats::gpu_uuid"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, gpu_uuid) - 8usize];
    ["Offset of field: uvm_rust_prefetch_stats::kernels"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, kernels) - 24usize];
    ["Offset of field: uvm_rust_prefetch_stats::kernels_right"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, kernels_right) - 32usize];
    ["Offset of field: uvm_rust_prefetch_stats::kernels_wrong"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, kernels_wrong) - 40usize];
    ["Offset of field: uvm_rust_prefetch_stats::dropped_kernels"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, dropped_kernels) - 48usize];
    ["Offset of field: uvm_rust_prefetch_stats::blocks"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, blocks) - 56usize];
    ["Offset of field: uvm_rust_prefetch_stats::blocks_unknown"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, blocks_unknown) - 64usize];
    ["Offset of field: uvm_rust_prefetch_stats::dropped_faults"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, dropped_faults) - 72usize];
    ["Offset of field: uvm_rust_prefetch_stats::predicted"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, predicted) - 80usize];
    ["Offset of field: uvm_rust_prefetch_stats::prefetched"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, prefetched) - 88usize];
    ["Offset of field: uvm_rust_prefetch_stats::resident"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, resident) - 96usize];
    ["Offset of field: uvm_rust_prefetch_stats::held"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, held) - 104usize];
    ["Offset of field: uvm_rust_prefetch_stats::unfit"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, unfit) - 112usize];
    ["Offset of field: uvm_rust_prefetch_stats::failed"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, failed) - 120usize];
    ["Offset of field: uvm_rust_prefetch_stats::bytes_in"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, bytes_in) - 128usize];
    ["Offset of field: uvm_rust_prefetch_stats::pushed_out"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, pushed_out) - 136usize];
    ["Offset of field: uvm_rust_prefetch_stats::bytes_out"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, bytes_out) - 144usize];
    ["Offset of field: uvm_rust_prefetch_stats::table_bytes"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, table_bytes) - 152usize];
    ["Offset of field: uvm_rust_prefetch_stats::ids_dropped"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, ids_dropped) - 160usize];
    ["Offset of field: uvm_rust_prefetch_stats::ids"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, ids) - 168usize];
    ["Offset of field: uvm_rust_prefetch_stats::window"]
        [::core::mem::offset_of!(uvm_rust_prefetch_stats, window) - 172usize];
};
#[doc = " struct uvm_rust_quota - how much of a GPU this file descriptor may hold and keep (UVM_RUST_SET_QUOTA)\n @size:     in: sizeof of the caller's structure; out: of the driver's\n @flags:    UVM_RUST_QUOTA_MAX and UVM_RUST_QUOTA_LOW, together or alone, or 0; EINVAL for others\n @gpu_uuid: in: a GPU registered with this file descriptor\n @max:      in: how many bytes of the GPU, in whole 2 MiB blocks, the VA space may hold before it evicts its own;\n            all bits set: no maximum.\n            out: what is in force now\n @low:      in: how many bytes of the GPU, in whole 2 MiB blocks, other VA spaces leave to this one as long as there is\n            anything else to evict; 0: none.\n            out: what is in force now\n @held:     out: bytes of the GPU that count; all bits set if that is not known\n @beyond:   out: allocations that went on at the maximum, as none of the VA space's own memory could be evicted\n\n The call lowers the maximum and the low of its own file descriptor, whoever calls. To raise either takes\n CAP_SYS_ADMIN in the initial user namespace; EPERM without, and then neither is changed. ENODEV if the GPU is not\n registered, and ENOMEM if memory was short when it was. EOPNOTSUPP also with uvm_rust_stats=0 or uvm_rust_evict=0, as\n nobody then knows what is held, and for a GPU without replayable faults. Also in a driver of 580 or later that is built\n with UVM_RUST_WHOLE=0.\n\n EINVAL for a maximum of less than 640 MiB, or an eighth of the GPU if that is less: with less, a kernel could fault\n for ever on blocks that it needs at once. One instruction of a warp may need 64 blocks of 2 MiB, and a batch of faults brings\n 256.\n\n Before it returns, the call evicts what the VA space holds beyond the maximum, as long as chunks can\n be evicted and the caller is not killed; what is left goes when the VA space next wants memory there.\n After EFAULT in writing the result the limits are set all the same; likewise after ENODEV or EAGAIN that comes during\n the call, as the GPU is unregistered or the system is about to sleep.\n\n A maximum refuses no memory, and nothing waits for it: it is memory.high of cgroups, not memory.max. A VA space at\n its maximum evicts a chunk of its own for each further one, by faults and by migrations alike, whether or not the GPU\n has free memory. So it takes no block of another process for what is beyond the maximum, unless the GPU is full and\n another allocation takes the chunk first. The copy to the host is waited for, in the fault service too. Where no chunk of its own can be evicted, as threads\n work on all of them or host memory is short, the VA space gets the further one all the same (@beyond), and each later\n one evicts up to two. While evictions succeed, n threads that bring memory at the same time have the VA space\n hold n - 1 chunks of 2 MiB beyond its maximum at most; the fault service of a GPU is one thread.\n\n A low is memory.low of cgroups. Of a VA space that holds no more than its low, no chunk with pages in use is evicted for\n others, while a VA space that holds more than its own low, or none has, uses a chunk that may be evicted. If there is\n none, the chunk goes that would go without lows. So a low refuses no memory, nothing waits for it, and what of it is\n not held is lent. It does not keep a VA space at its maximum from evicting its own. The lows of a GPU may be more than\n the GPU has, and are not scaled then. Lows are not heeded:\n   - while all that is not protected is 640 MiB or less, or an eighth of the GPU if that is less, for the same reason as\n     above: so much of the GPU cannot be protected\n   - after nine evictions in a row that failed, until one succeeds\n   - for RM's memory, such as cudaMalloc's, where RM asks for certain addresses\n Chunks in which nothing is in use, or all is discarded, go first, whosever they are. 64 VA\n spaces that have chunks of a GPU can be protected at a time, and 32 whatever others there are without a low. A further\n VA space is protected once another one has no chunk or no low any more, and it gets its next chunk; what it had before\n is protected once its low is set again. No call tells that a VA space is not protected.\n\n What is counted are chunks of 2 MiB that are one VA space's, from their allocation until they are free: what\n fdinfo calls \"resident\", and chunks whose pages have all gone elsewhere. Chunks that are split are not counted:\n those of ordinary memory (HMM), and of managed memory in pieces of less than 2 MiB. Neither is what cudaMalloc takes.\n\n Both last as long as the file descriptor, also if the GPU is unregistered and comes back; then they are those of\n whatever GPU has the same number, but the maximum is no less than the least there. At first they are what the module\n parameters uvm_rust_gpu_max and uvm_rust_gpu_low say."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_quota {
    pub size: __u32,
    pub flags: __u32,
    pub gpu_uuid: [__u8; 16usize],
    pub max: __u64,
    pub low: __u64,
    pub held: __u64,
    pub beyond: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_quota"][::core::mem::size_of::<uvm_rust_quota>() - 56usize];
    ["Alignment of uvm_rust_quota"][::core::mem::align_of::<uvm_rust_quota>() - 8usize];
    ["Offset of field: uvm_rust_quota::size"]
        [::core::mem::offset_of!(uvm_rust_quota, size) - 0usize];
    ["Offset of field: uvm_rust_quota::flags"]
        [::core::mem::offset_of!(uvm_rust_quota, flags) - 4usize];
    ["Offset of field: uvm_rust_quota::gpu_uuid"]
        [::core::mem::offset_of!(uvm_rust_quota, gpu_uuid) - 8usize];
    ["Offset of field: uvm_rust_quota::max"]
        [::core::mem::offset_of!(uvm_rust_quota, max) - 24usize];
    ["Offset of field: uvm_rust_quota::low"]
        [::core::mem::offset_of!(uvm_rust_quota, low) - 32usize];
    ["Offset of field: uvm_rust_quota::held"]
        [::core::mem::offset_of!(uvm_rust_quota, held) - 40usize];
    ["Offset of field: uvm_rust_quota::beyond"]
        [::core::mem::offset_of!(uvm_rust_quota, beyond) - 48usize];
};
#[doc = " struct uvm_rust_flash_attach - use a device as SSD tier (UVM_RUST_FLASH_ATTACH)\n @size:        in: sizeof of the caller's structure\n @flags:       in: 0, or UVM_RUST_FLASH_FORCE and UVM_RUST_FLASH_NO_CHECKSUMS, together or alone\n @path:        in: address of the path of a block device or a file, NUL-terminated,\n               4096 bytes at most\n @host_bytes:  in: host memory for managed pages, of all processes, not 0: above it\n               pages are written to the device, those longest in host memory first\n @quota_bytes: in: what a tenant may have on the device, that is a user in a memory cgroup,\n               with all descriptors that its processes have initialized, whoever uses them;\n               0 for all of it\n\n Needs CAP_SYS_ADMIN, and the module parameter uvm_rust_flash=1. The device is opened\n exclusively and written to: what it held is lost. Its first 2 MiB are not used but for\n a mark that lets it be attached again without UVM_RUST_FLASH_FORCE.\n   EPERM       no CAP_SYS_ADMIN\n   EEXIST      a device is attached\n   EBUSY       it is mounted, or in use by something else\n   ENOTEMPTY   its first 128 KiB are not zeros, so something may be on it\n   ENOTBLK     neither a block device nor a regular file\n   ENOSPC      smaller than 8 MiB\n   EOPNOTSUPP  off by the module parameter, or no direct I/O, or no encryption (the\n               kernel lacks \"xts(aes)\")\n   and what opening, reading and writing it give"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_flash_attach {
    pub size: __u32,
    pub flags: __u32,
    pub path: __u64,
    pub host_bytes: __u64,
    pub quota_bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_attach"][::core::mem::size_of::<uvm_rust_flash_attach>() - 32usize];
    ["Alignment of uvm_rust_flash_attach"]
        [::core::mem::align_of::<uvm_rust_flash_attach>() - 8usize];
    ["Offset of field: uvm_rust_flash_attach::size"]
        [::core::mem::offset_of!(uvm_rust_flash_attach, size) - 0usize];
    ["Offset of field: uvm_rust_flash_attach::flags"]
        [::core::mem::offset_of!(uvm_rust_flash_attach, flags) - 4usize];
    ["Offset of field: uvm_rust_flash_attach::path"]
        [::core::mem::offset_of!(uvm_rust_flash_attach, path) - 8usize];
    ["Offset of field: uvm_rust_flash_attach::host_bytes"]
        [::core::mem::offset_of!(uvm_rust_flash_attach, host_bytes) - 16usize];
    ["Offset of field: uvm_rust_flash_attach::quota_bytes"]
        [::core::mem::offset_of!(uvm_rust_flash_attach, quota_bytes) - 24usize];
};
#[doc = " struct uvm_rust_flash_detach - stop using the device (UVM_RUST_FLASH_DETACH)\n @size:  in: sizeof of the caller's structure\n @flags: 0\n\n Needs CAP_SYS_ADMIN. Nothing more is written; what is on the device is brought back\n to host memory, which takes as long as that takes, and then it is let go.\n   EPERM   no CAP_SYS_ADMIN\n   ENODEV  none is attached\n   EINTR   a fatal signal came: it stays attached, writes nothing, and may be\n           detached again\n   EAGAIN  somebody waits to suspend the system; as above\n   EBUSY   memory for some page could not be had, a page could not be read, or a va_block\n           stayed in use; as above"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_flash_detach {
    pub size: __u32,
    pub flags: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_detach"][::core::mem::size_of::<uvm_rust_flash_detach>() - 8usize];
    ["Alignment of uvm_rust_flash_detach"]
        [::core::mem::align_of::<uvm_rust_flash_detach>() - 4usize];
    ["Offset of field: uvm_rust_flash_detach::size"]
        [::core::mem::offset_of!(uvm_rust_flash_detach, size) - 0usize];
    ["Offset of field: uvm_rust_flash_detach::flags"]
        [::core::mem::offset_of!(uvm_rust_flash_detach, flags) - 4usize];
};
#[doc = " struct uvm_rust_flash_stats - what the SSD tier did (UVM_RUST_FLASH_GET_STATS)\n @size:         in: sizeof of the caller's structure; out: of the driver's\n @flags:        no flag is known yet: 0, or the call fails with EINVAL\n @attached:     out: 1 while a device is attached and written to, else 0\n @slots:        out: slots of 2 MiB of the device\n @free_slots:   out: those with no page\n @extents:      out: extents in use\n @pages:        out: pages of 4 KiB on the device\n @pages_mine:   out: those of the tenant (user in a memory cgroup) that initialized this file\n                descriptor, with all that its processes have initialized\n @host_pages:   out: pages of host memory allocated to managed memory\n @host_peak:    out: the most they ever were since attaching\n @written:      out: bytes written to the device for pages that left host memory, also\n                those that turned out to be in use\n @spilled:      out: bytes that left host memory\n @fetched:      out: bytes that came back to host memory\n @relocated:    out: bytes copied inside the device to gather free space\n @dropped:      out: bytes that left host memory unwritten, being discarded\n @write_errors: out: writes that failed; their pages stayed in host memory\n @read_errors:  out: reads that failed, were short, or had a wrong checksum\n @lost_pages:   out: pages that could not be read; their owners get SIGBUS, or a fatal\n                GPU fault. One that is read again later, in vain, counts again\n @refused:      out: va_blocks that were not written for want of room or by the quota\n @unwritten:    out: bytes that left host memory unwritten, as the device still had them;\n                not counted in @spilled (since UVM_RUST_FLASH_STATS_SIZE_V2)\n @parked:       out: GPU faults that were put off, and came back, as their pages were on the\n                device or host memory was full (since UVM_RUST_FLASH_STATS_SIZE_V3)\n @throttled:    out: times that UVM_RUST_FLASH_MOVE waited, as its tenant had written as much\n                as uvm_rust_flash_move_mib allows (since UVM_RUST_FLASH_STATS_SIZE_V3)\n @rested_us:    out: microseconds that workers left the device to others, as\n                uvm_rust_flash_share says (since UVM_RUST_FLASH_STATS_SIZE_V3)\n @fault_waits_most: out: the most operations of the device for others than faults, of up to\n                2 MiB each or a discard, that were under way between the moment at which a GPU fault asked\n                for pages and the beginning of the read of those (since\n                UVM_RUST_FLASH_STATS_SIZE_V4)\n @trimmed:      out: bytes that the device was told to forget, being needed no more\n                (uvm_rust_flash_trim; since UVM_RUST_FLASH_STATS_SIZE_V4)\n\n Counters begin with attaching and stay until the next one. Without a device all is 0.\n They are those of all processes together: but for @attached, @slots and @pages_mine all is 0\n to who has no CAP_SYS_ADMIN in the initial user namespace, unless the module parameter\n uvm_rust_stats_public is set."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
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
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_stats"][::core::mem::size_of::<uvm_rust_flash_stats>() - 176usize];
    ["Alignment of uvm_rust_flash_stats"][::core::mem::align_of::<uvm_rust_flash_stats>() - 8usize];
    ["Offset of field: uvm_rust_flash_stats::size"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, size) - 0usize];
    ["Offset of field: uvm_rust_flash_stats::flags"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, flags) - 4usize];
    ["Offset of field: uvm_rust_flash_stats::attached"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, attached) - 8usize];
    ["Offset of field: uvm_rust_flash_stats::slots"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, slots) - 12usize];
    ["Offset of field: uvm_rust_flash_stats::free_slots"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, free_slots) - 16usize];
    ["Offset of field: uvm_rust_flash_stats::extents"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, extents) - 20usize];
    ["Offset of field: uvm_rust_flash_stats::pages"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, pages) - 24usize];
    ["Offset of field: uvm_rust_flash_stats::pages_mine"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, pages_mine) - 32usize];
    ["Offset of field: uvm_rust_flash_stats::host_pages"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, host_pages) - 40usize];
    ["Offset of field: uvm_rust_flash_stats::host_peak"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, host_peak) - 48usize];
    ["Offset of field: uvm_rust_flash_stats::written"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, written) - 56usize];
    ["Offset of field: uvm_rust_flash_stats::spilled"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, spilled) - 64usize];
    ["Offset of field: uvm_rust_flash_stats::fetched"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, fetched) - 72usize];
    ["Offset of field: uvm_rust_flash_stats::relocated"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, relocated) - 80usize];
    ["Offset of field: uvm_rust_flash_stats::dropped"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, dropped) - 88usize];
    ["Offset of field: uvm_rust_flash_stats::write_errors"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, write_errors) - 96usize];
    ["Offset of field: uvm_rust_flash_stats::read_errors"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, read_errors) - 104usize];
    ["Offset of field: uvm_rust_flash_stats::lost_pages"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, lost_pages) - 112usize];
    ["Offset of field: uvm_rust_flash_stats::refused"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, refused) - 120usize];
    ["Offset of field: uvm_rust_flash_stats::unwritten"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, unwritten) - 128usize];
    ["Offset of field: uvm_rust_flash_stats::parked"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, parked) - 136usize];
    ["Offset of field: uvm_rust_flash_stats::throttled"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, throttled) - 144usize];
    ["Offset of field: uvm_rust_flash_stats::rested_us"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, rested_us) - 152usize];
    ["Offset of field: uvm_rust_flash_stats::fault_waits_most"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, fault_waits_most) - 160usize];
    ["Offset of field: uvm_rust_flash_stats::trimmed"]
        [::core::mem::offset_of!(uvm_rust_flash_stats, trimmed) - 168usize];
};
#[doc = " struct uvm_rust_flash_move_range - move a range at once (UVM_RUST_FLASH_MOVE)\n @size:     in: sizeof of the caller's structure\n @flags:    in: 0, from host memory to the device, or one of UVM_RUST_FLASH_TO_HOST and\n            UVM_RUST_FLASH_TO_GPU\n @base:     in: first byte, a multiple of the page size\n @length:   in: bytes, a multiple of the page size, not 0\n @gpu_uuid: in: with UVM_RUST_FLASH_TO_GPU, a GPU registered with this file descriptor (since\n            UVM_RUST_FLASH_MOVE_SIZE_V2)\n\n G10's g10_pre_evict and g10_prefetch between host and SSD (§4.4); between GPU and host\n they are UVM_MIGRATE. Pages that are elsewhere, in use, or of which the quota or the\n device leaves no room, stay where they are. Returns when all is done.\n\n UVM_RUST_FLASH_TO_GPU is both ways at once: pages are read from the device while others are\n copied to the GPU. It moves what UVM_MIGRATE would, but leaves alone va_blocks (2 MiB) that nobody\n has touched, whose range group may not be moved, and that the GPU cannot address.\n\n From the device, what comes next is read ahead, by some reads at a time. A tenant may write a\n second's worth of the module parameter uvm_rust_flash_move_mib at once, and then waits.\n Each part of 16 MiB is moved by itself; after an error those before it have been moved.\n The state of what is on the device is charged to the tenant's memory cgroup. Host memory that\n pages come back to is charged to the process, as UVM's own; with\n UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE to the memory cgroup of the caller.\n   EAGAIN  the system is about to sleep: to be called again, which leaves alone what was moved\n   ENXIO   not, as a whole, managed memory of this file descriptor\n   ENODEV  no device is attached, or no such GPU is registered with this file descriptor\n   EINTR   a signal came, or the process is being killed\n   ENOMEM, EIO"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_flash_move_range {
    pub size: __u32,
    pub flags: __u32,
    pub base: __u64,
    pub length: __u64,
    pub gpu_uuid: [__u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_move_range"]
        [::core::mem::size_of::<uvm_rust_flash_move_range>() - 40usize];
    ["Alignment of uvm_rust_flash_move_range"]
        [::core::mem::align_of::<uvm_rust_flash_move_range>() - 8usize];
    ["Offset of field: uvm_rust_flash_move_range::size"]
        [::core::mem::offset_of!(uvm_rust_flash_move_range, size) - 0usize];
    ["Offset of field: uvm_rust_flash_move_range::flags"]
        [::core::mem::offset_of!(uvm_rust_flash_move_range, flags) - 4usize];
    ["Offset of field: uvm_rust_flash_move_range::base"]
        [::core::mem::offset_of!(uvm_rust_flash_move_range, base) - 8usize];
    ["Offset of field: uvm_rust_flash_move_range::length"]
        [::core::mem::offset_of!(uvm_rust_flash_move_range, length) - 16usize];
    ["Offset of field: uvm_rust_flash_move_range::gpu_uuid"]
        [::core::mem::offset_of!(uvm_rust_flash_move_range, gpu_uuid) - 24usize];
};
#[doc = " struct uvm_rust_flash_request - a range that is to be moved (UVM_RUST_FLASH_SUBMIT)\n @base:      in: first byte, a multiple of the page size\n @length:    in: bytes, a multiple of the page size, not 0\n @user_data: in: comes back with the completion\n @flags:     in: as of struct uvm_rust_flash_move_range; and UVM_RUST_FLASH_FROM_GPUS, not with\n             UVM_RUST_FLASH_TO_GPU; and UVM_RUST_FLASH_AFTER, with any of them, if the driver has\n             UVM_RUST_FEATURE_FLASH_AFTER\n @reserved:  must be 0, or the call fails with EINVAL\n @gpu_uuid:  in: with UVM_RUST_FLASH_TO_GPU, a GPU registered with this file descriptor when the\n             request begins"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_flash_request {
    pub base: __u64,
    pub length: __u64,
    pub user_data: __u64,
    pub flags: __u32,
    pub reserved: __u32,
    pub gpu_uuid: [__u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_request"][::core::mem::size_of::<uvm_rust_flash_request>() - 48usize];
    ["Alignment of uvm_rust_flash_request"]
        [::core::mem::align_of::<uvm_rust_flash_request>() - 8usize];
    ["Offset of field: uvm_rust_flash_request::base"]
        [::core::mem::offset_of!(uvm_rust_flash_request, base) - 0usize];
    ["Offset of field: uvm_rust_flash_request::length"]
        [::core::mem::offset_of!(uvm_rust_flash_request, length) - 8usize];
    ["Offset of field: uvm_rust_flash_request::user_data"]
        [::core::mem::offset_of!(uvm_rust_flash_request, user_data) - 16usize];
    ["Offset of field: uvm_rust_flash_request::flags"]
        [::core::mem::offset_of!(uvm_rust_flash_request, flags) - 24usize];
    ["Offset of field: uvm_rust_flash_request::reserved"]
        [::core::mem::offset_of!(uvm_rust_flash_request, reserved) - 28usize];
    ["Offset of field: uvm_rust_flash_request::gpu_uuid"]
        [::core::mem::offset_of!(uvm_rust_flash_request, gpu_uuid) - 32usize];
};
#[doc = " struct uvm_rust_flash_submit - move ranges, without waiting (UVM_RUST_FLASH_SUBMIT)\n @size:          in: sizeof of the caller's structure; out: of the driver's\n @flags:         in: 0 or UVM_RUST_FLASH_EVENT\n @requests:      in: address of an array of struct uvm_rust_flash_request\n @request_count: in: how many, 0 to UVM_RUST_FLASH_MAX_REQUESTS\n @request_size:  in: bytes from one to the next, a multiple of 8, at least\n                 UVM_RUST_FLASH_REQUEST_SIZE_V1 and at most 256; what the driver does not know of an\n                 element must be 0\n @event_fd:      in: with UVM_RUST_FLASH_EVENT a descriptor of eventfd(2), which may be closed once the call\n                 has returned; else 0\n @taken:         out: how many of the requests were taken, from the first on\n @queue:         in: any number: UVM_RUST_FLASH_REAP with the same one gives these requests' completions. So\n                 several users of a file descriptor do not take each other's\n\n Each request does what UVM_RUST_FLASH_MOVE does, some time later, in a thread of the kernel's. With\n UVM_RUST_FLASH_FROM_GPUS it is G10's g10_pre_evict, from GPUs to host memory, and on to the device without\n UVM_RUST_FLASH_TO_HOST. Only what goes to the device needs one.\n\n Requests with UVM_RUST_FLASH_TO_GPU and the same @gpu_uuid begin and end in the order in which they were\n submitted; so do those with UVM_RUST_FLASH_TO_HOST and without UVM_RUST_FLASH_FROM_GPUS; and so do all\n others. Requests of different kinds are carried out at the same time, as far as there are threads for\n that, unless they share a va_block (2 MiB of addresses, aligned): then the one that was submitted first is\n done before the other begins. With more than eight GPUs at a time, what goes to some of them is in one order.\n\n A request with UVM_RUST_FLASH_AFTER begins only when all requests of the file descriptor that were submitted\n before it have ended, well or not, whichever their memory and their @queue: for what comes to a GPU that is\n full until something has left. Requests that are submitted later wait for it as for any other.\n\n All requests are looked at before the first one is taken. With less room than requests, as many are taken as\n there is room for. What has not begun when the last descriptor of the file is closed is dropped, and what is\n under way ends early. Memory for requests is charged to the caller's memory cgroup.\n   EINVAL  an unknown flag, base or length no multiple of the page size, length 0, the end of a range\n           not below 2^64, a reserved field that is not 0, too many requests, or @event_fd is\n           another kind of file\n   EBADF   @event_fd is no descriptor\n   EFAULT  an element of the array is not readable\n   E2BIG   unknown fields of an element that are not 0\n   EBUSY   there is no room for the first request: UVM_RUST_FLASH_REAP makes some\n   ENOMEM"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
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
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_submit"][::core::mem::size_of::<uvm_rust_flash_submit>() - 40usize];
    ["Alignment of uvm_rust_flash_submit"]
        [::core::mem::align_of::<uvm_rust_flash_submit>() - 8usize];
    ["Offset of field: uvm_rust_flash_submit::size"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, size) - 0usize];
    ["Offset of field: uvm_rust_flash_submit::flags"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, flags) - 4usize];
    ["Offset of field: uvm_rust_flash_submit::requests"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, requests) - 8usize];
    ["Offset of field: uvm_rust_flash_submit::request_count"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, request_count) - 16usize];
    ["Offset of field: uvm_rust_flash_submit::request_size"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, request_size) - 20usize];
    ["Offset of field: uvm_rust_flash_submit::event_fd"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, event_fd) - 24usize];
    ["Offset of field: uvm_rust_flash_submit::taken"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, taken) - 28usize];
    ["Offset of field: uvm_rust_flash_submit::queue"]
        [::core::mem::offset_of!(uvm_rust_flash_submit, queue) - 32usize];
};
#[doc = " struct uvm_rust_flash_completion - what became of a request (UVM_RUST_FLASH_REAP)\n @user_data: out: what the request had there\n @order:     out: how many requests of this file descriptor were done before this one, plus 1\n @status:    out: 0, or -errno: one of those of struct uvm_rust_flash_move_range. What was moved before an\n             error stays so\n @reserved:  out: 0, in this version"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct uvm_rust_flash_completion {
    pub user_data: __u64,
    pub order: __u64,
    pub status: __s32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_completion"]
        [::core::mem::size_of::<uvm_rust_flash_completion>() - 24usize];
    ["Alignment of uvm_rust_flash_completion"]
        [::core::mem::align_of::<uvm_rust_flash_completion>() - 8usize];
    ["Offset of field: uvm_rust_flash_completion::user_data"]
        [::core::mem::offset_of!(uvm_rust_flash_completion, user_data) - 0usize];
    ["Offset of field: uvm_rust_flash_completion::order"]
        [::core::mem::offset_of!(uvm_rust_flash_completion, order) - 8usize];
    ["Offset of field: uvm_rust_flash_completion::status"]
        [::core::mem::offset_of!(uvm_rust_flash_completion, status) - 16usize];
    ["Offset of field: uvm_rust_flash_completion::reserved"]
        [::core::mem::offset_of!(uvm_rust_flash_completion, reserved) - 20usize];
};
#[doc = " struct uvm_rust_flash_reap - which requests are done (UVM_RUST_FLASH_REAP)\n @size:             in: sizeof of the caller's structure; out: of the driver's\n @flags:            no flag is known yet: 0, or the call fails with EINVAL\n @completions:      in: address of an array of struct uvm_rust_flash_completion\n @completion_count: in: for how many it has room\n @completion_size:  in: bytes from one to the next, a multiple of 8, at least\n                    UVM_RUST_FLASH_COMPLETION_SIZE_V1 and at most 256; what the driver does not know of an\n                    element is set to 0\n @wait_for:         in: return once this many completions are there, @completion_count at most, or no request\n                    of @queue is left that is not done; 0 returns at once\n @wait_ms:          in: return after this many milliseconds, or a moment later, in any case\n @reaped:           out: how many completions were given, in the order in which the requests were done\n @pending:          out: how many requests of @queue are not done\n @queue:            in: that of struct uvm_rust_flash_submit\n\n Each completion is given once. Its request has ended: what it moved is there.\n   EFAULT  the array is not writable. No completion is lost that could not be written there, unless @reaped\n           could not be\n   EINTR   a signal came while it waited; nothing is given\n   EAGAIN  the system is about to sleep; as above"]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
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
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of uvm_rust_flash_reap"][::core::mem::size_of::<uvm_rust_flash_reap>() - 48usize];
    ["Alignment of uvm_rust_flash_reap"][::core::mem::align_of::<uvm_rust_flash_reap>() - 8usize];
    ["Offset of field: uvm_rust_flash_reap::size"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, size) - 0usize];
    ["Offset of field: uvm_rust_flash_reap::flags"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, flags) - 4usize];
    ["Offset of field: uvm_rust_flash_reap::completions"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, completions) - 8usize];
    ["Offset of field: uvm_rust_flash_reap::completion_count"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, completion_count) - 16usize];
    ["Offset of field: uvm_rust_flash_reap::completion_size"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, completion_size) - 20usize];
    ["Offset of field: uvm_rust_flash_reap::wait_for"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, wait_for) - 24usize];
    ["Offset of field: uvm_rust_flash_reap::wait_ms"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, wait_ms) - 28usize];
    ["Offset of field: uvm_rust_flash_reap::reaped"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, reaped) - 32usize];
    ["Offset of field: uvm_rust_flash_reap::pending"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, pending) - 36usize];
    ["Offset of field: uvm_rust_flash_reap::queue"]
        [::core::mem::offset_of!(uvm_rust_flash_reap, queue) - 40usize];
};
#[doc = " struct vgpu_info - what one GPU is and has (VGPU_GET_INFO)\n @size:          in: sizeof of the caller's structure; out: of the driver's\n @gpu:           in: which GPU, from 0\n @gpu_count:     out: how many there are, at most 8\n @personality:   out: which GPU is emulated, VGPU_PERSONALITY_*\n @uuid:          out: the UUID under which UVM knows it\n @name:          out: for people, ends with a zero\n @vidmem_bytes:  out: size of its memory\n @reserved_bytes: out: of these, the bytes that UVM cannot have\n @features:      out: how vgpu.ko was loaded, bits VGPU_FEATURE_*\n @utlb_count:    out: number of µTLBs (4 GPCs with several each)\n @utlb_faults:   out: outstanding faults per µTLB where a kernel does not say\n @fault_entries: out: size of the replayable fault buffer, in entries\n @reserved:      0\n\n ENODEV beyond the last GPU, so that counting up finds them all."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_info {
    pub size: __u32,
    pub gpu: __u32,
    pub gpu_count: __u32,
    pub personality: __u32,
    pub uuid: [__u8; 16usize],
    pub name: [::core::ffi::c_char; 32usize],
    pub vidmem_bytes: __u64,
    pub reserved_bytes: __u64,
    pub features: __u64,
    pub utlb_count: __u32,
    pub utlb_faults: __u32,
    pub fault_entries: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_info"][::core::mem::size_of::<vgpu_info>() - 104usize];
    ["Alignment of vgpu_info"][::core::mem::align_of::<vgpu_info>() - 8usize];
    ["Offset of field: vgpu_info::size"][::core::mem::offset_of!(vgpu_info, size) - 0usize];
    ["Offset of field: vgpu_info::gpu"][::core::mem::offset_of!(vgpu_info, gpu) - 4usize];
    ["Offset of field: vgpu_info::gpu_count"]
        [::core::mem::offset_of!(vgpu_info, gpu_count) - 8usize];
    ["Offset of field: vgpu_info::personality"]
        [::core::mem::offset_of!(vgpu_info, personality) - 12usize];
    ["Offset of field: vgpu_info::uuid"][::core::mem::offset_of!(vgpu_info, uuid) - 16usize];
    ["Offset of field: vgpu_info::name"][::core::mem::offset_of!(vgpu_info, name) - 32usize];
    ["Offset of field: vgpu_info::vidmem_bytes"]
        [::core::mem::offset_of!(vgpu_info, vidmem_bytes) - 64usize];
    ["Offset of field: vgpu_info::reserved_bytes"]
        [::core::mem::offset_of!(vgpu_info, reserved_bytes) - 72usize];
    ["Offset of field: vgpu_info::features"]
        [::core::mem::offset_of!(vgpu_info, features) - 80usize];
    ["Offset of field: vgpu_info::utlb_count"]
        [::core::mem::offset_of!(vgpu_info, utlb_count) - 88usize];
    ["Offset of field: vgpu_info::utlb_faults"]
        [::core::mem::offset_of!(vgpu_info, utlb_faults) - 92usize];
    ["Offset of field: vgpu_info::fault_entries"]
        [::core::mem::offset_of!(vgpu_info, fault_entries) - 96usize];
    ["Offset of field: vgpu_info::reserved"]
        [::core::mem::offset_of!(vgpu_info, reserved) - 100usize];
};
#[doc = " struct vgpu_vaspace - an address space on one GPU (VGPU_VASPACE_CREATE)\n @size:      in: sizeof of the caller's structure\n @flags:     in: no flag is known yet: 0, else EINVAL\n @gpu:       in: on which GPU, from 0\n @h_client:  out: names this open file to UVM\n @h_vaspace: out: names the address space, here and to UVM; never 0\n @reserved:  0\n\n Until UVM_REGISTER_GPU_VASPACE sets its page directory nothing is mapped."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_vaspace {
    pub size: __u32,
    pub flags: __u32,
    pub gpu: __u32,
    pub h_client: __u32,
    pub h_vaspace: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_vaspace"][::core::mem::size_of::<vgpu_vaspace>() - 24usize];
    ["Alignment of vgpu_vaspace"][::core::mem::align_of::<vgpu_vaspace>() - 4usize];
    ["Offset of field: vgpu_vaspace::size"][::core::mem::offset_of!(vgpu_vaspace, size) - 0usize];
    ["Offset of field: vgpu_vaspace::flags"][::core::mem::offset_of!(vgpu_vaspace, flags) - 4usize];
    ["Offset of field: vgpu_vaspace::gpu"][::core::mem::offset_of!(vgpu_vaspace, gpu) - 8usize];
    ["Offset of field: vgpu_vaspace::h_client"]
        [::core::mem::offset_of!(vgpu_vaspace, h_client) - 12usize];
    ["Offset of field: vgpu_vaspace::h_vaspace"]
        [::core::mem::offset_of!(vgpu_vaspace, h_vaspace) - 16usize];
    ["Offset of field: vgpu_vaspace::reserved"]
        [::core::mem::offset_of!(vgpu_vaspace, reserved) - 20usize];
};
#[doc = " struct vgpu_channel - a queue of kernels (VGPU_CHANNEL_CREATE)\n @size:      in: sizeof of the caller's structure\n @flags:     in: no flag is known yet: 0, else EINVAL\n @h_vaspace: in: the address space its kernels use\n @h_client:  out: names this open file to UVM\n @h_channel: out: names the channel, here and to UVM; never 0\n @reserved:  0\n\n Kernels of one channel run one after another, those of several at the same\n time. It takes kernels once UVM_REGISTER_CHANNEL has bound it, and stops for\n good when UVM stops it (UVM_UNREGISTER_CHANNEL, UVM_UNREGISTER_GPU_VASPACE)."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_channel {
    pub size: __u32,
    pub flags: __u32,
    pub h_vaspace: __u32,
    pub h_client: __u32,
    pub h_channel: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_channel"][::core::mem::size_of::<vgpu_channel>() - 24usize];
    ["Alignment of vgpu_channel"][::core::mem::align_of::<vgpu_channel>() - 4usize];
    ["Offset of field: vgpu_channel::size"][::core::mem::offset_of!(vgpu_channel, size) - 0usize];
    ["Offset of field: vgpu_channel::flags"][::core::mem::offset_of!(vgpu_channel, flags) - 4usize];
    ["Offset of field: vgpu_channel::h_vaspace"]
        [::core::mem::offset_of!(vgpu_channel, h_vaspace) - 8usize];
    ["Offset of field: vgpu_channel::h_client"]
        [::core::mem::offset_of!(vgpu_channel, h_client) - 12usize];
    ["Offset of field: vgpu_channel::h_channel"]
        [::core::mem::offset_of!(vgpu_channel, h_channel) - 16usize];
    ["Offset of field: vgpu_channel::reserved"]
        [::core::mem::offset_of!(vgpu_channel, reserved) - 20usize];
};
#[doc = " struct vgpu_destroy - give up an address space or a channel (VGPU_DESTROY)\n @size:     in: sizeof of the caller's structure\n @flags:    in: no flag is known yet: 0, else EINVAL\n @handle:   in: an h_vaspace or h_channel\n @reserved: 0\n\n A channel's kernels are stopped first. The handle is free at once; what UVM\n still uses goes when UVM lets go of it. EBUSY: an address space with channels."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_destroy {
    pub size: __u32,
    pub flags: __u32,
    pub handle: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_destroy"][::core::mem::size_of::<vgpu_destroy>() - 16usize];
    ["Alignment of vgpu_destroy"][::core::mem::align_of::<vgpu_destroy>() - 4usize];
    ["Offset of field: vgpu_destroy::size"][::core::mem::offset_of!(vgpu_destroy, size) - 0usize];
    ["Offset of field: vgpu_destroy::flags"][::core::mem::offset_of!(vgpu_destroy, flags) - 4usize];
    ["Offset of field: vgpu_destroy::handle"]
        [::core::mem::offset_of!(vgpu_destroy, handle) - 8usize];
    ["Offset of field: vgpu_destroy::reserved"]
        [::core::mem::offset_of!(vgpu_destroy, reserved) - 12usize];
};
#[doc = " struct vgpu_op - many memory accesses made by many warps\n @kind:         what the accesses do, one of VGPU_OP_READ to VGPU_OP_PREFETCH\n @flags:        any of VGPU_OP_BARRIER, VGPU_OP_BLOCKED and VGPU_OP_PERMUTE\n @va:           address of the first access, a multiple of @width\n @stride:       bytes from one access to the next in a row, a multiple of\n                @width; may be negative or 0\n @count:        accesses in a row, at least 1\n @row_stride:   bytes from one row to the next, a multiple of @width\n @rows:         number of rows; 0 is 1\n @width:        bytes one access touches: 4 (one 32 bit element), or a power of\n                two from 8 to 4096 (64 bit elements)\n @warps:        how many warps share the op; 0 is 1\n @lanes:        accesses that one warp makes with one instruction, 1 to 32;\n                0 is 32\n @utlb_first:   µTLB of warp 0, below vgpu_info.utlb_count\n @utlb_count:   warps go round-robin over so many µTLBs from there (wrapping);\n                0 is all\n @reserved:     must be 0, else VGPU_SUBMIT is EINVAL\n @value:        pattern: element k is @value + k * @value_stride (wrapping;\n                of 32 bit elements the low half)\n @value_stride: see @value\n\n Access number i = row * count + column touches @width bytes at\n @va + row * @row_stride + column * @stride; its element e has k =\n i * elements per access + e. Every access must lie below 2^57, or 2^49 on\n GPUs before Hopper, else EINVAL.\n\n Instruction j of warp w makes accesses (j * warps + w) * lanes to\n (j * warps + w) * lanes + lanes - 1, like a grid-stride loop; with\n VGPU_OP_BLOCKED, warp w goes through a contiguous run of 1/warps of the\n accesses. With VGPU_OP_PERMUTE, where access i stands in this order, access\n (a * i + b) mod total is made instead, a fixed one-to-one map without locality.\n\n An instruction's lanes on one page fault once. A warp goes on when all lanes\n of its instruction are done, save for VGPU_OP_PREFETCH. Ops without barrier\n between them run at the same time. Writes of several warps to one place happen\n in no stated order."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_op {
    pub kind: __u32,
    pub flags: __u32,
    pub va: __u64,
    pub stride: __s64,
    pub count: __u64,
    pub row_stride: __s64,
    pub rows: __u64,
    pub width: __u32,
    pub warps: __u32,
    pub lanes: __u32,
    pub utlb_first: __u32,
    pub utlb_count: __u32,
    pub reserved: __u32,
    pub value: __u64,
    pub value_stride: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_op"][::core::mem::size_of::<vgpu_op>() - 88usize];
    ["Alignment of vgpu_op"][::core::mem::align_of::<vgpu_op>() - 8usize];
    ["Offset of field: vgpu_op::kind"][::core::mem::offset_of!(vgpu_op, kind) - 0usize];
    ["Offset of field: vgpu_op::flags"][::core::mem::offset_of!(vgpu_op, flags) - 4usize];
    ["Offset of field: vgpu_op::va"][::core::mem::offset_of!(vgpu_op, va) - 8usize];
    ["Offset of field: vgpu_op::stride"][::core::mem::offset_of!(vgpu_op, stride) - 16usize];
    ["Offset of field: vgpu_op::count"][::core::mem::offset_of!(vgpu_op, count) - 24usize];
    ["Offset of field: vgpu_op::row_stride"]
        [::core::mem::offset_of!(vgpu_op, row_stride) - 32usize];
    ["Offset of field: vgpu_op::rows"][::core::mem::offset_of!(vgpu_op, rows) - 40usize];
    ["Offset of field: vgpu_op::width"][::core::mem::offset_of!(vgpu_op, width) - 48usize];
    ["Offset of field: vgpu_op::warps"][::core::mem::offset_of!(vgpu_op, warps) - 52usize];
    ["Offset of field: vgpu_op::lanes"][::core::mem::offset_of!(vgpu_op, lanes) - 56usize];
    ["Offset of field: vgpu_op::utlb_first"]
        [::core::mem::offset_of!(vgpu_op, utlb_first) - 60usize];
    ["Offset of field: vgpu_op::utlb_count"]
        [::core::mem::offset_of!(vgpu_op, utlb_count) - 64usize];
    ["Offset of field: vgpu_op::reserved"][::core::mem::offset_of!(vgpu_op, reserved) - 68usize];
    ["Offset of field: vgpu_op::value"][::core::mem::offset_of!(vgpu_op, value) - 72usize];
    ["Offset of field: vgpu_op::value_stride"]
        [::core::mem::offset_of!(vgpu_op, value_stride) - 80usize];
};
#[doc = " struct vgpu_submit - queue a kernel (VGPU_SUBMIT)\n @size:        in: sizeof of the caller's structure\n @flags:       in: no flag is known yet: 0, else EINVAL\n @h_channel:   in: where to queue it\n @op_count:    in: number of ops, 1 to VGPU_MAX_OPS\n @ops:         in: address of an array of struct vgpu_op\n @op_size:     in: sizeof(struct vgpu_op) as the caller knows it\n @utlb_faults: in: outstanding faults allowed per µTLB, 1 to 512; 0 is\n               vgpu_info.utlb_faults. Accesses beyond wait for the next replay\n @reserved:    must be 0, else EINVAL\n @fence:       out: names the kernel to VGPU_WAIT; counts up from 1 by channel\n\n Returns without waiting. ENOTCONN: UVM has not bound the channel yet.\n EPIPE: the channel is stopped. ENOSPC: VGPU_MAX_QUEUED,\n VGPU_MAX_QUEUED_OPS or VGPU_MAX_QUEUED_WARPS would be passed."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_submit {
    pub size: __u32,
    pub flags: __u32,
    pub h_channel: __u32,
    pub op_count: __u32,
    pub ops: __u64,
    pub op_size: __u32,
    pub utlb_faults: __u32,
    pub reserved: __u64,
    pub fence: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_submit"][::core::mem::size_of::<vgpu_submit>() - 48usize];
    ["Alignment of vgpu_submit"][::core::mem::align_of::<vgpu_submit>() - 8usize];
    ["Offset of field: vgpu_submit::size"][::core::mem::offset_of!(vgpu_submit, size) - 0usize];
    ["Offset of field: vgpu_submit::flags"][::core::mem::offset_of!(vgpu_submit, flags) - 4usize];
    ["Offset of field: vgpu_submit::h_channel"]
        [::core::mem::offset_of!(vgpu_submit, h_channel) - 8usize];
    ["Offset of field: vgpu_submit::op_count"]
        [::core::mem::offset_of!(vgpu_submit, op_count) - 12usize];
    ["Offset of field: vgpu_submit::ops"][::core::mem::offset_of!(vgpu_submit, ops) - 16usize];
    ["Offset of field: vgpu_submit::op_size"]
        [::core::mem::offset_of!(vgpu_submit, op_size) - 24usize];
    ["Offset of field: vgpu_submit::utlb_faults"]
        [::core::mem::offset_of!(vgpu_submit, utlb_faults) - 28usize];
    ["Offset of field: vgpu_submit::reserved"]
        [::core::mem::offset_of!(vgpu_submit, reserved) - 32usize];
    ["Offset of field: vgpu_submit::fence"][::core::mem::offset_of!(vgpu_submit, fence) - 40usize];
};
#[doc = " struct vgpu_wait - wait for a kernel and take its result (VGPU_WAIT)\n @size:         in: sizeof of the caller's structure\n @flags:        in: no flag is known yet: 0, else EINVAL\n @h_channel:    in: the channel that the kernel was submitted to\n @state:        out: how the kernel ended, VGPU_KERNEL_*\n @fence:        in: what VGPU_SUBMIT gave\n @timeout_ns:   in: how long to wait; 0 only looks, VGPU_TIMEOUT_NEVER has no\n                limit\n @accesses:     out: accesses that the kernel made\n @faults:       out: fault buffer entries written for it\n @duplicates:   out: of these, for a page that already had an entry since the\n                last replay\n @refaults:     out: of @faults, by accesses that had faulted before\n @replays:      out: replays it waited for\n @mismatches:   out: elements for which VGPU_OP_CHECK saw another value\n @bad_va:       out: address of the first such element seen, 0 if none\n @bad_expected: out: what should have stood there\n @bad_seen:     out: what stood there\n @sum:          out: sum of the elements that VGPU_OP_READ saw, modulo 2^64\n @fault_va:     out: VGPU_KERNEL_FAULTED and _ERROR: the address; else 0\n @fault_type:   out: VGPU_FAULT_* of that access; else VGPU_FAULT_NONE\n @fault_kind:   out: VGPU_OP_* of the failed access\n @elapsed_ns:   out: from start to end by the machine's clock. Under emulation\n                this says nothing about a GPU\n\n May be called again for the last VGPU_KEPT_RESULTS kernels of the channel;\n older ones, and fences not given yet, are ENOENT. ETIMEDOUT: not finished yet.\n EINTR: a signal came; the kernel runs on and can be waited for again."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_wait {
    pub size: __u32,
    pub flags: __u32,
    pub h_channel: __u32,
    pub state: __u32,
    pub fence: __u64,
    pub timeout_ns: __u64,
    pub accesses: __u64,
    pub faults: __u64,
    pub duplicates: __u64,
    pub refaults: __u64,
    pub replays: __u64,
    pub mismatches: __u64,
    pub bad_va: __u64,
    pub bad_expected: __u64,
    pub bad_seen: __u64,
    pub sum: __u64,
    pub fault_va: __u64,
    pub fault_type: __u32,
    pub fault_kind: __u32,
    pub elapsed_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_wait"][::core::mem::size_of::<vgpu_wait>() - 136usize];
    ["Alignment of vgpu_wait"][::core::mem::align_of::<vgpu_wait>() - 8usize];
    ["Offset of field: vgpu_wait::size"][::core::mem::offset_of!(vgpu_wait, size) - 0usize];
    ["Offset of field: vgpu_wait::flags"][::core::mem::offset_of!(vgpu_wait, flags) - 4usize];
    ["Offset of field: vgpu_wait::h_channel"]
        [::core::mem::offset_of!(vgpu_wait, h_channel) - 8usize];
    ["Offset of field: vgpu_wait::state"][::core::mem::offset_of!(vgpu_wait, state) - 12usize];
    ["Offset of field: vgpu_wait::fence"][::core::mem::offset_of!(vgpu_wait, fence) - 16usize];
    ["Offset of field: vgpu_wait::timeout_ns"]
        [::core::mem::offset_of!(vgpu_wait, timeout_ns) - 24usize];
    ["Offset of field: vgpu_wait::accesses"]
        [::core::mem::offset_of!(vgpu_wait, accesses) - 32usize];
    ["Offset of field: vgpu_wait::faults"][::core::mem::offset_of!(vgpu_wait, faults) - 40usize];
    ["Offset of field: vgpu_wait::duplicates"]
        [::core::mem::offset_of!(vgpu_wait, duplicates) - 48usize];
    ["Offset of field: vgpu_wait::refaults"]
        [::core::mem::offset_of!(vgpu_wait, refaults) - 56usize];
    ["Offset of field: vgpu_wait::replays"][::core::mem::offset_of!(vgpu_wait, replays) - 64usize];
    ["Offset of field: vgpu_wait::mismatches"]
        [::core::mem::offset_of!(vgpu_wait, mismatches) - 72usize];
    ["Offset of field: vgpu_wait::bad_va"][::core::mem::offset_of!(vgpu_wait, bad_va) - 80usize];
    ["Offset of field: vgpu_wait::bad_expected"]
        [::core::mem::offset_of!(vgpu_wait, bad_expected) - 88usize];
    ["Offset of field: vgpu_wait::bad_seen"]
        [::core::mem::offset_of!(vgpu_wait, bad_seen) - 96usize];
    ["Offset of field: vgpu_wait::sum"][::core::mem::offset_of!(vgpu_wait, sum) - 104usize];
    ["Offset of field: vgpu_wait::fault_va"]
        [::core::mem::offset_of!(vgpu_wait, fault_va) - 112usize];
    ["Offset of field: vgpu_wait::fault_type"]
        [::core::mem::offset_of!(vgpu_wait, fault_type) - 120usize];
    ["Offset of field: vgpu_wait::fault_kind"]
        [::core::mem::offset_of!(vgpu_wait, fault_kind) - 124usize];
    ["Offset of field: vgpu_wait::elapsed_ns"]
        [::core::mem::offset_of!(vgpu_wait, elapsed_ns) - 128usize];
};
#[doc = " struct vgpu_stats - everything one GPU did since vgpu.ko was loaded\n (VGPU_GET_STATS)\n @size:             in: sizeof of the caller's structure; out: of the driver's\n @flags:            in: no flag is known yet: 0, else EINVAL\n @gpu:              in: which GPU, from 0\n @reserved:         must be 0, else EINVAL\n @ce_copies:        copy engine launches that copied\n @ce_memsets:       copy engine launches that filled\n @memset_bytes:     bytes that such launches filled\n @h2d_bytes:        copied from system memory to vidmem, both by physical address\n @d2h_bytes:        copied from vidmem to system memory, by physical address\n @d2d_bytes:        copied within vidmem, by physical address\n @h2h_bytes:        copied within system memory, by physical address\n @virtual_bytes:    copied with a virtual address on either side (page table\n                    entries, NVIDIA's tests)\n @pushes:           pushbuffer segments that channels executed\n @methods:          methods in these segments that were executed\n @unknown_methods:  methods, or operations of known ones, that are not emulated;\n                    the channel was stopped\n @channel_errors:   channels stopped by an error of any kind (the log says which)\n @bad_addresses:    addresses that led nowhere: unmapped for a copy engine, beyond\n                    vidmem, not memory, a peer that is none\n @semaphore_releases: releases and reductions done\n @semaphore_blocks: times a channel had to wait for an acquire\n @membars:          memory barriers that channels executed, flushes included\n @tlb_invalidates_all: invalidates of a whole address space or of all\n @tlb_invalidates_targeted: invalidates of an address range\n @tlb_invalidates_dropped: invalidates ignored on request (drop_invalidates)\n @tlb_hits:         translations of SM accesses taken from the TLB\n @walks:            page table walks, for SM accesses that the TLB did not have\n @walk_misses:      of these, that ended without a translation\n @faults:           fault buffer entries written\n @fault_duplicates: of these, for a page that already had one since the last\n                    replay\n @faults_held:      times an access found the fault buffer full, or its µTLB at\n                    its limit, and was held back\n @replays_start:    replays, without waiting for acknowledgement\n @replays_ack:      replays that asked for an acknowledgement\n @cancels_targeted: 0: not emulated, an error\n @cancels_global:   cancels of all faults\n @cancels_va:       cancels of one address\n @interrupts:       calls of UVM's top half\n @access_notifications: access counter entries written\n @access_clears:    commands that cleared access counters\n @local_accesses:   SM accesses to vidmem\n @remote_accesses:  SM accesses to system memory\n @kernels:          kernels that ended, in whichever way\n @pma_allocs:       2 MiB and smaller pages given to UVM\n @pma_frees:        pages that UVM gave back\n @pma_failures:     allocations of UVM's that were refused\n @pma_bytes:        bytes UVM holds now\n @poisoned_bytes:   bytes filled with the poison pattern\n @stopped_faulting: of @kernels, those that ended as their channel did while a fault of\n                    theirs was not served: warps waited for a replay\n @peer_bytes:       copied from or to another GPU's memory, by addresses of either kind; not in the\n                    counters above\n @peer_accesses:    SM accesses to another GPU's memory\n\n Counters do not stop or start over, so measure by difference. They are read\n under the GPU's lock: one reading is consistent."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_stats {
    pub size: __u32,
    pub flags: __u32,
    pub gpu: __u32,
    pub reserved: __u32,
    pub ce_copies: __u64,
    pub ce_memsets: __u64,
    pub memset_bytes: __u64,
    pub h2d_bytes: __u64,
    pub d2h_bytes: __u64,
    pub d2d_bytes: __u64,
    pub h2h_bytes: __u64,
    pub virtual_bytes: __u64,
    pub pushes: __u64,
    pub methods: __u64,
    pub unknown_methods: __u64,
    pub channel_errors: __u64,
    pub bad_addresses: __u64,
    pub semaphore_releases: __u64,
    pub semaphore_blocks: __u64,
    pub membars: __u64,
    pub tlb_invalidates_all: __u64,
    pub tlb_invalidates_targeted: __u64,
    pub tlb_invalidates_dropped: __u64,
    pub tlb_hits: __u64,
    pub walks: __u64,
    pub walk_misses: __u64,
    pub faults: __u64,
    pub fault_duplicates: __u64,
    pub faults_held: __u64,
    pub replays_start: __u64,
    pub replays_ack: __u64,
    pub cancels_targeted: __u64,
    pub cancels_global: __u64,
    pub cancels_va: __u64,
    pub interrupts: __u64,
    pub access_notifications: __u64,
    pub access_clears: __u64,
    pub local_accesses: __u64,
    pub remote_accesses: __u64,
    pub kernels: __u64,
    pub pma_allocs: __u64,
    pub pma_frees: __u64,
    pub pma_failures: __u64,
    pub pma_bytes: __u64,
    pub poisoned_bytes: __u64,
    pub stopped_faulting: __u64,
    pub peer_bytes: __u64,
    pub peer_accesses: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_stats"][::core::mem::size_of::<vgpu_stats>() - 368usize];
    ["Alignment of vgpu_stats"][::core::mem::align_of::<vgpu_stats>() - 8usize];
    ["Offset of field: vgpu_stats::size"][::core::mem::offset_of!(vgpu_stats, size) - 0usize];
    ["Offset of field: vgpu_stats::flags"][::core::mem::offset_of!(vgpu_stats, flags) - 4usize];
    ["Offset of field: vgpu_stats::gpu"][::core::mem::offset_of!(vgpu_stats, gpu) - 8usize];
    ["Offset of field: vgpu_stats::reserved"]
        [::core::mem::offset_of!(vgpu_stats, reserved) - 12usize];
    ["Offset of field: vgpu_stats::ce_copies"]
        [::core::mem::offset_of!(vgpu_stats, ce_copies) - 16usize];
    ["Offset of field: vgpu_stats::ce_memsets"]
        [::core::mem::offset_of!(vgpu_stats, ce_memsets) - 24usize];
    ["Offset of field: vgpu_stats::memset_bytes"]
        [::core::mem::offset_of!(vgpu_stats, memset_bytes) - 32usize];
    ["Offset of field: vgpu_stats::h2d_bytes"]
        [::core::mem::offset_of!(vgpu_stats, h2d_bytes) - 40usize];
    ["Offset of field: vgpu_stats::d2h_bytes"]
        [::core::mem::offset_of!(vgpu_stats, d2h_bytes) - 48usize];
    ["Offset of field: vgpu_stats::d2d_bytes"]
        [::core::mem::offset_of!(vgpu_stats, d2d_bytes) - 56usize];
    ["Offset of field: vgpu_stats::h2h_bytes"]
        [::core::mem::offset_of!(vgpu_stats, h2h_bytes) - 64usize];
    ["Offset of field: vgpu_stats::virtual_bytes"]
        [::core::mem::offset_of!(vgpu_stats, virtual_bytes) - 72usize];
    ["Offset of field: vgpu_stats::pushes"][::core::mem::offset_of!(vgpu_stats, pushes) - 80usize];
    ["Offset of field: vgpu_stats::methods"]
        [::core::mem::offset_of!(vgpu_stats, methods) - 88usize];
    ["Offset of field: vgpu_stats::unknown_methods"]
        [::core::mem::offset_of!(vgpu_stats, unknown_methods) - 96usize];
    ["Offset of field: vgpu_stats::channel_errors"]
        [::core::mem::offset_of!(vgpu_stats, channel_errors) - 104usize];
    ["Offset of field: vgpu_stats::bad_addresses"]
        [::core::mem::offset_of!(vgpu_stats, bad_addresses) - 112usize];
    ["Offset of field: vgpu_stats::semaphore_releases"]
        [::core::mem::offset_of!(vgpu_stats, semaphore_releases) - 120usize];
    ["Offset of field: vgpu_stats::semaphore_blocks"]
        [::core::mem::offset_of!(vgpu_stats, semaphore_blocks) - 128usize];
    ["Offset of field: vgpu_stats::membars"]
        [::core::mem::offset_of!(vgpu_stats, membars) - 136usize];
    ["Offset of field: vgpu_stats::tlb_invalidates_all"]
        [::core::mem::offset_of!(vgpu_stats, tlb_invalidates_all) - 144usize];
    ["Offset of field: vgpu_stats::tlb_invalidates_targeted"]
        [::core::mem::offset_of!(vgpu_stats, tlb_invalidates_targeted) - 152usize];
    ["Offset of field: vgpu_stats::tlb_invalidates_dropped"]
        [::core::mem::offset_of!(vgpu_stats, tlb_invalidates_dropped) - 160usize];
    ["Offset of field: vgpu_stats::tlb_hits"]
        [::core::mem::offset_of!(vgpu_stats, tlb_hits) - 168usize];
    ["Offset of field: vgpu_stats::walks"][::core::mem::offset_of!(vgpu_stats, walks) - 176usize];
    ["Offset of field: vgpu_stats::walk_misses"]
        [::core::mem::offset_of!(vgpu_stats, walk_misses) - 184usize];
    ["Offset of field: vgpu_stats::faults"][::core::mem::offset_of!(vgpu_stats, faults) - 192usize];
    ["Offset of field: vgpu_stats::fault_duplicates"]
        [::core::mem::offset_of!(vgpu_stats, fault_duplicates) - 200usize];
    ["Offset of field: vgpu_stats::faults_held"]
        [::core::mem::offset_of!(vgpu_stats, faults_held) - 208usize];
    ["Offset of field: vgpu_stats::replays_start"]
        [::core::mem::offset_of!(vgpu_stats, replays_start) - 216usize];
    ["Offset of field: vgpu_stats::replays_ack"]
        [::core::mem::offset_of!(vgpu_stats, replays_ack) - 224usize];
    ["Offset of field: vgpu_stats::cancels_targeted"]
        [::core::mem::offset_of!(vgpu_stats, cancels_targeted) - 232usize];
    ["Offset of field: vgpu_stats::cancels_global"]
        [::core::mem::offset_of!(vgpu_stats, cancels_global) - 240usize];
    ["Offset of field: vgpu_stats::cancels_va"]
        [::core::mem::offset_of!(vgpu_stats, cancels_va) - 248usize];
    ["Offset of field: vgpu_stats::interrupts"]
        [::core::mem::offset_of!(vgpu_stats, interrupts) - 256usize];
    ["Offset of field: vgpu_stats::access_notifications"]
        [::core::mem::offset_of!(vgpu_stats, access_notifications) - 264usize];
    ["Offset of field: vgpu_stats::access_clears"]
        [::core::mem::offset_of!(vgpu_stats, access_clears) - 272usize];
    ["Offset of field: vgpu_stats::local_accesses"]
        [::core::mem::offset_of!(vgpu_stats, local_accesses) - 280usize];
    ["Offset of field: vgpu_stats::remote_accesses"]
        [::core::mem::offset_of!(vgpu_stats, remote_accesses) - 288usize];
    ["Offset of field: vgpu_stats::kernels"]
        [::core::mem::offset_of!(vgpu_stats, kernels) - 296usize];
    ["Offset of field: vgpu_stats::pma_allocs"]
        [::core::mem::offset_of!(vgpu_stats, pma_allocs) - 304usize];
    ["Offset of field: vgpu_stats::pma_frees"]
        [::core::mem::offset_of!(vgpu_stats, pma_frees) - 312usize];
    ["Offset of field: vgpu_stats::pma_failures"]
        [::core::mem::offset_of!(vgpu_stats, pma_failures) - 320usize];
    ["Offset of field: vgpu_stats::pma_bytes"]
        [::core::mem::offset_of!(vgpu_stats, pma_bytes) - 328usize];
    ["Offset of field: vgpu_stats::poisoned_bytes"]
        [::core::mem::offset_of!(vgpu_stats, poisoned_bytes) - 336usize];
    ["Offset of field: vgpu_stats::stopped_faulting"]
        [::core::mem::offset_of!(vgpu_stats, stopped_faulting) - 344usize];
    ["Offset of field: vgpu_stats::peer_bytes"]
        [::core::mem::offset_of!(vgpu_stats, peer_bytes) - 352usize];
    ["Offset of field: vgpu_stats::peer_accesses"]
        [::core::mem::offset_of!(vgpu_stats, peer_accesses) - 360usize];
};
#[doc = " struct vgpu_inject - make something go wrong (VGPU_INJECT)\n @size:   in: sizeof of the caller's structure\n @flags:  in: 0 or, for the evictions, VGPU_INJECT_KEEP\n @gpu:    in: which GPU, from 0\n @kind:   in: what goes wrong, VGPU_INJECT_*\n @count:  in: see the kinds; for EVICT_PAGES 1 to VGPU_MAX_EVICT_PAGES, for SUSPEND\n          1 to VGPU_MAX_SUSPEND_MS; for COPY 1, or 0 only to look\n @skip:   in: PMA_FAILURE only, else 0\n @begin:  in: EVICT_PAGES and EVICT_RANGE: first byte of vidmem, a multiple of\n          2 MiB; COPY with @count 1: an address, a multiple of 4; else 0\n @end:    in: the byte after the last one; 0 is the end of vidmem\n @handle: in: CHANNEL_ERROR: an h_channel of any client, or VGPU_UVM_CHANNEL | n\n          for UVM's own channel n; COPY: an h_channel of any client; else 0\n @status: out: evictions: UVM's NV_STATUS, 0 when all was given; SUSPEND: what it\n          said when it was suspended, or, if that was 0, resumed; COPY: faults of the\n          channel's copies so far\n @bytes:  out: evictions: bytes that UVM gave up; COPY: copies that the channel has made\n\n Needs CAP_SYS_ADMIN (EPERM), as it is felt by every user of the GPU.\n A full fault buffer or dropped invalidates end when their count is used up.\n EAGAIN: an eviction, while UVM has no GPU registered; SUSPEND, while it is not\n loaded. An eviction that UVM refuses returns 0 with @status set.\n COPY begins an access and returns. The access is a write to a 32 bit word, and a fault of it is not\n replayed: the channel's copies stand still until UVM clears its faulted bit. EINVAL: on GPUs other than\n Turing's, which clear it in another way. EBUSY: the channel's last copy is not over. ENOTCONN,\n EPIPE: as of VGPU_SUBMIT.\n SUSPEND does what RM does when the system sleeps: users' channels are preempted,\n UVM is suspended, and both go on after @count ms. Returns then. Memory keeps its\n contents and the GPU its state."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_inject {
    pub size: __u32,
    pub flags: __u32,
    pub gpu: __u32,
    pub kind: __u32,
    pub count: __u64,
    pub skip: __u64,
    pub begin: __u64,
    pub end: __u64,
    pub handle: __u32,
    pub status: __u32,
    pub bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_inject"][::core::mem::size_of::<vgpu_inject>() - 64usize];
    ["Alignment of vgpu_inject"][::core::mem::align_of::<vgpu_inject>() - 8usize];
    ["Offset of field: vgpu_inject::size"][::core::mem::offset_of!(vgpu_inject, size) - 0usize];
    ["Offset of field: vgpu_inject::flags"][::core::mem::offset_of!(vgpu_inject, flags) - 4usize];
    ["Offset of field: vgpu_inject::gpu"][::core::mem::offset_of!(vgpu_inject, gpu) - 8usize];
    ["Offset of field: vgpu_inject::kind"][::core::mem::offset_of!(vgpu_inject, kind) - 12usize];
    ["Offset of field: vgpu_inject::count"][::core::mem::offset_of!(vgpu_inject, count) - 16usize];
    ["Offset of field: vgpu_inject::skip"][::core::mem::offset_of!(vgpu_inject, skip) - 24usize];
    ["Offset of field: vgpu_inject::begin"][::core::mem::offset_of!(vgpu_inject, begin) - 32usize];
    ["Offset of field: vgpu_inject::end"][::core::mem::offset_of!(vgpu_inject, end) - 40usize];
    ["Offset of field: vgpu_inject::handle"]
        [::core::mem::offset_of!(vgpu_inject, handle) - 48usize];
    ["Offset of field: vgpu_inject::status"]
        [::core::mem::offset_of!(vgpu_inject, status) - 52usize];
    ["Offset of field: vgpu_inject::bytes"][::core::mem::offset_of!(vgpu_inject, bytes) - 56usize];
};
#[doc = " struct vgpu_translate - walk the page tables for one address (VGPU_TRANSLATE)\n @size:        in: sizeof of the caller's structure\n @flags:       in: no flag is known yet: 0, else EINVAL\n @h_vaspace:   in: the address space\n @aperture:    out: where the page is, VGPU_APERTURE_*\n @va:          in: any address below 2^57, or 2^49 on GPUs before Hopper, else EINVAL\n @page_bytes:  out: size of the page: 4 KiB, 64 KiB, 2 MiB or, from Hopper on, 512 MiB; 0 if\n               not mapped\n @permissions: out: what an access may do, bits VGPU_MAY_*\n @fault_type:  out: VGPU_FAULT_* of a read\n\n Looks at the page tables, not at the TLB, and makes no fault."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct vgpu_translate {
    pub size: __u32,
    pub flags: __u32,
    pub h_vaspace: __u32,
    pub aperture: __u32,
    pub va: __u64,
    pub page_bytes: __u64,
    pub permissions: __u32,
    pub fault_type: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of vgpu_translate"][::core::mem::size_of::<vgpu_translate>() - 40usize];
    ["Alignment of vgpu_translate"][::core::mem::align_of::<vgpu_translate>() - 8usize];
    ["Offset of field: vgpu_translate::size"]
        [::core::mem::offset_of!(vgpu_translate, size) - 0usize];
    ["Offset of field: vgpu_translate::flags"]
        [::core::mem::offset_of!(vgpu_translate, flags) - 4usize];
    ["Offset of field: vgpu_translate::h_vaspace"]
        [::core::mem::offset_of!(vgpu_translate, h_vaspace) - 8usize];
    ["Offset of field: vgpu_translate::aperture"]
        [::core::mem::offset_of!(vgpu_translate, aperture) - 12usize];
    ["Offset of field: vgpu_translate::va"][::core::mem::offset_of!(vgpu_translate, va) - 16usize];
    ["Offset of field: vgpu_translate::page_bytes"]
        [::core::mem::offset_of!(vgpu_translate, page_bytes) - 24usize];
    ["Offset of field: vgpu_translate::permissions"]
        [::core::mem::offset_of!(vgpu_translate, permissions) - 32usize];
    ["Offset of field: vgpu_translate::fault_type"]
        [::core::mem::offset_of!(vgpu_translate, fault_type) - 36usize];
};
