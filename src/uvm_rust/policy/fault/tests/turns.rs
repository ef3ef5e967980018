// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! VA spaces that take turns (F-turn): how long one whose faults come one at a time waits for another one's, and how the time
//! is shared out.

use super::super::turns::MOST_ROUNDS;
use super::super::*;
use super::world::{Page, State, Warp, World, BLOCK};
use super::{params, record};
use crate::testing::model;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const TURN_US: u64 = 4000;
/// A batch may hold all that is in it. Otherwise faults that replays bring too early would fill batches.
const RING: u32 = 2048;

fn by_turns(policy: ReplayPolicy) -> Params {
    Params {
        policy,
        turn_us: TURN_US as u32,
        ring: RING,
        max_batch: RING,
        ..params()
    }
}

/// A GPU with so many VA spaces besides number 0, which nobody has, and a channel for each.
fn world(spaces: u64, seed: u64) -> World {
    let mut world = World::new(RING, seed);
    world.channels = (0..=spaces).map(Translated::Space).collect();
    world.registered = vec![true; spaces as usize + 1];
    world.takes_us = vec![(0, 0); spaces as usize + 1];
    // No second of the past counts.
    world.now_us = 10_000_000;
    world
}

/// An access of a VA space to the first page of one of its va_blocks.
fn asks(world: &mut World, space: u64, block: u64) {
    let address = block * BLOCK;
    world.pages.insert((space, address), Page::ReadWrite);
    let fault = Record {
        address,
        ..record(0, space, 0, Access::Write as u8, 0)
    };
    let state = State::Stalled;
    world.warps.push(Warp { fault, state });
    world.issue_last();
}

/// Accesses to so many va_blocks from `from` on.
fn storms(world: &mut World, space: u64, from: u64, blocks: u64) {
    (from..from + blocks).for_each(|block| asks(world, space, block));
}

/// What a quiet VA space waits for, whose faults come one at a time beside a loud one's.
struct Waits {
    /// The most va_blocks of the loud one that were serviced between a fault and its service.
    blocks: usize,
    /// The longest time between them.
    us: u64,
    /// How many of the loud one's va_blocks were serviced in all.
    all: usize,
}

/// The quiet VA space has had a fault. The loud one has faults on 100 va_blocks, each of which takes `takes_us` and its copies. The quiet one has faults
/// on 20 more, each of which comes `after` va_blocks of the loud one.
fn beside_a_loud_one(
    params: Params,
    quiet: u64,
    takes_us: (u64, u64),
    after: usize,
    seed: u64,
) -> Waits {
    let loud = 3 - quiet;
    let mut world = world(2, seed);
    world.takes_us[loud as usize] = takes_us;
    world.takes_us[quiet as usize] = (100, 20);
    world.prompt = true;
    let mut service = Service::new(params).unwrap();
    asks(&mut world, quiet, 100);
    service.run(&mut world).unwrap();
    world.blocks.clear();
    storms(&mut world, loud, 0, 100);
    world.comes = Some((quiet, 20, after));
    let mut calls = 0;
    while world.pending() {
        service.run(&mut world).unwrap();
        calls += 1;
        assert!(calls < 10_000, "no end of faults");
    }
    assert!(!world.stalled(), "F-replay: a fault was lost");
    let came = core::mem::take(&mut world.came);
    assert!(!came.is_empty());
    let mut waits = Waits {
        blocks: 0,
        us: 0,
        all: world.blocks.iter().filter(|block| block.0 == loud).count(),
    };
    for (from, came_us) in came {
        let behind = &world.blocks[from..];
        let until = behind.iter().position(|block| block.0 == quiet).unwrap();
        waits.blocks = waits.blocks.max(until);
        waits.us = waits.us.max(behind[until].2 - came_us);
    }
    waits
}

/// Its bound: the rest of one turn, which ends with a va_block and the copies of a quarter. Without turns it is all there is.
#[test]
fn a_quiet_one_waits_for_the_rest_of_a_turn_at_most() {
    for quiet in [1, 2] {
        for policy in [0, 1, 2, 3].map(ReplayPolicy::from_number) {
            let params = by_turns(policy);
            let waits = beside_a_loud_one(params, quiet, (500, 0), 3, 1);
            assert!(waits.blocks <= 8, "{policy:?}: {} va_blocks", waits.blocks);
            assert!(waits.us <= TURN_US + 500, "{policy:?}: {} us", waits.us);
            assert!(waits.all >= 100);
            let without = Params {
                turn_us: 0,
                ..params
            };
            let waits = beside_a_loud_one(without, quiet, (500, 0), 3, 1);
            assert!(waits.blocks >= 90, "{policy:?}: {} va_blocks", waits.blocks);
        }
    }
}

