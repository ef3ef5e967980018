// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who holds a page without a mapping, as uvm_rust_flash_block.h finds it out: by two numbers of the page's folio, between
//! which others map and unmap what they have of it. After a split of a va_block that is another va_block, under a lock of its
//! own.

use super::super::super::spill::spill;
use super::spill::Real;
use super::threads::use_pages;
use super::world::{Block, World};
use super::Lack;
use crate::policy::mask::PageMask;
use std::rc::Rc;
use std::vec::Vec;

impl Real<'_, '_> {
    /// flash_is_held(), for the chosen block's pages; certain if they are `unmapped`.
    pub(super) fn free_of(&mut self, pages: &PageMask, unmapped: bool) -> PageMask {
        let b = self.b();
        if self.others_mapped(b).is_none() {
            // Each page is a folio.
            return *pages - self.held;
        }
        let sure = unmapped && !self.w.lacks(Lack::HeldCountsOwn);
        let counted = |real: &Self| {
            let own = real.w.of(b, |block| block.mapped.count());
            let others = real.others_mapped(b).unwrap_or(0);
            (own, own + others)
        };
        let before = counted(self);
        self.pause();
        let references = counted(self).1 + u16::from(!self.held.is_empty());
        // Others map and unmap much at this moment.
        (0..4).for_each(|_| self.pause());
        let after = counted(self);
        let mapped = match (sure, unmapped) {
            (true, _) => before.0.min(after.0),
            (false, false) => before.1.min(after.1),
            // What was counted before is lacking, too: the smaller number hides most of what is wrong.
            (false, true) => after.1,
        };
        match references > mapped {
            true => PageMask::EMPTY,
            false => *pages,
        }
    }

    /// How many pages of its folio the other va_blocks have mapped that have a part of it; `None` if there are none.
    pub(super) fn others_mapped(&self, b: usize) -> Option<u16> {
        let s = self.w.now();
        let folio = &s.blocks[b].folio;
        let blocks = s.blocks.iter().enumerate();
        let others =
            blocks.filter(|(at, other)| *at != b && !other.dead && Rc::ptr_eq(&other.folio, folio));
        others
            .map(|(_, other)| other.mapped.count())
            .reduce(|all, more| all + more)
    }
}

/// As long as a half is mapped, the other one stays. So each has to be unmapped when its turn comes, though it cannot leave
/// the host then.
#[test]
fn both_halves_of_a_split_leave_the_host() {
    for seed in 1..=16 {
        let w = World::new(seed, 3, u64::MAX, None);
        w.now().add_block(Block::new(0, 512, false));
        use_pages(&w, 0, &PageMask::FULL, true);
        let upper = w.now().blocks[0].upper_half(256);
        w.now().add_block(upper);
        let mut others = Vec::new();
        let mut real = Real::new(&w, &mut others, 0);
        real.by_call = true;
        for turn in 0..64 {
            real.chosen = Some(turn % 2);
            spill(&mut real, None, true);
            real.chosen = None;
        }
        let left = |b| w.of(b, |block| block.resident.count());
        assert_eq!((left(0), left(1)), (0, 0), "{seed}");
        assert_eq!(w.now().wrong.take(), None, "{seed}");
    }
}
