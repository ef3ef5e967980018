// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What one process gives up, and whose a chunk is that is still pinned.

use super::super::holders::list_of;
use super::super::wait::Ended;
use super::super::{Change, Queue};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const HOLDER: Holder = 5;

/// A process that has the same list as `HOLDER`.
fn neighbour() -> Holder {
    let same = |&holder: &Holder| holder != HOLDER && list_of(holder) == list_of(HOLDER);
    (1..).find(same).unwrap()
}

/// Chunks by number, each of which its holder uses.
fn used(holders: &[Holder]) -> RootChunks {
    let mut roots = RootChunks::new(holders.len() as u32).unwrap();
    for (chunk, &holder) in (0..).zip(holders) {
        roots.used_by(chunk, holder).unwrap();
        roots.change(chunk, Change::Whole(holder)).unwrap();
    }
    roots
}

/// Lists that allow the eviction of all chunks but these.
struct But<'a>(&'a [Chunk]);

impl Lists for But<'_> {
    fn evictable(&mut self, chunk: Chunk) -> bool {
        !self.0.contains(&chunk)
    }
}

/// What goes, one after the other, until nothing is found.
fn all_of(roots: &mut RootChunks, holder: Holder) -> Vec<Chunk> {
    core::iter::from_fn(|| {
        let chunk = roots.choose_of(holder, &mut But(&[]))?;
        assert!(roots.begin_eviction(chunk).is_some(), "it was chosen");
        Some(chunk)
    })
    .collect()
}

#[test]
fn a_process_gives_up_its_own_oldest_first() {
    let mut roots = used(&[HOLDER, 7, HOLDER, neighbour(), HOLDER]);
    roots.used_by(0, HOLDER).unwrap();
    assert_eq!(all_of(&mut roots, HOLDER), [2, 4, 0]);
    assert_eq!(roots.length(Queue::Used), 2);
    assert_eq!(all_of(&mut roots, 9), []);
}

#[test]
fn what_moves_no_bytes_goes_first() {
    let mut roots = used(&[HOLDER; 6]);
    for (chunk, queue) in [
        (4, Queue::Discarded),
        (2, Queue::Discarded),
        (3, Queue::Unused),
    ] {
        roots.set(chunk, queue).unwrap();
    }
    roots.change(5, Change::Pinned).unwrap();
    // Of another's discarded ones nothing is seen.
    roots.change(0, Change::Whole(7)).unwrap();
    roots.set(0, Queue::Discarded).unwrap();
    assert_eq!(all_of(&mut roots, HOLDER), [3, 4, 2, 1]);
    // In use again, a chunk is on the other list.
    let mut roots = used(&[HOLDER; 2]);
    roots.set(0, Queue::Discarded).unwrap();
    roots.used_by(0, HOLDER).unwrap();
    assert_eq!(all_of(&mut roots, HOLDER), [1, 0]);
}

/// An allocation tries two.
#[test]
fn what_moves_no_bytes_and_always_fails_does_not_keep_used_ones_from_going() {
    for queue in [Queue::Unused, Queue::Discarded] {
        let mut roots = used(&[HOLDER; 4]);
        roots.set(0, queue).unwrap();
        roots.set(1, queue).unwrap();
        let mut tried = Vec::new();
        for _ in 0..6 {
            let chunk = roots.choose_of(HOLDER, &mut But(&[])).unwrap();
            tried.push(chunk);
            roots.begin_eviction(chunk);
            roots.change(chunk, Change::Stays).unwrap();
            roots.eviction_over(chunk, false).unwrap();
        }
        // Used ones that fail have their turns too.
        assert_eq!(tried, [0, 2, 1, 3, 0, 2], "{queue:?}");
        // What fails for others says nothing.
        roots.choose(&mut But(&[])).unwrap();
        roots.begin_eviction(1);
        roots.change(1, Change::Stays).unwrap();
        assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(0));
        // Where none is used, the others go on.
        for chunk in [2, 3] {
            roots.set(chunk, queue).unwrap();
        }
        roots.used_comes_first(HOLDER);
        assert!(roots.choose_of(HOLDER, &mut But(&[])).is_some());
    }
}

/// Another process is not asked for a used chunk, nor does it take that turn from the process whose eviction failed.
#[test]
fn a_failed_eviction_of_one_process_says_nothing_of_another() {
    let mut roots = used(&[HOLDER, HOLDER, 7, 7]);
    assert_ne!(list_of(HOLDER), list_of(7));
    roots.set(0, Queue::Discarded).unwrap();
    roots.set(2, Queue::Discarded).unwrap();
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(0));
    roots.begin_eviction(0);
    roots.change(0, Change::Stays).unwrap();
    roots.eviction_over(0, false).unwrap();
    assert_eq!(roots.choose_of(7, &mut But(&[])), Some(2));
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(1));
}

