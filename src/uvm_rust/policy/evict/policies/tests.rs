// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What holds of every policy, and what each is for.

use super::*;
use crate::evict::reclaim::Reclaim;
use crate::evict::wait::Ended;
use crate::evict::{Change, Lists};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

const HOLDER: Holder = 5;

/// A policy that keeps the used chunks by itself, and answers with what is not among them.
pub(super) struct Checked {
    used: BTreeSet<Chunk>,
    chunks: u32,
}

impl Policy for Checked {
    const NAME: &'static str = "checked";

    fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            used: BTreeSet::new(),
            chunks,
        })
    }

    fn used(&mut self, chunk: Chunk, _: Holder) {
        self.used.insert(chunk);
    }

    fn left(&mut self, chunk: Chunk) {
        assert!(self.used.remove(&chunk), "{chunk} left, and was not used");
    }

    fn choose(&self, used: Used<'_>) -> Option<Chunk> {
        let seen: BTreeSet<_> = used.oldest_first().collect();
        let may_go = self.used.iter().copied().filter(|&c| used.may_go(c));
        assert_eq!(seen, may_go.collect());
        assert_eq!(seen.len() as u32, used.count());
        let mut back: Vec<_> = used.newest_first().collect();
        back.reverse();
        assert!(used.oldest_first().eq(back));
        (0..=self.chunks).find(|c| !self.used.contains(c))
    }
}

/// The PMM agrees to all.
pub(in super::super) struct Agrees;

impl Lists for Agrees {
    fn evictable(&mut self, _: Chunk) -> bool {
        true
    }
}

#[test]
fn a_policy_is_found_by_its_name() {
    let mut names = BTreeSet::new();
    for (n, &choice) in Choice::ALL.iter().enumerate() {
        let name = choice.name();
        assert!(names.insert(name), "two policies are named {name}");
        assert!(name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit()));
        assert_eq!(Choice::named(name), Some(choice));
        assert_eq!(choice.number() as usize, n);
        assert_eq!(Choice::from_number(n as u32), Some(choice));
    }
    assert_eq!(Choice::default(), Choice::ALL[0]);
    assert_eq!(Choice::default().name(), "lru");
    for none in ["", "LRU", "lru ", "lr"] {
        assert_eq!(Choice::named(none), None, "{none:?}");
    }
    assert_eq!(Choice::from_number(Choice::ALL.len() as u32), None);
}

/// Chunks that are brought to a GPU of `room` chunks when a program goes `rounds` times through
/// `chunks` of them.
fn brought(name: &str, room: u32, chunks: u32, rounds: u32) -> u32 {
    let mut roots = RootChunks::with_policy(room, Choice::named(name).unwrap()).unwrap();
    // What each root chunk holds.
    let mut holds: Vec<Option<u32>> = std::vec![None; room as usize];
    (0..room).for_each(|c| roots.change(c, Change::Free { zeroed: false }).unwrap());
    let mut brought = 0;
    for data in (0..rounds).flat_map(|_| 0..chunks) {
        // The driver hears of an access only if it faults.
        if holds.contains(&Some(data)) {
            continue;
        }
        let chunk = roots.choose(&mut Agrees).unwrap();
        roots.begin_eviction(chunk);
        roots.evicted(chunk).unwrap();
        roots.used_by(chunk, HOLDER).unwrap();
        roots.change(chunk, Change::Whole(HOLDER)).unwrap();
        holds[chunk as usize] = Some(data);
        brought += 1;
    }
    brought
}

#[test]
fn mru_keeps_what_lru_loses() {
    assert_eq!(brought("lru", 32, 32, 4), 32);
    assert_eq!(brought("mru", 32, 32, 4), 32);
    // Of 48 chunks, no round finds one under lru.
    assert_eq!(brought("lru", 32, 48, 4), 4 * 48);
    // Under mru it finds all but those that pass through; with an oracle it were 16 a round.
    let mru = brought("mru", 32, 48, 4);
    assert!((48 + 3 * 16..=48 + 3 * 25).contains(&mru), "{mru}");
}

#[test]
fn mru_spares_the_newest_and_what_is_expected() {
    let mut roots = RootChunks::with_policy(12, Choice::named("mru").unwrap()).unwrap();
    for c in 0..12 {
        roots.used_by(c, HOLDER).unwrap();
        roots.insert(c, HOLDER).unwrap();
    }
    assert_eq!(roots.pick(), Some(3));
    let owner = roots.add_owner(HOLDER);
    roots.expect(3, owner, 7);
    assert_eq!(roots.pick(), Some(2));
    // All but the newest are expected: the one that is needed last.
    (0..3).for_each(|c| roots.expect(c, owner, c + 1));
    let victim = roots.victim().unwrap();
    assert_eq!((victim.chunk, victim.expected), (3, true));
    // There are no others: the oldest, as something must go.
    (0..4).for_each(|c| _ = roots.remove(c));
    assert_eq!(roots.pick(), Some(4));
}

