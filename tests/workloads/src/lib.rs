// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The applications of the UvmDiscard paper (§7), as programs that the driver runs
//! on the software GPU and that an oracle knows the end of.
//!
//! - [`program`]: an application as data: buffers, and steps in order.
//! - [`fir`], [`radix`], [`join`], [`train`] with its [`layers`]: the paper's
//!   applications.
//! - [`cases`]: each at each of the paper's degrees of oversubscription.
//! - [`oracle`]: how much of it has to be moved.
//! - [`run`]: runs it in the VM, checking its data.
//! - [`paper`], [`report`]: what the paper measured, and the comparison.
//! - [`beside`]: NVIDIA's driver and ours, side by side.

pub mod beside;
pub mod cases;
pub mod fir;
pub mod join;
pub mod layers;
pub mod oracle;
pub mod paper;
pub mod program;
pub mod radix;
pub mod report;
pub mod run;
pub mod scale;
pub mod train;
