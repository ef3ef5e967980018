// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose chunk goes, and which, when it is whose turn.

use crate::evict::tests::gpu::Gpu;
use crate::evict::{Change, Chunk, Holder, Queue, RootChunks};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

/// Process `holder` announces a kernel, which faults on these blocks.
fn turn(gpu: &mut Gpu, holder: Holder, blocks: core::ops::Range<u32>) -> usize {
    gpu.roots.announced(holder, true);
    blocks.filter(|&block| gpu.faults(holder, block)).count()
}

/// The process and the block whose chunk goes next.
fn next(gpu: &mut Gpu) -> (Holder, u32) {
    let chunk = gpu.roots.pick().unwrap();
    gpu.holds[chunk as usize].unwrap()
}

fn chunk_of(gpu: &Gpu, what: (Holder, u32)) -> Chunk {
    let at = gpu.holds.iter().position(|&held| held == Some(what));
    at.unwrap() as Chunk
}

/// Of two programs that need all but a quarter of what they have together, each brings that quarter at each turn.
#[test]
fn programs_in_turn_bring_what_they_lack() {
    for (policy, each) in [("turns", 10), ("lru", 20)] {
        let mut gpu = Gpu::new(policy, 30);
        turn(&mut gpu, 1, 0..20);
        assert_eq!(turn(&mut gpu, 2, 0..20), 20);
        for _ in 0..3 {
            for holder in [1, 2] {
                assert_eq!(turn(&mut gpu, holder, 0..20), each, "{policy}");
                assert_eq!(gpu.count(holder), 20);
            }
        }
    }
}

#[test]
fn the_program_whose_turn_is_farthest_gives_up_what_it_needs_last() {
    let mut gpu = Gpu::new("turns", 12);
    (1..=3).for_each(|holder| _ = turn(&mut gpu, holder, 0..4));
    assert_eq!(next(&mut gpu), (2, 3));
    gpu.faults(3, 4);
    assert_eq!(next(&mut gpu), (2, 2));
    // The first comes, and of those that wait the third is the farthest.
    gpu.roots.announced(1, true);
    assert_eq!(next(&mut gpu), (3, 4));
    // Once nobody else has any, its own oldest goes.
    assert_eq!(turn(&mut gpu, 1, 4..12), 8);
    assert_eq!(gpu.count(1), 12);
    assert_eq!(next(&mut gpu), (1, 0));
}

/// What was not part of a program's last turn goes first, and what a prediction met is part of it.
#[test]
fn what_the_last_turn_did_without_goes_first() {
    let mut gpu = Gpu::new("turns", 8);
    turn(&mut gpu, 1, 0..4);
    turn(&mut gpu, 2, 0..2);
    turn(&mut gpu, 1, 4..6);
    gpu.roots.announced(2, true);
    assert_eq!(next(&mut gpu), (1, 0));
    // In its next turn the prefetcher finds two of these there, the later one first, and one of them twice.
    gpu.roots.announced(1, true);
    let owner = gpu.roots.add_owner(1);
    for block in [3, 0, 3] {
        gpu.roots.expect(chunk_of(&gpu, (1, block)), owner, 9);
    }
    gpu.roots.announced(2, true);
    let mut left = Vec::new();
    for block in 2..7 {
        left.push(next(&mut gpu).1);
        gpu.faults(2, block);
    }
    // The last turn needs what it met last.
    assert_eq!(left, [1, 2, 4, 5, 0]);
    // A mark of one whose turn it is not says nothing of its turn.
    let mut gpu = Gpu::new("turns", 8);
    turn(&mut gpu, 1, 0..4);
    let owner = gpu.roots.add_owner(1);
    turn(&mut gpu, 2, 0..4);
    gpu.roots.expect(chunk_of(&gpu, (1, 0)), owner, 9);
    assert_eq!(next(&mut gpu), (1, 3));
}

/// A chunk that is used twice counts once: a program that has none left is not the one that gives up any.
#[test]
fn a_chunk_counts_once() {
    let mut gpu = Gpu::new("turns", 6);
    turn(&mut gpu, 3, 0..2);
    turn(&mut gpu, 1, 0..1);
    let chunk = chunk_of(&gpu, (1, 0));
    gpu.roots.used_by(chunk, 1).unwrap();
    turn(&mut gpu, 2, 0..3);
    assert_eq!(next(&mut gpu), (1, 0));
    gpu.faults(2, 3);
    assert_eq!(next(&mut gpu), (3, 1));
}

/// A prediction whose copy ends in another's turn does not show that a kernel runs.
#[test]
fn what_was_predicted_may_come_late() {
    let mut gpu = Gpu::new("turns", 5);
    turn(&mut gpu, 1, 0..3);
    let owner = gpu.roots.add_owner(1);
    turn(&mut gpu, 2, 0..2);
    let chunk = chunk_of(&gpu, (1, 2));
    gpu.roots.used_by(chunk, 1).unwrap();
    // Both run, as far as is known, and the oldest goes.
    assert_eq!(next(&mut gpu), (1, 0));
    gpu.roots.expect(chunk, owner, 0);
    gpu.roots.brought(chunk, owner);
    assert_eq!(next(&mut gpu), (1, 1));
}

