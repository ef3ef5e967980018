// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A discard of an address range, as the walk sees it.
//!
//! Invariant besides those of `ffi.rs`, kept by `uvm_rust_discard.c`:
//!
//! - **I-state**: the state of a va_block that C keeps is NULL or came from `into_foreign`. It
//!   changes under the va_block's lock only, and is not destroyed while the lock of the VA space
//!   is held.

// What each asks of its caller is in uvm_rust_discard_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::super::status::Status;
use super::super::{bindings, flash};
use super::as_c;
use crate::driver::discard::{self, status};
use crate::mem::OutOfMemory;
use crate::policy::discard::{
    BlockState, Dropped, Facts, Held, Kind, Machine, Memory, Mode, Request, Span,
};
use crate::policy::mask::PageMask;
use core::marker::PhantomData;
use core::ptr::null_mut;
use kernel::prelude::*;

super::super::check_exports!(uvm_rust_discard_range);

const _: () = assert!(Memory::HOST.0 as u32 == bindings::UVM_RUST_MEMORY_HOST);

/// How far a call has come, which says what may be asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    /// No lock is held.
    Out,
    /// Between `enter` and `leave`.
    Entered,
    /// Between `open` and `close`.
    Open,
    /// With a range chosen.
    InRange,
    /// With a block chosen.
    InBlock,
    /// Between `lock` and `unlock`.
    Locked,
    /// After `wait`, when the call may be asked for nothing more.
    Over,
}

/// A VA space for the length of one discard of a range.
pub(crate) struct DiscardCall<'a> {
    /// Invariant: valid for `'a`.
    space: *mut bindings::uvm_seam_space,
    /// Invariant: valid for `'a`, and used by nobody else.
    tracker: *mut bindings::uvm_seam_tracker,
    /// Invariant: these were found or taken, as far as `at` says.
    mm: *mut bindings::mm_struct,
    context: *mut bindings::uvm_seam_context,
    range: *mut bindings::uvm_va_range_struct,
    /// The block that was chosen last; null for none.
    block: *mut bindings::uvm_va_block_struct,
    /// Invariant: what was last asked of C says so.
    at: At,
    /// Invariant: while `Locked`, where C keeps the state of the chosen block, which nobody else
    /// looks at; else null.
    place: *mut *mut bindings::uvm_rust_block,
    _call: PhantomData<&'a ()>,
}

impl DiscardCall<'_> {
    /// # Safety
    ///
    /// Both are valid for the returned value's lifetime, the tracker is used by nobody else, and the
    /// thread holds no lock of the VA space's.
    unsafe fn new(
        space: *mut bindings::uvm_seam_space,
        tracker: *mut bindings::uvm_seam_tracker,
    ) -> Self {
        Self {
            space,
            tracker,
            mm: null_mut(),
            context: null_mut(),
            range: null_mut(),
            block: null_mut(),
            at: At::Out,
            place: null_mut(),
            _call: PhantomData,
        }
    }

    /// Whether the call is `at` this place; if not, somebody broke D-lock.
    fn is_at(&mut self, at: At) -> bool {
        if self.at != at {
            self.broken("D-lock");
        }
        self.at == at
    }

    /// Whether the call is open; the same. A block that is locked is not left.
    fn is_open(&mut self) -> bool {
        let open = self.at >= At::Open && self.at <= At::InBlock;
        if !open {
            self.broken("D-lock");
        }
        open
    }

    /// What C keeps as the state of the locked block; null for none.
    fn kept(&self) -> *mut bindings::uvm_rust_block {
        // SAFETY: by the type's invariant.
        unsafe { self.place.as_ref() }.map_or(null_mut(), |state| *state)
    }
}

