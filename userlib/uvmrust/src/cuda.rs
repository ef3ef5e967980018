// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The part of CUDA's driver library that is used: found with dlopen where the
//! process already has it, so that nothing is linked and nothing is initialised.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void, CStr};

use crate::{broken, Error, Result};

/// `CUstream`: null is the default stream.
pub type Stream = *mut c_void;
/// `CUevent`: a mark in a stream that others wait for.
pub type Event = *mut c_void;
/// `CUgraph`: recorded work, which a launch does again.
pub type Graph = *mut c_void;
/// `CUuserObject`: data that graphs own, with its destructor.
pub type UserObject = *mut c_void;
/// `CUcontext`: what a process has of one device.
pub type Context = *mut c_void;
/// `CUhostFn`: a function that CUDA calls on the host in the order of a stream; it may not call
/// CUDA.
pub type HostFn = unsafe extern "C" fn(*mut c_void);

/// `CUmemLocation`: where memory is, or is to go.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    /// That of CUDA's number of a device, or of [`DEVICE_CPU`]. "Location is a device location,
    /// thus id is a device ordinal"; "Location is host, id is ignored" (CUDA Driver API,
    /// CUmemLocationType).
    pub const fn of(device: c_int) -> Self {
        match device {
            DEVICE_CPU => Self { kind: 2, id: 0 },
            device => Self {
                kind: 1,
                id: device,
            },
        }
    }
}

/// The default stream that all threads share (`CU_STREAM_LEGACY`).
pub const STREAM_LEGACY: Stream = core::ptr::without_provenance_mut(1);
/// The calling thread's own stream (`CU_STREAM_PER_THREAD`).
pub const STREAM_PER_THREAD: Stream = core::ptr::without_provenance_mut(2);
/// `CU_DEVICE_CPU`: host memory, where a call takes the number of a device.
pub const DEVICE_CPU: c_int = -1;

const CUDA_SUCCESS: c_int = 0;
const CUDA_ERROR_INVALID_VALUE: c_int = 1;
const CUDA_ERROR_OUT_OF_MEMORY: c_int = 2;
const CUDA_ERROR_NOT_INITIALIZED: c_int = 3;
const CUDA_ERROR_DEINITIALIZED: c_int = 4;
const CUDA_ERROR_INVALID_DEVICE: c_int = 101;
const CUDA_ERROR_INVALID_CONTEXT: c_int = 201;
const CUDA_ERROR_INVALID_HANDLE: c_int = 400;
const CUDA_ERROR_NOT_SUPPORTED: c_int = 801;
/// The first and the last of `CUDA_ERROR_STREAM_CAPTURE_*`.
const CUDA_ERROR_STREAM_CAPTURE: core::ops::RangeInclusive<c_int> = 900..=908;

