// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which GPU is emulated. Fault buffer and access counters are the same from Volta to Blackwell,
//! and up to GA100 page tables, GPFIFO and copy engine as well; what differs is below.

use super::bits::mask32;
use super::walk::Mmu;

/// What address an access counter notification carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CounterAddress {
    /// The DMA address of the counted page (Volta).
    Physical,
    /// The GPU virtual address (Turing and later).
    Virtual,
}

/// The constants of one GPU.
#[derive(Debug)]
pub struct Personality {
    /// The name, for people and for UVM's procfs.
    pub name: &'static str,
    /// Architecture as RM reports it (NV_MC_ARCH_INFO).
    pub architecture: u32,
    /// Implementation within the architecture.
    pub implementation: u32,
    /// The class of its channels, by which UVM chooses their methods.
    pub host_class: u32,
    /// Class of copy engines.
    pub ce_class: u32,
    /// Class of compute engines.
    pub compute_class: u32,
    /// The number of it in `include/uapi/vgpu.h`.
    pub uapi: u32,
    /// Generation of its NVLinks; 0 if it has none.
    pub nvlink: u32,
    /// What one link carries in a direction, in MB/s, without what its protocol takes.
    pub nvlink_mbps: u32,
    /// Most TPCs that a GPC has, from which UVM knows how many µTLBs there are.
    pub tpcs_per_gpc: u32,
    /// The version of page tables, which has the addresses of copy engines and SMs as well.
    pub(super) mmu: Mmu,
    /// Bits of an address that the host can name.
    pub(super) host_va_bits: u32,
    /// The addresses that UVM leaves to RM end here.
    pub(super) rm_end: u64,
    /// Where RM's buffers begin, and end at the latest. It is above what a wrong word of an
    /// address has: 32 bits, or the 40 of a GPFIFO entry where there are more. So an address that
    /// was cut short leads nowhere.
    pub(super) rm_buffers: (u64, u64),
    /// Whether an entry of the ring can set the upper bits of segments' addresses.
    pub(super) has_segments: bool,
    /// Whether copy engines scrub: a fill of physical vidmem that is theirs alone.
    pub(super) has_scrub: bool,
    /// Bits of LAUNCH_DMA that are known beside those that are everywhere.
    pub(super) launch_bits: u32,
    /// The bits of a copy engine's word for a physical target that number a peer, if it may be one.
    pub(super) peer_targets: u32,
    /// MMU engine of the graphics engine's first sub-context.
    pub(super) graphics_engine: u32,
    /// Where a cancel names the engine, in the first word of a memory operation.
    pub(super) cancel_engine: u32,
    /// Fault client of a unit on each µTLB of a GPC.
    pub(super) clients: [u32; UTLBS_PER_GPC as usize],
    /// Whether interrupts come in pulses; see `interrupt.rs`.
    pub(super) has_pulses: bool,
    /// Whether the host knows Maxwell's semaphore methods.
    pub(super) old_semaphores: bool,
    /// The MMU engine of users' copies, on a GPU of which a method clears a channel's faulted bit; others have no such copies.
    pub(super) copy_engine: Option<u32>,
    /// Whether an invalidate says which TLBs it is for: those of the links to other GPUs, or the others.
    pub(super) invalidate_scopes: bool,
    /// Whether an acknowledged invalidate is a membar for the GPU as well, of accesses by what it
    /// invalidates.
    pub(super) acks_are_membars: bool,
    /// What a counter's notification says of an address; see [`CounterAddress`].
    pub(super) counter_address: CounterAddress,
}

impl Personality {
    /// All there are, by their numbers.
    pub const ALL: [&'static Self; 5] = [
        &Self::TURING,
        &Self::VOLTA,
        &Self::AMPERE,
        &Self::HOPPER,
        &Self::BLACKWELL,
    ];

    /// TU102 (Turing), whose number is 0.
    pub const TURING: Self = Self {
        name: "vgpu (Turing TU102)",
        architecture: 0x160,
        implementation: 2,
        host_class: 0xc46f,
        ce_class: 0xc5b5,
        compute_class: 0xc5c0,
        uapi: 0,
        nvlink: 2,
        nvlink_mbps: 25_781,
        tpcs_per_gpc: 4,
        mmu: Mmu::V2,
        host_va_bits: 40,
        rm_end: 128 << 40,
        rm_buffers: (1 << 32, 1 << 40),
        has_segments: false,
        has_scrub: false,
        launch_bits: 0,
        peer_targets: 0,
        graphics_engine: 64,
        cancel_engine: mask32(6, 0),
        // Two TPCs share a µTLB.
        clients: [0, 2, 4, 6],
        copy_engine: Some(15),
        has_pulses: true,
        old_semaphores: false,
        invalidate_scopes: false,
        acks_are_membars: false,
        counter_address: CounterAddress::Virtual,
    };

