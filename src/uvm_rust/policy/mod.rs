// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Policies: plain data in, decisions out.
//!
//! No module below this one contains `unsafe`, C types, clocks or I/O, or an
//! allocation that cannot fail. Memory comes from `crate::mem`, which each world
//! supplies.

#![forbid(unsafe_code)]

pub mod chooser;
pub mod discard;
pub mod evict;
pub mod fault;
pub mod flash;
pub mod link;
pub mod mask;
pub mod prefetch;
pub mod quota;
pub mod stats;
pub(crate) mod sync;
pub mod tenants;
pub mod tree;
pub mod wakes;

#[cfg(test)]
pub(crate) mod testing;
