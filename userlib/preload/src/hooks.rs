// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Our functions in the place of CUDA's. Each does its own part and then CUDA's.
//!
//! `PTSZ` is whether it stands for the variant whose null stream is the thread's.

use core::ffi::{c_int, c_uint, c_void};

use uvmrust::cuda::{Stream, STREAM_PER_THREAD};

use crate::announce;
use crate::config::Config;
use crate::kernels::{graph_id, Launch, Shape, KERNELS};
use crate::memory::Going;
use crate::planned::Counted;
use crate::pools::PoolId;
use crate::real::{
    Code, LaunchConfig, MemProps, PoolOfPlaceFn, PoolPlace, PoolProps, Real, NOT_INITIALIZED,
    SUCCESS,
};
use crate::record::Begun;
use crate::{counts, followed, mapped, memory, planned, pools, record};

fn stream_for<const PTSZ: bool>(stream: Stream) -> Stream {
    match stream.is_null() && PTSZ {
        true => STREAM_PER_THREAD,
        false => stream,
    }
}

/// A launch that is about to be made.
struct Before {
    counted: Option<Counted>,
    begun: Option<Begun>,
}

/// Announces a launch, after what the plan asks for before it, and begins to record it.
///
/// # Safety
/// The arguments are those of a launch, which follows.
unsafe fn before_launch(real: &Real, stream: Stream, shape: Shape, launch: Launch) -> Before {
    // SAFETY: by our contract.
    unsafe {
        let counted = planned::before_launch(&real.cuda, stream);
        followed::before_launch(&real.cuda, stream, Some(launch));
        if announce::enabled() && !launch.function.is_null() {
            let none = core::ptr::null_mut();
            let (params, extra) = match Config::get().hash_args {
                true => (launch.params, launch.extra),
                false => (none, none),
            };
            let kernels = KERNELS.get();
            let id = |params, extra| kernels.id(&real.cuda, launch.function, shape, params, extra);
            announce::announce(&real.cuda, stream, id(none, none), id(params, extra));
        }
        // The last: its time begins behind the host functions of the others.
        let begun = record::begin(&real.cuda, stream, Some(launch));
        Before { counted, begun }
    }
}

/// Ends what was begun before a launch, and gives on what CUDA has answered.
///
/// # Safety
/// `stream` is the launch's.
unsafe fn after_launch(real: &Real, stream: Stream, before: Before, code: Code) -> Code {
    planned::after_launch(before.counted, code == SUCCESS);
    // SAFETY: by our contract.
    unsafe { record::end(&real.cuda, stream, before.begun, code == SUCCESS) };
    code
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

pub(crate) mod told;

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
    let launch = Launch {
        function,
        params,
        extra,
    };
    let own = stream_for::<PTSZ>(stream);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        let before = before_launch(real, own, shape, launch);
        let code = call(
            function, gx, gy, gz, bx, by, bz, shared, stream, params, extra,
        );
        after_launch(real, own, before, code)
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
    let launch = Launch {
        function,
        params,
        extra: core::ptr::null_mut(),
    };
    let own = stream_for::<PTSZ>(stream);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        let before = before_launch(real, own, shape, launch);
        let code = call(function, gx, gy, gz, bx, by, bz, shared, stream, params);
        after_launch(real, own, before, code)
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
        let Some(given) = config.as_ref() else {
            return call(config, function, params, extra);
        };
        let ([gx, gy, gz], [bx, by, bz]) = (given.grid, given.block);
        let shape = [gx, gy, gz, bx, by, bz, given.shared_bytes];
        let launch = Launch {
            function,
            params,
            extra,
        };
        let own = stream_for::<PTSZ>(given.stream);
        let before = before_launch(real, own, shape, launch);
        let code = call(config, function, params, extra);
        after_launch(real, own, before, code)
    }
}

/// # Safety
/// As cuGraphLaunch.
pub(crate) unsafe extern "C" fn graph_launch<const PTSZ: bool>(
    graph: *mut c_void,
    stream: Stream,
) -> Code {
    let (real, call) = real!(PTSZ, graph_launch, graph_launch_ptsz);
    let own = stream_for::<PTSZ>(stream);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        let counted = planned::before_launch(&real.cuda, own);
        followed::before_launch(&real.cuda, own, None);
        if announce::enabled() {
            let id = graph_id(graph);
            announce::announce(&real.cuda, own, id, id);
        }
        let begun = record::begin(&real.cuda, own, None);
        let before = Before { counted, begun };
        let code = call(graph, stream);
        after_launch(real, own, before, code)
    }
}

/// # Safety
/// As cuMemAlloc.
pub(crate) unsafe extern "C" fn alloc(out: *mut u64, size: usize) -> Code {
    let (real, call) = real!(alloc);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        memory::alloc(real, out, size)
            .unwrap_or_else(|| memory::left_as_it_is(call(out, size), out, size))
    }
}

