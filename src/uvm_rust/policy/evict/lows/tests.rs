// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is protected, against plain lists; and what that is worth.

use super::*;
use crate::evict::policies::tests::Agrees;
use crate::evict::tests::gpu::Gpu;
use crate::evict::{spared, Change, Choice, RootChunks, Used};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

/// A GPU with lows, and the lows.
struct World {
    roots: RootChunks,
    lows: BTreeMap<Holder, u32>,
    /// All chunks are listed.
    ready: bool,
    chunks: u32,
    /// Chunks that are being evicted.
    leaving: Vec<Chunk>,
    /// Processes of which chunks are on their way to another list.
    settling: Vec<Holder>,
}

impl World {
    fn new(policy: Choice, chunks: u32) -> Self {
        let mut roots = RootChunks::with_policy(chunks, policy).unwrap();
        (0..chunks).for_each(|c| roots.change(c, Change::Free { zeroed: false }).unwrap());
        Self {
            roots,
            lows: BTreeMap::new(),
            ready: false,
            chunks,
            leaving: Vec::new(),
            settling: Vec::new(),
        }
    }

    /// With fewer places than there are processes. All chunks are listed.
    fn with_places(policy: Choice, chunks: u32, places: usize) -> Self {
        let mut world = Self::new(policy, chunks);
        world.roots = world.roots.with_places(places);
        world.ready = world.roots.heed_lows(u32::MAX);
        world
    }

    /// Sets a low as the driver does, whose process may have chunks in another list for a while.
    fn sets_low(&mut self, holder: Holder, low: u32) {
        let held = self.held(holder);
        if held > 0 && self.roots.protect(holder, low, held) {
            self.lows.insert(holder, low);
            self.roots.unsettle_low(holder);
            self.settling.retain(|of| *of != holder);
            self.settling.push(holder);
        }
    }

    /// Goes on with one of these for some steps.
    fn settles(&mut self, steps: u32) {
        if let Some(holder) = self.settling.pop() {
            if !self.roots.settle_low(holder, steps) {
                self.settling.insert(0, holder);
            }
        }
    }

    fn held(&self, holder: Holder) -> u32 {
        let held = (0..self.chunks).filter(|&c| self.roots.holder_of(c) == holder);
        held.count() as u32
    }

    fn is_protected(&self, holder: Holder) -> bool {
        let low = self.lows.get(&holder).copied().unwrap_or(0);
        let leaving = (0..self.chunks).filter(|&c| self.roots.is_leaving(c));
        let leaving = leaving.filter(|&c| self.roots.holder_of(c) == holder);
        self.ready && low > 0 && self.held(holder) - leaving.count() as u32 <= low
    }

    /// The used chunks that may go, the oldest first, by the rule.
    fn may_go(&self) -> Vec<Chunk> {
        let all: Vec<_> = self.roots.queues().iter(Queue::Used).collect();
        let some = all.iter().copied();
        let some = some.filter(|&c| !self.is_protected(self.roots.holder_of(c)));
        let some: Vec<_> = some.collect();
        if some.len() > spared(self.chunks) as usize {
            some
        } else {
            all
        }
    }

    /// Does a step, which is drawn.
    fn does(&mut self, (what, chunk, holder, number): (u8, Chunk, Holder, u32)) {
        let chunk = chunk % self.chunks;
        let on = self.roots.queue_of(chunk);
        let change = |roots: &mut RootChunks, change| roots.change(chunk, change).unwrap();
        match what {
            0 => change(
                &mut self.roots,
                Change::Free {
                    zeroed: number % 2 == 0,
                },
            ),
            1 => change(&mut self.roots, Change::Pinned),
            2 => change(&mut self.roots, Change::Split),
            3 if on.is_some() => {
                let queue = [Queue::Unused, Queue::Discarded][number as usize % 2];
                self.roots.set(chunk, queue).unwrap();
            }
            4 => self.evicts(),
            9 => self.ends(number % 3 != 0),
            5 => {
                if self.held(holder) > 0 && self.roots.protect(holder, number, self.held(holder)) {
                    self.lows.insert(holder, number);
                }
            }
            // Evictions that began before are not known.
            6 if self.ready || (0..self.chunks).all(|c| !self.roots.is_leaving(c)) => {
                self.ready |= self.roots.heed_lows(number % 4);
            }
            7 => self.roots.claim(chunk, holder).unwrap(),
            _ => {
                self.roots.used_by(chunk, holder).unwrap();
                change(&mut self.roots, Change::Whole(holder));
            }
        }
        self.ends_lows();
    }

