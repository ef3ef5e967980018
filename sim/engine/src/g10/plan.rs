// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The artifact's planner.

use super::view::View;
use super::Machine;
use super::RunError;

/// Where a hint sends a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Fetch it, or allocate it if it has no contents.
    Gpu,
    /// Evict it.
    Ssd,
    /// Evict it.
    Host,
    /// Drop it.
    Free,
}

/// An instruction at the start of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    /// The kernel; one past the last means the start of the next step.
    pub kernel: usize,
    pub tensor: u32,
    pub to: Target,
}

/// Which of the artifact's designs the plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// G10.
    Uvm,
    /// Without UVM and host memory.
    Gds,
    /// Without UVM.
    Host,
}

/// DeepUM+: at each kernel, fetch what the kernel `degree` later uses.
pub(super) fn look_ahead(view: &View, degree: usize) -> Vec<Hint> {
    let n = view.kernels.len();
    let ahead = |k: usize| &view.kernels[(k + degree) % n].required;
    (0..n)
        .flat_map(|kernel| {
            ahead(kernel).iter().map(move |&tensor| Hint { kernel, tensor, to: Target::Gpu })
        })
        .collect()
}

pub(super) struct Plan { pub hints: Vec<Hint> }
pub(super) fn g10(_view: &View, _m: &Machine, _v: Variant) -> Result<Plan, RunError> {
    Ok(Plan { hints: Vec::new() })
}
