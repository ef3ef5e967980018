// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The tier against a slow and obvious one, and one test for each sentence about whose turn it is.

use super::super::block::AGAIN_US;
use super::super::pace::Ns;
use super::super::pressure::{Pressure, Tried, AGAIN_MS};
use super::super::tier::{
    reads_for, Block, Ended, Owner, Records, Tier, ALL_EACH, FETCHERS_EACH, PREFETCHERS_EACH,
    READERS_EACH,
};
use super::super::wants::{Asks, Park, Stored, Wants};
use super::{fetch, pages, spill, table};
use crate::policy::flash::{BlockPages, Table};
use crate::policy::mask::PageMask;
use crate::testing::{setting, steps, Dice};
use std::collections::VecDeque;
use std::vec::Vec;

#[derive(Default)]
struct Live {
    blocks: Vec<Block<usize, usize>>,
    owners: Vec<Owner<usize, usize>>,
    /// Whose last reference is going.
    going: Vec<bool>,
    held: Vec<usize>,
    /// How often an owner was looked at.
    looks: u32,
}

impl Records for Live {
    type Block = usize;
    type Owner = usize;

    fn block(&mut self, of: usize) -> &mut Block<usize, usize> {
        &mut self.blocks[of]
    }

    fn owner(&mut self, of: usize) -> &mut Owner<usize, usize> {
        self.looks += 1;
        &mut self.owners[of]
    }

    fn hold(&mut self, of: usize) -> bool {
        if !self.going[of] {
            self.held.push(of);
        }
        !self.going[of]
    }
}

/// The tier, with its records.
#[derive(Default)]
struct Rig {
    tier: Tier<usize, usize, u32>,
    live: Live,
}

impl Rig {
    fn owner(&mut self) -> usize {
        let user = self.live.owners.len() as u32;
        self.owner_of(user)
    }

    fn owner_of(&mut self, user: u32) -> usize {
        let o = self.live.owners.len();
        self.live.owners.push(Owner::new(o as u64 + 1, user));
        self.tier.add_owner(&mut self.live, o);
        o
    }

    fn block(&mut self, owner: usize) -> usize {
        self.new_block(owner, false)
    }

    fn new_block(&mut self, owner: usize, has_pages: bool) -> usize {
        let b = self.live.blocks.len();
        self.live.blocks.push(Block::new(owner));
        self.live.going.push(false);
        self.tier.add_block(&mut self.live, b, has_pages);
        b
    }

    fn note(&mut self, b: usize, pages: u32) {
        self.tier.note(&mut self.live, b, pages, true);
    }

    /// An owner with blocks of so many pages.
    fn with(&mut self, pages: &[u32]) -> (usize, Vec<usize>) {
        let owner = self.owner();
        let blocks = pages.iter().map(|pages| {
            let b = self.block(owner);
            self.note(b, *pages);
            b
        });
        (owner, blocks.collect())
    }

    fn victim(&mut self) -> Option<usize> {
        self.tier.victim(&mut self.live)
    }

    fn must_wait(&mut self, owner: usize) -> bool {
        self.tier.must_wait(&mut self.live, owner)
    }

    fn copies(&mut self, of: Option<u64>) -> Option<usize> {
        self.tier.oldest_copies(&mut self.live, of)
    }

    fn asking(&mut self, owner: usize) -> Option<usize> {
        self.tier.next_asking(&mut self.live, owner, 0)
    }

    fn ask(&mut self, block: usize) -> Option<u32> {
        self.tier.ask(&mut self.live, block, Asks::Fault)
    }

    /// Asks for each of these blocks; returns whom that wakes.
    fn ask_each(&mut self, blocks: &[usize], asks: Asks) -> Vec<Option<u32>> {
        let asked = blocks.iter();
        asked
            .map(|block| self.tier.ask(&mut self.live, *block, asks))
            .collect()
    }
}

#[test]
fn who_has_most_is_spilled_longest_in_memory_first() {
    let mut r = Rig::default();
    let (_, few) = r.with(&[100]);
    let (_, many) = r.with(&[60, 60, 60]);
    r.tier.attach(1, 100, 2);
    assert_eq!(r.victim(), Some(many[0]));
    assert_eq!(r.victim(), Some(many[1]));
    // What is used again is the last.
    r.note(many[2], 60);
    r.tier.hope(&mut r.live, many[0]);
    assert_eq!(r.victim(), Some(many[0]));
    // It was spilled, and the next owner has most.
    r.tier.note(&mut r.live, many[0], 0, false);
    r.tier.note(&mut r.live, many[1], 0, false);
    assert_eq!(r.victim(), Some(few[0]));
    assert_eq!(r.live.held.len(), 4);
}

