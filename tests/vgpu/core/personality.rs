// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which GPU is emulated. Page tables, GPFIFO, copy engine and fault buffer are
//! the same from Volta to GA100; what differs is below.

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
    /// Fault client of the first unit on µTLB 1 of a GPC, that of µTLB 0 being 0:
    /// two TPCs share a µTLB up to Turing.
    pub(super) clients_per_utlb: u32,
    /// Whether the host knows Maxwell's semaphore methods.
    pub(super) old_semaphores: bool,
    /// Whether an invalidate says which TLBs it is for: those of the links to other GPUs, or the others.
    pub(super) invalidate_scopes: bool,
    /// What a counter's notification says of an address; see [`CounterAddress`].
    pub(super) counter_address: CounterAddress,
}

impl Personality {
    /// TU102 (Turing), whose number is 0.
    pub const TURING: Self = Self {
        name: "vgpu (Turing TU102)",
        architecture: 0x160,
        implementation: 2,
        host_class: 0xc46f,
        ce_class: 0xc5b5,
        compute_class: 0xc5c0,
        uapi: 0,
        clients_per_utlb: 2,
        old_semaphores: false,
        invalidate_scopes: false,
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
        clients_per_utlb: 2,
        old_semaphores: true,
        invalidate_scopes: false,
        counter_address: CounterAddress::Physical,
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
        clients_per_utlb: 1,
        old_semaphores: false,
        invalidate_scopes: true,
        counter_address: CounterAddress::Virtual,
    };

    /// The personality of this number in `include/uapi/vgpu.h`.
    pub fn from_uapi(number: u32) -> Option<&'static Self> {
        const ALL: [&Personality; 3] = [
            &Personality::TURING,
            &Personality::VOLTA,
            &Personality::AMPERE,
        ];
        ALL.into_iter().find(|p| p.uapi == number)
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
        for n in 0..3 {
            assert_eq!(Personality::from_uapi(n).unwrap().uapi, n);
        }
        assert!(Personality::from_uapi(3).is_none());
    }
}
