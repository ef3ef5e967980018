// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Random fault storms, against our loop and upstream's.

use super::super::*;
use super::upstream::Upstream;
use super::world::{Page, State, Warp, World, BLOCK};
use super::{params, record};
use crate::testing::model;
use proptest::prelude::*;
use std::vec::Vec;

/// Channels 0 to 2 belong to VA space 0, 1, 0; 3 is gone, 4 has no subcontext, 5 is of
/// a VA space that the GPU has left.
const CHANNELS: [Translated; 6] = [
    Translated::Space(0),
    Translated::Space(1),
    Translated::Space(0),
    Translated::Stale,
    Translated::NoSubcontext,
    Translated::Space(2),
];
/// A page with accesses that are fatal by themselves.
const POISONED: u64 = 30;

#[derive(Clone, Debug)]
struct Storm {
    warps: Vec<Record>,
    policy: ReplayPolicy,
    coalesce: bool,
    max_batch: u32,
    again_in: Option<u32>,
    fails_in: Option<u32>,
    contended: u64,
    turn_us: u32,
    takes_us: (u64, u64),
    seed: u64,
}

fn storm(broken_channels: bool) -> impl Strategy<Value = Storm> {
    let channels = if broken_channels { 6 } else { 3 };
    let warp = (0..channels as u64, 0..=POISONED, 0..5u8, 0..8u16);
    (
        prop::collection::vec(warp, 1..crate::testing::steps(200)),
        0..4u32,
        any::<bool>(),
        1..64u32,
        prop::option::of(0..20u32),
        // All of them would never end.
        prop::sample::select(std::vec![0, 2, 3, 10]),
        // Of turns, and what a va_block takes of one.
        (0..3u32, 0..3000u64, 0..3000u64),
        any::<u64>(),
    )
        .prop_map(
            |(warps, policy, coalesce, max_batch, again_in, contended, turns, seed)| Storm {
                warps: warps
                    .into_iter()
                    .map(|(who, page, access, utlb)| Record {
                        // Over three va_blocks.
                        address: page % 3 * BLOCK + page / 3 * 4096,
                        fatal: u8::from(page == POISONED),
                        ..record(0, who, 0, access, utlb)
                    })
                    .collect(),
                policy: ReplayPolicy::from_number(policy),
                coalesce,
                max_batch,
                again_in,
                fails_in: None,
                contended,
                turn_us: 2000 * turns.0,
                takes_us: (turns.1, turns.2),
                seed,
            },
        )
}

impl Storm {
    fn params(&self) -> Params {
        Params {
            policy: self.policy,
            coalesce: self.coalesce,
            max_batch: self.max_batch,
            turn_us: self.turn_us,
            ..params()
        }
    }

    fn world(&self) -> World {
        let mut world = World::new(self.params().ring, self.seed);
        world.channels = CHANNELS.to_vec();
        world.registered = std::vec![true, true, false];
        world.again_in = self.again_in;
        world.fails_in = self.fails_in;
        world.contended = self.contended;
        world.takes_us = std::vec![self.takes_us; 3];
        for page in 0..POISONED {
            let kind = match page % 5 {
                0 => Page::Missing,
                1 => Page::ReadOnly,
                _ => Page::ReadWrite,
            };
            for space in 0..3 {
                world
                    .pages
                    .insert((space, page % 3 * BLOCK + page / 3 * 4096), kind);
            }
        }
        let stalled = |fault: &Record| Warp {
            fault: *fault,
            state: State::Stalled,
        };
        world.warps = self.warps.iter().map(stalled).collect();
        world
    }
}

/// Runs `service` as the bottom half is run: while the ring holds entries. An access
/// that is stalled then is stalled for ever.
pub(super) fn weather(
    world: &mut World,
    mut service: impl FnMut(&mut World) -> Result<(), u32>,
) -> u32 {
    world.issue();
    let mut errors = 0;
    for _ in 0..10_000 {
        if !world.pending() {
            assert!(!world.stalled(), "F-replay: a fault was lost");
            return errors;
        }
        errors += u32::from(service(world).is_err());
    }
    panic!("no end of faults");
}

/// What must become of an access.
fn due(world: &World, warp: &Warp) -> Option<State> {
    if warp.fault.access == Access::Prefetch as u8 {
        // Never stalled; counts as cancelled if its channel was, or if a fatal
        // fault of its page was cancelled first.
        return None;
    }
    let Translated::Space(space) = CHANNELS[warp.fault.who as usize] else {
        return Some(State::Cancelled);
    };
    if !world.registered[space as usize] {
        return Some(State::Cancelled);
    }
    Some(match world.pages.get(&(space, warp.fault.address)) {
        None | Some(Page::Missing) => State::Cancelled,
        Some(Page::ReadOnly) if warp.fault.access > Access::Read as u8 => State::Cancelled,
        _ => State::Done,
    })
}

fn states(world: &World) -> Vec<State> {
    let stalls = |w: &&Warp| w.fault.access != Access::Prefetch as u8;
    world.warps.iter().filter(stalls).map(|w| w.state).collect()
}