#[test]
fn an_owner_that_was_looked_at_in_vain_lets_others_be_spilled_until_there_is_hope() {
    let mut r = Rig::default();
    let (_, few) = r.with(&[100]);
    let (_, many) = r.with(&[60, 60]);
    r.tier.attach(1, 100, 2);
    // Each once, and one more.
    let looks: Vec<_> = (0..3).map(|_| r.victim()).collect();
    assert_eq!(looks, [Some(many[0]), Some(many[1]), Some(many[0])]);
    assert_eq!(r.victim(), Some(few[0]));
    r.tier.hope(&mut r.live, many[1]);
    assert_eq!(r.victim(), Some(many[1]));
    for _ in 0..9 {
        let _ = r.victim();
    }
    assert_eq!(r.victim(), None);
    r.tier.hope_for_all(&mut r.live);
    assert!(r.victim().is_some());
    // One that has nothing to spill is one less to look at.
    r.tier.dequeue(&mut r.live, many[0]);
    r.tier.dequeue(&mut r.live, many[0]);
    let looks: Vec<_> = (0..2).map(|_| r.victim()).collect();
    assert_eq!(looks, [Some(many[1]), Some(many[1])]);
    assert_eq!(r.victim(), Some(few[0]));
}

#[test]
fn who_has_less_than_its_share_neither_waits_nor_is_spilled() {
    let mut r = Rig::default();
    let (poor, _) = r.with(&[10]);
    let (rich, blocks) = r.with(&[95]);
    let empty = r.owner();
    r.tier.attach(1, 100, 1);
    // Of two that have any, with it three.
    assert!(r.must_wait(rich) && !r.must_wait(poor) && !r.must_wait(empty));
    assert!(r.tier.is_short());
    r.tier.dequeue(&mut r.live, blocks[0]);
    assert_eq!(r.victim(), None, "of the one that has less");
    r.tier.detach();
    assert!(!r.must_wait(rich));
}

/// What a guess would bring is not worth what workers spill for it.
#[test]
fn a_prefetch_leaves_the_last_eighth_to_others() {
    let mut r = Rig::default();
    let (owner, blocks) = r.with(&[87]);
    let mut lack = |pages| {
        r.tier.detach();
        r.tier.attach(1, 100, 1);
        r.note(blocks[0], pages);
        let asks = [Asks::Prefetch, Asks::Call, Asks::Fault];
        asks.map(|asks| r.tier.lacks_room(&mut r.live, owner, asks))
    };
    // An eighth of 100 is 12.
    assert_eq!(lack(88), [false; 3]);
    assert_eq!(lack(89), [true, false, false]);
    assert_eq!(lack(100), [true, false, false]);
    assert_eq!(lack(101), [true; 3]);
    r.tier.detach();
    assert!(!r.tier.lacks_room(&mut r.live, owner, Asks::Prefetch));
}

/// All faults ask under one lock, so each tenant must not make all of them slower.
#[test]
fn a_fault_looks_at_as_many_tenants_however_many_there_are() {
    let looks = |tenants: usize| {
        let mut r = Rig::default();
        let blocks: Vec<_> = (0..tenants).map(|_| r.with(&[200]).1[0]).collect();
        r.tier.attach(1, 100, 1);
        r.live.looks = 0;
        assert!(r.must_wait(0));
        r.note(blocks[0], 100);
        assert!(r.ask(blocks[0]).is_some());
        r.live.looks
    };
    assert_eq!(looks(1), looks(100));
}

#[test]
fn nobody_is_woken_or_waits_without_a_device_and_its_workers_end() {
    let mut r = Rig::default();
    let (owner, _) = r.with(&[300]);
    assert_eq!((r.tier.wakes(0), r.tier.device()), (0, None));
    assert!(r.victim().is_none() && !r.must_wait(owner));
    r.tier.attach(7, 100, 3);
    assert_eq!((r.tier.wakes(0), r.tier.device()), (3, Some(7)));
    assert!(r.tier.goes_on(7, 0) && !r.tier.goes_on(6, 0));
    let on = Ended {
        stops: false,
        again: None,
    };
    assert_eq!(r.tier.ended(7, Tried::Moved, 0), on);
    let ends = Ended { stops: true, ..on };
    assert_eq!(r.tier.ended(6, Tried::Moved, 0), ends);
    let again = Some(AGAIN_MS);
    assert_eq!(
        r.tier.ended(7, Tried::Suspended, 0),
        Ended { again, ..ends }
    );
    r.tier.detach();
    assert_eq!(r.tier.ended(7, Tried::Suspended, 0), ends);
    assert!(!r.tier.goes_on(7, 0) && r.tier.wakes(0) == 0);
}

#[test]
fn the_peak_begins_with_the_device() {
    let mut r = Rig::default();
    let (_, blocks) = r.with(&[300, 5]);
    r.tier.note(&mut r.live, blocks[0], 10, false);
    assert_eq!(r.tier.host(), (15, 305));
    r.tier.attach(1, 100, 1);
    assert_eq!(r.tier.host(), (15, 15));
    r.note(blocks[1], 20);
    r.tier.remove_block(&mut r.live, blocks[1]);
    assert_eq!(r.tier.host(), (10, 30));
}

