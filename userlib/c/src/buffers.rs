// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! G10's g10_alloc and g10_free (§4.3), for C: [`uvmrust_buffer_alloc`] and [`uvmrust_buffer_free`].
//! Neither waits: memory comes to the GPU while earlier kernels run, and what is freed is discarded in the order of a stream, so that
//! the driver takes it back without a copy. CUDA frees managed memory in no stream's
//! order, so addresses are kept for the next allocation of the same size: a training
//! step asks for the same sizes again and again.

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use uvmrust::cuda::{check, Cuda, Stream};
use uvmrust::{Error, Mode, PerProcess, Range, Result, Uvm};

use crate::moves::to_gpu;

/// `CU_MEM_ATTACH_GLOBAL`: any stream on any device may use the memory.
const ATTACH_GLOBAL: u32 = 1;

/// The buffers of the process, by address, with their lengths.
#[derive(Default)]
struct Buffers {
    /// Buffers that the program has and has not given to [`uvmrust_buffer_free`].
    used: HashMap<u64, u64>,
    /// Freed, but their streams have not come there yet.
    leaving: HashMap<u64, Leaving>,
    /// Addresses to use again, by length.
    free: HashMap<u64, Vec<u64>>,
    /// What may be lazily discarded, so that the next owner's writes would be lost: for CUDA.
    spoiled: Vec<u64>,
}

/// A buffer that a stream is to discard.
struct Leaving {
    length: u64,
    /// [`Uvm::failed_discards`] before its own was queued.
    failed: u64,
}

/// A parent's memory is not in its child.
static BUFFERS: PerProcess<Mutex<Buffers>> = PerProcess::new(Mutex::default);

/// Runs `work` on the buffers. No call of CUDA in there: one that waits for a stream would
/// wait for [`has_left`], which wants the lock.
fn with<T>(work: impl FnOnce(&mut Buffers) -> T) -> T {
    let buffers = BUFFERS.get().lock();
    work(&mut buffers.unwrap_or_else(PoisonError::into_inner))
}

fn cuda() -> Result<&'static Cuda> {
    Uvm::process().cuda().ok_or(Error::NotSupported)
}

/// # Safety
/// `out` is null or writable; `gpu_uuid` is null or points to 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_buffer_alloc(
    out: *mut *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> i64 {
    // SAFETY: by our contract.
    let (out, uuid) = unsafe { (out.as_mut(), gpu_uuid.as_ref()) };
    // Before there is memory that nobody would know of.
    let Some(out) = out else {
        return Error::Invalid.code().into();
    };
    let range = match alloc(length) {
        Ok(range) => range,
        Err(error) => return error.code().into(),
    };
    *out = range.base as *mut c_void;
    match uuid {
        // Advice: what cannot be moved is there all the same.
        Some(uuid) => to_gpu(range, *uuid).map_or(0, |ticket| ticket.0 as i64),
        None => 0,
    }
}

fn alloc(length: usize) -> Result<Range> {
    // What a parent has kept is not mapped in its child, and its lock may be taken.
    Uvm::process().not_forked()?;
    let range = Range {
        base: 0,
        length: length as u64,
    };
    let length = range.grown()?.length;
    if length == 0 {
        return Err(Error::Invalid);
    }
    free_spoiled();
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
    let cuda = cuda()?;
    let call = cuda.mem_alloc_managed().ok_or(Error::NotSupported)?;
    let mut base = 0;
    // SAFETY: the output is writable.
    check(cuda.unordered(|| unsafe { call(&mut base, length as usize, ATTACH_GLOBAL) }))?;
    Ok(base)
}

/// Gives what [`allocate`] gave back to CUDA.
///
/// # Safety
/// Nobody uses it, nor does a stream.
unsafe fn release(base: u64) -> Result<()> {
    let cuda = cuda()?;
    let call = cuda.mem_free().ok_or(Error::NotSupported)?;
    // SAFETY: from cuMemAllocManaged, and by our contract.
    check(cuda.unordered(|| unsafe { call(base) }))
}

/// Gives back to CUDA what may be lazily discarded. A host function must not.
fn free_spoiled() {
    for base in with(|b| core::mem::take(&mut b.spoiled)) {
        // SAFETY: it is in no list, and its stream is done with it.
        if unsafe { release(base) }.is_err() {
            // It is still there.
            with(|b| b.spoiled.push(base));
        }
    }
}