    /// Who holds nothing has no low any more.
    fn ends_lows(&mut self) {
        let lows = core::mem::take(&mut self.lows).into_iter();
        self.lows = lows.filter(|&(h, _)| self.held(h) > 0).collect();
    }

    /// An eviction begins. Others may pick, and evict, before it ends.
    fn evicts(&mut self) {
        if let Some(chunk) = self.roots.choose(&mut Agrees) {
            self.roots.begin_eviction(chunk);
            self.leaving.push(chunk);
        }
    }

    fn ends(&mut self, got: bool) {
        let Some(chunk) = self.leaving.pop() else {
            return;
        };
        let change = if got { Change::Pinned } else { Change::Stays };
        self.roots.change(chunk, change).unwrap();
        self.roots.eviction_over(chunk, got).unwrap();
    }
}

/// How many policies there are; the last one is the tests' own, which expects to see all chunks.
const REAL: u32 = Choice::ALL.len() as u32 - 1;

/// A step of [`World::does`]. A low is set before chunks are listed, while they are, and after.
fn step() -> impl Strategy<Value = (u8, Chunk, Holder, u32)> {
    (0..24u8, 0..256u32, 1..6u64, 0..16u32)
}

/// Its process does not count as one that holds less for ever.
#[test]
fn a_chunk_that_is_taken_twice_leaves_once() {
    for (low, next) in [(2, 1), (3, 4)] {
        let mut roots = RootChunks::new(16).unwrap();
        for chunk in 0..16 {
            let holder = if chunk < 4 { 1 } else { 2 };
            roots.used_by(chunk, holder).unwrap();
            roots.change(chunk, Change::Whole(holder)).unwrap();
        }
        while !roots.heed_lows(7) {}
        assert!(roots.protect(1, low, 4));
        roots.begin_eviction(0);
        roots.begin_eviction(0);
        roots.eviction_over(0, true).unwrap();
        assert_eq!(roots.choose(&mut Agrees), Some(next), "low {low}");
    }
}

