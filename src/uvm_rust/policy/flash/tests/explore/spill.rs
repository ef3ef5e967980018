// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The spill as it is (policy/flash/spill.rs), on the machine of the explorer: between any two of its
//! calls the other threads go on, which spill, too, as [`super::threads`] has it.

use super::super::super::arbiter;
use super::super::super::cause::{Cause, Writer};
use super::super::super::pressure::Tried;
use super::super::super::spill::{
    move_out, relocate, spill, work, Copies, Count, Facts, Machine, Outcome, Unmapped,
};
use super::super::super::{BlockPages, Move, Piece, Place, Spill, Table};
use super::asked::Asked;
use super::drain::Draining;
use super::fetch::Fetching;
use super::split::Halves;
use super::threads::give_up_block;
use super::world::{Bytes, To, World};
use super::{Lack, Thread};
use crate::policy::mask::PageMask;
use std::string::ToString;
use std::task::{Context, Poll, Waker};
use std::vec::Vec;

/// Steps of others after which somebody who waits does so for ever.
pub(super) const FOR_EVER: u32 = 30_000;

/// What a worker's turn has come to so far.
#[derive(Default)]
struct Turn {
    /// The device was detached, or somebody suspended the system, before its write could begin.
    gave_up: bool,
    /// Somebody suspends the system, so that the worker was refused.
    is_refused: bool,
    /// There was a write, of which the device took something or nothing.
    wrote: Option<bool>,
    /// Something left the host; and did so as it was written.
    left: bool,
    spilled: bool,
    /// The tier was told, or there is nobody to tell it of.
    hoped: bool,
}

/// What was asked since the block was locked.
#[derive(Default)]
struct Looked {
    found_nothing: bool,
    /// For a spill, and not only for whose turn it is.
    for_spill: bool,
    set_aside: bool,
}

/// A worker, one who writes by call, who splits blocks, or who detaches, with all others.
pub(super) struct Real<'a, 'w> {
    pub(super) w: &'w World,
    pub(super) others: &'a mut Vec<Thread<'w>>,
    /// How many blocks it still looks at.
    looks: u32,
    pub(super) chosen: Option<usize>,
    entered: bool,
    pub(super) locked: bool,
    pub(super) in_space: Option<usize>,
    /// What somebody holds of the block without a mapping, who got it while there was one.
    held: PageMask,
    /// Whether the caller has the VA space's lock.
    by_call: bool,
    pub(super) open: bool,
    turn: Turn,
    looked: Looked,
    /// What is kept to be written.
    kept: Option<PageMask>,
    /// What was encrypted, and not written.
    sealed: Vec<(Place, Vec<Bytes>)>,
    /// What was read to be copied inside the device.
    copied: Vec<Bytes>,
    /// The tier said that this worker ends; and was told at its end.
    stopped: bool,
    hoped_for_all: bool,
    pub(super) halves: Halves,
    pub(super) draining: Draining,
    pub(super) fetching: Fetching,
    pub(super) asked: Asked,
    /// An operation for others has begun.
    pub(super) has_turn: bool,
    /// What left the host, to see that the explorer gets there.
    pub(super) spilled: u64,
    /// What the device forgot.
    pub(super) trimmed: u64,
    /// How often it gave its turn up.
    pub(super) given_up: u32,
    /// What was copied inside the device, in extents, and after how many of them somebody suspends the system.
    pub(super) relocated: u32,
    pub(super) suspended_after: u32,
    /// It lets the device go, so nobody else wants anything of that.
    pub(super) is_last: bool,
}

impl<'a, 'w> Real<'a, 'w> {
    pub(super) fn new(w: &'w World, others: &'a mut Vec<Thread<'w>>, looks: u32) -> Self {
        Self {
            w,
            others,
            looks,
            chosen: None,
            entered: false,
            locked: false,
            in_space: None,
            held: PageMask::EMPTY,
            by_call: false,
            open: false,
            turn: Turn::default(),
            looked: Looked::default(),
            kept: None,
            sealed: Vec::new(),
            copied: Vec::new(),
            stopped: false,
            hoped_for_all: false,
            halves: Halves::default(),
            draining: Draining::default(),
            fetching: Fetching::default(),
            asked: Asked::default(),
            has_turn: false,
            spilled: 0,
            trimmed: 0,
            given_up: 0,
            relocated: 0,
            suspended_after: u32::MAX,
            is_last: false,
        }
    }

