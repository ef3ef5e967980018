// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! CUDA's driver library, as far as it can be known without starting a GPU.

use std::ffi::{c_int, c_void};

use serde::Serialize;

/// A libcuda.so.1 that programs here find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cuda {
    /// The CUDA that it is of, as 12040 for 12.4.
    pub version: Option<u32>,
    /// Whether the library has `cuMemDiscardBatchAsync`, which CUDA 13 brought.
    pub discards: bool,
}

impl Cuda {
    /// Loads the library, which stays loaded, and initialises nothing, so no GPU is started.
    /// `None`: there is none.
    pub fn load() -> Option<Self> {
        // SAFETY: the name is a C string; the library's initialisers are made to run in any
        // program.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the name is a C string; the handle is open.
        let symbol = unsafe { libc::dlsym(handle, c"cuDriverGetVersion".as_ptr()) };
        let mut version: c_int = 0;
        let known = !symbol.is_null() && {
            // SAFETY: CUDA's function of this name has this type, and is not null.
            let call = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(
                    symbol,
                )
            };
            // SAFETY: the output is writable; the call is allowed before cuInit.
            unsafe { call(&mut version) == 0 }
        };
        Some(Self {
            version: known.then(|| u32::try_from(version).ok()).flatten(),
            discards: uvmrust::cuda::Cuda::loaded().is_some_and(|cuda| cuda.can_discard()),
        })
    }
}
