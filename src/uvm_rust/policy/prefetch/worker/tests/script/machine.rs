// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The machine of the scripts: it does what a test says, and writes down what it was asked.

use super::super::*;
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec::Vec;

/// A call of the machine, with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    WaitFaults,
    Enter,
    Leave,
    /// The UM block that the worker looked at next.
    NextBlock(u32),
    Victim,
    Lock(To),
    Unlock,
    Migrate {
        copy: u32,
        pages: u16,
        to: To,
    },
    /// So many pages of the block leave, of which some are discarded.
    Drop(u16),
    /// So many pages of the block are to come from the SSD.
    Fetch(u16),
    Settle(u32),
    Brought(Outcome, u32),
    PushedOut(u32),
}
use Did::*;

/// A moment of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Waiting,
    Locking(To),
    Moving(To),
}

/// What happens at a moment.
pub(super) type Event = Box<dyn FnOnce(&mut Script)>;

/// The process, and another.
pub(super) const OURS: Holder = 7;
pub(super) const THEIRS: Holder = 8;

/// Pages 0 to `n` - 1.
pub(super) fn pages(n: u16) -> PageMask {
    Region::new(0, n).into()
}

pub(super) struct Script {
    pub(super) did: Vec<Did>,
    pub(super) correlator: Correlator,
    pub(super) feed: Feed,
    pub(super) share: Share,
    pub(super) roots: Option<RootChunks>,
    pub(super) generation: u32,
    /// Root chunks that nobody has.
    pub(super) free: u32,
    /// The process is at its maximum.
    pub(super) full: bool,
    pub(super) stopping: bool,
    /// What each look at the fault service, and each wait for it, finds; that it is idle, when
    /// this is used up.
    pub(super) faults: VecDeque<bool>,
    pub(super) waits: VecDeque<bool>,
    /// Whether each attempt to take the locks succeeds; it does when this is used up.
    pub(super) enters: VecDeque<bool>,
    /// What each look for a va_block finds; a whole UM block that may move, when this is used
    /// up.
    pub(super) found: VecDeque<Option<Found>>,
    /// What each look at a victim finds; one that may move, when this is used up.
    pub(super) victims: VecDeque<Option<Hindrances>>,
    /// What each look at pages finds; four pages that are elsewhere, or if the block goes to
    /// the host, that are there, when this is used up.
    pub(super) pages: VecDeque<Pages>,
    pub(super) migrates: VecDeque<Migrated>,
    pub(super) drops: VecDeque<Migrated>,
    /// What each look at the SSD finds; nothing, when this is used up.
    pub(super) stored: VecDeque<Stored>,
    /// Whether somebody reads what is asked for, each time; somebody does, when this is used up.
    pub(super) fetches: VecDeque<bool>,
    pub(super) settles: VecDeque<bool>,
    /// Copies take their time, and after how many further ones each was waited for.
    pub(super) slow: bool,
    pub(super) waited: Vec<u32>,
    /// How often the worker asked to be told of reads.
    pub(super) hears: usize,
    /// The chunk that the block turns out to be in.
    pub(super) chunk: Option<Chunk>,
    /// What happens the next time that the worker waits for faults, or locks or moves a block.
    pub(super) event: Option<(When, Event)>,
    pub(super) to: To,
    pub(super) broken: Vec<&'static str>,
    pub(super) tables: u32,
}

impl Script {
    /// Of a process that has run kernels 1 to 3 three times, each of which faults on two
    /// blocks, 10 and 11 to 30 and 31; now kernel 1 runs. There are four chunks, all free.
    pub(super) fn trained() -> Self {
        let mut script = Self {
            did: Vec::new(),
            correlator: correlator(),
            feed: Feed::new(64, 1024).unwrap(),
            share: Share::new(1 << 20),
            roots: Some(RootChunks::new(64).unwrap()),
            generation: 1,
            free: 4,
            full: false,
            stopping: false,
            faults: VecDeque::new(),
            waits: VecDeque::new(),
            enters: VecDeque::new(),
            found: VecDeque::new(),
            victims: VecDeque::new(),
            pages: VecDeque::new(),
            migrates: VecDeque::new(),
            drops: VecDeque::new(),
            stored: VecDeque::new(),
            fetches: VecDeque::new(),
            settles: VecDeque::new(),
            slow: false,
            waited: Vec::new(),
            hears: 0,
            chunk: None,
            event: None,
            to: To::Gpu,
            broken: Vec::new(),
            tables: 0,
        };
        for _ in 0..3 {
            for id in 1..4 {
                script.kernel(id, true);
            }
        }
        script.kernel(1, false);
        script
    }

    /// Kernel `id` is announced, and faults on its blocks.
    pub(super) fn kernel(&mut self, id: u32, faults: bool) {
        self.feed.announce(ExecId(id.into()));
        for block in (0..2).filter(|_| faults) {
            self.feed.fault(UmBlock(10 * id + block));
        }
    }

    /// Kernel `id` is announced, as its process does so with this worker.
    pub(super) fn begin(&mut self, w: &Worker, id: u32) {
        let roots = self.roots.as_mut().unwrap();
        w.begins(roots, self.generation, OURS);
        self.kernel(id, false);
    }

    pub(super) fn at(&mut self, when: When) {
        if let Some((_, event)) = self.event.take_if(|(at, _)| *at == when) {
            event(self);
        }
    }

