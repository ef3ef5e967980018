// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Blocks that are on the SSD (W-ssd).

use super::machine::Did::*;
use super::*;

/// A block of which nothing is in memory.
const AWAY: Pages = Pages {
    populated: PageMask::EMPTY,
    thrashing: PageMask::EMPTY,
    discarded: PageMask::EMPTY,
    there: PageMask::EMPTY,
};

/// The SSD has pages that nobody reads.
fn idle(idle: PageMask) -> Stored {
    Stored {
        idle,
        ..Stored::default()
    }
}

/// Somebody reads pages, or is to.
fn coming(n: u16) -> Stored {
    Stored {
        coming: pages(n),
        ..Stored::default()
    }
}

/// The first of the predicted blocks is on the SSD; the worker has had its turn.
fn asked(lack: Option<Part>) -> (Script, Worker) {
    let (mut s, w) = (Script::trained(), worker(true, 0, lack));
    (s.pages, s.stored) = ([AWAY].into(), [idle(pages(4))].into());
    assert_eq!(w.turn(&mut s), Turn::Idle);
    (s, w)
}

/// A read has ended; the worker has its turn. Returns what it did of that.
fn read_ended(s: &mut Script, w: &Worker) -> Vec<Did> {
    s.did.clear();
    s.feed.read_ended();
    assert_eq!(w.turn(s), Turn::Idle);
    s.did.clone()
}

fn outcomes(s: &Script) -> Vec<Did> {
    let is = |did: &&Did| matches!(did, Brought(..));
    s.did.iter().filter(is).copied().collect()
}

/// It is asked for with its lock held, others come meanwhile, and it goes to the GPU once it has been read.
pub(super) fn what_is_on_the_ssd_comes(lack: Option<Part>) {
    let (mut s, w) = asked(lack);
    let first = [Enter, NextBlock(10), Lock(To::Gpu), Fetch(4), Unlock];
    assert_eq!(s.did[..5], first);
    assert_eq!(
        (s.blocks(), outcomes(&s)),
        (NEXT_OF.to_vec(), vec![MOVED; 5])
    );
    let block = [Enter, NextBlock(10), Lock(To::Gpu), migrate(0), Unlock];
    let did = read_ended(&mut s, &w);
    assert_eq!(did, [&block[..], &[Settle(0), MOVED, Leave]].concat());
    assert_eq!(read_ended(&mut s, &w), [Enter, Leave]);
    // Faults that are being serviced are no reason to wait: nothing is copied.
    let mut s = Script::trained();
    s.faults = [true; 64].into();
    (s.pages, s.stored) = (vec![AWAY; 6].into(), vec![idle(pages(4)); 6].into());
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.count(|did| *did == Fetch(4)), 6);
    assert_eq!(s.count(|did| *did == WaitFaults), 0);
}

/// What somebody reads already is not asked for, and is looked at whenever a read has ended, or a kernel begins. What is of
/// a kernel that is over is not.
pub(super) fn what_is_coming_is_waited_for(lack: Option<Part>) {
    let (mut s, w) = (Script::trained(), worker(true, 0, lack));
    (s.pages, s.stored) = (vec![AWAY; 3].into(), vec![coming(4); 3].into());
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(s.count(|did| matches!(did, Fetch(_))), 0);
    // It is not the worker's read, of whose end it hears all the same.
    assert_eq!((outcomes(&s), s.hears), (vec![MOVED; 3], 3));
    for _ in 0..2 {
        (s.pages, s.stored) = (vec![AWAY; 3].into(), vec![coming(4); 3].into());
        read_ended(&mut s, &w);
        assert_eq!((s.blocks(), outcomes(&s)), (vec![10, 11, 20], vec![]));
    }
    s.did.clear();
    s.kernel(2, false);
    // Blocks 10 and 11 have come meanwhile.
    (s.pages, s.stored) = (
        [AWAY].into(),
        [Stored::default(), Stored::default(), coming(4)].into(),
    );
    w.turn(&mut s);
    assert_eq!(s.blocks()[..3], [10, 11, 20]);
    read_ended(&mut s, &w);
    assert_eq!((s.blocks(), outcomes(&s)), (vec![20], vec![MOVED]));
}

/// What others read says nothing of the rest, for which nobody has asked yet.
pub(super) fn the_rest_is_asked_for(lack: Option<Part>) {
    let (mut s, w) = (Script::trained(), worker(true, 0, lack));
    (s.pages, s.stored) = ([AWAY].into(), [coming(2)].into());
    assert_eq!(w.turn(&mut s), Turn::Idle);
    let rest = Pages {
        populated: pages(2),
        ..AWAY
    };
    for asks in [1, 0] {
        (s.pages, s.stored) = ([rest].into(), [idle(pages(4) - pages(2))].into());
        read_ended(&mut s, &w);
        assert_eq!(
            (s.blocks(), s.count(|did| *did == Fetch(2))),
            (vec![10], asks)
        );
    }
}