proptest! {
    #![proptest_config(model(1000))]

    /// Both loops end with the same accesses done, the same cancelled (those that
    /// cannot be serviced, and no other), and the same pages mapped.
    #[test]
    fn ends_as_upstream_does(storm in storm(true)) {
        let mut ours = storm.world();
        let mut service = Service::new(storm.params()).unwrap();
        prop_assert_eq!(weather(&mut ours, |w| service.run(w)), 0);
        prop_assert_eq!(ours.counted, ours.looked_at);
        prop_assert_eq!(ours.missed, ours.found);

        // Theirs waits for locks as long as that takes.
        let mut theirs = Storm { contended: 0, ..storm.clone() }.world();
        let mut upstream = Upstream::new(storm.params());
        prop_assert_eq!(weather(&mut theirs, |w| upstream.run(w)), 0);

        for warp in &ours.warps {
            if let Some(due) = due(&ours, warp) {
                prop_assert_eq!(warp.state, due, "{:?}", warp);
            }
        }
        prop_assert_eq!(states(&ours), states(&theirs));
    }

    /// After an error that is nobody's, the faults of the batch are cancelled and the
    /// rest go on; none is lost.
    #[test]
    fn survives_errors(storm in storm(false), fails_in in 0..10u32) {
        let storm = Storm { fails_in: Some(fails_in), ..storm };
        let mut world = storm.world();
        let mut service = Service::new(storm.params()).unwrap();
        let errors = weather(&mut world, |w| service.run(w));
        prop_assert!(errors <= 1);
        for warp in &world.warps {
            match due(&world, warp) {
                Some(State::Cancelled) => prop_assert_eq!(warp.state, State::Cancelled),
                _ if errors == 0 && warp.fault.access != 0 => {
                    prop_assert_eq!(warp.state, State::Done);
                }
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(model(1000))]

    /// What one VA space is refused costs it its faults, and no other (F-own).
    #[test]
    fn what_one_is_refused_spares_others(storm in storm(false), fails_in in 0..10u32) {
        let storm = Storm { fails_in: Some(fails_in), ..storm };
        let mut world = storm.world();
        world.is_own = true;
        let mut service = Service::new(storm.params()).unwrap();
        let _ = weather(&mut world, |w| service.run(w));
        for warp in &world.warps {
            let is_refused = matches!(
                (CHANNELS[warp.fault.who as usize], world.refused),
                (Translated::Space(space), Some(refused)) if space == refused
            );
            match due(&world, warp) {
                Some(due) if !is_refused => prop_assert_eq!(warp.state, due, "{:?}", warp),
                Some(State::Cancelled) => prop_assert_eq!(warp.state, State::Cancelled),
                _ => {}
            }
        }
    }
}

#[test]
fn an_empty_ring_gets_one_replay() {
    let mut world = World::new(params().ring, 1);
    let mut service = Service::new(params()).unwrap();
    service.run(&mut world).unwrap();
    assert_eq!((world.replays, world.flushes), (1, 0));
}

/// One access to each of 31 pages; how often the accesses were replayed.
fn replays(policy: ReplayPolicy) -> (u32, u32) {
    let mut world = World::new(params().ring, 1);
    world.channels = CHANNELS.to_vec();
    world.registered = std::vec![true; 3];
    for page in 0..31 {
        let address = page % 3 * BLOCK + page / 3 * 4096;
        world.pages.insert((0, address), Page::ReadWrite);
        let fault = Record {
            address,
            ..record(0, 0, 0, 2, 0)
        };
        world.warps.push(Warp {
            fault,
            state: State::Stalled,
        });
    }
    let mut service = Service::new(Params {
        policy,
        max_batch: 31,
        ..params()
    })
    .unwrap();
    world.prompt = true;
    world.issue();
    service.run(&mut world).unwrap();
    assert!(!world.stalled() && !world.pending());
    (world.replays, world.flushes)
}

#[test]
fn each_policy_replays_when_it_says() {
    // Three va_blocks in one batch; what the first two replays bring back too early
    // is a second batch, of two.
    assert_eq!(replays(ReplayPolicy::Block), (5, 0));
    assert_eq!(replays(ReplayPolicy::Batch), (1, 0));
    assert_eq!(replays(ReplayPolicy::BatchFlush), (1, 1));
    assert_eq!(replays(ReplayPolicy::Once), (1, 0));
}

/// In batches of one nothing is merged. Of the faults on a page, the first that reads it counts, and the first that
/// writes it, as it is not mapped for that; the others come from the ring when it is mapped.
#[test]
fn a_page_is_missing_once_for_each_access_in_whatever_batches() {
    let mut world = World::new(params().ring, 1);
    world.channels = CHANNELS.to_vec();
    world.registered = std::vec![true];
    world.pages.insert((0, 0), Page::ReadWrite);
    let (read, write) = (Access::Read as u8, Access::Write as u8);
    for access in [read, write, read, write] {
        world.warps.push(Warp {
            fault: record(0, 0, 0, access, 0),
            state: State::Stalled,
        });
    }
    let mut service = Service::new(Params {
        policy: ReplayPolicy::Batch,
        max_batch: 1,
        ..params()
    })
    .unwrap();
    assert_eq!(weather(&mut world, |w| service.run(w)), 0);
    let (faults, duplicates) = world.counted;
    assert!(faults >= 4, "{faults} faults");
    assert_eq!((faults - duplicates, world.missed), (2, 2));
}
