// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The calls of `include/uvmrust.h`, where they are described: discard, prefetch, and both; of
//! one range and of several; at once and in the order of a stream.

use core::ffi::{c_int, c_uint, c_void};

use uvmrust::cuda::Stream;
use uvmrust::{Error, Outcome, Range, Result, Uvm};

use crate::batch::{read, CBatch, COutcome, Out};
use crate::{code, mode, place};

/// Says what is wrong with the ranges before any is worked on.
fn all_good(ranges: &[Range]) -> Result<()> {
    ranges
        .iter()
        .try_for_each(|range| range.shrunk().map(|_| ()))
}

// At once

/// # Safety
/// See `uvmrust.h`: nobody needs the contents, and the memory is the caller's; with `UVMRUST_LAZY`
/// it is prefetched before the next access.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard(base: *mut c_void, length: usize, flags: c_uint) -> c_int {
    let range = Range::new(base, length);
    // SAFETY: by our contract.
    code(mode(flags).and_then(|mode| unsafe { Uvm::process().discard(range, mode) }))
}

/// # Safety
/// As [`uvmrust_discard`] for each range; both structures are as long as they say, and `outcome`
/// may be null.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard_batch(
    batch: *const CBatch,
    outcome: *mut COutcome,
) -> c_int {
    // SAFETY: by our contract.
    let out = match unsafe { Out::new(outcome) } {
        Ok(out) => out,
        Err(error) => return error.code(),
    };
    let mut outcome = Outcome::default();
    // SAFETY: by our contract.
    let done = unsafe { read(batch) }.and_then(|batch| {
        all_good(&batch.ranges)?;
        let mode = mode(batch.flags()?)?;
        // SAFETY: by our contract.
        unsafe { Uvm::process().discard_batch(&batch.ranges, mode, &mut outcome) }
    });
    out.write(&outcome);
    code(done)
}

/// # Safety
/// `gpu_uuid` is null or points to 16 bytes; no discard of the memory comes at the same time.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_prefetch(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> c_int {
    // SAFETY: by our contract.
    let place = unsafe { place(gpu_uuid) };
    code(Uvm::process().prefetch(Range::new(base, length), place))
}

/// # Safety
/// As [`uvmrust_prefetch`] for each range; the structure is as long as it says.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_prefetch_batch(batch: *const CBatch) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { read(batch) }.and_then(|batch| {
        let place = batch.place()?;
        Uvm::process().prefetch_batch(&batch.ranges, place)
    }))
}

/// # Safety
/// As [`uvmrust_discard`] and [`uvmrust_prefetch`].
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard_and_prefetch(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> c_int {
    let range = Range::new(base, length);
    // SAFETY: by our contract.
    code(unsafe { Uvm::process().discard_and_prefetch(range, place(gpu_uuid)) })
}

/// # Safety
/// As [`uvmrust_discard_and_prefetch`] for each range; the structure is as long as it says.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard_and_prefetch_batch(batch: *const CBatch) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { read(batch) }.and_then(|batch| {
        let place = batch.place()?;
        // SAFETY: by our contract.
        unsafe { Uvm::process().discard_and_prefetch_batch(&batch.ranges, place) }
    }))
}

// In the order of a stream

/// # Safety
/// As [`uvmrust_discard`], in the order of `stream`, which is one, and of which no other thread
/// begins or ends a capture meanwhile.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard_async(
    base: *mut c_void,
    length: usize,
    flags: c_uint,
    stream: Stream,
) -> c_int {
    let range = Range::new(base, length);
    // SAFETY: by our contract.
    code(
        mode(flags)
            .and_then(|mode| unsafe { Uvm::process().discard_async(&[range], mode, stream) }),
    )
}

/// # Safety
/// As [`uvmrust_discard_async`] for each range; the structure is as long as it says.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard_batch_async(
    batch: *const CBatch,
    stream: Stream,
) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { read(batch) }.and_then(|batch| {
        let mode = mode(batch.flags()?)?;
        // SAFETY: by our contract.
        unsafe { Uvm::process().discard_async(&batch.ranges, mode, stream) }
    }))
}

/// # Safety
/// As [`uvmrust_prefetch`], in the order of `stream`, as for [`uvmrust_discard_async`].
#[no_mangle]
pub unsafe extern "C" fn uvmrust_prefetch_async(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
    stream: Stream,
) -> c_int {
    let range = Range::new(base, length);
    // SAFETY: by our contract.
    code(unsafe { Uvm::process().prefetch_async(range, place(gpu_uuid), stream) })
}

/// # Safety
/// As [`uvmrust_prefetch_async`] for each range; the structure is as long as it says.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_prefetch_batch_async(
    batch: *const CBatch,
    stream: Stream,
) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { read(batch) }.and_then(|batch| {
        let place = batch.place()?;
        // SAFETY: by our contract.
        unsafe { Uvm::process().prefetch_batch_async(&batch.ranges, place, stream) }
    }))
}

/// # Safety
/// As [`uvmrust_discard_async`] and [`uvmrust_prefetch_async`].
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard_and_prefetch_async(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
    stream: Stream,
) -> c_int {
    let range = Range::new(base, length);
    // SAFETY: by our contract.
    code(unsafe { Uvm::process().discard_and_prefetch_async(range, place(gpu_uuid), stream) })
}

/// # Safety
/// As [`uvmrust_discard_and_prefetch_async`] for each range; the structure is as long as it says.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_discard_and_prefetch_batch_async(
    batch: *const CBatch,
    stream: Stream,
) -> c_int {
    // SAFETY: by our contract.
    code(unsafe { read(batch) }.and_then(|batch| {
        let place = batch.place()?;
        // SAFETY: by our contract.
        unsafe { Uvm::process().discard_and_prefetch_batch_async(&batch.ranges, place, stream) }
    }))
}

// About this process, and errors

/// `UVMRUST_VERSION`: grows with each call or field that is added.
const VERSION: c_uint = 3;

#[no_mangle]
extern "C" fn uvmrust_version() -> c_uint {
    VERSION
}

#[no_mangle]
pub(crate) extern "C" fn uvmrust_backend() -> c_int {
    Uvm::process().backend() as c_int
}

#[no_mangle]
pub(crate) extern "C" fn uvmrust_use_fd(fd: c_int) {
    Uvm::process().use_fd((fd >= 0).then_some(fd));
}

#[no_mangle]
pub(crate) extern "C" fn uvmrust_stream_error() -> c_int {
    code(Uvm::process().take_stream_error())
}

/// # Safety
/// `uuid` is null or writable, 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_device_uuid(ordinal: c_int, uuid: *mut [u8; 16]) -> c_int {
    code((|| {
        // SAFETY: by our contract.
        let out = unsafe { uuid.as_mut() }.ok_or(Error::Invalid)?;
        let cuda = Uvm::process().cuda().ok_or(Error::NotSupported)?;
        *out = cuda.uuid(ordinal)?;
        Ok(())
    })())
}
