// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the worker asks of its machine, call by call.
//!
//! The machine does what a test says, and writes down what it was asked. Each test is
//! given what is taken out of the worker; [`super::whatever_is_taken_out_is_noticed`] runs them so,
//! and expects one of them, or the explorer, to fail.

mod machine;
mod ssd;

use self::machine::Did::*;
use self::machine::{pages, Did, Event, Script, When, OURS, THEIRS};
use super::*;
use std::boxed::Box;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

/// The tenant whose process the worker's is, which is no process's number.
const TENANT: u64 = 70;

fn worker(act: bool, watermark: u32, lack: Option<Part>) -> Worker {
    let mut worker = Worker::new(Params {
        act,
        watermark,
        tenant: TENANT,
    });
    worker.take_out(lack);
    worker
}

fn migrate(copy: u32) -> Did {
    Migrate {
        copy,
        pages: 4,
        to: To::Gpu,
    }
}

const MOVED: Did = Brought(Outcome::Moved, 4);
const NEXT_OF: [u32; 6] = [10, 11, 20, 21, 30, 31];

/// The copy of a block runs while the next is begun, the third waits for the first, and the
/// locks are let go after four.
fn copies_overlap(lack: Option<Part>) {
    let mut s = Script::trained();
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
    let block = |n, copy| [NextBlock(n), Lock(To::Gpu), migrate(copy), Unlock];
    // A number that is taken is waited for with the va_block unlocked.
    let late = |n, copy| {
        let first = [NextBlock(n), Lock(To::Gpu), Unlock, Settle(copy), MOVED];
        [&first[..], &[Lock(To::Gpu), migrate(copy), Unlock]].concat()
    };
    let mut expected = vec![Enter];
    expected.extend([block(10, 0), block(11, 1)].concat());
    expected.extend([late(20, 0), late(21, 1)].concat());
    expected.extend([Settle(0), MOVED, Settle(1), MOVED, Leave, Enter]);
    expected.extend([block(30, 0), block(31, 1)].concat());
    expected.extend([Settle(0), MOVED, Settle(1), MOVED, Leave]);
    assert_eq!(s.did, expected);
}

/// A copy that takes its time is waited for once, after the next one has begun, but for the last one before the locks are
/// let go. A copy that is done is not waited for.
fn waits_are_counted(lack: Option<Part>) {
    for (slow, waited) in [(true, &[1, 1, 1, 0, 1, 0][..]), (false, &[])] {
        let mut s = Script::trained();
        s.slow = slow;
        assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
        assert_eq!(s.waited, waited);
    }
}

/// What happened goes before what may: of a kernel that is over nothing is brought.
fn it_learns_first(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    w.turn(&mut s);
    s.did.clear();
    s.kernel(1, false);
    s.kernel(9, false);
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.blocks(), [0u32; 0]);
    s.kernel(2, false);
    w.turn(&mut s);
    assert_eq!(s.blocks()[..2], [20, 21]);
}

/// Without `act` it only learns, and takes no lock.
fn it_only_learns(lack: Option<Part>) {
    let mut s = Script::trained();
    assert_eq!(worker(false, 9, lack).turn(&mut s), Turn::Idle);
    assert_eq!(s.did, []);
    assert_eq!(s.correlator.stats().kernels, 10);
    // More than is learnt at a time is learnt all the same.
    assert!(s.correlator.absorb(&s.feed, 1));
}

/// Who may prefetch only learns while that is said, and the chunks hear of kernels all the same.
fn it_only_learns_while_it_is_said(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 9, lack);
    w.set_acts(false);
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.did, [Enter, Leave]);
    assert_eq!(s.correlator.stats().kernels, 10);
    w.begins(s.roots.as_mut().unwrap(), s.generation, OURS);
    assert_ne!(w.owner_in(s.generation), 0);
    w.set_acts(true);
    assert_ne!(w.turn(&mut s), Turn::Stopped);
    assert_eq!(s.blocks()[..2], [10, 11]);
}

/// What was brought for a kernel is no longer expected after it, even if the worker only learns by then.
fn marks_lapse_while_it_only_learns(lack: Option<Part>) {
    let mut s = Script::trained();
    s.chunk = Some(3);
    let w = worker(true, 0, lack);
    let arrived = Pages {
        populated: pages(4),
        ..Pages::default()
    };
    s.pages = vec![arrived; 8].into();
    w.turn(&mut s);
    w.set_acts(false);
    let needed_in = |s: &Script| s.roots.as_ref().unwrap().needed_in(3);
    let mut seen = vec![needed_in(&s)];
    for id in [2, 3, 1, 2] {
        s.kernel(id, false);
        assert_eq!(w.turn(&mut s), Turn::Idle);
        seen.push(needed_in(&s));
    }
    assert_eq!(seen, [Some(2), Some(1), Some(0), None, None]);
    s.enters = [false].into();
    assert_eq!(w.turn(&mut s), Turn::Stopped);
}

