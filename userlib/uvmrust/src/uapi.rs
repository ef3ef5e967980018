// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The ioctls of /dev/nvidia-uvm that are used here: ours as in
//! `include/uapi/uvm_rust_ioctl.h` (checked against it by `tests/header.rs`), and
//! NVIDIA's by number and layout, the same from driver 535 to 595.

mod counts;
pub use counts::*;

/// The ioctl `UVM_RUST_GET_VERSION`, which takes a [`Version`] and needs no `UVM_INITIALIZE`.
pub const GET_VERSION: u32 = 0x1000;
/// The ioctl `UVM_RUST_DISCARD_BATCH`, which takes a [`DiscardBatch`].
pub const DISCARD_BATCH: u32 = 0x1002;
/// The ioctl `UVM_RUST_ANNOUNCE`, which takes an [`Announce`].
pub const ANNOUNCE: u32 = 0x1003;
/// The ioctl `UVM_RUST_FLASH_MOVE`, which takes a [`FlashMove`].
pub const FLASH_MOVE: u32 = 0x1013;
/// The ioctl `UVM_RUST_FLASH_SUBMIT`, which takes a [`FlashSubmit`].
pub const FLASH_SUBMIT: u32 = 0x1014;
/// The ioctl `UVM_RUST_FLASH_REAP`, which takes a [`FlashReap`].
pub const FLASH_REAP: u32 = 0x1015;
/// NVIDIA's `UVM_MIGRATE`, the prefetch.
pub const UVM_MIGRATE: u32 = 51;
/// NVIDIA's `UVM_DISCARD`, in drivers from 580.65.06 on; and in ours.
pub const UVM_DISCARD: u32 = 80;

/// `UVM_RUST_FEATURE_DISCARD`: the driver has [`DISCARD_BATCH`] and [`UVM_DISCARD`].
pub const FEATURE_DISCARD: u64 = 1 << 1;
/// `UVM_RUST_FEATURE_EXEC_ID`: the driver has [`ANNOUNCE`].
pub const FEATURE_EXEC_ID: u64 = 1 << 2;
/// `UVM_RUST_FEATURE_FLASH_QUEUE`: the driver has [`FLASH_SUBMIT`] and [`FLASH_REAP`].
pub const FEATURE_FLASH_QUEUE: u64 = 1 << 9;
/// `UVM_RUST_FLASH_TO_HOST`: the range goes to host memory.
pub const FLASH_TO_HOST: u32 = 1 << 0;
/// `UVM_RUST_FLASH_TO_GPU`: the range goes to a GPU.
pub const FLASH_TO_GPU: u32 = 1 << 1;
/// `UVM_RUST_FLASH_FROM_GPUS`: what is on GPUs goes to host memory first.
pub const FLASH_FROM_GPUS: u32 = 1 << 2;
/// `UVM_RUST_DISCARD_EAGER`; of [`UVM_DISCARD`] the flag "unmap", of equal value.
pub const DISCARD_EAGER: u32 = 1;
/// `UVM_RUST_DISCARD_MAX_RANGES`: the most ranges that one call takes.
pub const DISCARD_MAX_RANGES: usize = 1 << 20;

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

/// The layout of `struct uvm_rust_version`: what the driver offers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Version {
    /// Bytes of this structure.
    pub size: u32,
    /// Version of the driver's interface, `UVM_RUST_VERSION` there.
    pub version: u32,
    /// Bits `UVM_RUST_FEATURE_*`, set if the feature is built in and not turned off.
    pub features: u64,
}

/// The layout of `struct uvm_rust_discard_batch`: ranges, and what became of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardBatch {
    /// Bytes of this structure.
    pub size: u32,
    /// 0, which is lazy, or [`DISCARD_EAGER`].
    pub flags: u32,
    /// Address of the array of [`crate::Range`].
    pub ranges: u64,
    /// How many elements the array has.
    pub range_count: u32,
    /// Bytes of one element.
    pub range_size: u32,
    /// Out: index of the range at which the call stopped; `range_count` if all are done.
    pub first_failed: u32,
    /// Must be 0, or the call fails with `EINVAL`.
    pub reserved: u32,
    /// Out: blocks of 2 MiB of which all that the ranges cover is discarded.
    pub blocks_discarded: u64,
    /// Out: blocks that were left as they were.
    pub blocks_skipped: u64,
    /// Out: blocks of which some of what is covered was left alone.
    pub blocks_partial: u64,
}

/// The layout of `struct uvm_rust_announce`: which kernel starts next.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Announce {
    /// Bytes of this structure.
    pub size: u32,
    /// Must be 0, or the call fails with `EINVAL`.
    pub flags: u32,
    /// UUID of the GPU on which the kernel runs.
    pub gpu_uuid: [u8; 16],
    /// The execution ID, not 0.
    pub exec_id: u64,
}

/// The layout of `struct uvm_rust_flash_move_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FlashMove {
    /// Bytes of this structure.
    pub size: u32,
    /// 0: from the host to the SSD.
    pub flags: u32,
    /// First byte, a multiple of the page size.
    pub base: u64,
    /// Bytes, a multiple of the page size.
    pub length: u64,
    /// UUID of the GPU that is moved to; not looked at without the flag for that.
    pub gpu_uuid: [u8; 16],
}

/// The layout of `struct uvm_rust_flash_request`: a range that is to be moved.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FlashRequest {
    /// First byte, a multiple of the page size.
    pub base: u64,
    /// Bytes, a multiple of the page size, not 0.
    pub length: u64,
    /// The number that comes back with the completion.
    pub user_data: u64,
    /// Where the range goes: `FLASH_*`; 0: from the host to the SSD.
    pub flags: u32,
    /// Must be 0, or the call fails with `EINVAL`.
    pub reserved: u32,
    /// UUID of the GPU that is moved to.
    pub gpu_uuid: [u8; 16],
}

/// The layout of `struct uvm_rust_flash_submit`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FlashSubmit {
    /// Bytes of this structure.
    pub size: u32,
    /// 0, as no event is signalled.
    pub flags: u32,
    /// Address of the array of [`FlashRequest`].
    pub requests: u64,
    /// How many elements the array has.
    pub request_count: u32,
    /// Bytes of one element.
    pub request_size: u32,
    /// 0 without an event.
    pub event_fd: i32,
    /// Out: how many were taken, from the first on.
    pub taken: u32,
    /// Whose completions they have.
    pub queue: u64,
}

/// The layout of `struct uvm_rust_flash_completion`: what became of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FlashCompletion {
    /// The number that the request had.
    pub user_data: u64,
    /// How many requests were done before it, plus 1.
    pub order: u64,
    /// 0, or the errno below 0.
    pub status: i32,
    /// Out: 0, in this version.
    pub reserved: u32,
}

/// The layout of `struct uvm_rust_flash_reap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FlashReap {
    /// Bytes of this structure.
    pub size: u32,
    /// Must be 0, or the call fails with `EINVAL`.
    pub flags: u32,
    /// Address of the array of [`FlashCompletion`].
    pub completions: u64,
    /// For how many it has room.
    pub completion_count: u32,
    /// Bytes of one element.
    pub completion_size: u32,
    /// The call waits until so many are there, or no more come.
    pub wait_for: u32,
    /// Or so many milliseconds.
    pub wait_ms: u32,
    /// Out: how many there are.
    pub reaped: u32,
    /// Out: how many requests are not done.
    pub pending: u32,
    /// Whose completions are asked for.
    pub queue: u64,
}

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