/// A policy has its favourites, but not for ever if their eviction fails.
#[test]
fn what_cannot_be_evicted_makes_way_for_others() {
    for &choice in Choice::ALL.iter().filter(|c| c.name() != "checked") {
        let mut roots = RootChunks::with_policy(40, choice).unwrap();
        let reclaim = Reclaim::new();
        for chunk in 0..40 {
            let holder = if chunk < 30 { HOLDER } else { 6 };
            roots.used_by(chunk, holder).unwrap();
            roots.insert(chunk, holder).unwrap();
        }
        let mut tries = 0;
        let got = loop {
            roots.set_by_default(reclaim.is_in_vain());
            let chunk = roots.choose(&mut Agrees).unwrap();
            roots.begin_eviction(chunk);
            reclaim.eviction_begins();
            tries += 1;
            if chunk >= 30 {
                break chunk;
            }
            // A page of it is held, so that it stays.
            roots.change(chunk, Change::Whole(HOLDER)).unwrap();
            reclaim.eviction_ended(Ended::Held { of: u32::MAX }, 1, tries);
            assert!(tries < 64, "{}", choice.name());
        };
        roots.evicted(got).unwrap();
        roots.change(got, Change::Whole(6)).unwrap();
        reclaim.eviction_ended(Ended::Got, 1, tries);
        // From then on the policy is asked again.
        assert!(!reclaim.is_in_vain());
        roots.set_by_default(false);
        let favourite = roots.pick().map(|c| c < 30);
        assert!(choice.name() != "fair" || favourite == Some(true));
    }
}

/// A GPU, and what each of its chunks holds.
struct Full {
    roots: RootChunks,
    holds: Vec<u32>,
    evicted: u32,
}

impl Full {
    /// A fault of `holder` on a block, if that is not there.
    fn touch(&mut self, block: u32, holder: Holder) {
        if self.holds.contains(&block) {
            return;
        }
        let chunk = self.roots.choose(&mut Agrees).unwrap();
        self.roots.begin_eviction(chunk);
        self.roots.evicted(chunk).unwrap();
        // As upstream: whose it is is known once it may be evicted again.
        self.roots.used_by(chunk, 0).unwrap();
        self.roots.change(chunk, Change::Whole(holder)).unwrap();
        self.holds[chunk as usize] = block;
        self.evicted += 1;
    }
}

/// One that announces kernels, another, and one that announces none.
const PROCESSES: [Holder; 3] = [HOLDER, 6, 7];

/// Blocks that a kernel needs at once.
const NEEDED: u32 = 1000;