// In all blocks below the pointers are valid by the type's invariants; what else a call
// needs is in each comment.
impl Machine for DiscardCall<'_> {
    type Error = Status;

    const CHECKS: bool = cfg!(uvm_checks);

    fn broken(&mut self, invariant: &'static str) {
        pr_err!("discard: {} does not hold\n", invariant);
    }

    fn enter(&mut self) {
        if self.is_at(At::Out) {
            self.at = At::Entered;
            // SAFETY: no lock is held.
            self.mm = unsafe { bindings::uvm_seam_space_lock(self.space, true) };
        }
    }

    fn leave(&mut self) {
        if self.is_at(At::Entered) {
            self.at = At::Out;
            // SAFETY: entered, and left once.
            unsafe { bindings::uvm_seam_space_unlock(self.space, self.mm) };
        }
    }

    fn has_non_faultable(&mut self) -> bool {
        // SAFETY: entered.
        self.is_at(At::Entered) && unsafe { bindings::uvm_seam_has_non_faultable(self.space) }
    }

    fn kind(&mut self, span: Span) -> Kind {
        if !self.is_at(At::Entered) {
            return Kind::Unknown;
        }
        // SAFETY: entered.
        unsafe { super::kind(self.space, self.mm, span) }
    }

    fn open(&mut self) -> Result<(), Status> {
        if self.is_at(At::Entered) {
            // SAFETY: entered, and not open; the process is kept until `leave`.
            self.context = unsafe { bindings::uvm_seam_context_new(self.mm) };
            if self.context.is_null() {
                return Status::check(status::NO_MEMORY);
            }
            self.at = At::Open;
        }
        Ok(())
    }

    fn close(&mut self) {
        if self.is_open() {
            self.at = At::Entered;
            // SAFETY: open, and closed once; nothing is locked.
            unsafe { bindings::uvm_seam_context_free(self.context) };
        }
    }

    fn wait(&mut self) -> Result<(), Status> {
        if !self.is_at(At::Out) {
            return Ok(());
        }
        self.at = At::Over;
        // SAFETY: no lock is held, and nothing is asked of C after this.
        Status::check(unsafe { bindings::uvm_seam_tracker_end(self.tracker) })
    }

    fn range(&mut self, at: u64, _: u64) -> Option<Span> {
        if !self.is_open() {
            return None;
        }
        self.at = At::Open;
        let mut range = bindings::uvm_rust_range::default();
        // SAFETY: open, on memory of which the walk has asked the kind; `range` is written at
        // most once.
        self.range = unsafe { bindings::uvm_seam_range(self.space, at, at, &mut range) };
        if self.range.is_null() {
            return None;
        }
        self.at = At::InRange;
        Some(Span {
            first: range.first,
            last: range.last,
        })
    }

    fn rest(&mut self) {
        // SAFETY: may sleep: a spinlock is held within single calls of C's only.
        unsafe { bindings::uvm_seam_rest() };
    }

    fn dying(&mut self) -> bool {
        // SAFETY: no spinlock is held.
        unsafe { bindings::uvm_seam_rest() }
    }

    fn block(&mut self, at: u64) -> Option<Span> {
        if !self.is_open() || self.at == At::Open {
            self.broken("D-lock");
            return None;
        }
        self.at = At::InRange;
        // SAFETY: a range is chosen, in which `at` is, as the walk clips it to what `range` gave.
        self.block = unsafe { bindings::uvm_seam_range_block(self.range, at) };
        if self.block.is_null() {
            return None;
        }
        self.at = At::InBlock;
        let mut span = bindings::uvm_rust_span::default();
        // SAFETY: the VA space's lock keeps the block; `span` is ours for the call.
        unsafe { bindings::uvm_seam_block_span(self.block, &mut span) };
        Some(Span {
            first: span.first,
            last: span.last,
        })
    }

    fn may_migrate(&mut self, span: Span) -> bool {
        let space = self.space.cast();
        self.is_open()
            // SAFETY: open, so the VA space's lock is held.
            && unsafe { bindings::uvm_range_group_all_migratable(space, span.first, span.last) }
    }

    fn lock(&mut self) {
        if self.is_at(At::InBlock) {
            self.at = At::Locked;
            // SAFETY: a block is chosen, and none is locked.
            self.place = unsafe { bindings::uvm_seam_block_lock(self.block) };
        }
    }

    fn unlock(&mut self) {
        if self.is_at(At::Locked) {
            self.at = At::InBlock;
            self.place = null_mut();
            // SAFETY: locked, and unlocked once.
            unsafe { bindings::uvm_seam_block_unlock(self.block) };
        }
    }

    fn facts(&mut self) -> Facts {
        let mut resident = bindings::uvm_rust_mask::default();
        let mapped_2m = self.is_at(At::Locked)
            // SAFETY: locked; `resident` is written once.
            && unsafe { bindings::uvm_seam_discard_facts(self.block, &mut resident) };
        Facts {
            resident: PageMask::from_words(resident.words),
            mapped_2m,
        }
    }

    fn state(&mut self) -> Option<&mut BlockState> {
        let state = self.kept();
        if state.is_null() {
            return None;
        }
        // SAFETY: by the type's invariant and I-state it came from `into_foreign`. The va_block's
        // lock is held, and the VA space's, so nobody else uses it and it is there. What is
        // returned borrows `self`, so C, which may look into it too, is not called meanwhile.
        Some(unsafe { super::borrow(state) })
    }

    fn keep(&mut self, state: BlockState) -> Result<(), OutOfMemory> {
        if !self.is_at(At::Locked) || !self.kept().is_null() {
            self.broken("D-order");
            return Ok(());
        }
        let state = super::into_foreign(state).ok_or(OutOfMemory)?;
        // SAFETY: locked, so the place is the block's, which has no state.
        unsafe { *self.place = state };
        Ok(())
    }

    fn held(&mut self, from: Memory) -> Option<Held> {
        let mut held = bindings::uvm_rust_held::default();
        let found = self.is_at(At::Locked)
            // SAFETY: locked; `held` is written at most once.
            && unsafe { bindings::uvm_seam_discard_held(self.space, self.block, from.0.into(), &mut held) };
        found.then(|| Held {
            memory: super::memory(held.memory),
            resident: PageMask::from_words(held.resident.words),
            one_place: held.one_place,
            root_chunk: held.root_chunk,
        })
    }

    fn drop_pages(&mut self, pages: &PageMask) -> Result<Dropped, Status> {
        if !self.is_at(At::Locked) {
            return Ok(Dropped::All);
        }
        // SAFETY: locked.
        match unsafe { super::drop_pages(self.block, self.context, pages, pages) } {
            status::AGAIN => Ok(Dropped::Again),
            other => Status::check(other).map(|()| Dropped::All),
        }
    }

    fn forget_thrashing(&mut self, pages: &PageMask) {
        if self.is_at(At::Locked) {
            // SAFETY: locked; the mask is read.
            unsafe { bindings::uvm_seam_block_forget_thrashing(self.block, &as_c(pages)) };
        }
    }

    fn forget_stored(&mut self, pages: &PageMask) {
        if self.is_at(At::Locked) {
            // SAFETY: locked.
            unsafe { flash::discarded(self.block, pages) };
        }
    }

    fn requeue(&mut self, memory: Memory) {
        if self.is_at(At::Locked) {
            // SAFETY: locked; `held` gave `memory` with a root chunk under this hold of the lock,
            // as the walk heeds what it says.
            unsafe { bindings::uvm_seam_discard_requeue(self.space, self.block, memory.0.into()) };
        }
    }

    fn note_work(&mut self) -> Result<(), Status> {
        if !self.is_at(At::Locked) {
            return Ok(());
        }
        // SAFETY: locked.
        Status::check(unsafe { bindings::uvm_seam_tracker_add(self.tracker, self.block) })
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_discard_range(
    space: *mut bindings::uvm_seam_space,
    tracker: *mut bindings::uvm_seam_tracker,
    base: u64,
    length: u64,
    eager: bool,
    counts: *mut bindings::uvm_seam_discarded,
) -> u32 {
    let mode = if eager { Mode::Eager } else { Mode::Lazy };
    // SAFETY: I-call for all, and I-lock: no lock is held.
    let (mut call, counts) = unsafe { (DiscardCall::new(space, tracker), &mut *counts) };
    // SAFETY: a parameter, which nobody writes once the module is loaded.
    let granule = unsafe { bindings::uvm_rust_discard_granule };
    let request = Request {
        base,
        length,
        mode,
        granule_shift: crate::policy::discard::granule_shift(granule),
    };
    discard::range(&mut call, &request, counts)
}
