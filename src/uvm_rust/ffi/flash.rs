// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls about the SSD tier.
//!
//! The table has a mutex inside. What is known of a va_block (block.rs) is used by one thread at a
//! time, as its lock is held (I-lock); who uses the tier (tier.rs) has a spinlock.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings::{self, uvm_rust_flash_piece};
use crate::driver::flash::{Counter, Flash};
use crate::policy::flash::{Piece, Place};
use core::ffi::c_void;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

mod attach;
mod block;
mod chosen;
mod drain;
mod fetch;
mod moves;
mod spill;
mod split;
mod tier;

pub(crate) use attach::{attach, detach, stats};
pub(crate) use moves::move_range;
pub(crate) use tier::{BlockHandle, DeviceHandle, OwnerHandle};

super::check_exports!(
    uvm_rust_flash_destroy,
    uvm_rust_flash_sums,
    uvm_rust_flash_set_sums,
);

/// # Safety
///
/// `table` is that of a device, which keeps it, and is not destroyed during `'a`.
unsafe fn flash<'a>(table: *mut bindings::uvm_rust_flash_table) -> &'a Flash {
    // SAFETY: by this function's contract it points to a live, boxed `Flash`, to which
    // only shared references are made.
    unsafe { &*table.cast::<Flash>() }
}

/// The table of a device.
///
/// # Safety
///
/// `dev` is open and has one: it is attached, or has been.
unsafe fn table_of(dev: *mut bindings::uvm_seam_flash_dev) -> *mut bindings::uvm_rust_flash_table {
    // SAFETY: by this function's contract; nobody writes to it once it is there.
    unsafe { *bindings::uvm_seam_flash_table(dev) }
}

/// A module parameter, which root may change at any time.
fn read_parameter(parameter: *const u32) -> u32 {
    // SAFETY: all callers give the address of a static; a word is read at once.
    unsafe { parameter.read_volatile() }
}

/// Whether the device is there, and has failed nothing.
///
/// # Safety
///
/// As [`table_of`].
unsafe fn is_sound(dev: *mut bindings::uvm_seam_flash_dev) -> bool {
    // SAFETY: by this function's contract.
    let counters = unsafe { &flash(table_of(dev)).counters };
    let failed = [Counter::WriteErrors, Counter::ReadErrors].map(|of| counters.get(of));
    // SAFETY: by this function's contract.
    failed == [0; 2] && unsafe { bindings::uvm_seam_flash_is_there(dev) }
}

/// A piece, as C has it.
fn piece_of(piece: &Piece) -> uvm_rust_flash_piece {
    uvm_rust_flash_piece {
        stamp: piece.stamp,
        slot: piece.place.slot,
        offset: piece.place.offset,
        first: piece.pages.first(),
        pages: piece.pages.pages(),
        reserved: [0; 3],
    }
}

fn place(piece: &uvm_rust_flash_piece, k: u16) -> Place {
    Place {
        slot: piece.slot,
        offset: piece.offset.saturating_add(k),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_destroy(table: *mut bindings::uvm_rust_flash_table) {
    // SAFETY: I-own: `table` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Pin<KBox<Flash>> as ForeignOwnable>::from_foreign(table.cast::<c_void>()) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_sums(
    table: *mut bindings::uvm_rust_flash_table,
    piece: *const uvm_rust_flash_piece,
    sums: *mut u32,
) -> bool {
    // SAFETY: I-own for `table`; I-call for `piece`.
    let (flash, piece) = unsafe { (flash(table), &*piece) };
    let table = flash.table.lock();
    for k in 0..piece.pages {
        let Some(sum) = table.sum(place(piece, k)) else {
            return false;
        };
        // SAFETY: I-call: `sums` has room for the pages of `piece`.
        unsafe { *sums.add(usize::from(k)) = sum };
    }
    true
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_set_sums(
    table: *mut bindings::uvm_rust_flash_table,
    piece: *const uvm_rust_flash_piece,
    sums: *const u32,
) {
    // SAFETY: I-own for `table`; I-call for `piece`.
    let (flash, piece) = unsafe { (flash(table), &*piece) };
    let mut table = flash.table.lock();
    for k in 0..piece.pages {
        // SAFETY: I-call: `sums` has one for each page of `piece`.
        table.set_sum(place(piece, k), unsafe { *sums.add(usize::from(k)) });
    }
}
