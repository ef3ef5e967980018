// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The part of CUDA's driver library that is used: found with dlopen where the
//! process already has it, so that nothing is linked and nothing is initialised.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void, CStr};

use crate::{Error, Result};

/// `CUstream`: null is the default stream.
pub type Stream = *mut c_void;
/// `CUevent`.
pub type Event = *mut c_void;
/// `CUhostFn`.
pub type HostFn = unsafe extern "C" fn(*mut c_void);

/// The default stream that all threads share (`CU_STREAM_LEGACY`).
pub const STREAM_LEGACY: Stream = core::ptr::without_provenance_mut(1);
/// The calling thread's own stream (`CU_STREAM_PER_THREAD`).
pub const STREAM_PER_THREAD: Stream = core::ptr::without_provenance_mut(2);
/// `CU_DEVICE_CPU`.
pub const DEVICE_CPU: c_int = -1;

const CUDA_SUCCESS: c_int = 0;
const CUDA_ERROR_INVALID_VALUE: c_int = 1;
const CUDA_ERROR_OUT_OF_MEMORY: c_int = 2;
const CUDA_ERROR_NOT_INITIALIZED: c_int = 3;
const CUDA_ERROR_DEINITIALIZED: c_int = 4;
const CUDA_ERROR_INVALID_DEVICE: c_int = 101;
const CUDA_ERROR_INVALID_CONTEXT: c_int = 201;
const CUDA_ERROR_NOT_SUPPORTED: c_int = 801;

/// Declares the table of functions and how it is filled. A function that the
/// library lacks is `None`.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal: fn($($arg:ty),* $(,)?);)*) => {
        /// Functions of libcuda.so.1, by their names without `cu`.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Cuda {
            $($(#[$doc])* pub $field: Option<unsafe extern "C" fn($($arg),*) -> c_int>,)*
        }

        impl Cuda {
            /// Takes each function from `symbol`, which gives null for what it lacks.
            ///
            /// # Safety
            /// What `symbol` gives for a name is the CUDA function of this name.
            pub unsafe fn from_symbols(symbol: impl Fn(&CStr) -> *mut c_void) -> Self {
                Self {
                    $($field: {
                        let address = symbol($symbol);
                        // SAFETY: null becomes None; else it is the function of
                        // this name, by this function's contract, and the types are
                        // those of CUDA's documentation.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($arg),*) -> c_int>,
                            >(address)
                        }
                    },)*
                }
            }
        }
    };
}

functions! {
    /// cuMemDiscardBatchAsync(dptrs, sizes, count, flags, stream), CUDA 13.
    mem_discard_batch = c"cuMemDiscardBatchAsync":
        fn(*mut u64, *mut usize, usize, c_ulonglong, Stream);
    /// cuMemPrefetchAsync(dptr, size, device, stream), its first version.
    mem_prefetch = c"cuMemPrefetchAsync": fn(u64, usize, c_int, Stream);
    /// cuMemAllocManaged(out dptr, size, flags).
    mem_alloc_managed = c"cuMemAllocManaged": fn(*mut u64, usize, c_uint);
    /// cuMemFree(dptr).
    mem_free = c"cuMemFree_v2": fn(u64);
    /// cuLaunchHostFunc(stream, function, data).
    launch_host_func = c"cuLaunchHostFunc": fn(Stream, HostFn, *mut c_void);
    /// cuStreamSynchronize(stream).
    stream_synchronize = c"cuStreamSynchronize": fn(Stream);
    /// cuStreamWaitEvent(stream, event, flags).
    stream_wait_event = c"cuStreamWaitEvent": fn(Stream, Event, c_uint);
    /// cuStreamIsCapturing(stream, out status).
    stream_is_capturing = c"cuStreamIsCapturing": fn(Stream, *mut c_int);
    /// cuEventCreate(out event, flags).
    event_create = c"cuEventCreate": fn(*mut Event, c_uint);
    /// cuEventRecord(event, stream).
    event_record = c"cuEventRecord": fn(Event, Stream);
    /// cuEventDestroy(event).
    event_destroy = c"cuEventDestroy_v2": fn(Event);
    /// cuDeviceGetCount(out count).
    device_count = c"cuDeviceGetCount": fn(*mut c_int);
    /// cuDeviceGet(out device, ordinal).
    device_get = c"cuDeviceGet": fn(*mut c_int, c_int);
    /// cuDeviceGetUuid(out uuid, device).
    device_uuid = c"cuDeviceGetUuid": fn(*mut [u8; 16], c_int);
    /// cuCtxGetDevice(out device).
    ctx_device = c"cuCtxGetDevice": fn(*mut c_int);
    /// cuFuncGetName(out name, function), CUDA 12.3.
    func_name = c"cuFuncGetName": fn(*mut *const c_char, *mut c_void);
    /// cuFuncGetParamInfo(function, index, out offset, out size), CUDA 12.4.
    func_param_info = c"cuFuncGetParamInfo": fn(*mut c_void, usize, *mut usize, *mut usize);
    /// cuKernelGetName(out name, kernel), CUDA 12.3.
    kernel_name = c"cuKernelGetName": fn(*mut *const c_char, *mut c_void);
    /// cuKernelGetParamInfo(kernel, index, out offset, out size), CUDA 12.4.
    kernel_param_info = c"cuKernelGetParamInfo": fn(*mut c_void, usize, *mut usize, *mut usize);
}

