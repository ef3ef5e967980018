// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What each part picks for what programs do, how soon, and what a wrong pick may cost.

use super::super::prefetch::Stats;
use super::*;
use crate::mask::{PageMask, Region};
use crate::testing::{model, Dice};
use crate::tree::{prefetch, Shape};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

const BLOCK: u64 = 1 << 21;
/// Chunks of the GPU.
const ROOM: u32 = 64;

/// The pages that come with an arrival and the services that it takes, with the tree, with nothing else, and with all of
/// the block.
type Costs = [(u32, u32); 3];

/// A program that fills one block after the other, and what that costs.
struct Served {
    it: Duel,
    next: u64,
    cost: u64,
    /// Pages that fault in each service, and what it costs.
    faulted: u32,
    work: u32,
}

fn pages_of(along: Along, [tree, nothing, block]: Costs) -> (u32, u32) {
    match along {
        Along::Tree => tree,
        Along::Nothing => nothing,
        Along::Block => block,
    }
}

fn cost_of(along: Along, costs: Costs, work: u32) -> u32 {
    let (pages, services) = pages_of(along, costs);
    pages + services * work
}

impl Served {
    fn new() -> Self {
        Self {
            it: Duel::new(ROOM),
            next: 0,
            cost: 0,
            faulted: 1,
            work: 20,
        }
    }

    /// So many arrivals, and what they cost.
    fn arrive(&mut self, count: u32, costs: Costs) -> u64 {
        let before = self.cost;
        for _ in 0..count {
            let address = self.next % 300 * BLOCK;
            self.next += 1;
            self.it.arrived(address);
            let (pages, services) = pages_of(self.it.along(address), costs);
            self.it.copied(address, pages.into());
            for _ in 0..services {
                // A few services are alone in a batch of faults, and cost far more.
                let alone = if self.next % 61 == 0 { 20 } else { 1 };
                self.it.served(address, self.faulted, self.work * alone);
            }
            self.cost += u64::from(pages + services * self.work);
        }
        self.cost - before
    }
}

impl Served {
    /// An arrival whose service costs what all do.
    fn arrive_evenly(&mut self, costs: Costs) {
        self.next += u64::from(self.next % 61 == 60);
        self.arrive(1, costs);
    }
}

/// All of a block, which takes two services, or one.
const DENSE: Costs = [(512, 2), (512, 2), (512, 1)];
/// A page here and there, 64 KiB with each, or the whole block.
const SPARSE: Costs = [(16, 1), (1, 1), (512, 1)];
/// A quarter of a block, in many services without the tree.
const CLUSTERED: Costs = [(128, 1), (128, 16), (512, 1)];
/// The three, with what is best of each, how many pages fault, and what a service costs.
const KINDS: [(Costs, Along, u32, u32); 3] = [
    (DENSE, Along::Block, 256, 180),
    (SPARSE, Along::Nothing, 1, 10),
    (CLUSTERED, Along::Tree, 16, 20),
];
/// Arrivals until the third rule has had its duel: three duels, and the windows between.
const SOON: u32 = 7 * 32;

#[test]
fn the_rule_that_costs_less_is_picked_soon_and_duels_cost_little() {
    for (costs, rule, faulted, work) in KINDS {
        let mut served = Served::new();
        (served.faulted, served.work) = (faulted, work);
        served.arrive(SOON, costs);
        assert_eq!(served.it.picked(), rule);
        let least = 100_000 * u64::from(cost_of(rule, costs, work));
        let cost = served.arrive(100_000, costs);
        assert_eq!(served.it.picked(), rule);
        std::println!("{rule:?}: {cost} of {least}");
        assert!(cost > least, "no duel");
        assert!(cost * 100 <= least * 104, "{rule:?}: {cost} of {least}");
    }
}

#[test]
fn another_cost_brings_duels_at_once() {
    for (first, _, faulted, work) in KINDS {
        let mut served = Served::new();
        (served.faulted, served.work) = (faulted, work);
        served.arrive(50_000, first);
        for (costs, rule, faulted, work) in KINDS.into_iter().chain(KINDS) {
            (served.faulted, served.work) = (faulted, work);
            served.arrive(SOON + 2 * 32, costs);
            assert_eq!(served.it.picked(), rule);
            served.arrive(10_000, costs);
        }
    }
    // Where neither differs, a duel is due some time.
    let mut served = Served::new();
    served.arrive(50_000, [(100, 1), (200, 1), (300, 1)]);
    served.arrive(3 * 128 * 32, [(100, 1), (200, 1), (50, 1)]);
    assert_eq!(served.it.picked(), Along::Block);
}

