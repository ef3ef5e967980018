// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `LD_PRELOAD` library for unmodified CUDA programs, PyTorch among them (the
//! runtime of `DeepUM` §3.1):
//!
//! - device memory becomes managed memory (`memory.rs`), so that a program may use
//!   more than the GPU has;
//! - each kernel launch is hashed by name and arguments (`kernels.rs`) into an
//!   execution ID, which the driver is told in the order of the stream, just before
//!   the kernel (`announce.rs`), unless it is short (`groups.rs`);
//! - a plan is carried out before each kernel (`planned.rs`, and `followed.rs` for a plan
//!   that was made of a record of the program);
//! - allocations and launches are written to a record (`record.rs`).
//!
//! The library stands in CUDA's driver API. The runtime, cuBLAS and cuDNN, linked
//! statically or not, get the driver's functions with dlsym and cuGetProcAddress, and
//! `interpose.rs` stands in both.
//!
//! Environment variables: `config.rs`.

#[cfg_attr(test, allow(dead_code))]
mod announce;
mod config;
#[cfg_attr(test, allow(dead_code))]
mod counts;
mod elf;
#[cfg_attr(test, allow(dead_code))]
mod followed;
mod groups;
#[cfg_attr(test, allow(dead_code))]
mod hooks;
#[cfg(not(test))]
mod interpose;
mod kernels;
#[cfg_attr(test, allow(dead_code))]
mod mapped;
#[cfg_attr(test, allow(dead_code))]
mod memory;
#[cfg_attr(test, allow(dead_code))]
mod planned;
#[cfg_attr(test, allow(dead_code))]
mod pointers;
#[cfg_attr(test, allow(dead_code))]
mod pools;
#[cfg_attr(test, allow(dead_code))]
mod real;
#[cfg_attr(test, allow(dead_code))]
mod record;
mod say;
