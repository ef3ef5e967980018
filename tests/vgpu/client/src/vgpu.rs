// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `include/uapi/vgpu.h`, which says what the fields mean.
#![allow(missing_docs)]

use crate::layout::{c_struct, Layout};

const fn number(nr: u32) -> u32 {
    // _IO('V', nr): no direction, no size.
    (0x56 << 8) | nr
}

/// The structure of one of /dev/vgpu's calls.
pub(crate) trait Call: bytemuck::AnyBitPattern {
    const NUMBER: u32;
    const NAME: &'static str;
    fn set_size(&mut self);
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident $c:literal = $call:literal $number:literal, $size:literal, {
        $($field:ident $cfield:literal: $type:ty,)*
    })*) => {
        $(
            c_struct!($(#[$doc])* $name, $c, $call = number($number), $size, {
                $($field $cfield: $type,)*
            });
            impl Call for $name {
                const NUMBER: u32 = number($number);
                const NAME: &'static str = $call;
                fn set_size(&mut self) { self.size = $size; }
            }
        )*
        /// Every layout of this module.
        pub const LAYOUTS: &[Layout] = &[Op::LAYOUT, $($name::LAYOUT,)*];
    };
}

pub const OP_READ: u32 = 0;
pub const OP_WRITE: u32 = 1;
pub const OP_ATOMIC_ADD: u32 = 2;
pub const OP_CHECK: u32 = 3;
pub const OP_PREFETCH: u32 = 4;

pub const OP_BARRIER: u32 = 1;
pub const OP_BLOCKED: u32 = 2;
pub const OP_PERMUTE: u32 = 4;

pub const PERSONALITY_TURING: u32 = 0;
pub const PERSONALITY_VOLTA: u32 = 1;
pub const PERSONALITY_AMPERE: u32 = 2;

pub const FEATURE_TLB: u64 = 1;
pub const FEATURE_POISON: u64 = 2;
pub const FEATURE_SIMULATED: u64 = 4;

pub const KERNEL_DONE: u32 = 1;
pub const KERNEL_FAULTED: u32 = 2;
pub const KERNEL_STOPPED: u32 = 3;
pub const KERNEL_ERROR: u32 = 4;

pub const FAULT_NONE: u32 = u32::MAX;
pub const FAULT_INVALID_PDE: u32 = 0;
pub const FAULT_INVALID_PTE: u32 = 2;
pub const FAULT_WRITE_TO_READ_ONLY: u32 = 6;

pub const INJECT_DROP_INVALIDATES: u32 = 1;
pub const INJECT_FAULT_BUFFER_FULL: u32 = 2;
pub const INJECT_PMA_FAILURE: u32 = 3;
pub const INJECT_EVICT_PAGES: u32 = 4;
pub const INJECT_EVICT_RANGE: u32 = 5;
pub const INJECT_CHANNEL_ERROR: u32 = 6;
pub const INJECT_SUSPEND: u32 = 7;
pub const INJECT_KEEP: u32 = 1;
pub const INJECT_FOREVER: u64 = u64::MAX;

/// What freed vidmem is filled with, by 64-bit words.
pub const POISON: u64 = 0x5eed_5eed_bad0_bad0;

pub const TIMEOUT_NEVER: u64 = u64::MAX;
pub const MAX_QUEUED: u64 = 128;
pub const KEPT_RESULTS: u64 = 128;

pub const APERTURE_NONE: u32 = 0;
pub const APERTURE_VIDMEM: u32 = 1;
pub const APERTURE_SYSMEM: u32 = 2;

c_struct!(
    /// Many memory accesses made by many warps.
    Op, "struct vgpu_op", "" = 0, 88, {
        kind "kind": u32,
        flags "flags": u32,
        va "va": u64,
        stride "stride": i64,
        count "count": u64,
        row_stride "row_stride": i64,
        rows "rows": u64,
        width "width": u32,
        warps "warps": u32,
        lanes "lanes": u32,
        utlb_first "utlb_first": u32,
        utlb_count "utlb_count": u32,
        reserved "reserved": u32,
        value "value": u64,
        value_stride "value_stride": u64,
    }
);