#[test]
fn a_rule_that_is_hardly_better_is_not_picked() {
    for (rival, picked) in [(855, Along::Tree), (854, Along::Nothing)] {
        let mut served = Served::new();
        let costs = [980, rival, 980].map(|pages| (pages, 1));
        // Of 1,000 and 875 in all.
        (0..20_000).for_each(|_| served.arrive_evenly(costs));
        assert_eq!(served.it.picked(), picked, "{rival}");
    }
    // Who never fills a sample's blocks decides nothing.
    let mut it = Duel::new(ROOM);
    (0..33).for_each(|b| it.arrived(b * BLOCK));
    let blocks = (0..).filter(|&b| it.along(b * BLOCK) == Along::Tree);
    let blocks: Vec<u64> = blocks.take(50).collect();
    for b in blocks.iter().cycle().take(5000) {
        it.arrived(b * BLOCK);
        it.copied(b * BLOCK, 1000);
        it.served(b * BLOCK, 1, 1);
        assert_eq!(it.picked(), Along::Tree);
    }
    assert!((0..300).any(|b| it.along(b * BLOCK) == Along::Nothing));
    // Once there are any, a window passes before the verdict.
    let sample = (0..).find(|b| it.along(b * BLOCK) == Along::Nothing);
    let sample = sample.unwrap_or(0);
    let arrivals = (1..100).find(|_| {
        it.arrived(sample * BLOCK);
        it.picked() != Along::Tree
    });
    assert!(arrivals.is_some_and(|n| n > 8), "{arrivals:?}");
}

/// A process whose blocks move without leaving the GPU for others, and that has too few for a window of a duel. In time
/// all of them are served the same way, and the duel is made up for when more arrive.
#[test]
fn a_duel_without_arrivals_ends() {
    for blocks in [31, 60] {
        let mut it = Duel::new(ROOM);
        let rivals = |it: &Duel| {
            let rivals = (0..60).filter(|b| it.along(b * BLOCK) != Along::Tree);
            rivals.count()
        };
        (0..blocks).for_each(|b| it.arrived(b * BLOCK));
        assert_eq!(rivals(&it) > 0, blocks > 32, "{blocks}");
        let mut services = 0;
        for b in (0..blocks).cycle() {
            if services > 0 && rivals(&it) == 0 {
                break;
            }
            it.copied(b * BLOCK, 512);
            it.served(b * BLOCK, 256, 20);
            services += 1;
            assert!(services <= 512 * 32, "{blocks}");
        }
        assert_eq!(services, if blocks > 32 { 512 * 32 } else { 1 });
        assert_eq!(it.picked(), Along::Tree);
        // What was counted before is not of the next duel, which comes after a window.
        for b in 0..if blocks > 32 { 32 } else { 1 } {
            it.arrived((100 + b) * BLOCK);
            assert_eq!(rivals(&it), 0, "{blocks}: {b}");
        }
        it.arrived(200 * BLOCK);
        assert_ne!(rivals(&it), 0);
        (0..512 * 32 - 1).for_each(|_| it.served(0, 1, 1));
        assert_ne!(rivals(&it), 0);
    }
}

/// The services of one rule's blocks happen to be alone in their batches of faults.
#[test]
fn luck_with_batches_decides_nothing() {
    let mut it = Duel::new(ROOM);
    for b in 0..200 {
        it.arrived(b * BLOCK);
        let work = if it.along(b * BLOCK) == Along::Tree {
            200
        } else {
            10
        };
        it.copied(b * BLOCK, 10);
        it.served(b * BLOCK, 1, work);
        assert_eq!(it.picked(), Along::Tree);
    }
}

