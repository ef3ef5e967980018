// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose read or write of the device begins next, by the arbiter as it is (policy/flash/arbiter.rs). Nobody's patience
//! ends here, no class grows old, and faults leave others no share: whatever needs that to go on waits for ever.

use super::super::super::arbiter::{Turn, DEPTH};
use super::super::super::cause::{Cause, Writer};
use super::super::super::Place;
use super::spill::Real;
use super::world::{Block, State, World};
use super::Thread;
use crate::policy::mask::{PageMask, Region};
use std::boxed::Box;
use std::vec;

impl World {
    /// Begins an operation for others, if that may be now. Whoever may not does not wait for it.
    fn try_turn(&self) -> bool {
        let mut turn = Turn::default();
        let begun = self.arbiter.others_begin(&mut turn, 0);
        self.arbiter.leave(turn);
        begun
    }

    /// Why a worker's write begins. There is want of host memory now and then.
    pub(super) fn spill_cause(&self) -> Cause {
        let is_short = self.chance(2);
        Cause::Spill { is_short }
    }

    /// Waits until an operation may begin for this cause.
    pub(super) async fn take_turn(&self, cause: Cause) {
        let mut turn = Turn::new(cause.class());
        self.until(|_| self.arbiter.others_begin(&mut turn, 0).then_some(()))
            .await;
    }

    /// The operation has ended.
    pub(super) fn end_turn(&self) {
        self.arbiter.others_end();
    }

    /// Faults wait for pages of the block, unless those are being read.
    pub(super) fn fault_waits(&self, b: usize) {
        let block = &mut self.now().blocks[b];
        if block.waits.is_some() || !block.wants.has_to_begin(&block.state) {
            return;
        }
        block.waits = Some(self.arbiter.wait(0));
    }

    /// A read of the block's pages begins, which faults may wait for.
    pub(super) fn fault_begins(&self, b: usize) {
        let block = &mut self.now().blocks[b];
        let begins = !block.wants.has_to_begin(&block.state);
        if let Some(waits) = block.waits.take_if(|_| begins) {
            self.arbiter.begin(waits, 0);
        }
    }

    /// The block is dead, or it was tried to read those pages.
    pub(super) fn fault_gives_up(&self, b: usize) {
        let waits = self.now().blocks[b].waits.take();
        waits
            .into_iter()
            .for_each(|waits| self.arbiter.give_up(waits));
    }

    /// When nothing goes on, the arbiter knows of nothing; and no fault was behind more than it lets begin.
    pub(super) fn check_turns(&self) {
        if !(0..DEPTH).all(|_| self.try_turn()) || self.try_turn() {
            self.now()
                .blame("a turn is left, or a fault that waits".into());
        }
        if self.arbiter.most_ahead() > DEPTH {
            self.now()
                .blame("D-first: others began before a fault's".into());
        }
    }
}

/// What somebody does whose turn never comes, while something happens, and how often it gave up. Nobody is to find that it
/// waits for ever.
fn while_it_waits(seed: u64, happens: fn(&mut State), does: impl FnOnce(&mut Real<'_, '_>)) -> u32 {
    let w = World::new(seed, 3, u64::MAX, None);
    w.now().add_block(Block::new(0, 512, false));
    w.now().blocks[0].resident = PageMask::FULL;
    // Two operations that do not end.
    assert!((0..DEPTH).all(|_| w.try_turn()));
    let then = async {
        for _ in 0..100 {
            w.pause().await;
        }
        happens(&mut w.now());
    };
    let future = Box::pin(then);
    let mut others = vec![Thread {
        future,
        slow: false,
    }];
    let mut real = Real::new(&w, &mut others, 4);
    does(&mut real);
    real.check();
    let (given_up, spilled) = (real.given_up, real.spilled);
    assert_eq!((w.now().wrong.take(), spilled), (None, 0), "seed {seed}");
    given_up
}

