// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the loop asks of its machine, call by call.
//!
//! The storms see how faults end. Much that the loop must do leaves no trace there, as a
//! later batch makes good for it: that a global cancel happened, which faults it named,
//! where a batch ended. So here the machine does what a test says, and writes down what it
//! was asked.

use super::super::*;
use super::{params, record};
use crate::testing::tell;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

mod again;
mod busy;
mod checks;
mod refused;
mod turns;

/// A call of the machine that changes something, with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Fetch {
        at: u32,
        n: u32,
        entry: u32,
    },
    WaitFor(u32),
    SetGet(u32),
    Begin,
    CancelChannel(u32),
    Enter {
        space: u64,
        entering: Entering,
    },
    Leave,
    Nap,
    Invalidate,
    Serve {
        first: u32,
        per_block: bool,
        in_place: bool,
    },
    Park(u32),
    Count {
        instances: u64,
        duplicates: u32,
    },
    Missed(u64),
    FoundFatal(u32),
    Switch(PrefetchSwitch),
    Replay,
    Renumber,
    Flushed(Flush),
    WaitReplays(bool),
    WaitService,
    Cancel {
        first: u32,
        n: u32,
        reason: Option<u32>,
    },
    CancelUtlbs(Option<u32>),
}
use Did::*;

/// The error of whatever a test says fails.
const BROKEN: u32 = 9;

/// One fault was seen to, which is not fatal.
const ONE: Served = Served::Faults {
    faults: 1,
    fatal: false,
};

/// A machine that does what a test says.
#[derive(Default)]
struct Script {
    did: Vec<Did>,
    get: u32,
    put: u32,
    /// By place of the ring, its faults; `who` is the VA space.
    ring: Vec<Record>,
    /// What a flush that waits brings back into the ring.
    comes_back: Vec<Record>,
    /// How many entries each fetch finds written; all of them when this is used up.
    written: VecDeque<u32>,
    /// What each service finds; one fault at a time, none fatal, when this is used up.
    served: VecDeque<Served>,
    /// How many duplicates each service finds, and how many faults on pages that are mapped already.
    duplicates: u32,
    mapped: u32,
    /// Whether a service that fails has looked at a fault before.
    fails_late: bool,
    /// The faults that wait elsewhere.
    parks: Vec<u32>,
    /// Whether what is told of faults that were looked at is written down too.
    tells: bool,
    /// The outcome of each batch; nothing in particular when this is used up.
    outcomes: VecDeque<Outcome>,
    /// VA spaces that the GPU has left.
    unregistered: Vec<u64>,
    /// VA spaces whose locks others have.
    busy: Vec<u64>,
    /// A VA space whose locks others have once it was entered so often.
    busy_after: Option<(u64, usize)>,
    /// After so many calls of `enter` others have waited long enough; 0 for never.
    waited_after: usize,
    /// VA spaces whose channel is gone, or lacks the subcontext.
    stale: Vec<u64>,
    no_subcontext: Vec<u64>,
    /// The calls that fail, and whether that is their VA space's alone.
    fails: Vec<Did>,
    is_own: bool,
    cached: Vec<Record>,
    /// How many entries each fetch copies, however few it was asked for: a machine that is
    /// wrong. It does as asked when this is used up.
    too_many: VecDeque<u32>,
    /// The clock, and how many microseconds each service takes.
    now_us: u64,
    takes_us: u64,
    /// How many microseconds each call of `enter` waits for the locks.
    locks_us: u64,
    /// How many microseconds the copies of all services since they were last waited for take.
    copies_us: u64,
    /// How often the clock was read.
    reads: u32,
    /// The invariants that are told to be broken, where a test expects some.
    broken: Option<Vec<&'static str>>,
}

impl Script {
    /// A ring with these faults from place `get` on.
    fn new(get: u32, faults: &[Record]) -> Self {
        let size = params().ring;
        let mut script = Self {
            get,
            put: get,
            ring: vec![Record::default(); size as usize],
            cached: vec![Record::default(); size as usize],
            ..Self::default()
        };
        script.write(faults);
        script
    }