#[test]
fn each_detaching_sees_each_block_once_and_passes_over_those_that_go() {
    let mut r = Rig::default();
    let (_, blocks) = r.with(&[1, 0, 1]);
    r.live.going[blocks[1]] = true;
    for detaching in 1..3 {
        let seen: Vec<_> = core::iter::from_fn(|| r.tier.unseen(&mut r.live, detaching)).collect();
        assert_eq!(seen, [blocks[0], blocks[2]]);
    }
    // Those that come meanwhile have nothing on the device, but for the upper halves of others.
    assert_eq!(r.tier.unseen(&mut r.live, 3), Some(blocks[0]));
    r.tier.remove_block(&mut r.live, blocks[2]);
    let b = r.block(0);
    assert_eq!(
        r.tier.unseen(&mut r.live, 3),
        None,
        "{b} is behind one that was seen"
    );
    let upper = r.new_block(0, true);
    assert_eq!(r.tier.unseen(&mut r.live, 3), Some(upper));
    assert_eq!(r.tier.unseen(&mut r.live, 3), None);
}

#[test]
fn the_oldest_copies_are_given_up_first_of_anybody_or_of_one() {
    let mut r = Rig::default();
    let (_, a) = r.with(&[1, 1]);
    let (_, b) = r.with(&[1, 1]);
    for block in [b[0], a[0], a[0], b[1], a[1], b[0]] {
        r.tier.note_copies(&mut r.live, block);
    }
    assert_eq!(r.copies(Some(1)), Some(a[0]));
    assert_eq!(r.copies(None), Some(b[0]));
    // One that is given up and has copies again is the last.
    r.tier.note_copies(&mut r.live, b[0]);
    r.live.going[b[1]] = true;
    assert_eq!(r.copies(None), Some(a[1]));
    assert_eq!((r.copies(Some(1)), r.copies(Some(3))), (None, None));
    assert_eq!((r.copies(None), r.copies(None)), (Some(b[0]), None));
}

/// A tenant's reads take no more turns than it has fetchers, and none is asked for in vain.
#[test]
fn a_fetcher_stays_awake_while_something_is_asked_for() {
    let mut r = Rig::default();
    let (owner, blocks) = r.with(&[1; 10]);
    let woken: Vec<_> = blocks.iter().map(|b| r.ask(*b)).collect();
    let all = (0..10).map(|n| (n < FETCHERS_EACH).then_some(n));
    assert_eq!(woken, all.collect::<Vec<_>>());
    r.tier.remove_block(&mut r.live, blocks[1]);
    r.live.going[blocks[2]] = true;
    assert_eq!(r.asking(owner), Some(blocks[0]));
    assert_eq!(r.asking(owner), Some(blocks[3]));
    assert!(r.tier.fetched(&mut r.live, owner, 5));
    while r.asking(owner).is_some() {}
    assert!(!r.tier.fetched(&mut r.live, owner, 5));
    assert_eq!(r.ask(blocks[0]), Some(5));
    // The others are still awake.
    assert_eq!(r.ask(blocks[3]), None);
    assert_eq!(r.asking(owner), Some(blocks[0]));
}

/// What a call wants later has readers of its own, and is a fault's as soon as a fault wants it.
#[test]
fn a_fault_does_not_wait_behind_what_is_wanted_later() {
    let mut r = Rig::default();
    let (owner, blocks) = r.with(&[1; 10]);
    let (reader, call) = (FETCHERS_EACH, Asks::Call);
    let woken = r.ask_each(&blocks, call);
    let all = (0..10).map(|n| (n < READERS_EACH).then_some(reader + n));
    assert_eq!(woken, all.collect::<Vec<_>>());
    assert_eq!(r.asking(owner), None, "no fault wants it");
    assert_eq!(r.ask(blocks[7]), Some(0));
    assert_eq!(r.asking(owner), Some(blocks[7]));
    let mut next = || r.tier.next_asking(&mut r.live, owner, reader);
    let rest: Vec<_> = core::iter::from_fn(&mut next).collect();
    assert_eq!(rest, [&blocks[..7], &blocks[8..]].concat());
    assert!(!r.tier.fetched(&mut r.live, owner, reader));
    assert_eq!(r.tier.ask(&mut r.live, blocks[0], call), Some(reader));
}

/// What a prefetch wants has readers of its own, and is a call's as soon as a call wants it.
#[test]
fn a_call_does_not_wait_behind_a_guess() {
    let mut r = Rig::default();
    let (owner, blocks) = r.with(&[1; 6]);
    let (reader, guesser) = (FETCHERS_EACH, FETCHERS_EACH + READERS_EACH);
    let (call, guess) = (Asks::Call, Asks::Prefetch);
    let woken = r.ask_each(&blocks, guess);
    let all = (0..6).map(|n| (n < PREFETCHERS_EACH).then_some(guesser + n));
    assert_eq!(woken, all.collect::<Vec<_>>());
    let next = |r: &mut Rig, number| r.tier.next_asking(&mut r.live, owner, number);
    assert_eq!(next(&mut r, reader), None, "no call wants it");
    assert_eq!(r.asking(owner), None, "no fault wants it");
    assert_eq!(r.tier.ask(&mut r.live, blocks[3], call), Some(reader));
    assert_eq!(next(&mut r, reader), Some(blocks[3]));
    let rest: Vec<_> = core::iter::from_fn(|| next(&mut r, guesser)).collect();
    assert_eq!(rest, [&blocks[..3], &blocks[4..]].concat());
    assert!(!r.tier.fetched(&mut r.live, owner, guesser));
    assert_eq!(r.tier.ask(&mut r.live, blocks[0], guess), Some(guesser));
}