/// A chunk whose program could not be evicted from it, or that a CPU has used, comes back, and others go before it.
#[test]
fn a_chunk_that_comes_back_out_of_turn_makes_way() {
    let mut gpu = Gpu::new("turns", 4);
    turn(&mut gpu, 1, 0..4);
    gpu.roots.announced(2, true);
    let chunk = chunk_of(&gpu, (1, 3));
    assert_eq!(gpu.roots.pick(), Some(chunk));
    gpu.roots.change(chunk, Change::Pinned).unwrap();
    assert_eq!(next(&mut gpu), (1, 2));
    gpu.roots.change(chunk, Change::Whole(1)).unwrap();
    assert_eq!(next(&mut gpu), (1, 2));
    assert_eq!(gpu.roots.length(Queue::Used), 4);
}

/// A program whose kernel goes on in another's turn gets what it needs at once, and the other as well.
#[test]
fn a_kernel_that_runs_out_of_turn_gets_on() {
    let mut gpu = Gpu::new("turns", 16);
    turn(&mut gpu, 1, 0..8);
    assert_eq!(turn(&mut gpu, 2, 0..16), 16);
    // All is the second one's. The first needs four at once.
    for _ in 0..2 {
        (0..4).for_each(|block| _ = gpu.faults(1, block));
    }
    assert_eq!((0..4).filter(|&block| gpu.faults(1, block)).count(), 0);
    assert_eq!(gpu.count(1), 4);
    // So does one that has announced that nothing follows.
    gpu.roots.announced(2, false);
    (16..20).for_each(|block| _ = gpu.faults(2, block));
    assert_eq!((16..20).filter(|&block| gpu.faults(2, block)).count(), 0);
}

/// Processes that announce nothing keep what they have used since the farthest program's turn is away, and no longer.
#[test]
fn what_has_no_turn_goes_when_it_was_used_longer_ago() {
    let mut gpu = Gpu::new("turns", 12);
    (0..4).for_each(|block| _ = gpu.faults(7, block));
    turn(&mut gpu, 1, 0..4);
    turn(&mut gpu, 2, 0..4);
    // The first one's turn is one away. The other process has used nothing for two turns.
    assert_eq!(next(&mut gpu), (7, 0));
    gpu.roots.announced(1, true);
    turn(&mut gpu, 2, 4..6);
    assert_eq!((gpu.count(7), gpu.count(1)), (2, 4));
    // It uses one.
    let used = chunk_of(&gpu, (7, 2));
    gpu.roots.used_by(used, 7).unwrap();
    assert_eq!(next(&mut gpu), (7, 3));
    turn(&mut gpu, 2, 6..7);
    assert_eq!(next(&mut gpu), (1, 0));
    // Where nobody announces anything, the order is that of `lru`.
    let mut gpu = Gpu::new("turns", 4);
    (0..4).for_each(|block| _ = gpu.faults(1 + Holder::from(block % 2), block));
    assert_eq!(next(&mut gpu), (1, 0));
}

#[test]
fn what_is_protected_stays() {
    let mut gpu = Gpu::new("turns", 32);
    turn(&mut gpu, 1, 0..16);
    turn(&mut gpu, 2, 0..8);
    turn(&mut gpu, 3, 0..8);
    assert_eq!(next(&mut gpu).0, 2);
    gpu.protects(2, 8);
    assert_eq!(next(&mut gpu).0, 1);
    // So is what has no turn.
    let mut gpu = Gpu::new("turns", 32);
    (0..8).for_each(|block| _ = gpu.faults(7, block));
    turn(&mut gpu, 1, 0..12);
    turn(&mut gpu, 2, 0..12);
    assert_eq!(next(&mut gpu), (7, 0));
    gpu.protects(7, 8);
    assert_eq!(next(&mut gpu), (1, 11));
}

/// Whether there is room for a prediction, of a process and so many kernels ahead.
fn room(roots: &RootChunks, of: [(Holder, u32); 4]) -> [bool; 4] {
    of.map(|(holder, ahead)| roots.has_room_for(holder, ahead))
}

/// What waits goes for a prediction, whatever it expects, in the turn of who predicts, and for that turn.
#[test]
fn a_prediction_has_room_in_its_turn() {
    let mut gpu = Gpu::new("turns", 8);
    assert_eq!(
        room(&gpu.roots, [(1, 0), (2, 9), (9, 0), (9, 9)]),
        [true; 4],
        "it is free"
    );
    for holder in [1, 2, 1, 2, 1] {
        turn(&mut gpu, holder, 0..4);
        gpu.roots.announced(holder, true);
    }
    let owner = gpu.roots.add_owner(2);
    (0..8).for_each(|chunk| gpu.roots.expect(chunk, owner, 9));
    let of = [(1, 0), (1, 1), (2, 0), (9, 0)];
    assert_eq!(room(&gpu.roots, of), [true, false, false, false]);
    gpu.roots.announced(2, true);
    assert_eq!(
        room(&gpu.roots, [(2, 0), (2, 1), (2, 2), (1, 0)]),
        [true, true, false, false]
    );
    // All that is left is its own.
    turn(&mut gpu, 2, 4..8);
    assert!(!gpu.roots.has_room_for(2, 0), "it is expected");
    gpu.roots.remove_owner(owner);
    assert!(gpu.roots.has_room_for(2, 0) && !gpu.roots.has_room_for(1, 0));
    // What moves no bytes is there for one that waits, too.
    let mut free = Gpu::new("turns", 4);
    turn(&mut free, 1, 0..2);
    turn(&mut free, 2, 0..1);
    assert!(free.roots.has_room_for(1, 0));
    // Where evictions fail, the policy is not asked.
    gpu.roots.set_by_default(true);
    assert!(gpu.roots.has_room_for(1, 0));
}

