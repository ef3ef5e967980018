// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Telling the driver, in the order of a stream, which kernel comes.
//!
//! A host function is put into the stream just before the kernel (`DeepUM` §3.1).
//! It gets the execution ID as its one argument, and which GPU it is for by being a
//! function of that GPU, so that nothing is allocated.

use core::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::OnceLock;

use uvmrust::cuda::{Cuda, HostFn, Stream};
use uvmrust::{Error, Uvm};

use crate::config::Config;

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
/// there: its launch will be announced.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(crate) unsafe fn announce(cuda: &Cuda, stream: Stream, id: u64) {
    // SAFETY: by our contract.
    if unsafe { crate::memory::is_capturing(cuda, stream) } {
        return;
    }
    let Some(function) = cuda
        .current_device()
        .ok()
        .and_then(|device| function_for(cuda, device))
    else {
        return;
    };
    // SAFETY: the data is a number, good for ever. An error is left to the launch
    // that follows, which will meet it too.
    let _ = unsafe { cuda.host_func(stream, function, id as *mut c_void) };
}

fn decide() -> bool {
    let on = Config::get().announce && Uvm::process().can_announce() == Some(true);
    let decided = if on { ON } else { OFF };
    let first = STATE
        .compare_exchange(UNKNOWN, decided, Relaxed, Relaxed)
        .is_ok();
    if first && !on && Config::get().announce {
        eprintln!(
            "uvmrust: this driver takes no execution IDs, so kernels are not announced \
             (load uvm-rust's nvidia-uvm, or set UVMRUST_ANNOUNCE=0)"
        );
    }
    STATE.load(Relaxed) == ON
}

/// The host function of a device, whose UUID is known then.
fn function_for(cuda: &Cuda, device: i32) -> Option<HostFn> {
    let index = usize::try_from(device).ok().filter(|&index| index < GPUS)?;
    if UUIDS[index].get().is_none() {
        let _ = UUIDS[index].set(cuda.uuid_of(device).ok()?);
    }
    Some(FUNCTIONS[index])
}

/// The host function of GPU number `GPU`. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn on_stream<const GPU: usize>(id: *mut c_void) {
    if let Some(&uuid) = UUIDS[GPU].get() {
        // A GPU that UVM does not know yet is no reason to stop.
        if Uvm::process().announce(uuid, id as u64) == Err(Error::NotSupported) {
            STATE.store(OFF, Relaxed);
        }
    }
}

/// A host function for each GPU: its one argument is the execution ID, so its type names the GPU.
const FUNCTIONS: [HostFn; GPUS] = [
    on_stream::<0>,
    on_stream::<1>,
    on_stream::<2>,
    on_stream::<3>,
    on_stream::<4>,
    on_stream::<5>,
    on_stream::<6>,
    on_stream::<7>,
    on_stream::<8>,
    on_stream::<9>,
    on_stream::<10>,
    on_stream::<11>,
    on_stream::<12>,
    on_stream::<13>,
    on_stream::<14>,
    on_stream::<15>,
];