proptest! {
    #![proptest_config(crate::testing::model(1024))]

    /// Under every policy, what it sees and what goes is what the rule allows, in the order that there is without lows;
    /// and no chunk is missing.
    #[test]
    fn what_goes_is_what_plain_lists_say(
        policy in 0..REAL,
        chunks in prop_oneof![1..40u32, 100..200u32],
        steps in proptest::collection::vec(step(), 1..crate::testing::steps(500)),
    ) {
        let policy = Choice::from_number(policy).unwrap();
        let mut world = World::new(policy, chunks);
        for step in steps {
            world.does(step);
            let may_go = world.may_go();
            let some = world.roots.some_may_go();
            let used = some.map_or(Used::all(&world.roots), |some| Used::of(&world.roots, some));
            prop_assert_eq!(used.count() as usize, may_go.len());
            let near = |chunks: &mut dyn Iterator<Item = &Chunk>| -> Vec<_> { chunks.take(64).copied().collect() };
            prop_assert_eq!(used.oldest_first().collect::<Vec<_>>(), near(&mut may_go.iter()));
            prop_assert_eq!(used.newest_first().collect::<Vec<_>>(), near(&mut may_go.iter().rev()));
            let victim = world.roots.victim();
            if let Some(victim) = victim.filter(|victim| victim.queue == Queue::Used) {
                prop_assert!(may_go.contains(&victim.chunk), "{victim:?} of {may_go:?}");
                let first = match policy.name() {
                    "lru" => may_go[0],
                    "mru" => may_go[may_go.len().saturating_sub(9)],
                    _ => continue,
                };
                prop_assert_eq!(victim.chunk, first);
            } else {
                prop_assert!(victim.is_some() || may_go.is_empty());
            }
        }
        // Whatever is protected, all of it can be had in the end.
        let left = |world: &World| Queue::ORDER.map(|queue| world.roots.length(queue)).iter().sum::<u32>();
        for left_before in (1..=left(&world)).rev() {
            prop_assert_eq!(left(&world), left_before);
            world.evicts();
            world.ends(true);
        }
        prop_assert_eq!(left(&world), 0);
    }

    /// Where there are fewer places than processes, what goes is what the rule allows as soon as no chunk is on its way to
    /// another list, and until then it goes in the order that there is without lows.
    #[test]
    fn chunks_change_their_lists_as_lows_are_set(
        places in 2..5usize,
        chunks in prop_oneof![4..40u32, 100..200u32],
        steps in proptest::collection::vec(step(), 1..crate::testing::steps(500)),
    ) {
        let mut world = World::with_places(Choice::named("lru").unwrap(), chunks, places);
        for step in steps {
            match step {
                (4 | 9, ..) => {
                    world.evicts();
                    world.ends(true);
                    world.ends_lows();
                }
                (5 | 10, _, holder, low) => world.sets_low(holder, low),
                // Half of them go back to 0.
                (11, _, holder, _) => world.sets_low(holder, 0),
                (6 | 12 | 13, _, _, number) => world.settles(number % 8),
                _ => world.does(step),
            }
            let some = world.roots.some_may_go();
            let used = some.map_or(Used::all(&world.roots), |some| Used::of(&world.roots, some));
            let seen: Vec<_> = used.oldest_first().collect();
            let mut all = world.roots.queues().iter(Queue::Used);
            prop_assert!(seen.iter().all(|c| all.any(|of| of == *c)), "{seen:?}");
            if world.settling.is_empty() {
                let may_go = world.may_go();
                prop_assert_eq!(used.count() as usize, may_go.len());
                prop_assert_eq!(seen, may_go.into_iter().take(64).collect::<Vec<_>>());
            }
        }
        // Once all lows are gone, any process can have one.
        (1..6).for_each(|holder| world.sets_low(holder, 0));
        while !world.settling.is_empty() {
            world.settles(1);
        }
        for holder in 1..6 {
            if world.held(holder) > 0 {
                prop_assert!(world.roots.protect(holder, 1, world.held(holder)));
                prop_assert!(world.roots.protect(holder, 0, world.held(holder)));
                world.roots.unsettle_low(holder);
                while !world.roots.settle_low(holder, 3) {}
            }
        }
    }

    /// While no low is set, whether lows are heeded makes no difference.
    #[test]
    fn without_a_low_the_victims_are_the_same(
        policy in 0..REAL,
        chunks in 1..40u32,
        heeded in 0..200usize,
        steps in proptest::collection::vec(step(), 1..crate::testing::steps(300)),
    ) {
        let policy = Choice::from_number(policy).unwrap();
        let mut worlds = [World::new(policy, chunks), World::new(policy, chunks)];
        for (n, step) in steps.into_iter().enumerate() {
            if n >= heeded {
                worlds[1].roots.heed_lows(1);
            }
            if step.0 != 5 && step.0 != 6 {
                worlds.iter_mut().for_each(|world| world.does(step));
            }
            let [plain, heeding] = worlds.each_ref().map(|world| world.roots.victim());
            prop_assert_eq!(plain, heeding);
        }
    }
}

/// A loud process, and three that are promised what they go through.
fn with_lows(policy: &str, low: u32) -> Gpu {
    let mut gpu = Gpu::new(policy, 256);
    (1..5).for_each(|holder| gpu.protects(holder, low));
    gpu
}

