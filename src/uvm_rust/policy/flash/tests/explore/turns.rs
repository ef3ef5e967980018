// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose read or write of the device begins next, by the arbiter as it is (policy/flash/arbiter.rs). Nobody's patience
//! ends here, no class grows old, and faults leave others no share: whatever needs that to go on waits for ever.

use super::super::super::arbiter::{Turn, DEPTH};
use super::super::super::cause::Cause;
use super::spill::Real;
use super::world::{Block, World};
use super::Thread;
use crate::policy::mask::PageMask;
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

/// What somebody does whose turn never comes, while a device is being let go, and how often it gave up. Nobody is to find
/// that it waits for ever.
fn while_it_leaves(seed: u64, does: impl FnOnce(&mut Real<'_, '_>)) -> u32 {
    let w = World::new(seed, 3, u64::MAX, None);
    w.now().add_block(Block::new(0, 512, false));
    w.now().blocks[0].resident = PageMask::FULL;
    // Two operations that do not end.
    assert!((0..DEPTH).all(|_| w.try_turn()));
    let leaves = async {
        for _ in 0..100 {
            w.pause().await;
        }
        w.now().attached = false;
    };
    let future = Box::pin(leaves);
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
        .map(|seed| while_it_leaves(seed, |real| real.work()))
        .sum();
    assert!(given_up > 5, "{given_up}");
}