    /// One of the others, or the device, goes on.
    fn other(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let parts = self.w.now().io_parts();
        if self.others.is_empty() && parts == 0 {
            return;
        }
        let choice = self.w.below(self.others.len() + parts);
        if choice >= self.others.len() {
            self.w.now().perform(choice - self.others.len());
        } else if self.others[choice].future.as_mut().poll(&mut context) == Poll::Ready(()) {
            drop(self.others.swap_remove(choice));
        }
    }

    /// A point at which others may run.
    pub(super) fn pause(&mut self) {
        for _ in 0..self.w.below(12) {
            self.other();
        }
    }

    /// Waits until `ready` gives something.
    pub(super) fn until<T>(&mut self, mut ready: impl FnMut(&World) -> Option<T>) -> Option<T> {
        self.pause();
        for _ in 0..FOR_EVER {
            if let Some(value) = ready(self.w) {
                return Some(value);
            }
            self.other();
        }
        self.broken("it waits for ever");
        None
    }

    pub(super) fn broken(&mut self, what: &str) {
        self.w.now().blame(what.to_string());
    }

    /// Chooses a block, which nothing locks yet.
    fn look_at(&mut self, b: usize) {
        self.chosen = Some(b);
        self.held = if self.w.chance(8) {
            self.w.some_pages(b)
        } else {
            PageMask::EMPTY
        };
    }

    /// The chosen block, which has to be locked.
    pub(super) fn b(&mut self) -> usize {
        if !self.locked {
            self.broken("S-lock: not locked");
        }
        self.chosen.unwrap_or_default()
    }

    pub(super) fn needs_space(&mut self) {
        if self.in_space.is_none() && !self.by_call {
            self.broken("S-lock: the VA space is not locked");
        }
    }

    pub(super) fn let_go(&mut self) {
        if self.locked || self.in_space.is_some() {
            self.broken("S-lock: it is let go while it is locked");
        }
        self.chosen = None;
    }

    pub(super) fn take_lock(&mut self) {
        let Some(b) = self.chosen.filter(|_| !self.locked) else {
            return self.broken("S-lock: locked twice");
        };
        self.locked = self.until(|w| w.try_lock_block(b).then_some(())).is_some();
        self.looked = Looked::default();
    }

    pub(super) fn let_lock_go(&mut self) {
        let b = self.b();
        self.w.unlock_block(b);
        self.locked = false;
        self.pause();
    }

    pub(super) fn try_lock_space(&mut self) -> bool {
        let waits = self.w.lacks(Lack::SpillOnlyTries);
        self.lock_space(waits)
    }

    /// Takes the lock of the chosen block's VA space, if it can be had at once; or else, with `waits`, later.
    pub(super) fn lock_space(&mut self, waits: bool) -> bool {
        let b = self.b();
        let space = self.w.of(b, |block| block.space);
        let got = if waits {
            self.until(|w| w.try_read_lock(space).then_some(()))
                .is_some()
        } else {
            self.w.try_read_lock(space)
        };
        self.in_space = got.then_some(space);
        got
    }

    pub(super) fn unlock_space(&mut self) {
        if let Some(space) = self.in_space.take() {
            self.w.read_unlock(space);
            self.pause();
            self.w.has_left(space);
        }
    }

    pub(super) fn take_context(&mut self) {
        if self.open {
            self.broken("S-lock: opened twice");
        }
        self.open = !self.w.chance(64);
    }

    /// The block's lock is let go, and taken again.
    fn yield_lock(&mut self) {
        self.let_lock_go();
        self.pause();
        self.take_lock();
        self.looked.for_spill = true;
    }

    /// Waits until an operation may begin for this cause.
    pub(super) fn take_turn(&mut self, cause: Cause) {
        self.take_turn_unless(cause, |_| false);
    }

    /// The same, until `is_over`; whether one began.
    pub(super) fn take_turn_unless(
        &mut self,
        cause: Cause,
        is_over: impl Fn(&World) -> bool,
    ) -> bool {
        if self.locked {
            self.broken("F-turn: a turn is waited for with the block's lock");
        }
        if (self.by_call || self.in_space.is_some()) && !cause.waits_in_space() {
            self.broken("D-lock: a turn is waited for with the VA space's lock");
        }
        let mut turn = arbiter::Turn::new(cause.class());
        let begins = |w: &World| {
            let ends = is_over(w).then_some(false);
            ends.or_else(|| w.arbiter.others_begin(&mut turn, 0).then_some(true))
        };
        self.has_turn = self.until(begins) == Some(true);
        self.w.arbiter.leave(turn);
        self.has_turn
    }

    pub(super) fn end_turn(&mut self) {
        if core::mem::take(&mut self.has_turn) {
            self.w.end_turn();
        }
    }