/// Faults that come while it works go first: it settles and lets the locks go, and waits.
fn faults_go_first(lack: Option<Part>) {
    let mut s = Script::trained();
    // As the first block is about to be begun, and the third.
    s.faults = [true, false, true].into();
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
    // The block is looked at before and after.
    let first = [Enter, NextBlock(10), Lock(To::Gpu), Unlock, Leave];
    assert_eq!(s.did[..5], first);
    assert_eq!(s.did[5..8], [WaitFaults, Enter, NextBlock(10)]);
    let third = [Settle(0), MOVED, Settle(1), MOVED, Leave, WaitFaults, Enter];
    let at = s.did.iter().rposition(|did| *did == NextBlock(20)).unwrap();
    assert_eq!(s.did[at - third.len()..at], third);
    assert_eq!(s.blocks(), NEXT_OF);
}

/// What is there already is marked, whether or not faults are being serviced.
fn what_is_there_does_not_wait(lack: Option<Part>) {
    let mut s = Script::trained();
    s.faults = [true; 64].into();
    s.chunk = Some(3);
    let arrived = Pages {
        populated: pages(4),
        there: pages(4),
        ..Pages::default()
    };
    s.pages = vec![arrived; 6].into();
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
    assert_eq!(s.count(|did| *did == Brought(Outcome::Resident, 0)), 6);
    assert_eq!(s.count(|did| *did == WaitFaults), 0);
    assert_eq!(s.roots.as_ref().unwrap().needed_in(3), Some(2));
    // Nor does what finds out that there are chunks enough.
    let mut s = with_nothing_to_bring(9, 4);
    s.faults = [true; 64].into();
    assert_eq!(worker(true, 4, lack).turn(&mut s), Turn::Ready);
    assert_eq!(s.count(|did| *did == WaitFaults), 0);
}

/// A kernel that was announced while it waited for faults is learnt of before a block is begun.
fn it_learns_again_after_a_wait(lack: Option<Part>) {
    let while_waiting = |faults: &[bool], id| {
        let mut s = Script::trained();
        s.faults = faults.to_vec().into();
        let announces: Event = Box::new(move |s: &mut Script| s.kernel(id, false));
        s.event = Some((When::Waiting, announces));
        s
    };
    // One that nobody foresaw: what was chosen for the last one is not brought.
    for faults in [&[true][..], &[false, false, true]] {
        let mut s = while_waiting(faults, 9);
        assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
        assert_eq!(s.count(|did| *did == WaitFaults), 1);
        assert_eq!(s.count(|did| *did == MOVED), faults.len() - 1);
    }
    // One that was foreseen, and needs it.
    let mut s = while_waiting(&[false, false, true], 2);
    worker(true, 0, lack).turn(&mut s);
    assert_eq!(s.blocks()[..4], [10, 11, 20, 21]);
    assert_eq!(s.count(|did| *did == MOVED), s.blocks().len());
    // A block was waited for in vain, and is begun, another one if need be.
    let mut s = while_waiting(&[true, true, true], 2);
    s.waits = [false].into();
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::More);
    assert_eq!(s.blocks(), [10, 20]);
    assert_eq!(s.count(|did| *did == WaitFaults), 1);
    assert_eq!(s.count(|did| *did == MOVED), 1);
}

/// Another process's faults never end: the worker gets on by a block for each wait, and each of
/// its turns is short.
fn faults_do_not_starve_it(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    for n in 0..6 {
        s.faults = [true; 64].into();
        s.waits = [false; 64].into();
        assert_eq!(w.turn(&mut s), Turn::More);
        assert_eq!(s.blocks(), NEXT_OF[..=n]);
        assert_eq!(s.count(|did| *did == WaitFaults), n + 1);
        assert_eq!(s.count(|did| *did == MOVED), n + 1);
    }
    assert_eq!(w.turn(&mut s), Turn::Idle);
}

/// It ends where the locks are not to be had, and where the VA space ends.
fn it_stops(lack: Option<Part>) {
    let mut s = Script::trained();
    s.enters = [false].into();
    let w = worker(true, 9, lack);
    assert_eq!(w.turn(&mut s), Turn::Stopped);
    assert_eq!(s.did, []);
    // The number of the kernel is said by the turn that can.
    s.enters = [true, false].into();
    s.faults = [true].into();
    assert_eq!(w.turn(&mut s), Turn::Stopped);
    // The first block was chosen by the turn that could not begin it, and comes again.
    let looks = [Enter, NextBlock(10), Lock(To::Gpu), Unlock, Leave];
    assert_eq!(s.did, [&looks[..], &[WaitFaults]].concat());
    s.did.clear();
    s.stopping = true;
    assert_eq!(w.turn(&mut s), Turn::Stopped);
    assert_eq!(s.did, [Enter, Leave]);
}

