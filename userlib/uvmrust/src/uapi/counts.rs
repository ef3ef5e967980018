// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The statistics of our driver, and the calls of NVIDIA's without which it tells none: a
//! descriptor is initialised first, and a GPU registered with it.

/// The ioctl `UVM_RUST_GET_STATS`, which takes [`Stats`].
pub const GET_STATS: u32 = 0x1001;
/// The ioctl `UVM_RUST_FLASH_GET_STATS`, which takes [`FlashStats`].
pub const FLASH_GET_STATS: u32 = 0x1012;
/// NVIDIA's ioctl `UVM_REGISTER_GPU`, which takes a [`RegisterGpu`] and starts the GPU.
pub const UVM_REGISTER_GPU: u32 = 37;
/// NVIDIA's ioctl `UVM_UNREGISTER_GPU`, which takes an [`UnregisterGpu`].
pub const UVM_UNREGISTER_GPU: u32 = 38;
/// NVIDIA's ioctl `UVM_INITIALIZE`, the first one of each descriptor; it takes an [`Initialize`].
pub const UVM_INITIALIZE: u32 = 0x3000_0001;

/// `UVM_RUST_FEATURE_STATS`: the driver has [`GET_STATS`].
pub const FEATURE_STATS: u64 = 1 << 0;
/// `UVM_RUST_FEATURE_FLASH`: the driver has the SSD tier.
pub const FEATURE_FLASH: u64 = 1 << 8;
/// `UVM_RUST_STATS_WHOLE_GPU`: count all processes, not only this descriptor's.
pub const STATS_WHOLE_GPU: u32 = 1 << 0;

/// `UVM_RUST_CAUSE_MAX`, of which the last three are reserved.
pub const CAUSES: usize = 8;
/// `UVM_RUST_QUEUE_MAX`, of which the last three are reserved.
pub const QUEUES: usize = 8;

/// The places of [`Stats::queued`] and [`Stats::evictions`]: `UVM_RUST_QUEUE_*`.
pub mod queue {
    /// Held by UVM, used by nothing.
    pub const FREE: usize = 0;
    /// A va_block has the chunk, with nothing resident in it.
    pub const UNUSED: usize = 1;
    /// A block's, with nothing resident but what is discarded.
    pub const DISCARDED: usize = 2;
    /// A va_block has the chunk, with resident pages in it.
    pub const USED: usize = 3;
    /// Not off a queue: asked for by address.
    pub const ADDRESS: usize = 4;
}

/// The places of the arrays of [`Traffic`]: `UVM_RUST_CAUSE_*`.
pub mod cause {
    /// A CPU or GPU access that had no page.
    pub const FAULT: usize = 0;
    /// Brought along by the tree prefetcher.
    pub const PREFETCH: usize = 1;
    /// Pushed out to make room on a GPU.
    pub const EVICTION: usize = 2;
    /// UvmMigrate, policies, range groups, tools.
    pub const API: usize = 3;
    /// A GPU's access counter said that the page is used much.
    pub const ACCESS_COUNTER: usize = 4;
}

/// The layout of `struct uvm_rust_traffic`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many bytes were copied.
    pub bytes: u64,
    /// The same traffic in pages of 4 KiB.
    pub pages: u64,
}

/// `struct uvm_rust_stats`, whose description in the kernel's header says how each is counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of this structure.
    pub size: u32,
    /// 0, or [`STATS_WHOLE_GPU`], which not everybody may set.
    pub flags: u32,
    /// UUID of a GPU that is registered with the descriptor.
    pub gpu_uuid: [u8; 16],
    /// Out: copied to the GPU from the host, by [`cause`].
    pub host_to_gpu: [Traffic; CAUSES],
    /// Out: copied to the host from the GPU, by [`cause`].
    pub gpu_to_host: [Traffic; CAUSES],
    /// Out: copied to the GPU from another one.
    pub gpu_to_gpu: [Traffic; CAUSES],
    /// Out: replayable faults that led to the address space, duplicates included.
    pub faults: u64,
    /// Out: those for which nothing was left to do.
    pub duplicates: u64,
    /// Out: batches in which these faults were taken.
    pub batches: u64,
    /// Out: replays that were sent to the GPU.
    pub replays: u64,
    /// Out: chunks of 2 MiB that were reclaimed, by [`queue`].
    pub evictions: [u64; QUEUES],
    /// Out: chunks of 2 MiB that are on each [`queue`] now.
    pub queued: [u64; QUEUES],
}

/// `struct uvm_rust_flash_stats`, described field by field in the kernel's header, too.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // One by one in the kernel's header.
pub struct FlashStats {
    pub size: u32,
    pub flags: u32,
    pub attached: u32,
    pub slots: u32,
    pub free_slots: u32,
    pub extents: u32,
    pub pages: u64,
    pub pages_mine: u64,
    pub host_pages: u64,
    pub host_peak: u64,
    pub written: u64,
    pub spilled: u64,
    pub fetched: u64,
    pub relocated: u64,
    pub dropped: u64,
    pub write_errors: u64,
    pub read_errors: u64,
    pub lost_pages: u64,
    pub refused: u64,
    pub unwritten: u64,
    pub parked: u64,
    pub throttled: u64,
    pub rested_us: u64,
    pub fault_waits_most: u64,
    pub trimmed: u64,
}

/// What the ioctl [`UVM_INITIALIZE`] takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Initialize {
    /// Flags of the descriptor: none are used here, so 0.
    pub flags: u64,
    /// Out: [`super::NV_OK`], or the reason why it failed.
    pub status: u32,
}

/// What the ioctl [`UVM_REGISTER_GPU`] takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterGpu {
    /// UUID of the GPU that is registered.
    pub gpu_uuid: [u8; 16],
    /// Out: whether its memory is a NUMA node.
    pub numa_enabled: u8,
    /// Out: the number of that node, if there is one.
    pub numa_node: i32,
    /// -1. The next two are 0 as well, but for a part of a GPU (MIG).
    pub rm_ctrl_fd: i32,
    /// RM's handle of the client; 0 for a whole GPU.
    pub h_client: u32,
    /// RM's name of the part.
    pub h_smc_part_ref: u32,
    /// Out: [`super::NV_OK`], or the reason why it failed.
    pub status: u32,
}

/// What the ioctl [`UVM_UNREGISTER_GPU`] takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct UnregisterGpu {
    /// UUID of the GPU that is given back.
    pub gpu_uuid: [u8; 16],
    /// Out: [`super::NV_OK`], or the reason why it failed.
    pub status: u32,
}
