// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Our functions in the place of CUDA's. Each does its own part and then CUDA's.
//!
//! `PTSZ` is whether it stands for the variant whose null stream is the thread's.

use core::ffi::{c_int, c_uint, c_void};

use uvmrust::cuda::{Stream, STREAM_PER_THREAD};

use crate::announce;
use crate::config::Config;
use crate::kernels::{graph_id, Shape, KERNELS};
use crate::memory;
use crate::planned;
use crate::real::{Code, LaunchConfig, Real, NOT_INITIALIZED, SUCCESS};

fn stream_for<const PTSZ: bool>(stream: Stream) -> Stream {
    match stream.is_null() && PTSZ {
        true => STREAM_PER_THREAD,
        false => stream,
    }
}

/// Announces a launch, after what the plan asks for before it.
///
/// # Safety
/// The arguments are those of a launch.
unsafe fn announce_launch(
    real: &Real,
    function: *mut c_void,
    shape: Shape,
    stream: Stream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) {
    // SAFETY: by our contract.
    unsafe { planned::before_launch(&real.cuda, stream) };
    if !announce::enabled() || function.is_null() {
        return;
    }
    let (params, extra) = match Config::get().hash_args {
        true => (params, extra),
        false => (core::ptr::null_mut(), core::ptr::null_mut()),
    };
    // SAFETY: by our contract.
    unsafe {
        let id = KERNELS.get().id(&real.cuda, function, shape, params, extra);
        announce::announce(&real.cuda, stream, id);
    }
}

/// CUDA's functions, or return that there are none.
macro_rules! real {
    ($field:ident) => {
        match Real::get() {
            Some(real) => match real.$field {
                Some(call) => (real, call),
                None => return memory::MISSING,
            },
            None => return NOT_INITIALIZED,
        }
    };
    ($ptsz:ident, $normal:ident, $thread:ident) => {
        match (Real::get(), $ptsz) {
            (Some(real), false) => match real.$normal {
                Some(call) => (real, call),
                None => return memory::MISSING,
            },
            (Some(real), true) => match real.$thread {
                Some(call) => (real, call),
                None => return memory::MISSING,
            },
            (None, _) => return NOT_INITIALIZED,
        }
    };
}

/// # Safety
/// As cuLaunchKernel.
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn launch<const PTSZ: bool>(
    function: *mut c_void,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Stream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    let (real, call) = real!(PTSZ, launch, launch_ptsz);
    let shape = [gx, gy, gz, bx, by, bz, shared];
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        announce_launch(
            real,
            function,
            shape,
            stream_for::<PTSZ>(stream),
            params,
            extra,
        );
        call(
            function, gx, gy, gz, bx, by, bz, shared, stream, params, extra,
        )
    }
}

/// # Safety
/// As cuLaunchCooperativeKernel.
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn launch_cooperative<const PTSZ: bool>(
    function: *mut c_void,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Stream,
    params: *mut *mut c_void,
) -> Code {
    let (real, call) = real!(PTSZ, launch_cooperative, launch_cooperative_ptsz);
    let shape = [gx, gy, gz, bx, by, bz, shared];
    let none = core::ptr::null_mut();
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        announce_launch(
            real,
            function,
            shape,
            stream_for::<PTSZ>(stream),
            params,
            none,
        );
        call(function, gx, gy, gz, bx, by, bz, shared, stream, params)
    }
}

/// # Safety
/// As cuLaunchKernelEx.
pub(crate) unsafe extern "C" fn launch_ex<const PTSZ: bool>(
    config: *const LaunchConfig,
    function: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    let (real, call) = real!(PTSZ, launch_ex, launch_ex_ptsz);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        if let Some(config) = config.as_ref() {
            let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
            let shape = [gx, gy, gz, bx, by, bz, config.shared_bytes];
            let stream = stream_for::<PTSZ>(config.stream);
            announce_launch(real, function, shape, stream, params, extra);
        }
        call(config, function, params, extra)
    }
}

/// # Safety
/// As cuGraphLaunch.
pub(crate) unsafe extern "C" fn graph_launch<const PTSZ: bool>(
    graph: *mut c_void,
    stream: Stream,
) -> Code {
    let (real, call) = real!(PTSZ, graph_launch, graph_launch_ptsz);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        planned::before_launch(&real.cuda, stream_for::<PTSZ>(stream));
        if announce::enabled() {
            announce::announce(&real.cuda, stream_for::<PTSZ>(stream), graph_id(graph));
        }
        call(graph, stream)
    }
}

