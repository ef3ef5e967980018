// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The Rust part of `nvidia-uvm.ko`.
//!
//! Not a module of its own: Kbuild links this object into NVIDIA's, and the C
//! seam (`src/nvidia-uvm-c/`) calls in.
//!
//! - [`policy`]: decisions, the same code as on the host and in the simulator;
//! - [`driver`]: each policy's adapter in the kernel: objects, locks, ioctls; no `unsafe`;
//! - [`ffi`]: the boundary to C, as safe handles, and the only `unsafe`.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]
// Clippy's MSRV is the kernel's, which is older than the 1.85 that this project needs.
#![allow(clippy::incompatible_msrv)]
#![deny(clippy::unwrap_used, clippy::expect_used)]
// Kbuild sets this for a driver of 580 or later that is built with UVM_RUST_WHOLE=0, where upstream's fault loop and
// eviction lists stay.
#![cfg_attr(uvm_native, allow(dead_code, unused_imports))]

mod driver;
mod ffi;
// As public as the host crate needs it.
#[allow(dead_code, unreachable_pub)]
mod policy;

// Where policies look for memory; on the host it is policy/mem.rs.
#[allow(unused_imports)]
pub(crate) use ffi::mem;

/// What `pr_*!` puts before each line; `module!` would define it.
const __LOG_PREFIX: &[u8] = b"nvidia-uvm\0";