#[test]
fn a_loud_neighbour_takes_nothing_that_is_protected() {
    for policy in ["lru", "mru", "fair"] {
        assert_eq!(with_lows(policy, 60).faults_beside_a_loud_one(), 0);
    }
    assert_eq!(
        with_lows("lru", 0).faults_beside_a_loud_one(),
        19 * 180,
        "without lows all of it comes again in each round"
    );
}

#[test]
fn what_a_process_does_not_use_of_its_low_is_lent() {
    let mut gpu = Gpu::new("lru", 64);
    gpu.protects(1, 32);
    (0..64).for_each(|block| _ = gpu.faults(2, block));
    assert_eq!(gpu.count(2), 64);
    (0..32).for_each(|block| _ = gpu.faults(1, block));
    assert_eq!((gpu.count(1), gpu.count(2)), (32, 32));
    // What is beyond the low is the other's as much as its own.
    (32..64).for_each(|block| _ = gpu.faults(1, block));
    assert_eq!((gpu.count(1), gpu.count(2)), (64, 0));
    (0..100).for_each(|block| _ = gpu.faults(2, block));
    assert_eq!((gpu.count(1), gpu.count(2)), (32, 32));
}

#[test]
fn a_low_that_is_set_late_protects_what_is_there() {
    let mut gpu = Gpu::new("lru", 64);
    for block in 0..16 {
        (1..3).for_each(|holder| _ = gpu.faults(holder, block));
    }
    gpu.protects(1, 16);
    (16..200).for_each(|block| _ = gpu.faults(2, block));
    assert_eq!((gpu.count(1), gpu.count(2)), (16, 48));
    gpu.protects(1, 0);
    (200..264).for_each(|block| _ = gpu.faults(2, block));
    assert_eq!((gpu.count(1), gpu.count(2)), (0, 64));
}

/// More is promised than there is, and a process without a low needs blocks at once.
#[test]
fn a_kernel_gets_on_beside_processes_that_are_protected() {
    for policy in ["lru", "fair"] {
        let mut gpu = Gpu::new(policy, 256);
        (2..6).for_each(|holder| gpu.protects(holder, 64));
        (2..6).for_each(|holder| (0..64).for_each(|block| _ = gpu.faults(holder, block)));
        // All are protected: the oldest of all goes.
        assert!(gpu.next().is_some());
        let needed = gpu.spared as u32;
        let mut faults = 0;
        while (0..needed).fold(0, |n, block| n + u32::from(gpu.faults(1, block))) > 0 {
            faults += 1;
            assert!(faults < 10, "{policy}: the kernel does not get on");
        }
        // And the others keep the rest.
        (0..1000).for_each(|block| _ = gpu.faults(1, block));
        assert_eq!(gpu.count(1), gpu.spared + 1, "{policy}");
    }
}

/// Each process has as much as all have, and faults on it in turn.
#[test]
fn who_are_all_protected_share_as_without_lows() {
    let [mut plain, mut lows] = [(); 2].map(|()| Gpu::new("lru", 64));
    (1..4).for_each(|holder| lows.protects(holder, 64));
    for (holder, block) in (0..600).map(|n| (1 + n % 3, n as u32 * 7 % 100)) {
        assert_eq!(plain.faults(holder, block), lows.faults(holder, block));
        assert_eq!(plain.holds, lows.holds);
    }
}

/// Evictions fail, as pages are held: what is protected goes, rather than that somebody gets no memory.
#[test]
fn where_nothing_else_can_be_evicted_what_is_protected_goes() {
    let mut gpu = Gpu::new("lru", 32);
    gpu.protects(1, 16);
    (0..16).for_each(|block| _ = gpu.faults(1, block));
    (0..16).for_each(|block| _ = gpu.faults(2, block));
    assert_eq!(gpu.next(), Some(2));
    gpu.roots.set_by_default(true);
    assert_eq!(gpu.next(), Some(1));
    gpu.roots.set_by_default(false);
    assert_eq!(gpu.next(), Some(2));
}