/// What would evict something expected is held back until the next kernel, and comes first then.
fn what_has_no_room_waits(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    // All chunks are the process's, and expected by another.
    s.used(3, OURS);
    s.free = 0;
    let roots = s.roots.as_mut().unwrap();
    let other = roots.add_owner(THEIRS);
    (0..3).for_each(|c| roots.expect(c, other, 9));
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.blocks(), [10]);
    assert_eq!(s.did[3..5], [Unlock, Brought(Outcome::NoRoom, 0)]);
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.blocks(), [10]);
    // A chunk that is free, or unmarked, or has no queues, is room.
    s.did.clear();
    s.kernel(2, false);
    s.free = 1;
    w.turn(&mut s);
    assert_eq!(s.blocks()[0], 20, "10 was of the kernel that is over");
    assert_eq!(s.count(|did| *did == MOVED), s.blocks().len());
}

/// In its turn a process gets what another one waits with, whatever that expects, for as many kernels as its last turn
/// had. When it waits itself, it gets nothing.
fn a_turn_makes_room_for_its_kernels(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    let turns = Choice::named("turns").unwrap();
    s.roots = Some(RootChunks::with_policy(64, turns).unwrap());
    s.free = 0;
    let announced = |s: &mut Script, holder| {
        let roots = s.roots.as_mut().unwrap();
        roots.announced(holder, true);
    };
    // Two kernels to a turn.
    for holder in [OURS, OURS, THEIRS] {
        announced(&mut s, holder);
    }
    s.used(3, THEIRS);
    let roots = s.roots.as_mut().unwrap();
    let other = roots.add_owner(THEIRS);
    (0..3).for_each(|c| roots.expect(c, other, 9));
    announced(&mut s, OURS);
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.blocks(), [10, 11, 20, 21, 30]);
    assert_eq!(s.count(|did| *did == MOVED), 4);
    assert_eq!(s.count(|did| *did == Brought(Outcome::NoRoom, 0)), 1);
    s.did.clear();
    announced(&mut s, THEIRS);
    s.kernel(2, false);
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.count(|did| *did == MOVED), 0);
    assert_eq!(s.count(|did| *did == Brought(Outcome::NoRoom, 0)), 1);
}

/// Where all chunks are pinned, and where the driver found no memory after all, the rest waits for the next kernel, too. The
/// locks are not held for it meanwhile.
fn what_gets_no_memory_waits(lack: Option<Part>) {
    let no_room = Brought(Outcome::NoRoom, 0);
    for pinned in [true, false] {
        let mut s = Script::trained();
        let w = worker(true, 0, lack);
        if pinned {
            s.free = 0;
        } else {
            s.migrates = [Migrated::Begun, Migrated::Again, Migrated::NoRoom].into();
        }
        let seen = if pinned { &[10][..] } else { &[10, 11] };
        assert_eq!(w.turn(&mut s), Turn::Idle);
        assert_eq!(s.blocks(), seen, "{pinned}");
        assert_eq!(s.count(|did| *did == no_room), 1, "{pinned}");
        let tries = s.count(|did| matches!(did, Migrate { .. }));
        assert_eq!(tries, if pinned { 0 } else { 3 });
        assert_eq!(s.did.last(), Some(&Leave));
        assert_eq!(w.turn(&mut s), Turn::Idle);
        assert_eq!(s.blocks(), seen, "{pinned}");
        s.did.clear();
        s.kernel(2, false);
        s.free = 1;
        assert_eq!(w.turn(&mut s), Turn::Idle);
        assert_eq!(s.blocks()[0], 20, "{pinned}");
        assert_eq!(s.count(|did| *did == no_room), 0, "{pinned}");
    }
}

/// At its maximum a process has room only where one of its own chunks is not expected, whatever is free.
#[test]
fn at_its_maximum_a_process_makes_its_own_room() {
    let moved = |s: &Script| s.count(|did| *did == MOVED);
    let mut s = Script::trained();
    s.full = true;
    s.used(3, OURS);
    let roots = s.roots.as_mut().unwrap();
    let other = roots.add_owner(OURS);
    (0..3).for_each(|c| roots.expect(c, other, 9));
    // Another process's chunk is no room.
    roots.used_by(3, THEIRS).unwrap();
    roots.insert(3, THEIRS).unwrap();
    assert_eq!(worker(true, 0, None).turn(&mut s), Turn::Idle);
    assert_eq!(s.did[3..5], [Unlock, Brought(Outcome::NoRoom, 0)]);
    assert_eq!(moved(&s), 0);
    for queue in [Queue::Unused, Queue::Discarded] {
        let mut s = Script::trained();
        (s.full, s.free) = (true, 0);
        s.used(1, OURS);
        s.roots.as_mut().unwrap().set(0, queue).unwrap();
        worker(true, 0, None).turn(&mut s);
        assert!(moved(&s) > 0, "{queue:?}");
    }
}