    fn write(&mut self, faults: &[Record]) {
        let size = self.ring.len() as u32;
        for fault in faults {
            self.ring[self.put as usize] = *fault;
            self.put = (self.put + 1) % size;
        }
    }

    fn note(&mut self, did: Did) -> Result<(), u32> {
        self.did.push(did);
        assert!(self.did.len() < 10_000, "the loop does not end");
        if self.fails.contains(&did) {
            return Err(BROKEN);
        }
        Ok(())
    }

    fn run(&mut self, params: Params) -> Result<(), u32> {
        Service::new(params).unwrap().run(self)
    }

    /// How often the machine was asked for something like this.
    fn count(&self, like: impl Fn(&Did) -> bool) -> usize {
        self.did.iter().filter(|did| like(did)).count()
    }

    /// What was asked from the first such call on.
    fn since(&self, from: Did) -> &[Did] {
        let at = self.did.iter().position(|did| *did == from);
        &self.did[at.expect("it was not asked for")..]
    }

    /// What was done since this was asked for the last time, with it.
    fn since_last(&self, from: Did) -> &[Did] {
        let at = self.did.iter().rposition(|did| *did == from);
        &self.did[at.expect("it was not asked for")..]
    }
}

impl Machine for Script {
    type Error = u32;
    const CHECKS: bool = true;

    fn broken(&mut self, invariant: &'static str) {
        tell(&mut self.broken, invariant);
    }

    fn ring(&mut self) -> (u32, u32) {
        (self.get, self.put)
    }

    fn fetch(&mut self, at: u32, n: u32, entry: u32, out: &mut [Record]) -> Result<u32, u32> {
        self.note(Fetch { at, n, entry })?;
        let n = match self.too_many.pop_front() {
            Some(too_many) => too_many,
            None => self.written.pop_front().unwrap_or(n).min(n),
        };
        for i in 0..n {
            let place = (at + i) as usize % self.ring.len();
            let fault = Record {
                entry: entry + i,
                ..self.ring[place]
            };
            out[i as usize] = fault;
            self.cached[(entry + i) as usize] = fault;
        }
        Ok(n)
    }

    fn wait_for(&mut self, at: u32) -> Result<(), u32> {
        self.note(WaitFor(at))
    }

    fn set_get(&mut self, get: u32) {
        self.get = get;
        let _ = self.note(SetGet(get));
    }

    fn now_us(&mut self) -> u64 {
        self.reads += 1;
        self.now_us
    }

    fn begin(&mut self) {
        self.did.push(Begin);
    }

    fn translate(&mut self, entry: u32) -> Translated {
        let space = self.cached[entry as usize].who;
        if self.stale.contains(&space) {
            Translated::Stale
        } else if self.no_subcontext.contains(&space) {
            Translated::NoSubcontext
        } else {
            Translated::Space(space)
        }
    }

    fn cancel_channel(&mut self, entry: u32) -> Result<(), u32> {
        self.note(CancelChannel(entry))
    }

    fn publish(&mut self, _: &[Record], _: &[u32]) {}

    fn enter(&mut self, space: u64, entering: Entering) -> Entered {
        let is_of = |did: &Did| matches!(did, Enter { space: of, .. } if *of == space);
        let before = Self::count(self, is_of);
        let _ = self.note(Enter { space, entering });
        self.now_us += self.locks_us;
        let is_after = |(of, times)| of == space && before >= times;
        if self.busy.contains(&space) || self.busy_after.is_some_and(is_after) {
            Entered::Busy
        } else if self.unregistered.contains(&space) {
            Entered::Unregistered
        } else {
            Entered::Registered
        }
    }

    fn has_waited(&self) -> bool {
        let enters = Self::count(self, |did| matches!(did, Enter { .. }));
        self.waited_after > 0 && enters >= self.waited_after
    }

    fn nap(&mut self) {
        self.did.push(Nap);
    }

    fn invalidate(&mut self) -> Result<(), u32> {
        self.note(Invalidate)
    }

    fn leave(&mut self) {
        self.did.push(Leave);
    }

