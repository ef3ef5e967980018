// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which operations need host memory, and so wait when there is too little.
//!
//! When the host is full, a tenant with its share of it waits for spills, but only with an
//! operation that needs new pages of host memory. These are pages that become resident there
//! without having memory yet, pages that are staged on their way between GPUs, and pages that are
//! evicted from a GPU for others. Pages that are in host memory already, or only go from there to a
//! GPU with room, need none: their operation goes on.
//!
//! A GPU's faults do not wait where they are serviced, because one thread services the faults of
//! all processes, with the lock of the parent GPU. The loop leaves them out, as upstream does with
//! faults on pages that thrash, and the replay at the end of the batch brings them back
//! ([`fault_waits`]). Meanwhile a fetcher reads the pages that they want ([`super::asked`]). Faults
//! of copy engines, which the same thread services, do not wait for room themselves. Where one needs a page on flash, the page is asked
//! for, and the engine faults anew. Access counters wait for neither, and move no page on flash. All other
//! operations wait in their own thread ([`waits`]).
//!
//! Locking: the caller holds the va_block's lock in all calls.

use super::super::mask::PageMask;
use super::super::stats::Cause;

/// The destination of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Resident in host memory.
    Host,
    /// On the GPU that [`Machine`] speaks of.
    Gpu,
}

/// Why pages are made resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A call asks for it, or none of the reasons below applies.
    Call,
    /// Their GPU evicts them.
    Eviction,
    /// A fault that the faulting thread services.
    Fault,
    /// A GPU's fault, which the service loop has looked at before.
    GpuFault,
    /// A copy engine's fault, which nobody repeats. It is serviced again if it asks for that.
    CopyFault,
    /// Other work of the thread that services all processes' GPU faults.
    Beside,
}

impl Why {
    /// Why pages become resident by `cause`. `by_kernel`: a kernel thread services it; `replays`: the GPU repeats a
    /// fault that is left out of its batch.
    ///
    /// Upstream's three handlers of a GPU (replayable faults, faults of copy engines, access counters) share one
    /// thread (`bottom_half_q` in uvm_gpu_isr.c). A copy engine's fault that waits there holds up the faults of all.
    pub fn of(cause: Cause, replays: bool, by_kernel: bool) -> Why {
        match cause {
            Cause::Eviction => Why::Eviction,
            Cause::Fault if !by_kernel => Why::Fault,
            Cause::Fault if replays => Why::GpuFault,
            Cause::Fault => Why::CopyFault,
            Cause::AccessCounter => Why::Beside,
            Cause::Prefetch | Cause::Api => Why::Call,
        }
    }
}

/// Facts about a va_block that decide whether it needs room, and about a GPU if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Pages with host memory.
    pub allocated: PageMask,
    /// Pages that upstream's detection calls thrashing.
    pub thrashing: PageMask,
    /// Pages that are resident on the GPU.
    pub there: PageMask,
    /// Pages that come to the GPU by way of host memory: from flash, or from a GPU that is no peer.
    pub staged: PageMask,
}

/// A va_block, and a GPU that its pages may go to.
pub trait Machine {
    /// Whether too much host memory is in use, and the block's tenant has its share of it.
    fn must_wait(&mut self) -> bool;

    /// The facts that decide whether the block needs room.
    fn facts(&mut self) -> Facts;

    /// Whether some of `pages` has no chunk of the GPU's yet.
    fn lacks_chunk(&mut self, pages: &PageMask) -> bool;

    /// Whether a new chunk of the GPU's memory would take an eviction to the host.
    fn evicts_to_host(&mut self) -> bool;

    /// Whether the block's pages may stay in host memory when a GPU faults on them.
    fn prefers_host(&mut self) -> bool;

    /// Wakes the workers that make room.
    fn kick(&mut self);
}

/// Whether making `pages` resident at `to` needs new pages of host memory, for them or for what they evict.
pub fn needs_host<M: Machine>(m: &mut M, to: To, pages: &PageMask) -> bool {
    let facts = m.facts();
    needs(m, &facts, to, pages)
}

fn needs<M: Machine>(m: &mut M, facts: &Facts, to: To, pages: &PageMask) -> bool {
    let host = match to {
        To::Host => *pages,
        To::Gpu if m.lacks_chunk(pages) && m.evicts_to_host() => return true,
        To::Gpu => facts.staged & *pages,
    };
    !host.is_subset(&facts.allocated)
}

/// As [`needs_host`], for faults of the GPU on `pages`, whose destination upstream has not chosen yet.
fn fault_needs_host<M: Machine>(m: &mut M, pages: &PageMask) -> bool {
    let facts = m.facts();
    // Pages that are on the GPU only get another mapping.
    let wanted = *pages - facts.there;
    if wanted.is_empty() {
        return false;
    }
    if needs(m, &facts, To::Gpu, &wanted) {
        return true;
    }
    // Upstream may pin thrashing pages in host memory.
    let pinned = if m.prefers_host() {
        wanted
    } else {
        wanted & facts.thrashing
    };
    needs(m, &facts, To::Host, &pinned)
}

/// Whether faults of the GPU on a block that does not exist yet have to be put off.
pub fn first_touch_waits<M: Machine>(m: &mut M) -> bool {
    let waits = m.must_wait() && (m.prefers_host() || m.evicts_to_host());
    if waits {
        m.kick();
    }
    waits
}

/// Whether the GPU's faults on `pages` have to be put off for want of room.
pub fn fault_waits<M: Machine>(m: &mut M, pages: &PageMask) -> bool {
    let waits = m.must_wait() && fault_needs_host(m, pages);
    if waits {
        m.kick();
    }
    waits
}

/// Whether the caller, which makes `pages` resident, has to wait for room and then ask again. `parks`: GPU faults
/// have waited elsewhere. `dying`: the caller is being killed, and must not wait for a device that may never answer.
pub fn waits<M: Machine>(
    m: &mut M,
    why: Why,
    to: To,
    pages: &PageMask,
    parks: bool,
    dying: impl FnOnce() -> bool,
) -> bool {
    let may = match why {
        // An eviction cannot be called again, and moves only pages that are on a GPU.
        Why::Eviction => false,
        // Nobody repeats this work later, and its thread has others' faults to service: it exceeds the limit.
        Why::CopyFault | Why::Beside => false,
        Why::GpuFault => !parks,
        Why::Call | Why::Fault => true,
    };
    may && !dying() && m.must_wait() && needs_host(m, to, pages)
}

#[cfg(test)]
mod tests;
