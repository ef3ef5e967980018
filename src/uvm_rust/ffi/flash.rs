// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What C calls about the SSD tier.
//!
//! The table has a mutex inside. What is known of a va_block (block.rs) is used by one thread at a
//! time, as its lock is held (I-lock); who uses the tier (tier.rs) has a spinlock.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings::{self, uvm_rust_flash_piece, uvm_rust_flash_pieces, uvm_rust_mask};
use super::discard::{read, write};
use crate::driver::flash::{Counter, Flash};
use crate::policy::flash::{Config, Piece, Place, Read, ReadError};
use crate::policy::mask::PageMask;
use core::ffi::c_void;
use core::ptr::null_mut;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

mod block;
mod chosen;
mod drain;
mod spill;
mod tier;

pub(crate) use tier::{BlockHandle, DeviceHandle, OwnerHandle};

super::check_exports!(
    uvm_rust_flash_create,
    uvm_rust_flash_destroy,
    uvm_rust_flash_count,
    uvm_rust_flash_has_failed,
    uvm_rust_flash_stats,
    uvm_rust_flash_sums,
    uvm_rust_flash_set_sums,
    uvm_rust_flash_begin_read,
    uvm_rust_flash_end_read,
);

/// # Safety
///
/// `table` came from [`uvm_rust_flash_create`] and is not destroyed during `'a`.
unsafe fn flash<'a>(table: *mut bindings::uvm_rust_flash_table) -> &'a Flash {
    // SAFETY: by this function's contract it points to a live, boxed `Flash`, to which
    // only shared references are made.
    unsafe { &*table.cast::<Flash>() }
}

/// A C type that stands for a Rust one, to which C has a pointer.
trait Handle {
    type Of: 'static;
}

impl Handle for bindings::uvm_rust_flash_read {
    type Of = Read;
}

/// Takes back what C had a pointer to.
///
/// # Safety
///
/// `handle` came from [`boxed`] and is not used again.
unsafe fn unboxed<C: Handle>(handle: *mut C) -> KBox<C::Of> {
    // SAFETY: by this function's contract; `boxed` took a box of this type.
    unsafe { <KBox<C::Of> as ForeignOwnable>::from_foreign(handle.cast::<c_void>()) }
}

fn boxed<C: Handle>(value: KBox<C::Of>) -> *mut C {
    value.into_foreign().cast_mut().cast()
}

fn place(piece: &uvm_rust_flash_piece, k: u16) -> Place {
    Place {
        slot: piece.slot,
        offset: piece.offset.saturating_add(k),
    }
}