    fn park(&mut self, first: u32, _: &[Record]) -> Option<Served> {
        if !self.parks.contains(&first) {
            return None;
        }
        self.did.push(Park(first));
        Some(ONE)
    }

    fn service(
        &mut self,
        first: u32,
        _: u64,
        per_block: bool,
        in_place: bool,
        looked: &mut Looked,
    ) -> Result<Served, u32> {
        let serve = Serve {
            first,
            per_block,
            in_place,
        };
        self.now_us += self.takes_us;
        looked.faults = u32::from(self.fails_late);
        self.note(serve)?;
        let served = self.served.pop_front().unwrap_or(ONE);
        if let Served::Faults { faults, .. } = served {
            *looked = Looked {
                faults,
                duplicates: self.duplicates,
                mapped: self.mapped,
            };
        }
        Ok(served)
    }

    fn is_its_own(&self, error: u32) -> bool {
        assert_eq!(error, BROKEN);
        self.is_own
    }

    fn count(&mut self, instances: u64, duplicates: u32) {
        if self.tells {
            self.did.push(Count {
                instances,
                duplicates,
            });
        }
    }

    fn missed(&mut self, address: u64) {
        if self.tells {
            self.did.push(Missed(address));
        }
    }

    fn found_fatal(&mut self, first: u32) {
        self.did.push(FoundFatal(first));
    }

    fn outcome(&mut self) -> Outcome {
        self.outcomes.pop_front().unwrap_or_default()
    }

    fn switch_prefetch_faults(&mut self, to: PrefetchSwitch) {
        self.did.push(Switch(to));
    }

    fn replay(&mut self, renumber: bool) -> Result<(), u32> {
        if renumber && self.tells {
            self.did.push(Renumber);
        }
        self.note(Replay)
    }

    fn flush(&mut self, how: Flush) -> Result<(), u32> {
        self.note(Flushed(how))?;
        self.get = self.put;
        if how == Flush::WaitUpdatePut {
            let faults = core::mem::take(&mut self.comes_back);
            self.write(&faults);
        }
        Ok(())
    }

    fn wait_replays(&mut self, settle: bool) -> Result<(), u32> {
        self.note(WaitReplays(settle))
    }

    fn wait_service(&mut self) -> Result<(), u32> {
        self.now_us += self.copies_us;
        self.note(WaitService)
    }

    fn cancel(&mut self, first: u32, n: u32, reason: Option<u32>) -> Result<(), u32> {
        self.note(Cancel { first, n, reason })
    }

    fn cancel_utlbs(&mut self, reason: Option<u32>) -> Result<(), u32> {
        self.note(CancelUtlbs(reason))
    }
}

/// Writes of this VA space to these pages.
fn writes(space: u64, pages: core::ops::Range<u64>) -> Vec<Record> {
    pages.map(|page| record(0, space, page, 2, 0)).collect()
}

fn with(policy: ReplayPolicy) -> Params {
    Params { policy, ..params() }
}

const UPDATE: Did = Flushed(Flush::UpdatePut);
const CACHED: Did = Flushed(Flush::CachedPut);
const WAIT_UPDATE: Did = Flushed(Flush::WaitUpdatePut);

fn enter(space: u64) -> Did {
    Enter {
        space,
        entering: Entering::Service,
    }
}

fn enter_again(space: u64) -> Did {
    Enter {
        space,
        entering: Entering::Again,
    }
}

fn enter_to_cancel(space: u64) -> Did {
    Enter {
        space,
        entering: Entering::Cancel,
    }
}

fn service(first: u32) -> Did {
    Serve {
        first,
        per_block: false,
        in_place: false,
    }
}

fn cancel(first: u32, n: u32) -> Did {
    Cancel {
        first,
        n,
        reason: None,
    }
}

// --- fetch -----------------------------------------------------------------------------

/// Calls that read the ring.
fn reads(script: &Script) -> Vec<Did> {
    let reads = |did: &&Did| matches!(did, Fetch { .. } | WaitFor(_) | SetGet(_));
    script.did.iter().filter(reads).copied().collect()
}