impl Cuda {
    /// The library, if this process has loaded it already.
    pub fn loaded() -> Option<Self> {
        // SAFETY: the name is a C string, and the library is not loaded anew, so no
        // initialiser runs.
        let handle = unsafe {
            libc::dlopen(
                c"libcuda.so.1".as_ptr(),
                libc::RTLD_NOLOAD | libc::RTLD_LAZY,
            )
        };
        // The handle is kept for good, so that the functions stay.
        (!handle.is_null()).then(|| {
            // SAFETY: the names are those of libcuda.so.1; the handle is open.
            unsafe { Self::from_symbols(|name| libc::dlsym(handle, name.as_ptr())) }
        })
    }

    /// Whether this CUDA can discard.
    pub fn can_discard(&self) -> bool {
        self.mem_discard_batch.is_some()
    }

    /// Prefetches `length` bytes at `base` to `device`, in the order of `stream`.
    ///
    /// # Safety
    /// `stream` is a stream of the current context or one of the special ones.
    pub unsafe fn prefetch(
        &self,
        base: u64,
        length: u64,
        device: c_int,
        stream: Stream,
    ) -> Result<()> {
        let call = self.mem_prefetch.ok_or(Error::NotSupported)?;
        // SAFETY: takes any address and checks it; the stream by our contract.
        check(unsafe { call(base, length as usize, device, stream) })
    }

    /// Waits for all work in `stream`.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub unsafe fn synchronize(&self, stream: Stream) -> Result<()> {
        let call = self.stream_synchronize.ok_or(Error::NotSupported)?;
        // SAFETY: by our contract.
        check(unsafe { call(stream) })
    }

    /// Runs `function` on `data` when the work before it in `stream` is done.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`], and `data` is good for `function` until then.
    pub unsafe fn host_func(
        &self,
        stream: Stream,
        function: HostFn,
        data: *mut c_void,
    ) -> Result<()> {
        let call = self.launch_host_func.ok_or(Error::NotSupported)?;
        // SAFETY: by our contract.
        check(unsafe { call(stream, function, data) })
    }

    /// The UUID of the `ordinal`th device.
    pub fn uuid(&self, ordinal: c_int) -> Result<[u8; 16]> {
        let get = self.device_get.ok_or(Error::NotSupported)?;
        let mut device = 0;
        // SAFETY: the output is writable and of the right type; any ordinal is checked
        // by CUDA.
        check(unsafe { get(&mut device, ordinal) })?;
        self.uuid_of(device)
    }

    /// The UUID of a device, by CUDA's handle.
    pub fn uuid_of(&self, device: c_int) -> Result<[u8; 16]> {
        let call = self.device_uuid.ok_or(Error::NotSupported)?;
        let mut uuid = [0; 16];
        // SAFETY: the output is writable and of the right type; any device is checked
        // by CUDA.
        check(unsafe { call(&mut uuid, device) })?;
        Ok(uuid)
    }

    /// The ordinal of the device of this UUID.
    pub fn ordinal(&self, uuid: &[u8; 16]) -> Result<c_int> {
        let call = self.device_count.ok_or(Error::NotSupported)?;
        let mut count = 0;
        // SAFETY: the output is writable and of the right type.
        check(unsafe { call(&mut count) })?;
        (0..count)
            .find(|&n| self.uuid(n).as_ref() == Ok(uuid))
            .ok_or(Error::NoDevice)
    }

    /// The device of this thread's context.
    pub fn current_device(&self) -> Result<c_int> {
        let call = self.ctx_device.ok_or(Error::NotSupported)?;
        let mut device = 0;
        // SAFETY: the output is writable and of the right type.
        check(unsafe { call(&mut device) })?;
        Ok(device)
    }
}

/// The result of a CUDA call.
pub fn check(code: c_int) -> Result<()> {
    match code {
        CUDA_SUCCESS => Ok(()),
        CUDA_ERROR_INVALID_VALUE => Err(Error::NotManaged),
        CUDA_ERROR_OUT_OF_MEMORY => Err(Error::NoMemory),
        CUDA_ERROR_NOT_INITIALIZED | CUDA_ERROR_DEINITIALIZED | CUDA_ERROR_INVALID_CONTEXT => {
            Err(Error::NoContext)
        }
        CUDA_ERROR_INVALID_DEVICE => Err(Error::NoDevice),
        CUDA_ERROR_NOT_SUPPORTED => Err(Error::NotSupported),
        _ => Err(Error::Driver),
    }
}
