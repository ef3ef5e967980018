// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The split as it is (policy/flash/split.rs), on the machine of the explorer: between any two of its
//! calls the other threads go on, and an eviction may find the upper half first.

use super::super::super::split::{after, before, Half, Machine};
use super::super::super::BlockPages;
use super::spill::Real;
use crate::policy::mask::PageMask;

/// A split under way.
#[derive(Default)]
pub(super) struct Halves {
    at: u16,
    lower: usize,
    upper: Option<usize>,
    locked: Option<Half>,
    /// What `cut` has made.
    cut: bool,
    /// What `share` has moved.
    shared: Option<BlockPages>,
    counted: [bool; 2],
    /// No block has copies that could be given up.
    pub(super) no_copies: bool,
}

impl Real<'_, '_> {
    /// A half, which has to be locked.
    fn half(&mut self, half: Half) -> usize {
        if self.halves.locked != Some(half) {
            self.broken("X-lock: it is not locked");
        }
        self.index(half)
    }

    fn index(&self, half: Half) -> usize {
        match half {
            Half::Lower => self.halves.lower,
            Half::Upper => self.halves.upper.unwrap_or_default(),
        }
    }

    /// uvm_va_block_split(): the VA space is locked for writing from the first step to the last.
    pub(super) fn split(&mut self) {
        let lower = self.w.below(self.w.now().blocks.len());
        let space = self.w.of(lower, |block| block.space);
        self.w.now().spaces[space].lock.wait_to_write();
        let turn = |w: &super::World| w.now().spaces[space].lock.write_in_turn().then_some(());
        if self.until(turn).is_none() {
            return;
        }
        let (dead, length) = self.w.of(lower, |block| (block.dead, block.length));
        if !dead && length >= 2 {
            let at = 1 + self.w.below(usize::from(length) - 1) as u16;
            self.halves = Halves {
                at,
                lower,
                ..Halves::default()
            };
            self.split_locked();
        }
        self.w.write_unlock(space);
    }

    fn split_locked(&mut self) {
        let (at, lower) = (self.halves.at, self.halves.lower);
        if before(self).is_err() {
            if !self.halves.no_copies {
                self.broken("a split fails for want of what copies have");
            }
            return;
        }
        self.pause();
        let is_split = !self.w.chance(8);
        if is_split {
            // uvm_va_block_split__c()
            self.until(|w| w.try_lock_block(lower).then_some(()));
            let mut upper = self.w.now().blocks[lower].upper_half(at);
            upper.known = false;
            self.w.now().blocks.push(upper);
            let upper = self.w.now().blocks.len() - 1;
            self.halves.upper = Some(upper);
            self.w.unlock_block(lower);
            self.pause();
            if self.w.chance(2) {
                self.evict_first(upper);
            }
        }
        after(self, is_split);
        let halves = core::mem::take(&mut self.halves);
        if halves.cut || halves.shared.is_some() || halves.locked.is_some() {
            self.broken("X-whole: something of a split is left");
        }
        if is_split && halves.counted != [true; 2] {
            self.broken("the memory of a half is not counted");
        }
    }

    /// An eviction, which has the lock of the new block only: its memory is noted.
    fn evict_first(&mut self, upper: usize) {
        self.until(|w| w.try_lock_block(upper).then_some(()));
        self.w.now().blocks[upper].leave_gpu(&PageMask::FULL);
        self.w.now().know(upper);
        self.w.unlock_block(upper);
    }
}

impl Machine for Real<'_, '_> {
    fn lock(&mut self, half: Half) {
        if self.halves.locked.is_some() {
            self.broken("X-lock: two are locked");
        }
        let b = self.index(half);
        self.until(|w| w.try_lock_block(b).then_some(()));
        self.halves.locked = Some(half);
    }

    fn unlock(&mut self, half: Half) {
        let b = self.half(half);
        self.w.unlock_block(b);
        self.halves.locked = None;
        self.pause();
    }

    fn is_used(&mut self) -> bool {
        let b = self.half(Half::Lower);
        self.w.of(b, |block| block.used)
    }

    fn cut(&mut self) -> bool {
        let (b, at) = (self.half(Half::Lower), self.halves.at);
        let s = &mut *self.w.now();
        let cut = s.blocks[b].state.cut(&mut s.table, at).is_ok();
        if !cut {
            // uvm_vm_open_failure() destroys the range, and all that it holds.
            s.blame("a block cannot be split, and is destroyed".into());
        }
        self.halves.cut = cut && !self.w.chance(8);
        self.halves.cut
    }

    fn share(&mut self) {
        let (b, at) = (self.half(Half::Lower), self.halves.at);
        let s = &mut *self.w.now();
        self.halves.shared = Some(s.blocks[b].state.split(&mut s.table, at));
    }

    fn has_cut(&mut self) -> bool {
        self.halves.cut
    }

    fn undo(&mut self) {
        self.halves.cut = false;
    }

    fn forget_upper(&mut self) {
        let b = self.half(Half::Upper);
        self.w.now().forget(b);
    }

    fn publish_upper(&mut self) {
        let b = self.half(Half::Upper);
        self.halves.cut = false;
        let s = &mut *self.w.now();
        match self.halves.shared.take() {
            Some(state) => (s.blocks[b].state, s.blocks[b].used) = (state, true),
            None => s.blame("X-once: the upper half has no state".into()),
        }
        s.know(b);
    }

    fn count(&mut self, half: Half, used: bool) {
        let b = self.half(half);
        if used != (half == Half::Upper) {
            self.broken("memory came to the wrong half");
        }
        self.halves.counted[usize::from(half == Half::Upper)] = true;
        // uvm_rust_flash_note(): what has memory is known.
        if !self.w.of(b, |block| block.known) {
            self.w.now().know(b);
        }
    }
}
