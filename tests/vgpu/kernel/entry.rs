// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C calls. `vgpu_rs.h` declares the same and states the contract that the
//! `// SAFETY:` comments argue from:
//!
//! - **I-own**: a `*const Device` from C is what `vgpu_rs_create` gave, and
//!   `vgpu_rs_destroy`, which runs along with nothing, has not been called on it.
//! - **I-call**: other pointers are valid, aligned and unshared for the call.
//!
//! One mutex guards all of a GPU. It is held for a turn of the emulator or a call
//! of UVM's or a user's, never while UVM is called and never across a wait. UVM
//! calls in with most of its own locks held: this one is inside of them all.

use core::ffi::c_int;
use core::ffi::c_void;
use core::ptr::NonNull;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::error::code::*;
use kernel::new_condvar;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::CondVar;
use kernel::sync::Mutex;

use crate::emu;
use crate::emu::Config;
use crate::emu::Gpu;
use crate::emu::Order;
use crate::emu::Personality;
use crate::machine::Buffer;
use crate::machine::KernelMachine;

mod dev;
mod pma;
mod rm;

/// One GPU, as C holds it.
#[pin_data]
pub(crate) struct Device {
    #[pin]
    gpu: Mutex<KBox<Gpu<KernelMachine>>>,
    /// Woken when a kernel of any channel has ended.
    #[pin]
    finished: CondVar,
}

/// The layout of `struct vgpu_rs_config` in `vgpu_rs.h`.
#[repr(C)]
pub(crate) struct RsConfig {
    vidmem: *mut c_void,
    vidmem_bytes: u64,
    seed: u64,
    index: u32,
    personality: u32,
    fault_entries: u32,
    tlb: u8,
    drop_invalidates: u8,
    poison: u8,
    zero: u8,
    adversarial: u8,
}

/// The layout of `struct vgpu_rs_chip` in `vgpu_rs.h`.
#[repr(C)]
pub(crate) struct RsChip {
    name: [u8; 32],
    architecture: u32,
    implementation: u32,
    host_class: u32,
    ce_class: u32,
    compute_class: u32,
    tpcs_per_gpc: u32,
    utlb_count: u32,
    utlb_faults: u32,
    nvlink: u32,
    nvlink_mbps: u32,
}

/// The errno that C gets for an error of the emulator's.
fn errno(e: emu::Error) -> Error {
    match e {
        emu::Error::NoMemory | emu::Error::NoVidmem => ENOMEM,
        emu::Error::Invalid => EINVAL,
        emu::Error::NotFound => ENOENT,
        emu::Error::Busy => EBUSY,
        emu::Error::NotBound => Error::from_errno(-(kernel::bindings::ENOTCONN as c_int)),
        emu::Error::Stopped => EPIPE,
        emu::Error::Full => ENOSPC,
    }
}

