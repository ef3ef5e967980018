// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A discard of an address range where upstream discards by itself, as `policy/discard/ranges.rs` sees it.

use super::bindings;
use super::status::Status;
use crate::driver::discard::{ended, status, Counts};
use crate::policy::discard::ranges::{discard as ranges, Discarded, Machine};
use crate::policy::discard::{self as policy, Kind, Span};
use core::ptr::null_mut;

/// A discard by upstream that is under way, from one call of the ioctl.
///
/// Invariant: the VA space is there as long as this; the other pointers are of what was taken.
struct Call {
    space: *mut bindings::uvm_seam_space,
    eager: bool,
    mm: *mut bindings::mm_struct,
    context: *mut bindings::uvm_seam_context,
}

// In all blocks below the pointers are valid by the type's invariant, and the policy calls in the order that it
// documents.
impl Machine for Call {
    type Error = Status;

    fn enter(&mut self) {
        // SAFETY: no lock is held.
        self.mm = unsafe { bindings::uvm_seam_space_lock(self.space, true) };
    }

    fn leave(&mut self) {
        // SAFETY: entered, and left once.
        unsafe { bindings::uvm_seam_space_unlock(self.space, self.mm) };
    }

    fn has_non_faultable(&mut self) -> bool {
        // SAFETY: entered.
        unsafe { bindings::uvm_seam_has_non_faultable(self.space) }
    }

    fn kind(&mut self, span: Span) -> Kind {
        // SAFETY: entered.
        unsafe { super::discard::kind(self.space, self.mm, span) }
    }

    fn open(&mut self) -> Result<(), Status> {
        // SAFETY: entered; the process is kept until `leave`.
        self.context = unsafe { bindings::uvm_seam_context_new(self.mm) };
        if self.context.is_null() {
            return Status::check(status::NO_MEMORY);
        }
        Ok(())
    }

    fn close(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { bindings::uvm_seam_context_free(self.context) };
    }

    fn rest(&mut self) -> bool {
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_rest() }
    }

    fn discard(&mut self, at: u64, last: u64) -> Result<Discarded, Status> {
        let mut end = last;
        // SAFETY: entered, and open; `end` is ours for the call.
        let result = unsafe {
            let (space, context) = (self.space, self.context);
            bindings::uvm_seam_native_discard(space, context, at, self.eager, &mut end)
        };
        let done = result != status::NOTHING_TO_DO;
        if done {
            Status::check(result)?;
        }
        Ok(Discarded { last: end, done })
    }
}

/// Discards a range. Returns an `NV_STATUS`; the blocks are added to `counts`.
///
/// # Safety
///
/// The VA space is there for the call, and no lock of it is held.
pub(super) unsafe fn discard(
    space: *mut bindings::uvm_seam_space,
    base: u64,
    length: u64,
    eager: bool,
    counts: &mut Counts,
) -> u32 {
    let mut call = Call {
        space,
        eager,
        mm: null_mut(),
        context: null_mut(),
    };
    let mut met = policy::Counts::default();
    let result = ranges(&mut call, base, length, &mut met);
    ended(result, &met, counts)
}
