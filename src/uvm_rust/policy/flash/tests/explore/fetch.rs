// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The fetch as it is (policy/flash/fetch.rs), on the machine of the explorer, for who detaches: between any
//! two of its calls the other threads go on.

use super::super::super::cause::Cause;
use super::super::super::fetch::{Did, Machine, NeedsTurn};
use super::super::super::pool::{self, Line, Pool, Who};
use super::super::super::{BlockPages, Piece, Table};
use super::spill::{Real, FOR_EVER};
use super::world::{Buffers, Bytes, To};
use crate::policy::mask::PageMask;
use std::vec::Vec;

/// Whom a fetch is for.
#[derive(Clone, Copy, Default)]
pub(super) enum Whom {
    #[default]
    Others,
    /// Who reads what was asked for, for calls, and for faults.
    Reader,
    Fetcher,
}

impl Whom {
    pub(super) fn who(self) -> Who {
        match self {
            Self::Fetcher => Who::Fault,
            Self::Others | Self::Reader => Who::Others,
        }
    }
}

/// The pool, as the thread that is as it is sees it.
struct InLine<'r, 'a, 'w>(&'r mut Real<'a, 'w>);

impl Line for InLine<'_, '_, '_> {
    type Set = Buffers;

    fn with<T>(&mut self, f: impl FnOnce(&mut Pool<Buffers>) -> T) -> T {
        self.0.pause();
        f(&mut self.0.w.now().pool)
    }

    fn progress(&mut self) -> u32 {
        self.0.pause();
        self.0.w.now().progress
    }

    fn wait(&mut self, progress: u32) {
        let told = self
            .0
            .until(|w| (w.now().progress != progress).then_some(()));
        assert!(told.is_some(), "a set is waited for for ever");
    }

    fn nap(&mut self, _: u32) {
        self.0.pause();
    }

    fn tell(&mut self) {
        self.0.w.now().progress += 1;
    }
}

impl Real<'_, '_> {
    /// Waits for a set before it locks anything, as a fetcher, or as a reader that has its turn. The reader is told to
    /// stop where its tenant ends, and has no turn then either.
    pub(super) fn take_set(&mut self, who: Who) {
        if who == Who::Fault {
            self.fetching.set = Some((who, pool::take(&mut InLine(self), who)));
            return;
        }
        let mut naps = FOR_EVER;
        let set = pool::take_unless(&mut InLine(self), who, |line| {
            naps -= 1;
            if naps == 0 {
                line.0.broken("a set is waited for for ever");
            }
            naps == 0 || line.0.w.chance(64)
        });
        self.fetching.set = set.map(|set| (who, set));
        if self.fetching.set.is_none() {
            self.end_turn();
        }
    }

    /// For whom it has a set, which is not used yet.
    pub(super) fn has_set_for(&self) -> Option<Who> {
        self.fetching.set.as_ref().map(|(who, _)| *who)
    }

    /// Gives the set back, if there is one.
    pub(super) fn give_set(&mut self) {
        if let Some((who, set)) = self.fetching.set.take() {
            pool::give_back(&mut InLine(self), who, set);
        }
    }
}

/// A fetch under way.
#[derive(Default)]
pub(super) struct Fetching {
    /// Of the pool, between `open` and `close`.
    set: Option<(Who, Buffers)>,
    /// What host memory is kept.
    kept: PageMask,
    /// What was read of each page, and not decrypted.
    bytes: Vec<(u16, Bytes)>,
    pub(super) whom: Whom,
    /// A read has ended, and nobody was told.
    untold: bool,
}