calls! {
    /// What one GPU is and has.
    Info "struct vgpu_info" = "VGPU_GET_INFO" 0x40, 104, {
        size "size": u32,
        gpu "gpu": u32,
        gpu_count "gpu_count": u32,
        personality "personality": u32,
        uuid "uuid": crate::uvm::Uuid,
        name "name": [u8; 32],
        vidmem_bytes "vidmem_bytes": u64,
        reserved_bytes "reserved_bytes": u64,
        features "features": u64,
        utlb_count "utlb_count": u32,
        utlb_faults "utlb_faults": u32,
        fault_entries "fault_entries": u32,
        reserved "reserved": u32,
    }
    /// An address space on one GPU.
    VaspaceCreate "struct vgpu_vaspace" = "VGPU_VASPACE_CREATE" 0x41, 24, {
        size "size": u32,
        flags "flags": u32,
        gpu "gpu": u32,
        h_client "h_client": u32,
        h_vaspace "h_vaspace": u32,
        reserved "reserved": u32,
    }
    /// A queue of kernels.
    ChannelCreate "struct vgpu_channel" = "VGPU_CHANNEL_CREATE" 0x42, 24, {
        size "size": u32,
        flags "flags": u32,
        h_vaspace "h_vaspace": u32,
        h_client "h_client": u32,
        h_channel "h_channel": u32,
        reserved "reserved": u32,
    }
    /// Gives up an address space or a channel.
    Destroy "struct vgpu_destroy" = "VGPU_DESTROY" 0x43, 16, {
        size "size": u32,
        flags "flags": u32,
        handle "handle": u32,
        reserved "reserved": u32,
    }
    /// Queues a kernel on a channel, without waiting.
    Submit "struct vgpu_submit" = "VGPU_SUBMIT" 0x44, 48, {
        size "size": u32,
        flags "flags": u32,
        h_channel "h_channel": u32,
        op_count "op_count": u32,
        ops "ops": u64,
        op_size "op_size": u32,
        utlb_faults "utlb_faults": u32,
        reserved "reserved": u64,
        fence "fence": u64,
    }
    /// Waits for a kernel and takes its result.
    Wait "struct vgpu_wait" = "VGPU_WAIT" 0x45, 136, {
        size "size": u32,
        flags "flags": u32,
        h_channel "h_channel": u32,
        state "state": u32,
        fence "fence": u64,
        timeout_ns "timeout_ns": u64,
        accesses "accesses": u64,
        faults "faults": u64,
        duplicates "duplicates": u64,
        refaults "refaults": u64,
        replays "replays": u64,
        mismatches "mismatches": u64,
        bad_va "bad_va": u64,
        bad_expected "bad_expected": u64,
        bad_seen "bad_seen": u64,
        sum "sum": u64,
        fault_va "fault_va": u64,
        fault_type "fault_type": u32,
        fault_kind "fault_kind": u32,
        elapsed_ns "elapsed_ns": u64,
    }
    /// Everything one GPU did since vgpu.ko was loaded.
    Stats "struct vgpu_stats" = "VGPU_GET_STATS" 0x46, 352, {
        size "size": u32,
        flags "flags": u32,
        gpu "gpu": u32,
        reserved "reserved": u32,
        ce_copies "ce_copies": u64,
        ce_memsets "ce_memsets": u64,
        memset_bytes "memset_bytes": u64,
        h2d_bytes "h2d_bytes": u64,
        d2h_bytes "d2h_bytes": u64,
        d2d_bytes "d2d_bytes": u64,
        h2h_bytes "h2h_bytes": u64,
        virtual_bytes "virtual_bytes": u64,
        pushes "pushes": u64,
        methods "methods": u64,
        unknown_methods "unknown_methods": u64,
        channel_errors "channel_errors": u64,
        bad_addresses "bad_addresses": u64,
        semaphore_releases "semaphore_releases": u64,
        semaphore_blocks "semaphore_blocks": u64,
        membars "membars": u64,
        tlb_invalidates_all "tlb_invalidates_all": u64,
        tlb_invalidates_targeted "tlb_invalidates_targeted": u64,
        tlb_invalidates_dropped "tlb_invalidates_dropped": u64,
        tlb_hits "tlb_hits": u64,
        walks "walks": u64,
        walk_misses "walk_misses": u64,
        faults "faults": u64,
        fault_duplicates "fault_duplicates": u64,
        faults_held "faults_held": u64,
        replays_start "replays_start": u64,
        replays_ack "replays_ack": u64,
        cancels_targeted "cancels_targeted": u64,
        cancels_global "cancels_global": u64,
        cancels_va "cancels_va": u64,
        interrupts "interrupts": u64,
        access_notifications "access_notifications": u64,
        access_clears "access_clears": u64,
        local_accesses "local_accesses": u64,
        remote_accesses "remote_accesses": u64,
        kernels "kernels": u64,
        pma_allocs "pma_allocs": u64,
        pma_frees "pma_frees": u64,
        pma_failures "pma_failures": u64,
        pma_bytes "pma_bytes": u64,
        poisoned_bytes "poisoned_bytes": u64,
        stopped_faulting "stopped_faulting": u64,
    }
    /// Makes something go wrong.
    Inject "struct vgpu_inject" = "VGPU_INJECT" 0x47, 64, {
        size "size": u32,
        flags "flags": u32,
        gpu "gpu": u32,
        kind "kind": u32,
        count "count": u64,
        skip "skip": u64,
        begin "begin": u64,
        end "end": u64,
        handle "handle": u32,
        status "status": u32,
        bytes "bytes": u64,
    }
    /// Walks the page tables for one address.
    Translate "struct vgpu_translate" = "VGPU_TRANSLATE" 0x48, 40, {
        size "size": u32,
        flags "flags": u32,
        h_vaspace "h_vaspace": u32,
        aperture "aperture": u32,
        va "va": u64,
        page_bytes "page_bytes": u64,
        permissions "permissions": u32,
        fault_type "fault_type": u32,
    }
}
