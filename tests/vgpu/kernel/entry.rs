// SPDX-License-Identifier: GPL-2.0 OR MIT

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
use core::slice::from_raw_parts;
use core::slice::from_raw_parts_mut;

use kernel::alloc::flags::GFP_KERNEL;
use kernel::error::code::*;
use kernel::new_condvar;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::CondVar;
use kernel::sync::CondVarTimeoutResult;
use kernel::sync::Mutex;
use kernel::time::Jiffies;

use crate::emu;
use crate::emu::AllocRequest;
use crate::emu::ChannelId;
use crate::emu::Config;
use crate::emu::Gpu;
use crate::emu::Injection;
use crate::emu::Outcome;
use crate::emu::Personality;
use crate::emu::SpaceId;
use crate::emu::Stats;
use crate::machine::KernelMachine;

/// One GPU, as C holds it.
#[pin_data]
pub(crate) struct Device {
    #[pin]
    gpu: Mutex<Gpu<KernelMachine>>,
    /// Some kernel ended.
    #[pin]
    finished: CondVar,
}

/// `struct vgpu_rs_config`.
#[repr(C)]
pub(crate) struct RsConfig {
    vidmem: *mut c_void,
    vidmem_bytes: u64,
    index: u32,
    personality: u32,
    fault_entries: u32,
    tlb: u8,
    drop_invalidates: u8,
    poison: u8,
    zero: u8,
}

/// `struct vgpu_rs_chip`.
#[repr(C)]
pub(crate) struct RsChip {
    name: [u8; 32],
    architecture: u32,
    implementation: u32,
    host_class: u32,
    ce_class: u32,
    compute_class: u32,
    utlb_count: u32,
    utlb_faults: u32,
}

/// `struct vgpu_rs_pma_request`.
#[repr(C)]
pub(crate) struct RsPmaRequest {
    count: u64,
    page_bytes: u64,
    begin: u64,
    end: u64,
    contiguous: u8,
    partial: u8,
    pinned: u8,
    no_zero: u8,
    is_zero: u8,
    got: u64,
}

/// `struct vgpu_wait`.
#[repr(C)]
pub(crate) struct RsWait {
    size: u32,
    flags: u32,
    h_channel: u32,
    state: u32,
    fence: u64,
    timeout_ns: u64,
    accesses: u64,
    faults: u64,
    duplicates: u64,
    refaults: u64,
    replays: u64,
    mismatches: u64,
    bad_va: u64,
    bad_expected: u64,
    bad_seen: u64,
    sum: u64,
    fault_va: u64,
    fault_type: u32,
    fault_kind: u32,
    elapsed_ns: u64,
}

/// `struct vgpu_translate`.
#[repr(C)]
pub(crate) struct RsTranslate {
    size: u32,
    flags: u32,
    h_vaspace: u32,
    aperture: u32,
    va: u64,
    page_bytes: u64,
    permissions: u32,
    fault_type: u32,
}

const _: () = {
    assert!(size_of::<emu::Op>() == 88);
    assert!(size_of::<RsWait>() == 136);
    assert!(size_of::<RsTranslate>() == 40);
    assert!(size_of::<Stats>() == 344 - 16);
};

