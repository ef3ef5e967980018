// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The va_block that a loop over va_blocks works on, and its locks.

use super::bindings;
use super::block::{known_of, used, State};
use super::dev::Dev;
use super::fetch::{fetch_locked, For};
use crate::driver::discard::status;
use crate::ffi::discard;
use crate::ffi::vaspace::space_of_block;
use crate::policy::discard::BlockState;
use crate::policy::flash::drain::Fetched;
use crate::policy::mask::PageMask;
use bindings::{
    mm_struct, uvm_rust_block, uvm_rust_flash_block, uvm_seam_context, uvm_seam_space,
    uvm_va_block_struct,
};
use core::ptr::null_mut;
use kernel::prelude::*;

/// The chosen va_block, if there is one.
pub(super) struct Chosen {
    /// Null for none. Invariant: this value or its caller holds a reference.
    block: *mut uvm_va_block_struct,
    /// Whether this value has locked the block.
    is_locked: bool,
    /// The block's VA space if this value has locked it, else null.
    space: *mut uvm_seam_space,
    /// Upstream's context between `open` and `close`, else null.
    context: *mut uvm_seam_context,
    /// Where C keeps the block's discard state; valid while the block is locked.
    discarded: *mut *mut uvm_rust_block,
}

impl Chosen {
    pub(super) fn none() -> Self {
        Self {
            block: null_mut(),
            is_locked: false,
            space: null_mut(),
            context: null_mut(),
            discarded: null_mut(),
        }
    }

    /// Chooses this block, or none if it is null. Returns whether one is chosen.
    ///
    /// # Safety
    ///
    /// A reference on the block is held until it is released or another is chosen. No block is chosen yet.
    pub(super) unsafe fn choose(&mut self, block: *mut uvm_va_block_struct) -> bool {
        self.block = block;
        !block.is_null()
    }

    /// Releases the chosen block, and gives its reference back.
    ///
    /// # Safety
    ///
    /// The reference is this value's.
    pub(super) unsafe fn release(&mut self) {
        let block = core::mem::replace(&mut self.block, null_mut());
        if !block.is_null() {
            // SAFETY: by this function's contract; the block is not used any more.
            unsafe { bindings::uvm_seam_va_block_put(block) };
        }
    }

    pub(super) fn lock(&mut self) {
        if self.is_locked {
            pr_err!("flash: S-lock does not hold\n");
        } else if !self.block.is_null() {
            // SAFETY: it is chosen, and not locked by us.
            self.discarded = unsafe { bindings::uvm_seam_block_lock(self.block) };
            self.is_locked = true;
        }
    }

    pub(super) fn unlock(&mut self) {
        if core::mem::take(&mut self.is_locked) {
            // SAFETY: it is locked by us.
            unsafe { bindings::uvm_seam_block_unlock(self.block) };
        }
    }

    /// The block, if it is locked. If it is not, somebody broke S-lock.
    pub(super) fn locked(&self) -> Option<*mut uvm_va_block_struct> {
        if !self.is_locked {
            pr_err!("flash: S-lock does not hold\n");
        }
        self.is_locked.then_some(self.block)
    }

    /// The tier's state of the locked block; null if there is none, or the block is dead.
    pub(super) fn known(&self) -> *mut uvm_rust_flash_block {
        // SAFETY: it is locked.
        let known = |block| unsafe { known_of(block) };
        self.locked().map_or(null_mut(), known)
    }

    /// The block, if it is locked and alive.
    pub(super) fn alive(&self) -> Option<*mut uvm_va_block_struct> {
        self.locked().filter(|_| !self.known().is_null())
    }

    /// The block's state, if that is of this device.
    ///
    /// # Safety
    ///
    /// One such reference exists at a time, and ends before the lock is released.
    pub(super) unsafe fn state<'a>(&self, dev: &Dev) -> Option<&'a mut State> {
        // SAFETY: by this function's contract; it is null, or the block is locked.
        let state = unsafe { used(self.known()) };
        state.filter(|state| state.is_on(dev))
    }

    pub(super) fn try_space(&mut self) -> bool {
        let Some(block) = self.alive() else {
            return false;
        };
        // SAFETY: the block is locked and alive.
        unsafe {
            let space = space_of_block(block);
            if bindings::uvm_seam_space_trylock(space) {
                self.space = space;
            }
        }
        !self.space.is_null()
    }

    pub(super) fn leave_space(&mut self) {
        let space = core::mem::replace(&mut self.space, null_mut());
        if !space.is_null() {
            // SAFETY: `try_space` took it.
            unsafe { bindings::uvm_seam_space_unlock(space) };
        }
    }

    /// Makes upstream's context, on no process' behalf. Returns false without memory.
    pub(super) fn open(&mut self) -> bool {
        // SAFETY: no process is named.
        unsafe { self.open_for(null_mut()) }
    }

    /// Makes upstream's context, on behalf of `mm`. Returns false without memory.
    ///
    /// # Safety
    ///
    /// `mm` is null, or is kept until `close`.
    pub(super) unsafe fn open_for(&mut self, mm: *mut mm_struct) -> bool {
        // SAFETY: by this function's contract.
        self.context = unsafe { bindings::uvm_seam_context_new(mm) };
        !self.context.is_null()
    }

    pub(super) fn close(&mut self) {
        let context = core::mem::replace(&mut self.context, null_mut());
        if !context.is_null() {
            // SAFETY: `open` got it, and it is not used any more.
            unsafe { bindings::uvm_seam_context_free(context) };
        }
    }

    /// Brings those of `pages` that are on flash to host memory. The context is open, and this value or the caller
    /// has locked the VA space.
    pub(super) fn fetch(&self, pages: &PageMask) -> Fetched {
        let Some((block, context)) = self.opened() else {
            return Fetched::Failed;
        };
        // SAFETY: the block and its VA space are locked, and the context is open.
        match unsafe { fetch_locked(block, context, pages, For::Others) } {
            status::OK => Fetched::All,
            status::AGAIN => Fetched::Again,
            status::NO_MEMORY => Fetched::NoMemory,
            _ => Fetched::Failed,
        }
    }

    /// The block's discard state, if it has one.
    pub(super) fn discarded(&mut self) -> Option<&mut BlockState> {
        self.locked()?;
        // SAFETY: the block is locked, so it is C's place for that (I-own, I-lock), and nobody else uses what is
        // there as long as `self` is borrowed.
        unsafe {
            let state = *self.discarded;
            (!state.is_null()).then(|| discard::borrow(state))
        }
    }

    /// The block's VA space if this value has locked it, else null.
    pub(super) fn space(&self) -> *mut uvm_seam_space {
        self.space
    }

    /// The block and its context, if the block is locked.
    pub(super) fn opened(&self) -> Option<(*mut uvm_va_block_struct, *mut uvm_seam_context)> {
        let block = self.locked()?;
        (!self.context.is_null()).then_some((block, self.context))
    }
}