#[test]
fn a_batch_ends_where_it_is_full() {
    let mut script = Script::new(0, &writes(1, 0..6));
    let params = Params {
        max_batch: 4,
        ..with(ReplayPolicy::Once)
    };
    script.run(params).unwrap();
    let whole = [
        Fetch {
            at: 0,
            n: 4,
            entry: 0,
        },
        SetGet(4),
        Fetch {
            at: 4,
            n: 2,
            entry: 0,
        },
        SetGet(6),
    ];
    assert_eq!(reads(&script), whole);
}

/// The first entry is waited for, as there would be no batch without it; any other ends it.
#[test]
fn a_batch_ends_at_an_entry_that_is_not_written_yet() {
    let mut script = Script::new(0, &writes(1, 0..5));
    script.written = [0, 2, 0, 1, 2].into();
    script.run(with(ReplayPolicy::Once)).unwrap();
    let whole = [
        Fetch {
            at: 0,
            n: 5,
            entry: 0,
        },
        WaitFor(0),
        Fetch {
            at: 0,
            n: 5,
            entry: 0,
        },
        Fetch {
            at: 2,
            n: 3,
            entry: 2,
        },
        SetGet(2),
        Fetch {
            at: 2,
            n: 3,
            entry: 0,
        },
        Fetch {
            at: 3,
            n: 2,
            entry: 1,
        },
        SetGet(5),
    ];
    assert_eq!(reads(&script), whole);
}

#[test]
fn a_batch_goes_on_at_the_beginning_of_the_ring() {
    let ring = params().ring;
    let mut script = Script::new(ring - 2, &writes(1, 0..5));
    script.written = [2].into();
    script.run(with(ReplayPolicy::Once)).unwrap();
    let whole = [
        Fetch {
            at: ring - 2,
            n: 5,
            entry: 0,
        },
        Fetch {
            at: 0,
            n: 3,
            entry: 2,
        },
        SetGet(3),
    ];
    assert_eq!(reads(&script), whole);
    // Not at once: from behind the place where it begins.
    let mut script = Script::new(ring - 2, &writes(1, 0..5));
    script.run(with(ReplayPolicy::Once)).unwrap();
    assert_eq!(script.did[1], SetGet(3));
}

/// What was read must be behind GET all the same, and its accesses must be replayed.
#[test]
fn an_error_amid_a_batch_leaves_what_was_read_behind() {
    let mut script = Script::new(0, &writes(1, 0..5));
    script.written = [2].into();
    script.fails = vec![Fetch {
        at: 2,
        n: 3,
        entry: 2,
    }];
    assert_eq!(script.run(params()), Err(BROKEN));
    assert_eq!(script.did[2..], [SetGet(2), Replay]);
}

#[test]
fn an_error_before_the_first_entry_moves_nothing() {
    let mut script = Script::new(0, &writes(1, 0..5));
    script.written = [0].into();
    script.fails = vec![WaitFor(0)];
    assert_eq!(script.run(params()), Err(BROKEN));
    // The replay is the one that every call sends.
    assert_eq!(script.did[1..], [WaitFor(0), Replay]);
}

// --- batches -----------------------------------------------------------------------------

fn batches(script: &Script) -> usize {
    script.count(|did| *did == Begin)
}

#[test]
fn a_call_ends_after_so_many_batches() {
    for (max_batches, ends) in [(1, 1), (3, 3), (20, 6)] {
        let mut script = Script::new(0, &writes(1, 0..6));
        let params = Params {
            max_batch: 1,
            max_batches,
            ..with(ReplayPolicy::Once)
        };
        script.run(params).unwrap();
        assert_eq!(batches(&script), ends, "of {max_batches}");
    }
}

/// Batches without throttled pages do not count towards that limit.
#[test]
fn a_call_ends_after_so_many_throttled_batches() {
    let throttled = |throttled| Outcome {
        throttled,
        ..Outcome::default()
    };
    for (max_throttled, ends) in [(1, 2), (2, 4), (3, 8)] {
        let mut script = Script::new(0, &writes(1, 0..8));
        script.outcomes = [false, true, false, true].map(throttled).into();
        let params = Params {
            max_batch: 1,
            max_throttled,
            ..with(ReplayPolicy::Once)
        };
        script.run(params).unwrap();
        assert_eq!(batches(&script), ends, "of {max_throttled}");
    }
}

