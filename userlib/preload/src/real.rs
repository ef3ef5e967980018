// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The functions that stand behind ours: libc's dlsym, and CUDA's.

use core::ffi::{c_char, c_int, c_uint, c_ushort, c_void, CStr};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::OnceLock;

use uvmrust::cuda::{Cuda, Stream};

use crate::elf::libc_symbol;

/// What a CUDA function returns.
pub(crate) type Code = c_int;
pub(crate) const SUCCESS: Code = 0;
/// `CUDA_ERROR_NOT_INITIALIZED`: there is no CUDA behind us.
pub(crate) const NOT_INITIALIZED: Code = 3;

type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type DlvsymFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// libc's dlsym, or null before `dlsym` was first called. Our dlsym jumps to it.
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The same of `dlvsym`.
pub(crate) static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Finds libc's dlsym, past ours.
pub(crate) fn find_dlsym() -> Option<DlsymFn> {
    // SAFETY: null becomes None, else it is dlsym.
    unsafe { core::mem::transmute::<*mut c_void, Option<DlsymFn>>(find(&DLSYM, c"dlsym")) }
}

/// Finds libc's dlvsym, past ours.
pub(crate) fn find_dlvsym() -> Option<DlvsymFn> {
    // SAFETY: null becomes None, else it is dlvsym.
    unsafe { core::mem::transmute::<*mut c_void, Option<DlvsymFn>>(find(&DLVSYM, c"dlvsym")) }
}

fn find(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut found = known.load(Relaxed);
    if found.is_null() {
        found = libc_symbol(name);
        known.store(found, Relaxed);
    }
    found
}

/// A launch's configuration, `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: Stream,
    attributes: *mut c_void,
    attribute_count: c_uint,
}

/// The begin of `CUmemPoolProps`, what a memory pool is asked to be.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolProps {
    pub kind: c_int,
    /// By which handles its memory may be given to other processes.
    pub handle_types: c_int,
    pub location_kind: c_int,
    pub location: c_int,
    pub security: *mut c_void,
    /// Zero before CUDA 12.2, where the bytes are reserved.
    pub most_bytes: usize,
    /// What it is for besides, `CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS` for one. Reserved before CUDA 12.8.
    pub usage: c_ushort,
}

/// The begin of `CUmemAllocationProp`, what memory is asked to be that the program maps by itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemProps {
    kind: c_int,
    handle_types: c_int,
    pub place: PoolPlace,
}

/// `CUmemLocation`, where memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolPlace {
    pub kind: c_int,
    pub number: c_int,
}