#[test]
fn what_the_process_expects_is_spared() {
    let mut roots = used(&[HOLDER; 3]);
    let owner = roots.add_owner(HOLDER);
    roots.begins(owner);
    roots.expect(0, owner, 3);
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(1));
    assert!(roots.has_spare(HOLDER) && !roots.has_spare(7));
    roots.expect(1, owner, 3);
    roots.expect(2, owner, 4);
    assert!(!roots.has_spare(HOLDER));
    // One has to go all the same, if a fault asks: what is needed last.
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(2));
    for queue in [Queue::Unused, Queue::Discarded] {
        roots.set(0, queue).unwrap();
        assert!(roots.has_spare(HOLDER), "{queue:?}");
        assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(0));
    }
}

#[test]
fn a_chunk_that_says_no_is_passed_over() {
    let mut roots = used(&[HOLDER; 3]);
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[0, 1])), Some(2));
    assert_eq!(roots.queue_of(0), None);
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[2])), None);
}

/// Many chunks of a process with the same list are in front, or pre-eviction has taken the chunk off its list.
#[test]
fn what_no_list_shows_is_found_by_its_number() {
    let reach = REACH as u32;
    let mut holders = std::vec![neighbour(); 3 * REACH];
    holders.push(HOLDER);
    let mut roots = used(&holders);
    let mut tries = 0;
    let found = loop {
        tries += 1;
        match roots.choose_of(HOLDER, &mut But(&[])) {
            None => assert!(tries < 10, "it is not found"),
            Some(chunk) => break chunk,
        }
    };
    assert_eq!((found, tries), (3 * reach, 4));
    let mut roots = used(&[7, HOLDER, HOLDER]);
    roots.pass_over(1, HOLDER);
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(2));
    roots.begin_eviction(2);
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(1));
}

/// A search that another process makes in between leaves this one's where it is.
#[test]
fn who_else_searches_by_number_hides_nothing() {
    let reach = REACH as u32;
    let mut roots = RootChunks::new(2 * reach).unwrap();
    let hidden = reach + 5;
    roots.used_by(hidden, HOLDER).unwrap();
    roots.change(hidden, Change::Whole(HOLDER)).unwrap();
    roots.pass_over(hidden, HOLDER);
    assert_ne!(list_of(HOLDER), list_of(7));
    let mut found = Vec::new();
    for _ in 0..4 {
        found.extend(roots.choose_of(HOLDER, &mut But(&[])));
        assert_eq!(roots.choose_of(7, &mut But(&[])), None);
    }
    assert_eq!(found, [hidden; 2]);
}

/// The GPU is full, so that the process gets back what it gives up. An instruction may need several blocks at once, and
/// each must stay for a while.
#[test]
fn what_is_found_by_its_number_and_claimed_again_is_not_the_next_to_go() {
    let mut holders = std::vec![neighbour(); 2 * REACH];
    holders.splice(REACH.., std::vec![HOLDER; 4]);
    let mut roots = used(&holders);
    let mut gone = Vec::new();
    while gone.len() < 8 {
        if let Some(chunk) = roots.choose_of(HOLDER, &mut But(&[])) {
            roots.begin_eviction(chunk);
            roots.eviction_over(chunk, true).unwrap();
            roots.claim(chunk, HOLDER).unwrap();
            roots.change(chunk, Change::Whole(HOLDER)).unwrap();
            gone.push(chunk - REACH as u32);
        }
    }
    assert_eq!(gone, [0, 1, 2, 3, 0, 1, 2, 3]);
}

/// Who else waits for memory is not told of it. What goes counts until it is gone.
#[test]
fn an_eviction_says_whether_it_makes_room_for_its_own_process() {
    let mut roots = used(&[HOLDER; 2]);
    let own = roots.choose_of(HOLDER, &mut But(&[])).unwrap();
    assert!(!roots.leaves_for_owner(own), "it has not begun");
    roots.begin_eviction(own);
    assert!(roots.leaves_for_owner(own));
    assert_eq!((roots.holder_of(own), roots.resident_of(own)), (HOLDER, 0));
    // It stays. Its end is told when others evict it already.
    roots.change(own, Change::Stays).unwrap();
    roots.choose(&mut But(&[1 - own])).unwrap();
    roots.begin_eviction(own);
    assert!(!roots.leaves_for_owner(own));
    assert_eq!(roots.eviction_over(own, false), Ok(true));
    assert_eq!(roots.eviction_over(own, true), Ok(false));
    assert_eq!(roots.holder_of(own), 0);
    // The same the other way round.
    let other = 1 - own;
    roots.begin_eviction(other);
    roots.change(other, Change::Stays).unwrap();
    roots.choose_of(HOLDER, &mut But(&[])).unwrap();
    roots.begin_eviction(other);
    assert_eq!(roots.eviction_over(other, false), Ok(false));
    assert_eq!(roots.eviction_over(other, true), Ok(true));
}

