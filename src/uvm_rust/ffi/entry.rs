// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How upstream's file operations come to Rust.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::{bindings, seam};
use crate::driver::{fdinfo, ioctl};
use core::ffi::{c_long, c_ulong};

super::check_exports!(uvm_rust_ioctl, uvm_rust_show_fdinfo);

#[no_mangle]
unsafe extern "C" fn uvm_rust_ioctl(
    filp: *mut bindings::file,
    cmd: u32,
    arg: c_ulong,
    result: *mut c_long,
) -> bool {
    // SAFETY: I-call.
    let file = unsafe { seam::File::new(filp) };
    let Some(answer) = ioctl::answer(&file, cmd, arg as usize) else {
        return false;
    };
    // SAFETY: I-call: C gives a place for it.
    unsafe { result.write(answer) };
    true
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_show_fdinfo(seq: *mut bindings::seq_file, filp: *mut bindings::file) {
    // SAFETY: I-call.
    let (file, mut out) = unsafe { (seam::File::new(filp), seam::SeqFile::new(seq)) };
    // An overflow makes seq_file call again with more room.
    let _ = fdinfo::show(&file, &mut out);
}