/// A prefetch asks for what is on the device and is not asked for, of a block of which all could be read. It is told when
/// that was tried, and again as long as somebody else reads some of it.
#[test]
fn a_prefetch_asks_for_what_nobody_has_asked_for() {
    let (mut t, mut wants) = (table(4), Wants::default());
    let (mut state, none) = (BlockPages::new(512), PageMask::EMPTY);
    let stored = |idle, coming| Stored {
        idle,
        coming,
        failed: false,
    };
    assert_eq!(wants.stored(&state), Stored::default());
    spill(&mut t, &mut state, pages(0, 100));
    assert_eq!(wants.stored(&state), stored(pages(0, 100), none));
    assert!(wants.ask(&pages(0, 40), Asks::Prefetch), "somebody is told");
    assert!(!wants.ask(&pages(40, 50), Asks::Prefetch), "once");
    assert_eq!(wants.stored(&state), stored(pages(50, 100), pages(0, 50)));
    assert_eq!(wants.read_by(Asks::Prefetch), Some(Asks::Prefetch));
    assert_eq!(wants.read_by(Asks::Call), None);
    assert!(wants.ask(&pages(0, 1), Asks::Call), "a call is more urgent");
    assert_eq!(wants.read_by(Asks::Prefetch), Some(Asks::Call));
    let read = state.begin_read(&mut t, &pages(0, 60)).unwrap().unwrap();
    assert_eq!(wants.stored(&state), stored(pages(60, 100), pages(0, 60)));
    // Who was asked has tried, and another one reads still.
    wants.tried(Asks::Prefetch, false, Some(&state));
    assert!(wants.tells_prefetch(Some(&state)));
    assert_eq!(wants.stored(&state), stored(pages(60, 100), pages(0, 60)));
    let _ = state.end_read(&mut t, read, &pages(0, 60), &none, false);
    assert!(wants.tells_prefetch(Some(&state)));
    assert!(!wants.tells_prefetch(Some(&state)), "once it is over");
    assert_eq!(wants.stored(&state), stored(pages(60, 100), none));
    assert!(wants.ask(&pages(60, 70), Asks::Call));
    assert!(!wants.tells_prefetch(Some(&state)), "it did not ask");
    // It waits for what the call has asked for: it hears of another's read that ends, and of this one.
    wants.tell_prefetch();
    assert!(wants.tells_prefetch(Some(&state)));
    wants.tried(Asks::Prefetch, false, Some(&state));
    assert!(wants.tells_prefetch(Some(&state)));
    assert!(!wants.tells_prefetch(None), "nobody reads any more");
    // A read of a page fails: nothing of the block is asked for until the page is read, or forgotten.
    let read = state.begin_read(&mut t, &pages(60, 70)).unwrap().unwrap();
    let _ = state.put_off(&read, (&pages(60, 61), &none), 0);
    let _ = state.end_read(&mut t, read, &pages(61, 70), &none, false);
    let failed = Stored {
        failed: true,
        ..Stored::default()
    };
    assert_eq!(wants.stored(&state), failed);
    state.forget(&mut t, &pages(60, 61));
    assert_eq!(wants.stored(&state), stored(pages(70, 100), none));
    // So it is for what faults wanted and did not get, which they have not found out.
    assert!(wants.ask(&pages(70, 71), Asks::Fault));
    wants.tried(Asks::Prefetch, true, Some(&state));
    assert!(wants.stored(&state).failed);
    wants.arrived(&pages(70, 71));
    assert!(!wants.stored(&state).failed);
    fetch(&mut t, &mut state, PageMask::FULL);
}

/// Another one has read what a reader was woken for, and somebody less urgent has asked for more since.
#[test]
fn what_a_reader_leaves_alone_stays_asked_for() {
    let (mut wants, state) = (Wants::default(), BlockPages::new(512));
    for (reader, asks) in [
        (Asks::Call, Asks::Prefetch),
        (Asks::Fault, Asks::Prefetch),
        (Asks::Fault, Asks::Call),
    ] {
        assert!(wants.ask(&pages(0, 9), asks), "{asks:?} has one told");
        assert_eq!(wants.read_by(reader), None);
        for failed in [false, true] {
            wants.tried(reader, failed, Some(&state));
            assert_eq!(
                (wants.asked(), wants.read_by(asks)),
                (pages(0, 9), Some(asks))
            );
        }
        // Whoever has been told of it reads it, and who asks then has one told again.
        wants.tried(asks, false, Some(&state));
        assert_eq!(wants.asked(), PageMask::EMPTY);
    }
}

#[test]
fn what_is_written_by_call_is_paid_for_by_each_alone() {
    let mut r = Rig::default();
    let (a, b) = (r.owner(), r.owner());
    r.tier.wrote(&mut r.live, a, Ns(0), 3 << 20, 1);
    assert!(!r.tier.may_write(&mut r.live, a, Ns(0)));
    assert!(r.tier.may_write(&mut r.live, b, Ns(0)));
    assert!(r.tier.may_write(&mut r.live, a, Ns(2_000_000_000)));
}

