// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What C calls for RM's physical memory allocator.

use core::ffi::c_int;
use core::slice::from_raw_parts;
use core::slice::from_raw_parts_mut;

use super::call;
use super::errno;
use super::with;
use super::Device;
use crate::emu::AllocRequest;
use crate::emu::Counts;

/// The layout of `struct vgpu_rs_pma_request` in `vgpu_rs.h`.
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
unsafe extern "C" fn vgpu_rs_pma_counts(device: *const Device, out: *mut Counts) {
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