    /// I/O of one part of a slot.
    pub(super) fn transfer(&mut self, id: u64) -> Vec<Bytes> {
        if self.locked {
            self.broken("S-io: I/O with the block's lock");
        }
        let done = self.until(|w| w.now().take_if_done(id));
        done.unwrap_or_default()
    }

    /// What must be when it is done.
    pub(super) fn check(&mut self) {
        let held = self.locked || self.open || self.entered || self.has_turn;
        if held || self.in_space.is_some() || self.chosen.is_some() || self.kept.is_some() {
            self.broken("S-lock: something is left");
        }
    }
}

impl Copies for Real<'_, '_> {
    fn give_up_oldest(&mut self, of_own: bool) -> Option<u32> {
        if self.locked {
            self.broken("S-lock: two blocks locked");
        }
        let own = self.chosen.map(|b| self.w.of(b, |block| block.space));
        let blocks = self.w.now().blocks.len();
        for b in 0..blocks {
            let space = self.w.of(b, |block| block.space);
            if of_own && own != Some(space) {
                continue;
            }
            self.until(|w| w.try_lock_block(b).then_some(()))?;
            let pages = self.w.of(b, |block| block.state.copies().count());
            let any = give_up_block(self.w, b);
            self.w.unlock_block(b);
            if any {
                return Some(pages.into());
            }
        }
        self.halves.no_copies = true;
        None
    }
}

impl Machine for Real<'_, '_> {
    fn goes_on(&mut self) -> bool {
        self.pause();
        if self.stopped {
            self.broken("a worker goes on that was to end");
        }
        let on = self.looks > 0 && self.w.now().attached;
        self.looks = self.looks.saturating_sub(1);
        on
    }

    fn choose(&mut self) -> bool {
        let blocks = self.w.now().blocks.len();
        self.look_at(self.w.below(blocks));
        true
    }

    fn release(&mut self) {
        self.let_go();
    }

    fn enter(&mut self) -> bool {
        if self.entered {
            self.broken("S-lock: entered twice");
        }
        self.entered = !self.w.now().suspends && !self.w.chance(32);
        // The tier is told of a block that was chosen in vain, and of no relocation.
        self.turn.is_refused = !self.entered && self.chosen.is_some();
        self.entered
    }

    fn leave(&mut self) {
        self.entered = false;
    }

    fn suspends(&mut self) -> bool {
        if !self.by_call {
            self.broken("a worker only tries to enter");
        }
        self.w.now().suspends
    }

    fn ended(&mut self, tried: Tried) -> bool {
        let turn = core::mem::take(&mut self.turn);
        let failed = turn.wrote == Some(false);
        let is_right = match tried {
            Tried::Suspended => turn.is_refused,
            _ if turn.is_refused => false,
            Tried::Failed => failed,
            _ if failed => false,
            Tried::Moved => turn.left && turn.hoped,
            Tried::Nothing => !turn.spilled,
        };
        if !is_right {
            self.broken("the tier is told wrongly how a try ended");
        }
        if self.stopped {
            self.broken("a worker goes on that was to end");
        }
        self.stopped = tried == Tried::Suspended || self.w.chance(64);
        self.stopped
    }

    fn hope_for_all(&mut self) {
        self.hoped_for_all = true;
    }

    fn now_us(&mut self) -> u64 {
        0
    }

    fn rest(&mut self, _began: Option<u64>) {
        self.pause();
    }

    fn workers(&mut self) -> u32 {
        // Relocation as often as there is something to gain.
        u32::MAX
    }

    fn open(&mut self) -> bool {
        self.take_context();
        self.open
    }

    fn close(&mut self) {
        self.open = false;
    }

    fn lock(&mut self) {
        self.take_lock();
    }

    fn unlock(&mut self) {
        let looked = core::mem::take(&mut self.looked);
        if looked.found_nothing && !looked.for_spill && !looked.set_aside {
            self.broken("a block with nothing to spill keeps its turn");
        }
        self.let_lock_go();
    }

    fn try_space(&mut self) -> bool {
        self.try_lock_space()
    }

    fn leave_space(&mut self) {
        self.unlock_space();
    }

    fn is_known(&mut self) -> bool {
        let b = self.b();
        let is_known = self.w.of(b, |block| block.known && !block.dead);
        self.turn.hoped |= !is_known;
        is_known
    }

    fn may_spill(&mut self) -> bool {
        self.b();
        self.looked.for_spill = true;
        self.needs_space();
        !self.w.chance(64)
    }

    fn facts(&mut self) -> Facts {
        let b = self.b();
        let blind = self.w.lacks(Lack::SpillSeesMappings);
        self.looked.found_nothing = self.w.of(b, |block| block.resident.is_empty());
        self.w.of(b, |block| Facts {
            only_host: block.resident,
            mapped: if blind { PageMask::EMPTY } else { block.mapped },
            has_unused: block.resident.is_empty(),
        })
    }