/// # Safety
/// As cuMemAllocManaged.
pub(crate) unsafe extern "C" fn alloc_managed(out: *mut u64, size: usize, flags: c_uint) -> Code {
    let Some(real) = Real::get() else {
        return NOT_INITIALIZED;
    };
    let Some(call) = real.cuda.mem_alloc_managed() else {
        return memory::MISSING;
    };
    // SAFETY: the caller's arguments, passed on; CUDA has written the address.
    unsafe {
        let code = call(out, size, flags);
        if code == SUCCESS && !out.is_null() {
            memory::appeared(real, *out, size);
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
        memory::alloc_pitch(real, out, pitch, width, height).unwrap_or_else(|| {
            let code = call(out, pitch, width, height, element);
            let row = pitch.as_ref().map_or(0, |&row| row);
            memory::left_as_it_is(code, out, row.saturating_mul(height))
        })
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
        let own = stream_for::<PTSZ>(stream);
        if pools::current_is_left(real, own) {
            return call(out, size, stream);
        }
        memory::alloc_in(real, out, size, own, None, || call(out, size, stream))
    }
}

/// # Safety
/// As cuMemAllocFromPoolAsync.
pub(crate) unsafe extern "C" fn alloc_from_pool<const PTSZ: bool>(
    out: *mut u64,
    size: usize,
    pool: *mut c_void,
    stream: Stream,
) -> Code {
    let (real, call) = real!(PTSZ, alloc_from_pool, alloc_from_pool_ptsz);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        if pools::is_left(pool) {
            return call(out, size, pool, stream);
        }
        let own = stream_for::<PTSZ>(stream);
        let asked = Some(PoolId::of(pool));
        memory::alloc_in(real, out, size, own, asked, || {
            call(out, size, pool, stream)
        })
    }
}

/// # Safety
/// As cuMemPoolCreate.
pub(crate) unsafe extern "C" fn pool_create(
    out: *mut *mut c_void,
    props: *const PoolProps,
) -> Code {
    let (_, call) = real!(pool_create);
    // SAFETY: the caller's arguments, passed on; CUDA has read the one and written the other.
    unsafe {
        let code = call(out, props);
        if let (SUCCESS, Some(&pool), Some(props)) = (code, out.as_ref(), props.as_ref()) {
            pools::made(pool, props);
        }
        code
    }
}

/// # Safety
/// As cuMemGetDefaultMemPool.
pub(crate) unsafe extern "C" fn default_pool(
    out: *mut *mut c_void,
    place: *mut PoolPlace,
    kind: c_int,
) -> Code {
    let (_, call) = real!(default_pool);
    // SAFETY: the caller's arguments.
    unsafe { pool_of(call, out, place, kind) }
}

/// # Safety
/// As cuMemGetMemPool.
pub(crate) unsafe extern "C" fn pool_of_place(
    out: *mut *mut c_void,
    place: *mut PoolPlace,
    kind: c_int,
) -> Code {
    let (_, call) = real!(pool_of_place);
    // SAFETY: the caller's arguments.
    unsafe { pool_of(call, out, place, kind) }
}

/// # Safety
/// As `call`, which is one of the two above.
unsafe fn pool_of(
    call: PoolOfPlaceFn,
    out: *mut *mut c_void,
    place: *mut PoolPlace,
    kind: c_int,
) -> Code {
    // SAFETY: the caller's arguments, passed on; CUDA has read the one and written the other.
    unsafe {
        let code = call(out, place, kind);
        if let (SUCCESS, Some(&pool), Some(place)) = (code, out.as_ref(), place.as_ref()) {
            pools::told(pool, *place, kind);
        }
        code
    }
}

/// # Safety
/// As cuMemPoolDestroy.
pub(crate) unsafe extern "C" fn pool_destroy(pool: *mut c_void) -> Code {
    let (_, call) = real!(pool_destroy);
    let id = PoolId::of(pool);
    // Before, since another thread may have the handle anew afterwards.
    let left = pools::forget(pool);
    let (its, count) = (memory::forget_pool(id), counts::forget(id));
    // SAFETY: the caller's argument, passed on.
    let code = unsafe { call(pool) };
    if code != SUCCESS {
        if left {
            pools::leave(pool);
        }
        let still = memory::keep_pool(id, &its);
        count.inspect(|count| counts::keep(id, *count, still));
    }
    code
}

/// # Safety
/// As cuMemCreate.
pub(crate) unsafe extern "C" fn create(
    out: *mut u64,
    size: usize,
    props: *const MemProps,
    flags: u64,
) -> Code {
    let (_, call) = real!(create);
    // SAFETY: the caller's arguments, passed on; CUDA has read the properties.
    unsafe {
        let code = call(out, size, props, flags);
        if let Some(props) = props.as_ref() {
            mapped::created(code, props);
        }
        code
    }
}

