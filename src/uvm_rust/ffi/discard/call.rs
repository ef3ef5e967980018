// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A discard of an address range (`driver/discard/call.rs`), which has a tracker of C's.

// What each asks of its caller is in uvm_rust_discard_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::super::bindings::{
    self, mm_struct, uvm_seam_discarded, uvm_seam_space, uvm_seam_tracker,
};
use super::super::block::Tracker;
use super::super::vaspace::{MmLock, VaSpace};
use crate::driver::discard::{call, status};
use crate::policy::discard::Memory;
use core::ptr::NonNull;

super::super::check_exports!(uvm_rust_discard_range);

const _: () = assert!(Memory::HOST.0 as u32 == bindings::UVM_RUST_MEMORY_HOST);

/// Discards an address range. Sleeps, takes the VA space's lock within that of its process' memory, and lets both go.
/// Returns NVIDIA's status code; the blocks are added to `counts`.
pub(crate) fn discard(
    (space, mm): (VaSpace<'_>, MmLock<'_>),
    base: u64,
    length: u64,
    eager: bool,
    counts: &mut uvm_seam_discarded,
) -> u32 {
    let mm = mm.into_raw();
    // SAFETY: by the invariant of `VaSpace`, whose `mm` this is; `counts` is ours for the call.
    unsafe { bindings::uvm_seam_discard(space.as_ptr(), mm, base, length, eager, counts) }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_discard_range(
    space: *mut uvm_seam_space,
    mm: *mut mm_struct,
    tracker: *mut uvm_seam_tracker,
    base: u64,
    length: u64,
    eager: bool,
    counts: *mut uvm_seam_discarded,
) -> u32 {
    let Some(space) = NonNull::new(space) else {
        return status::INVALID_ARGUMENT;
    };
    // SAFETY: I-call for all, and I-lock: no lock is held but that of `mm`, which `discard` has given away.
    let (mm, tracker, counts) = unsafe {
        let mm = MmLock::from_raw(VaSpace::new(space), mm);
        (mm, Tracker::new(tracker), &mut *counts)
    };
    call::range(mm, tracker, (base, length), eager, counts)
}
