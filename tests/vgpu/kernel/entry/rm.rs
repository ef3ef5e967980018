// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C calls for RM's part: address spaces, buffers, channels, faults and
//! access counters.

use core::ffi::c_int;
use core::ffi::c_void;
use core::ptr::NonNull;

use kernel::error::code::EINVAL;

use super::call;
use super::errno;
use super::give;
use super::with;
use super::with_buffers;
use super::Device;
use crate::emu::ChannelId;
use crate::emu::Gpu;
use crate::emu::Machine;
use crate::emu::SpaceId;
use crate::machine::KernelMachine;
use crate::machine::Mem;

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
    unsafe {
        give(device, out, |g| {
            g.dup_space(h_client, h_vaspace).map(|s| s.0)
        })
    }
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
    let Some(whole) = bytes.checked_next_multiple_of(4096) else {
        return EINVAL.to_errno();
    };
    let alloc = |g: &mut Gpu<KernelMachine>| g.alloc_buffer(SpaceId(space), bytes, align);
    // SAFETY: I-own.
    match unsafe { with_buffers(device, [whole, 0], alloc) } {
        Ok((at, _)) => {
            // SAFETY: I-call.
            unsafe { va.write(at) };
            0
        }
        Err(e) => errno(e).to_errno(),
    }
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
unsafe extern "C" fn vgpu_rs_buffer_share(
    device: *const Device,
    space: u64,
    va: u64,
    out: *mut *mut Mem,
) -> c_int {
    let share = |g: &mut Gpu<KernelMachine>| {
        let slot = g.find_buffer(SpaceId(space), va)?;
        Ok(g.machine().share(slot))
    };
    // SAFETY: I-own, I-call.
    unsafe { give(device, out, share) }
}

/// # Safety
///
/// I-own, I-call; a reference of `mem` is the caller's to give.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_buffer_adopt(
    device: *const Device,
    space: u64,
    mem: *mut Mem,
    align: u64,
    va: *mut u64,
) -> c_int {
    let Some(mem) = NonNull::new(mem) else {
        return EINVAL.to_errno();
    };
    let adopt = |g: &mut Gpu<KernelMachine>| {
        // SAFETY: the caller's contract.
        let (slot, bytes) = unsafe { g.machine_mut().adopt(mem) }?;
        let va = g.attach_buffer(SpaceId(space), slot, bytes, align);
        if va.is_err() {
            // Not the caller's reference: it stays with the caller.
            g.machine().share(slot);
            g.machine_mut().free(slot);
        }
        va
    };
    // SAFETY: I-own, I-call.
    unsafe { give(device, va, adopt) }
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
        Ok((
            id,
            g.machine().start(place.ring),
            g.machine().start(place.control),
        ))
    };
    // SAFETY: I-own.
    match unsafe { with_buffers(device, [u64::from(entries) * 8, 4096], make) } {
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
/// I-own, I-call. `vidmem` is as in `vgpu_rs_config`, until `vgpu_rs_peer_remove` of the same GPU.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_peer_add(
    device: *const Device,
    gpu: u32,
    vidmem: *mut c_void,
    bytes: u64,
    has_atomics: bool,
    id: *mut u32,
) -> c_int {
    let Some(vidmem) = NonNull::new(vidmem.cast::<u8>()) else {
        return EINVAL.to_errno();
    };
    let add = |g: &mut Gpu<KernelMachine>| {
        let id = g.add_peer(gpu, has_atomics)?;
        // SAFETY: the caller's contract.
        unsafe { g.machine_mut().set_peer(id, vidmem, bytes) };
        Ok(id.number() as u32)
    };
    // SAFETY: I-own, I-call.
    unsafe { give(device, id, add) }
}

/// # Safety
///
/// I-own holds for `device`.
#[no_mangle]
unsafe extern "C" fn vgpu_rs_peer_remove(device: *const Device, gpu: u32) -> c_int {
    let remove = |g: &mut Gpu<KernelMachine>| {
        let id = g.remove_peer(gpu)?;
        g.machine_mut().remove_peer(id);
        Ok(())
    };
    // SAFETY: I-own.
    unsafe { call(device, remove) }
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
    let retain = |g: &mut Gpu<KernelMachine>| g.retain_channel(SpaceId(space), h_client, h_channel);
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