/// Threads that look for memory give up by that.
#[test]
fn the_end_of_an_eviction_says_of_how_many_chunks_one_was_held() {
    let held = Ended::Held { of: u32::MAX };
    for how in [Ended::Got, held, Ended::Guessed, Ended::Failed] {
        let mut roots = used(&[HOLDER; 3]);
        roots.set(2, Queue::Discarded).unwrap();
        roots.begin_eviction(0);
        if how != Ended::Got {
            roots.change(0, Change::Stays).unwrap();
        }
        let said = if how == held {
            Ended::Held { of: 3 }
        } else {
            how
        };
        assert_eq!(roots.eviction_ended(0, how), said);
        assert_eq!(roots.resident_of(0) == 0, how == Ended::Got, "it is over");
        // One more is being evicted, and is none to choose from.
        roots.begin_eviction(1);
        roots.begin_eviction(2);
        roots.change(2, Change::Stays).unwrap();
        let left = Ended::Held {
            of: 1 + u32::from(how != Ended::Got),
        };
        assert_eq!(roots.eviction_ended(2, held), left);
        // Of what goes for its own process others are told nothing, however it ends.
        let own = roots.choose_of(HOLDER, &mut But(&[])).unwrap();
        roots.begin_eviction(own);
        if how != Ended::Got {
            roots.change(own, Change::Stays).unwrap();
        }
        assert_eq!(roots.eviction_ended(own, how), Ended::ForOwner);
    }
}

#[test]
fn what_was_chosen_for_its_process_may_go_for_others_instead() {
    let mut roots = used(&[HOLDER; 3]);
    roots.choose_of(HOLDER, &mut But(&[])).unwrap();
    let other = roots.choose(&mut But(&[])).unwrap();
    roots.begin_eviction(other);
    assert!(!roots.leaves_for_owner(other));
    // Another one is asked for by its address meanwhile.
    let chosen = roots.choose_of(HOLDER, &mut But(&[])).unwrap();
    let asked_for = (0..3).find(|&c| c != chosen && c != other).unwrap();
    roots.begin_eviction(asked_for);
    assert!(!roots.leaves_for_owner(asked_for));
}

/// A running kernel's chunks are spared until it has had room for all of them. What processes at their maximum evict
/// for themselves leaves it no room.
#[test]
fn what_goes_for_its_owner_does_not_shorten_the_stay_of_others() {
    let mut roots = used(&[7, HOLDER, HOLDER, HOLDER]);
    let owner = roots.add_owner(7);
    roots.begins(owner);
    roots.used_by(0, 7).unwrap();
    roots.change(0, Change::Whole(7)).unwrap();
    let mut evicts = |own: bool| {
        let chosen = roots.choose_of(HOLDER, &mut But(&[])).unwrap();
        if !own {
            roots.chosen_for_owner = false;
        }
        roots.begin_eviction(chosen);
        roots.eviction_over(chosen, true).unwrap();
        roots.used_by(chosen, HOLDER).unwrap();
        roots.change(chosen, Change::Whole(HOLDER)).unwrap();
        roots.needed_in(0) == Some(0)
    };
    assert!((0..9).all(|_| evicts(true)));
    assert!(!(0..9).all(|_| evicts(false)), "others' evictions count");
}

/// Nobody is told when the owner frees a chunk that is being evicted.
#[test]
fn what_is_evicted_is_nobodys_at_the_end() {
    let mut roots = used(&[HOLDER; 3]);
    for chunk in 0..3 {
        roots.begin_eviction(chunk);
        assert_eq!(roots.holder_of(chunk), HOLDER);
    }
    roots.eviction_over(0, true).unwrap();
    assert_eq!((roots.holder_of(0), roots.resident_of(0)), (0, 0));
    roots.change(1, Change::Whole(HOLDER)).unwrap();
    roots.eviction_over(1, true).unwrap();
    assert_eq!(roots.holder_of(1), HOLDER, "it has stayed");
    // PMA had it by then, and another process has got it.
    roots.claim(2, 7).unwrap();
    roots.eviction_over(2, true).unwrap();
    assert_eq!(roots.holder_of(2), 7);
    assert_eq!(roots.eviction_over(3, true), Ok(false), "no such chunk");
}