    fn not_held(&mut self, pages: &PageMask) -> PageMask {
        self.b();
        // Who holds a page lets it go without any lock.
        if self.w.chance(4) {
            self.held = PageMask::EMPTY;
        }
        *pages - self.held
    }

    fn use_device(&mut self) -> bool {
        let b = self.b();
        let got = !self.w.chance(64);
        self.w.now().blocks[b].used |= got;
        got
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table, u64) -> T) -> Option<T> {
        let b = self.b();
        self.looked.for_spill = true;
        let s = &mut *self.w.now();
        let block = &mut s.blocks[b];
        (block.used && !block.dead).then(|| f(&mut block.state, &mut s.table, block.space as u64))
    }

    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
        self.pause_unlocked();
        f(&mut self.w.now().table)
    }

    fn unmap(&mut self, pages: &PageMask) -> Unmapped {
        let b = self.b();
        self.needs_space();
        if !self.open {
            self.broken("S-lock: not open");
        }
        // Page tables may have to be allocated.
        if self.w.chance(3) {
            self.yield_lock();
            if !self.w.lacks(Lack::DropLooksAgain) {
                return Unmapped::Again;
            }
        }
        if self.w.chance(64) {
            return Unmapped::Failed;
        }
        // As long as it is mapped somebody may take hold of it.
        if self.w.chance(8) {
            self.held |= if self.w.chance(2) {
                *pages
            } else {
                self.w.some_pages(b)
            };
        }
        self.w.now().blocks[b].unmap(pages);
        Unmapped::All
    }

    fn wait_gpus(&mut self) -> bool {
        let b = self.b();
        if self.w.chance(64) {
            return false;
        }
        if !self.w.lacks(Lack::SpillWaitsForGpus) {
            self.w.now().blocks[b].wait_gpus();
        }
        true
    }

    fn discarded(&mut self, pages: &PageMask) -> PageMask {
        let b = self.b();
        self.w.of(b, |block| block.stale & block.resident & *pages)
    }

    fn dropped(&mut self, pages: &PageMask) {
        let b = self.b();
        self.w.now().blocks[b].stale -= *pages;
    }

    fn left_host(&mut self, pages: &PageMask) -> bool {
        let b = self.b();
        if self.held.intersects(pages) {
            self.broken("what is held leaves the host");
        }
        let mapped = self.w.of(b, |block| block.mapped);
        if mapped.intersects(pages) {
            self.broken("what is mapped leaves the host");
        }
        if self.w.of(b, |block| block.gpu_works) {
            self.broken("host memory goes that a GPU works on");
        }
        self.w.now().blocks[b].left_host(pages);
        let freed = self.w.chance(2);
        self.turn.left |= freed || !pages.is_empty();
        self.turn.spilled |= self.turn.wrote.is_some() && !pages.is_empty();
        freed
    }

    fn hold(&mut self, spill: &Spill) -> bool {
        let b = self.b();
        let (resident, mapped) = self.w.of(b, |block| (block.resident, block.mapped));
        if mapped.intersects(&spill.pages) || self.kept.is_some() {
            self.broken("what is mapped, or not let go, is kept to be written");
        }
        // Of what is discarded while the lock was let go, the block forgets that it spills it.
        let stale = self.w.of(b, |block| block.stale & block.state.spilling());
        if stale.intersects(&spill.pages) {
            self.broken("what was discarded lazily is written");
        }
        let here = spill.pages.is_subset(&resident) && !self.w.chance(64);
        self.kept = here.then_some(spill.pages);
        here
    }

    fn set_aside(&mut self) {
        let b = self.b();
        self.looked.set_aside = true;
        if self.w.of(b, |block| !block.resident.is_empty()) {
            self.broken("a block is set aside that has something to spill");
        }
    }

    fn hope(&mut self) {
        self.b();
        self.turn.hoped = true;
    }

    fn seal(&mut self, piece: &Piece) -> bool {
        let b = self.chosen.unwrap_or_default();
        if !self
            .kept
            .is_some_and(|kept| PageMask::from(piece.pages).is_subset(&kept))
        {
            self.broken("what is written was not kept");
        }
        self.pause();
        if self.w.chance(64) {
            return false;
        }
        let data = self.w.encrypt(b, piece);
        self.w.now().note_sums(piece.place, &data);
        self.sealed.push((piece.place, data));
        true
    }

    fn take_turn(&mut self) -> bool {
        let by = if self.by_call {
            Writer::Call
        } else {
            Writer::Worker
        };
        if self.entered == self.by_call {
            self.broken("who suspends does not wait for whoever waits here");
        }
        let cause = by.cause(|| self.w.chance(2));
        let is_over = |w: &World| by.gives_up(|| w.now().suspends, || !w.now().attached);
        let begun = self.take_turn_unless(cause, is_over);
        self.turn.gave_up |= !begun;
        self.given_up += u32::from(!begun);
        begun
    }

    fn end_turn(&mut self) {
        self.end_turn();
    }

    fn write(&mut self, piece: &Piece) -> bool {
        if !self.has_turn {
            self.broken("a write begins without a turn");
        }
        let Some(at) = self.sealed.iter().position(|(at, _)| *at == piece.place) else {
            self.broken("what is written was not sealed");
            return false;
        };
        let (_, data) = self.sealed.swap_remove(at);
        let id = self.w.now().submit(piece.place, data, None, false);
        self.transfer(id);
        let wrote = !self.w.chance(self.w.fails.get());
        let some = self.turn.wrote.get_or_insert(false);
        *some |= wrote;
        wrote
    }

    fn written(&mut self) {
        // The device is not at fault where its turn did not come.
        if !self.turn.gave_up {
            self.turn.wrote.get_or_insert(false);
        }
        self.sealed.clear();
        self.kept = None;
    }

    fn copy_in(&mut self, to_move: &Move) -> Option<bool> {
        if !self.has_turn {
            self.broken("a copy begins without a turn");
        }
        let nothing = (0..to_move.pages).map(|_| Bytes::default()).collect();
        let bounce = Some(To::Bounce);
        let id = self.w.now().submit(to_move.from, nothing, bounce, false);
        self.copied = self.transfer(id);
        if self.w.is_bad(to_move.from, to_move.pages) || self.w.lapses() {
            return None;
        }
        self.w.garble(to_move.from, &mut self.copied);
        let blind = self.w.lacks(Lack::MoveChecksSums);
        Some(blind || self.w.may_be_copied(to_move.from, &self.copied))
    }

    fn copy_out(&mut self, to_move: &Move) -> bool {
        let data = core::mem::take(&mut self.copied);
        let id = self.w.now().submit(to_move.to, data, None, false);
        self.transfer(id);
        !self.w.chance(self.w.fails.get())
    }

    fn is_sound(&mut self) -> bool {
        !self.w.chance(16)
    }

    fn tell(&mut self, ended: bool) {
        self.w.now().progress += u32::from(ended);
    }

    fn count(&mut self, what: Count, n: u64) {
        match what {
            Count::Spilled => self.spilled += n,
            Count::Relocated if n > 0 => {
                self.relocated += 1;
                self.w.now().suspends |= self.relocated == self.suspended_after;
            }
            _ => {}
        }
    }
}