/// Nothing is brought of a kernel that is over, or that is unfit by now, and nothing takes its place before it was read.
pub(super) fn what_is_over_keeps_its_place(lack: Option<Part>) {
    let (mut s, w) = (Script::trained(), worker(true, 0, lack));
    (s.pages, s.stored) = (vec![AWAY; 2].into(), vec![coming(4); 2].into());
    assert_eq!(w.turn(&mut s), Turn::Idle);
    s.did.clear();
    s.kernel(9, false);
    s.stored = vec![coming(4); 2].into();
    assert_eq!(w.turn(&mut s), Turn::Idle);
    let look = |n| [NextBlock(n), Lock(To::Gpu), Unlock];
    let both = [&[Enter][..], &look(10), &look(11), &[Leave]].concat();
    assert_eq!((&s.did, s.correlator.on_their_way()), (&both, 2));
    // The first has come, and nothing is brought.
    s.stored = [Stored::default(), coming(4)].into();
    assert_eq!(read_ended(&mut s, &w), both);
    assert_eq!(s.correlator.on_their_way(), 1);
    assert_eq!(
        read_ended(&mut s, &w),
        [&[Enter][..], &look(11), &[Leave]].concat()
    );
    assert_eq!(s.correlator.on_their_way(), 0);
    // Policy keeps it, and what is on its way is unfit by now: neither is brought, and both are still read.
    for unfit in [true, false] {
        let (mut s, w) = asked(lack);
        if unfit {
            let discarded = Pages {
                discarded: pages(4),
                ..AWAY
            };
            s.pages = [discarded].into();
        } else {
            let hindrances = Hindrances {
                lite: true,
                ..Hindrances::default()
            };
            let next = UmBlock(11).address();
            s.found = [Some(Found { hindrances, next })].into();
        }
        s.stored = [coming(4)].into();
        read_ended(&mut s, &w);
        assert_eq!(outcomes(&s).len(), 1);
        assert_eq!(s.correlator.on_their_way(), 1);
        read_ended(&mut s, &w);
        assert_eq!((s.blocks(), outcomes(&s)), (vec![10], vec![]));
        assert_eq!(s.correlator.on_their_way(), 0);
    }
}

/// A suspend comes, or there is no room for what is in memory: what is on its way stays among those that are.
pub(super) fn what_has_to_wait_keeps_its_place(lack: Option<Part>) {
    let (mut s, w) = asked(lack);
    for enters in [vec![false], vec![true, false]] {
        s.enters = enters.into();
        s.feed.read_ended();
        // The second time it is the locks' end that it stops at.
        s.stopping = s.enters.len() == 2;
        assert_eq!(w.turn(&mut s), Turn::Stopped);
        assert_eq!(s.correlator.on_their_way(), 1);
        s.stopping = false;
    }
    s.did.clear();
    s.enters.clear();
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!((s.blocks(), outcomes(&s)), (vec![10], vec![MOVED]));
    // Half of the block is asked for, and the other half waits for faults, for so long that another kernel is announced.
    let mut s = Script::trained();
    let half = Pages {
        populated: pages(2),
        ..AWAY
    };
    (s.pages, s.stored) = ([half].into(), [idle(pages(4) - pages(2))].into());
    s.faults = [true].into();
    s.event = Some((
        When::Waiting,
        Box::new(|s| {
            s.stored = [coming(4)].into();
            s.kernel(2, false);
        }),
    ));
    w.turn(&mut s);
    assert_eq!(s.correlator.on_their_way(), 1);
    // Half of the block is asked for, and the GPU gets no memory for the other half.
    let mut s = Script::trained();
    let half = Pages {
        populated: pages(2),
        ..AWAY
    };
    (s.pages, s.stored) = ([half].into(), [idle(pages(4) - pages(2))].into());
    s.migrates = [Migrated::NoRoom].into();
    w.turn(&mut s);
    assert_eq!(outcomes(&s)[0], Brought(Outcome::NoRoom, 0));
    assert_eq!(s.correlator.on_their_way(), 1);
}