#[test]
fn each_batch_is_followed_by_what_the_policy_says() {
    let tail = |policy, outcome: Outcome| {
        let mut script = Script::new(0, &writes(1, 0..4));
        script.outcomes = [outcome].into();
        script.run(with(policy)).unwrap();
        script.since(Leave)[1..].to_vec()
    };
    let plain = Outcome::default();
    assert_eq!(tail(ReplayPolicy::Once, plain), [Replay]);
    assert_eq!(tail(ReplayPolicy::Batch, plain), [Replay]);
    let flush = tail(ReplayPolicy::BatchFlush, plain);
    assert_eq!(flush, [CACHED, WaitReplays(false)]);
    // 3 of 4 is more than the 50 % above which PUT is read again.
    let duplicates = Outcome {
        duplicates: 3,
        ..plain
    };
    let flush = tail(ReplayPolicy::BatchFlush, duplicates);
    assert_eq!(flush, [UPDATE, WaitReplays(false)]);
}

#[test]
fn after_each_block_there_is_a_replay_and_none_for_nothing() {
    let mut script = Script::new(0, &writes(1, 0..2));
    script.run(with(ReplayPolicy::Block)).unwrap();
    let block = |first| Serve {
        first,
        per_block: true,
        in_place: false,
    };
    let whole = [block(0), Replay, block(1), Replay, Invalidate, Leave];
    assert_eq!(script.since(block(0)), whole);

    // What is not serviced, as the GPU has left the VA space, is owed one.
    let faults = [writes(1, 0..1), writes(2, 0..1)].concat();
    let mut script = Script::new(0, &faults);
    script.unregistered = vec![2];
    script.run(with(ReplayPolicy::Block)).unwrap();
    let whole = [enter(2), Invalidate, Leave, Replay];
    assert_eq!(script.since(enter(2)), whole);
}

#[test]
fn prefetch_faults_are_turned_off_and_on_by_what_a_batch_held() {
    let mut script = Script::new(0, &writes(1, 0..2));
    script.outcomes = [
        Outcome {
            prefetch_faults: PrefetchFaults::On,
            prefetch_lapse_ms: 1,
            invalid_prefetches: 32,
            ..Outcome::default()
        },
        Outcome {
            prefetch_faults: PrefetchFaults::Off(1_000_001),
            prefetch_lapse_ms: 1,
            ..Outcome::default()
        },
    ]
    .into();
    let params = Params {
        max_batch: 1,
        ..with(ReplayPolicy::Once)
    };
    script.run(params).unwrap();
    let switches: Vec<_> = script
        .did
        .iter()
        .filter(|d| matches!(d, Switch(_)))
        .collect();
    let off_on = [PrefetchSwitch::Off, PrefetchSwitch::On].map(Switch);
    assert_eq!(switches, off_on.iter().collect::<Vec<_>>());
}

#[test]
fn the_locks_are_let_go_and_taken_again_when_the_machine_asks() {
    let mut script = Script::new(0, &writes(1, 0..3));
    script.served = [ONE, Served::Again, Served::AgainInPlace, ONE].into();
    script.run(with(ReplayPolicy::Once)).unwrap();
    let in_place = Serve {
        first: 1,
        per_block: false,
        in_place: true,
    };
    let whole = [
        enter(1),
        service(0),
        service(1),
        Leave,
        enter_again(1),
        service(1),
        Leave,
        enter_again(1),
        in_place,
        // The fault after it may be migrated again.
        service(2),
        Invalidate,
        Leave,
        Replay,
    ];
    assert_eq!(script.since(enter(1)), whole);
}

#[test]
fn a_channel_that_is_gone_is_flushed_and_one_that_broke_the_rules_cancelled() {
    let mut script = Script::new(0, &writes(1, 0..2));
    script.stale = vec![1];
    script.run(params()).unwrap();
    assert_eq!(script.since(Begin), [Begin, UPDATE]);

    let mut script = Script::new(0, &writes(1, 0..2));
    script.no_subcontext = vec![1];
    script.run(params()).unwrap();
    assert_eq!(script.since(Begin), [Begin, CancelChannel(0), UPDATE]);
}

