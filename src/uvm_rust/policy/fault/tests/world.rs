// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A GPU with its ring and page tables, as plainly as it can be said, and upstream's
//! rules for what a fault leads to.

use super::super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

pub const BLOCK: u64 = 2 << 20;

/// What a page may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Missing,
    ReadOnly,
    ReadWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Stalled,
    Done,
    Cancelled,
}

/// An access, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warp {
    pub fault: Record,
    pub state: State,
}

#[derive(Clone, Debug)]
pub struct World {
    pub warps: Vec<Warp>,
    /// By instance pointer: `None` for a channel that is gone.
    pub channels: Vec<Translated>,
    /// By VA space: whether the GPU is registered in it.
    pub registered: Vec<bool>,
    /// By VA space and page address.
    pub pages: BTreeMap<(u64, u64), Page>,
    /// Pages that the GPU may read; those that it may write.
    pub readable: BTreeSet<(u64, u64)>,
    pub writable: BTreeSet<(u64, u64)>,
    /// The ring: entries, and how often each has yet to be looked at before it is valid.
    ring: Vec<Option<(Record, u32)>>,
    get: u32,
    put: u32,
    cached_put: u32,
    cache: BTreeMap<u32, Record>,
    order: Vec<Record>,
    fatal: Vec<Option<bool>>,
    held: Option<(u64, bool)>,
    /// F-stale: the ring was flushed after waiting, and the replays awaited, under
    /// the lock that is held.
    fresh: (bool, bool),
    outcome: Outcome,
    pub replays: u32,
    pub flushes: u32,
    pub serviced: u32,
    /// The entries that these stand for, and of those the duplicates; and what was told of both.
    pub looked_at: (u64, u64),
    pub counted: (u64, u64),
    /// Of the duplicates, those on pages that were mapped already.
    pub mapped: u32,
    /// Whether the last call of `service` found something to do; how many did, and how many misses were told.
    finds: bool,
    pub found: u32,
    pub missed: u32,
    /// How many calls of `service` until one says `Again`, fails.
    pub again_in: Option<u32>,
    pub fails_in: Option<u32>,
    /// Whether that is the VA space's alone, and which one it was.
    pub is_own: bool,
    pub refused: Option<u64>,
    /// Of so many calls of `enter`, one finds the locks taken; 0: none does.
    pub contended: u64,
    pub busy: u32,
    /// Entries are valid at once.
    pub prompt: bool,
    /// The clock, and how many microseconds the thread and the copies of a va_block take, by VA space; 0 where there is none.
    pub now_us: u64,
    pub takes_us: Vec<(u64, u64)>,
    /// When the copies are done that were not waited for.
    copied_us: u64,
    /// The VA spaces of the va_blocks in the order of their service, with the number of their batch and when they were done.
    pub blocks: Vec<(u64, u32, u64)>,
    pub batches: u32,
    /// A VA space whose next fault comes once so many va_blocks of others were serviced after its last one, and how many
    /// faults are to come; and of each that came, how many va_blocks had been serviced, and when.
    pub comes: Option<(u64, u64, usize)>,
    pub came: Vec<(usize, u64)>,
    /// Calls that a loop without an end would repeat.
    calls: u32,
    random: u64,
}