/// It is asked for once: there may be no memory for it. What cannot be read is not asked for at all, nor what nobody reads.
pub(super) fn what_did_not_come_is_left(lack: Option<Part>) {
    let failed = Brought(Outcome::Failed, 0);
    let (mut s, w) = asked(lack);
    (s.pages, s.stored) = ([AWAY].into(), [idle(pages(4))].into());
    read_ended(&mut s, &w);
    assert_eq!((s.blocks(), outcomes(&s)), (vec![10], vec![failed]));
    assert_eq!(s.count(|did| matches!(did, Fetch(_))), 0);
    assert_eq!(read_ended(&mut s, &w), [Enter, Leave]);
    for (failed, outcome) in [(true, Outcome::Failed), (false, Outcome::Resident)] {
        let mut s = Script::trained();
        let stored = Stored {
            idle: if failed { PageMask::EMPTY } else { pages(4) },
            failed,
            ..Stored::default()
        };
        (s.pages, s.stored) = ([AWAY].into(), [stored].into());
        s.fetches = [false].into();
        assert_eq!(w.turn(&mut s), Turn::Idle);
        assert_eq!(outcomes(&s)[0], Brought(outcome, 0));
        assert_eq!(s.count(|did| *did == Fetch(4)), usize::from(!failed));
        assert_eq!(read_ended(&mut s, &w), [Enter, Leave]);
    }
}

/// Pages that thrash or are discarded stay on the SSD.
pub(super) fn only_fit_pages_come(lack: Option<Part>) {
    let mut s = Script::trained();
    let unfit = Pages {
        thrashing: pages(1),
        discarded: pages(2) - pages(1),
        ..AWAY
    };
    (s.pages, s.stored) = (
        vec![unfit; 2].into(),
        [idle(pages(4)), idle(pages(2))].into(),
    );
    worker(true, 0, lack).turn(&mut s);
    assert_eq!(s.count(|did| *did == Fetch(2)), 1);
    assert_eq!(s.count(|did| matches!(did, Fetch(_))), 1);
    assert_eq!(outcomes(&s)[0], Brought(Outcome::Resident, 0));
}

/// Where the GPU has no room for it, it is not read either, and comes first with the next kernel.
pub(super) fn what_has_no_room_stays(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    s.free = 0;
    (s.pages, s.stored) = ([AWAY].into(), [idle(pages(4))].into());
    assert_eq!(w.turn(&mut s), Turn::Idle);
    assert_eq!(
        (s.blocks(), outcomes(&s)),
        (vec![10], vec![Brought(Outcome::NoRoom, 0)])
    );
    assert_eq!(s.count(|did| matches!(did, Fetch(_))), 0);
}

/// So many are on their way at a time. The next one is asked for when one of them has come.
pub(super) fn a_few_at_a_time(lack: Option<Part>) {
    let mut s = Script::trained();
    s.feed.announce(ExecId(5));
    (0..20).for_each(|n| assert!(s.feed.fault(UmBlock(1000 + n))));
    s.feed.announce(ExecId(6));
    s.feed.announce(ExecId(5));
    let w = worker(true, 0, lack);
    (s.pages, s.stored) = (vec![AWAY; 20].into(), vec![idle(pages(4)); 20].into());
    while w.turn(&mut s).is_more() {}
    assert_eq!(s.count(|did| *did == Fetch(4)), FETCHES);
    let seen = s.blocks();
    assert_eq!((seen.len(), outcomes(&s)), (FETCHES + 1, vec![]));
    // The first has come.
    let four = Pages {
        populated: pages(4),
        ..AWAY
    };
    s.pages = [&[four][..], &[AWAY; FETCHES]].concat().into();
    let others = [coming(4); FETCHES - 1];
    s.stored = [&[Stored::default()][..], &others, &[idle(pages(4))]]
        .concat()
        .into();
    s.did.clear();
    s.feed.read_ended();
    while w.turn(&mut s).is_more() {}
    assert_eq!(s.blocks()[..=FETCHES], seen);
    assert_eq!(s.count(|did| *did == Fetch(4)), 1);
    assert!(outcomes(&s).iter().all(|did| *did == MOVED));
}

/// What of a block is in memory is brought at once, and the rest when it has been read.
pub(super) fn half_of_a_block(lack: Option<Part>) {
    let mut s = Script::trained();
    let w = worker(true, 0, lack);
    let half = Pages {
        populated: pages(2),
        ..AWAY
    };
    (s.pages, s.stored) = ([half].into(), [idle(pages(4) - pages(2))].into());
    assert_eq!(w.turn(&mut s), Turn::Idle);
    let moved = Brought(Outcome::Moved, 2);
    assert_eq!(
        (outcomes(&s)[0], s.count(|did| *did == Fetch(2))),
        (moved, 1)
    );
    let rest = Pages {
        populated: pages(4),
        there: pages(2),
        ..AWAY
    };
    s.pages = [rest].into();
    read_ended(&mut s, &w);
    assert_eq!((s.blocks(), outcomes(&s)), (vec![10], vec![moved]));
}
