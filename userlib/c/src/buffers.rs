// SPDX-License-Identifier: GPL-2.0 OR MIT

//! G10's g10_alloc and g10_free (§4.3), for C. Neither waits: memory comes to the GPU while
//! earlier kernels run, and what is freed is discarded in the order of a stream, so that
//! the driver takes it back without a copy. CUDA frees managed memory only by waiting for
//! the GPU, so addresses are kept for the next allocation of the same size: a training
//! step asks for the same sizes again and again.

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uvmrust::cuda::{check, Cuda, Stream};
use uvmrust::{Error, Mode, Range, Result, Uvm};

use crate::moves::to_gpu;

/// `CU_MEM_ATTACH_GLOBAL`
const ATTACH_GLOBAL: u32 = 1;

/// The buffers of the process, by address, with their lengths.
#[derive(Default)]
struct Buffers {
    /// The program's.
    used: HashMap<u64, u64>,
    /// Freed, but their streams have not come there yet.
    leaving: HashMap<u64, u64>,
    /// Addresses to use again, by length.
    free: HashMap<u64, Vec<u64>>,
}

static BUFFERS: Mutex<Option<Buffers>> = Mutex::new(None);

/// Runs `work` on the buffers. No call of CUDA in there: one that waits for a stream would
/// wait for [`has_left`], which wants the lock.
fn with<T>(work: impl FnOnce(&mut Buffers) -> T) -> T {
    let mut guard: MutexGuard<'_, _> = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    work(guard.get_or_insert_with(Buffers::default))
}

fn cuda() -> Result<&'static Cuda> {
    Uvm::process().cuda().ok_or(Error::NotSupported)
}

/// # Safety
/// `out` is null or writable; `gpu_uuid` is null or points to 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn g10_alloc(
    out: *mut *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> i64 {
    let done = alloc(length).and_then(|range| {
        // SAFETY: by our contract.
        let (out, uuid) = unsafe { (out.as_mut(), gpu_uuid.as_ref()) };
        *out.ok_or(Error::Invalid)? = range.base as *mut c_void;
        Ok((range, uuid))
    });
    match done {
        // Advice: what can not be moved is there all the same.
        Ok((range, Some(uuid))) => to_gpu(range, *uuid).map_or(0, |ticket| ticket.0 as i64),
        Ok((_, None)) => 0,
        Err(error) => error.code().into(),
    }
}

fn alloc(length: usize) -> Result<Range> {
    let range = Range {
        base: 0,
        length: length as u64,
    };
    let length = range.grown()?.length;
    if length == 0 {
        return Err(Error::Invalid);
    }
    let again = with(|b| {
        let base = b.free.get_mut(&length)?.pop()?;
        b.used.insert(base, length);
        Some(base)
    });
    if let Some(base) = again {
        return Ok(Range { base, length });
    }
    let base = match allocate(length) {
        Err(Error::NoMemory) => {
            give_back()?;
            allocate(length)
        }
        other => other,
    }?;
    with(|b| b.used.insert(base, length));
    Ok(Range { base, length })
}

fn allocate(length: u64) -> Result<u64> {
    let call = cuda()?.mem_alloc_managed.ok_or(Error::NotSupported)?;
    let mut base = 0;
    // SAFETY: the output is writable.
    check(unsafe { call(&mut base, length as usize, ATTACH_GLOBAL) })?;
    Ok(base)
}

/// Frees the addresses that nobody uses.
fn give_back() -> Result<()> {
    let free = cuda()?.mem_free.ok_or(Error::NotSupported)?;
    let bases: Vec<u64> = with(|b| b.free.drain().flat_map(|(_, bases)| bases).collect());
    for base in bases {
        // SAFETY: from cuMemAllocManaged, and out of the pool.
        check(unsafe { free(base) })?;
    }
    Ok(())
}

/// # Safety
/// `stream` is a stream of the current context, or null; nothing after this in it, and
/// nothing at any time in others, uses the buffer.
#[no_mangle]
pub unsafe extern "C" fn g10_free(buffer: *mut c_void, stream: Stream) -> c_int {
    let base = buffer as u64;
    let Some(length) = with(|b| {
        let length = b.used.remove(&base)?;
        b.leaving.insert(base, length);
        Some(length)
    }) else {
        return Error::Invalid.code();
    };
    // SAFETY: by our contract.
    match unsafe { leave(Range { base, length }, stream) } {
        Ok(()) => 0,
        Err(error) => {
            with(|b| {
                b.leaving.remove(&base);
                b.used.insert(base, length);
            });
            error.code()
        }
    }
}

/// # Safety
/// As [`g10_free`].
unsafe fn leave(range: Range, stream: Stream) -> Result<()> {
    let cuda = cuda()?;
    // SAFETY: by our contract: nobody reads it after this point of the stream.
    match unsafe { Uvm::process().discard_async(&[range], Mode::Eager, stream) } {
        // SAFETY: the data is a number, good for ever; the stream by our contract.
        Ok(()) => unsafe { cuda.host_func(stream, has_left, range.base as *mut c_void) },
        // Then the memory can only be had back by waiting.
        Err(Error::NotSupported) => {
            let free = cuda.mem_free.ok_or(Error::NotSupported)?;
            // SAFETY: by our contract; the stream is done with the buffer.
            unsafe {
                cuda.synchronize(stream)?;
                check(free(range.base))?;
            }
            with(|b| b.leaving.remove(&range.base));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The stream has passed the discard: the address may be used again.
unsafe extern "C" fn has_left(base: *mut c_void) {
    with(|b| {
        if let Some(length) = b.leaving.remove(&(base as u64)) {
            b.free.entry(length).or_default().push(base as u64);
        }
    });
}
