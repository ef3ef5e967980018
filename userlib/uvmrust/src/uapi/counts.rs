// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The statistics of our driver, and the calls of NVIDIA's without which it tells none: a
//! descriptor is initialised first, and a GPU registered with it.

pub use uvm_uapi::{
    uvm_rust_flash_stats as FlashStats, uvm_rust_stats as Stats, uvm_rust_traffic as Traffic,
    UVM_RUST_FLASH_GET_STATS as FLASH_GET_STATS, UVM_RUST_GET_STATS as GET_STATS,
    UVM_RUST_STATS_WHOLE_GPU as STATS_WHOLE_GPU,
};

/// NVIDIA's ioctl `UVM_REGISTER_GPU`, which takes a [`RegisterGpu`] and starts the GPU.
pub const UVM_REGISTER_GPU: u32 = 37;
/// NVIDIA's ioctl `UVM_UNREGISTER_GPU`, which takes an [`UnregisterGpu`].
pub const UVM_UNREGISTER_GPU: u32 = 38;
/// NVIDIA's ioctl `UVM_INITIALIZE`, the first one of each descriptor; it takes an [`Initialize`].
pub const UVM_INITIALIZE: u32 = 0x3000_0001;

/// `UVM_RUST_FEATURE_STATS`: the driver has [`GET_STATS`].
pub const FEATURE_STATS: u64 = uvm_uapi::UVM_RUST_FEATURE_STATS as u64;
/// `UVM_RUST_FEATURE_FLASH`: the driver has the SSD tier.
pub const FEATURE_FLASH: u64 = uvm_uapi::UVM_RUST_FEATURE_FLASH as u64;

/// `UVM_RUST_CAUSE_MAX`, of which the last three are reserved.
pub const CAUSES: usize = uvm_uapi::UVM_RUST_CAUSE_MAX as usize;
/// `UVM_RUST_QUEUE_MAX`, of which the last three are reserved.
pub const QUEUES: usize = uvm_uapi::UVM_RUST_QUEUE_MAX as usize;

/// The places of [`Stats::queued`] and [`Stats::evictions`]: `UVM_RUST_QUEUE_*`.
pub mod queue {
    /// Held by UVM, used by nothing.
    pub const FREE: usize = uvm_uapi::UVM_RUST_QUEUE_FREE as usize;
    /// A va_block has the chunk, with nothing resident in it.
    pub const UNUSED: usize = uvm_uapi::UVM_RUST_QUEUE_UNUSED as usize;
    /// A block's, with nothing resident but what is discarded.
    pub const DISCARDED: usize = uvm_uapi::UVM_RUST_QUEUE_DISCARDED as usize;
    /// A va_block has the chunk, with resident pages in it.
    pub const USED: usize = uvm_uapi::UVM_RUST_QUEUE_USED as usize;
    /// Not off a queue: asked for by address.
    pub const ADDRESS: usize = uvm_uapi::UVM_RUST_QUEUE_ADDRESS as usize;
}

/// The places of the arrays of [`Traffic`]: `UVM_RUST_CAUSE_*`.
pub mod cause {
    /// A CPU or GPU access that had no page.
    pub const FAULT: usize = uvm_uapi::UVM_RUST_CAUSE_FAULT as usize;
    /// Brought along by the tree prefetcher.
    pub const PREFETCH: usize = uvm_uapi::UVM_RUST_CAUSE_PREFETCH as usize;
    /// Pushed out to make room on a GPU.
    pub const EVICTION: usize = uvm_uapi::UVM_RUST_CAUSE_EVICTION as usize;
    /// UvmMigrate, policies, range groups, tools.
    pub const API: usize = uvm_uapi::UVM_RUST_CAUSE_API as usize;
    /// A GPU's access counter said that the page is used much.
    pub const ACCESS_COUNTER: usize = uvm_uapi::UVM_RUST_CAUSE_ACCESS_COUNTER as usize;
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
