// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `include/uapi/vgpu.h`, which says what the fields mean, under shorter names.

use std::ops::Deref;

use uvm_uapi as uapi;

pub use uapi::{
    vgpu_channel as ChannelCreate, vgpu_destroy as Destroy, vgpu_inject as Inject, vgpu_op as Op,
    vgpu_stats as Stats, vgpu_submit as Submit, vgpu_translate as Translate,
    vgpu_vaspace as VaspaceCreate, vgpu_wait as Wait, VGPU_APERTURE_NONE as APERTURE_NONE,
    VGPU_APERTURE_PEER as APERTURE_PEER, VGPU_APERTURE_SYSMEM as APERTURE_SYSMEM,
    VGPU_APERTURE_VIDMEM as APERTURE_VIDMEM, VGPU_FAULT_INVALID_PDE as FAULT_INVALID_PDE,
    VGPU_FAULT_INVALID_PTE as FAULT_INVALID_PTE, VGPU_FAULT_NONE as FAULT_NONE,
    VGPU_FAULT_WRITE_TO_READ_ONLY as FAULT_WRITE_TO_READ_ONLY,
    VGPU_INJECT_CHANNEL_ERROR as INJECT_CHANNEL_ERROR, VGPU_INJECT_COPY as INJECT_COPY,
    VGPU_INJECT_DROP_INVALIDATES as INJECT_DROP_INVALIDATES,
    VGPU_INJECT_EVICT_PAGES as INJECT_EVICT_PAGES, VGPU_INJECT_EVICT_RANGE as INJECT_EVICT_RANGE,
    VGPU_INJECT_FAULT_BUFFER_FULL as INJECT_FAULT_BUFFER_FULL, VGPU_INJECT_KEEP as INJECT_KEEP,
    VGPU_INJECT_PMA_FAILURE as INJECT_PMA_FAILURE, VGPU_INJECT_SUSPEND as INJECT_SUSPEND,
    VGPU_KERNEL_DONE as KERNEL_DONE, VGPU_KERNEL_ERROR as KERNEL_ERROR,
    VGPU_KERNEL_FAULTED as KERNEL_FAULTED, VGPU_KERNEL_STOPPED as KERNEL_STOPPED,
    VGPU_MAY_ATOMIC as MAY_ATOMIC, VGPU_OP_ATOMIC_ADD as OP_ATOMIC_ADD,
    VGPU_OP_BARRIER as OP_BARRIER, VGPU_OP_BLOCKED as OP_BLOCKED, VGPU_OP_CHECK as OP_CHECK,
    VGPU_OP_PERMUTE as OP_PERMUTE, VGPU_OP_PREFETCH as OP_PREFETCH, VGPU_OP_READ as OP_READ,
    VGPU_OP_WRITE as OP_WRITE, VGPU_PERSONALITY_AMPERE as PERSONALITY_AMPERE,
    VGPU_PERSONALITY_BLACKWELL as PERSONALITY_BLACKWELL,
    VGPU_PERSONALITY_HOPPER as PERSONALITY_HOPPER, VGPU_PERSONALITY_TURING as PERSONALITY_TURING,
    VGPU_PERSONALITY_VOLTA as PERSONALITY_VOLTA,
};

/// The software TLB is on.
pub const FEATURE_TLB: u64 = uapi::VGPU_FEATURE_TLB as u64;
/// Freed memory is filled with [`POISON`].
pub const FEATURE_POISON: u64 = uapi::VGPU_FEATURE_POISON as u64;
/// The GPU reports itself to UVM as simulated.
pub const FEATURE_SIMULATED: u64 = uapi::VGPU_FEATURE_SIMULATED as u64;
/// GPUs reach each other's memory over PCIe.
pub const FEATURE_PCIE: u64 = uapi::VGPU_FEATURE_PCIE as u64;
/// GPUs reach each other's memory over NVLink.
pub const FEATURE_NVLINK: u64 = uapi::VGPU_FEATURE_NVLINK as u64;
/// A count that does not end.
pub const INJECT_FOREVER: u64 = uapi::VGPU_INJECT_FOREVER as u64;
/// What freed vidmem is filled with, by 64-bit words.
pub const POISON: u64 = uapi::VGPU_POISON;
/// Waits until the kernel is over.
pub const TIMEOUT_NEVER: u64 = uapi::VGPU_TIMEOUT_NEVER as u64;
/// How many unfinished kernels a channel has at most.
pub const MAX_QUEUED: u64 = uapi::VGPU_MAX_QUEUED as u64;
/// How many results a channel keeps.
pub const KEPT_RESULTS: u64 = uapi::VGPU_KEPT_RESULTS as u64;

/// What one GPU is and has.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, bytemuck::AnyBitPattern)]
pub struct Info(pub(crate) uapi::vgpu_info);

impl Deref for Info {
    type Target = uapi::vgpu_info;

    fn deref(&self) -> &uapi::vgpu_info {
        &self.0
    }
}

/// The structure of one of /dev/vgpu's calls.
pub trait Call: bytemuck::AnyBitPattern {
    /// The number of the ioctl, as the header has it.
    const NUMBER: u32;
    /// The call's name, for messages.
    const NAME: &'static str;
    /// Says how long the structure is.
    fn set_size(&mut self);
}

macro_rules! calls {
    ($($name:ident $(. $inner:tt)? = $call:ident,)*) => {
        $(impl Call for $name {
            const NUMBER: u32 = uapi::$call;
            const NAME: &'static str = stringify!($call);
            fn set_size(&mut self) {
                self$(.$inner)?.size = size_of::<Self>() as u32;
            }
        })*
    };
}

calls! {
    Info.0 = VGPU_GET_INFO,
    VaspaceCreate = VGPU_VASPACE_CREATE,
    ChannelCreate = VGPU_CHANNEL_CREATE,
    Destroy = VGPU_DESTROY,
    Submit = VGPU_SUBMIT,
    Wait = VGPU_WAIT,
    Stats = VGPU_GET_STATS,
    Inject = VGPU_INJECT,
    Translate = VGPU_TRANSLATE,
}