/// `CU_STREAM_CAPTURE_STATUS_NONE`: what is put into the stream is done.
const CAPTURE_NONE: c_int = 0;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`: what is put into the stream becomes part of a graph.
const CAPTURE_ACTIVE: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: this thread may make calls that CUDA refuses during a capture
/// otherwise.
const MODE_RELAXED: c_int = 2;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, without which CUDA creates no user object: nothing waits
/// for a destructor.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the caller's reference becomes the graph's.
const MOVE: c_uint = 1;

/// Declares the table of functions and how it is filled. A function that the
/// library lacks is `None`.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal: fn($($arg:ty),* $(,)?);)*) => {
        /// Functions of libcuda.so.1, by their names without `cu`.
        ///
        /// Safe methods call them, so that safe code puts none there:
        ///
        /// ```compile_fail,E0616
        /// unsafe extern "C" fn other(_: *mut i32) -> i32 {
        ///     0
        /// }
        ///
        /// let mut cuda = uvmrust::cuda::Cuda::default();
        /// cuda.device_count = Some(other);
        /// ```
        ///
        /// ```compile_fail,E0451
        /// unsafe extern "C" fn other(_: *mut i32) -> i32 {
        ///     0
        /// }
        ///
        /// uvmrust::cuda::Cuda {
        ///     device_count: Some(other),
        ///     ..Default::default()
        /// };
        /// ```
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Cuda {
            $(pub(crate) $field: Option<unsafe extern "C" fn($($arg),*) -> c_int>,)*
        }

        impl Cuda {
            $(
                $(#[$doc])*
                pub fn $field(&self) -> Option<unsafe extern "C" fn($($arg),*) -> c_int> {
                    self.$field
                }
            )*

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
    /// cuMemDiscardAndPrefetchBatchAsync(dptrs, sizes, count, locations, the first operation of
    /// each location, the number of locations, flags, stream), CUDA 13.
    mem_discard_and_prefetch_batch = c"cuMemDiscardAndPrefetchBatchAsync":
        fn(*mut u64, *mut usize, usize, *mut Location, *mut usize, usize, c_ulonglong, Stream);
    /// cuMemPrefetchBatchAsync, with the same arguments, CUDA 13.
    mem_prefetch_batch = c"cuMemPrefetchBatchAsync":
        fn(*mut u64, *mut usize, usize, *mut Location, *mut usize, usize, c_ulonglong, Stream);
    /// cuMemPrefetchAsync(dptr, size, device, stream), its first version.
    mem_prefetch = c"cuMemPrefetchAsync": fn(u64, usize, c_int, Stream);
    /// The second: cuMemPrefetchAsync(dptr, size, location, flags, stream), CUDA 12.2.
    mem_prefetch_to = c"cuMemPrefetchAsync_v2": fn(u64, usize, Location, c_uint, Stream);
    /// cuMemAllocManaged(out dptr, size, flags).
    mem_alloc_managed = c"cuMemAllocManaged": fn(*mut u64, usize, c_uint);
    /// cuMemFree(dptr) gives memory back, managed or not.
    mem_free = c"cuMemFree_v2": fn(u64);
    /// cuMemGetInfo(out free, out total).
    mem_info = c"cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    /// cuPointerGetAttribute(out, attribute, address) tells of the allocation at an address.
    pointer_attribute = c"cuPointerGetAttribute": fn(*mut c_void, c_int, u64);
    /// cuLaunchHostFunc(stream, function, data) has the host call a function in the order of a
    /// stream.
    launch_host_func = c"cuLaunchHostFunc": fn(Stream, HostFn, *mut c_void);
    /// cuStreamSynchronize(stream) waits until all that is in the stream is done.
    stream_synchronize = c"cuStreamSynchronize": fn(Stream);
    /// cuStreamWaitEvent(stream, event, flags) holds back what comes later in the stream.
    stream_wait_event = c"cuStreamWaitEvent": fn(Stream, Event, c_uint);
    /// cuStreamIsCapturing(stream, out status), whose status is a `CU_STREAM_CAPTURE_STATUS_*`.
    stream_is_capturing = c"cuStreamIsCapturing": fn(Stream, *mut c_int);
    /// cuStreamGetCaptureInfo(stream, out status, out id, out graph, out dependencies, out
    /// their number), CUDA 11.3.
    stream_capture_info = c"cuStreamGetCaptureInfo_v2":
        fn(Stream, *mut c_int, *mut u64, *mut Graph, *mut *const c_void, *mut usize);
    /// cuStreamGetCtx(stream, out context) names the context to which a stream belongs.
    stream_context = c"cuStreamGetCtx": fn(Stream, *mut Context);
    /// The second: cuStreamGetCtx(stream, out context, out green context), CUDA 12.5. Of a stream of a
    /// green context, the first is the primary context of its device.
    stream_contexts = c"cuStreamGetCtx_v2": fn(Stream, *mut Context, *mut Context);
    /// cuThreadExchangeStreamCaptureMode(in and out mode), CUDA 10.1.
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode": fn(*mut c_int);
    /// cuUserObjectCreate(out object, data, destructor, references, flags), CUDA 11.3.
    user_object_create = c"cuUserObjectCreate":
        fn(*mut UserObject, *mut c_void, HostFn, c_uint, c_uint);
    /// cuUserObjectRelease(object, references), CUDA 11.3.
    user_object_release = c"cuUserObjectRelease": fn(UserObject, c_uint);
    /// cuGraphRetainUserObject(graph, object, references, flags), CUDA 11.3.
    graph_retain_user_object = c"cuGraphRetainUserObject":
        fn(Graph, UserObject, c_uint, c_uint);
    /// cuEventCreate(out event, flags) makes an event of the current context.
    event_create = c"cuEventCreate": fn(*mut Event, c_uint);
    /// cuEventRecord(event, stream) puts the event behind all that is in the stream.
    event_record = c"cuEventRecord": fn(Event, Stream);
    /// cuEventQuery(event) asks whether all is done that the event stands behind.
    event_query = c"cuEventQuery": fn(Event);
    /// cuEventSynchronize(event) waits until all is done that the event stands behind.
    event_synchronize = c"cuEventSynchronize": fn(Event);
    /// cuEventDestroy(event) may be called before the event is complete.
    event_destroy = c"cuEventDestroy_v2": fn(Event);
    /// cuEventElapsedTime(out milliseconds, start, end), its first version.
    event_elapsed = c"cuEventElapsedTime": fn(*mut f32, Event, Event);
    /// cuDeviceGetCount(out count) counts the devices that the process may use.
    device_count = c"cuDeviceGetCount": fn(*mut c_int);
    /// cuDeviceGet(out device, ordinal) fails for an ordinal that is not below the count.
    device_get = c"cuDeviceGet": fn(*mut c_int, c_int);
    /// cuDeviceGetUuid(out uuid, device), its first version: that of the whole GPU.
    device_uuid = c"cuDeviceGetUuid": fn(*mut [u8; 16], c_int);
    /// The second, CUDA 11.4: "If the device is in MIG mode, returns its MIG UUID which
    /// uniquely identifies the subscribed MIG compute instance" (CUDA Driver API).
    device_uuid_of_part = c"cuDeviceGetUuid_v2": fn(*mut [u8; 16], c_int);
    /// cuDevicePrimaryCtxRetain(out context, device) makes the context if nobody has it yet.
    primary_retain = c"cuDevicePrimaryCtxRetain": fn(*mut Context, c_int);
    /// cuDevicePrimaryCtxGetState(device, out flags, out whether it is active).
    primary_state = c"cuDevicePrimaryCtxGetState": fn(c_int, *mut c_uint, *mut c_int);
    /// cuCtxGetCurrent(out context) gives null to a thread that has none.
    ctx_current = c"cuCtxGetCurrent": fn(*mut Context);
    /// cuCtxPushCurrent(context) makes a context the thread's current one.
    ctx_push = c"cuCtxPushCurrent_v2": fn(Context);
    /// cuCtxPopCurrent(out context) undoes the last push of the thread.
    ctx_pop = c"cuCtxPopCurrent_v2": fn(*mut Context);
    /// cuCtxGetDevice(out device) names the device of the current context.
    ctx_device = c"cuCtxGetDevice": fn(*mut c_int);
    /// cuCtxSynchronize() waits for all work of the current context.
    ctx_synchronize = c"cuCtxSynchronize": fn();
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

    /// Whether this CUDA can discard, by the call that serves (`batches`).
    pub fn can_discard(&self) -> bool {
        self.mem_discard_and_prefetch_batch.is_some()
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
        let length = length as usize;
        // SAFETY: both take any address and check it; the stream by our contract.
        check_range(unsafe {
            match (self.mem_prefetch, self.mem_prefetch_to) {
                (Some(call), _) => call(base, length, device, stream),
                (None, Some(call)) => call(base, length, Location::of(device), 0, stream),
                (None, None) => CUDA_ERROR_NOT_SUPPORTED,
            }
        })
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

    /// The graph that a stream is being captured into, if it is. Breaks no capture.
    ///
    /// # Errors
    /// [`Error::Capture`]: into one that is invalid already; or the stream is the legacy
    /// default stream, which cannot be used while a blocking stream of its context is
    /// being captured; or this CUDA cannot tell the graph.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub unsafe fn captured_into(&self, stream: Stream) -> Result<Option<Graph>> {
        // SAFETY: by our contract.
        let capture = unsafe { self.capture(stream)? };
        Ok(capture.map(|(_, graph)| graph))
    }

    /// The number of the capture that a stream is part of, and the graph that it makes; `None`
    /// for a stream that is not being captured. The number is "a unique id representing the
    /// capture sequence over the lifetime of the process" (CUDA Runtime API,
    /// `cudaStreamGetCaptureInfo`). Breaks no capture.
    ///
    /// # Errors
    /// As for [`Cuda::captured_into`].
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub unsafe fn capture(&self, stream: Stream) -> Result<Option<(u64, Graph)>> {
        let (mut status, mut id, mut graph) = (CAPTURE_NONE, 0, core::ptr::null_mut());
        let code = match (self.stream_capture_info, self.stream_is_capturing) {
            // SAFETY: what is not asked for may be null; the rest is writable; the stream by
            // our contract.
            (Some(call), _) => unsafe {
                call(
                    stream,
                    &mut status,
                    &mut id,
                    &mut graph,
                    core::ptr::null_mut(),
                    core::ptr::null_mut(),
                )
            },
            // SAFETY: the output is writable, the stream by our contract.
            (None, Some(call)) => unsafe { call(stream, &mut status) },
            // Before CUDA 10 there are no captures.
            (None, None) => CUDA_SUCCESS,
        };
        check(code)?;
        match status {
            CAPTURE_NONE => Ok(None),
            CAPTURE_ACTIVE if !graph.is_null() => Ok(Some((id, graph))),
            _ => Err(Error::Capture),
        }
    }

    /// Nothing, if work for `stream` runs; [`Error::Capture`] where it would become part of
    /// a graph, or break a capture.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub unsafe fn not_captured(&self, stream: Stream) -> Result<()> {
        // SAFETY: by our contract.
        match unsafe { self.captured_into(stream)? } {
            None => Ok(()),
            Some(_) => Err(Error::Capture),
        }
    }

    /// Gives `data` to a graph, which frees it with `destroy` when neither the graph nor
    /// anything that was made of it can use it any more. `destroy` calls nothing of CUDA.
    ///
    /// # Errors
    /// [`Error::Capture`]: this CUDA cannot. The data is still the caller's.
    ///
    /// # Safety
    /// `graph` is one; `data` is good for `destroy`, once, from any thread.
    pub unsafe fn give_to_graph(
        &self,
        graph: Graph,
        data: *mut c_void,
        destroy: HostFn,
    ) -> Result<()> {
        let calls = (self.user_object_create, self.graph_retain_user_object);
        let (Some(create), Some(retain)) = calls else {
            return Err(Error::Capture);
        };
        let mut object = core::ptr::null_mut();
        // SAFETY: the output is writable; the rest by our contract. If the graph does not
        // take the object, its one reference is ours: it is not released, so that the data
        // stays the caller's, at the price of CUDA's record of it.
        unsafe {
            check(create(&mut object, data, destroy, 1, NO_DESTRUCTOR_SYNC))?;
            check(retain(graph, object, 1, MOVE))
        }
    }

    /// Does what is forbidden while some stream is being captured, since it takes no turn
    /// in a stream: allocations, for one. They are no part of the graph.
    pub fn unordered<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut mode = MODE_RELAXED;
        let swapped = match self.exchange_capture_mode {
            // SAFETY: the mode is writable, and one that CUDA knows.
            Some(call) => check(unsafe { call(&mut mode) }).is_ok(),
            None => false,
        };
        let done = work();
        if let (Some(call), true) = (self.exchange_capture_mode, swapped) {
            // SAFETY: as above: the mode that the thread had.
            let _ = unsafe { call(&mut mode) };
        }
        done
    }

    /// Does something with `stream` while its context is current. No sentence of CUDA's says
    /// that a host function, a prefetch or a discard may be put into a stream of another context
    /// than the current one. A kernel may not: "A kernel launch will fail if it is issued to
    /// a stream that is not associated to the current device" (CUDA Programming Guide, Stream
    /// and Event Behavior). The special streams are those of the current context.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such stream. Otherwise those of `work`.
    ///
    /// # Safety
    /// `stream` is a stream, of whichever context, or a special one.
    pub unsafe fn in_context_of<T>(
        &self,
        stream: Stream,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (Some(current), Some(push), Some(pop)) =
            (self.ctx_current, self.ctx_push, self.ctx_pop)
        else {
            return work();
        };
        if stream.addr() <= STREAM_PER_THREAD.addr() || broken::CONTEXT {
            return work();
        }
        let mut ours = core::ptr::null_mut();
        // SAFETY: the outputs are writable; the stream by our contract.
        unsafe {
            let Some(its) = self.context_of(stream)? else {
                return work();
            };
            check(current(&mut ours))?;
            if its == ours {
                return work();
            }
            check(push(its))?;
        }
        let done = work();
        // SAFETY: the output is writable. The stack has what was pushed above.
        let _ = unsafe { pop(&mut core::ptr::null_mut()) };
        done
    }

    /// The context that may be made current for a stream, which is not a special one. Of a stream of a
    /// green context that is the primary context of its device: "a green context can be current to
    /// only one thread at a time" (CUDA Driver API, cuGreenCtxCreate). `None`: this CUDA does not say.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such stream.
    ///
    /// # Safety
    /// `stream` is a stream, of whichever context.
    pub unsafe fn context_of(&self, stream: Stream) -> Result<Option<Context>> {
        let (mut context, mut green) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: the outputs are writable; the stream by our contract.
        let code = unsafe {
            match (self.stream_contexts, self.stream_context) {
                (Some(call), _) => call(stream, &mut context, &mut green),
                (None, Some(call)) => call(stream, &mut context),
                (None, None) => return Ok(None),
            }
        };
        match code {
            // One of a green context, which the first version does not know.
            CUDA_ERROR_NOT_SUPPORTED => Ok(None),
            code => check(code).map(|()| Some(context)),
        }
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

    /// The UUID of a device, by CUDA's handle: of a part of a GPU (MIG) that part's own.
    pub fn uuid_of(&self, device: c_int) -> Result<[u8; 16]> {
        let call = self.device_uuid_of_part.or(self.device_uuid);
        self.uuid_by(call, device)
    }

    /// Whether a device is a part of a GPU (MIG): then its UUID is not the GPU's.
    pub(crate) fn is_part(&self, device: c_int) -> bool {
        let whole = self.uuid_by(self.device_uuid, device);
        device != DEVICE_CPU && whole.is_ok() && self.uuid_of(device) != whole
    }

    fn uuid_by(
        &self,
        call: Option<unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int>,
        device: c_int,
    ) -> Result<[u8; 16]> {
        let call = call.ok_or(Error::NotSupported)?;
        let mut uuid = [0; 16];
        // SAFETY: the output is writable and of the right type; any device is checked
        // by CUDA.
        check(unsafe { call(&mut uuid, device) })?;
        Ok(uuid)
    }

    /// The ordinal of the device of this UUID.
    ///
    /// # Errors
    /// [`Error::NoDevice`]: all devices have another one. Where some have not told theirs, and no other
    /// matches, it is the first such error: that device may be it.
    pub fn ordinal(&self, uuid: &[u8; 16]) -> Result<c_int> {
        let call = self.device_count.ok_or(Error::NotSupported)?;
        let mut count = 0;
        // SAFETY: the output is writable and of the right type.
        check(unsafe { call(&mut count) })?;
        let mut untold = None;
        for n in 0..count {
            match self.uuid(n) {
                Ok(found) if found == *uuid => return Ok(n),
                Ok(_) => {}
                Err(error) => untold = untold.or(Some(error)),
            }
        }
        Err(untold.unwrap_or(Error::NoDevice))
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

/// Whether a handle is that of the default stream that all threads share, by either name.
pub(crate) fn is_legacy(stream: Stream) -> bool {
    stream.is_null() || stream == STREAM_LEGACY
}

/// The result of a CUDA call whose arguments, all but the memory, are known to be good.
pub(crate) fn check_range(code: c_int) -> Result<()> {
    match code {
        CUDA_ERROR_INVALID_VALUE => Err(Error::NotManaged),
        other => check(other),
    }
}

/// The result of a CUDA call.
pub fn check(code: c_int) -> Result<()> {
    match code {
        CUDA_SUCCESS => Ok(()),
        CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_HANDLE => Err(Error::Invalid),
        CUDA_ERROR_OUT_OF_MEMORY => Err(Error::NoMemory),
        CUDA_ERROR_NOT_INITIALIZED | CUDA_ERROR_DEINITIALIZED | CUDA_ERROR_INVALID_CONTEXT => {
            Err(Error::NoContext)
        }
        CUDA_ERROR_INVALID_DEVICE => Err(Error::NoDevice),
        CUDA_ERROR_NOT_SUPPORTED => Err(Error::NotSupported),
        code if CUDA_ERROR_STREAM_CAPTURE.contains(&code) => Err(Error::Capture),
        _ => Err(Error::Driver),
    }
}

mod batches;
mod order;
