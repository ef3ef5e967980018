// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The C functions of `include/uvmrust.h`, where they are described.
//!
//! A null array with a count of 0 is allowed; null with another count is
//! [`Error::Invalid`].

mod batch;
mod buffers;
mod calls;
mod g10;
mod moves;
mod old;

pub use batch::{CBatch, COutcome};
pub use calls::*;
pub use old::*;

use core::ffi::{c_char, c_int, c_uint};

use uvmrust::{Backend, Error, Mode, Place, Range, Result};

/// `UVMRUST_LAZY`, the only flag of a discard.
const LAZY: c_uint = 1;

fn code(result: Result<()>) -> c_int {
    result.err().map_or(0, Error::code)
}

fn mode(flags: c_uint) -> Result<Mode> {
    match flags {
        0 => Ok(Mode::Eager),
        LAZY => Ok(Mode::Lazy),
        _ => Err(Error::Invalid),
    }
}

/// # Safety
/// `ranges` is null or points to `count` ranges that stay as they are for 'a.
unsafe fn array<'a>(ranges: *const Range, count: usize) -> Result<&'a [Range]> {
    match (ranges.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Invalid),
        // No array is longer than half the address space.
        (_, n) if n > isize::MAX as usize / size_of::<Range>() => Err(Error::Invalid),
        // SAFETY: by our contract, and checked as far as can be.
        (false, n) => Ok(unsafe { core::slice::from_raw_parts(ranges, n) }),
    }
}

/// # Safety
/// `uuid` is null or points to 16 bytes.
unsafe fn place(uuid: *const [u8; 16]) -> Place {
    // SAFETY: by our contract.
    unsafe { uuid.as_ref() }.map_or(Place::Host, |uuid| Place::Gpu(*uuid))
}

#[no_mangle]
extern "C" fn uvmrust_backend_name(backend: c_int) -> *const c_char {
    const NAMES: [(Backend, &core::ffi::CStr); 4] = [
        (Backend::None, c"none"),
        (Backend::UvmRust, c"uvm-rust"),
        (Backend::Native, c"nvidia-uvm"),
        (Backend::Cuda, c"cuda"),
    ];
    let name = NAMES.iter().find(|(known, _)| *known as c_int == backend);
    name.map_or(c"unknown", |(_, name)| name).as_ptr()
}

#[no_mangle]
extern "C" fn uvmrust_strerror(code: c_int) -> *const c_char {
    match (code, Error::from_code(code)) {
        (0, _) => c"success",
        (_, Some(error)) => error.message(),
        (_, None) => c"unknown error",
    }
    .as_ptr()
}