/// # Safety
/// As cuMemAlloc.
pub(crate) unsafe extern "C" fn alloc(out: *mut u64, size: usize) -> Code {
    let (real, call) = real!(alloc);
    // SAFETY: the caller's arguments, passed on.
    unsafe { memory::alloc(real, out, size).unwrap_or_else(|| call(out, size)) }
}

/// # Safety
/// As cuMemAllocManaged.
pub(crate) unsafe extern "C" fn alloc_managed(out: *mut u64, size: usize, flags: c_uint) -> Code {
    let Some(call) = Real::get().map(|real| real.cuda.mem_alloc_managed) else {
        return NOT_INITIALIZED;
    };
    let Some(call) = call else {
        return memory::MISSING;
    };
    // SAFETY: the caller's arguments, passed on; CUDA has written the address.
    unsafe {
        let code = call(out, size, flags);
        if code == SUCCESS && !out.is_null() {
            planned::allocated(*out, size);
        }
        code
    }
}

/// # Safety
/// As cuMemAllocPitch.
pub(crate) unsafe extern "C" fn alloc_pitch(
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Code {
    let (real, call) = real!(alloc_pitch);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        memory::alloc_pitch(real, out, pitch, width, height)
            .unwrap_or_else(|| call(out, pitch, width, height, element))
    }
}

/// # Safety
/// As cuMemAllocAsync.
pub(crate) unsafe extern "C" fn alloc_async<const PTSZ: bool>(
    out: *mut u64,
    size: usize,
    stream: Stream,
) -> Code {
    let (real, call) = real!(PTSZ, alloc_async, alloc_async_ptsz);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        if memory::capturing(real, stream_for::<PTSZ>(stream)) {
            return call(out, size, stream);
        }
        memory::alloc(real, out, size).unwrap_or_else(|| call(out, size, stream))
    }
}

/// # Safety
/// As cuMemFree.
pub(crate) unsafe extern "C" fn free(base: u64) -> Code {
    let (_, call) = real!(free);
    // Before it is free: after that another thread may have it from CUDA anew.
    memory::forget(base);
    // SAFETY: the caller's argument, passed on.
    unsafe { call(base) }
}

/// # Safety
/// As cuMemFreeAsync.
pub(crate) unsafe extern "C" fn free_async<const PTSZ: bool>(base: u64, stream: Stream) -> Code {
    let (real, call) = real!(PTSZ, free_async, free_async_ptsz);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        memory::free_async(real, base, stream_for::<PTSZ>(stream))
            .unwrap_or_else(|| call(base, stream))
    }
}

/// A function after which handles of kernels may name others. `$before` says what else it ends.
macro_rules! unloading {
    ($($name:ident($type:ty) = $cuda:literal $(, $before:path)?;)*) => {$(
        #[doc = concat!("# Safety\nAs ", $cuda, ".")]
        pub(crate) unsafe extern "C" fn $name(what: $type) -> Code {
            let (_, call) = real!($name);
            $($before();)?
            KERNELS.get().forget();
            // SAFETY: the caller's argument, passed on.
            let code = unsafe { call(what) };
            // A launch of another thread may have asked in between.
            KERNELS.get().forget();
            code
        }
    )*};
}

unloading! {
    module_unload(*mut c_void) = "cuModuleUnload";
    library_unload(*mut c_void) = "cuLibraryUnload";
    ctx_destroy(*mut c_void) = "cuCtxDestroy", planned::freed_all;
    primary_reset(c_int) = "cuDevicePrimaryCtxReset", planned::freed_all;
}

/// # Safety
/// As cuDevicePrimaryCtxRelease.
pub(crate) unsafe extern "C" fn primary_release(device: c_int) -> Code {
    let (real, call) = real!(primary_release);
    KERNELS.get().forget();
    // SAFETY: the caller's argument, passed on.
    let code = unsafe { call(device) };
    KERNELS.get().forget();
    let mut active = 0;
    // SAFETY: the outputs are writable; CUDA checks the device.
    let asked =
        (real.cuda.primary_state).map(|state| unsafe { state(device, &mut 0, &mut active) });
    // Others may hold it still.
    if asked != Some(SUCCESS) || active == 0 {
        planned::freed_all();
    }
    code
}