/// Under other policies a prediction takes nothing that is expected.
#[test]
fn under_other_policies_turns_are_nothing() {
    let mut gpu = Gpu::new("lru", 4);
    turn(&mut gpu, 1, 0..4);
    gpu.roots.announced(2, true);
    assert!(gpu.roots.has_room_for(2, 0) && gpu.roots.has_room_for(1, 5));
    let owner = gpu.roots.add_owner(1);
    (0..4).for_each(|chunk| gpu.roots.expect(chunk, owner, 9));
    assert!(!gpu.roots.has_room_for(2, 0));
}

/// What a process does in the test below.
#[derive(Clone, Copy, Debug)]
enum Step {
    Announces,
    Rests,
    Accesses(u32),
    Expects(u32),
}

fn step() -> impl Strategy<Value = (Holder, Step)> {
    let step = prop_oneof![
        Just(Step::Announces),
        Just(Step::Rests),
        (0..12u32).prop_map(Step::Accesses),
        (0..12u32).prop_map(Step::Accesses),
        (0..12u32).prop_map(Step::Expects),
    ];
    (1..5 as Holder, step)
}

proptest! {
    #![proptest_config(crate::testing::model(256))]

    /// Whatever programs do, the one whose turn it is gives up nothing while one has any that waits, and a kernel gets
    /// what it needs at once, in its turn or out of it.
    #[test]
    fn who_runs_keeps_what_it_has(
        steps in proptest::collection::vec(step(), 1..crate::testing::steps(200)),
        chunks in 4..24u32,
        (faulting, needed) in (1..6 as Holder, 1..24u32),
    ) {
        let mut gpu = Gpu::new("turns", chunks);
        let owners: Vec<_> = (1..5).map(|holder| gpu.roots.add_owner(holder)).collect();
        // Those that had a turn, the one whose turn it is, and those that bring memory out of turn.
        let (mut programs, mut running, mut last) = (BTreeSet::new(), None, 0);
        let mut strays = BTreeSet::new();
        // Blocks that came for a program, not for what became one later.
        let mut known = BTreeSet::new();
        for (holder, step) in steps {
            match step {
                Step::Announces => {
                    let begins = gpu.roots.announced(holder, true);
                    prop_assert_eq!(begins, last != holder);
                    if begins {
                        strays.clear();
                    }
                    strays.remove(&holder);
                    programs.insert(holder);
                    (running, last) = (Some(holder), holder);
                }
                Step::Rests => {
                    prop_assert!(!gpu.roots.announced(holder, false));
                    running = running.filter(|&running| running != holder);
                }
                Step::Accesses(block) => {
                    let waits = |h: &Holder| running != Some(*h) && !strays.contains(h);
                    let any_waits = programs.iter().any(|h| waits(h) && {
                        let mut held = gpu.holds.iter().flatten();
                        held.any(|held| held.0 == *h && known.contains(held))
                    });
                    let goes = gpu.roots.pick().filter(|&c| gpu.roots.queue_of(c) == Some(Queue::Used));
                    let goes = goes.and_then(|chunk| gpu.holds[chunk as usize]);
                    if let (true, Some(held)) = (any_waits, goes) {
                        prop_assert!(!known.contains(&held) || waits(&held.0), "{held:?}, {running:?}, {strays:?}");
                    }
                    if gpu.faults(holder, block) {
                        known.remove(&(holder, block));
                        if programs.contains(&holder) {
                            known.insert((holder, block));
                        }
                        if running != Some(holder) && programs.contains(&holder) {
                            strays.insert(holder);
                        }
                    }
                }
                Step::Expects(block) => {
                    let held = gpu.holds.iter().position(|&held| held == Some((holder, block)));
                    if let Some(chunk) = held {
                        gpu.roots.expect(chunk as Chunk, owners[holder as usize - 1], 9);
                    }
                }
            }
        }
        owners.iter().for_each(|&owner| gpu.roots.remove_owner(owner));
        let needed = 100..100 + needed.min(chunks);
        let faults = |gpu: &mut Gpu| needed.clone().filter(|&block| gpu.faults(faulting, block)).count();
        faults(&mut gpu);
        prop_assert!(faults(&mut gpu) <= 1, "a kernel's blocks evict each other");
        prop_assert_eq!(faults(&mut gpu), 0);
    }
}
