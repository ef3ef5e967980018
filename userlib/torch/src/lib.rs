// SPDX-License-Identifier: GPL-2.0 OR MIT

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
//! allocator of managed memory, with a cache and nothing more. What is allocated while a
//! CUDA graph is captured is kept for it until the process ends.
//!
//! A block that was freed in a stream waits in that stream for its next use, or to be given
//! back. So the stream of a `torch.cuda.ExternalStream` is destroyed only after
//! `torch.cuda.empty_cache()`.

mod allocator;
mod broken;
mod classes;
mod device;

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

pub use allocator::{Allocator, Stats};
pub use device::{CudaDevice, Device, Queue, StreamId};
use uvmrust::{Linux, Sys, Uvm};

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

/// What the allocator has done so far; zeros in a child of `fork`.
pub fn stats() -> Stats {
    with(|a| a.stats()).unwrap_or_default()
}

/// [`stats`], for C.
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
