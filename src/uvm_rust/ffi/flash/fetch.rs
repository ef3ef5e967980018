// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fetching: the machine of `policy/flash/fetch.rs`.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::block::{
    arrived, begins, count, device_of, give_up, known_of, memory_of, read_ended, used,
};
use super::dev::{Dev, Others, Set};
use super::io::{Io, Urgency};
use super::tier::{current, is_attached, note_copies};
use crate::driver::discard::status;
use crate::driver::flash::Counter;
use crate::ffi::discard::{as_c, borrow, short};
use crate::ffi::space;
use crate::ffi::status::Status;
use crate::ffi::time::now_us;
use crate::ffi::vaspace::space_of_block;
use crate::policy::discard::Memory;
use crate::policy::flash::cause::Cause;
use crate::policy::flash::fetch::{fetch, Did, Fetched, Machine, NeedsTurn};
use crate::policy::flash::pool::Who;
use crate::policy::flash::{BlockPages, Piece, Table};
use crate::policy::mask::PageMask;
use bindings::{uvm_rust_block, uvm_rust_flash_block, uvm_seam_context, uvm_va_block_struct};
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

crate::ffi::check_exports!(uvm_rust_flash_debug);

/// Milliseconds after which a thread that waits for the end of a read or write looks again without being told.
pub(super) const WAIT_MS: u32 = 1000;

/// One fetch of pages of a va_block.
///
/// Invariant: the caller holds the VA space's lock, which keeps the block, and keeps the context. The block is
/// locked, except between `unlock` and `lock`.
struct Fetching {
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    device: Arc<Dev>,
    is_fault: bool,
    needs_turn: NeedsTurn,
    /// Where C keeps the block's discard state, once this has locked the block; null before.
    discarded: *mut *mut uvm_rust_block,
    /// The set of buffers between `open` and `close`, and before `open` if the caller waited for one.
    set: Option<Set>,
    /// The turn with the device, of a read that is not for a fault.
    turn: Option<Others>,
}

impl Fetching {
    fn known(&self) -> *mut uvm_rust_flash_block {
        // SAFETY: by the type's invariant.
        unsafe { known_of(self.block) }
    }

    fn counts(&self, counter: Counter, n: u64) {
        self.device.counts(counter, n);
    }

    fn io(&mut self) -> Option<&mut Io> {
        self.set.as_mut()?.io()
    }

    fn who(&self) -> Who {
        if self.is_fault {
            Who::Fault
        } else {
            Who::Others
        }
    }
}