/// Otherwise a turn would be as long as all the copies that it begins.
#[test]
fn copies_count_for_whom_they_are_for() {
    for quiet in [1, 2] {
        let params = by_turns(ReplayPolicy::BatchFlush);
        // Ten va_blocks in a quarter of a turn, whose copies take a turn.
        let waits = beside_a_loud_one(params, quiet, (100, 400), 3, 1);
        assert!(waits.blocks <= 10, "{} va_blocks", waits.blocks);
        assert!(waits.us <= 2 * TURN_US, "{} us", waits.us);
    }
}

/// T-place. Before each batch a fault comes on a va_block with a lower address, and a turn has time for one va_block.
#[test]
fn a_fault_is_serviced_although_others_come_at_lower_addresses() {
    const HIGH: u64 = 1000;
    for (is_fatal, falls) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = world(2, 1);
        world.takes_us = vec![(0, 0), (TURN_US, 0), (TURN_US, 0)];
        world.prompt = true;
        let params = Params {
            max_throttled: 1,
            ..by_turns(ReplayPolicy::BatchFlush)
        };
        let mut service = Service::new(params).unwrap();
        asks(&mut world, 1, HIGH);
        if is_fatal {
            world.pages.insert((1, HIGH * BLOCK), Page::Missing);
        }
        for batch in 0..10 {
            let low = if falls { HIGH / 2 - batch } else { batch };
            asks(&mut world, 1, low);
            storms(&mut world, 2, 2 * batch, 2);
            service.run(&mut world).unwrap();
        }
        let ended = match is_fatal {
            true => State::Cancelled,
            false => State::Done,
        };
        assert_eq!(world.warps[0].state, ended, "{is_fatal} {falls}");
    }
}

proptest! {
    #![proptest_config(model(200))]

    /// Whatever a va_block takes, and whenever the faults come.
    #[test]
    fn a_quiet_one_waits_for_a_turn_at_most(
        quiet in 1..3u64,
        policy in 0..4u32,
        own in 1..20_000u64,
        copies in 0..20_000u64,
        after in 1..20usize,
        seed in any::<u64>(),
    ) {
        let params = by_turns(ReplayPolicy::from_number(policy));
        let waits = beside_a_loud_one(params, quiet, (own, copies), after, seed);
        let a_turn = TURN_US / own + 1;
        prop_assert!(waits.blocks as u64 <= a_turn, "{} of {a_turn} va_blocks", waits.blocks);
        // A quarter of a turn has so many va_blocks, which are copied at the end of it.
        let of_quarter = (TURN_US / 4).div_ceil(own) + 1;
        let most = TURN_US + own + of_quarter * copies + 200;
        prop_assert!(waits.us <= most, "{} of {most} us", waits.us);
    }

    /// T-fair: VA spaces that have faults left over in each batch are serviced for the same time, and each of them has turns
    /// (T-progress).
    #[test]
    fn the_time_is_shared_out(
        takes_us in prop::collection::vec(200..30_000u64, 2..5),
        seed in any::<u64>(),
    ) {
        let spaces = takes_us.len() as u64;
        let mut world = world(spaces, seed);
        for (space, takes_us) in (1..).zip(&takes_us) {
            world.takes_us[space as usize] = (*takes_us, 0);
        }
        // One batch in a call.
        let params = Params { max_throttled: 1, ..by_turns(ReplayPolicy::BatchFlush) };
        let mut service = Service::new(params).unwrap();
        world.prompt = true;
        for space in 1..=spaces {
            storms(&mut world, space, 0, 30);
        }
        let left = |world: &World, space: u64| {
            let theirs = |warp: &&Warp| warp.fault.who == space && warp.state == State::Stalled;
            world.warps.iter().filter(theirs).count()
        };
        let mut next = vec![30; spaces as usize + 1];
        for _ in 0..60 {
            service.run(&mut world).unwrap();
            // Each has more than a turn can take.
            for space in 1..=spaces {
                let more = 30 - left(&world, space) as u64;
                storms(&mut world, space, next[space as usize], more);
                next[space as usize] += more;
            }
        }
        let longest = takes_us.iter().copied().max().unwrap_or(0);
        let share = |space: u64, until: u32| -> u64 {
            let of = world.blocks.iter().filter(|block| block.0 == space && block.1 < until);
            of.count() as u64 * takes_us[space as usize - 1]
        };
        for batch in 1..world.batches {
            let shares: Vec<_> = (1..=spaces).map(|space| share(space, batch)).collect();
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 2 * longest, "{shares:?} before batch {batch}");
        }
        for space in 1..=spaces {
            let batches = world.blocks.iter().filter(|block| block.0 == space).map(|block| block.1);
            let mut batches: Vec<_> = batches.collect();
            batches.push(world.batches);
            let gap = batches.windows(2).map(|pair| pair[1] - pair[0]).max();
            prop_assert!(gap <= Some(MOST_ROUNDS + 1), "{gap:?} batches between turns");
        }
    }
}