    /// GV100. The only one whose access counters make UVM 550 migrate on x86.
    pub const VOLTA: Self = Self {
        name: "vgpu (Volta GV100)",
        architecture: 0x140,
        implementation: 0,
        host_class: 0xc36f,
        ce_class: 0xc3b5,
        compute_class: 0xc3c0,
        uapi: 1,
        has_pulses: false,
        old_semaphores: true,
        copy_engine: None,
        counter_address: CounterAddress::Physical,
        ..Self::TURING
    };

    /// GA100 (Ampere), whose number is 2.
    pub const AMPERE: Self = Self {
        name: "vgpu (Ampere GA100)",
        architecture: 0x170,
        implementation: 0,
        host_class: 0xc56f,
        ce_class: 0xc6b5,
        compute_class: 0xc6c0,
        uapi: 2,
        nvlink: 3,
        nvlink_mbps: 25_000,
        peer_targets: mask32(8, 6),
        clients: [0, 1, 2, 3],
        copy_engine: None,
        invalidate_scopes: true,
        ..Self::TURING
    };

    /// GH100 (Hopper), whose number is 3.
    pub const HOPPER: Self = Self {
        name: "vgpu (Hopper GH100)",
        architecture: 0x180,
        implementation: 0,
        host_class: 0xc86f,
        ce_class: 0xc8b5,
        compute_class: 0xcbc0,
        uapi: 3,
        nvlink: 4,
        nvlink_mbps: 26_562,
        tpcs_per_gpc: 9,
        mmu: Mmu::V3,
        host_va_bits: 57,
        rm_end: 64 << 50,
        // Of the bits above 40 high and low ones are set, so that each counts that a segment has.
        rm_buffers: ((0xa5a3 << 40) + (1 << 32), 64 << 50),
        has_segments: true,
        has_scrub: true,
        // Scrubbing, and that there is no compression after the L2, where there never is any.
        launch_bits: mask32(23, 23) | mask32(26, 26),
        peer_targets: mask32(8, 6),
        graphics_engine: 384,
        cancel_engine: mask32(8, 0),
        // Of eighteen, whose numbers are not in one piece: T1_0, T1_7, T1_8 and T1_17.
        clients: [0, 7, 0x21, 0x36],
        invalidate_scopes: true,
        ..Self::TURING
    };

    /// GB202 (Blackwell), whose number is 4. NVIDIA's driver knows it from 570 on.
    pub const BLACKWELL: Self = Self {
        name: "vgpu (Blackwell GB202)",
        architecture: 0x1b0,
        implementation: 2,
        host_class: 0xca6f,
        ce_class: 0xcab5,
        compute_class: 0xcec0,
        uapi: 4,
        nvlink: 0,
        nvlink_mbps: 0,
        tpcs_per_gpc: 10,
        // Of twenty: T1_0, T1_7, T1_8 and T1_19.
        clients: [0, 7, 0x21, 0x38],
        acks_are_membars: true,
        ..Self::HOPPER
    };

    /// The personality of this number in `include/uapi/vgpu.h`.
    pub fn from_uapi(number: u32) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|p| p.uapi == number)
    }

    /// Bits of an address that its page tables translate.
    pub const fn va_bits(&self) -> u32 {
        self.mmu.va_bits()
    }

    /// The bits of the word with an address' upper half, of the host.
    pub(super) const fn host_upper(&self) -> u32 {
        mask32(self.host_va_bits - 33, 0)
    }

    /// The same of the copy engines.
    pub(super) const fn ce_upper(&self) -> u32 {
        mask32(self.va_bits() - 33, 0)
    }
}

/// GPCs, in every personality.
pub(super) const GPCS: u32 = 4;
/// µTLBs per GPC that SMs are on.
pub(super) const UTLBS_PER_GPC: u32 = 4;
/// The µTLBs of all GPCs together.
pub(super) const UTLBS: u32 = GPCS * UTLBS_PER_GPC;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_by_number() {
        for n in 0..5 {
            assert_eq!(Personality::from_uapi(n).unwrap().uapi, n);
        }
        assert!(Personality::from_uapi(5).is_none());
    }
}
