// SPDX-License-Identifier: GPL-2.0 OR MIT

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
// With a path, its modules are looked for beside it, as they are in the driver.
#[path = "policy.rs"]
pub mod policy;
#[cfg(test)]
mod testing;

pub use policy::*;
