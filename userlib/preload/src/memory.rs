// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Device memory that becomes managed memory.
//!
//! Not touched: memory pools and virtual memory management (`cuMemCreate`), arrays,
//! and what is smaller than the threshold. A program that shares device memory with
//! another process (`cuIpcGetMemHandle`) needs `UVMRUST_MANAGED=0`.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxBuildHasher;
use uvmrust::cuda::{Cuda, Stream};

use crate::config::Config;
use crate::planned;
use crate::real::{Code, Real, SUCCESS};

/// `CU_MEM_ATTACH_GLOBAL`
const ATTACH_GLOBAL: u32 = 1;
/// `CUDA_ERROR_NOT_FOUND`
const NOT_FOUND: Code = 500;
/// Bytes to which rows are aligned; CUDA's own choice on all GPUs with UVM.
const PITCH: usize = 512;

/// Addresses that we have made managed.
static MANAGED: Mutex<HashSet<u64, FxBuildHasher>> =
    Mutex::new(HashSet::with_hasher(FxBuildHasher));

fn with<T>(work: impl FnOnce(&mut HashSet<u64, FxBuildHasher>) -> T) -> T {
    work(&mut MANAGED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Managed memory instead of `size` bytes of device memory. `None`: leave it to
/// CUDA, since it is too small or there is none.
///
/// # Safety
/// `out` is writable.
pub(crate) unsafe fn alloc(real: &Real, out: *mut u64, size: usize) -> Option<Code> {
    let min = Config::get().managed_min?;
    let call = real.cuda.mem_alloc_managed?;
    if size < min || out.is_null() {
        return None;
    }
    let mut base = 0;
    // SAFETY: the output is writable.
    if unsafe { call(&mut base, size, ATTACH_GLOBAL) } != SUCCESS {
        return None;
    }
    with(|managed| managed.insert(base));
    planned::allocated(base, size);
    // SAFETY: by our contract.
    unsafe { out.write(base) };
    Some(SUCCESS)
}

/// The same for `height` rows of `width` bytes.
///
/// # Safety
/// `out` and `pitch` are writable.
pub(crate) unsafe fn alloc_pitch(
    real: &Real,
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> Option<Code> {
    let row = width.checked_next_multiple_of(PITCH)?;
    if pitch.is_null() {
        return None;
    }
    // SAFETY: by our contract.
    let done = unsafe { alloc(real, out, row.checked_mul(height)?) }?;
    // SAFETY: by our contract.
    unsafe { pitch.write(row) };
    Some(done)
}

/// Says that an address is free. CUDA frees both kinds of memory alike.
pub(crate) fn forget(base: u64) {
    planned::freed(base);
    with(|managed| managed.remove(&base));
}

/// Frees, after all that is in `stream`, memory that CUDA can not free in a stream's
/// order, being managed: so it waits for the stream. `None`: not ours.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(crate) unsafe fn free_async(real: &Real, base: u64, stream: Stream) -> Option<Code> {
    if !with(|managed| managed.remove(&base)) {
        return None;
    }
    planned::freed(base);
    let (synchronize, free) = (real.cuda.stream_synchronize?, real.free?);
    // SAFETY: by our contract; the address is from cuMemAllocManaged.
    unsafe {
        match synchronize(stream) {
            SUCCESS => Some(free(base)),
            error => {
                with(|managed| managed.insert(base));
                Some(error)
            }
        }
    }
}

/// Whether memory allocated in `stream` would become part of a graph.
///
/// # Safety
/// As for [`free_async`].
pub(crate) unsafe fn capturing(real: &Real, stream: Stream) -> bool {
    // SAFETY: by our contract.
    unsafe { is_capturing(&real.cuda, stream) }
}

/// Whether what is put into `stream` becomes part of a graph. An error counts as yes: then
/// nothing is to be put there.
///
/// # Safety
/// As for [`free_async`].
pub(crate) unsafe fn is_capturing(cuda: &Cuda, stream: Stream) -> bool {
    let mut status = 0;
    match cuda.stream_is_capturing {
        // SAFETY: the output is writable, the stream by our contract.
        Some(call) => unsafe { call(stream, &mut status) != SUCCESS || status != 0 },
        None => false,
    }
}

/// What a missing CUDA function returns.
pub(crate) const MISSING: Code = NOT_FOUND;
