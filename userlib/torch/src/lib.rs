// SPDX-License-Identifier: GPL-2.0 OR MIT

//! An allocator for `torch.cuda.memory.CUDAPluggableAllocator`: managed memory, so
//! that a model may be larger than the GPU, and what PyTorch frees is discarded, so
//! that it is not copied around (the invalidation of inactive PT blocks, `DeepUM`
//! §5.2).
//!
//! ```python
//! import torch
//! lib = "libuvmrust_torch.so"
//! allocator = torch.cuda.memory.CUDAPluggableAllocator(
//!     lib, "uvmrust_torch_malloc", "uvmrust_torch_free")
//! torch.cuda.memory.change_current_allocator(allocator)
//! ```
//!
//! before the first use of the GPU. Without a driver that discards it is an
//! allocator of managed memory, with a cache and nothing more. Not for CUDA
//! graphs that allocate while they are captured.

mod allocator;
mod classes;
mod device;

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

pub use allocator::{Allocator, Stats};
pub use device::{CudaDevice, Device, StreamId};

/// The process's allocator. The lock is held over calls of CUDA, as PyTorch's own
/// allocator does; CUDA never calls back into it.
static ALLOCATOR: Mutex<Allocator<CudaDevice>> = Mutex::new(Allocator::new(CudaDevice::new()));

fn with<T>(work: impl FnOnce(&mut Allocator<CudaDevice>) -> T) -> T {
    work(&mut ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Memory of at least `size` bytes for use in `stream`; null if there is none. Its
/// contents are undefined. The current device is `device`.
#[no_mangle]
pub extern "C" fn uvmrust_torch_malloc(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let address = with(|a| a.malloc(size, device, StreamId(stream as usize)));
    address.map_or(core::ptr::null_mut(), |address| address as *mut c_void)
}

/// Gives memory back, for use after all that is now in `stream`.
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
/// done as far as it has come at the free.
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

/// What the allocator has done so far.
///
/// # Safety
/// `out` is null or points to a `struct` of the fields of [`Stats`], in their order.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_torch_stats(out: *mut Stats) {
    if !out.is_null() {
        // SAFETY: by our contract.
        unsafe { out.write(with(|a| a.stats())) };
    }
}