/// Or who closes all that it has after each part writes as fast as the device does.
#[test]
fn who_begins_anew_goes_on_paying() {
    let mut r = Rig::default();
    let a = r.owner_of(1000);
    r.tier.wrote(&mut r.live, a, Ns(0), 16 << 20, 1);
    // It begins anew while the tier still knows of what it closed.
    r.tier.owner_leaves(&mut r.live, a);
    let (again, other) = (r.owner_of(1000), r.owner_of(1001));
    assert!(!r.tier.may_write(&mut r.live, again, Ns(14_000_000_000)));
    assert!(r.tier.may_write(&mut r.live, again, Ns(15_000_000_000)));
    assert!(r.tier.may_write(&mut r.live, other, Ns(0)));
    r.tier.remove_owner(&mut r.live, a);
    let third = r.owner_of(1000);
    assert!(!r.tier.may_write(&mut r.live, third, Ns(14_000_000_000)));
}

#[test]
fn faults_wait_for_what_is_on_flash_or_under_way_unless_that_has_failed() {
    let (mut t, mut wants) = (table(4), Wants::default());
    let mut state = BlockPages::new(512);
    spill(&mut t, &mut state, pages(0, 100));
    assert_eq!(wants.park(&mut state, 0, &pages(100, 200)), Park::No);
    assert_eq!(
        wants.park(&mut state, 0, &pages(90, 200)),
        Park::Ask(pages(90, 100))
    );
    let (fault, call) = (Asks::Fault, Asks::Call);
    assert!(wants.ask(&pages(90, 100), fault), "somebody is told");
    assert!(!wants.ask(&pages(10, 20), fault), "once");
    assert!(!wants.ask(&pages(10, 20), call) && wants.is_urgent());
    assert_eq!(wants.asked(), pages(90, 100) | pages(10, 20));
    wants.tried(Asks::Prefetch, true, Some(&state));
    assert!(wants.asked().is_empty());
    // One fault on these finds out, and others wait meanwhile, also of the same batch; the next is put off again.
    let ask = |first, outer| Park::Ask(pages(first, outer));
    assert_eq!(wants.park(&mut state, 0, &pages(0, 1)), ask(0, 1));
    assert_eq!(wants.park(&mut state, 0, &pages(80, 100)), ask(80, 90));
    assert_eq!(wants.park(&mut state, 0, &pages(90, 100)), Park::No);
    assert!(!wants.finds_out(95, 0), "nothing is lost");
    assert_eq!(wants.park(&mut state, 0, &pages(90, 100)), ask(90, 100));
    assert_eq!(wants.park(&mut state, 0, &pages(10, 20)), Park::No);
    assert!(wants.ask(&pages(0, 1), fault));
    wants.tried(Asks::Prefetch, false, Some(&state));
    // What fails that is wanted later, a fault does not wait for in vain.
    assert!(wants.ask(&pages(0, 1), call) && !wants.is_urgent());
    wants.tried(Asks::Prefetch, true, Some(&state));
    assert_eq!(
        wants.park(&mut state, 0, &pages(0, 1)),
        Park::Ask(pages(0, 1))
    );
    assert!(wants.ask(&pages(0, 9), call));
    wants.came(&pages(0, 5));
    assert_eq!(wants.asked(), pages(5, 9), "it may have left again");
    assert!(wants.ask(&pages(0, 1), fault), "now it is urgent");
    wants.came(&pages(0, 1));
    assert!(pages(0, 1).is_subset(&wants.asked()), "a fault wants it");
    assert!(wants.is_urgent());
    wants.tried(Asks::Prefetch, false, Some(&state));
    assert!(!wants.is_urgent());
    // What is discarded while it is read, and what is read.
    let read = state.begin_read(&mut t, &pages(0, 50)).unwrap().unwrap();
    state.forget(&mut t, &pages(0, 10));
    assert_eq!(wants.park(&mut state, 0, &pages(0, 5)), Park::Wait);
    assert_eq!(
        wants.park(&mut state, 0, &pages(5, 20)),
        Park::Ask(pages(10, 20))
    );
    let _ = state.end_read(&mut t, read, &PageMask::FULL, &PageMask::EMPTY, false);
    assert_eq!(wants.park(&mut state, 0, &pages(0, 50)), Park::No);
    fetch(&mut t, &mut state, PageMask::FULL);
}

/// The device does not give the pages of a read that ends at `now`. Meanwhile the block is as `during` sees it.
fn read_in_vain(
    t: &mut Table,
    state: &mut BlockPages,
    wanted: PageMask,
    now: u64,
    during: impl FnOnce(&BlockPages),
) {
    let none = PageMask::EMPTY;
    let read = state.begin_read(t, &wanted).unwrap().unwrap();
    during(state);
    state.put_off(&read, (&wanted, &none), now);
    let _ = state.end_read(t, read, &none, &none, false);
}

