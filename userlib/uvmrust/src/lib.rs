// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discard of unified memory: tell the driver that nobody will read what stands in
//! a buffer, and it neither copies it out when it evicts it nor in when it is used
//! again (UvmDiscard, `uvm-discard` paper, §4).
//!
//! [`Uvm`] does the work, through whichever [`Backend`] this process has. On a
//! driver with none, every discard says [`Error::NotSupported`] and changes
//! nothing, so that a program can ignore it and go on.
//!
//! The calls on raw ranges are `unsafe`, since they change memory behind the
//! compiler's back: what a read gives until the next write is indeterminate with some
//! backends (`docs/discard-guide.md` has a table). Owners of managed buffers implement
//! [`Managed`] once and then use the safe [`discard`] and [`discard_lazy`].
//!
//! [`Moves`] brings memory to a GPU ahead of need and takes it to the host or an SSD,
//! without waiting; [`plan`] does so as a plan of uvmsim's says, and [`follow`] knows by its
//! launches and allocations where in its plan a program is. [`mod@record`] writes down what a
//! program does, of which a plan can be made.
//!
//! C programs find the same in `uvmrust.h` (crate `uvmrust-c`).

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod backend;
mod broken;
pub mod cuda;
mod error;
mod fd;
pub mod follow;
mod groups;
mod instance;
mod jobs;
mod kept;
mod lineage;
mod managed;
mod moves;
pub mod plan;
mod process;
mod ranges;
pub mod record;
mod stream;
mod sync;
mod sys;
mod tools;
pub mod uapi;

pub use backend::{Backend, Mode, Outcome, Uvm};
pub use error::Error;
pub use kept::{identity, Identity};
pub use managed::{discard, discard_lazy, Discarded, Lazy, Left, Managed};
pub use moves::{Carrier, Failed, Given, Later, Move, Moved, Moves, Ticket, Tier};
pub use process::PerProcess;
pub use ranges::Range;
pub use sys::{Chardev, Linux, Sys};

/// What a discard or prefetch gives.
pub type Result<T> = core::result::Result<T, Error>;

/// Where to prefetch to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Host memory, of whichever NUMA node.
    Host,
    /// The GPU of this UUID.
    Gpu([u8; 16]),
}
