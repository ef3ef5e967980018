// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An allocator for `torch.cuda.memory.CUDAPluggableAllocator`: managed memory, so
//! that a model may be larger than the GPU, and what PyTorch frees is discarded, so
//! that it is not copied around (the invalidation of inactive PT blocks, `DeepUM`
//! §5.2).
//!
//! ```python
//! import ctypes
//! import torch
//!
//! path = "libuvmrust_torch.so"
//! allocator = torch.cuda.memory.CUDAPluggableAllocator(
//!     path, "uvmrust_torch_malloc", "uvmrust_torch_free")
//! library, calls = ctypes.CDLL(path), allocator.allocator()
//! address = lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value
//! calls.set_record_stream_fn(address("uvmrust_torch_record_stream"))
//! calls.set_reset_fn(address("uvmrust_torch_empty_cache"))
//! torch.cuda.memory.change_current_allocator(allocator)
//! ```
//!
//! before the first use of the GPU. Without a driver that discards it is an
//! allocator of managed memory, with a cache and nothing more; and so it is while all fits
//! the GPU. What is allocated while a CUDA graph is captured is kept for it until the process
//! ends, or, where PyTorch's functions for pools are set too, until the graph is gone.
//!
//! A block that was freed in a stream waits in that stream for its next use, or to be given
//! back, with the rest of its segment. So the stream of a `torch.cuda.ExternalStream` is destroyed
//! only after all that was allocated in it, or recorded for it, is freed, and
//! `torch.cuda.empty_cache()` was called after that.

mod allocator;
mod broken;
mod device;
mod graphs;
mod heap;
mod no_memory;
mod pressure;
mod sizes;
mod stats;
mod thread;

use core::ffi::{c_int, c_void};
use std::sync::OnceLock;

pub use allocator::Allocator;
pub use device::{Capture, CudaDevice, Device, Mark, Queue, StreamId};
pub use graphs::GraphPool;
pub use stats::{DeviceStats, Metric, Stats};
use uvmrust::{Error, Linux, Range, Result, Sys, Uvm};

static DEVICE: CudaDevice = CudaDevice::new();

/// The one allocator that all of the process's threads use.
static ALLOCATOR: Allocator<&CudaDevice> = Allocator::new(&DEVICE);

/// How many forks were behind the process that was the first to use a GPU by this allocator.
static BORN: OnceLock<u32> = OnceLock::new();

/// The allocator, for a call that uses a GPU. `None` in a child of a process that has done so: its
/// parent's memory is not there, and a lock may be taken for ever.
fn to_use() -> Option<&'static Allocator<&'static CudaDevice>> {
    let forks = Linux::new().forks();
    if *BORN.get_or_init(|| forks) != forks {
        return None;
    }
    Uvm::process().not_forked().ok()?;
    Some(&ALLOCATOR)
}

/// The allocator, for a call that has nothing to do before a GPU is used: so a child of a process
/// that only asks may use one.
fn in_use() -> Option<&'static Allocator<&'static CudaDevice>> {
    BORN.get()?;
    to_use()
}

fn malloc(size: usize, device: c_int, stream: *mut c_void) -> Result<u64> {
    let stream = StreamId(stream as usize);
    // CUDA gives none in such a child either.
    let allocator = to_use().ok_or(Error::NoContext)?;
    allocator.try_malloc(size, Queue { device, stream })
}

/// Memory of at least `size` bytes for use in `stream`, a stream of `device`. Its contents are
/// undefined.
///
/// If there is none, PyTorch's `OutOfMemoryError` is thrown, an exception of C++'s; after another
/// error of CUDA's, PyTorch's plain one. Null only in a process without PyTorch.
#[no_mangle]
pub extern "C-unwind" fn uvmrust_torch_malloc(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let mut base = 0;
    let code = attempt(size, device, stream, &mut base);
    if let Some(error) = Error::from_code(code) {
        no_memory::tell(size, device, error);
    }
    base as *mut c_void
}