/// A block that has a chunk needs no room.
fn what_has_a_chunk_needs_no_room(lack: Option<Part>) {
    let mut s = Script::trained();
    s.used(1, OURS);
    s.free = 0;
    let roots = s.roots.as_mut().unwrap();
    let other = roots.add_owner(THEIRS);
    roots.expect(0, other, 9);
    let partly = Pages {
        populated: pages(4),
        there: pages(1),
        ..Pages::default()
    };
    // Of the third and the fourth they are looked at twice.
    s.pages = vec![partly; 8].into();
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
    assert_eq!(s.count(|did| *did == Brought(Outcome::Moved, 3)), 6);
    assert_eq!(s.count(|did| *did == migrate(0) || *did == migrate(1)), 6);
}

/// Held back for one kernel, it is there for the next.
fn what_was_held_back_comes_first(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    s.used(1, OURS);
    s.free = 2;
    s.chunk = Some(5);
    // Of kernel 1, two blocks; then there is no room for those of kernel 2.
    let gone = Pages {
        populated: pages(4),
        ..Pages::default()
    };
    s.pages = vec![gone; 2].into();
    s.found = [None, None].into();
    s.free = 0;
    let roots = s.roots.as_mut().unwrap();
    let other = roots.add_owner(THEIRS);
    roots.expect(0, other, 9);
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.blocks(), [10, 11, 20]);
    s.did.clear();
    s.kernel(2, false);
    s.free = 9;
    w.turn(&mut s);
    assert_eq!(s.blocks()[..2], [20, 21]);
}

/// What policy keeps elsewhere is left alone, as is what is no memory.
fn policy_is_asked(lack: Option<Part>) {
    let mut s = Script::trained();
    let next = |n: u64| (n + 1) * UmBlock::SIZE;
    let hindered = |n, change: fn(&mut Hindrances)| {
        let mut hindrances = Hindrances::default();
        change(&mut hindrances);
        Some(Found {
            hindrances,
            next: next(n),
        })
    };
    s.found = [
        hindered(10, |h| h.no_block = true),
        hindered(11, |h| h.preferred_elsewhere = true),
        hindered(20, |h| h.read_duplicated = true),
        hindered(21, |h| h.lite = true),
        hindered(30, |h| h.group_stays = true),
        None,
    ]
    .into();
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
    assert_eq!(s.blocks(), NEXT_OF);
    let unfit = Brought(Outcome::Unfit, 0);
    assert_eq!(s.count(|did| *did == unfit), 6);
    assert_eq!(s.count(|did| matches!(did, Lock(_))), 0);
}

/// A UM block of several va_blocks is one copy and counts once; a machine that does not get on
/// is told of.
fn several_va_blocks(lack: Option<Part>) {
    let mut s = Script::trained();
    let start = 10 * UmBlock::SIZE;
    let part = |next, no_block| {
        Some(Found {
            hindrances: Hindrances {
                no_block,
                ..Hindrances::default()
            },
            next,
        })
    };
    s.found = [
        part(start + 4096, true),
        part(start + 8192, false),
        part(start + 8192, false),
    ]
    .into();
    s.pages = vec![
        Pages {
            populated: pages(1),
            ..Pages::default()
        };
        2
    ]
    .into();
    worker(true, 0, lack).turn(&mut s);
    assert_eq!(s.broken, ["W-bound: the same memory twice"]);
    assert_eq!(s.blocks()[..4], [10, 10, 10, 11]);
    let one = Migrate {
        copy: 0,
        pages: 1,
        to: To::Gpu,
    };
    assert_eq!(s.count(|did| *did == one), 2);
    assert_eq!(s.count(|did| *did == Brought(Outcome::Moved, 2)), 1);
}

/// An error ends a UM block, and not the turn. A copy that fails has moved nothing.
fn errors_are_counted(lack: Option<Part>) {
    let mut s = Script::trained();
    s.migrates = [Migrated::Failed].into();
    s.settles = [true, false].into();
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
    let results = s.did.iter().filter(|did| matches!(did, Brought(..)));
    let results: Vec<_> = results.copied().collect();
    let failed = Brought(Outcome::Failed, 0);
    assert_eq!(results[..2], [failed; 2]);
    assert_eq!(results[2..], [MOVED; 4]);
}

/// Pages that thrash or are discarded stay where they are, and those never touched.
fn only_fit_pages(lack: Option<Part>) {
    let mut s = Script::trained();
    let mut page = [PageMask::EMPTY; 3];
    (0..3).for_each(|n| page[usize::from(n)].set(n));
    let all = Pages {
        populated: pages(4),
        thrashing: page[0],
        discarded: page[1],
        there: page[2],
    };
    // Without them all is there; with them one is missing.
    let none = Pages {
        populated: pages(3),
        ..all
    };
    s.pages = vec![none, all].into();
    worker(true, 0, lack).turn(&mut s);
    assert_eq!(s.count(|did| *did == Brought(Outcome::Resident, 0)), 1);
    let two = Migrate {
        copy: 0,
        pages: 2,
        to: To::Gpu,
    };
    assert_eq!(s.count(|did| *did == two), 1);
    assert_eq!(s.count(|did| *did == Brought(Outcome::Moved, 1)), 1);
}

