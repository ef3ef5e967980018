// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a walk leaves behind when something fails, what it makes of a block, and what it says of
//! a machine that is wrong.

use super::*;

// --- what fails ------------------------------------------------------------------------------

/// Each call that can fail does so in the third of five blocks. The blocks before it stay discarded,
/// those behind are as they were, all is let go, and what was done is waited for.
#[test]
fn an_error_ends_the_walk_and_nothing_else() {
    // How far the block has come by then, and what the call says.
    for (fails, failure, discarded) in [
        (Keep, Failure::NoMemory, false),
        (Drop(WHOLE), Failure::Machine(BROKEN), false),
        (NoteWork, Failure::Machine(BROKEN), true),
    ] {
        let mut script = Script::new(10 * MIB);
        script.run(BASE, 4 * MIB, Mode::Eager).0.expect("no error");
        script.range = 0;
        script.did.clear();
        script.fails = vec![fails];
        // The first two are done, and nothing is resident there any more.
        script.blocks = vec![(8, Is::Untouched), (9, Is::Untouched)];
        let (result, met) = script.whole(Mode::Eager);
        assert_eq!(result, Err(failure), "{fails:?}");
        assert_eq!(met, counts(u64::from(discarded), 2, 0), "{fails:?}");
        let pages = if discarded { 512 } else { 0 };
        assert_eq!(script.discarded(BASE + 4 * MIB), pages, "{fails:?}");
        assert_eq!(script.discarded(BASE + 6 * MIB), 0, "{fails:?}");
        assert_eq!(script.discarded(BASE), 512);
        let at = script.did.iter().position(|did| *did == fails);
        let rest = &script.did[at.expect("it was asked for") + 1..];
        assert_eq!(rest, [Unlock, Close, Wait, Leave], "{fails:?}");
    }
}

#[test]
fn without_memory_for_the_call_nothing_is_walked() {
    let mut script = Script::new(2 * MIB);
    script.fails = vec![Open];
    let (result, _) = script.whole(Mode::Eager);
    assert_eq!(result, Err(Failure::Machine(BROKEN)));
    // Not closed, as it is not open.
    assert_eq!(script.tail(), [Open, Wait, Leave]);
}

/// An error of the walk is the one that counts; the wait's does where there is no other.
#[test]
fn the_first_error_is_the_one_that_is_told() {
    let mut script = Script::new(2 * MIB);
    script.fails = vec![Wait];
    assert_eq!(script.whole(Mode::Eager).0, Err(Failure::Machine(BROKEN)));
    let mut script = Script::new(2 * MIB);
    (script.fails, script.dies_after) = (vec![Wait], 0);
    assert_eq!(script.whole(Mode::Eager).0, Err(Failure::Killed));
    assert_eq!(script.tail(), [Close, Wait, Leave]);
}

/// Where the lock was let go on the way nothing that was known of the block holds any more.
#[test]
fn a_block_whose_lock_was_let_go_is_looked_at_anew() {
    let mut script = Script::new(2 * MIB);
    script.again = 2;
    let (result, met) = script.whole(Mode::Eager);
    assert_eq!((result, met), (Ok(()), counts(1, 0, 0)));
    let locked = script.locked();
    assert_eq!(
        locked[7..],
        [
            Drop(WHOLE),
            Facts,
            Pinned,
            Drop(WHOLE),
            Facts,
            Pinned,
            Drop(WHOLE),
            ForgetThrashing(WHOLE),
            ForgetStored(WHOLE),
            Held(1),
            Requeue(1, Queue::Discarded),
            Held(2),
            NoteWork,
            Unlock
        ]
    );
}

// --- what is known of a block ----------------------------------------------------------------

#[test]
fn a_new_state_takes_what_is_resident_in_one_place_as_prepared() {
    let mut script = Script::new(2 * MIB);
    let mut second = held(3, true, false);
    second.resident = mask(5, 9);
    script.memories.push(second);
    assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
    let state = &script.states[0].1;
    assert_eq!(state.prepared_in(A), PageMask::FULL);
    assert_eq!(state.prepared_in(Memory(3)), mask(5, 9));
    assert_eq!(state.prepared_in(Memory::HOST), PageMask::EMPTY);

    // Of a host of several nodes nobody knows where a page of it comes from.
    for one_place in [true, false] {
        let mut script = Script::new(2 * MIB);
        script.memories[0] = held(0, one_place, false);
        script.memories[0].resident = mask(0, 7);
        assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
        let prepared = if one_place { 7 } else { 0 };
        let state = &script.states[0].1;
        assert_eq!(state.prepared_in(Memory::HOST).count(), prepared);
    }
}

#[test]
fn a_state_that_is_there_is_not_made_again() {
    let mut script = Script::new(2 * MIB);
    assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
    script.range = 0;
    assert_eq!(script.whole(Mode::Eager).0, Ok(()));
    assert_eq!(script.count(|did| *did == Keep), 1);
    assert_eq!(script.states[0].1.status(0), Status::Eager);
}

/// The memories whose root chunks were moved, and where to.
fn requeued(script: &Script) -> Vec<(u16, Queue)> {
    let requeue = script.did.iter().filter_map(|did| match did {
        Requeue(memory, queue) => Some((*memory, *queue)),
        _ => None,
    });
    requeue.collect()
}