/// [`malloc`], out of which no panic gets to C++: it ends the process here. Gives the code of an
/// error.
extern "C" fn attempt(size: usize, device: c_int, stream: *mut c_void, base: &mut u64) -> c_int {
    match malloc(size, device, stream) {
        Ok(address) => {
            *base = address;
            0
        }
        Err(error) => error.code(),
    }
}

/// [`uvmrust_torch_malloc`] for others than PyTorch: null if there is no memory.
#[no_mangle]
pub extern "C" fn uvmrust_torch_try_malloc(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let address = malloc(size, device, stream);
    address.map_or(core::ptr::null_mut(), |address| address as *mut c_void)
}

/// Gives memory back, for use after all that is now in the stream of the device for which
/// it was allocated. That device need not be current: PyTorch makes none current for a
/// free, and the memory's own is known from the allocation.
///
/// Memory of `cudaStreamPerThread` is for use after all that is in the own stream of the thread that
/// frees, and after all threads' work. What another thread's own stream only waits for, as that of
/// the thread that has allocated, is not counted: that one waits for it before the free.
#[no_mangle]
pub extern "C" fn uvmrust_torch_free(
    address: *mut c_void,
    _size: usize,
    _device: c_int,
    _stream: *mut c_void,
) {
    if !address.is_null() {
        in_use().inspect(|a| a.free(address as u64));
    }
}

/// Says that another stream uses the memory too: it is reused only when that is
/// done as far as it has come at the free. PyTorch does not say whose stream it is, and makes the
/// memory's device current first: the default stream is taken for those of all devices that the
/// process uses, and `cudaStreamPerThread` for the own streams of all threads, as
/// [`uvmrust_torch_free`] says. No stream waits for another device's default stream: the memory is free when that is seen to be done.
#[no_mangle]
pub extern "C" fn uvmrust_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
    in_use().inspect(|a| a.record_stream(address as u64, StreamId(stream as usize)));
}

/// [`uvmrust_torch_record_stream`] for who knows of which device the stream is.
#[no_mangle]
pub extern "C" fn uvmrust_torch_record_stream_on(
    address: *mut c_void,
    device: c_int,
    stream: *mut c_void,
) {
    let stream = StreamId(stream as usize);
    in_use().inspect(|a| a.record_stream_on(address as u64, Queue { device, stream }));
}

/// Waits until all is done that new work in a stream of a device would come behind, whichever device is
/// current. Returns 0, or a negative code of `uvmrust.h`, as while the stream is being captured.
#[no_mangle]
pub extern "C" fn uvmrust_torch_wait(device: c_int, stream: *mut c_void) -> c_int {
    let stream = StreamId(stream as usize);
    let waited = match to_use() {
        Some(_) => (&DEVICE).drain(Queue { device, stream }),
        None => Err(Error::NoContext),
    };
    waited.map_or_else(Error::code, |()| 0)
}

/// Gives free memory back to the system (for `torch.cuda.empty_cache`). Waits for
/// the GPU.
#[no_mangle]
pub extern "C" fn uvmrust_torch_empty_cache() {
    in_use().inspect(|a| a.empty_cache());
}

/// Gives free memory back to the system until no more than `keep` bytes of it are left, in
/// whole segments. Waits for the GPU.
#[no_mangle]
pub extern "C" fn uvmrust_torch_trim(keep: u64) {
    in_use().inspect(|a| a.trim(keep));
}

/// Counts on no more than `fraction` of a GPU's memory, from 0 to 1: with more than that, what
/// becomes free is discarded (for `torch.cuda.set_per_process_memory_fraction`).
#[no_mangle]
pub extern "C" fn uvmrust_torch_set_fraction(fraction: f64, device: c_int) {
    // It may come before the first use, and holds for a child too.
    let allocator = if BORN.get().is_some() {
        to_use()
    } else {
        Some(&ALLOCATOR)
    };
    allocator.inspect(|a| a.set_fraction(device, fraction));
}