pub(crate) type LaunchFn = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Stream,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;
pub(crate) type LaunchCooperativeFn = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Stream,
    *mut *mut c_void,
) -> Code;
pub(crate) type LaunchExFn = unsafe extern "C" fn(
    *const LaunchConfig,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;
pub(crate) type WithStreamFn = unsafe extern "C" fn(*mut c_void, Stream) -> Code;
pub(crate) type AllocFn = unsafe extern "C" fn(*mut u64, usize) -> Code;
pub(crate) type AllocAsyncFn = unsafe extern "C" fn(*mut u64, usize, Stream) -> Code;
pub(crate) type AllocFromPoolFn =
    unsafe extern "C" fn(*mut u64, usize, *mut c_void, Stream) -> Code;
pub(crate) type PoolCreateFn = unsafe extern "C" fn(*mut *mut c_void, *const PoolProps) -> Code;
pub(crate) type PoolOfDeviceFn = unsafe extern "C" fn(*mut *mut c_void, c_int) -> Code;
pub(crate) type PoolOfPlaceFn =
    unsafe extern "C" fn(*mut *mut c_void, *mut PoolPlace, c_int) -> Code;
pub(crate) type PoolAttributeFn = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> Code;
pub(crate) type PointerAttributesFn =
    unsafe extern "C" fn(c_uint, *mut c_int, *mut *mut c_void, u64) -> Code;
pub(crate) type IpcHandleFn = unsafe extern "C" fn(*mut c_void, u64) -> Code;
pub(crate) type CreateFn = unsafe extern "C" fn(*mut u64, usize, *const MemProps, u64) -> Code;
pub(crate) type AttributeFn = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code;
pub(crate) type AllocPitchFn =
    unsafe extern "C" fn(*mut u64, *mut usize, usize, usize, c_uint) -> Code;
pub(crate) type FreeFn = unsafe extern "C" fn(u64) -> Code;
pub(crate) type FreeAsyncFn = unsafe extern "C" fn(u64, Stream) -> Code;
pub(crate) type UnloadFn = unsafe extern "C" fn(*mut c_void) -> Code;
pub(crate) type DeviceFn = unsafe extern "C" fn(c_int) -> Code;
pub(crate) type GetProcFn =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;
pub(crate) type GetProcV1Fn =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Code;

macro_rules! functions {
    ($($field:ident = $symbol:literal: $type:ty;)*) => {
        /// CUDA's own functions. One that it lacks is `None`.
        pub(crate) struct Real {
            /// The functions that libuvmrust uses, too.
            pub cuda: Cuda,
            $(pub $field: Option<$type>,)*
        }

        impl Real {
            /// # Safety
            /// What `symbol` gives for a name is the CUDA function of this name.
            unsafe fn from_symbols(symbol: impl Fn(&CStr) -> *mut c_void) -> Self {
                // SAFETY: by our contract. Null becomes None.
                unsafe {
                    Self {
                        cuda: Cuda::from_symbols(&symbol),
                        $($field: core::mem::transmute::<*mut c_void, Option<$type>>(
                            symbol($symbol),
                        ),)*
                    }
                }
            }
        }
    };
}

functions! {
    launch = c"cuLaunchKernel": LaunchFn;
    launch_ptsz = c"cuLaunchKernel_ptsz": LaunchFn;
    launch_ex = c"cuLaunchKernelEx": LaunchExFn;
    launch_ex_ptsz = c"cuLaunchKernelEx_ptsz": LaunchExFn;
    launch_cooperative = c"cuLaunchCooperativeKernel": LaunchCooperativeFn;
    launch_cooperative_ptsz = c"cuLaunchCooperativeKernel_ptsz": LaunchCooperativeFn;
    graph_launch = c"cuGraphLaunch": WithStreamFn;
    graph_launch_ptsz = c"cuGraphLaunch_ptsz": WithStreamFn;
    alloc = c"cuMemAlloc_v2": AllocFn;
    alloc_pitch = c"cuMemAllocPitch_v2": AllocPitchFn;
    alloc_async = c"cuMemAllocAsync": AllocAsyncFn;
    alloc_async_ptsz = c"cuMemAllocAsync_ptsz": AllocAsyncFn;
    alloc_from_pool = c"cuMemAllocFromPoolAsync": AllocFromPoolFn;
    alloc_from_pool_ptsz = c"cuMemAllocFromPoolAsync_ptsz": AllocFromPoolFn;
    pool_create = c"cuMemPoolCreate": PoolCreateFn;
    pool_destroy = c"cuMemPoolDestroy": UnloadFn;
    default_pool = c"cuMemGetDefaultMemPool": PoolOfPlaceFn;
    pool_of_place = c"cuMemGetMemPool": PoolOfPlaceFn;
    pool_of_device = c"cuDeviceGetMemPool": PoolOfDeviceFn;
    pool_attribute = c"cuMemPoolGetAttribute": PoolAttributeFn;
    pool_set_attribute = c"cuMemPoolSetAttribute": PoolAttributeFn;
    pointer_attributes = c"cuPointerGetAttributes": PointerAttributesFn;
    ipc_handle = c"cuIpcGetMemHandle": IpcHandleFn;
    create = c"cuMemCreate": CreateFn;
    attribute = c"cuDeviceGetAttribute": AttributeFn;
    free = c"cuMemFree_v2": FreeFn;
    free_async = c"cuMemFreeAsync": FreeAsyncFn;
    free_async_ptsz = c"cuMemFreeAsync_ptsz": FreeAsyncFn;
    module_unload = c"cuModuleUnload": UnloadFn;
    library_unload = c"cuLibraryUnload": UnloadFn;
    ctx_destroy = c"cuCtxDestroy_v2": UnloadFn;
    ctx_destroy_v1 = c"cuCtxDestroy": UnloadFn;
    ctx_detach = c"cuCtxDetach": UnloadFn;
    primary_release = c"cuDevicePrimaryCtxRelease_v2": DeviceFn;
    primary_release_v1 = c"cuDevicePrimaryCtxRelease": DeviceFn;
    primary_reset = c"cuDevicePrimaryCtxReset_v2": DeviceFn;
    primary_reset_v1 = c"cuDevicePrimaryCtxReset": DeviceFn;
    green_destroy = c"cuGreenCtxDestroy": UnloadFn;
    get_proc = c"cuGetProcAddress_v2": GetProcFn;
    get_proc_v1 = c"cuGetProcAddress": GetProcV1Fn;
}

impl Real {
    /// Those of the libcuda.so.1 that the process has loaded, if it has.
    pub fn get() -> Option<&'static Self> {
        static REAL: OnceLock<Real> = OnceLock::new();
        if let Some(real) = REAL.get() {
            return Some(real);
        }
        let dlsym = find_dlsym()?;
        // SAFETY: the name is a C string; nothing is loaded anew. The handle is kept.
        let handle = unsafe {
            libc::dlopen(
                c"libcuda.so.1".as_ptr(),
                libc::RTLD_NOLOAD | libc::RTLD_LAZY,
            )
        };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the functions of libcuda.so.1, by their names.
        let found = unsafe { Self::from_symbols(|name| dlsym(handle, name.as_ptr())) };
        Some(REAL.get_or_init(|| found))
    }

    /// Whether a device has a primary context now, as far as CUDA tells.
    pub fn is_active(&self, device: c_int) -> bool {
        let mut active = 0;
        // SAFETY: the outputs are writable; CUDA checks the device.
        let asked =
            (self.cuda.primary_state()).map(|state| unsafe { state(device, &mut 0, &mut active) });
        asked == Some(SUCCESS) && active != 0
    }
}
