// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How upstream's ioctl dispatch comes to Rust.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::{bindings, seam};
use crate::driver::{discard, ioctl};
use core::ffi::{c_long, c_ulong};
use kernel::prelude::*;

super::check_exports!(uvm_test_ioctl);

#[no_mangle]
unsafe extern "C" fn uvm_test_ioctl(filp: *mut bindings::file, cmd: u32, arg: c_ulong) -> c_long {
    // SAFETY: I-call.
    let file = unsafe { seam::File::new(filp) };
    // An upstream with a discard of its own answers its own numbers.
    #[cfg(not(uvm_native))]
    {
        if let Some(result) = discard::dispatch(&file, cmd, arg as usize) {
            return result.map_or_else(|e| e.to_errno().into(), |()| 0);
        }
    }
    // After a fatal error nothing is done any more, so ask before doing it.
    if ioctl::is_ours(cmd) && !seam::healthy() {
        return EIO.to_errno().into();
    }
    match ioctl::dispatch(&file, cmd, arg as usize) {
        // SAFETY: I-call.
        None => unsafe { bindings::uvm_test_ioctl__c(filp, cmd, arg) },
        Some(Ok(())) => 0,
        Some(Err(e)) => e.to_errno().into(),
    }
}
