// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The policies of uvm-rust as a host crate, for `cargo test`, Miri, criterion
//! and uvmsim.
//!
//! Inside the driver the same files are compiled as the module `policy` of
//! `nvidia-uvm.ko`. What differs between the worlds is only [`mem`]: there it
//! stands on the kernel's allocator, here on `alloc`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod mem;
// The driver's root finds this file by its name alone. So do tools that read the modules
// without compiling them (cargo-mutants), which no path to another name would lead on.
#[path = "mod.rs"]
pub mod policy;

#[cfg(test)]
use policy::testing;
pub use policy::*;
