// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose read or write of the device begins next, by the arbiter as it is (policy/flash/arbiter.rs). Nobody's patience
//! ends here, no class grows old, and faults leave others no share: whatever needs that to go on waits for ever.

use super::super::super::arbiter::{Turn, DEPTH};
use super::super::super::cause::Cause;
use super::world::World;

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
