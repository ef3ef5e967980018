// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C calls for /dev/vgpu.

use core::ffi::c_int;
use core::slice::from_raw_parts;

use kernel::error::code::EINTR;
use kernel::error::code::EINVAL;
use kernel::error::code::ENOMEM;
use kernel::error::Error;
use kernel::error::Result;
use kernel::sync::CondVarTimeoutResult;
use kernel::time::Jiffies;

use super::call;
use super::errno;
use super::give;
use super::with;
use super::Device;
use crate::emu::Gpu;
use crate::emu::Injection;
use crate::emu::Launch;
use crate::emu::Op;
use crate::emu::Outcome;
use crate::emu::Owner;
use crate::emu::Stats;
use crate::emu::UserChannel;
use crate::machine::KernelMachine;

/// The layout of `struct vgpu_wait` in `include/uapi/vgpu.h`.
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

/// The layout of `struct vgpu_translate` in `include/uapi/vgpu.h`.
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
    assert!(size_of::<Op>() == 88);
    assert!(size_of::<RsWait>() == 136);
    assert!(size_of::<RsTranslate>() == 40);
    assert!(size_of::<Stats>() == 368 - 16);
};

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
    user: u32,
    out: *mut u32,
) -> c_int {
    // Made before the mutex is taken: see `crate::mem`.
    let Ok(channel) = UserChannel::new() else {
        return ENOMEM.to_errno();
    };
    let owner = match user {
        u32::MAX => Owner::Admin,
        user => Owner::User(user),
    };
    let add = |g: &mut Gpu<KernelMachine>| g.add_user_channel(channel, h_client, h_vaspace, owner);
    // SAFETY: I-own, I-call.
    unsafe { give(device, out, add) }
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
    ops: *const Op,
    op_count: u32,
    utlb_faults: u32,
    fence: *mut u64,
) -> c_int {
    // SAFETY: I-call.
    let ops = unsafe { from_raw_parts(ops, op_count as usize) };
    // Made before the mutex is taken: see `crate::mem`.
    let launch = match Launch::new(ops, utlb_faults) {
        Ok(l) => l,
        Err(e) => return errno(e).to_errno(),
    };
    // SAFETY: I-own, I-call.
    unsafe { give(device, fence, |g| g.submit(h_client, h_channel, launch)) }
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
        7 => Injection::Preempt(count != 0),
        _ => return EINVAL.to_errno(),
    };
    // SAFETY: I-own.
    unsafe { call(device, |g| g.inject(injection)) }
}

/// # Safety
///
/// I-own holds for `device`.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_copy(device: *const Device, h_channel: u32, va: u64) -> c_int {
    // SAFETY: I-own.
    unsafe { call(device, |g| g.copy(h_channel, va)) }
}

/// # Safety
///
/// I-own holds for `device`, I-call for `counts`.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_copies(
    device: *const Device,
    h_channel: u32,
    counts: *mut [u64; 2],
) -> c_int {
    // SAFETY: I-own, I-call.
    unsafe { give(device, counts, |g| g.copies(h_channel).map(Into::into)) }
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