impl Real<'_, '_> {
    /// The table's mutex may have to be waited for, with any lock.
    fn pause_unlocked(&mut self) {
        if !self.locked {
            self.pause();
        }
    }

    /// Does a worker's turn, with the others in between.
    pub(super) fn work(&mut self) {
        work(self);
        if self.turn.is_refused {
            self.broken("the tier is not told that somebody suspends");
        }
        if !self.hoped_for_all {
            self.broken("blocks that were looked at in vain are not looked at again");
        }
    }

    /// Relocation for a worker, or for a call.
    pub(super) fn relocate(&mut self, by: Writer) {
        self.by_call = by == Writer::Call;
        relocate::relocate(self, by);
        self.by_call = false;
    }

    /// A call that writes some pages of a block: the caller has the VA space's lock in read mode.
    pub(super) fn move_out(&mut self) {
        let blocks = self.w.now().blocks.len();
        let b = self.w.below(blocks);
        let space = self.w.of(b, |block| block.space);
        let got = self.until(|w| w.try_read_lock(space).then_some(()));
        if got.is_none() {
            return;
        }
        let attached = self.w.now().attached;
        if attached && self.w.of(b, |block| block.known && !block.dead) {
            let pages = self.w.some_pages(b);
            self.look_at(b);
            self.by_call = true;
            if self.w.chance(2) {
                move_out(self, &pages);
            } else {
                match (spill(self, Some(&pages), true), self.turn.left) {
                    (Outcome::Moved, false) => {
                        self.broken("nothing has left the host, and is said to have");
                    }
                    (Outcome::Nothing, true) => {
                        self.broken("something has left the host, and nothing is said to have");
                    }
                    _ => {}
                }
            }
            (self.chosen, self.by_call) = (None, false);
            self.turn = Turn::default();
        }
        self.w.read_unlock(space);
    }
}
