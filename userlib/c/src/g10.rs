// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The names that moves and buffers had before they began with `uvmrust_`: G10's (§4.4 of the paper).
//! They stay, as `include/uvmrust.h` has them.

use core::ffi::{c_int, c_void};

use uvmrust::cuda::Stream;

/// # Safety
/// As for [`crate::moves::uvmrust_move_in`].
#[no_mangle]
pub unsafe extern "C" fn g10_prefetch(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> i64 {
    // SAFETY: the same contract.
    unsafe { crate::moves::uvmrust_move_in(base, length, gpu_uuid) }
}

#[no_mangle]
extern "C" fn g10_pre_evict(base: *mut c_void, length: usize, to: c_int) -> i64 {
    crate::moves::uvmrust_move_out(base, length, to)
}

/// # Safety
/// As for [`crate::buffers::uvmrust_buffer_alloc`].
#[no_mangle]
pub unsafe extern "C" fn g10_alloc(
    out: *mut *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> i64 {
    // SAFETY: the same contract.
    unsafe { crate::buffers::uvmrust_buffer_alloc(out, length, gpu_uuid) }
}

/// # Safety
/// As for [`crate::buffers::uvmrust_buffer_free`].
#[no_mangle]
pub unsafe extern "C" fn g10_free(buffer: *mut c_void, stream: Stream) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::buffers::uvmrust_buffer_free(buffer, stream) }
}

#[no_mangle]
extern "C" fn g10_done() -> i64 {
    crate::moves::uvmrust_moves_done()
}

#[no_mangle]
extern "C" fn g10_wait(ticket: i64, milliseconds: c_int) -> c_int {
    crate::moves::uvmrust_moves_wait(ticket, milliseconds)
}

#[no_mangle]
extern "C" fn g10_error() -> c_int {
    crate::moves::uvmrust_moves_error()
}
