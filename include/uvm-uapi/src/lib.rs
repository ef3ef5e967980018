// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The headers in `include/uapi` as Rust: `uvm_rust_ioctl.h`, which is what uvm-rust adds to /dev/nvidia-uvm, and
//! `vgpu.h`, which is /dev/vgpu.
//!
//! `scripts/bindings.sh` writes the module, with bindgen, and `host/bindings` of `make test-host` fails where it is
//! not of the headers that are there. Names are those of C, and so are the comments. Sizes and offsets are
//! checked when the crate is compiled. The number of a call is the argument of ioctl(2) that is next to the descriptor.

#![no_std]

#[allow(missing_docs, non_camel_case_types, rustdoc::all, clippy::all)]
mod bindings;
pub use bindings::*;