/// A rule that is picked after a long time has a duel with the third one at once.
#[test]
fn a_new_pick_meets_the_third_rule_soon() {
    for last in [[300, 200, 50], [300, 50, 200]] {
        let mut served = Served::new();
        served.arrive(50_000, [(100, 1), (200, 1), (300, 1)]);
        let costs = last.map(|pages| (pages, 1));
        while served.it.picked() == Along::Tree {
            served.arrive(32, costs);
        }
        served.arrive(4 * 32, costs);
        assert_eq!(cost_of(served.it.picked(), costs, 0), 50);
    }
}

proptest! {
    #![proptest_config(model(128))]

    /// Whatever blocks cost, it ends at a rule that is nearly the best.
    #[test]
    fn the_better_rule_wins(
        phases in proptest::collection::vec((1..1000u32, 1..1000u32, 1..1000u32), 1..6),
    ) {
        let mut served = Served::new();
        for (tree, nothing, block) in phases {
            let costs = [tree, nothing, block].map(|pages| (pages, 1));
            served.arrive(5 * 128 * 32, costs);
            let pick = cost_of(served.it.picked(), costs, 20);
            let best = tree.min(nothing).min(block) + 20;
            prop_assert!(pick <= best * 5 / 4 + 1, "{} {:?}", pick, costs);
        }
    }
}

/// Kernels so far, and those of them that had been predicted.
fn stats(kernels: u64, kernels_right: u64) -> Stats {
    Stats {
        kernels,
        kernels_right,
        kernels_wrong: kernels - kernels_right,
        ..Stats::default()
    }
}

#[test]
fn the_prefetcher_is_on_while_it_is_right() {
    let (mut ahead, mut kernels, mut right) = (Ahead::default(), 0, 0);
    let mut window = |so_many: u64| {
        for i in 1..=16 {
            assert_eq!(ahead.looks(&stats(kernels, right)), ahead.picked());
            kernels += 1;
            right += u64::from(i <= so_many);
        }
        ahead.looks(&stats(kernels, right))
    };
    // 14 of 16 turn it on, and 8 keep it on.
    assert_eq!(
        [0, 13, 14, 13, 8].map(&mut window),
        [false, false, true, true, true]
    );
    assert_eq!([7, 8, 13, 15].map(&mut window), [false, false, false, true]);
}

/// Who looks seldom sees a longer window.
#[test]
fn a_longer_window_is_judged_by_the_same_share() {
    for (right, on) in [(874, false), (875, true)] {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.looks(&stats(1000, right)), on, "{right}");
        // Those have been judged.
        assert_eq!(ahead.looks(&stats(1015, right)), on);
        assert!(ahead.looks(&stats(1016, right + 16)));
        assert!(ahead.looks(&stats(2016, right + 516)));
        assert!(!ahead.looks(&stats(3016, right + 1015)));
    }
}

/// A kernel where none had been predicted, as after one that is unknown, is neither right nor wrong.
#[test]
fn kernels_without_a_prediction_do_not_count() {
    let mut ahead = Ahead::default();
    let mut looks = |kernels_right, kernels_wrong| {
        ahead.looks(&Stats {
            kernels: 3 * (kernels_right + kernels_wrong),
            kernels_right,
            kernels_wrong,
            ..Stats::default()
        })
    };
    assert!(!looks(15, 0));
    assert!(looks(15, 1));
    assert!(looks(23, 8));
    assert!(!looks(22, 10));
}

#[test]
fn a_block_arrives_once_until_it_leaves() {
    let mut here = Here::new(ROOM).unwrap();
    assert!(here.comes(BLOCK) && !here.comes(BLOCK + 0x5000));
    here.leaves(2 * BLOCK);
    assert!(!here.comes(BLOCK) && here.comes(2 * BLOCK));
    here.leaves(BLOCK + 0x7000);
    assert!(here.comes(BLOCK) && !here.comes(BLOCK) && !here.comes(2 * BLOCK));
}

#[test]
fn a_table_has_a_row_however_small_the_gpu_is() {
    let mut here = Here::new(0).unwrap();
    assert!((0..4).all(|b| here.comes(b * BLOCK)));
    assert!((0..4).all(|b| !here.comes(b * BLOCK)));
    // One after the other is forgotten.
    assert!((4..8).all(|b| here.comes(b * BLOCK)));
    assert!((4..8).all(|b| !here.comes(b * BLOCK)));
}