#[test]
fn what_is_claimed_is_the_processs_while_it_is_pinned() {
    let mut roots = used(&[7, 7]);
    let owner = roots.add_owner(7);
    roots.expect(0, owner, 9);
    // It was evicted, and belongs to the allocation that had it evicted.
    roots.begin_eviction(0);
    roots.claim(0, HOLDER).unwrap();
    assert_eq!((roots.resident_of(0), roots.queue_of(0)), (HOLDER, None));
    assert_eq!(
        roots.needed_in(0),
        None,
        "the other expected what was there"
    );
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), None);
    // Pages are resident there before the chunk says whose it is.
    roots.used_by_claimant(0).unwrap();
    assert_eq!(roots.resident_of(0), HOLDER);
    // All of them have gone again, and others come.
    roots.set(0, Queue::Unused).unwrap();
    roots.used_by_claimant(0).unwrap();
    assert_eq!(roots.holder_of(0), HOLDER, "it counts all the time");
    roots.change(0, Change::Whole(HOLDER)).unwrap();
    assert_eq!(roots.choose_of(HOLDER, &mut But(&[])), Some(0));
    // Nobody has claimed this one.
    roots.begin_eviction(0);
    roots.used_by_claimant(0).unwrap();
    assert_eq!((roots.resident_of(0), roots.holder_of(0)), (0, 0));
    // Or it was not needed.
    roots.claim(1, HOLDER).unwrap();
    roots.change(1, Change::Free { zeroed: false }).unwrap();
    assert_eq!(roots.resident_of(1), 0);
    assert!(roots.claim(2, HOLDER).is_err());
}

proptest! {
    #![proptest_config(crate::testing::model(256))]

    /// Against a list of each process's chunks in the order in which they go.
    #[test]
    fn each_process_gives_up_what_a_list_says(
        steps in proptest::collection::vec((0..12u32, 0..8u8), 1..crate::testing::steps(300)),
    ) {
        let holders = [HOLDER, neighbour(), 7];
        let mut roots = RootChunks::new(12).unwrap();
        // Unused chunks of each process, its discarded and its used ones, in the order in which they came to be that.
        let mut order: BTreeMap<Holder, [Vec<Chunk>; 3]> = BTreeMap::new();
        for (chunk, what) in steps {
            let holder = holders[what as usize % 3];
            let queue = roots.queue_of(chunk);
            let whose = roots.holder_of(chunk);
            let forget = |order: &mut BTreeMap<Holder, [Vec<Chunk>; 3]>| {
                order.values_mut().flatten().for_each(|list| list.retain(|&c| c != chunk));
            };
            match what {
                0..=2 if queue.is_none() => {
                    roots.claim(chunk, holder).unwrap();
                    roots.change(chunk, Change::Whole(holder)).unwrap();
                    order.entry(holder).or_default()[2].push(chunk);
                }
                3 if queue.is_some() => {
                    forget(&mut order);
                    roots.set(chunk, Queue::Discarded).unwrap();
                    order.entry(whose).or_default()[1].push(chunk);
                }
                4 if matches!(queue, Some(Queue::Unused | Queue::Discarded)) => {
                    forget(&mut order);
                    roots.used_by(chunk, whose).unwrap();
                    order.entry(whose).or_default()[2].push(chunk);
                }
                6 if queue.is_some() => {
                    forget(&mut order);
                    roots.set(chunk, Queue::Unused).unwrap();
                    order.entry(whose).or_default()[0].push(chunk);
                }
                5 if queue.is_some() => {
                    forget(&mut order);
                    roots.change(chunk, Change::Free { zeroed: true }).unwrap();
                    roots.change(chunk, Change::Pinned).unwrap();
                }
                _ => {
                    let goes = order.entry(holder).or_default().iter().flatten().next().copied();
                    prop_assert_eq!(roots.choose_of(holder, &mut But(&[])), goes);
                    if let Some(goes) = goes {
                        roots.begin_eviction(goes);
                        roots.evicted(goes).unwrap();
                        order.values_mut().flatten().for_each(|list| list.retain(|&c| c != goes));
                    }
                }
            }
            for holder in holders {
                let held = (0..12).filter(|&c| roots.holder_of(c) == holder).count();
                let listed: usize = order.get(&holder).map_or(0, |lists| lists.iter().map(Vec::len).sum());
                prop_assert_eq!(held, listed);
            }
        }
    }
}
