// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The policies, each from its paper.

mod uvm;

pub use uvm::BaseUvm;
pub use uvm::Discard;
pub use uvm::Ideal;

use uvmsim_machine::Machine;

use crate::Layout;
use crate::Policy;
use crate::RunError;
use crate::Workload;

/// Every policy, the weakest first.
pub const NAMES: &[&str] = &[
    "base-uvm",
    "uvm-opt",
    "uvm-discard",
    "uvm-discard-lazy",
    "ideal",
];

/// The policy called `name`, with its plan for `workload` if it is one that
/// plans.
///
/// # Errors
/// There is no such policy, or it cannot run this workload.
pub fn make(
    name: &str,
    _machine: &Machine,
    _workload: &Workload,
    _layout: &Layout,
) -> Result<Box<dyn Policy>, RunError> {
    Ok(match name {
        "base-uvm" => Box::new(BaseUvm),
        "uvm-opt" => Box::new(Discard::opt()),
        "uvm-discard" => Box::new(Discard::eager()),
        "uvm-discard-lazy" => Box::new(Discard::lazy()),
        "ideal" => Box::new(Ideal),
        _ => {
            return Err(RunError::Infeasible(format!(
                "no policy is called `{name}`; there are {}",
                NAMES.join(", ")
            )))
        }
    })
}
