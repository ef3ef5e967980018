// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The Rust part of `vgpu.ko`: the emulator, and what C calls of it.
//!
//! - [`emu`]: the GPU, the same code as on the host (`../core`);
//! - [`machine`]: the kernel's memory, clock and log for it;
//! - [`entry`]: the boundary to C; the other side is `vgpu_rs.h`.

// The kernel promises less than the 1.85 that this project asks for.
#![allow(clippy::incompatible_msrv)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]
// The emulator's crate is a library; here parts of its interface have no user.
#![allow(dead_code, unreachable_pub, unused_imports)]

#[path = "../core/emu.rs"]
mod emu;
mod entry;
mod machine;
mod mem;

/// What `pr_*!` puts before each line; `module!` would define it.
const __LOG_PREFIX: &[u8] = b"vgpu\0";