/// GET has moved by then, as far as the loop knows.
#[test]
fn a_flush_that_fails_is_followed_by_a_replay() {
    let mut script = Script::new(0, &writes(1, 0..2));
    script.fails = vec![CACHED];
    assert_eq!(script.run(params()), Err(BROKEN));
    assert_eq!(script.since(CACHED), [CACHED, Replay]);
}

// --- what is told of faults that were looked at ---------------------------------------------

/// What was told in a run, with what it is told of.
fn told(script: &Script) -> Vec<Did> {
    let of = |did: &&Did| matches!(did, Serve { .. } | Park(_) | Count { .. } | Missed(_));
    script.did.iter().filter(of).copied().collect()
}

fn count(instances: u64, duplicates: u32) -> Did {
    Count {
        instances,
        duplicates,
    }
}

/// All entries that a va_block's faults stand for are its process's, and its first page is what was missed.
#[test]
fn faults_are_counted_by_entry_and_missed_by_block() {
    // Twice the first page, then another one; and in a call of its own, twice a third.
    let faults = [writes(1, 3..4), writes(1, 3..5), writes(1, 5..6)].concat();
    let faults = [faults, writes(1, 5..6)].concat();
    let mut script = Script::new(0, &faults);
    script.tells = true;
    script.duplicates = 1;
    script.served = [Served::Faults {
        faults: 2,
        fatal: false,
    }]
    .into();
    script.run(with(ReplayPolicy::Once)).unwrap();
    let page = |n: u64| Missed(writes(1, n..n + 1)[0].address);
    let whole = [
        service(0),
        count(3, 1),
        page(3),
        service(2),
        count(2, 1),
        page(5),
    ];
    assert_eq!(told(&script), whole);
}

/// A fault on a page that is mapped by then needs no work, and its page was not missing.
#[test]
fn what_is_mapped_already_is_a_duplicate_and_was_not_missed() {
    // Twice the first page, then another one.
    let faults = [writes(1, 3..4), writes(1, 3..5)].concat();
    let missed = Missed(faults[0].address);
    for (duplicates, mapped, is_missed) in [(1, 0, true), (1, 1, true), (1, 2, false)] {
        let mut script = Script::new(0, &faults);
        (script.tells, script.duplicates, script.mapped) = (true, duplicates, mapped);
        script.served = [Served::Faults {
            faults: 2,
            fatal: false,
        }]
        .into();
        script.run(with(ReplayPolicy::Once)).unwrap();
        let mut whole = vec![service(0), count(3, duplicates + mapped)];
        whole.extend(is_missed.then_some(missed));
        assert_eq!(told(&script), whole);
    }
}

/// They come again, when what they need is there.
#[test]
fn faults_that_wait_elsewhere_are_not_told() {
    let mut script = Script::new(0, &writes(1, 0..2));
    script.tells = true;
    script.parks = vec![0];
    script.run(with(ReplayPolicy::Once)).unwrap();
    let second = Missed(writes(1, 1..2)[0].address);
    assert_eq!(told(&script), [Park(0), service(1), count(1, 0), second]);
}

#[test]
fn what_is_done_again_is_told_once() {
    for again in [Served::Again, Served::AgainInPlace] {
        let mut script = Script::new(0, &writes(1, 0..1));
        script.tells = true;
        script.served = [again].into();
        script.run(with(ReplayPolicy::Once)).unwrap();
        assert_eq!(script.count(|did| matches!(did, Serve { .. })), 2);
        assert_eq!(script.count(|did| *did == count(1, 0)), 1);
        assert_eq!(script.count(|did| matches!(did, Missed(_))), 1);
    }
}