// In all blocks below the pointers are valid by the type's invariant, and the lock is held as the policy
// documents it (F-lock).
impl Machine for Fetching {
    type Error = Status;

    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table) -> T) -> Option<T> {
        // SAFETY: the block is locked; the reference ends with this function.
        let state = unsafe { used(self.known()) }?;
        // While the block was unlocked, all pages may have come back from this device and have gone to another.
        if !state.is_on(&self.device) {
            return None;
        }
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

    fn try_open(&mut self) -> bool {
        if self.set.is_none() {
            self.set = Set::try_take(&self.device, self.who());
        }
        self.set.is_some()
    }

    fn open(&mut self) {
        self.set = Some(Set::take(&self.device, self.who()));
    }

    fn close(&mut self) {
        self.set = None;
    }

    fn hold(&mut self, pages: &PageMask) -> bool {
        let block = self.block;
        // SAFETY: see above.
        let hold = |io: &mut Io| unsafe { io.hold(block, pages) };
        self.io().is_some_and(hold)
    }

    fn unchanged(&mut self, pages: &PageMask) -> PageMask {
        let block = self.block;
        // SAFETY: see above.
        let unchanged = |io: &mut Io| unsafe { io.unchanged(block, pages) };
        self.io().map_or(PageMask::EMPTY, unchanged)
    }

    fn overwritten(&mut self, pages: &PageMask) {
        // SAFETY: the block was locked by `lock`, so it is C's place for that (I-own, I-lock), and nobody else uses
        // what is there; the reference ends with this function.
        unsafe {
            let state = self.discarded.as_ref().map_or(null_mut(), |state| *state);
            if !state.is_null() {
                borrow(state).overwritten(Memory::HOST, pages);
            }
        }
    }

    fn keeps_copies(&mut self) -> bool {
        let dev = &self.device;
        // SAFETY: see above; the tier is there, and a parameter does not change.
        unsafe {
            bindings::uvm_rust_flash_copies
                && is_attached(current(), dev)
                && dev.is_sound()
                && memory_of(self.block).read_duplicated
        }
    }

    fn arrived(&mut self, pages: &PageMask) {
        // SAFETY: see above; the mask is read.
        unsafe {
            if !pages.is_empty() {
                bindings::uvm_seam_flash_arrived(self.block, &as_c(pages));
            }
            arrived(self.known(), pages);
            read_ended(self.block);
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
        // SAFETY: see above. Who reads may be a thread of the kernel's, or of another process.
        unsafe {
            let state = space::of(space_of_block(self.block));
            let pid = state.map_or(0, |state| state.pid());
            bindings::uvm_seam_flash_lost(self.block, pages, pid);
        }
        self.counts(Counter::LostPages, pages.into());
    }

    fn unlock(&mut self) {
        // SAFETY: the block is locked.
        unsafe { bindings::uvm_seam_block_unlock(self.block) };
    }

    fn lock(&mut self) {
        // SAFETY: it was unlocked.
        self.discarded = unsafe { bindings::uvm_seam_block_lock(self.block) };
    }

    fn now_us(&mut self) -> u64 {
        now_us()
    }

    fn progress(&mut self) -> u32 {
        self.device.progress()
    }

    fn needs_turn(&mut self) -> NeedsTurn {
        self.needs_turn
    }

    fn begins(&mut self, pages: &PageMask) {
        // Pages that are read for others do not count for the faults' share.
        let pages = if self.is_fault { pages.count() } else { 0 };
        // SAFETY: the block is locked.
        unsafe { begins(self.known(), pages.into()) };
    }

    fn take_turn(&mut self) {
        self.turn = Some(Dev::begin_for_others(&self.device, Cause::Read));
        self.needs_turn = NeedsTurn::No;
    }

    fn end_turn(&mut self) {
        self.turn = None;
    }

    fn wait(&mut self, progress: u32) {
        self.device.wait(progress, WAIT_MS);
    }

    fn read(&mut self, piece: &Piece) -> Did {
        let urgency = if self.is_fault {
            Urgency::Fault
        } else {
            Urgency::Request
        };
        let Some(io) = self.set.as_mut().and_then(Set::io) else {
            return Did::NotNow;
        };
        // SAFETY: see above; what the piece is read into is held, and its place is pinned.
        match unsafe { io.read(&self.device, piece, urgency) } {
            0 => Did::All,
            errno => Did::failed(errno, self.device.is_there()),
        }
    }

    fn decrypt(&mut self, piece: &Piece) -> (PageMask, PageMask) {
        let Some(io) = self.set.as_mut().and_then(Set::io) else {
            return (PageMask::EMPTY, PageMask::EMPTY);
        };
        io.decrypt(&self.device, piece)
    }

    fn count_errors(&mut self, n: u32) {
        self.counts(Counter::ReadErrors, n.into());
    }

    fn tell(&mut self) {
        self.device.tell();
    }
}

/// What a fetch is for, and what it has waited for already.
pub(super) enum For {
    /// A CPU's or GPU's fault, or another one that a GPU's bottom half services. Waits for no turn with the device.
    Fault,
    /// Another caller, which can wait.
    Others,
    /// A reader ahead, which waits for its turn and its set without locks; `None` if it has not yet.
    Reader(Option<Ready>),
    /// A reader for faults that were put off, which waits for its set without locks; `None` if it has not yet.
    Fetcher(Option<Set>),
}

/// What a read that is not for a fault waits for: first the turn, then the set.
pub(super) struct Ready {
    pub(super) set: Set,
    pub(super) turn: Others,
}

/// Does what [`fetch_for`] does, and returns an `NV_STATUS`; the header says what each means.
///
/// # Safety
///
/// Its contract is that of [`fetch_for`].
pub(super) unsafe fn fetch_locked(
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    wanted: &PageMask,
    whom: For,
) -> u32 {
    // SAFETY: by this function's contract.
    match unsafe { fetch_for(block, context, wanted, whom) } {
        Ok(Fetched::All) => status::OK,
        Ok(Fetched::Again | Fetched::Turn) => status::AGAIN,
        Ok(Fetched::Lost) => status::INVALID_OPERATION,
        Ok(Fetched::NoMemory) => status::NO_MEMORY,
        Err(status) => status.number(),
    }
}

/// Brings those of `wanted` that are on flash to host memory.
///
/// # Safety
///
/// The block and its VA space are locked, and the caller keeps the context.
pub(super) unsafe fn fetch_for(
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    wanted: &PageMask,
    whom: For,
) -> Result<Fetched, Status> {
    // SAFETY: by this function's contract.
    let Some(device) = (unsafe { device_of(known_of(block)) }) else {
        return Ok(Fetched::All);
    };
    let is_fault = matches!(whom, For::Fault | For::Fetcher(_));
    let (needs_turn, set, turn) = match whom {
        For::Fault => (NeedsTurn::No, None, None),
        For::Others => (NeedsTurn::Here, None, None),
        // Another device may have been attached since the caller waited.
        For::Reader(Some(Ready { set, turn })) if set.is_of(&device) => {
            (NeedsTurn::No, Some(set), Some(turn))
        }
        For::Reader(_) => (NeedsTurn::Elsewhere, None, None),
        For::Fetcher(set) => {
            let set = set.filter(|set| set.is_of(&device));
            (NeedsTurn::OnlySet, set, None)
        }
    };
    let mut fetching = Fetching {
        block,
        context,
        device,
        is_fault,
        needs_turn,
        discarded: null_mut(),
        set,
        turn,
    };
    fetch(&mut fetching, wanted)
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_debug(
    block: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    page: u32,
    to_write: bool,
) -> u32 {
    let mut pages = PageMask::EMPTY;
    pages.set(short(page));
    // SAFETY: I-lock, for the block and its VA space; I-call for the context. The reference ends before anything is
    // fetched.
    unsafe {
        let Some(state) = used(known_of(block)) else {
            return status::OK;
        };
        if to_write {
            give_up(state, &pages);
            return status::OK;
        }
        if !context.is_null() {
            return fetch_locked(block, context, &pages, For::Others);
        }
        let context = bindings::uvm_seam_context_new(null_mut());
        if context.is_null() {
            return status::NO_MEMORY;
        }
        let result = fetch_locked(block, context, &pages, For::Others);
        bindings::uvm_seam_context_free(context);
        result
    }
}