fn to_c(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// Runs `f` on the GPU, under its mutex.
///
/// # Safety
///
/// I-own holds for `device`.
unsafe fn with<R>(device: *const Device, f: impl FnOnce(&mut Gpu<KernelMachine>) -> R) -> R {
    // SAFETY: I-own: the Arc of `vgpu_rs_create` keeps it alive.
    let device = unsafe { &*device };
    f(&mut device.gpu.lock())
}

/// Runs `f` on the GPU with buffers of `sizes` bytes allocated ahead.
///
/// # Safety
///
/// I-own holds for `device`.
unsafe fn with_buffers<R>(
    device: *const Device,
    sizes: [u64; 2],
    f: impl FnOnce(&mut Gpu<KernelMachine>) -> Result<R, emu::Error>,
) -> Result<R, emu::Error> {
    let mut spares = [None, None];
    for (spare, bytes) in spares.iter_mut().zip(sizes) {
        if bytes != 0 {
            *spare = Some(Buffer::alloc(bytes)?);
        }
    }
    let run = |g: &mut Gpu<KernelMachine>| {
        g.machine_mut().set_spares(spares);
        let result = f(g);
        // What is left is freed without the mutex.
        (result, g.machine_mut().set_spares([None, None]))
    };
    // SAFETY: I-own.
    unsafe { with(device, run) }.0
}

/// Runs `f` on the GPU and stores what it gives through `out`.
///
/// # Safety
///
/// I-own holds for `device`, I-call for `out`.
unsafe fn give<T>(
    device: *const Device,
    out: *mut T,
    f: impl FnOnce(&mut Gpu<KernelMachine>) -> Result<T, emu::Error>,
) -> c_int {
    // SAFETY: I-own.
    match unsafe { with(device, f) } {
        Ok(value) => {
            // SAFETY: I-call.
            unsafe { out.write(value) };
            0
        }
        Err(e) => errno(e).to_errno(),
    }
}

/// Runs `f` on the GPU, for its result only.
///
/// # Safety
///
/// I-own holds for `device`.
unsafe fn call(
    device: *const Device,
    f: impl FnOnce(&mut Gpu<KernelMachine>) -> Result<(), emu::Error>,
) -> c_int {
    // SAFETY: I-own.
    to_c(unsafe { with(device, f) }.map_err(errno))
}

/// A GPU, for [`make`]. Within that its parts would lie on the stack beside the whole, and that
/// beside each copy of the result.
#[inline(never)]
fn new(machine: KernelMachine, config: Config) -> Result<Gpu<KernelMachine>, emu::Error> {
    Gpu::new(machine, config)
}

/// The GPU, on the heap: it is large for a kernel's stack. In a function of its own, whose frame
/// is gone before the rest of the device is made.
#[inline(never)]
fn make(config: &RsConfig) -> Result<KBox<Gpu<KernelMachine>>> {
    let vidmem = NonNull::new(config.vidmem.cast::<u8>()).ok_or(EINVAL)?;
    let chip = Personality::from_uapi(config.personality).ok_or(EINVAL)?;
    // SAFETY: vgpu_rs.h: vidmem is so long and lives as long as the GPU.
    let machine = unsafe { KernelMachine::new(vidmem, config.vidmem_bytes) }.map_err(|_| ENOMEM)?;
    let config = Config {
        index: config.index,
        chip,
        vidmem_bytes: config.vidmem_bytes,
        fault_entries: config.fault_entries,
        tlb: config.tlb != 0,
        drop_invalidates: config.drop_invalidates != 0,
        poison: config.poison != 0,
        zero: config.zero != 0,
        order: match config.adversarial {
            0 => Order::Kind,
            _ => Order::Adversarial { seed: config.seed },
        },
    };
    match new(machine, config) {
        Ok(gpu) => Ok(KBox::new(gpu, GFP_KERNEL)?),
        Err(e) => Err(errno(e)),
    }
}

fn create(config: &RsConfig) -> Result<*const Device> {
    let gpu = make(config)?;
    let device = Arc::pin_init(
        pin_init!(Device {
            gpu <- new_mutex!(gpu, "vgpu"),
            finished <- new_condvar!("vgpu_finished"),
        }),
        GFP_KERNEL,
    )?;
    Ok(Arc::into_raw(device))
}

/// # Safety
///
/// I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_create(config: *const RsConfig, out: *mut *const Device) -> c_int {
    // SAFETY: I-call.
    match create(unsafe { &*config }) {
        Ok(device) => {
            // SAFETY: I-call.
            unsafe { out.write(device) };
            0
        }
        Err(e) => e.to_errno(),
    }
}

/// # Safety
///
/// I-own; the device is not used afterwards.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_destroy(device: *const Device) {
    // SAFETY: I-own: made by `into_raw` in `create`, and given back once.
    let device = unsafe { Arc::from_raw(device) };
    let (channels, spaces, bytes, peers) = device.gpu.lock().leaks();
    if channels != 0 || spaces != 0 || bytes != 0 || peers != 0 {
        pr_err!(
            "leaked: {} channels, {} address spaces, {} bytes of vidmem, {} peers\n",
            channels,
            spaces,
            bytes,
            peers
        );
    }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_run(device: *const Device) -> c_int {
    // SAFETY: I-own.
    let device = unsafe { &*device };
    let progress = device.gpu.lock().run();
    if progress.finished {
        device.finished.notify_all();
    }
    progress.any.into()
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_count_interrupt(device: *const Device) {
    // SAFETY: I-own.
    unsafe { with(device, |g| g.count_interrupt()) };
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_chip(device: *const Device, out: *mut RsChip) {
    // SAFETY: I-own.
    let (chip, (utlb_count, utlb_faults)) =
        unsafe { with(device, |g| (g.config().chip, g.utlbs())) };
    let mut name = [0; 32];
    let n = chip.name.len().min(31);
    name[..n].copy_from_slice(&chip.name.as_bytes()[..n]);
    let chip = RsChip {
        name,
        architecture: chip.architecture,
        implementation: chip.implementation,
        host_class: chip.host_class,
        ce_class: chip.ce_class,
        compute_class: chip.compute_class,
        tpcs_per_gpc: chip.tpcs_per_gpc,
        utlb_count,
        utlb_faults,
        nvlink: chip.nvlink,
        nvlink_mbps: chip.nvlink_mbps,
    };
    // SAFETY: I-call.
    unsafe { out.write(chip) };
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_registers(device: *const Device) -> *mut u8 {
    // SAFETY: I-own.
    unsafe { with(device, |g| g.machine().start(g.registers())) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_fault_buffer(device: *const Device) -> *mut u8 {
    // SAFETY: I-own.
    unsafe { with(device, |g| g.machine().start(g.fault_buffer())) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_counter_buffer(device: *const Device) -> *mut u8 {
    // SAFETY: I-own.
    unsafe { with(device, |g| g.machine().start(g.counter_buffer())) }
}
