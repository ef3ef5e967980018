// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Planners: which tensor leaves after which kernel, and when it comes back.
//!
//! All work on the same [`Profile`]: kernels grouped into at most [`SLOTS`] slots
//! of the step, memory needed in each, and the budgets of the four links in each.
//! A [`Plan`] is executed by [`Planned`](crate::policies::Planned).

pub mod autovm;
mod behind;
pub mod best;
mod change;
pub mod flashneuron;
pub mod g10;
pub mod greedy;
pub mod most;
pub mod ours;
pub(crate) mod pieces;
mod profile;
pub mod queued;
pub mod recompute;
pub mod teraio;
pub mod text;

pub use uvmsim_plan::What;

pub use profile::Budget;
pub use profile::Gap;
pub use profile::Profile;
pub use profile::SLOTS;

use crate::rerun::Rerun;

/// A request of a plan, and the tensor that it is for, or the part of one ([`Plan::parts`]). Memory is
/// allocated before a tensor's first use; after the last, it is freed or discarded lazily.
pub type Op = (What, u32);

/// A part of a tensor that is moved on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the tensor.
    pub tensor: u32,
    /// The part's first byte, from the tensor's on; whole pages.
    pub offset: u64,
    /// How many bytes, in whole pages.
    pub bytes: u64,
}

/// What to request before each kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The requests, by kernel, in order.
    pub before: Vec<Vec<Op>>,
    /// Evictions and copies of what a kernel uses, by kernel, in order: of each va_block as soon as the
    /// kernel is past it.
    pub behind: Vec<Vec<Op>>,
    /// Parts of tensors that requests are for: the first is called by the number of the step's tensors,
    /// the others by those after it.
    pub parts: Vec<Part>,
    /// Kernels ahead of its birth that a tensor's memory is asked for; `None`:
    /// its first use faults it in.
    pub allocate_ahead: Option<u32>,
    /// Whether tensors are released when they die, without a request.
    pub releases: bool,
    /// Kernels of the step that run again, in order; they are kernels of their own in `before`.
    pub again: Vec<Rerun>,
}

impl Plan {
    /// A plan that asks for nothing, for `kernels` kernels, but for the memory of
    /// each tensor `ahead` kernels before its birth.
    pub fn new(kernels: usize, ahead: u32) -> Self {
        Self {
            before: vec![Vec::new(); kernels],
            behind: vec![Vec::new(); kernels],
            allocate_ahead: Some(ahead),
            releases: true,
            ..Self::default()
        }
    }

    /// The requests before kernels, in order, each with its kernel.
    pub fn requests(&self) -> impl Iterator<Item = (usize, Op)> + '_ {
        let by_kernel = self.before.iter().enumerate();
        by_kernel.flat_map(|(k, ops)| ops.iter().map(move |&op| (k, op)))
    }

    /// Tensors, and parts of them, that are moved out in a step.
    pub fn evictions(&self) -> usize {
        let requests = self.before.iter().chain(&self.behind).flatten();
        let evictions = requests.filter(|op| matches!(op.0, What::Evict(_)));
        evictions.count()
    }
}
