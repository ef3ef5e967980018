// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How our functions come to be called: as symbols of the same name, which the
//! linker finds first; as what dlsym and dlvsym give for CUDA's; and as what CUDA's own
//! cuGetProcAddress gives.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::ptr::null_mut;

use uvmrust::cuda::Stream;

use crate::config::Config;
use crate::hooks;
use crate::real::{
    self, Code, LaunchConfig, MemProps, PoolPlace, PoolProps, Real, NOT_INITIALIZED, SUCCESS,
};

/// Exports a hook under each name, and makes the table of them.
macro_rules! exports {
    ($($symbol:ident = $hook:expr, ($($arg:ident: $type:ty),*);)*) => {
        $(
            /// # Safety
            /// As CUDA's function of this name.
            #[no_mangle]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $symbol($($arg: $type),*) -> Code {
                // SAFETY: the caller's arguments, passed on.
                unsafe { $hook($($arg),*) }
            }
        )*

        /// Our function for a symbol of libcuda.so.1.
        fn hook_of(name: &[u8]) -> Option<*mut c_void> {
            $(
                if name == stringify!($symbol).as_bytes() {
                    return Some($symbol as *mut c_void);
                }
            )*
            None
        }
    };
}

exports! {
    cuLaunchKernel = hooks::launch::<false>,
        (f: *mut c_void, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
         shared: c_uint, stream: Stream, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernel_ptsz = hooks::launch::<true>,
        (f: *mut c_void, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
         shared: c_uint, stream: Stream, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel = hooks::launch_cooperative::<false>,
        (f: *mut c_void, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
         shared: c_uint, stream: Stream, params: *mut *mut c_void);
    cuLaunchCooperativeKernel_ptsz = hooks::launch_cooperative::<true>,
        (f: *mut c_void, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
         shared: c_uint, stream: Stream, params: *mut *mut c_void);
    cuLaunchKernelEx = hooks::launch_ex::<false>,
        (config: *const LaunchConfig, f: *mut c_void, params: *mut *mut c_void,
         extra: *mut *mut c_void);
    cuLaunchKernelEx_ptsz = hooks::launch_ex::<true>,
        (config: *const LaunchConfig, f: *mut c_void, params: *mut *mut c_void,
         extra: *mut *mut c_void);
    cuGraphLaunch = hooks::graph_launch::<false>, (graph: *mut c_void, stream: Stream);
    cuGraphLaunch_ptsz = hooks::graph_launch::<true>, (graph: *mut c_void, stream: Stream);
    cuMemAlloc_v2 = hooks::alloc, (out: *mut u64, size: usize);
    cuMemAllocManaged = hooks::alloc_managed, (out: *mut u64, size: usize, flags: c_uint);
    cuMemAllocPitch_v2 = hooks::alloc_pitch,
        (out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemAllocAsync = hooks::alloc_async::<false>, (out: *mut u64, size: usize, stream: Stream);
    cuMemAllocAsync_ptsz = hooks::alloc_async::<true>, (out: *mut u64, size: usize, stream: Stream);
    cuMemAllocFromPoolAsync = hooks::alloc_from_pool::<false>,
        (out: *mut u64, size: usize, pool: *mut c_void, stream: Stream);
    cuMemAllocFromPoolAsync_ptsz = hooks::alloc_from_pool::<true>,
        (out: *mut u64, size: usize, pool: *mut c_void, stream: Stream);
    cuMemPoolCreate = hooks::pool_create, (out: *mut *mut c_void, props: *const PoolProps);
    cuMemGetDefaultMemPool = hooks::default_pool,
        (out: *mut *mut c_void, place: *mut PoolPlace, kind: c_int);
    cuMemGetMemPool = hooks::pool_of_place,
        (out: *mut *mut c_void, place: *mut PoolPlace, kind: c_int);
    cuMemPoolDestroy = hooks::pool_destroy, (pool: *mut c_void);
    cuMemPoolGetAttribute = hooks::told::pool_attribute,
        (pool: *mut c_void, attribute: c_int, value: *mut c_void);
    cuMemPoolSetAttribute = hooks::told::pool_set_attribute,
        (pool: *mut c_void, attribute: c_int, value: *mut c_void);
    cuPointerGetAttribute = hooks::told::pointer_attribute,
        (out: *mut c_void, attribute: c_int, address: u64);
    cuPointerGetAttributes = hooks::told::pointer_attributes,
        (count: c_uint, attributes: *mut c_int, out: *mut *mut c_void, address: u64);
    cuIpcGetMemHandle = hooks::told::ipc_handle, (out: *mut c_void, address: u64);
    cuMemCreate = hooks::create,
        (out: *mut u64, size: usize, props: *const MemProps, flags: u64);
    cuDeviceGetAttribute = hooks::device_attribute,
        (out: *mut c_int, attribute: c_int, device: c_int);
    cuMemGetInfo_v2 = hooks::mem_info, (free: *mut usize, total: *mut usize);
    cuMemFree_v2 = hooks::free, (base: u64);
    cuMemFreeAsync = hooks::free_async::<false>, (base: u64, stream: Stream);
    cuMemFreeAsync_ptsz = hooks::free_async::<true>, (base: u64, stream: Stream);
    cuModuleUnload = hooks::module_unload, (module: *mut c_void);
    cuLibraryUnload = hooks::library_unload, (library: *mut c_void);
    cuCtxDestroy_v2 = hooks::ctx_destroy, (context: *mut c_void);
    cuCtxDestroy = hooks::ctx_destroy_v1, (context: *mut c_void);
    cuCtxDetach = hooks::ctx_detach, (context: *mut c_void);
    cuDevicePrimaryCtxRelease_v2 = hooks::primary_release::<false>, (device: c_int);
    cuDevicePrimaryCtxRelease = hooks::primary_release::<true>, (device: c_int);
    cuDevicePrimaryCtxReset_v2 = hooks::primary_reset, (device: c_int);
    cuDevicePrimaryCtxReset = hooks::primary_reset_v1, (device: c_int);
    cuGreenCtxDestroy = hooks::green_destroy, (context: *mut c_void);
    cuGetProcAddress_v2 = get_proc,
        (name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64,
         found: *mut c_int);
    cuGetProcAddress = get_proc_v1,
        (name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64);
}

/// # Safety
/// As cuGetProcAddress.
unsafe extern "C" fn get_proc(
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut c_int,
) -> Code {
    let Some(call) = Real::get().and_then(|real| real.get_proc) else {
        return NOT_INITIALIZED;
    };
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        let code = call(name, out, version, flags, found);
        replace(code, name, out, version, flags);
        code
    }
}

/// # Safety
/// As cuGetProcAddress before CUDA 12.
unsafe extern "C" fn get_proc_v1(
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Code {
    let Some(call) = Real::get().and_then(|real| real.get_proc_v1) else {
        return NOT_INITIALIZED;
    };
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        let code = call(name, out, version, flags);
        replace(code, name, out, version, flags);
        code
    }
}

/// Puts our function in the place of the one that CUDA gave for `name`: with the
/// suffix that says which variant it is, since CUDA is asked without.
///
/// # Safety
/// `name` is a C string, `out` is null or writable.
unsafe fn replace(
    code: Code,
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: u64,
) {
    /// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`, by which a program asks for the variants
    /// for its per-thread stream.
    const PER_THREAD: u64 = 2;
    /// The CUDA from which on cuGetProcAddress has five parameters.
    const FIVE_PARAMETERS: c_int = 12_000;
    if code != SUCCESS || name.is_null() || out.is_null() {
        return;
    }
    // SAFETY: by our contract.
    let (name, found) = unsafe { (CStr::from_ptr(name).to_bytes(), *out) };
    let suffixes: [&[u8]; 3] = match flags & PER_THREAD != 0 {
        _ if name == b"cuGetProcAddress" && version < FIVE_PARAMETERS => [b"", b"", b""],
        true => [b"_ptsz", b"_v2", b""],
        false => [b"_v2", b"", b""],
    };
    let hook = suffixes
        .into_iter()
        .find_map(|suffix| hook_of(&[name, suffix].concat()));
    if let (Some(hook), false) = (hook, found.is_null()) {
        // SAFETY: by our contract.
        unsafe { out.write(hook) };
    }
}

/// What our dlsym gives for a name; null: what libc's gives. Leaves libc's in
/// [`real::DLSYM`] before it returns.
unsafe extern "C" fn dlsym_hook(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(dlsym) = real::find_dlsym() else {
        // Without libc's there is nothing to jump to, and no way to say so.
        std::process::abort();
    };
    // SAFETY: dlsym takes a C string, or null.
    let Some(hook) = (unsafe { hook_for(handle, name) }) else {
        return null_mut();
    };
    // Only where it would be CUDA's.
    // SAFETY: the caller's arguments.
    match unsafe { dlsym(handle, name) }.is_null() {
        true => null_mut(),
        false => hook,
    }
}

/// The same for dlvsym, and [`real::DLVSYM`].
unsafe extern "C" fn dlvsym_hook(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let Some(dlvsym) = real::find_dlvsym() else {
        std::process::abort();
    };
    // SAFETY: dlvsym takes C strings, or null.
    let hook = unsafe { hook_for(handle, name).or_else(|| standing_for(handle, name)) };
    let Some(hook) = hook.filter(|_| !version.is_null()) else {
        return null_mut();
    };
    // SAFETY: the caller's arguments. What it is asked for has the same meaning from here.
    match unsafe { dlvsym(handle, name, version) }.is_null() {
        true => null_mut(),
        false => hook,
    }
}

/// Our function for a name, if it is one of CUDA's that is asked for there.
///
/// # Safety
/// `name` is a C string, or null.
unsafe fn hook_for(handle: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    // These two ask on behalf of a caller whom we would hide; the linker's order gives them ours
    // without us.
    if name.is_null() || handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT {
        return None;
    }
    // SAFETY: by our contract.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    match text.starts_with(b"cu") && Config::get().active() {
        true => hook_of(text),
        false => None,
    }
}

/// Our dlsym or dlvsym, where the linker's order would give it. For dlvsym that order passes over
/// ours, which has no version. A library that itself stands in front of dlsym finds the next one so,
/// and would hide us from the program. Whether there is anything for us to do is not asked: to read the
/// environment takes getenv and malloc, before which that library may stand, too.
///
/// # Safety
/// As for [`hook_for`].
unsafe fn standing_for(handle: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    let by_order = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    if name.is_null() || !by_order {
        return None;
    }
    // SAFETY: by our contract.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"dlsym" => Some(dlsym as *mut c_void),
        b"dlvsym" => Some(dlvsym as *mut c_void),
        _ => None,
    }
}

/// Stands before a function of libc's, with parameters of which none is behind the third. What is not for
/// us jumps on, so that libc sees the caller's own return address, by which it knows what RTLD_NEXT means.
macro_rules! stand_before {
    ($name:ident($($parameter:ident: $kind:ty),*), $hook:ident, $real:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[no_mangle]
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($parameter: $kind),*) -> *mut c_void {
            core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {hook}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "jne 2f",
                "jmp qword ptr [rip + {real}]",
                "2: ret",
                hook = sym $hook,
                real = sym real::$real,
            )
        }

        // The same for the calling convention of Arm's 64-bit processors.
        #[cfg(target_arch = "aarch64")]
        #[no_mangle]
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($parameter: $kind),*) -> *mut c_void {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {hook}",
                "mov x9, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                "cbnz x9, 2f",
                "adrp x16, {real}",
                "ldr x16, [x16, :lo12:{real}]",
                "br x16",
                "2: mov x0, x9",
                "ret",
                hook = sym $hook,
                real = sym real::$real,
            )
        }
    };
}

stand_before!(dlsym(handle: *mut c_void, name: *const c_char), dlsym_hook, DLSYM);
stand_before!(
    dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char),
    dlvsym_hook,
    DLVSYM
);
