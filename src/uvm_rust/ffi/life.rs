// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What there is as long as the module is.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::{alarm, flash, prefetch, tenant};
use crate::driver::life;

super::check_exports!(uvm_rust_init, uvm_rust_exit);

#[no_mangle]
unsafe extern "C" fn uvm_rust_init() -> u32 {
    life::init()
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_exit() {
    // SAFETY: the module goes: no VA space exists, and no call is under way.
    unsafe {
        flash::exit();
        prefetch::WORKERS.end();
        prefetch::exit();
        alarm::RINGERS.end();
        tenant::exit();
    }
}