/// Who detaches waits for the workers, and nobody wants what they have not begun to write.
#[test]
fn a_worker_whose_device_leaves_gives_its_turn_up() {
    let given_up: u32 = (0..20)
        .map(|seed| while_it_waits(seed, |s| s.attached = false, |real| real.work()))
        .sum();
    assert!(given_up > 5, "{given_up}");
}

/// Who suspends waits for the worker as well, which goes on later.
#[test]
fn a_worker_gives_its_turn_up_for_who_suspends() {
    let given_up: u32 = (0..20)
        .map(|seed| while_it_waits(seed, |s| s.suspends = true, |real| real.work()))
        .sum();
    assert!(given_up > 5, "{given_up}");
}

/// Puts pages of two blocks on the device that lie apart, so that relocation has as many extents to move of each. Returns
/// where the first of them is.
fn put_pieces(w: &World, pieces: u16) -> Place {
    let s = &mut *w.now();
    s.blocks.clear();
    let tenant = s.table.tenant(1).unwrap();
    for b in 0..2 {
        s.add_block(Block::new(0, 512, false));
        let state = &mut s.blocks[b].state;
        let spill = state.begin_spill(&mut s.table, tenant, &PageMask::FULL);
        state.end_spill(&mut s.table, spill.unwrap(), &PageMask::FULL);
        let kept = |page: &u16| page % 2 == 0 && *page < 2 * pieces;
        for page in (0..512).filter(|page| !kept(page)) {
            state.forget(&mut s.table, &Region::new(page, page + 1).into());
        }
    }
    let first = s.table.relocate_begin().unwrap();
    let from = first.from;
    s.table.relocate_give_up(first);
    from
}

/// How many extents are relocated where somebody suspends the system after so many.
fn relocated(seed: u64, by: Writer, suspended_after: u32) -> u32 {
    // Without sums, as nothing was written.
    let w = World::new(2 * seed + 1, 4, u64::MAX, None);
    put_pieces(&w, 40);
    let mut others = vec![];
    let mut real = Real::new(&w, &mut others, 4);
    real.suspended_after = suspended_after;
    w.now().suspends = suspended_after == 0;
    real.relocate(by);
    real.check();
    let relocated = real.relocated;
    let s = &mut *w.now();
    assert_eq!((s.wrong.take(), s.table.is_busy()), (None, false));
    relocated
}

#[test]
fn who_suspends_waits_for_one_relocation_at_most() {
    let most = |by, after| (0..20).map(|seed| relocated(seed, by, after)).max();
    for by in [Writer::Worker, Writer::Call] {
        assert_eq!(most(by, u32::MAX), Some(16), "{by:?}");
        assert_eq!(most(by, 3), Some(3), "{by:?}");
    }
    assert_eq!(most(Writer::Worker, 0), Some(0));
    assert_eq!(most(Writer::Call, 0), Some(1));
}

#[test]
fn a_worker_relocates_after_each_block() {
    let moved = (0..10).map(|seed| {
        let w = World::new(2 * seed + 1, 4, u64::MAX, None);
        put_pieces(&w, 40);
        let mut others = vec![];
        let mut real = Real::new(&w, &mut others, 2);
        real.work();
        real.check();
        assert_eq!(w.now().wrong.take(), None, "seed {seed}");
        real.relocated
    });
    // There is a reason to relocate after a block of which nothing is written, too.
    assert!(moved.max() > Some(16));
}

/// It waits for its turn, and its slot is not at fault.
#[test]
fn a_relocation_is_given_up_for_who_suspends() {
    let mut given_up = 0;
    for seed in 0..20 {
        let relocates = |real: &mut Real<'_, '_>| {
            let first = put_pieces(real.w, 40);
            real.relocate(Writer::Worker);
            let s = &mut *real.w.now();
            let next = s.table.relocate_begin().unwrap();
            assert_eq!(next.from, first, "seed {seed}");
            s.table.relocate_give_up(next);
        };
        given_up += while_it_waits(seed, |s| s.suspends = true, relocates);
    }
    assert!(given_up > 15, "{given_up}");
}