/// Pages that could not be read are read again by who reads for faults, not by the thread that services them.
#[test]
fn faults_wait_for_what_may_be_read_again() {
    let (mut t, mut wants) = (table(4), Wants::default());
    let mut state = BlockPages::new(512);
    spill(&mut t, &mut state, pages(0, 100));
    let lost = pages(0, 10);
    read_in_vain(&mut t, &mut state, lost, 0, |_| ());
    assert_eq!(wants.park(&mut state, AGAIN_US - 1, &lost), Park::No);
    assert!(wants.finds_out(3, AGAIN_US - 1) && state.lost() == lost);
    // It is asked for those that are wanted.
    let (one, again) = (pages(0, 4), Park::Ask(pages(0, 4)));
    assert_eq!(wants.park(&mut state, AGAIN_US, &one), again);
    assert!(!wants.finds_out(3, AGAIN_US));
    assert_eq!(
        (state.lost(), state.on_flash()),
        (lost - one, pages(10, 100) | one)
    );
    assert!(wants.ask(&one, Asks::Fault));
    // They fail again, while what was asked for since is read for long.
    read_in_vain(&mut t, &mut state, one, 2 * AGAIN_US, |_| ());
    assert_eq!(wants.park(&mut state, 4 * AGAIN_US, &pages(0, 4)), Park::No);
    // Others that have failed are asked for also then.
    let six = pages(6, 7);
    assert_eq!(wants.park(&mut state, 4 * AGAIN_US, &six), Park::Ask(six));
    wants.tried(Asks::Prefetch, true, Some(&state));
    // The faults that wait for that find out, however late it is.
    let late = 8 * AGAIN_US;
    assert_eq!(wants.park(&mut state, late, &one), Park::No);
    assert!(wants.finds_out(3, late) && state.lost().intersects(&one));
    // The next ones wait.
    assert_eq!(wants.park(&mut state, late, &one), again);
    state.release(&mut t);
}

/// A copy engine's fault looks at pages one by one. Only what other faults are finding out of stays
/// lost for it, and only meanwhile: it is fatal.
#[test]
fn what_is_found_out_of_is_what_a_fault_wants_and_for_a_while() {
    let (mut t, mut wants) = (table(4), Wants::default());
    let mut state = BlockPages::new(512);
    spill(&mut t, &mut state, pages(0, 100));
    read_in_vain(&mut t, &mut state, pages(0, 10), 0, |_| ());
    assert_eq!(wants.park(&mut state, 5, &pages(0, 4)), Park::No);
    let finds_out = |wants: &Wants, now| {
        let found = (0..512).filter(|page| wants.finds_out(*page, now));
        found.collect::<Vec<_>>()
    };
    assert_eq!(finds_out(&wants, 5), [0, 1, 2, 3]);
    // Others, whose pages are there, do not end it.
    assert_eq!(wants.park(&mut state, 5, &pages(200, 201)), Park::No);
    assert_eq!(finds_out(&wants, 4 + AGAIN_US), [0, 1, 2, 3]);
    assert_eq!(finds_out(&wants, 5 + AGAIN_US), [0; 0]);
    state.release(&mut t);
}

/// The thread of all processes' faults reads for no copy engine's, not even what could not be fetched, whenever that was.
#[test]
fn a_copy_engines_fault_waits_for_what_failed_and_not_for_what_is_lost() {
    let (mut t, mut wants) = (table(4), Wants::default());
    let mut state = BlockPages::new(512);
    spill(&mut t, &mut state, pages(0, 100));
    let one = pages(3, 4);
    let parks = |state: &BlockPages| Wants::park_copy(state, &one);
    assert_eq!(parks(&state), Park::Ask(one));
    // A fetcher had no memory. A fault that is repeated reads by itself then.
    assert!(wants.ask(&one, Asks::Fault));
    wants.tried(Asks::Fault, true, Some(&state));
    assert_eq!(parks(&state), Park::Ask(one));
    assert_eq!(wants.park(&mut state, 0, &one), Park::No);
    // The device did not give it: the fault finds out.
    let fails = |t: &mut Table, state: &mut BlockPages, wants: &mut Wants, now| {
        assert!(wants.ask(&one, Asks::Fault));
        // What is being read is asked for as well: the read may fail.
        let both = pages(3, 5);
        read_in_vain(t, state, one, now, |state| {
            assert_eq!(Wants::park_copy(state, &both), Park::Ask(both));
        });
        wants.tried(Asks::Fault, true, Some(state));
    };
    fails(&mut t, &mut state, &mut wants, 0);
    assert_eq!((parks(&state), state.lost()), (Park::No, one));
    // Nobody found out, and a second later it is read again.
    state.read_again_at(AGAIN_US, &one);
    assert_eq!(parks(&state), Park::Ask(one));
    // One finds out. An hour later another fault, of a kernel, has the page read, and does not end.
    fails(&mut t, &mut state, &mut wants, AGAIN_US);
    wants.found_out(3);
    let later = 3_600_000_000;
    assert_eq!(wants.park(&mut state, later, &one), Park::Ask(one));
    assert!(!wants.finds_out(3, later));
    fetch(&mut t, &mut state, PageMask::FULL);
    assert_eq!(parks(&state), Park::No);
}

