// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What needs host memory, and so waits when there is too little.
//!
//! Whoever has its share of a host that is full waits for spills, but only with what would make
//! pages of host memory. Such pages are to be there and have no memory yet, are staged on
//! their way from one GPU to another, or are what others leave a GPU for. What is in host memory
//! already, or only goes from there to a GPU with room, makes none: it goes on.
//!
//! A GPU's faults wait elsewhere, as one thread services those of all processes, with the lock of the
//! parent GPU. The loop leaves them out, as upstream does with faults on pages that thrash, and the
//! replay at the end of the batch brings them back ([`fault_waits`]). Somebody else reads meanwhile what they
//! want ([`super::asked`]). Faults of copy engines and access counters, which the same thread services, do not wait.
//! All others wait where they are ([`waits`]).
//!
//! Locking: the va_block's lock, of which both are asked, is held throughout.

use super::super::mask::PageMask;
use super::super::stats::Cause;

/// Where pages are to be.
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
    /// Somebody asks for it, or anything else.
    Call,
    /// They leave a GPU.
    Eviction,
    /// A fault that the thread which has it services.
    Fault,
    /// A GPU's fault, which the service loop has looked at before.
    GpuFault,
    /// Anything else that the thread services which has all processes' GPU faults.
    Beside,
}

impl Why {
    /// Why pages become resident by `cause`. `by_kernel`: a thread of the kernel's services it; `replays`: the GPU
    /// repeats a fault that is left out of its batch.
    ///
    /// Upstream's three handlers of a GPU (replayable faults, faults of copy engines, access counters) share one
    /// thread (`bottom_half_q` in uvm_gpu_isr.c). A copy engine's fault that waits there holds up the faults of all.
    pub fn of(cause: Cause, replays: bool, by_kernel: bool) -> Why {
        match cause {
            Cause::Eviction => Why::Eviction,
            Cause::Fault if !by_kernel => Why::Fault,
            Cause::Fault if replays => Why::GpuFault,
            Cause::Fault | Cause::AccessCounter => Why::Beside,
            Cause::Prefetch | Cause::Api => Why::Call,
        }
    }
}

/// What stands for room of a va_block, and of a GPU if there is one.
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

    /// What stands for room.
    fn facts(&mut self) -> Facts;

    /// Whether some of `pages` has no chunk of the GPU's yet.
    fn lacks_chunk(&mut self, pages: &PageMask) -> bool;

    /// Whether who needs a chunk of the GPU's memory gets one for which something goes to the host.
    fn evicts_to_host(&mut self) -> bool;

    /// Whether what is in the block may stay in host memory when a GPU faults on it.
    fn prefers_host(&mut self) -> bool;

    /// Has those look who make room.
    fn kick(&mut self);
}

/// Whether pages of host memory have to be made when `pages` become resident there, or in their stead.
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

/// The same for faults of the GPU on `pages`, where upstream has not chosen yet where they go.
fn fault_needs_host<M: Machine>(m: &mut M, pages: &PageMask) -> bool {
    let facts = m.facts();
    // What is on the GPU is only to be mapped otherwise.
    let wanted = *pages - facts.there;
    if wanted.is_empty() {
        return false;
    }
    if needs(m, &facts, To::Gpu, &wanted) {
        return true;
    }
    // Upstream may pin in host memory what thrashes.
    let pinned = if m.prefers_host() {
        wanted
    } else {
        wanted & facts.thrashing
    };
    needs(m, &facts, To::Host, &pinned)
}

/// The same for faults of the GPU on a block that does not exist yet, of which nothing else is asked.
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

/// Whether whoever makes `pages` resident has to wait for room, and then to ask again. `parks`: GPU faults
/// have waited elsewhere. `dying`: who asks is being killed, and is not to wait for a device that may never
/// answer.
pub fn waits<M: Machine>(
    m: &mut M,
    why: Why,
    to: To,
    pages: &PageMask,
    parks: bool,
    dying: impl FnOnce() -> bool,
) -> bool {
    let may = match why {
        // Cannot be called again, and takes only what is on a GPU.
        Why::Eviction => false,
        // Nobody repeats it later, and others' faults are behind it in its thread: it goes over what is allowed.
        Why::Beside => false,
        Why::GpuFault => !parks,
        Why::Call | Why::Fault => true,
    };
    may && !dying() && m.must_wait() && needs_host(m, to, pages)
}

#[cfg(test)]
mod tests;
