// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The C functions of `include/uvmrust.h`, where they are described.
//!
//! A null array with a count of 0 is allowed; null with another count is
//! [`Error::Invalid`].

mod buffers;
mod moves;

use core::ffi::{c_char, c_int, c_uint, c_void};

use uvmrust::cuda::Stream;
use uvmrust::{Backend, Error, Mode, Outcome, Place, Range, Result, Uvm};

/// `struct uvmrust_result`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CResult {
    done: usize,
    blocks_discarded: u64,
    blocks_skipped: u64,
    blocks_partial: u64,
    counted: c_int,
}

/// `UVMRUST_LAZY`.
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

/// # Safety
/// See `uvmrust.h`: nobody needs the contents, and the memory is the caller's.
#[no_mangle]
pub unsafe extern "C" fn UvmDiscard(base: *mut c_void, length: usize) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { Uvm::process().discard(Range::new(base, length), Mode::Eager) })
}

/// # Safety
/// As [`UvmDiscard`], and prefetched before the next access.
#[no_mangle]
pub unsafe extern "C" fn UvmDiscardLazy(base: *mut c_void, length: usize) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { Uvm::process().discard(Range::new(base, length), Mode::Lazy) })
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
    // SAFETY: by our contract.
    let place = unsafe { place(gpu_uuid) };
    code(Uvm::process().prefetch(Range::new(base, length), place))
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
    // SAFETY: by our contract.
    code(unsafe {
        Uvm::process().prefetch_async(Range::new(base, length), place(gpu_uuid), stream)
    })
}

/// # Safety
/// As [`UvmDiscard`] and [`UvmPrefetch`].
#[no_mangle]
pub unsafe extern "C" fn UvmDiscardAndPrefetch(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> c_int {
    let range = Range::new(base, length);
    // SAFETY: by our contract.
    code(unsafe { Uvm::process().discard_and_prefetch(range, place(gpu_uuid)) })
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
        let uvm = Uvm::process();
        // SAFETY: by our contract.
        let (discarded, place) = unsafe {
            let mut outcome = Outcome::default();
            (
                uvm.discard_batch(ranges, Mode::Lazy, &mut outcome),
                place(gpu_uuid),
            )
        };
        // Where the discard failed half-way, the first ranges still need it.
        let prefetched = match discarded {
            Err(Error::NotSupported) => Ok(()),
            _ => ranges
                .iter()
                .try_for_each(|range| uvm.prefetch(*range, place)),
        };
        discarded.and(prefetched)
    }))
}

#[no_mangle]
extern "C" fn UvmRustUseFd(fd: c_int) {
    Uvm::process().use_fd((fd >= 0).then_some(fd));
}

#[no_mangle]
extern "C" fn UvmRustBackend() -> c_int {
    Uvm::process().backend() as c_int
}

#[no_mangle]
extern "C" fn UvmRustBackendName(backend: c_int) -> *const c_char {
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
extern "C" fn UvmRustStrError(code: c_int) -> *const c_char {
    match (code, Error::from_code(code)) {
        (0, _) => c"success",
        (_, Some(error)) => error.message(),
        (_, None) => c"unknown error",
    }
    .as_ptr()
}

#[no_mangle]
extern "C" fn UvmRustStreamError() -> c_int {
    code(Uvm::process().take_stream_error())
}

/// # Safety
/// `uuid` is null or writable, 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn UvmRustDeviceUuid(ordinal: c_int, uuid: *mut [u8; 16]) -> c_int {
    code((|| {
        // SAFETY: by our contract.
        let out = unsafe { uuid.as_mut() }.ok_or(Error::Invalid)?;
        let cuda = Uvm::process().cuda().ok_or(Error::NotSupported)?;
        *out = cuda.uuid(ordinal)?;
        Ok(())
    })())
}