/// As an errno, negative.
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
unsafe fn with<R>(
    device: *const Device,
    f: impl FnOnce(&mut Gpu<KernelMachine>) -> R,
) -> R {
    // SAFETY: I-own: the Arc of `vgpu_rs_create` keeps it alive.
    let device = unsafe { &*device };
    f(&mut device.gpu.lock())
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

fn create(config: &RsConfig) -> Result<*const Device> {
    let vidmem = NonNull::new(config.vidmem.cast::<u8>()).ok_or(EINVAL)?;
    let chip = Personality::from_uapi(config.personality).ok_or(EINVAL)?;
    // SAFETY: vgpu_rs.h: vidmem is so long and lives as long as the GPU.
    let machine = unsafe { KernelMachine::new(vidmem, config.vidmem_bytes) };
    let gpu = Gpu::new(
        machine,
        Config {
            index: config.index,
            chip,
            vidmem_bytes: config.vidmem_bytes,
            fault_entries: config.fault_entries,
            tlb: config.tlb != 0,
            drop_invalidates: config.drop_invalidates != 0,
            poison: config.poison != 0,
            zero: config.zero != 0,
        },
    )
    .map_err(errno)?;
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
    let (channels, spaces, bytes) = device.gpu.lock().leaks();
    if channels != 0 || spaces != 0 || bytes != 0 {
        pr_err!(
            "leaked: {} channels, {} address spaces, {} bytes of vidmem\n",
            channels,
            spaces,
            bytes
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
    let (chip, (utlb_count, utlb_faults)) = unsafe { with(device, |g| (g.config().chip, g.utlbs())) };
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
        utlb_count,
        utlb_faults,
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

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_space_create(device: *const Device, out: *mut u64) -> c_int {
    // SAFETY: I-own, I-call.
    unsafe { give(device, out, |g| g.create_space().map(|s| s.0)) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_space_dup(
    device: *const Device,
    h_client: u32,
    h_vaspace: u32,
    out: *mut u64,
) -> c_int {
    // SAFETY: I-own, I-call.
    unsafe { give(device, out, |g| g.dup_space(h_client, h_vaspace).map(|s| s.0)) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_space_destroy(device: *const Device, space: u64) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.destroy_space(SpaceId(space))) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_space_set_pdb(
    device: *const Device,
    space: u64,
    at: u64,
    vidmem: bool,
) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.set_pdb(SpaceId(space), at, vidmem)) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_space_unset_pdb(device: *const Device, space: u64) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.unset_pdb(SpaceId(space))) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_buffer_alloc(
    device: *const Device,
    space: u64,
    bytes: u64,
    align: u64,
    va: *mut u64,
) -> c_int {
    // SAFETY: I-own, I-call.
    unsafe { give(device, va, |g| g.alloc_buffer(SpaceId(space), bytes, align).map(|b| b.0)) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_buffer_free(device: *const Device, space: u64, va: u64) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.free_buffer(SpaceId(space), va)) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_buffer_map(
    device: *const Device,
    space: u64,
    va: u64,
    bytes: u64,
    out: *mut *mut u8,
) -> c_int {
    let map = |g: &mut Gpu<KernelMachine>| {
        let at = g.map_buffer(SpaceId(space), va, bytes)?;
        Ok(g.machine().pointer(at))
    };
    // SAFETY: I-own, I-call.
    unsafe { give(device, out, map) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_channel_create(
    device: *const Device,
    space: u64,
    engine: u32,
    entries: u32,
    channel: *mut u32,
    ring: *mut *mut u8,
    control: *mut *mut u8,
) -> c_int {
    let make = |g: &mut Gpu<KernelMachine>| {
        let (id, place) = g.create_channel(SpaceId(space), engine, entries)?;
        Ok((id, g.machine().start(place.ring), g.machine().start(place.control)))
    };
    // SAFETY: I-own.
    match unsafe { with(device, make) } {
        Ok((id, r, c)) => {
            // SAFETY: I-call.
            unsafe {
                channel.write(id.0);
                ring.write(r);
                control.write(c);
            }
            0
        }
        Err(e) => errno(e).to_errno(),
    }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_channel_destroy(device: *const Device, channel: u32) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.destroy_channel(ChannelId(channel))) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_faults_reset(device: *const Device) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.reset_faults()) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_counters_reset(device: *const Device) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.reset_counters()) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_counters_enable(
    device: *const Device,
    granularity: u32,
    threshold: u32,
) {
    // SAFETY: I-own.
    unsafe { with(device, |g| g.enable_counters(granularity, threshold)) };
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_counters_disable(device: *const Device) {
    // SAFETY: I-own.
    unsafe { with(device, |g| g.disable_counters()) };
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_user_channel_retain(
    device: *const Device,
    space: u64,
    h_client: u32,
    h_channel: u32,
    instance: *mut u64,
) -> c_int {
    let retain =
        |g: &mut Gpu<KernelMachine>| g.retain_channel(SpaceId(space), h_client, h_channel);
    // SAFETY: I-own, I-call.
    unsafe { give(device, instance, retain) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_user_channel_stop(device: *const Device, h_channel: u32) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.stop_channel(h_channel)) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_user_channel_release(device: *const Device, h_channel: u32) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.release_channel(h_channel)) }
}

/// The array that stands for `count` pages.
fn page_slots(count: u64, contiguous: bool) -> usize {
    if contiguous {
        1
    } else {
        count as usize
    }
}

/// # Safety
///
/// I-own, I-call; `pages` has `count` entries, or one if contiguous.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_pma_alloc(
    device: *const Device,
    ask: *mut RsPmaRequest,
    pages: *mut u64,
) -> c_int {
    // SAFETY: I-call.
    let ask = unsafe { &mut *ask };
    let slots = page_slots(ask.count, ask.contiguous != 0);
    // SAFETY: I-call.
    let pages = unsafe { from_raw_parts_mut(pages, slots) };
    let request = AllocRequest {
        count: ask.count,
        page_bytes: ask.page_bytes,
        contiguous: ask.contiguous != 0,
        partial: ask.partial != 0,
        pinned: ask.pinned != 0,
        begin: ask.begin,
        end: ask.end,
    };
    let no_zero = ask.no_zero != 0;
    // SAFETY: I-own.
    match unsafe { with(device, |g| g.pma_alloc(&request, no_zero, pages)) } {
        Ok((got, zero)) => {
            ask.got = got;
            ask.is_zero = zero.into();
            0
        }
        Err(e) => errno(e).to_errno(),
    }
}

/// # Safety
///
/// I-own, I-call; `pages` has `count` entries, or one if contiguous.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_pma_free(
    device: *const Device,
    pages: *const u64,
    count: u64,
    page_bytes: u64,
    contiguous: bool,
) -> c_int {
    // SAFETY: I-call.
    let pages = unsafe { from_raw_parts(pages, page_slots(count, contiguous)) };
    // SAFETY: I-own.
    unsafe { call(device, |g| g.pma_free(pages, count, page_bytes, contiguous)) }
}

/// # Safety
///
/// I-own, I-call; `pages` has `count` entries.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_pma_pin(
    device: *const Device,
    pages: *const u64,
    count: u64,
    page_bytes: u64,
) -> c_int {
    // SAFETY: I-call.
    let pages = unsafe { from_raw_parts(pages, count as usize) };
    // SAFETY: I-own.
    unsafe { call(device, |g| g.pma_pin(pages, count, page_bytes)) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_pma_counts(device: *const Device, out: *mut emu::Counts) {
    // SAFETY: I-own, I-call.
    unsafe { out.write(with(device, |g| g.pma_counts())) };
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_eviction_begin(device: *const Device, begin: u64, end: u64) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.begin_eviction(begin, end)) }
}

/// # Safety
///
/// I-own, I-call; `pages` has `max` entries.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_eviction_end(
    device: *const Device,
    begin: u64,
    end: u64,
    pages: *mut u64,
    max: u64,
) -> u64 {
    // SAFETY: I-call.
    let pages = unsafe { from_raw_parts_mut(pages, max as usize) };
    // SAFETY: I-own.
    unsafe { with(device, |g| g.end_eviction(begin, end, pages)) as u64 }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_vaspace_create(
    device: *const Device,
    h_client: u32,
    out: *mut u32,
) -> c_int {
    // SAFETY: I-own, I-call.
    unsafe { give(device, out, |g| g.create_vaspace(h_client)) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_user_channel_create(
    device: *const Device,
    h_client: u32,
    h_vaspace: u32,
    out: *mut u32,
) -> c_int {
    // SAFETY: I-own, I-call.
    unsafe { give(device, out, |g| g.create_user_channel(h_client, h_vaspace)) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_handle_destroy(
    device: *const Device,
    h_client: u32,
    handle: u32,
) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.destroy_handle(h_client, handle)) }
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_client_close(device: *const Device, h_client: u32) {
    // SAFETY: I-own.
    unsafe { with(device, |g| g.close_client(h_client)) };
}

/// # Safety
///
/// I-own, I-call; `ops` has `op_count` entries.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_submit(
    device: *const Device,
    h_client: u32,
    h_channel: u32,
    ops: *const emu::Op,
    op_count: u32,
    utlb_faults: u32,
    fence: *mut u64,
) -> c_int {
    // SAFETY: I-call.
    let ops = unsafe { from_raw_parts(ops, op_count as usize) };
    // SAFETY: I-own, I-call.
    unsafe { give(device, fence, |g| g.submit(h_client, h_channel, ops, utlb_faults)) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_wait(
    device: *const Device,
    h_client: u32,
    wait: *mut RsWait,
    jiffies: Jiffies,
) -> c_int {
    // SAFETY: I-own, I-call.
    let (device, wait) = unsafe { (&*device, &mut *wait) };
    match wait_for(device, h_client, wait.h_channel, wait.fence, jiffies) {
        Ok(outcome) => {
            fill(wait, &outcome);
            0
        }
        Err(e) => e.to_errno(),
    }
}

fn wait_for(
    device: &Device,
    h_client: u32,
    h_channel: u32,
    fence: u64,
    mut left: Jiffies,
) -> Result<Outcome> {
    let mut gpu = device.gpu.lock();
    loop {
        if let Some(outcome) = gpu.result(h_client, h_channel, fence).map_err(errno)? {
            return Ok(outcome);
        }
        if left == 0 {
            return Err(Error::from_errno(-(kernel::bindings::ETIMEDOUT as c_int)));
        }
        left = match device.finished.wait_interruptible_timeout(&mut gpu, left) {
            CondVarTimeoutResult::Woken { jiffies } => jiffies,
            CondVarTimeoutResult::Timeout => 0,
            CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
        };
    }
}

fn fill(wait: &mut RsWait, o: &Outcome) {
    let (fault_type, fault_kind) = o.fault.unwrap_or((u32::MAX, 0));
    *wait = RsWait {
        size: wait.size,
        flags: wait.flags,
        h_channel: wait.h_channel,
        state: o.state as u32,
        fence: wait.fence,
        timeout_ns: wait.timeout_ns,
        accesses: o.accesses,
        faults: o.faults,
        duplicates: o.duplicates,
        refaults: o.refaults,
        replays: o.replays,
        mismatches: o.mismatches,
        bad_va: o.bad_va,
        bad_expected: o.bad_expected,
        bad_seen: o.bad_seen,
        sum: o.sum,
        fault_va: o.fault_va,
        fault_type,
        fault_kind,
        elapsed_ns: o.elapsed_ns,
    };
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_stats(device: *const Device, out: *mut Stats) {
    // SAFETY: I-own, I-call.
    unsafe { out.write(with(device, |g| g.stats())) };
}

/// # Safety
///
/// I-own.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_inject(
    device: *const Device,
    kind: u32,
    count: u64,
    skip: u64,
    handle: u32,
) -> c_int {
    let uvm_channel = 1 << 31;
    let injection = match kind {
        1 => Injection::DropInvalidates(count),
        2 => Injection::FaultBufferFull(count),
        3 => Injection::PmaFailure { skip, count },
        6 if handle & uvm_channel != 0 => Injection::UvmChannelError(handle & !uvm_channel),
        6 => Injection::ChannelError(handle),
        _ => return EINVAL.to_errno(),
    };
    // SAFETY: I-own.
    unsafe { call(device, |g| g.inject(injection)) }
}

/// # Safety
///
/// I-own, I-call.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_translate(
    device: *const Device,
    h_client: u32,
    translate: *mut RsTranslate,
) -> c_int {
    // SAFETY: I-call.
    let t = unsafe { &mut *translate };
    let (h_vaspace, va) = (t.h_vaspace, t.va);
    // SAFETY: I-own.
    match unsafe { with(device, |g| g.translate(h_client, h_vaspace, va)) } {
        Ok((aperture, page_bytes, permissions, fault_type)) => {
            t.aperture = aperture;
            t.page_bytes = page_bytes;
            t.permissions = permissions;
            t.fault_type = fault_type;
            0
        }
        Err(e) => errno(e).to_errno(),
    }
}
