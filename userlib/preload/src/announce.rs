// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Telling the driver, in the order of a stream, which kernel comes.
//!
//! A host function is put into the stream just before the kernel (`DeepUM` §3.1).
//! It gets the execution ID as its one argument, and which GPU it is for by being a
//! function of that GPU, so that nothing is allocated. A launch that goes with the one before
//! (`groups.rs`) has none.

use core::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::Instant;

use uvmrust::cuda::{Cuda, HostFn, Stream};
use uvmrust::{Error, Uvm};

use crate::config::Config;
use crate::groups::{Groups, Next};
use crate::say::say;

/// GPUs whose kernels are announced; those of others are not.
const GPUS: usize = 16;

/// UUIDs by CUDA's device handle, as they become known.
static UUIDS: [OnceLock<[u8; 16]>; GPUS] = [const { OnceLock::new() }; GPUS];

const UNKNOWN: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;
/// Whether kernels are announced. Decided at the first launch, when CUDA has opened
/// UVM for sure; turned off for good if the driver will not have it.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether to announce at all.
pub(crate) fn enabled() -> bool {
    match STATE.load(Relaxed) {
        ON => true,
        OFF => false,
        _ => decide(),
    }
}

/// Puts the announcement of `id` into `stream`, unless a graph is being captured
/// there: its launch will be announced. Kernels of one `kind` take about as long.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(crate) unsafe fn announce(cuda: &Cuda, stream: Stream, kind: u64, id: u64) {
    // SAFETY: by our contract.
    if unsafe { crate::memory::is_capturing(cuda, stream) } {
        return;
    }
    let Some(device) = cuda
        .current_device()
        .ok()
        .and_then(|device| known(cuda, device))
    else {
        return;
    };
    // The default streams have the same handles on each GPU.
    let key = (stream as u64) << 8 | (device as u64 + 1);
    let (function, data) = match groups().launch(key, kind, id) {
        Next::Joins => return,
        Next::Timed(token) => (TIMED[device], token),
        Next::Untimed => (FUNCTIONS[device], id),
    };
    // SAFETY: the data is a number, good for ever. An error is left to the launch
    // that follows, which will meet it too.
    let _ = unsafe { cuda.host_func(stream, function, data as *mut c_void) };
}

/// Of this process. Made at a launch, since a host function is no place to allocate.
fn groups() -> &'static Groups {
    static GROUPS: OnceLock<Groups> = OnceLock::new();
    GROUPS.get_or_init(|| {
        now_ns();
        Groups::new(Config::get().announce_every_us.saturating_mul(1000))
    })
}

/// Nanoseconds since the first call.
fn now_ns() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn decide() -> bool {
    let on = Config::get().announce && Uvm::process().can_announce() == Some(true);
    let decided = if on { ON } else { OFF };
    let first = STATE
        .compare_exchange(UNKNOWN, decided, Relaxed, Relaxed)
        .is_ok();
    if first && !on && Config::get().announce {
        say(
            "this driver takes no execution IDs, so kernels are not announced \
             (load uvm-rust's nvidia-uvm, or set UVMRUST_ANNOUNCE=0)",
        );
    }
    STATE.load(Relaxed) == ON
}

/// The number of a device that has host functions, and whose UUID is known then.
fn known(cuda: &Cuda, device: i32) -> Option<usize> {
    let index = usize::try_from(device).ok().filter(|&index| index < GPUS)?;
    if UUIDS[index].get().is_none() {
        let _ = UUIDS[index].set(cuda.uuid_of(device).ok()?);
    }
    Some(index)
}

/// The host function of GPU number `GPU`. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn on_stream<const GPU: usize>(id: *mut c_void) {
    tell(GPU, id as u64);
}

/// The same for what is timed.
unsafe extern "C" fn on_stream_timed<const GPU: usize>(token: *mut c_void) {
    let token = token as u64;
    if let Some(id) = groups().begins(token, now_ns()) {
        tell(GPU, id);
        groups().done(token, now_ns());
    }
}

fn tell(gpu: usize, id: u64) {
    if let Some(&uuid) = UUIDS[gpu].get() {
        // A GPU that UVM does not know yet is no reason to stop.
        if Uvm::process().announce(uuid, id) == Err(Error::NotSupported) {
            STATE.store(OFF, Relaxed);
        }
    }
}

/// Those of all GPUs: the one argument says nothing of the GPU, so the function does.
macro_rules! of_each_gpu {
    ($function:ident) => {
        [
            $function::<0>,
            $function::<1>,
            $function::<2>,
            $function::<3>,
            $function::<4>,
            $function::<5>,
            $function::<6>,
            $function::<7>,
            $function::<8>,
            $function::<9>,
            $function::<10>,
            $function::<11>,
            $function::<12>,
            $function::<13>,
            $function::<14>,
            $function::<15>,
        ]
    };
}

const FUNCTIONS: [HostFn; GPUS] = of_each_gpu!(on_stream);
const TIMED: [HostFn; GPUS] = of_each_gpu!(on_stream_timed);
