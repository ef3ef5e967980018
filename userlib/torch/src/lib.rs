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
//! back. So the stream of a `torch.cuda.ExternalStream` is destroyed only after
//! `torch.cuda.empty_cache()`.

mod allocator;
mod broken;
mod device;
mod graphs;
mod heap;
mod pressure;
mod sizes;
mod stats;

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

pub use allocator::Allocator;
pub use device::{Capture, CudaDevice, Device, Queue, StreamId};
pub use graphs::GraphPool;
pub use stats::{DeviceStats, Metric, Stats};
use uvmrust::{Linux, Range, Sys, Uvm};

/// The process's allocator. The lock is held over calls of CUDA, as PyTorch's own
/// allocator does; CUDA never calls back into it.
static ALLOCATOR: Mutex<Allocator<CudaDevice>> = Mutex::new(Allocator::new(CudaDevice::new()));

/// `None` in a child of `fork`: its parent's memory is not there, and the lock may be
/// taken for ever.
fn with<T>(work: impl FnOnce(&mut Allocator<CudaDevice>) -> T) -> Option<T> {
    static BORN: OnceLock<u32> = OnceLock::new();
    let forks = Linux::new().forks();
    if *BORN.get_or_init(|| forks) != forks {
        return None;
    }
    Uvm::process().not_forked().ok()?;
    let mut allocator = ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner);
    Some(work(&mut allocator))
}

/// Memory of at least `size` bytes for use in `stream`, a stream of `device`; null if
/// there is none. Its contents are undefined.
#[no_mangle]
pub extern "C" fn uvmrust_torch_malloc(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let stream = StreamId(stream as usize);
    let address = with(|a| a.malloc(size, Queue { device, stream }));
    match address.flatten() {
        Some(address) => address as *mut c_void,
        None => {
            // PyTorch does not look at the address, and ends with an illegal access later.
            eprintln!(
                "uvmrust: no managed memory of {size} bytes for GPU {device}: the host's memory \
                 is used up, or CUDA is not initialised in this process"
            );
            core::ptr::null_mut()
        }
    }
}

/// Gives memory back, for use after all that is now in the stream of the device for which
/// it was allocated. That device need not be current: PyTorch makes none current for a
/// free, and the memory's own is known from the allocation.
#[no_mangle]
pub extern "C" fn uvmrust_torch_free(
    address: *mut c_void,
    _size: usize,
    _device: c_int,
    _stream: *mut c_void,
) {
    if !address.is_null() {
        with(|a| a.free(address as u64));
    }
}

/// Says that another stream uses the memory too: it is reused only when that is
/// done as far as it has come at the free. PyTorch does not say whose stream it is: the
/// default stream is taken for that of the memory's device and that of the current one, and
/// `cudaStreamPerThread` for the own streams of all threads.
#[no_mangle]
pub extern "C" fn uvmrust_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
    with(|a| a.record_stream(address as u64, StreamId(stream as usize)));
}

/// Gives free memory back to the system (for `torch.cuda.empty_cache`). Waits for
/// the GPU.
#[no_mangle]
pub extern "C" fn uvmrust_torch_empty_cache() {
    with(Allocator::empty_cache);
}

/// Gives free memory back to the system until no more than `keep` bytes of it are left, in
/// whole segments. Waits for the GPU.
#[no_mangle]
pub extern "C" fn uvmrust_torch_trim(keep: u64) {
    with(|a| a.trim(keep));
}

/// Counts on no more than `fraction` of a GPU's memory, from 0 to 1: with more than that, what
/// becomes free is discarded (for `torch.cuda.set_per_process_memory_fraction`).
#[no_mangle]
pub extern "C" fn uvmrust_torch_set_fraction(fraction: f64, device: c_int) {
    with(|a| a.set_fraction(device, fraction));
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
    with(|a| a.begin_pool(device, GraphPool(first, second)));
}

/// Allocations no longer go to the pool that `uvmrust_torch_begin_pool` named.
#[no_mangle]
pub extern "C" fn uvmrust_torch_end_pool(device: c_int, first: u64, second: u64) {
    with(|a| a.end_pool(device, GraphPool(first, second)));
}

/// A graph that had memory of the pool is gone.
#[no_mangle]
pub extern "C" fn uvmrust_torch_release_pool(device: c_int, first: u64, second: u64) {
    with(|a| a.release_pool(device, GraphPool(first, second)));
}

/// Says that a program has discarded ranges lazily, or may have: of what is this allocator's,
/// nobody else gets it without a prefetch.
pub fn discarded_lazily(ranges: &[Range]) {
    with(|a| ranges.iter().for_each(|&range| a.discarded_lazily(range)));
}

/// What the allocator has done so far; zeros in a child of `fork`.
pub fn stats() -> Stats {
    with(|a| a.stats()).unwrap_or_default()
}

/// What it has done for one device; zeros in a child of `fork`.
pub fn device_stats(device: c_int) -> DeviceStats {
    with(|a| a.device_stats(device)).unwrap_or_default()
}

/// Begins the peaks of [`device_stats`] anew.
pub fn reset_peaks(device: c_int) {
    with(|a| a.reset_peaks(device));
}

/// Writes what [`stats()`] gives to where C wants it.
///
/// # Safety
/// `out` is null or points to a `struct` of the fields of [`Stats`], in their order.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_torch_stats(out: *mut Stats) {
    if !out.is_null() {
        // SAFETY: by our contract.
        unsafe { out.write(stats()) };
    }
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
    let size = size.min(size_of::<DeviceStats>());
    if out.is_null() {
        return 0;
    }
    let stats = device_stats(device);
    // SAFETY: both are `size` bytes at least, and the structure has no padding: it is all
    // numbers of 64 bits.
    unsafe { core::ptr::copy_nonoverlapping((&raw const stats).cast::<u8>(), out.cast(), size) };
    size
}