    /// Used chunks of the process, the oldest first.
    pub(super) fn used(&mut self, chunks: u32, holder: Holder) {
        let roots = self.roots.as_mut().unwrap();
        for chunk in 0..chunks {
            roots.used_by(chunk, holder).unwrap();
            roots.insert(chunk, holder).unwrap();
        }
    }

    pub(super) fn count(&self, like: impl Fn(&Did) -> bool) -> usize {
        self.did.iter().filter(|did| like(did)).count()
    }

    /// The UM blocks that were looked for, in order; one that was looked for again after a wait only once.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let (mut blocks, mut waited): (Vec<u32>, _) = (Vec::new(), false);
        for did in &self.did {
            waited |= *did == WaitFaults;
            let NextBlock(n) = *did else { continue };
            if !core::mem::take(&mut waited) || blocks.last() != Some(&n) {
                blocks.push(n);
            }
        }
        blocks
    }
}

impl Machine for Script {
    const CHECKS: bool = true;

    fn broken(&mut self, invariant: &'static str) {
        self.broken.push(invariant);
    }

    fn tables<R>(&mut self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R {
        self.tables += 1;
        assert!(self.tables < 1000, "the turn does not end");
        look(&mut self.correlator, &self.feed, &self.share)
    }

    fn is_stopping(&mut self) -> bool {
        self.stopping
    }

    fn faults(&mut self) -> bool {
        self.faults.pop_front().unwrap_or(false)
    }

    fn wait_faults(&mut self) -> bool {
        self.did.push(WaitFaults);
        self.at(When::Waiting);
        self.waits.pop_front().unwrap_or(true)
    }

    fn enter(&mut self) -> bool {
        let enters = self.enters.pop_front().unwrap_or(true);
        if enters {
            self.did.push(Enter);
        }
        enters
    }

    fn leave(&mut self) {
        self.did.push(Leave);
    }

    fn holder(&self) -> Holder {
        OURS
    }

    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
        let generation = self.generation;
        self.roots.as_mut().map(|roots| look(roots, generation))
    }

    fn is_full(&mut self) -> bool {
        self.full
    }

    fn free_chunks(&mut self, enough: u32) -> u32 {
        self.free.min(enough)
    }

    fn pick(&mut self, choose: impl FnOnce(&RootChunks) -> Option<Chunk>) -> Option<Chunk> {
        self.roots.as_ref().and_then(choose)
    }

    fn victim(&mut self) -> Option<Hindrances> {
        self.did.push(Victim);
        let movable = Some(Hindrances::default());
        self.victims.pop_front().unwrap_or(movable)
    }

    fn next_block(&mut self, from: u64, last: u64) -> Option<Found> {
        self.did.push(NextBlock((from / UmBlock::SIZE) as u32));
        let whole = Found {
            hindrances: Hindrances::default(),
            next: last + 1,
        };
        self.found.pop_front().unwrap_or(Some(whole))
    }

    fn lock(&mut self, to: To) {
        self.at(When::Locking(to));
        self.to = to;
        self.did.push(Lock(to));
    }

    fn unlock(&mut self) {
        self.did.push(Unlock);
    }

    fn pages(&mut self) -> Pages {
        let there = match self.to {
            To::Gpu => PageMask::EMPTY,
            To::Host => pages(4),
        };
        let four = Pages {
            populated: pages(4),
            there,
            ..Pages::default()
        };
        self.pages.pop_front().unwrap_or(four)
    }

    fn stored(&mut self) -> Stored {
        self.stored.pop_front().unwrap_or_default()
    }

    fn fetch(&mut self, pages: &PageMask) -> bool {
        self.did.push(Fetch(pages.count()));
        self.fetches.pop_front().unwrap_or(true)
    }

    fn tell_of_reads(&mut self) {
        assert_eq!(self.did.last(), Some(&Lock(To::Gpu)));
        self.hears += 1;
    }

    fn chunk(&mut self) -> Option<Chunk> {
        self.chunk
    }

    fn drop_discarded(&mut self, leaving: &PageMask) -> Migrated {
        self.did.push(Drop(leaving.count()));
        self.drops.pop_front().unwrap_or(Migrated::Begun)
    }

    fn migrate(&mut self, copy: u32, pages: &PageMask, to: To) -> Migrated {
        self.did.push(Migrate {
            copy,
            pages: pages.count(),
            to,
        });
        self.at(When::Moving(to));
        let migrated = self.migrates.pop_front();
        match (to, &mut self.roots) {
            (To::Host, Some(roots)) => {
                // Its oldest is what was chosen.
                if let Some(chunk) = roots.pick_early(OURS) {
                    roots.set(chunk, Queue::Unused).unwrap();
                }
            }
            (To::Gpu, Some(roots)) => {
                if let Some(chunk) = self.chunk {
                    roots.used_by(chunk, OURS).unwrap();
                }
            }
            (_, None) => {}
        }
        migrated.unwrap_or(Migrated::Begun)
    }

    fn settle(&mut self, copy: u32) -> Settled {
        self.did.push(Settle(copy));
        Settled {
            good: self.settles.pop_front().unwrap_or(true),
            waited: self.slow,
        }
    }

    fn waited(&mut self, beside: u32) {
        self.waited.push(beside);
    }

    fn brought(&mut self, outcome: Outcome, pages: u32) {
        self.did.push(Brought(outcome, pages));
    }

    fn pushed_out(&mut self, pages: u32) {
        self.did.push(PushedOut(pages));
    }
}
