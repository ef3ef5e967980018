// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The policies, each from its paper.

mod uvm;

pub use uvm::BaseUvm;
pub use uvm::Discard;
