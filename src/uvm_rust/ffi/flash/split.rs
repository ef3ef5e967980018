// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Splits of va_blocks: the machine of `policy/flash/split.rs`.

use super::bindings;
use super::block::{self, Block};
use super::spill::To;
use super::tier::current;
use crate::mem::OutOfMemory;
use crate::policy::flash::spill::Copies;
use crate::policy::flash::split::{self, Half, Machine};
use bindings::{uvm_rust_flash_block, uvm_va_block_struct};
use core::ptr::{null_mut, NonNull};

/// One split.
///
/// Invariant: the blocks exist, and the caller holds the lock of their VA space in write mode, so that their states
/// stay. A half is used under its lock.
struct Splitting {
    lower: *mut uvm_va_block_struct,
    /// Null before upstream has made it.
    upper: *mut uvm_va_block_struct,
    at: u32,
    /// The block that `cut` has made, which nobody else has.
    made: Option<NonNull<Block>>,
}

impl Splitting {
    fn half(&self, half: Half) -> *mut uvm_va_block_struct {
        match half {
            Half::Lower => self.lower,
            Half::Upper => self.upper,
        }
    }

    /// The tier's state of a half, which is locked; null if there is none.
    fn known(&self, half: Half) -> *mut uvm_rust_flash_block {
        // SAFETY: by the type's invariant.
        unsafe { block::known_of(self.half(half)) }
    }
}

impl Copies for Splitting {
    fn give_up_oldest(&mut self, of_own: bool) -> Option<u32> {
        self.lock(Half::Lower);
        // SAFETY: the block is locked.
        let dev = unsafe { block::device_of(self.known(Half::Lower)) };
        self.unlock(Half::Lower);
        let (tier, dev) = (current(), dev?);
        To { tier, dev }.give_up_oldest(of_own)
    }
}

// In all blocks below the pointers are valid by the type's invariant.
impl Machine for Splitting {
    fn lock(&mut self, half: Half) {
        // SAFETY: see above; the policy locks one at a time.
        unsafe { bindings::uvm_seam_block_lock(self.half(half)) };
    }

    fn unlock(&mut self, half: Half) {
        // SAFETY: it is locked by us.
        unsafe { bindings::uvm_seam_block_unlock(self.half(half)) };
    }

    fn is_used(&mut self) -> bool {
        // SAFETY: null, or it is locked.
        unsafe { block::used(self.known(Half::Lower)) }.is_some()
    }

    fn cut(&mut self) -> bool {
        // SAFETY: it is locked, and used.
        self.made = unsafe { block::cut(self.known(Half::Lower), self.at) };
        self.made.is_some()
    }

    fn share(&mut self) {
        if let Some(made) = self.made {
            // SAFETY: it is locked, and used; `cut` has made the other, for nobody else.
            unsafe { block::share(self.known(Half::Lower), self.at, made) };
        }
    }

    fn has_cut(&mut self) -> bool {
        self.made.is_some()
    }

    fn undo(&mut self) {
        if let Some(made) = self.made.take() {
            // SAFETY: `cut` has made it, and nobody knows of it.
            unsafe { block::free(made) };
        }
    }

    fn forget_upper(&mut self) {
        // SAFETY: it is locked.
        unsafe { block::forget(self.upper) };
    }

    fn publish_upper(&mut self) {
        // SAFETY: it is locked, and nothing is known of it; `cut` has made what is to be.
        unsafe {
            let slot = bindings::uvm_seam_flash_slot(self.upper);
            if slot.is_null() {
                // Nothing is known of such a block.
                return self.undo();
            }
            if let Some(made) = self.made.take() {
                block::publish(made, slot, self.upper);
                super::tier::note_copies(slot.read());
            }
        }
    }

    fn count(&mut self, half: Half, used: bool) {
        // SAFETY: it is locked, and there is a tier.
        unsafe { block::count(self.half(half), used) };
    }
}

/// The SSD tier's part of a split of a va_block.
pub(crate) struct Split(Option<Splitting>);

impl Split {
    /// The split of a block at page `at`; does nothing without a tier.
    ///
    /// # Safety
    ///
    /// The block exists, and the lock of its VA space is held in write mode, as long as the result lives.
    pub(in crate::ffi) unsafe fn of(block: *mut uvm_va_block_struct, at: u32) -> Self {
        Self((!current().is_null()).then_some(Splitting {
            lower: block,
            upper: null_mut(),
            at,
            made: None,
        }))
    }

    /// Prepares the split, before upstream splits the block.
    ///
    /// # Errors
    ///
    /// There is no memory; then the split must not be made.
    pub(crate) fn before(&mut self) -> Result<(), OutOfMemory> {
        self.0.as_mut().map_or(Ok(()), split::before)
    }

    /// Completes the split after upstream has made `upper`, or undoes it if upstream failed.
    pub(crate) fn after(&mut self, upper: Option<crate::ffi::block::Block<'_>>) {
        if let Some(splitting) = &mut self.0 {
            splitting.upper = upper.map_or(null_mut(), |upper| upper.as_ptr());
            split::after(splitting, upper.is_some());
        }
    }
}