/// What was looked at before a service failed is counted; nothing came of it, so nothing was missed.
#[test]
fn a_service_that_fails_has_looked_at_what_it_says() {
    for (fails_late, counts) in [(false, 0), (true, 1)] {
        let mut script = Script::new(0, &writes(1, 0..1));
        (script.tells, script.fails_late) = (true, fails_late);
        script.fails = vec![service(0)];
        assert_eq!(script.run(with(ReplayPolicy::Once)), Err(BROKEN));
        assert_eq!(script.count(|did| matches!(did, Count { .. })), counts);
        assert_eq!(script.count(|did| matches!(did, Missed(_))), 0);
    }
}

#[test]
fn only_where_each_block_is_replayed_a_replay_renumbers() {
    for (policy, renumbers) in [
        (ReplayPolicy::Block, 2),
        (ReplayPolicy::Batch, 0),
        (ReplayPolicy::Once, 0),
    ] {
        let mut script = Script::new(0, &writes(1, 0..2));
        script.tells = true;
        script.run(with(policy)).unwrap();
        assert_eq!(
            script.count(|did| *did == Renumber),
            renumbers,
            "{policy:?}"
        );
    }
}

// --- cancel ------------------------------------------------------------------------------

fn fatal_in(space: u64) -> Outcome {
    Outcome {
        fatal: Some(space),
        ..Outcome::default()
    }
}

/// Three VA spaces; 2 has a fatal fault. What comes back is in three VA spaces as well.
fn targeted(comes_back: &[Record]) -> Script {
    let faults: Vec<_> = (1..4).flat_map(|space| writes(space, 0..1)).collect();
    let mut script = Script::new(0, &faults);
    script.outcomes = [fatal_in(2)].into();
    script.comes_back = comes_back.to_vec();
    script
}

#[test]
fn only_the_faults_of_the_space_with_a_fatal_one_are_looked_at_to_cancel() {
    let come_back = [writes(1, 0..2), writes(2, 0..5), writes(3, 0..3)].concat();
    let mut script = targeted(&come_back);
    script.written = [3, 4].into();
    let faults = |faults| Served::Faults {
        faults,
        fatal: false,
    };
    // Of the batch; then of what came back: a va_block of two, one of more than there are.
    script.served = [faults(1), faults(1), faults(1), faults(2), faults(9)].into();
    script.run(params()).unwrap();
    let whole = [
        WaitService,
        enter_again(2),
        WAIT_UPDATE,
        WaitReplays(true),
        Fetch {
            at: 3,
            n: 10,
            entry: 0,
        },
        // Each up to PUT, however many come first.
        Fetch {
            at: 7,
            n: 6,
            entry: 4,
        },
        SetGet(13),
        Begin,
        service(2),
        Invalidate,
        cancel(2, 2),
        service(4),
        Invalidate,
        cancel(4, 3),
        Leave,
        UPDATE,
    ];
    assert_eq!(script.since(WaitService), whole);
}

#[test]
fn an_entry_that_is_not_written_yet_is_waited_for_before_a_cancel() {
    let mut script = targeted(&writes(2, 0..3));
    script.written = [3, 1, 0, 2].into();
    script.run(params()).unwrap();
    let whole = [
        Fetch {
            at: 3,
            n: 3,
            entry: 0,
        },
        Fetch {
            at: 4,
            n: 2,
            entry: 1,
        },
        WaitFor(4),
        Fetch {
            at: 4,
            n: 2,
            entry: 1,
        },
        SetGet(6),
    ];
    assert_eq!(reads(&script)[2..], whole);
}

#[test]
fn a_fault_that_is_fatal_by_its_type_is_cancelled_without_a_try() {
    let mut come_back = writes(2, 0..3);
    come_back[1].fatal = 1;
    let mut script = targeted(&come_back);
    script.run(params()).unwrap();
    let whole = [
        Begin,
        service(0),
        Invalidate,
        cancel(0, 1),
        cancel(1, 1),
        service(2),
        Invalidate,
        cancel(2, 1),
        Leave,
        UPDATE,
    ];
    assert_eq!(script.since_last(Begin), whole);
}

#[test]
fn a_cancel_starts_over_where_the_locks_must_be_let_go() {
    for again in [Served::Again, Served::AgainInPlace] {
        let mut script = targeted(&writes(2, 0..3));
        script.served = [ONE, ONE, ONE, again].into();
        script.run(params()).unwrap();
        assert_eq!(script.since_last(Begin), [Begin, service(0), Leave, UPDATE]);
    }
}