/// Where the lock was let go, pages are looked at again.
fn it_looks_again(lack: Option<Part>) {
    let mut s = Script::trained();
    let seen = |n| Pages {
        populated: pages(n),
        ..Pages::default()
    };
    let arrived = Pages {
        populated: pages(4),
        there: pages(4),
        ..Pages::default()
    };
    // Half of it was discarded; and the other time all had come.
    s.pages = [seen(4), seen(2), seen(4), arrived].into();
    s.migrates = [Migrated::Again, Migrated::Begun, Migrated::Again].into();
    worker(true, 0, lack).turn(&mut s);
    let half = Migrate {
        copy: 0,
        pages: 2,
        to: To::Gpu,
    };
    assert_eq!(s.count(|did| *did == half), 1);
    // How many were moved is told by the first look.
    let moved: Vec<_> = s.did.iter().filter(|did| **did == MOVED).collect();
    assert_eq!(moved.len(), 6);
}

/// What is brought, and what was there, is marked up to its kernel.
fn chunks_are_marked(lack: Option<Part>) {
    for resident in [false, true] {
        let mut s = Script::trained();
        s.chunk = Some(3);
        let arrived = Pages {
            populated: pages(4),
            there: if resident { pages(4) } else { PageMask::EMPTY },
            ..Pages::default()
        };
        s.pages = vec![arrived; 8].into();
        let w = worker(true, 0, lack);
        w.turn(&mut s);
        // Two kernels ahead, as the last ones of the six.
        let roots = s.roots.as_ref().unwrap();
        assert_eq!(roots.needed_in(3), Some(2), "{resident}");
        // A kernel later it is needed sooner.
        s.chunk = None;
        s.kernel(2, false);
        w.turn(&mut s);
        let roots = s.roots.as_ref().unwrap();
        assert_eq!(roots.needed_in(3), Some(1), "{resident}");
    }
}

/// Queues that came with a GPU that was away number processes anew, and one that lost its
/// number to others comes again.
fn numbers_are_of_their_queues(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    w.turn(&mut s);
    // Another process is the first there.
    let mut roots = RootChunks::new(64).unwrap();
    let other = roots.add_owner(THEIRS);
    roots.set_now(other, 1000);
    roots.expect(1, other, 1005);
    s.roots = Some(roots);
    s.generation = 2;
    s.chunk = Some(2);
    s.kernel(2, false);
    w.turn(&mut s);
    let roots = s.roots.as_mut().unwrap();
    assert_eq!(roots.needed_in(1), Some(5), "its kernel is not ours");
    assert!(roots.needed_in(2).is_some());
    // Another tenant that takes all room leaves ours where it is, and our own tenant does not.
    for (tenant, is_gone) in [(THEIRS + 1, false), (TENANT, true)] {
        for _ in 0..OWNERS {
            roots.add_owner_of(THEIRS + 1, tenant);
        }
        assert_eq!(roots.needed_in(2).is_none(), is_gone);
    }
    s.kernel(3, false);
    w.turn(&mut s);
    let roots = s.roots.as_mut().unwrap();
    assert!(roots.needed_in(2).is_some());
    // Its marks go with it, and no other's.
    roots.set_now(other, 1000);
    roots.add_owner(THEIRS);
    w.retire(&mut s);
    let roots = s.roots.as_ref().unwrap();
    assert_eq!(roots.needed_in(2), None);
    // Of other queues it retires from none.
    w.retire(&mut Script::trained());
    s.roots = None;
    w.retire(&mut s);
}

/// What the running kernel has asked for is its own until it is over, whatever the worker brings of it.
fn what_was_asked_for_is_the_running_kernels(lack: Option<Part>) {
    let mut s = Script::trained();
    s.chunk = Some(3);
    let partly = Pages {
        populated: pages(4),
        there: pages(1),
        ..Pages::default()
    };
    s.pages = vec![partly; 8].into();
    worker(true, 0, lack).turn(&mut s);
    let roots = s.roots.as_ref().unwrap();
    assert_eq!(roots.needed_in(3), Some(0));
}

/// All is brought that is known; the script then pushes out.
fn with_nothing_to_bring(chunks: u32, free: u32) -> Script {
    let mut s = Script::trained();
    s.found = vec![None; 6].into();
    s.used(chunks, OURS);
    s.free = free;
    s
}