/// # Safety
/// As cuDeviceGetAttribute.
pub(crate) unsafe extern "C" fn device_attribute(
    out: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> Code {
    let (_, call) = real!(attribute);
    // SAFETY: the caller's arguments, passed on; where it is not null, CUDA has written the value.
    unsafe {
        let code = call(out, attribute, device);
        if let (SUCCESS, Some(value)) = (code, out.as_mut()) {
            *value = mapped::attribute(attribute, *value);
        }
        code
    }
}

/// # Safety
/// As cuMemGetInfo.
pub(crate) unsafe extern "C" fn mem_info(free: *mut usize, total: *mut usize) -> Code {
    let Some(call) = Real::get().map(|real| real.cuda.mem_info()) else {
        return NOT_INITIALIZED;
    };
    let Some(call) = call else {
        return memory::MISSING;
    };
    // SAFETY: the caller's arguments, passed on; where they are not null, CUDA has written them.
    unsafe {
        let code = call(free, total);
        if code == SUCCESS && Config::get().host_in_info {
            if let (Some(free), Some(total)) = (free.as_mut(), total.as_mut()) {
                memory::with_host(free, total);
            }
        }
        code
    }
}

/// # Safety
/// As cuMemFree.
pub(crate) unsafe extern "C" fn free(base: u64) -> Code {
    let (_, call) = real!(free);
    let leaving = memory::Leaving::new(base);
    // SAFETY: the caller's argument, passed on.
    leaving.freed(unsafe { call(base) })
}

/// # Safety
/// As cuMemFreeAsync.
pub(crate) unsafe extern "C" fn free_async<const PTSZ: bool>(base: u64, stream: Stream) -> Code {
    let (real, call) = real!(PTSZ, free_async, free_async_ptsz);
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        let own = stream_for::<PTSZ>(stream);
        memory::free_async(real, base, own, || call(base, stream))
    }
}

/// A function after which handles of kernels may name others.
macro_rules! unloading {
    ($($name:ident($type:ty) = $cuda:literal, $call:path;)*) => {$(
        #[doc = concat!("# Safety\nAs ", $cuda, ".")]
        pub(crate) unsafe extern "C" fn $name(what: $type) -> Code {
            let (real, call) = real!($name);
            KERNELS.get().forget();
            // SAFETY: the caller's argument, passed on.
            let code = $call(real, || unsafe { call(what) });
            // A launch of another thread may have asked in between.
            KERNELS.get().forget();
            code
        }
    )*};
}

unloading! {
    module_unload(*mut c_void) = "cuModuleUnload", kernels_alone;
    library_unload(*mut c_void) = "cuLibraryUnload", kernels_alone;
    ctx_destroy(*mut c_void) = "cuCtxDestroy", with_memory;
    ctx_destroy_v1(*mut c_void) = "cuCtxDestroy", with_memory;
    ctx_detach(*mut c_void) = "cuCtxDetach", with_memory;
    primary_reset(c_int) = "cuDevicePrimaryCtxReset", with_memory;
    primary_reset_v1(c_int) = "cuDevicePrimaryCtxReset", with_memory;
}

/// What takes no memory with it.
fn kernels_alone(_: &Real, call: impl FnOnce() -> Code) -> Code {
    call()
}

/// What destroys a context, with the memory that was allocated in it, where CUDA does not refuse.
fn with_memory(real: &Real, call: impl FnOnce() -> Code) -> Code {
    let going = Going::new();
    record::context_may_go(&real.cuda);
    record::memory_goes();
    // The last: to let UVM go may call what launches.
    record::events_go(&real.cuda);
    let code = call();
    going.went(real, code == SUCCESS);
    if code == SUCCESS {
        memory::forget_gone(real);
    }
    code
}

/// # Safety
/// As cuDevicePrimaryCtxRelease; `V1`: under its name before CUDA 11.
pub(crate) unsafe extern "C" fn primary_release<const V1: bool>(device: c_int) -> Code {
    let (real, call) = real!(V1, primary_release, primary_release_v1);
    // SAFETY: the caller's argument, passed on.
    releasing(real, &[device], || unsafe { call(device) })
}

/// "Destroys the green context, releasing the primary context of the device that this green context was
/// created for" (CUDA Driver API). Which device that is, nobody says of a green context that is current to
/// another thread.
///
/// # Safety
/// As cuGreenCtxDestroy.
pub(crate) unsafe extern "C" fn green_destroy(context: *mut c_void) -> Code {
    let (real, call) = real!(green_destroy);
    let mut count = 0;
    // SAFETY: the output is writable. After an error nobody has written it.
    let _ = (real.cuda.device_count()).map(|call| unsafe { call(&mut count) });
    let active: Vec<c_int> = (0..count)
        .filter(|&device| real.is_active(device))
        .collect();
    // SAFETY: the caller's argument, passed on.
    releasing(real, &active, || unsafe { call(context) })
}

/// What takes a reference from the primary context of one of these devices: with the last one, that goes,
/// and with it the memory that was allocated in it.
fn releasing(real: &Real, devices: &[c_int], call: impl FnOnce() -> Code) -> Code {
    KERNELS.get().forget();
    let going = Going::new();
    record::context_may_go(&real.cuda);
    record::events_go(&real.cuda);
    let code = call();
    KERNELS.get().forget();
    // Others may hold it still.
    let held = devices.iter().all(|&device| real.is_active(device));
    if !held {
        record::memory_goes();
    }
    going.went(real, code == SUCCESS && !held);
    if code == SUCCESS && !held {
        memory::forget_gone(real);
    }
    code
}