/// Frees the addresses that nobody uses.
fn give_back() -> Result<()> {
    let all: Vec<(u64, u64)> = with(|b| {
        let lists = b.free.drain();
        lists
            .flat_map(|(length, bases)| bases.into_iter().map(move |base| (length, base)))
            .collect()
    });
    let mut done = Ok(());
    for (length, base) in all {
        // SAFETY: it is in no list any more, and nobody had it from one.
        let freed = unsafe { release(base) };
        if freed.is_err() {
            // It is still there.
            with(|b| b.free.entry(length).or_default().push(base));
            done = done.and(freed);
        }
    }
    done
}

/// # Safety
/// `stream` is a stream of the current context, or null; nothing after this in it, and
/// nothing at any time in others, uses the buffer.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_buffer_free(buffer: *mut c_void, stream: Stream) -> c_int {
    let base = buffer as u64;
    if let Err(error) = Uvm::process().not_forked() {
        return error.code();
    }
    let failed = Uvm::process().failed_discards();
    let Some(length) = with(|b| {
        let length = b.used.remove(&base)?;
        b.leaving.insert(base, Leaving { length, failed });
        Some(length)
    }) else {
        return Error::Invalid.code();
    };
    // SAFETY: by our contract.
    match unsafe { leave(Range { base, length }, stream) } {
        Ok(()) => 0,
        Err(error) => {
            // Not if it stays with nobody.
            if error.buffer_is_usable {
                with(|b| {
                    b.leaving.remove(&base);
                    b.used.insert(base, length);
                });
            }
            error.why.code()
        }
    }
}

/// Why a buffer was not freed.
struct NotFreed {
    why: Error,
    /// Nothing that was queued for it is still to come. Where CUDA cannot even wait for
    /// that, the buffer stays in `leaving` for good: a discard would hit its next owner.
    buffer_is_usable: bool,
}

impl From<Error> for NotFreed {
    fn from(why: Error) -> Self {
        Self {
            why,
            buffer_is_usable: true,
        }
    }
}

/// Discards the buffer in the stream's order, or waits for the stream and frees it.
///
/// # Safety
/// `stream` and what uses the buffer are as [`uvmrust_buffer_free`] asks.
unsafe fn leave(range: Range, stream: Stream) -> core::result::Result<(), NotFreed> {
    let cuda = cuda()?;
    if !cfg!(broken = "1") {
        // A graph would take the buffer back at each launch, whoever has it by then.
        // SAFETY: by our contract.
        unsafe { cuda.not_captured(stream)? };
    }
    // SAFETY: by our contract: nobody reads it after this point of the stream.
    match unsafe { Uvm::process().discard_async(&[range], Mode::Eager, stream) } {
        // SAFETY: the data is a number, good for ever; the stream by our contract.
        Ok(()) => unsafe {
            let queued = cuda.host_func(stream, has_left, range.base as *mut c_void);
            // The discard comes all the same, and must not when the buffer is in use.
            queued.map_err(|why| match cuda.drain(stream) {
                Ok(()) => why.into(),
                Err(_) => NotFreed {
                    why: Error::Driver,
                    buffer_is_usable: false,
                },
            })
        },
        // Then the memory can only be had back by waiting.
        Err(Error::NotSupported) => {
            let free = cuda.mem_free().ok_or(Error::NotSupported)?;
            // SAFETY: by our contract; the stream is done with the buffer.
            unsafe {
                cuda.drain(stream)?;
                check(cuda.unordered(|| free(range.base)))?;
            }
            with(|b| b.leaving.remove(&range.base));
            Ok(())
        }
        // The discard may still come where CUDA could neither keep its order nor wait for it.
        Err(Error::Driver) => Err(NotFreed {
            why: Error::Driver,
            buffer_is_usable: false,
        }),
        Err(error) => Err(error.into()),
    }
}

/// The stream has passed the discard: the address may be used again, if no discard has failed
/// meanwhile. It may have been another buffer's, which costs no more than an allocation.
unsafe extern "C" fn has_left(base: *mut c_void) {
    let failed = Uvm::process().failed_discards();
    with(|b| match b.leaving.remove(&(base as u64)) {
        Some(buffer) if buffer.failed == failed => {
            b.free.entry(buffer.length).or_default().push(base as u64);
        }
        Some(_) => b.spoiled.push(base as u64),
        None => {}
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if another thread had the buffers at the fork, and never gave them back.
    #[test]
    fn a_child_does_not_wait_for_its_parents_threads() {
        // SAFETY: the child ends soon, one way or the other.
        let child = with(|_| match unsafe { libc::fork() } {
            0 => {
                // SAFETY: as above.
                unsafe { libc::alarm(10) };
                let empty = with(|buffers| buffers.used.is_empty());
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(empty)) }
            }
            child => child,
        });
        let mut status = 0;
        // SAFETY: the output is writable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "it waits for ever: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 1);
    }
}
