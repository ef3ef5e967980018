// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The `kernel` crate for kernels that come without one.
//!
//! Our driver and the software GPU are written against Rust-for-Linux's crate of
//! this name, as Linux 6.12 has it. Where a kernel was built with `CONFIG_RUST` and
//! its headers carry that crate's metadata, it is used; elsewhere this one is linked
//! in. It offers the same names with the same meanings, as far as `src/uvm_rust` and
//! `tests/vgpu` use them, and nothing more: what is missing fails to compile.
//!
//! - Memory: [`alloc`], with `Box` and `Vec` whose growth can fail.
//! - Sharing and waiting: [`sync`], each lock with a lockdep class of its own.
//! - Objects that are made in place and then stay there: [`init`], [`macro@pin_data`].
//! - The boundary to user space and to C: [`uaccess`], [`types`], [`error`].
//!
//! What only C can do (inline functions, macros) is in `c/helpers.c`; what only the C
//! compiler knows of this kernel (sizes of locks, flags) it writes into a file that
//! `layout.rs` includes. On the host both have stand-ins, so that the crate's tests
//! run there and under Miri. Kbuild compiles with `--cfg MODULE`, cargo without.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]
#![warn(missing_docs)]

#[cfg(not(MODULE))]
extern crate std;

pub mod alloc;
pub mod bindings;
pub mod error;
mod helpers;
pub mod init;
mod layout;
pub mod page;
#[cfg(MODULE)]
mod panic;
pub mod prelude;
pub mod print;
pub mod sync;
pub mod time;
pub mod types;
pub mod uaccess;

pub use kernel_macros::pin_data;

/// What the tests of this crate may ask of the host's stand-ins for C.
#[cfg(not(MODULE))]
pub use helpers::testing;
