// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The names that calls had before they all began with `uvmrust_`. They stay, as
//! `include/uvmrust.h` has them; [`UvmDiscard`] is also the name of a function of NVIDIA's, with
//! three arguments.

use core::ffi::{c_char, c_int, c_uint, c_void};

use uvmrust::cuda::Stream;
use uvmrust::{Outcome, Range, Uvm};

use crate::{array, code, mode, place};

/// The layout of `struct uvmrust_result`, which version 1 of the header had and which never grows.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CResult {
    done: usize,
    blocks_discarded: u64,
    blocks_skipped: u64,
    blocks_partial: u64,
    counted: c_int,
}

/// # Safety
/// See `uvmrust.h`: nobody needs the contents, and the memory is the caller's.
#[no_mangle]
pub unsafe extern "C" fn UvmDiscard(base: *mut c_void, length: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::uvmrust_discard(base, length, 0) }
}

/// # Safety
/// As [`UvmDiscard`], and prefetched before the next access.
#[no_mangle]
pub unsafe extern "C" fn UvmDiscardLazy(base: *mut c_void, length: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::uvmrust_discard(base, length, crate::LAZY) }
}

/// # Safety
/// As [`UvmDiscard`] for each range; `ranges` has `count` elements; `result` is null
/// or writable.
#[no_mangle]
pub unsafe extern "C" fn UvmDiscardBatch(
    ranges: *const Range,
    count: usize,
    flags: c_uint,
    result: *mut CResult,
) -> c_int {
    let mut outcome = Outcome::default();
    // SAFETY: by our contract.
    let done = mode(flags).and_then(|mode| unsafe {
        Uvm::process().discard_batch(array(ranges, count)?, mode, &mut outcome)
    });
    if !result.is_null() {
        let filled = CResult {
            done: outcome.done,
            blocks_discarded: outcome.blocks_discarded,
            blocks_skipped: outcome.blocks_skipped,
            blocks_partial: outcome.blocks_partial,
            counted: outcome.counted.into(),
        };
        // SAFETY: by our contract.
        unsafe { result.write(filled) };
    }
    code(done)
}

/// # Safety
/// As [`UvmDiscardBatch`], in the order of `stream`, a stream of the current context.
#[no_mangle]
pub unsafe extern "C" fn UvmDiscardBatchAsync(
    ranges: *const Range,
    count: usize,
    flags: c_uint,
    stream: Stream,
) -> c_int {
    // SAFETY: by our contract.
    code(mode(flags).and_then(|mode| unsafe {
        Uvm::process().discard_async(array(ranges, count)?, mode, stream)
    }))
}

/// # Safety
/// `gpu_uuid` is null or points to 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn UvmPrefetch(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::uvmrust_prefetch(base, length, gpu_uuid) }
}

/// # Safety
/// As [`UvmPrefetch`]; `stream` is a stream of the current context.
#[no_mangle]
pub unsafe extern "C" fn UvmPrefetchAsync(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
    stream: Stream,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::uvmrust_prefetch_async(base, length, gpu_uuid, stream) }
}

/// # Safety
/// As [`UvmDiscard`] and [`UvmPrefetch`].
#[no_mangle]
pub unsafe extern "C" fn UvmDiscardAndPrefetch(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::uvmrust_discard_and_prefetch(base, length, gpu_uuid) }
}

/// # Safety
/// As [`UvmDiscardAndPrefetch`] for each range; `ranges` has `count` elements.
#[no_mangle]
pub unsafe extern "C" fn UvmDiscardAndPrefetchBatch(
    ranges: *const Range,
    count: usize,
    gpu_uuid: *const [u8; 16],
) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { array(ranges, count) }.and_then(|ranges| {
        // SAFETY: by our contract.
        unsafe { Uvm::process().discard_and_prefetch_batch(ranges, place(gpu_uuid)) }
    }))
}

#[no_mangle]
extern "C" fn UvmRustUseFd(fd: c_int) {
    crate::calls::uvmrust_use_fd(fd);
}

#[no_mangle]
extern "C" fn UvmRustBackend() -> c_int {
    crate::calls::uvmrust_backend()
}

#[no_mangle]
extern "C" fn UvmRustStreamError() -> c_int {
    crate::calls::uvmrust_stream_error()
}

/// # Safety
/// `uuid` is null or writable, 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn UvmRustDeviceUuid(ordinal: c_int, uuid: *mut [u8; 16]) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::uvmrust_device_uuid(ordinal, uuid) }
}

#[no_mangle]
extern "C" fn UvmRustBackendName(backend: c_int) -> *const c_char {
    crate::uvmrust_backend_name(backend)
}

#[no_mangle]
extern "C" fn UvmRustStrError(code: c_int) -> *const c_char {
    crate::uvmrust_strerror(code)
}
