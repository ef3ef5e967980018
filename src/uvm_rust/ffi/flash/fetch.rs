// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Fetching, as `policy/flash/fetch.rs` sees it.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::block::{count, device_of, used, Device};
use super::chosen::as_c;
use super::tier::{current, is_attached, note_copies};
use super::{bindings, is_sound, piece_of};
use crate::driver::discard::status;
use crate::driver::flash::Counter;
use crate::ffi::discard::read;
use crate::ffi::status::Status;
use crate::policy::flash::fetch::{fetch, Did, Fetched, Machine};
use crate::policy::flash::{BlockPages, Piece, Table};
use crate::policy::mask::PageMask;
use bindings::{
    uvm_rust_flash_block, uvm_rust_mask, uvm_seam_context, uvm_seam_flash_io, uvm_va_block_struct,
};
use core::ffi::c_int;
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

crate::ffi::check_exports!(uvm_rust_flash_fetch);

/// One fetch.
///
/// Invariant: the caller has the VA space's lock, which keeps the block, and keeps the context; the block is
/// locked but from `unlock` to `lock`.
struct Fetching {
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    device: Device,
    is_fault: bool,
    /// Null, or a buffer that nobody else uses.
    io: *mut uvm_seam_flash_io,
}

impl Fetching {
    fn known(&self) -> *mut uvm_rust_flash_block {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_va_block_flash(self.block) }
    }

    fn counts(&self, counter: Counter, n: u64) {
        self.device.table().counters.add(counter, n);
    }
}

/// Whether it is worth asking again after a failure with this errno.
fn is_passing(errno: c_int) -> bool {
    const ERESTARTSYS: c_int = 512;
    let passing = [ENOMEM, EINTR, EAGAIN].map(|e| e.to_errno());
    passing.contains(&errno) || errno == -ERESTARTSYS
}