/// What has come is waited for when it has left again, and not read by the thread that services all processes' faults.
#[test]
fn what_came_beside_what_failed_is_waited_for_again() {
    let (mut t, mut wants) = (table(4), Wants::default());
    let mut state = BlockPages::new(512);
    let all = pages(0, 100);
    spill(&mut t, &mut state, all);
    assert_eq!(wants.park(&mut state, 0, &all), Park::Ask(all));
    assert!(wants.ask(&all, Asks::Fault));
    let came = pages(0, 50);
    fetch(&mut t, &mut state, came);
    wants.arrived(&came);
    wants.tried(Asks::Prefetch, true, Some(&state));
    spill(&mut t, &mut state, came);
    assert_eq!(wants.park(&mut state, 0, &came), Park::Ask(came));
    // What somebody else has read since.
    let later = pages(50, 60);
    fetch(&mut t, &mut state, later);
    wants.arrived(&later);
    spill(&mut t, &mut state, later);
    assert_eq!(wants.park(&mut state, 0, &later), Park::Ask(later));
    assert_eq!(wants.park(&mut state, 0, &pages(60, 100)), Park::No);
    fetch(&mut t, &mut state, PageMask::FULL);
}

/// The same, slowly: what each operation is to find.
#[derive(Default)]
struct Model {
    owners: Vec<Tenant>,
    blocks: Vec<Seen>,
    all: VecDeque<usize>,
    copies: Vec<usize>,
    pressure: Option<Pressure>,
    peak: u64,
}

#[derive(Default)]
struct Tenant {
    is_there: bool,
    queue: VecDeque<usize>,
    vain: u32,
    asking: [VecDeque<usize>; 3],
    awake: [bool; ALL_EACH as usize],
}

#[derive(Default)]
struct Seen {
    owner: usize,
    is_there: bool,
    pages: u32,
    seen: u32,
}

impl Model {
    fn pages(&self, owner: usize) -> u64 {
        let of = self.blocks.iter().filter(|b| b.owner == owner);
        of.map(|b| u64::from(b.pages)).sum()
    }

    fn host(&self) -> u64 {
        (0..self.owners.len()).map(|o| self.pages(o)).sum()
    }

    fn mine(&self, owner: usize) -> (u64, u64) {
        let has = |o: &usize| self.owners[*o].is_there && (*o == owner || self.pages(*o) > 0);
        let owners = (0..self.owners.len()).filter(has).count();
        (self.pages(owner), owners as u64)
    }

    fn victim(&mut self) -> Option<usize> {
        let may = |o: &usize| {
            let t = &self.owners[*o];
            t.is_there && !t.queue.is_empty() && t.vain as usize <= t.queue.len()
        };
        // The first of those that have most.
        let owners = (0..self.owners.len()).filter(may).rev();
        let owner = owners.max_by_key(|o| self.pages(*o))?;
        let (mine, owners) = self.mine(owner);
        if !self.pressure.as_ref()?.may_spill(mine, owners) {
            return None;
        }
        let tenant = &mut self.owners[owner];
        tenant.vain += 1;
        let first = tenant.queue.pop_front()?;
        tenant.queue.push_back(first);
        Some(first)
    }

    fn dequeue(&mut self, b: usize) {
        let tenant = &mut self.owners[self.blocks[b].owner];
        let before = tenant.queue.len();
        tenant.queue.retain(|q| *q != b);
        if tenant.queue.len() < before {
            tenant.vain = tenant.vain.saturating_sub(1);
        }
    }

    fn note(&mut self, b: usize, pages: u32, used: bool) {
        self.blocks[b].pages = pages;
        self.peak = self.peak.max(self.host());
        if used && pages > 0 {
            let queue = &mut self.owners[self.blocks[b].owner].queue;
            queue.retain(|q| *q != b);
            queue.push_back(b);
        }
    }

    fn remove(&mut self, b: usize) {
        self.dequeue(b);
        self.note(b, 0, false);
        self.blocks[b].is_there = false;
        self.all.retain(|x| *x != b);
        self.copies.retain(|x| *x != b);
        let owner = self.blocks[b].owner;
        for asking in &mut self.owners[owner].asking {
            asking.retain(|x| *x != b);
        }
    }

    fn queued(&self) -> u32 {
        self.owners.iter().map(|t| t.queue.len() as u32).sum()
    }
}

