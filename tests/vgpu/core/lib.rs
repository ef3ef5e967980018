// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The software GPU's emulator as a host crate, for `cargo test`.
//!
//! `vgpu.ko` compiles the same files as its module [`emu`]. What differs between
//! the two is [`mem`], which stands on `alloc` here and on the kernel's allocator
//! there, and who implements [`emu::Machine`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(test)]
mod bench;
#[path = "emu.rs"]
pub mod emu;
#[cfg(test)]
mod fake;
#[path = "../../../src/uvm_rust/policy/mem.rs"]
pub mod mem;