#[test]
fn a_cancel_of_a_space_that_the_gpu_left_only_flushes() {
    let mut script = targeted(&writes(2, 0..3));
    script.unregistered = vec![2];
    script.run(params()).unwrap();
    let whole = [
        WaitService,
        enter_again(2),
        WAIT_UPDATE,
        WaitReplays(true),
        Leave,
        UPDATE,
    ];
    assert_eq!(script.since(WaitService)[..6], whole);
}

#[test]
fn nothing_is_cancelled_that_did_not_come_back() {
    let mut script = targeted(&[]);
    script.run(params()).unwrap();
    let whole = [
        WaitService,
        enter_again(2),
        WAIT_UPDATE,
        WaitReplays(true),
        Leave,
        UPDATE,
    ];
    assert_eq!(script.since(WaitService), whole);

    // Nor what is stale by then.
    let mut script = targeted(&writes(4, 0..2));
    script.stale = vec![4];
    script.run(params()).unwrap();
    assert_eq!(script.since_last(Begin), [Begin, UPDATE, Leave, UPDATE]);
}

#[test]
fn on_pascal_the_machine_finds_what_to_cancel() {
    let mut script = targeted(&[]);
    let params = Params {
        cancels_by_address: false,
        ..params()
    };
    script.run(params).unwrap();
    // It sent replays, so that none is owed.
    assert_eq!(script.since(WaitService), [WaitService, CancelUtlbs(None)]);
}

/// Three VA spaces with two, one and three faults; the service of the second fails.
fn global() -> Script {
    let faults = [writes(1, 0..2), writes(2, 0..1), writes(3, 0..3)].concat();
    let mut script = Script::new(0, &faults);
    script.fails = vec![service(2)];
    script
}

const REASON: Option<u32> = Some(BROKEN);

/// The cancel of these faults for that reason, fatal or not.
const fn cancel_all(first: u32, n: u32) -> Did {
    Cancel {
        first,
        n,
        reason: REASON,
    }
}

#[test]
fn an_error_that_is_nobodys_cancels_every_fault_of_the_batch() {
    let mut script = global();
    assert_eq!(script.run(params()), Err(BROKEN));
    let whole = [
        enter_to_cancel(1),
        cancel_all(0, 2),
        Leave,
        enter_to_cancel(2),
        cancel_all(2, 1),
        Leave,
        enter_to_cancel(3),
        cancel_all(3, 3),
        Leave,
        UPDATE,
    ];
    assert_eq!(script.since(enter_to_cancel(1)), whole);
    assert_eq!(batches(&script), 1);
}

#[test]
fn a_global_cancel_leaves_out_a_space_that_the_gpu_left() {
    let mut script = global();
    script.unregistered = vec![1];
    assert_eq!(script.run(params()), Err(BROKEN));
    let whole = [enter_to_cancel(1), Leave, enter_to_cancel(2)];
    assert_eq!(script.since(enter_to_cancel(1))[..3], whole);
}

/// It does what it can: the ring is flushed, and what is left comes back by the replay.
#[test]
fn a_global_cancel_that_fails_still_flushes() {
    const CANCEL_BOTH: Did = cancel_all(0, 2);
    let mut script = Script::new(0, &[writes(1, 0..2), writes(2, 0..1)].concat());
    script.fails = vec![service(0), CANCEL_BOTH];
    assert_eq!(script.run(params()), Err(BROKEN));
    let whole = [enter_to_cancel(1), CANCEL_BOTH, Leave, UPDATE];
    assert_eq!(script.since(enter_to_cancel(1)), whole);
}

#[test]
fn a_global_cancel_on_pascal_is_the_machines() {
    let mut script = global();
    let params = Params {
        cancels_by_address: false,
        ..params()
    };
    assert_eq!(script.run(params), Err(BROKEN));
    // The entries of the batch are off the ring, so a replay is owed.
    let whole = [CancelUtlbs(REASON), Replay];
    assert_eq!(script.since(CancelUtlbs(REASON)), whole);
}