/// One thing that happens, to both.
fn step(r: &mut Rig, m: &mut Model, d: &mut Dice, now: &mut u64) {
    *now += d.below(200) as u64;
    let there: Vec<_> = (0..m.blocks.len())
        .filter(|b| m.blocks[*b].is_there)
        .collect();
    let owners: Vec<_> = (0..m.owners.len())
        .filter(|o| m.owners[*o].is_there)
        .collect();
    let kind = d.below(20);
    if owners.is_empty() || kind == 0 && owners.len() < 5 {
        let o = r.owner();
        assert_eq!(o, m.owners.len());
        m.owners.push(Tenant {
            is_there: true,
            ..Tenant::default()
        });
        return;
    }
    let owner = owners[d.below(owners.len())];
    if there.is_empty() || kind == 1 && there.len() < 12 {
        let b = r.block(owner);
        m.blocks.push(Seen {
            owner,
            is_there: true,
            ..Seen::default()
        });
        m.all.push_back(b);
        return;
    }
    let b = there[d.below(there.len())];
    let of = m.blocks[b].owner;
    match kind {
        2 => {
            r.tier.remove_block(&mut r.live, b);
            m.remove(b);
        }
        3 if !m.blocks.iter().any(|b| b.is_there && b.owner == owner) => {
            r.tier.remove_owner(&mut r.live, owner);
            m.owners[owner].is_there = false;
        }
        4 => {
            r.tier.dequeue(&mut r.live, b);
            m.dequeue(b);
        }
        5 => {
            r.tier.hope(&mut r.live, b);
            m.owners[of].vain = 0;
        }
        6 if d.one_in(4) => {
            r.tier.hope_for_all(&mut r.live);
            m.owners.iter_mut().for_each(|t| t.vain = 0);
        }
        7 if d.one_in(4) => {
            let limit = d.below(3000) as u64;
            r.tier.attach(1, limit, 2);
            (m.pressure, m.peak) = (Some(Pressure::new(limit)), m.host());
        }
        8 if d.one_in(8) => {
            r.tier.detach();
            m.pressure = None;
        }
        9 => {
            let tried = [Tried::Moved, Tried::Nothing, Tried::Failed][d.below(3)];
            let queued = m.queued();
            let next = m.pressure.as_mut().map(|p| p.ended(tried, queued, 2, *now));
            let stops = !matches!(next, Some(super::super::pressure::Next::GoOn));
            assert_eq!(r.tier.ended(1, tried, *now).stops, stops);
        }
        10 => {
            r.tier.note_copies(&mut r.live, b);
            if !m.copies.contains(&b) {
                m.copies.push(b);
            }
        }
        11 => {
            let key = d.one_in(2).then_some(owner);
            let meant = |b: &usize| key.is_none_or(|o| m.blocks[*b].owner == o);
            let oldest = m.copies.iter().position(meant);
            let oldest = oldest.map(|i| m.copies.remove(i));
            assert_eq!(r.copies(key.map(|o| o as u64 + 1)), oldest);
        }
        12 => {
            let detaching = 1 + d.below(3) as u32;
            let first = m
                .all
                .front()
                .copied()
                .filter(|b| m.blocks[*b].seen != detaching);
            assert_eq!(r.tier.unseen(&mut r.live, detaching), first);
            if let Some(b) = first {
                m.blocks[b].seen = detaching;
                m.all.rotate_left(1);
            }
        }
        13 => {
            let asks = [Asks::Prefetch, Asks::Call, Asks::Fault][d.below(3)];
            let tenant = &mut m.owners[of];
            for asking in &mut tenant.asking {
                asking.retain(|x| *x != b);
            }
            tenant.asking[asks as usize].push_back(b);
            let reads = |n: usize| reads_for(n as u32) == asks;
            let woken = (0..tenant.awake.len()).find(|n| reads(*n) && !tenant.awake[*n]);
            if let Some(i) = woken {
                tenant.awake[i] = true;
            }
            let woken = woken.map(|i| i as u32);
            assert_eq!(r.tier.ask(&mut r.live, b, asks), woken);
        }
        14 => {
            let number = d.below(ALL_EACH as usize) as u32;
            let first = m.owners[owner].asking[reads_for(number) as usize].pop_front();
            assert_eq!(r.tier.next_asking(&mut r.live, owner, number), first);
        }
        15 => {
            let i = d.below(ALL_EACH as usize);
            let more = !m.owners[owner].asking[reads_for(i as u32) as usize].is_empty();
            if m.owners[owner].awake[i] {
                m.owners[owner].awake[i] = more;
                assert_eq!(r.tier.fetched(&mut r.live, owner, i as u32), more);
            }
        }
        16 => assert_eq!(r.victim(), m.victim()),
        _ => {
            let (pages, used) = (d.below(513) as u32, d.one_in(2));
            r.tier.note(&mut r.live, b, pages, used);
            m.note(b, pages, used);
        }
    }
}

#[test]
fn it_is_what_a_slow_and_obvious_one_is() {
    let seed = setting("UVM_TEST_SEED", 1);
    std::eprintln!("UVM_TEST_SEED={seed}");
    for seed in (0..64).map(|n| seed.wrapping_add(n)) {
        let (mut r, mut m) = (Rig::default(), Model::default());
        let (mut d, mut now) = (Dice::new(seed), 0);
        for _ in 0..steps(2000) {
            step(&mut r, &mut m, &mut d, &mut now);
            assert_eq!(r.tier.host(), (m.host(), m.peak), "T-count");
            for owner in (0..m.owners.len()).filter(|o| m.owners[*o].is_there) {
                let (mine, owners) = m.mine(owner);
                let pressure = m.pressure.as_ref();
                let waits = pressure.is_some_and(|p| p.must_wait(m.host(), mine, owners));
                assert_eq!(r.must_wait(owner), waits);
            }
            let wakes = m.pressure.as_ref().map_or(0, |p| p.wakes(m.host(), 2, now));
            assert_eq!(r.tier.wakes(now), wakes);
        }
    }
}
