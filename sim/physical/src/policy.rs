// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What decides: a policy sees kernels and faults and asks for moves.

pub use uvmsim_plan::Tier;

use crate::System;
use uvm_policy::chooser::Along;

/// A policy.
///
/// The machine calls it in virtual time; its requests go to the [`System`] it is
/// given and are carried out when links and memory allow.
pub trait Policy {
    /// The name that results give the policy.
    fn name(&self) -> &str;

    /// Kernel `k` is about to start.
    fn kernel_start(&mut self, _k: usize, _system: &mut System<'_>) {}

    /// Kernel `k` has ended.
    fn kernel_end(&mut self, _k: usize, _system: &mut System<'_>) {}

    /// A fault on `block` is being serviced.
    fn fault(&mut self, _block: u32, _system: &mut System<'_>) {}

    /// Where a reclaimed block's pages go: to the SSD as well if the host is full, to the host if
    /// there is no SSD.
    fn reclaim_to(&self) -> Tier {
        Tier::Host
    }

    /// Whether kernels wait for prefetches of their pages that are still queued,
    /// rather than fault.
    fn waits(&self) -> bool {
        false
    }

    /// Whether pages come in without faults: a miss copies the whole block.
    fn faultless(&self) -> bool {
        false
    }

    /// Whether a fault brings in its whole va_block, or what the GPU ever had of it,
    /// instead of what the tree prefetcher says (DeepUM section 3: its fault queue
    /// holds UM blocks, and these are what its migration thread moves).
    fn whole_blocks(&self) -> bool {
        false
    }

    /// Whether a reclaimed page of a tensor that is dead is dropped instead of
    /// written (DeepUM section 5.2).
    fn invalidates(&self) -> bool {
        false
    }

    /// Whether a kernel comes to a va_block only once all that the one before it needs is there, so that
    /// a batch of faults is about one va_block, and ends with it.
    fn block_by_block(&self) -> bool {
        false
    }

    /// Faults on `block` are about to be served. Returns what comes along; `None`: what [`Policy::whole_blocks`] and the
    /// machine say.
    fn along(&mut self, _block: u32, _s: &mut System<'_>) -> Option<Along> {
        None
    }

    /// Faults on so many pages of `block` were served, which brought so many `pages`. The service itself cost as much
    /// time as a copy of `work` pages.
    fn served(&mut self, _block: u32, _faulted: u32, _pages: u32, _work: u32) {}

    /// Whether the policy asks which blocks have left the GPU ([`System::left`]).
    fn watches(&self) -> bool {
        false
    }

    /// Whether memory has no limit: nothing moves.
    fn unlimited(&self) -> bool {
        false
    }
}