/// Chunks are pushed out up to the watermark, the oldest first, and their copies overlap.
fn up_to_the_watermark(lack: Option<Part>) {
    let mut s = with_nothing_to_bring(9, 1);
    let w = worker(true, 4, lack);
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(s.count(|did| *did == PushedOut(4)), 3);
    let number = |did: &Did| match did {
        Migrate { copy, to, .. } => Some((*copy, *to)),
        _ => None,
    };
    let moves: Vec<_> = s.did.iter().filter_map(number).collect();
    assert_eq!(moves, [(0, To::Host), (1, To::Host), (0, To::Host)]);
    assert_eq!(s.roots.as_ref().unwrap().length(Queue::Unused), 3);
    // What is discarded counts, too, and no more than that is done.
    let mut s = with_nothing_to_bring(9, 1);
    let roots = s.roots.as_mut().unwrap();
    (0..3).for_each(|c| roots.set(c, Queue::Discarded).unwrap());
    assert_eq!(worker(true, 4, lack).turn(&mut s), Turn::Ready);
    assert_eq!(s.count(|did| matches!(did, Lock(_))), 0);
    assert_eq!(worker(true, 0, lack).turn(&mut s), Turn::Idle);
}

/// Only the process's own, and nothing that is expected.
fn only_its_own(lack: Option<Part>) {
    let mut s = with_nothing_to_bring(0, 0);
    s.used(9, THEIRS);
    assert_eq!(worker(true, 4, lack).turn(&mut s), Turn::NoVictim);
    let mut s = with_nothing_to_bring(2, 0);
    let roots = s.roots.as_mut().unwrap();
    let other = roots.add_owner(THEIRS);
    (0..2).for_each(|c| roots.expect(c, other, 9));
    assert_eq!(worker(true, 4, lack).turn(&mut s), Turn::NoVictim);
    // Without queues there is nothing to choose by.
    s.roots = None;
    assert_eq!(worker(true, 4, lack).turn(&mut s), Turn::NoVictim);
    assert_eq!(s.count(|did| matches!(did, Lock(_) | Victim)), 0);
}

/// What the running kernel has asked for is not pushed out before the next one begins.
fn not_what_the_kernel_asked_for(lack: Option<Part>) {
    let mut s = with_nothing_to_bring(0, 0);
    let w = worker(true, 2, lack);
    // The process has its number.
    assert_eq!(w.turn(&mut s), Turn::NoVictim);
    s.used(3, OURS);
    assert_eq!(w.turn(&mut s), Turn::NoVictim);
    assert_eq!(s.count(|did| matches!(did, Lock(_))), 0);
    s.begin(&w, 2);
    s.found = vec![None; 6].into();
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(s.count(|did| matches!(did, PushedOut(_))), 2);
}

/// The next kernel may begin, and fault, while the worker waits for faults or moves a block for the last one. What it
/// asked for is neither pushed out nor replaced when the worker learns of it.
fn not_what_the_next_kernel_asked_for(lack: Option<Part>) {
    for moving in [false, true] {
        let mut s = Script::trained();
        s.used(4, OURS);
        let other = s.roots.as_mut().unwrap().add_owner(THEIRS);
        s.free = u32::from(moving);
        s.faults = [!moving].into();
        let w = Rc::new(worker(true, 1, lack));
        let announcing = w.clone();
        let next_kernel = move |s: &mut Script| {
            s.begin(&announcing, 2);
            s.free = 0;
            let roots = s.roots.as_mut().unwrap();
            roots.used_by(3, OURS).unwrap();
            (0..3).for_each(|c| roots.expect(c, other, 9));
        };
        let when = [When::Waiting, When::Moving(To::Gpu)][usize::from(moving)];
        s.event = Some((when, Box::new(next_kernel)));
        while w.turn(&mut s).is_more() {}
        let moves = s.count(|did| matches!(did, Migrate { .. }));
        assert_eq!(moves, usize::from(moving));
        let roots = s.roots.as_ref().unwrap();
        assert_eq!(roots.needed_in(3), Some(0), "{moving}");
    }
}

/// A block may be faulted on after it was chosen, before its lock is had. It stays, and the next one goes.
fn not_what_comes_to_be_needed(lack: Option<Part>) {
    let mut s = with_nothing_to_bring(3, 0);
    let fault: Event = Box::new(|s: &mut Script| {
        s.roots.as_mut().unwrap().used_by(0, OURS).unwrap();
    });
    s.event = Some((When::Locking(To::Host), fault));
    let w = worker(true, 1, lack);
    assert_eq!(w.turn(&mut s), Turn::Ready);
    let locked = s.count(|did| *did == Lock(To::Host));
    assert_eq!((locked, s.count(|did| *did == PushedOut(4))), (2, 1));
    let roots = s.roots.as_ref().unwrap();
    let queues = [0, 1].map(|c| roots.queue_of(c));
    assert_eq!(queues, [Some(Queue::Used), Some(Queue::Unused)]);
    // The block may be in another chunk by then.
    let mut s = with_nothing_to_bring(3, 0);
    let moves: Event = Box::new(|s: &mut Script| {
        s.roots.as_mut().unwrap().used_by(2, OURS).unwrap();
        s.chunk = Some(2);
    });
    s.event = Some((When::Locking(To::Host), moves));
    assert_eq!(w.turn(&mut s), Turn::NoVictim);
    assert_eq!(s.count(|did| matches!(did, Migrate { .. })), 0);
    // When the kernel is over, neither has been passed over.
    w.begins(s.roots.as_mut().unwrap(), 1, OURS);
    s.chunk = None;
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(s.count(|did| *did == PushedOut(4)), 1);
}

