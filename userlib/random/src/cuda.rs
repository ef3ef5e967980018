// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The stub of CUDA's driver library, as a program sees it, or CUDA's own behind
//! `userlib/tests/gpu_kernels.c`. Every call that must succeed
//! ends the process if it does not: with a line that says which.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A handle: a stream, a graph, a context.
pub type Handle = *mut c_void;

/// What a kernel "get" saw, as the stub has it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Seen {
    pub count: u32,
    pub values: [u64; 16],
}

#[repr(C)]
struct Kernel {
    name: *const c_char,
}

macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        /// The functions, found by their names.
        #[allow(non_snake_case)]
        pub struct Cuda {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Cuda {
            /// Those of the stub library, which was preloaded.
            pub fn load() -> Self {
                Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: a C string; the default scope is always there.
                        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast()) };
                        if found.is_null() {
                            eprintln!("no {}: preload the stub library", stringify!($name));
                            std::process::exit(2);
                        }
                        // SAFETY: the stub's function of this name, with these types.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) -> c_int,
                            >(found)
                        }
                    },)*
                }
            }
        }
    };
}

calls! {
    cuInit(flags: c_uint);
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    cuCtxSetCurrent(context: Handle);
    cuCtxSynchronize();
    cuStreamCreate(stream: *mut Handle, flags: c_uint);
    cuStreamSynchronize(stream: Handle);
    cuStreamBeginCapture_v2(stream: Handle, mode: c_int);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64);
    cuGraphDestroy(graph: Handle);
    cuGraphLaunch(executable: Handle, stream: Handle);
    cuGraphExecDestroy(executable: Handle);
    cuEventCreate(event: *mut Handle, flags: c_uint);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventDestroy_v2(event: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    cuMemAllocManaged(base: *mut u64, length: usize, flags: c_uint);
    cuLaunchKernel(function: *mut c_void, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint,
        by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void,
        extra: *mut *mut c_void);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    stub_violations();
    stub_seed(seed: u64);
}

/// CUDA's `CU_STREAM_CAPTURE_MODE_RELAXED`: the thread may make calls that a capture forbids.
const RELAXED: c_int = 2;

/// The program that was begun last.
static PROGRAM: AtomicU64 = AtomicU64::new(0);

fn must(code: c_int, what: &str) {
    if code != 0 {
        let program = PROGRAM.load(Relaxed);
        println!("wrong: {what} gives {code}, in program {program}");
        std::process::exit(1);
    }
}

