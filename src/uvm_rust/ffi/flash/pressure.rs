// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls when there is too little host memory, and about the pace of writes.
//!
//! What the workers have met is used under the tier's spinlock (I-lock), so by one thread at a time,
//! which neither sleeps nor allocates.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::{bindings, boxed, unboxed};
use crate::policy::flash::pace;
use crate::policy::flash::pressure::{Next, Pressure, Tried};
use core::ptr::null_mut;
use kernel::prelude::*;

crate::ffi::check_exports!(
    uvm_rust_pressure_create,
    uvm_rust_pressure_destroy,
    uvm_rust_pressure_goes_on,
    uvm_rust_pressure_wakes,
    uvm_rust_pressure_must_wait,
    uvm_rust_pressure_may_spill,
    uvm_rust_pressure_ended,
    uvm_rust_pace_rest,
    uvm_rust_pace_may_write,
    uvm_rust_pace_paid,
);

/// What the workers have met, behind a pointer that C keeps.
///
/// # Safety
///
/// `pressure` came from [`uvm_rust_pressure_create`] and is not destroyed during `'a`, and the tier's
/// lock is held for `'a`; one such reference exists at a time.
unsafe fn met<'a>(pressure: *mut bindings::uvm_rust_pressure) -> &'a mut Pressure {
    // SAFETY: by this function's contract it points to a live, boxed `Pressure` that nobody else uses.
    unsafe { &mut *pressure.cast::<Pressure>() }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pressure_create(limit: u64) -> *mut bindings::uvm_rust_pressure {
    KBox::new(Pressure::new(limit), GFP_KERNEL).map_or(null_mut(), boxed)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pressure_destroy(pressure: *mut bindings::uvm_rust_pressure) {
    // SAFETY: I-own: it came from `boxed` and this is its one destroy.
    drop(unsafe { unboxed(pressure) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pressure_goes_on(
    pressure: *mut bindings::uvm_rust_pressure,
    host: u64,
    now: u64,
) -> bool {
    // SAFETY: I-own and I-lock.
    unsafe { met(pressure) }.goes_on(host, now)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pressure_wakes(
    pressure: *mut bindings::uvm_rust_pressure,
    host: u64,
    workers: u32,
    now: u64,
) -> u32 {
    // SAFETY: I-own and I-lock.
    unsafe { met(pressure) }.wakes(host, workers, now)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pressure_must_wait(
    pressure: *mut bindings::uvm_rust_pressure,
    host: u64,
    mine: u64,
    tenants: u64,
) -> bool {
    // SAFETY: I-own and I-lock.
    unsafe { met(pressure) }.must_wait(host, mine, tenants)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pressure_may_spill(
    pressure: *mut bindings::uvm_rust_pressure,
    mine: u64,
    tenants: u64,
) -> bool {
    // SAFETY: I-own and I-lock.
    unsafe { met(pressure) }.may_spill(mine, tenants)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pressure_ended(
    pressure: *mut bindings::uvm_rust_pressure,
    tried: u32,
    candidates: u32,
    workers: u32,
    now: u64,
    again: *mut u64,
) -> bool {
    let tried = match tried {
        bindings::UVM_RUST_TRIED_MOVED => Tried::Moved,
        bindings::UVM_RUST_TRIED_FAILED => Tried::Failed,
        bindings::UVM_RUST_TRIED_SUSPENDED => Tried::Suspended,
        _ => Tried::Nothing,
    };
    // SAFETY: I-own and I-lock.
    match unsafe { met(pressure) }.ended(tried, candidates, workers, now) {
        Next::GoOn => false,
        Next::Stall(when) => {
            // SAFETY: I-call for `again`.
            unsafe { *again = when.unwrap_or(0) };
            true
        }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pace_rest(took: u64, percent: u32) -> u64 {
    pace::rest_us(took, percent)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pace_may_write(paid: u64, now: u64) -> bool {
    pace::may_write(paid, now)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_pace_paid(paid: u64, now: u64, bytes: u64, mib: u32) -> u64 {
    pace::paid_after(paid, now, bytes, mib)
}