/// Its chunks are with those of all others by then, as so many had some before.
#[test]
fn a_low_that_is_set_late_beside_many_protects_what_is_there() {
    let many = PLACES as u64;
    let mut gpu = Gpu::new("lru", 256);
    gpu.protects(1000, 1);
    (2000..2000 + many).for_each(|holder| _ = gpu.faults(holder, 0));
    for block in 0..8 {
        (1..3).for_each(|holder| _ = gpu.faults(holder, block));
    }
    gpu.protects(1, 8);
    (0..1000).for_each(|block| _ = gpu.faults(3, block));
    assert_eq!((gpu.count(1), gpu.count(2)), (8, 0));
}

#[test]
fn who_has_no_low_any_more_leaves_the_place_to_others() {
    let many = PLACES as u64;
    let mut gpu = Gpu::new("lru", 512);
    // All have memory when they get a low, and have it still when that is none again.
    let all = 1..=2 * many;
    all.clone().for_each(|holder| _ = gpu.faults(holder, 0));
    for holders in [1..=many, many + 1..=2 * many] {
        holders.clone().for_each(|holder| gpu.protects(holder, 1));
        (0..1000).for_each(|block| _ = gpu.faults(1000, block));
        let kept = holders.clone().filter(|&holder| gpu.count(holder) == 1);
        assert!(kept.count() as u64 >= many / 2, "{holders:?}");
        holders.for_each(|holder| gpu.protects(holder, 0));
        all.clone().for_each(|holder| _ = gpu.faults(holder, 0));
    }
}

/// What it uses meanwhile is not in the list any more, so that the list comes to an end.
#[test]
fn a_list_is_given_back_however_much_its_process_uses() {
    let mut gpu = Gpu::new("lru", 64);
    gpu.protects(1, 16);
    (0..16).for_each(|block| _ = gpu.faults(1, block));
    assert!(gpu.roots.protect(1, 0, 16));
    gpu.roots.unsettle_low(1);
    let is_its = |c: &usize| gpu.holds[*c].is_some_and(|(holder, _)| holder == 1);
    let its: Vec<_> = (0..64).filter(is_its).collect();
    let mut used = its.iter().cycle();
    for _ in 0..40 {
        if gpu.roots.settle_low(1, 1) {
            return;
        }
        let chunk = *used.next().unwrap() as u32;
        gpu.roots.change(chunk, Change::Whole(1)).unwrap();
    }
    panic!("it goes on and on");
}

#[test]
fn more_processes_than_have_places() {
    let many = PLACES as u64;
    let mut gpu = Gpu::new("lru", 512);
    // Those without a low cannot take all places.
    (2000..2000 + many).for_each(|holder| _ = gpu.faults(holder, 0));
    let all = 1..=many + 8;
    all.clone().for_each(|holder| gpu.protects(holder, 4));
    for holder in all.clone() {
        (0..4).for_each(|block| assert!(gpu.faults(holder, block)));
    }
    // Those that came last have no place, and are not protected.
    (0..1000).for_each(|block| _ = gpu.faults(1000, block));
    for holder in all {
        let kept = if holder <= many / 2 { 4 } else { 0 };
        assert_eq!(gpu.count(holder), kept, "process {holder}");
    }
    // Where one ends, another comes.
    for chunk in 0..512 {
        if gpu.holds[chunk].is_some_and(|(holder, _)| holder == 7) {
            (gpu.roots
                .change(chunk as u32, Change::Free { zeroed: false }))
            .unwrap();
            gpu.holds[chunk] = None;
        }
    }
    (0..4).for_each(|block| assert!(gpu.faults(many + 3, block)));
    (0..1000).for_each(|block| _ = gpu.faults(1001, block));
    assert_eq!(gpu.count(many + 3), 4);
}