impl World {
    pub fn new(ring: u32, seed: u64) -> Self {
        Self {
            warps: Vec::new(),
            channels: Vec::new(),
            registered: Vec::new(),
            pages: BTreeMap::new(),
            readable: BTreeSet::new(),
            writable: BTreeSet::new(),
            ring: vec![None; ring as usize],
            get: 0,
            put: 0,
            cached_put: 0,
            cache: BTreeMap::new(),
            order: Vec::new(),
            fatal: Vec::new(),
            held: None,
            fresh: (false, false),
            outcome: Outcome::default(),
            replays: 0,
            flushes: 0,
            serviced: 0,
            looked_at: (0, 0),
            counted: (0, 0),
            mapped: 0,
            finds: false,
            found: 0,
            missed: 0,
            again_in: None,
            fails_in: None,
            is_own: false,
            refused: None,
            contended: 0,
            busy: 0,
            prompt: false,
            now_us: 0,
            takes_us: Vec::new(),
            copied_us: 0,
            blocks: Vec::new(),
            batches: 0,
            comes: None,
            came: Vec::new(),
            calls: 0,
            random: seed | 1,
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// A loop that does not end fails here, instead of keeping the tests running.
    fn called(&mut self) {
        self.calls += 1;
        assert!(self.calls < 1_000_000, "the loop does not end");
    }

    pub fn pending(&self) -> bool {
        self.get != self.put
    }

    pub fn stalled(&self) -> bool {
        self.warps.iter().any(|w| w.state == State::Stalled)
    }

    /// All stalled accesses try again; what finds no page becomes an entry, while
    /// there is room.
    pub fn issue(&mut self) {
        for i in 0..self.warps.len() {
            self.issue_one(i);
        }
    }

    /// The newest access is tried for the first time.
    pub fn issue_last(&mut self) {
        self.issue_one(self.warps.len() - 1);
    }

    fn issue_one(&mut self, i: usize) {
        let Warp { fault, state } = self.warps[i];
        if state != State::Stalled {
            return;
        }
        let channel = self.channels[fault.who as usize];
        if let Translated::Space(space) = channel {
            let key = (space, fault.address);
            let allowed = if fault.access <= Access::Read as u8 {
                self.readable.contains(&key)
            } else {
                self.writable.contains(&key)
            };
            if allowed {
                self.warps[i].state = State::Done;
                return;
            }
            if !self.registered[space as usize] {
                // Its channel was preempted; the entry below is all that is left.
                self.warps[i].state = State::Cancelled;
            }
        }
        if channel == Translated::Stale {
            self.warps[i].state = State::Cancelled;
        }
        let next = (self.put + 1) % self.ring.len() as u32;
        if next == self.get {
            return;
        }
        if fault.access == Access::Prefetch as u8 {
            self.warps[i].state = State::Done;
        }
        let delay = if self.prompt {
            0
        } else {
            (self.random() % 4) as u32
        };
        assert!(
            self.ring[self.put as usize].is_none(),
            "an entry was not consumed"
        );
        self.ring[self.put as usize] = Some((fault, delay));
        self.put = next;
    }

    /// The next fault of the VA space whose faults come one at a time.
    fn another_comes(&mut self) {
        let Some((space, left, after)) = self.comes.filter(|comes| comes.1 > 0) else {
            return;
        };
        let stalls = |w: &Warp| w.fault.who == space && w.state == State::Stalled;
        let own = self.blocks.iter().rposition(|block| block.0 == space);
        let others = self.blocks.len() - own.map_or(0, |own| own + 1);
        if others < after || self.warps.iter().any(stalls) {
            return;
        }
        let address = left * BLOCK;
        self.pages.insert((space, address), Page::ReadWrite);
        let fault = Record {
            address,
            ..super::record(0, space, 0, Access::Write as u8, 0)
        };
        let state = State::Stalled;
        self.warps.push(Warp { fault, state });
        self.came.push((self.blocks.len(), self.now_us));
        self.comes = Some((space, left - 1, after));
        self.issue_last();
    }

    fn valid(&mut self, at: u32) -> bool {
        match &mut self.ring[at as usize] {
            Some((_, 0)) => true,
            Some((_, n)) => {
                *n -= 1;
                false
            }
            None => panic!("waiting for an entry that will not come"),
        }
    }

    /// Marks a fault fatal; `all`: not only its writes.
    fn mark(&mut self, at: usize, all: bool) {
        self.finds = true;
        self.fatal[at] = Some(all);
        self.outcome.fatal.get_or_insert(self.order[at].who);
    }

    /// Upstream's rules for one fault of a va_block.
    fn service_one(&mut self, at: usize, duplicate: bool) {
        let record = self.order[at];
        let key = (record.who, record.address);
        let instances = u32::from(record.instances);
        let duplicates = instances - u32::from(!duplicate);
        self.outcome.duplicates += duplicates;
        self.looked_at.0 += u64::from(instances);
        self.looked_at.1 += u64::from(duplicates);
        self.serviced += 1;
        if duplicate && self.fatal[at - 1].is_none() {
            return;
        }
        let write = record.access > Access::Read as u8;
        match self.pages.get(&key).copied().unwrap_or(Page::Missing) {
            Page::Missing if record.access == Access::Prefetch as u8 => {
                self.finds = true;
                self.outcome.invalid_prefetches += instances;
            }
            Page::Missing => self.mark(at, true),
            Page::ReadOnly if write => {
                if record.accesses & (1 << Access::Read as u8) != 0 {
                    self.readable.insert(key);
                }
                self.mark(at, false);
            }
            _ => {
                let mut maps = self.readable.insert(key);
                if write {
                    maps |= self.writable.insert(key);
                }
                self.finds |= maps;
                if !maps && !duplicate {
                    self.mapped += 1;
                    self.looked_at.1 += 1;
                }
            }
        }
    }
}

fn count_down(n: &mut Option<u32>) -> bool {
    match n {
        Some(0) => {
            *n = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

impl Machine for World {
    type Error = u32;
    const CHECKS: bool = true;

    fn broken(&mut self, invariant: &'static str) {
        panic!("{invariant}");
    }

    fn ring(&mut self) -> (u32, u32) {
        self.called();
        if self.cached_put == self.get {
            self.cached_put = self.put;
        }
        (self.get, self.cached_put)
    }

    fn fetch(&mut self, at: u32, n: u32, entry: u32, out: &mut [Record]) -> Result<u32, u32> {
        self.called();
        let ring = self.ring.len() as u32;
        for i in 0..n {
            let place = (at + i) % ring;
            if !self.valid(place) {
                return Ok(i);
            }
            let (fault, _) = self.ring[place as usize].take().unwrap();
            let fault = Record {
                entry: entry + i,
                ..fault
            };
            out[i as usize] = fault;
            self.cache.insert(entry + i, fault);
        }
        Ok(n)
    }

    fn wait_for(&mut self, at: u32) -> Result<(), u32> {
        while !self.valid(at) {}
        Ok(())
    }

    fn set_get(&mut self, get: u32) {
        let ring = self.ring.len() as u32;
        while self.get != get {
            assert_ne!(self.get, self.put, "GET passed PUT");
            assert!(
                self.ring[self.get as usize].is_none(),
                "GET passed an entry that is valid"
            );
            self.get = (self.get + 1) % ring;
        }
    }

    fn now_us(&mut self) -> u64 {
        self.now_us
    }

    fn begin(&mut self) {
        self.batches += 1;
        self.outcome = Outcome::default();
    }

    fn translate(&mut self, entry: u32) -> Translated {
        self.channels[self.cache[&entry].who as usize]
    }

    fn cancel_channel(&mut self, entry: u32) -> Result<(), u32> {
        let who = self.cache[&entry].who;
        for warp in self.warps.iter_mut().filter(|w| w.fault.who == who) {
            warp.state = State::Cancelled;
        }
        Ok(())
    }

    fn publish(&mut self, records: &[Record], representatives: &[u32]) {
        assert!(records
            .iter()
            .all(|r| representatives[r.entry as usize] == r.entry));
        self.order = records.to_vec();
        self.fatal = vec![None; records.len()];
    }

    fn enter(&mut self, space: u64, entering: Entering) -> Entered {
        self.called();
        assert_eq!(self.held, None, "F-lock");
        if self.contended > 0 && self.random() % self.contended == 0 {
            self.busy += 1;
            return Entered::Busy;
        }
        self.held = Some((space, entering == Entering::Cancel));
        self.fresh = (false, false);
        if self.registered[space as usize] {
            Entered::Registered
        } else {
            Entered::Unregistered
        }
    }

    fn has_waited(&self) -> bool {
        false
    }

    fn nap(&mut self) {
        assert!(self.held.is_none(), "F-lock");
    }

    fn invalidate(&mut self) -> Result<(), u32> {
        Ok(())
    }

    fn leave(&mut self) {
        assert!(self.held.take().is_some(), "F-lock");
    }

    fn park(&mut self, _: u32, _: &[Record]) -> Option<Served> {
        None
    }

    fn service(
        &mut self,
        first: u32,
        address: u64,
        _: bool,
        _: bool,
        looked: &mut Looked,
    ) -> Result<Served, u32> {
        let duplicates = self.outcome.duplicates;
        self.called();
        let first = first as usize;
        let start = self.order[first];
        assert_eq!(address, start.address);
        assert_eq!(self.held, Some((start.who, false)), "F-lock");
        if count_down(&mut self.again_in) {
            return Ok(Served::Again);
        }
        if count_down(&mut self.fails_in) {
            self.refused = Some(start.who);
            return Err(7);
        }
        let mapped = self.mapped;
        self.finds = false;
        let missing = |w: &Self, r: &Record| {
            w.pages
                .get(&(r.who, r.address))
                .is_none_or(|p| *p == Page::Missing)
        };
        let mut at = first;
        while let Some(record) = self.order.get(at) {
            let previous = at
                .checked_sub(1)
                .filter(|p| *p >= first)
                .map(|p| self.order[p]);
            let same_block =
                record.who == start.who && record.address / BLOCK == start.address / BLOCK;
            // An address of no range is a group of its own.
            if !same_block || (at > first && (missing(self, record) || missing(self, &start))) {
                break;
            }
            assert_eq!(record.fatal, 0);
            let duplicate = previous.is_some_and(|p| p.address == record.address);
            self.service_one(at, duplicate);
            at += 1;
        }
        let faults = (at - first) as u32;
        *looked = Looked {
            faults,
            duplicates: self.outcome.duplicates - duplicates,
            mapped: self.mapped - mapped,
        };
        self.found += u32::from(self.finds);
        let (own, copies) = self
            .takes_us
            .get(start.who as usize)
            .copied()
            .unwrap_or_default();
        self.now_us += own;
        self.copied_us = self.copied_us.max(self.now_us) + copies;
        self.blocks.push((start.who, self.batches, self.now_us));
        self.another_comes();
        Ok(Served::Faults {
            faults,
            fatal: self.outcome.fatal.is_some(),
        })
    }

    fn is_its_own(&self, _: u32) -> bool {
        self.is_own
    }

    fn count(&mut self, instances: u64, duplicates: u32) {
        assert!(self.held.is_some(), "F-lock");
        self.counted.0 += instances;
        self.counted.1 += u64::from(duplicates);
    }

    fn missed(&mut self, address: u64) {
        self.missed += 1;
        assert!(self.finds, "nothing was missing");
        let (space, _) = self.held.expect("F-lock");
        assert!(self
            .order
            .iter()
            .any(|r| (r.who, r.address) == (space, address)));
    }

    fn found_fatal(&mut self, first: u32) {
        self.mark(first as usize, true);
    }

    fn outcome(&mut self) -> Outcome {
        self.outcome
    }

    fn switch_prefetch_faults(&mut self, _: PrefetchSwitch) {}

    fn replay(&mut self, _: bool) -> Result<(), u32> {
        self.replays += 1;
        self.issue();
        Ok(())
    }

    fn flush(&mut self, how: Flush) -> Result<(), u32> {
        if how != Flush::CachedPut {
            self.cached_put = self.put;
        }
        self.fresh.0 |= how == Flush::WaitUpdatePut;
        self.flushes += 1;
        while self.get != self.cached_put {
            self.ring[self.get as usize] = None;
            self.get = (self.get + 1) % self.ring.len() as u32;
        }
        self.replay(false)
    }

    fn wait_replays(&mut self, settle: bool) -> Result<(), u32> {
        self.now_us = self.now_us.max(self.copied_us);
        self.fresh.1 |= settle && self.fresh.0;
        Ok(())
    }

    fn wait_service(&mut self) -> Result<(), u32> {
        self.now_us = self.now_us.max(self.copied_us);
        Ok(())
    }

    fn cancel(&mut self, first: u32, n: u32, reason: Option<u32>) -> Result<(), u32> {
        self.called();
        let (space, _) = self.held.expect("F-lock");
        assert!(reason.is_some() || self.fresh.1, "F-stale");
        for at in first as usize..(first + n) as usize {
            let record = self.order[at];
            assert_eq!(record.who, space);
            let by_type = (record.fatal != 0).then_some(true);
            let found = self.fatal[at].or(by_type);
            let all = match cancels_as(found.is_some(), reason) {
                CancelAs::Nothing => continue,
                CancelAs::Found => found == Some(true),
                CancelAs::All(_) => true,
            };
            for warp in &mut self.warps {
                let theirs = self.channels[warp.fault.who as usize] == Translated::Space(space);
                let hit = all || warp.fault.access > Access::Read as u8;
                if theirs
                    && warp.fault.address == record.address
                    && hit
                    && warp.state == State::Stalled
                {
                    warp.state = State::Cancelled;
                }
            }
        }
        Ok(())
    }

    fn cancel_utlbs(&mut self, _: Option<u32>) -> Result<(), u32> {
        panic!("only on Pascal");
    }
}