#[test]
fn only_a_root_chunk_with_nothing_but_discarded_pages_is_requeued() {
    // Memory 2 has no root chunk of its own; 4 has one, with live pages.
    let mut script = Script::new(2 * MIB);
    for (memory, root_chunk) in [(2, false), (4, true)] {
        script.memories.push(held(memory, true, root_chunk));
    }
    script.memories[2].resident = PageMask::FULL;
    script.memories[3].resident = PageMask::FULL;
    assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
    let discarded = [(1, Queue::Discarded), (4, Queue::Discarded)];
    assert_eq!(requeued(&script), discarded);

    let mut script = Script::new(2 * MIB);
    assert_eq!(script.run(BASE, MIB, Mode::Lazy).0, Ok(()));
    assert_eq!(requeued(&script), [], "half of it is live");

    // A shorter block shares its root chunk.
    let mut script = Script::new(MIB);
    assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
    assert_eq!(requeued(&script), []);
}

/// Or what is written behind the discard is reclaimed first, and its chunk is taken for room.
#[test]
fn a_chunk_with_pages_that_an_eager_discard_makes_live_is_used_again() {
    for (mapped_2m, is) in [(true, Is::Plain), (false, Is::Plain), (false, Is::Pinned)] {
        let mut script = Script::new(2 * MIB);
        // Memory 2 has no root chunk of its own; 4 has one, with other pages.
        for (memory, root_chunk) in [(2, false), (4, true)] {
            script.memories.push(held(memory, true, root_chunk));
        }
        script.memories[2].resident = PageMask::FULL;
        script.memories[3].resident = mask(256, 512);
        assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
        script.mapped_2m = mapped_2m;
        script.blocks = vec![(8, is)];
        for (round, moved) in [vec![(1, Queue::Used)], vec![]].into_iter().enumerate() {
            script.did.clear();
            // Less than a granule.
            assert_eq!(script.run(BASE, 0xf000, Mode::Eager).0, Ok(()));
            assert_eq!(requeued(&script), moved, "{mapped_2m} {is:?} {round}");
        }
        // A lazy discard makes nothing live.
        script.blocks = vec![];
        assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
        script.did.clear();
        assert_eq!(script.run(BASE, 0xf000, Mode::Lazy).0, Ok(()));
        assert_eq!(requeued(&script), []);
        // A discard of a part of it, which leaves less than a granule.
        script.mapped_2m = false;
        assert_eq!(script.run(BASE, 0x1_f000, Mode::Eager).0, Ok(()));
        let moved = [(1, Queue::Used), (4, Queue::Discarded)];
        assert_eq!(requeued(&script), moved);
    }
}

/// Direct I/O writes to such a page without a fault, and nobody would know that the page is live.
#[test]
fn an_eager_discard_leaves_alone_what_somebody_holds() {
    let (pinned, all) = (mask(16, 20), PageMask::FULL);
    for (pinned, mapped_2m, mode, met, left) in [
        (pinned, false, Mode::Eager, counts(0, 0, 1), pinned),
        (pinned, true, Mode::Eager, counts(0, 1, 0), all),
        (all, false, Mode::Eager, counts(0, 1, 0), all),
        (all, false, Mode::Lazy, counts(1, 0, 0), PageMask::EMPTY),
    ] {
        let mut script = Script::new(2 * MIB);
        (script.pinned, script.mapped_2m) = (pinned, mapped_2m);
        assert_eq!(script.whole(mode), (Ok(()), met));
        assert_eq!(script.discarded(BASE), 512 - left.count());
        assert_eq!(script.states.is_empty(), left == all, "{mode:?}");
        if mode == Mode::Eager {
            assert!(left.is_subset(&script.on_gpu()), "it was dropped");
            assert_eq!(requeued(&script), []);
        }
    }
    // It is live, also if it was discarded lazily before.
    let mut script = Script::new(2 * MIB);
    assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
    script.pinned = pinned;
    script.did.clear();
    assert_eq!(script.whole(Mode::Eager), (Ok(()), counts(0, 0, 1)));
    assert_eq!(script.states[0].1.status(16), Status::Live);
    assert_eq!(requeued(&script), [(1, Queue::Used)]);
    // Nobody is asked where nothing is dropped.
    script.did.clear();
    script.gone.push((BASE, PageMask::FULL));
    assert_eq!(script.whole(Mode::Eager), (Ok(()), counts(1, 0, 0)));
    assert_eq!(script.count(|did| *did == Pinned), 0);
}

#[test]
fn a_granule_is_the_power_of_two_below() {
    for (kib, shift) in [(0, 0), (4, 0), (7, 0), (8, 1), (64, 4), (100, 4), (2048, 9)] {
        assert_eq!(granule_shift(kib), shift, "{kib}");
    }
    assert_eq!(granule_shift(u32::MAX), 9);
}

// --- a machine that is wrong -------------------------------------------------------------------

/// The walk ends, and says what does not hold.
#[test]
fn what_does_not_hold_is_told_and_the_walk_goes_on() {
    // Managed memory with a hole, of which `kind` said nothing.
    let mut script = Script::new(2 * MIB);
    script.broken = Some(Vec::new());
    assert_eq!(script.run(BASE, 4 * MIB, Mode::Lazy).0, Ok(()));
    assert_eq!(script.broken, Some(vec!["D-all"]));

    // A range, and a block, that are somewhere else.
    let mut script = Script::new(2 * MIB);
    (script.broken, script.blocks) = (Some(Vec::new()), vec![(7, Is::Untouched)]);
    assert_eq!(script.run(BASE - 2 * MIB, 4 * MIB, Mode::Lazy).0, Ok(()));
    assert_eq!(script.broken, Some(vec!["D-all"]));
    let mut script = Script::new(4 * MIB);
    script.broken = Some(Vec::new());
    script.wrong_spans = [span(BASE + 2 * MIB, 2 * MIB)].into();
    assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
    assert_eq!(script.broken, Some(vec!["D-all"]));
}