// SAFETY, for all calls below: handles are from the stub, which checks them; outputs are
// writable; memory is used as the model allows.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Cuda {
    /// Initialises CUDA and gives the context of a device.
    pub fn context(&self, device: usize) -> Handle {
        let mut context = core::ptr::null_mut();
        must(unsafe { (self.cuInit)(0) }, "cuInit");
        let code = unsafe { (self.cuDevicePrimaryCtxRetain)(&mut context, device as c_int) };
        must(code, "cuDevicePrimaryCtxRetain");
        context
    }

    pub fn use_context(&self, context: Handle) {
        must(
            unsafe { (self.cuCtxSetCurrent)(context) },
            "cuCtxSetCurrent",
        );
    }

    pub fn synchronize_context(&self) {
        must(unsafe { (self.cuCtxSynchronize)() }, "cuCtxSynchronize");
    }

    pub fn stream(&self, flags: c_uint) -> Handle {
        let mut stream = core::ptr::null_mut();
        must(
            unsafe { (self.cuStreamCreate)(&mut stream, flags) },
            "cuStreamCreate",
        );
        stream
    }

    /// Makes a call that a capture forbids in another mode: this thread "is not prohibited from
    /// potentially unsafe API calls" then (CUDA Driver API, cuThreadExchangeStreamCaptureMode).
    /// Which calls these are, no list says. A GPU has refused `cuGraphExecDestroy` with
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` while another stream was being captured.
    fn relaxed(&self, what: &str, call: impl FnOnce() -> c_int) {
        let mut mode = RELAXED;
        let exchange = self.cuThreadExchangeStreamCaptureMode;
        must(unsafe { exchange(&mut mode) }, "the relaxed mode");
        must(call(), what);
        must(unsafe { exchange(&mut mode) }, "the mode of before");
    }

    /// Waits for a stream, also while this thread captures another.
    pub fn synchronize(&self, stream: Handle) {
        self.relaxed("cuStreamSynchronize", || unsafe {
            (self.cuStreamSynchronize)(stream)
        });
    }

    pub fn event(&self, stream: Handle) -> Handle {
        let mut event = core::ptr::null_mut();
        must(
            unsafe { (self.cuEventCreate)(&mut event, 2) },
            "cuEventCreate",
        );
        must(
            unsafe { (self.cuEventRecord)(event, stream) },
            "cuEventRecord",
        );
        event
    }

    /// Waits in `stream`, and gives the event up.
    pub fn wait(&self, stream: Handle, event: Handle) {
        must(
            unsafe { (self.cuStreamWaitEvent)(stream, event, 0) },
            "cuStreamWaitEvent",
        );
        must(unsafe { (self.cuEventDestroy_v2)(event) }, "cuEventDestroy");
    }

    pub fn begin_capture(&self, stream: Handle, mode: c_int) {
        let code = unsafe { (self.cuStreamBeginCapture_v2)(stream, mode) };
        must(code, "cuStreamBeginCapture");
    }

    /// Ends a capture and makes an executable graph of it.
    pub fn end_capture(&self, stream: Handle) -> Handle {
        let (mut graph, mut executable) = (core::ptr::null_mut(), core::ptr::null_mut());
        let code = unsafe { (self.cuStreamEndCapture)(stream, &mut graph) };
        must(code, "cuStreamEndCapture");
        let code = unsafe { (self.cuGraphInstantiateWithFlags)(&mut executable, graph, 0) };
        must(code, "cuGraphInstantiate");
        must(unsafe { (self.cuGraphDestroy)(graph) }, "cuGraphDestroy");
        executable
    }

    pub fn launch_graph(&self, executable: Handle, stream: Handle) {
        must(
            unsafe { (self.cuGraphLaunch)(executable, stream) },
            "cuGraphLaunch",
        );
    }

    /// Gives an executable graph up, also while this thread captures a stream.
    pub fn destroy_graph(&self, executable: Handle) {
        self.relaxed("cuGraphExecDestroy", || unsafe {
            (self.cuGraphExecDestroy)(executable)
        });
    }

    pub fn managed(&self, length: usize) -> u64 {
        let mut base = 0;
        must(
            unsafe { (self.cuMemAllocManaged)(&mut base, length, 1) },
            "cuMemAllocManaged",
        );
        base
    }

    fn launch(&self, name: &CStr, stream: Handle, base: u64, length: usize, number: u64) {
        let kernel = Kernel {
            name: name.as_ptr(),
        };
        // The stub keeps the name alone.
        let mut params = [&base as *const u64, &(length as u64), &number];
        let code = unsafe {
            (self.cuLaunchKernel)(
                (&kernel as *const Kernel).cast_mut().cast(),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                params.as_mut_ptr().cast(),
                core::ptr::null_mut(),
            )
        };
        must(code, "cuLaunchKernel");
    }

    /// A kernel that writes `value`.
    pub fn put(&self, stream: Handle, base: u64, length: usize, value: u64) {
        self.launch(c"put", stream, base, length, value);
    }

    /// A kernel that reads; `seen` stays where it is until it has run.
    pub fn get(&self, stream: Handle, base: u64, length: usize, seen: *mut Seen) {
        self.launch(c"get", stream, base, length, seen as u64);
    }

    pub fn violations(&self) -> c_int {
        unsafe { (self.stub_violations)() }
    }

    /// A program begins, which errors name.
    pub fn begins(&self, number: u64) {
        PROGRAM.store(number, Relaxed);
    }

    pub fn seed(&self, seed: u64) {
        unsafe { (self.stub_seed)(seed) };
    }
}
