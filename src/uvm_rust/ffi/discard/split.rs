// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Splits of va_blocks, as `policy/discard/split.rs` sees them.

// What each asks of its caller is in uvm_rust_discard_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::super::bindings;
use super::super::flash::Split;
use super::super::status::Status;
use super::{borrow, into_foreign, short, uvm_rust_block_destroy};
use crate::driver::discard::status;
use crate::policy::discard::split::{split, Half, Machine};
use bindings::{uvm_rust_block, uvm_va_block_struct, uvm_va_range_struct};
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;

super::super::check_exports!(uvm_va_block_split);

/// A split of a va_block that is under way, as upstream has asked for it.
///
/// Invariant: the blocks are there, and the lock of their VA space is held in write mode by who called; `upper` is null
/// before upstream has made it.
struct Splitting {
    lower: *mut uvm_va_block_struct,
    upper: *mut uvm_va_block_struct,
    new_end: u64,
    new_range: *mut uvm_va_range_struct,
    at: u32,
    flash: Split,
    /// Where C keeps the state of the half that is locked.
    place: *mut *mut uvm_rust_block,
    /// What `copy` has made, until it is kept; null for none.
    made: *mut uvm_rust_block,
}

impl Splitting {
    fn half(&self, half: Half) -> *mut uvm_va_block_struct {
        match half {
            Half::Lower => self.lower,
            Half::Upper => self.upper,
        }
    }
}

impl Drop for Splitting {
    fn drop(&mut self) {
        // SAFETY: null, or `copy` made it, and nobody else has it.
        unsafe { uvm_rust_block_destroy(self.made) };
    }
}

// In all blocks below the pointers are valid by the type's invariant, and the policy locks one half at a time.
impl Machine for Splitting {
    type Error = u32;

    const NO_MEMORY: u32 = status::NO_MEMORY;

    fn before(&mut self) -> Result<(), u32> {
        self.flash.before().map_err(|_| status::NO_MEMORY)
    }

    fn lock(&mut self, half: Half) {
        // SAFETY: see above.
        self.place = unsafe { bindings::uvm_seam_block_lock(self.half(half)) };
    }

    fn unlock(&mut self, half: Half) {
        self.place = null_mut();
        // SAFETY: it is locked by us.
        unsafe { bindings::uvm_seam_block_unlock(self.half(half)) };
    }

    fn copy(&mut self) -> bool {
        // SAFETY: the half is locked; I-own and I-lock.
        let Some(state) = (unsafe { (*self.place).as_mut().map(|state| borrow(state)) }) else {
            return true;
        };
        let made = state.upper(short(self.at)).ok().and_then(into_foreign);
        self.made = made.unwrap_or(null_mut());
        made.is_some()
    }

    fn split(&mut self) -> Result<(), u32> {
        let (end, range) = (self.new_end, self.new_range);
        // SAFETY: see above; `upper` is ours for the call.
        let result =
            unsafe { bindings::uvm_va_block_split__c(self.lower, end, &mut self.upper, range) };
        Status::check(result).map_err(Status::number)
    }

    fn after(&mut self, is_split: bool) {
        let upper = if is_split { self.upper } else { null_mut() };
        self.flash.after(upper);
    }

    fn truncate(&mut self) {
        // SAFETY: the half is locked; I-own and I-lock.
        if let Some(state) = unsafe { (*self.place).as_mut().map(|state| borrow(state)) } {
            state.truncate(short(self.at));
        }
    }

    fn keep(&mut self) {
        // SAFETY: the half is locked, and new: it has no state.
        unsafe { *self.place = core::mem::replace(&mut self.made, null_mut()) };
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_va_block_split(
    block: *mut uvm_va_block_struct,
    new_end: u64,
    upper: *mut *mut uvm_va_block_struct,
    new_range: *mut uvm_va_range_struct,
) -> u32 {
    let mut span = bindings::uvm_rust_span::default();
    // SAFETY: I-lock: the lock of the VA space is held; `span` is ours for the call.
    unsafe { bindings::uvm_seam_block_span(block, &mut span) };
    let at = ((new_end + 1 - span.first) / PAGE_SIZE as u64) as u32;
    let mut splitting = Splitting {
        lower: block,
        upper: null_mut(),
        new_end,
        new_range,
        at,
        // SAFETY: I-lock.
        flash: unsafe { Split::of(block, at) },
        place: null_mut(),
        made: null_mut(),
    };
    match split(&mut splitting) {
        Ok(()) => {
            // SAFETY: I-call: null, or a place for it.
            if let Some(upper) = unsafe { upper.as_mut() } {
                *upper = splitting.upper;
            }
            status::OK
        }
        Err(failed) => failed,
    }
}