/// What is discarded of a block that is pushed out is dropped first, and not copied; not if the block is needed by then.
fn what_is_discarded_is_dropped(lack: Option<Part>) {
    let of = |n, discarded| Pages {
        populated: pages(n),
        there: pages(n),
        discarded,
        ..Pages::default()
    };
    let host = |pages| Migrate {
        copy: 0,
        pages,
        to: To::Host,
    };
    let begin = |seen: &[Pages]| {
        let mut s = with_nothing_to_bring(3, 0);
        s.pages = seen.to_vec().into();
        s
    };
    let w = worker(true, 1, lack);
    let tries = |s: &Script| {
        let is = |did: &Did| matches!(did, Drop(_) | Migrate { .. } | PushedOut(_));
        let tries: Vec<_> = s.did.iter().filter(|did| is(did)).copied().collect();
        tries
    };
    let half = of(4, pages(2));
    let mut s = begin(&[half]);
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(tries(&s), [Drop(4), host(2), PushedOut(2)]);
    // Where the lock was let go, it starts over: by then more is discarded, or the rest has left.
    let mut s = begin(&[half, of(4, pages(3))]);
    s.drops = [Migrated::Again].into();
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(tries(&s), [Drop(4), Drop(4), host(1), PushedOut(1)]);
    let mut s = begin(&[half, of(1, pages(1))]);
    s.migrates = [Migrated::Again].into();
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(tries(&s), [Drop(4), host(2), Drop(1), PushedOut(2)]);
    // All of it was discarded since it was chosen: it is not copied, and the next one is looked for.
    let mut s = begin(&[of(4, pages(4))]);
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(tries(&s), [Drop(4), host(4), PushedOut(4)]);
    // Nothing is copied of a block that keeps what is discarded.
    let mut s = begin(&[half]);
    s.drops = [Migrated::Failed].into();
    assert_eq!(w.turn(&mut s), Turn::GaveUp);
    assert_eq!(tries(&s), [Drop(4)]);
    assert_eq!(s.roots.as_ref().unwrap().pick_early(OURS), Some(1));
    let mut s = begin(&[half]);
    let fault: Event = Box::new(|s: &mut Script| {
        s.roots.as_mut().unwrap().used_by(0, OURS).unwrap();
    });
    s.event = Some((When::Locking(To::Host), fault));
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(tries(&s), [host(4), PushedOut(4)]);
}

/// What policy keeps, and what is not its own any more, is passed over; a turn looks at a few.
fn what_stays_is_passed_over(lack: Option<Part>) {
    let mut s = with_nothing_to_bring(40, 0);
    let stays = Hindrances {
        group_stays: true,
        ..Hindrances::default()
    };
    s.victims = (0..20).map(|n| (n % 2 == 0).then_some(stays)).collect();
    let w = worker(true, 1, lack);
    assert_eq!(w.turn(&mut s), Turn::NoVictim);
    assert_eq!(s.count(|did| *did == Victim), 16);
    assert_eq!(s.count(|did| matches!(did, Lock(_))), 0);
    // The next turn's are others.
    assert_eq!(w.turn(&mut s), Turn::Ready);
    assert_eq!(s.count(|did| *did == Victim), 21);
    assert_eq!(s.roots.as_ref().unwrap().queue_of(20), Some(Queue::Unused));
}

/// A block that holds nothing, or cannot be moved, ends the turn, and is not tried again.
fn it_gives_up(lack: Option<Part>) {
    let w = worker(true, 1, lack);
    let mut s = with_nothing_to_bring(9, 0);
    s.pages = [Pages::default()].into();
    assert_eq!(w.turn(&mut s), Turn::GaveUp);
    let roots = s.roots.as_ref().unwrap();
    assert_eq!(roots.pick_early(OURS), Some(1));
    for failed in [true, false] {
        let mut s = with_nothing_to_bring(9, 0);
        s.migrates = [if failed {
            Migrated::Failed
        } else {
            Migrated::Begun
        }]
        .into();
        s.settles = [false].into();
        assert_eq!(w.turn(&mut s) == Turn::GaveUp, failed);
        assert_eq!(s.count(|did| matches!(did, PushedOut(_))), 0);
        assert_eq!(s.count(|did| *did == Settle(0)), 1);
    }
}

