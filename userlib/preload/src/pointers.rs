// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a program is told of an address in memory that we have made managed, and what it cannot do with it.
//!
//! CUDA says that it is managed. Some programs take no such memory, which know how to use a GPU's: PyTorch's
//! `from_dlpack` raises "Unsupported device_type: 13" for an array of CuPy's, since that says of itself what CUDA
//! says of its memory (github.com/pytorch/pytorch/issues/96318). So they may be told that it is a device's
//! (`UVMRUST_POINTERS=device`). They are not by default: libraries that send memory over a network ask
//! as well, and would have the adapter access it, which reads what is stale (`mapped.rs`).

use core::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::config::Config;
use crate::memory;
use crate::real::{Code, SUCCESS};
use crate::say::say;

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`: what memory an address is in.
const MEMORY_TYPE: c_int = 2;
/// `CU_POINTER_ATTRIBUTE_IS_MANAGED`: whether that is managed.
const IS_MANAGED: c_int = 8;
/// `CU_MEMORYTYPE_DEVICE`: memory of a GPU.
const DEVICE: c_uint = 2;

/// Whether programs are told of memory that we have made managed as of a device's, and this address is in some.
pub(crate) fn is_hidden(address: u64) -> bool {
    Config::get().hide_managed && memory::is_made(address)
}

/// Makes an attribute of such an address that of a device's memory.
///
/// # Safety
/// `out` is null, or what CUDA has filled in for this attribute.
pub(crate) unsafe fn hide(out: *mut c_void, attribute: c_int) {
    if out.is_null() {
        return;
    }
    // SAFETY: by our contract. Of a boolean the first byte tells, whatever size the program has for it.
    unsafe {
        match attribute {
            MEMORY_TYPE => out.cast::<c_uint>().write_unaligned(DEVICE),
            IS_MANAGED => out.cast::<u8>().write(0),
            _ => {}
        }
    }
}

/// Says, where CUDA gives no handle of memory for another process, that this is why. "Takes a pointer to the base of
/// an existing device memory allocation created with cuMemAlloc" (CUDA Driver API, cuIpcGetMemHandle).
pub(crate) fn shared(code: Code, address: u64) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if code == SUCCESS || !memory::is_made(address) || SAID.swap(true, Relaxed) {
        return;
    }
    say(
        "the program shares device memory with another process (cuIpcGetMemHandle), and CUDA does not do \
         that with managed memory. With UVMRUST_MANAGED=0 (uvmrun --no-managed) it stays device memory",
    );
}