proptest! {
    #![proptest_config(model(256))]

    /// No block that comes is missed, and a block that is there is forgotten only for want of room.
    #[test]
    fn blocks_are_there_as_a_set_says(
        steps in proptest::collection::vec((0..80u64, any::<bool>()), 0..600),
    ) {
        let (mut here, mut set) = (Here::new(ROOM).unwrap(), BTreeSet::new());
        let mut again = 0;
        for (block, comes) in steps {
            if comes {
                let is_new = here.comes(block * BLOCK);
                let is_first = set.insert(block);
                prop_assert!(is_new || !is_first, "{}", block);
                again += u32::from(is_new && !is_first);
                while set.len() > ROOM as usize {
                    let first = set.pop_first().unwrap();
                    here.leaves(first * BLOCK);
                }
            } else {
                here.leaves(block * BLOCK);
                set.remove(&block);
            }
        }
        prop_assert!(again <= 60, "{}", again);
    }
}

/// Of a block with so many of its pages there, and a fault on one more.
#[test]
fn a_threshold_does_what_is_picked() {
    let mut dice = Dice::new(3);
    for there in [0, 1, 100, 300, 511] {
        let mut faulted = PageMask::EMPTY;
        let page = (dice.roll() % 512) as u16;
        faulted.fill(Region::new(page, page + 1));
        let mut leaves = faulted;
        while leaves.count() < there + 1 {
            let page = (dice.roll() % 512) as u16;
            leaves.fill(Region::new(page, page + 1));
        }
        let comes = |along: Along| {
            let threshold = along.threshold(51);
            prefetch(&leaves, Shape::WHOLE, &faulted, Region::WHOLE, threshold)
        };
        assert_eq!(comes(Along::Block).count(), 512);
        assert_eq!(comes(Along::Nothing).count(), 0);
        let tree = prefetch(&leaves, Shape::WHOLE, &faulted, Region::WHOLE, 51);
        assert_eq!(comes(Along::Tree), tree);
    }
}

#[test]
fn a_service_costs_less_where_it_is_one_of_many() {
    assert_eq!(
        [0, 1, 2, 274, 1000].map(service_work),
        [286, 286, 149, 13, 12]
    );
}

/// A process on a GPU of [`ROOM`] chunks, of which the oldest leaves.
struct Process {
    it: Chooser,
    there: Vec<u64>,
    arrivals: u32,
}

impl Process {
    fn new() -> Self {
        Self {
            it: Chooser::new(ROOM).unwrap(),
            there: Vec::new(),
            arrivals: 0,
        }
    }

    /// Faults on a block, which take as many pages and services as `costs` say with what comes along.
    fn faults(&mut self, block: u64, costs: Costs) {
        if !self.there.contains(&block) {
            if self.there.len() == ROOM as usize {
                self.it.left(self.there.remove(0) * BLOCK);
            }
            self.there.push(block);
            self.arrivals += 1;
        }
        let address = block * BLOCK;
        let (pages, services) = pages_of(self.it.faults(address), costs);
        for service in 0..services {
            assert!(!self.it.here.comes(address));
            let pages = if service == 0 { pages } else { 0 };
            self.it.copied(address, pages.into());
            self.it.served(address, 16, service_work(2));
        }
    }
}

/// All of it together: each of two processes has its own pick.
#[test]
fn a_process_has_a_pick_of_its_own() {
    let (mut dense, mut sparse) = (Process::new(), Process::new());
    let mut dice = Dice::new(7);
    for n in 0..2000u64 {
        dense.faults(n % 96, DENSE);
        sparse.faults(dice.roll() % 256, SPARSE);
    }
    assert_eq!(dense.it.picked(), Along::Block);
    assert_eq!(sparse.it.picked(), Along::Nothing);
}

/// Faults on blocks that stay are no arrivals, and nothing is picked for who has enough memory.
#[test]
fn who_has_enough_memory_is_left_as_it_is() {
    let mut process = Process::new();
    for n in 0..20_000u64 {
        process.faults(n % 31, DENSE);
    }
    assert_eq!((process.arrivals, process.it.picked()), (31, Along::Tree));
}