/// PyTorch allocates from a pool of graphs from now on. Its `MempoolId_t` is a pair of
/// numbers, which is passed as if they were two arguments; which streams it means is told by
/// `_filter`, a function of C++'s that is not called: those of the capture that this thread
/// begins next are meant.
#[no_mangle]
pub extern "C" fn uvmrust_torch_begin_pool(
    device: c_int,
    first: u64,
    second: u64,
    _filter: *mut c_void,
) {
    to_use().inspect(|a| a.begin_pool(device, GraphPool(first, second)));
}

/// Allocations no longer go to the pool that `uvmrust_torch_begin_pool` named.
#[no_mangle]
pub extern "C" fn uvmrust_torch_end_pool(device: c_int, first: u64, second: u64) {
    in_use().inspect(|a| a.end_pool(device, GraphPool(first, second)));
}

/// A graph that had memory of the pool is gone.
#[no_mangle]
pub extern "C" fn uvmrust_torch_release_pool(device: c_int, first: u64, second: u64) {
    in_use().inspect(|a| a.release_pool(device, GraphPool(first, second)));
}

/// Says that a program has discarded ranges lazily, or may have: of what is this allocator's,
/// nobody else gets it without a prefetch.
pub fn discarded_lazily(ranges: &[Range]) {
    in_use().inspect(|a| ranges.iter().for_each(|&range| a.discarded_lazily(range)));
}

/// What the allocator has done so far; zeros in a child of `fork`.
pub fn stats() -> Stats {
    in_use().map(Allocator::stats).unwrap_or_default()
}

/// What it has done for one device; zeros in a child of `fork`.
pub fn device_stats(device: c_int) -> DeviceStats {
    let stats = in_use().map(|a| a.device_stats(device));
    stats.unwrap_or_default()
}

/// Begins the peaks of [`device_stats`] anew.
pub fn reset_peaks(device: c_int) {
    in_use().inspect(|a| a.reset_peaks(device));
}

/// The bytes of what `uvmrust_torch_stats` has written since it is there: five numbers.
const FIRST_STATS: usize = 5 * size_of::<u64>();

/// Writes the first five fields of what [`stats()`] gives to where C wants them. Who knows of more
/// calls [`uvmrust_torch_all_stats`].
///
/// # Safety
/// `out` is null or points to a `struct` of these fields of [`Stats`], in their order.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_torch_stats(out: *mut Stats) {
    // SAFETY: by our contract.
    unsafe { uvmrust_torch_all_stats(out, FIRST_STATS) };
}

/// [`stats()`], for C: the first `size` bytes of [`Stats`], or all of it. Gives the bytes that were
/// written.
///
/// # Safety
/// `out` is null or points to `size` bytes that may be written.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_torch_all_stats(out: *mut Stats, size: usize) -> usize {
    // SAFETY: by our contract; the structure has no padding.
    unsafe { write_part(&stats(), out, size) }
}

/// [`device_stats`], for C: the first `size` bytes of [`DeviceStats`], or all of it. Gives the
/// bytes that were written.
///
/// # Safety
/// `out` is null or points to `size` bytes that may be written.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_torch_device_stats(
    device: c_int,
    out: *mut DeviceStats,
    size: usize,
) -> usize {
    // SAFETY: by our contract; the structure has no padding.
    unsafe { write_part(&device_stats(device), out, size) }
}

/// Writes as much of a structure as a caller knows of.
///
/// # Safety
/// `out` is null or points to `size` bytes that may be written; `T` is all numbers of 64 bits, so that
/// it has no padding.
unsafe fn write_part<T>(from: &T, out: *mut T, size: usize) -> usize {
    let size = size.min(size_of::<T>());
    if out.is_null() {
        return 0;
    }
    // SAFETY: both are `size` bytes at least, by our contract, and what is read is initialised.
    unsafe { core::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), out.cast(), size) };
    size
}
