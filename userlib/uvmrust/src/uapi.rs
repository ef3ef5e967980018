// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The ioctls of /dev/nvidia-uvm that are used here: ours, as the crate `uvm-uapi` has them of
//! `include/uapi/uvm_rust_ioctl.h`, under shorter names; and NVIDIA's by number and layout, the same from
//! driver 535 to 595.

mod counts;
pub use counts::*;

pub use uvm_uapi::{
    uvm_rust_announce as Announce, uvm_rust_discard_batch as DiscardBatch,
    uvm_rust_flash_completion as FlashCompletion, uvm_rust_flash_move_range as FlashMove,
    uvm_rust_flash_reap as FlashReap, uvm_rust_flash_request as FlashRequest,
    uvm_rust_flash_submit as FlashSubmit, uvm_rust_version as Version,
    UVM_RUST_ANNOUNCE as ANNOUNCE, UVM_RUST_DISCARD_BATCH as DISCARD_BATCH,
    UVM_RUST_DISCARD_EAGER as DISCARD_EAGER, UVM_RUST_FLASH_AFTER as FLASH_AFTER,
    UVM_RUST_FLASH_FROM_GPUS as FLASH_FROM_GPUS, UVM_RUST_FLASH_MOVE as FLASH_MOVE,
    UVM_RUST_FLASH_REAP as FLASH_REAP, UVM_RUST_FLASH_SUBMIT as FLASH_SUBMIT,
    UVM_RUST_FLASH_TO_GPU as FLASH_TO_GPU, UVM_RUST_FLASH_TO_HOST as FLASH_TO_HOST,
    UVM_RUST_GET_VERSION as GET_VERSION,
};

/// NVIDIA's `UVM_MIGRATE`, the prefetch.
pub const UVM_MIGRATE: u32 = 51;
/// NVIDIA's `UVM_DISCARD`, in drivers from 580.65.06 on; and in ours.
pub const UVM_DISCARD: u32 = 80;

/// `UVM_RUST_FEATURE_DISCARD`: the driver has [`DISCARD_BATCH`] and [`UVM_DISCARD`].
pub const FEATURE_DISCARD: u64 = uvm_uapi::UVM_RUST_FEATURE_DISCARD as u64;
/// `UVM_RUST_FEATURE_EXEC_ID`: the driver has [`ANNOUNCE`].
pub const FEATURE_EXEC_ID: u64 = uvm_uapi::UVM_RUST_FEATURE_EXEC_ID as u64;
/// `UVM_RUST_FEATURE_NATIVE_DISCARD`: both of them end in NVIDIA's own discard.
pub const FEATURE_NATIVE_DISCARD: u64 = uvm_uapi::UVM_RUST_FEATURE_NATIVE_DISCARD as u64;
/// `UVM_RUST_FEATURE_FLASH_QUEUE`: the driver has [`FLASH_SUBMIT`] and [`FLASH_REAP`].
pub const FEATURE_FLASH_QUEUE: u64 = uvm_uapi::UVM_RUST_FEATURE_FLASH_QUEUE as u64;
/// `UVM_RUST_FEATURE_FLASH_AFTER`: its requests may have [`FLASH_AFTER`].
pub const FEATURE_FLASH_AFTER: u64 = uvm_uapi::UVM_RUST_FEATURE_FLASH_AFTER as u64;
/// `UVM_RUST_DISCARD_MAX_RANGES`: the most ranges that one call takes.
pub const DISCARD_MAX_RANGES: usize = uvm_uapi::UVM_RUST_DISCARD_MAX_RANGES as usize;

/// NVIDIA's status values, by their names there.
#[allow(missing_docs)]
mod status {
    pub const NV_OK: u32 = 0;
    pub const NV_ERR_BUSY_RETRY: u32 = 0x03;
    pub const NV_ERR_ILLEGAL_ACTION: u32 = 0x16;
    pub const NV_ERR_INSUFFICIENT_PERMISSIONS: u32 = 0x1b;
    pub const NV_ERR_INVALID_ADDRESS: u32 = 0x1e;
    pub const NV_ERR_INVALID_ARGUMENT: u32 = 0x1f;
    pub const NV_ERR_INVALID_DEVICE: u32 = 0x26;
    pub const NV_ERR_NO_MEMORY: u32 = 0x51;
    pub const NV_ERR_NOT_SUPPORTED: u32 = 0x56;
    pub const NV_ERR_OUT_OF_RANGE: u32 = 0x5b;
    pub const NV_ERR_SIGNAL_PENDING: u32 = 0x64;
    pub const NV_WARN_MORE_PROCESSING_REQUIRED: u32 = 0x10005;
    pub const NV_WARN_NOTHING_TO_DO: u32 = 0x10006;
}
pub use status::*;

/// The UUID by which UVM knows the host's processors.
pub const CPU_UUID: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// What the ioctl [`UVM_DISCARD`] takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeDiscard {
    /// First byte, a multiple of the page size.
    pub base: u64,
    /// Bytes, a multiple of the page size.
    pub length: u64,
    /// 0, which is lazy, or [`DISCARD_EAGER`].
    pub flags: u64,
    /// Out: [`NV_OK`], or the reason why nothing was discarded.
    pub status: u32,
}

/// What the ioctl [`UVM_MIGRATE`] takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Migrate {
    /// First byte, a multiple of the page size.
    pub base: u64,
    /// Bytes, a multiple of the page size.
    pub length: u64,
    /// UUID of the GPU to which the range goes, or [`CPU_UUID`].
    pub destination: [u8; 16],
    /// 0: return when it is done.
    pub flags: u32,
    /// Address of a semaphore to release at the end; 0 for none.
    pub semaphore: u64,
    /// What that semaphore is released with; 0 without one.
    pub semaphore_payload: u32,
    /// The NUMA node of a move to the host; -1 for any.
    pub numa_node: i32,
    /// Out: what user space must do itself, for memory that is not managed.
    pub user_start: u64,
    /// Out: how many bytes of it.
    pub user_length: u64,
    /// Out: [`NV_OK`], or the reason why the move failed.
    pub status: u32,
}