/// # Safety
///
/// `out` is valid for writing.
unsafe fn write_pieces(out: *mut uvm_rust_flash_pieces, pieces: &[Piece]) -> bool {
    // SAFETY: by this function's contract. Any bytes make a valid one.
    let out = unsafe { &mut *out };
    out.count = 0;
    if pieces.len() > out.piece.len() {
        return false;
    }
    for (to, from) in out.piece.iter_mut().zip(pieces) {
        *to = uvm_rust_flash_piece {
            stamp: from.stamp,
            slot: from.place.slot,
            offset: from.place.offset,
            first: from.pages.first(),
            pages: from.pages.pages(),
            reserved: [0; 3],
        };
        out.count += 1;
    }
    true
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_create(
    slots: u32,
    checksums: bool,
    quota: u64,
) -> *mut bindings::uvm_rust_flash_table {
    let config = Config {
        slots,
        checksums,
        quota,
    };
    match Flash::new(config) {
        Ok(flash) => flash.into_foreign().cast_mut().cast(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_destroy(table: *mut bindings::uvm_rust_flash_table) {
    // SAFETY: I-own: `table` came from `into_foreign` and this is its one destroy.
    drop(unsafe { <Pin<KBox<Flash>> as ForeignOwnable>::from_foreign(table.cast::<c_void>()) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_count(
    table: *mut bindings::uvm_rust_flash_table,
    what: u32,
    n: u64,
) -> u64 {
    let counter = match what {
        bindings::UVM_RUST_FLASH_WRITTEN => Counter::Written,
        bindings::UVM_RUST_FLASH_FETCHED => Counter::Fetched,
        bindings::UVM_RUST_FLASH_WRITE_ERRORS => Counter::WriteErrors,
        bindings::UVM_RUST_FLASH_READ_ERRORS => Counter::ReadErrors,
        bindings::UVM_RUST_FLASH_LOST_PAGES => Counter::LostPages,
        bindings::UVM_RUST_FLASH_PARKED => Counter::Parked,
        bindings::UVM_RUST_FLASH_THROTTLED => Counter::Throttled,
        _ => return 0,
    };
    // SAFETY: I-own.
    unsafe { flash(table) }.counters.add(counter, n)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_has_failed(table: *mut bindings::uvm_rust_flash_table) -> bool {
    // SAFETY: I-own.
    let counters = &unsafe { flash(table) }.counters;
    counters.get(Counter::WriteErrors) > 0 || counters.get(Counter::ReadErrors) > 0
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_stats(
    table: *mut bindings::uvm_rust_flash_table,
    stats: *mut bindings::uvm_rust_flash_stats,
) {
    // SAFETY: I-own for `table`; I-call for `stats`.
    let (flash, stats) = unsafe { (flash(table), &mut *stats) };
    flash.fill(stats);
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

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_begin_read(
    block: *mut bindings::uvm_rust_flash_block,
    wanted: *const uvm_rust_mask,
    op: *mut *mut bindings::uvm_rust_flash_read,
    pages: *mut uvm_rust_mask,
    pieces: *mut uvm_rust_flash_pieces,
) -> u32 {
    // SAFETY: null, or I-own and I-lock, for `block`; I-call for `wanted`.
    let (state, wanted) = unsafe { (block::used(block), read(wanted)) };
    let Some(state) = state else {
        return bindings::UVM_RUST_FLASH_NOTHING;
    };
    let Ok(cell) = KBox::new_uninit(GFP_KERNEL) else {
        return bindings::UVM_RUST_FLASH_NO_MEMORY;
    };
    let (block, flash) = state.split();
    let mut table = flash.table.lock();
    let begun: Read = match block.begin_read(&mut table, &wanted) {
        Ok(None) => return bindings::UVM_RUST_FLASH_NOTHING,
        Ok(Some(read)) => read,
        Err(ReadError::Wait) => return bindings::UVM_RUST_FLASH_BUSY,
        Err(ReadError::Lost) => return bindings::UVM_RUST_FLASH_IS_LOST,
        Err(ReadError::OutOfMemory) => return bindings::UVM_RUST_FLASH_NO_MEMORY,
    };
    // SAFETY: I-call for `pieces`.
    if !unsafe { write_pieces(pieces, &begun.pieces) } {
        let none = PageMask::EMPTY;
        let _ = block.end_read(&mut table, begun, &none, &none, false);
        return bindings::UVM_RUST_FLASH_NO_MEMORY;
    }
    // SAFETY: I-call.
    unsafe {
        write(pages, &begun.pages);
        *op = boxed(KBox::write(cell, begun));
    }
    bindings::UVM_RUST_FLASH_BEGUN
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_end_read(
    block: *mut bindings::uvm_rust_flash_block,
    op: *mut bindings::uvm_rust_flash_read,
    good: *const uvm_rust_mask,
    failed: *const uvm_rust_mask,
    keep: bool,
    arrived: *mut uvm_rust_mask,
) {
    // SAFETY: I-own for `op`, which `begin_read` gave and which ends here; I-own and I-lock for
    // `block`; I-call for the masks.
    let (begun, state, good, failed) = unsafe {
        let begun = KBox::into_inner(unboxed(op));
        (begun, block::used(block), read(good), read(failed))
    };
    // The read keeps the state.
    let pages = state.map_or(PageMask::EMPTY, |state| {
        let (block, flash) = state.split();
        block.end_read(&mut flash.table.lock(), begun, &good, &failed, keep)
    });
    // SAFETY: I-call.
    unsafe { write(arrived, &pages) };
}
