// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Rust that panics when it is told to, linked into `uvm_rust_panic.ko`.

use kernel::prelude::*;

/// What `pr_*!` puts before each line; `module!` would define it.
const __LOG_PREFIX: &[u8] = b"uvm_rust_panic\0";

const SQUARES: [u64; 3] = [0, 1, 4];

/// The square of `index`. Called by main.c.
///
/// # Panics
///
/// If `index` is 3 or more: that is what this module is for.
#[no_mangle]
pub extern "C" fn uvm_rust_panic_square(index: usize) -> u64 {
    pr_info!("looking up the square of {index}\n");
    SQUARES[index]
}