// In all blocks below the pointers are valid by the type's invariant, and the lock is held as the policy
// documents it (F-lock).
impl Machine for Fetching {
    type Error = Status;

    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table) -> T) -> Option<T> {
        // SAFETY: the block is locked; the reference ends with this function.
        let state = unsafe { used(self.known()) }?;
        let (pages, flash) = state.split();
        let mut table = flash.table.lock();
        Some(f(pages, &mut table))
    }

    fn populate(&mut self, pages: &PageMask) -> Result<(), Status> {
        let mut pages = as_c(pages);
        // SAFETY: see above; the mask is ours for the call.
        Status::check(unsafe {
            bindings::uvm_seam_flash_populate(self.block, self.context, &mut pages)
        })
    }

    fn open(&mut self) -> bool {
        // SAFETY: no preconditions.
        self.io = unsafe { bindings::uvm_rust_flash_io_alloc(false, false) };
        !self.io.is_null()
    }

    fn close(&mut self) {
        let io = core::mem::replace(&mut self.io, null_mut());
        // SAFETY: null, or `open` got it, and it is not used any more.
        unsafe { bindings::uvm_rust_flash_io_free(io) };
    }

    fn hold(&mut self, pages: &PageMask) -> bool {
        // SAFETY: see above; the buffer holds nothing, and the mask is read.
        unsafe { bindings::uvm_seam_flash_hold(self.block, &as_c(pages), self.io) }
    }

    fn unchanged(&mut self, pages: &PageMask) -> PageMask {
        let mut mask = as_c(pages);
        // SAFETY: see above; the mask is read and written.
        unsafe {
            bindings::uvm_seam_flash_unchanged(self.block, self.io, &mut mask);
            read(&mask)
        }
    }

    fn keeps_copies(&mut self) -> bool {
        let dev = self.device.as_ptr();
        // SAFETY: see above; the tier and the device are there, and a parameter does not change.
        unsafe {
            bindings::uvm_rust_flash_copies
                && is_attached(current(), dev)
                && is_sound(dev)
                && bindings::uvm_seam_flash_is_read_mostly(self.block)
        }
    }

    fn arrived(&mut self, pages: &PageMask) {
        // SAFETY: see above; the mask is read.
        unsafe {
            if !pages.is_empty() {
                bindings::uvm_seam_flash_arrived(self.block, &as_c(pages));
            }
            note_copies(self.known());
            count(self.block, true);
        }
        self.counts(
            Counter::Fetched,
            u64::from(pages.count()) * PAGE_SIZE as u64,
        );
    }

    fn lost(&mut self, pages: &PageMask) {
        let pages = pages.count().into();
        // SAFETY: see above.
        unsafe { bindings::uvm_seam_flash_lost(self.block, pages) };
        self.counts(Counter::LostPages, pages.into());
    }

    fn unlock(&mut self) {
        // SAFETY: the block is locked.
        unsafe { bindings::uvm_seam_va_block_unlock(self.block) };
    }

    fn lock(&mut self) {
        // SAFETY: it was unlocked.
        unsafe { bindings::uvm_seam_va_block_lock(self.block) };
    }

    fn progress(&mut self) -> u32 {
        // SAFETY: the device is kept.
        unsafe { bindings::uvm_seam_flash_progress(self.device.as_ptr()) }
    }

    fn wait(&mut self, progress: u32) {
        // SAFETY: the device is kept; no lock is held but the VA space's.
        unsafe { bindings::uvm_seam_flash_wait(self.device.as_ptr(), progress) };
    }

    fn read(&mut self, piece: &Piece) -> Did {
        let dev = self.device.as_ptr();
        // SAFETY: see above; what the piece is read into is held, and its place is pinned.
        match unsafe {
            bindings::uvm_seam_flash_read(dev, self.io, &piece_of(piece), self.is_fault)
        } {
            0 => Did::All,
            errno if is_passing(errno) => Did::NotNow,
            _ => Did::Never,
        }
    }

    fn decrypt(&mut self, piece: &Piece) -> (PageMask, PageMask) {
        let dev = self.device.as_ptr();
        let (mut right, mut wrong) = (uvm_rust_mask::default(), uvm_rust_mask::default());
        // SAFETY: see above; the piece was read, and the masks are ours for the call.
        unsafe {
            let piece = piece_of(piece);
            bindings::uvm_seam_flash_decrypt(dev, self.io, &piece, &mut right, &mut wrong);
            (read(&right), read(&wrong))
        }
    }

    fn count_errors(&mut self, n: u32) {
        self.counts(Counter::ReadErrors, n.into());
    }

    fn tell(&mut self) {
        // SAFETY: the device is kept.
        unsafe { bindings::uvm_seam_flash_tell(self.device.as_ptr(), true) };
    }
}

/// Brings those of `wanted` that are on flash to host memory. Returns an `NV_STATUS`, of which the header says
/// what each means.
///
/// # Safety
///
/// The block is locked, and its VA space; the context is kept.
pub(super) unsafe fn fetch_locked(
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    wanted: &PageMask,
    is_fault: bool,
) -> u32 {
    // SAFETY: by this function's contract.
    let Some(device) = (unsafe { device_of(bindings::uvm_seam_va_block_flash(block)) }) else {
        return status::OK;
    };
    let mut fetching = Fetching {
        block,
        context,
        device,
        is_fault,
        io: null_mut(),
    };
    match fetch(&mut fetching, wanted) {
        Ok(Fetched::All) => status::OK,
        Ok(Fetched::Again) => status::AGAIN,
        Ok(Fetched::Lost) => status::INVALID_OPERATION,
        Ok(Fetched::NoMemory) => status::NO_MEMORY,
        Err(status) => status.number(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_fetch(
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    wanted: *const uvm_rust_mask,
    is_fault: bool,
) -> u32 {
    // SAFETY: I-lock and I-call.
    unsafe { fetch_locked(block, context, &read(wanted), is_fault) }
}
