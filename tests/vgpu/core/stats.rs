// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What one GPU did: the counters of `struct vgpu_stats`, in its order, which
//! says what each means (`include/uapi/vgpu.h`).

/// See the module's documentation. All counters wrap, in theory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // documented where users look: include/uapi/vgpu.h
pub struct Stats {
    pub ce_copies: u64,
    pub ce_memsets: u64,
    pub memset_bytes: u64,
    pub h2d_bytes: u64,
    pub d2h_bytes: u64,
    pub d2d_bytes: u64,
    pub h2h_bytes: u64,
    pub virtual_bytes: u64,
    pub pushes: u64,
    pub methods: u64,
    pub unknown_methods: u64,
    pub channel_errors: u64,
    pub bad_addresses: u64,
    pub semaphore_releases: u64,
    pub semaphore_blocks: u64,
    pub membars: u64,
    pub tlb_invalidates_all: u64,
    pub tlb_invalidates_targeted: u64,
    pub tlb_invalidates_dropped: u64,
    pub tlb_hits: u64,
    pub walks: u64,
    pub walk_misses: u64,
    pub faults: u64,
    pub fault_duplicates: u64,
    pub faults_held: u64,
    pub replays_start: u64,
    pub replays_ack: u64,
    pub cancels_targeted: u64,
    pub cancels_global: u64,
    pub cancels_va: u64,
    pub interrupts: u64,
    pub access_notifications: u64,
    pub access_clears: u64,
    pub local_accesses: u64,
    pub remote_accesses: u64,
    pub kernels: u64,
    pub pma_allocs: u64,
    pub pma_frees: u64,
    pub pma_failures: u64,
    pub pma_bytes: u64,
    pub poisoned_bytes: u64,
    pub stopped_faulting: u64,
    pub peer_bytes: u64,
    pub peer_accesses: u64,
}