/// Where kernels do not come as foreseen, none is pushed out.
fn foreseen_or_not(lack: Option<Part>) {
    let mut s = with_nothing_to_bring(9, 0);
    let forth = 41..=60;
    for id in forth.clone().chain(forth.clone()).chain(forth.rev()) {
        s.kernel(id, false);
        s.correlator.absorb(&s.feed, 100);
    }
    s.found = vec![None; 99].into();
    let foresees = s.correlator.foresees();
    assert!(!foresees);
    assert_eq!(worker(true, 4, lack).turn(&mut s), Turn::Idle);
    assert_eq!(s.count(|did| matches!(did, Lock(_))), 0);
}

/// A turn moves so many blocks at most, and says that there is more.
fn a_turn_ends(lack: Option<Part>) {
    let mut s = Script::trained();
    s.feed.announce(ExecId(5));
    for n in 0..90 {
        s.feed.fault(UmBlock(1000 + n));
    }
    s.feed.announce(ExecId(6));
    s.feed.announce(ExecId(5));
    let w = worker(true, 0, lack);
    assert_eq!(w.turn(&mut s), Turn::More);
    let (first, held) = (s.blocks().len(), s.count(|did| *did == Leave));
    assert!((20..=32).contains(&first), "{first}");
    assert_eq!(held, first.div_ceil(4));
    for _ in 0..9 {
        w.turn(&mut s);
    }
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert!(s.blocks().len() >= 90);
}

/// A test, given what is taken out.
type Test = fn(Option<Part>);

/// All of them, with their names.
pub(super) const ALL: &[(&str, Test)] = &[
    ("copies_overlap", copies_overlap),
    ("waits_are_counted", waits_are_counted),
    ("it_learns_first", it_learns_first),
    ("it_only_learns", it_only_learns),
    (
        "it_only_learns_while_it_is_said",
        it_only_learns_while_it_is_said,
    ),
    (
        "marks_lapse_while_it_only_learns",
        marks_lapse_while_it_only_learns,
    ),
    ("faults_go_first", faults_go_first),
    ("what_is_there_does_not_wait", what_is_there_does_not_wait),
    ("it_learns_again_after_a_wait", it_learns_again_after_a_wait),
    ("faults_do_not_starve_it", faults_do_not_starve_it),
    ("it_stops", it_stops),
    ("what_has_no_room_waits", what_has_no_room_waits),
    (
        "a_turn_makes_room_for_its_kernels",
        a_turn_makes_room_for_its_kernels,
    ),
    ("what_gets_no_memory_waits", what_gets_no_memory_waits),
    (
        "what_has_a_chunk_needs_no_room",
        what_has_a_chunk_needs_no_room,
    ),
    (
        "what_was_held_back_comes_first",
        what_was_held_back_comes_first,
    ),
    ("what_is_on_the_ssd_comes", ssd::what_is_on_the_ssd_comes),
    (
        "what_is_coming_is_waited_for",
        ssd::what_is_coming_is_waited_for,
    ),
    (
        "what_is_over_keeps_its_place",
        ssd::what_is_over_keeps_its_place,
    ),
    (
        "what_has_to_wait_keeps_its_place",
        ssd::what_has_to_wait_keeps_its_place,
    ),
    ("the_rest_is_asked_for", ssd::the_rest_is_asked_for),
    ("what_did_not_come_is_left", ssd::what_did_not_come_is_left),
    ("only_fit_pages_come", ssd::only_fit_pages_come),
    ("what_has_no_room_stays", ssd::what_has_no_room_stays),
    ("a_few_at_a_time", ssd::a_few_at_a_time),
    ("half_of_a_block", ssd::half_of_a_block),
    ("policy_is_asked", policy_is_asked),
    ("several_va_blocks", several_va_blocks),
    ("errors_are_counted", errors_are_counted),
    ("only_fit_pages", only_fit_pages),
    ("it_looks_again", it_looks_again),
    ("chunks_are_marked", chunks_are_marked),
    (
        "what_was_asked_for_is_the_running_kernels",
        what_was_asked_for_is_the_running_kernels,
    ),
    ("numbers_are_of_their_queues", numbers_are_of_their_queues),
    ("up_to_the_watermark", up_to_the_watermark),
    ("only_its_own", only_its_own),
    (
        "not_what_the_kernel_asked_for",
        not_what_the_kernel_asked_for,
    ),
    (
        "not_what_the_next_kernel_asked_for",
        not_what_the_next_kernel_asked_for,
    ),
    ("not_what_comes_to_be_needed", not_what_comes_to_be_needed),
    ("what_is_discarded_is_dropped", what_is_discarded_is_dropped),
    ("what_stays_is_passed_over", what_stays_is_passed_over),
    ("it_gives_up", it_gives_up),
    ("foreseen_or_not", foreseen_or_not),
    ("a_turn_ends", a_turn_ends),
];

#[test]
fn all_scripts() {
    for (name, script) in ALL {
        std::eprintln!("{name}");
        script(None);
    }
}