proptest! {
    #![proptest_config(crate::testing::model(512))]

    /// Blocks that a kernel needs at once are all there after a fault for each, if they fit the GPU, whatever
    /// is marked, by whom, and whatever other kernels asked for.
    #[test]
    fn a_kernel_gets_what_it_needs_at_once(
        policy in 0..2u32,
        marks in proptest::collection::vec((0..3usize, 0..5u32, 0..5u32), 2..80),
        faulting in 0..3usize,
        share in 1..=100usize,
        order in proptest::collection::vec(0..1000u32, 0..200),
        announced in 0..4u32,
    ) {
        let chunks = marks.len() as u32;
        let mut roots = RootChunks::with_policy(chunks, Choice::from_number(policy).unwrap()).unwrap();
        let owners = [0, 1].map(|p| roots.add_owner(PROCESSES[p]));
        let mut by_kernel: Vec<_> = (0..chunks).zip(&marks).collect();
        by_kernel.sort_by_key(|&(_, &(_, asked, _))| asked);
        let mut begun = 0;
        for (chunk, &(process, asked, until)) in by_kernel {
            for &owner in owners.iter().filter(|_| begun != asked) {
                roots.begins(owner);
                roots.set_now(owner, asked);
            }
            begun = asked;
            roots.used_by(chunk, PROCESSES[process]).unwrap();
            if let Some(&owner) = owners.get(process) {
                // Four are expected of five, half of which kernels have asked for.
                if until > 0 {
                    roots.expect(chunk, owner, 4 + until);
                }
                if until > 2 {
                    roots.brought(chunk, owner);
                }
            }
        }
        for owner in owners.into_iter().filter(|_| begun != 4) {
            roots.begins(owner);
            roots.set_now(owner, 4);
        }
        // A chunk is last in its queue, too, once it was worked on.
        for (chunk, &(process, ..)) in (0..).zip(&marks) {
            roots.insert(chunk, PROCESSES[process]).unwrap();
        }
        // Under `mru` a program that announces nothing has only what that spares.
        let most = if policy == 1 && faulting == 2 { 8 } else { chunks as usize };
        let needed = (share * marks.len()).div_ceil(100).clamp(1, most) as u32;
        let mut full = Full { roots, holds: (0..chunks).collect(), evicted: 0 };
        let gets_all = |full: &mut Full| {
            for n in order.iter().copied().chain(0..needed) {
                full.touch(NEEDED + n % needed, PROCESSES[faulting]);
            }
        };
        gets_all(&mut full);
        prop_assert_eq!(full.evicted, needed);
        // What the next kernel needs comes again once, at most.
        for n in 1..=announced {
            for owner in owners {
                full.roots.begins(owner);
                full.roots.set_now(owner, 4 + n);
            }
            gets_all(&mut full);
            prop_assert!(full.evicted <= needed * (n + 1));
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::model(512))]

    /// The same after a kernel has gone through more than there is room for. What it asked for holds back nothing from
    /// others any more, and yet does not make way for what is only expected.
    #[test]
    fn a_kernel_that_went_through_much_gets_what_it_needs_at_once(
        policy in 0..2u32,
        chunks in 4..80u32,
        beyond in 1..100u32,
        unmarked in 1..3u32,
        needed in 2..4u32,
        order in proptest::collection::vec(0..1000u32, 0..200),
    ) {
        let mut roots = RootChunks::with_policy(chunks, Choice::from_number(policy).unwrap()).unwrap();
        let owner = roots.add_owner(HOLDER);
        for chunk in 0..chunks {
            roots.used_by(chunk, HOLDER).unwrap();
            roots.insert(chunk, HOLDER).unwrap();
        }
        roots.begins(owner);
        roots.set_now(owner, 4);
        let mut full = Full { roots, holds: (0..chunks).collect(), evicted: 0 };
        for block in 0..chunks + beyond {
            full.touch(2 * NEEDED + block, HOLDER);
        }
        prop_assert_eq!(full.evicted, chunks + beyond);
        // The worker has room again, and expects all but one or two of what there is.
        for chunk in unmarked..chunks {
            full.roots.expect(chunk, owner, 5 + chunk);
        }
        let needed = needed.min(chunks - unmarked);
        for n in order.iter().copied().chain(0..needed) {
            full.touch(NEEDED + n % needed, HOLDER);
        }
        prop_assert_eq!(full.evicted, chunks + beyond + needed);
    }
}

proptest! {
    #![proptest_config(crate::testing::model(256))]

    /// Under every policy: what moves no bytes goes first; what goes may go, and is the same when it is
    /// asked for again; if anything is used, something goes. And a policy is told of each chunk that
    /// comes and leaves.
    #[test]
    fn what_goes_may_go(
        policy in 0..Choice::ALL.len() as u32,
        steps in proptest::collection::vec((0..20u32, 0..8u8), 1..crate::testing::steps(200)),
    ) {
        let mut roots = RootChunks::with_policy(20, Choice::from_number(policy).unwrap()).unwrap();
        let owner = roots.add_owner(HOLDER);
        for (chunk, step) in steps {
            match step {
                0 => roots.change(chunk, Change::Free { zeroed: false }).unwrap(),
                1 => roots.change(chunk, Change::Pinned).unwrap(),
                2 => roots.change(chunk, Change::Whole(HOLDER)).unwrap(),
                3 => roots.change(chunk, Change::Split).unwrap(),
                4 => roots.set(chunk, Queue::Discarded).unwrap(),
                5 => roots.used_by(chunk, HOLDER).unwrap(),
                6 => roots.expect(chunk, owner, chunk),
                _ => _ = roots.begin_eviction(chunk),
            }
            let first = Queue::ORDER.into_iter().find(|&q| roots.length(q) > 0);
            let victim = roots.victim();
            prop_assert_eq!(victim, roots.victim());
            prop_assert_eq!(victim.map(|v| v.queue), first);
            prop_assert_eq!(victim.and_then(|v| roots.queue_of(v.chunk)), first);
            if let Some(victim) = victim {
                prop_assert_eq!(victim.expected, first == Some(Queue::Used) && roots.needed_in(victim.chunk).is_some());
            }
        }
    }
}
