// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The physical machine model: a GPU under UVM, in virtual time.
//!
//! Memory is 2 MiB va_blocks of 4 KiB pages. A va_block with anything in GPU
//! memory holds one 2 MiB root chunk, and chunks are reclaimed whole. A kernel
//! runs through its tensors from first page to last while its duration passes. A
//! page that is not there raises a fault, faults are serviced in batches, and the
//! kernel goes on when the batch has been replayed. Copies share a full-duplex
//! link, and copies from and to the SSD share its read and write rates as well.
//! Every constant is one of [`uvmsim_machine::CONSTANTS`].
//!
//! [`run`](fn@run) executes a [`Workload`] under a [`Policy`], checks that no byte is
//! lost and no memory overfilled, and reports the last of some iterations.

mod bound;
mod links;
pub mod patterns;
pub mod plan;
pub mod policies;
pub mod policy;
mod record;
pub mod rerun;
mod result;
mod run;
mod system;
pub mod workload;

pub use bound::bound_ns;
pub use bound::boundaries;
pub use bound::step_bound_ns;
pub use policy::Policy;
pub use policy::Tier;
pub use record::Bin;
pub use record::Timeline;
pub use rerun::Rerun;
pub use result::Bytes;
pub use result::Outcome;
pub use result::Stalls;
pub use run::run;
pub use run::Limits;
pub use run::RunError;
pub use system::System;
pub use workload::Layout;
pub use workload::Workload;

#[cfg(test)]
mod tests;
