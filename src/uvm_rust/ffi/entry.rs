// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How upstream's ioctl dispatch comes to Rust.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::{bindings, seam};
use crate::driver::ioctl;
use core::ffi::{c_long, c_ulong};

super::check_exports!(uvm_test_ioctl);

#[no_mangle]
unsafe extern "C" fn uvm_test_ioctl(filp: *mut bindings::file, cmd: u32, arg: c_ulong) -> c_long {
    // SAFETY: I-call.
    let file = unsafe { seam::File::new(filp) };
    ioctl::answer(&file, cmd, arg as usize).unwrap_or_else(|| {
        // SAFETY: I-call.
        unsafe { bindings::uvm_test_ioctl__c(filp, cmd, arg) }
    })
}