impl Machine for Real<'_, '_> {
    type Error = ();

    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table) -> T) -> Option<T> {
        let b = self.b();
        let s = &mut *self.w.now();
        let block = &mut s.blocks[b];
        (block.used && !block.dead).then(|| f(&mut block.state, &mut s.table))
    }

    fn populate(&mut self, _pages: &PageMask) -> Result<(), ()> {
        self.b();
        self.needs_space();
        (!self.w.chance(64)).then_some(()).ok_or(())
    }

    fn try_open(&mut self) -> bool {
        self.b();
        let who = self.fetching.whom.who();
        if self.fetching.set.is_none() {
            let set = self.w.now().pool.try_take(who);
            self.fetching.set = set.map(|set| (who, set));
        }
        self.fetching.set.is_some()
    }

    fn open(&mut self) {
        if self.locked {
            self.broken("F-set: a set is waited for with the block's lock");
        }
        if matches!(self.fetching.whom, Whom::Reader | Whom::Fetcher) {
            self.broken("A-turn: a set is waited for with the VA space's lock");
        }
        let who = self.fetching.whom.who();
        self.fetching.set = Some((who, pool::take(&mut InLine(self), who)));
    }

    fn close(&mut self) {
        if self.fetching.untold {
            self.broken("a read has ended, and those are not told who wait");
        }
        self.give_set();
        self.fetching = Fetching::default();
    }

    fn hold(&mut self, pages: &PageMask) -> bool {
        self.b();
        if self.fetching.set.is_none() {
            self.broken("F-lock: not open");
        }
        self.fetching.untold = true;
        let held = !self.w.chance(64);
        self.fetching.kept = if held { *pages } else { PageMask::EMPTY };
        held
    }

    fn unchanged(&mut self, pages: &PageMask) -> PageMask {
        self.b();
        *pages
    }

    fn overwritten(&mut self, pages: &PageMask) {
        self.b();
        if !pages.is_subset(&self.fetching.kept) {
            self.broken("F-bytes: what was not read into");
        }
    }

    fn keeps_copies(&mut self) -> bool {
        let b = self.b();
        self.w.of(b, |block| block.read_mostly) && self.w.now().attached
    }

    fn arrived(&mut self, pages: &PageMask) {
        let b = self.b();
        let block = &mut self.w.now().blocks[b];
        block.resident |= *pages;
        block.wants.arrived(pages);
    }

    fn lost(&mut self, pages: &PageMask) {
        let b = self.b();
        if !self.w.of(b, |block| pages.is_subset(&block.state.kept())) {
            self.broken("a page is lost");
        }
    }

    fn now_us(&mut self) -> u64 {
        self.w.now_us()
    }

    fn unlock(&mut self) {
        self.let_lock_go();
    }

    fn lock(&mut self) {
        self.take_lock();
    }

    fn needs_turn(&mut self) -> NeedsTurn {
        self.b();
        match self.fetching.whom {
            _ if self.has_turn => NeedsTurn::No,
            Whom::Others => NeedsTurn::Here,
            Whom::Reader => NeedsTurn::Elsewhere,
            Whom::Fetcher => NeedsTurn::OnlySet,
        }
    }

    fn begins(&mut self, _pages: &PageMask) {
        let b = self.b();
        self.w.fault_begins(b);
    }

    fn take_turn(&mut self) {
        self.take_turn(Cause::Read);
    }

    fn end_turn(&mut self) {
        self.end_turn();
    }

    fn progress(&mut self) -> u32 {
        self.w.now().progress
    }

    fn wait(&mut self, progress: u32) {
        if self.locked {
            self.broken("F-lock: it waits with the lock");
        }
        self.until(|w| (w.now().progress != progress).then_some(()));
    }

    fn read(&mut self, piece: &Piece) -> Did {
        if !PageMask::from(piece.pages).is_subset(&self.fetching.kept) {
            self.broken("F-memory: what is read into is not kept");
        }
        if self.w.chance(self.w.fails.get()) {
            return Did::NotNow;
        }
        if self.w.lapses() {
            return Did::Failed;
        }
        let b = self.chosen.unwrap_or_default();
        let to = Some(To::Memory(b, piece.pages.first()));
        let nothing = (0..piece.pages.pages()).map(|_| Bytes::default()).collect();
        let id = self.w.now().submit(piece.place, nothing, to, false);
        let mut bytes = self.transfer(id);
        self.w.garble(piece.place, &mut bytes);
        let pages = piece.pages.first()..;
        self.fetching.bytes.extend(pages.zip(bytes));
        Did::All
    }

    fn decrypt(&mut self, piece: &Piece) -> (PageMask, PageMask) {
        let none = PageMask::EMPTY;
        self.pause();
        if self.has_turn {
            self.broken("F-turn: the device is done, and not let go");
        }
        let here = piece.pages.first()..piece.pages.outer();
        let read = self.fetching.bytes.iter();
        let bytes: Vec<_> = read.filter(|(page, _)| here.contains(page)).collect();
        let bytes: Vec<_> = bytes.into_iter().map(|(_, bytes)| *bytes).collect();
        if self.w.chance(self.w.unsure.get()) {
            return (none, none);
        }
        let pages = PageMask::from(piece.pages);
        if !self.w.sums_match(piece, &bytes) {
            return (none, pages);
        }
        let b = self.chosen.unwrap_or_default();
        let block = &mut self.w.now().blocks[b];
        let memory = block.memory[usize::from(piece.pages.first())..].iter_mut();
        for (memory, bytes) in memory.zip(&bytes) {
            *memory = bytes.value;
        }
        (pages, none)
    }

    fn count_errors(&mut self, _n: u32) {}

    fn tell(&mut self) {
        self.fetching.untold = false;
        self.w.now().progress += 1;
    }
}
