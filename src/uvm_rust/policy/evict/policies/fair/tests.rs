// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Equal shares, and what a process keeps whatever others do.

use super::*;
use crate::evict::tests::gpu::Gpu;
use crate::evict::{Change, Queue};
use proptest::prelude::*;
use std::vec::Vec;

#[test]
fn a_loud_neighbour_takes_nothing_of_a_share() {
    assert_eq!(Gpu::new("fair", 256).faults_beside_a_loud_one(), 0);
    assert_eq!(Gpu::new("lru", 256).faults_beside_a_loud_one(), 19 * 180);
}

#[test]
fn what_nobody_else_wants_is_lent_and_given_back() {
    let mut gpu = Gpu::new("fair", 128);
    (0..128).for_each(|b| _ = gpu.faults(1, b));
    assert_eq!(gpu.count(1), 128);
    (0..128).for_each(|b| _ = gpu.faults(2, b));
    assert_eq!((gpu.count(1), gpu.count(2)), (64, 64));
    // What is given back is what was used longest ago.
    assert!(gpu.holds.contains(&Some((1, 64))) && !gpu.holds.contains(&Some((1, 63))));
}

/// Split chunks are nobody's. They are not safe for having long been there, and no share of the others'.
#[test]
fn what_is_nobodys_goes_when_its_turn_comes() {
    let mut gpu = Gpu::new("fair", 40);
    (0..16).for_each(|b| _ = gpu.faults(0, b));
    // More than fits beside what nobody uses any more, and less than fits without.
    for round in 0..4 {
        let faults = (0..28).filter(|&b| gpu.faults(1, b)).count();
        assert_eq!(faults, if round == 0 { 28 } else { 0 });
    }
    assert_eq!(gpu.count(0), 12);
    // A loud program whose chunks are split has one share, too.
    let mut gpu = Gpu::new("fair", 40);
    (0..18).for_each(|b| _ = gpu.faults(1, b));
    (0..200).for_each(|b| _ = gpu.faults(0, b));
    assert_eq!(gpu.count(0) + gpu.count(1), 40);
    assert!(gpu.count(1) >= 18, "{}", gpu.count(1));
}

#[test]
fn one_process_alone_is_under_lru() {
    for chunks in [4, 16, 100] {
        let mut both = ["fair", "lru"].map(|policy| Gpu::new(policy, chunks));
        for block in (0..400).map(|i| i * 7 % 150) {
            let [fair, lru] = &mut both;
            assert_eq!(fair.faults(1, block), lru.faults(1, block));
            assert_eq!(fair.holds, lru.holds);
        }
    }
}

#[test]
fn what_a_process_expects_is_spared_within_its_share() {
    let mut gpu = Gpu::new("fair", 32);
    (0..24).for_each(|b| _ = gpu.faults(1, b));
    (0..8).for_each(|b| _ = gpu.faults(2, b));
    let oldest = gpu.roots.pick().unwrap();
    assert_eq!(gpu.holds[oldest as usize], Some((1, 0)));
    let owner = gpu.roots.add_owner(1);
    gpu.roots.expect(oldest, owner, 3);
    let second = gpu.roots.pick().unwrap();
    assert_eq!(gpu.holds[second as usize], Some((1, 1)));
    // All that it has is expected: what is needed last goes, and nobody else's.
    for chunk in (0..32).filter(|&c| gpu.holds[c].is_some_and(|(h, _)| h == 1)) {
        gpu.roots.expect(chunk as Chunk, owner, 4 + chunk as u32);
    }
    assert_eq!(gpu.next(), Some(1));
    // It asked for all of it since its kernel began: none is spared at another's expense.
    gpu.roots.begins(owner);
    (24..32).for_each(|b| _ = gpu.faults(1, b));
    (8..16).for_each(|b| _ = gpu.faults(2, b));
    assert_eq!(gpu.count(1), 16);
    let mut alone = Gpu::new("fair", 32);
    let owner = alone.roots.add_owner(1);
    alone.roots.begins(owner);
    // The other process's chunks are the oldest, and stay.
    (0..8).for_each(|b| _ = alone.faults(2, b));
    (0..24).for_each(|b| _ = alone.faults(1, b));
    assert_eq!(alone.next(), Some(1));
}

#[test]
fn where_nobody_has_more_than_is_spared_the_oldest_of_all_goes() {
    let mut gpu = Gpu::new("fair", 64);
    for holder in 1..=8 {
        (0..8).for_each(|b| assert!(gpu.faults(holder, b)));
    }
    // The process that used a chunk last would evict what it has just brought.
    assert_eq!(gpu.next(), Some(1));
    gpu.faults(8, 8);
    assert_eq!((gpu.count(1), gpu.count(8)), (7, 9));
    // Now it has more than is spared.
    assert_eq!(gpu.next(), Some(8));
}

#[test]
fn more_processes_than_have_shares_of_their_own() {
    let mut gpu = Gpu::new("fair", 256);
    for holder in 1..=200 {
        (0..3).for_each(|b| assert!(gpu.faults(holder, b)));
    }
    // Those that share a number count as one, so that at most so many have nothing; all get on.
    for holder in 1..=200 {
        gpu.faults(holder, 0);
        assert!(gpu.count(holder) > 0);
    }
    // Once they are gone, two have shares of their own again.
    let mut gone = Gpu::new("fair", 256);
    for holder in 1..=100 {
        (0..2).for_each(|b| _ = gone.faults(holder, b));
    }
    for chunk in 0..256 {
        gone.roots
            .change(chunk, Change::Free { zeroed: true })
            .unwrap();
        gone.holds[chunk as usize] = None;
    }
    (0..256).for_each(|b| _ = gone.faults(101, b));
    (0..200).for_each(|b| _ = gone.faults(102, b));
    assert_eq!((gone.count(101), gone.count(102)), (128, 128));
}

/// A protected process has most, and another one the oldest chunk.
#[test]
fn of_those_who_may_give_the_one_with_most_gives() {
    let mut gpu = Gpu::new("fair", 128);
    for (holder, count) in [(3, 30), (2, 40), (1, 58)] {
        (0..count).for_each(|b| _ = gpu.faults(holder, b));
    }
    assert_eq!(gpu.next(), Some(1));
    gpu.protects(1, 58);
    assert_eq!(gpu.next(), Some(2));
}

/// Of two that share a number, one is protected, and has chunks that are older than the other's.
#[test]
fn who_shares_a_number_with_a_protected_process_gives_its_own() {
    for big in 1..=64 {
        let mut gpu = Gpu::new("fair", 256);
        (1..=64).for_each(|h| _ = gpu.faults(h, 0));
        (0..10).for_each(|b| _ = gpu.faults(65, b));
        (1..183).for_each(|b| _ = gpu.faults(big, b));
        gpu.protects(65, 10);
        for block in 183..195 {
            assert_eq!(gpu.next(), Some(big));
            gpu.faults(big, block);
        }
        assert_eq!(gpu.count(65), 10);
    }
}

proptest! {
    #![proptest_config(crate::testing::model(256))]

    /// Whoever gives up a chunk has more than all others, or nobody has more than is spared; and the lists that the
    /// policy keeps are those of the used queue.
    #[test]
    fn who_has_most_gives(
        chunks in 4..80u32,
        steps in proptest::collection::vec((0..6u64, 0..60u32, 0..10u8), 1..crate::testing::steps(400)),
    ) {
        let mut gpu = Gpu::new("fair", chunks);
        for (holder, block, what) in steps {
            let chunk = block % chunks;
            let on = gpu.roots.queue_of(chunk);
            match what {
                // It is pinned, and may be evicted again.
                0 if on == Some(Queue::Used) => {
                    let held = gpu.holds[chunk as usize].map_or(0, |(h, _)| h);
                    let change = if held == 0 { Change::Split } else { Change::Whole(held) };
                    gpu.roots.change(chunk, Change::Pinned).unwrap();
                    gpu.roots.change(chunk, change).unwrap();
                }
                1 if on == Some(Queue::Used) => {
                    gpu.roots.change(chunk, Change::Free { zeroed: block % 2 == 0 }).unwrap();
                    gpu.holds[chunk as usize] = None;
                }
                _ => {
                    let counts: Vec<_> = (0..6).map(|h| gpu.count(h)).collect();
                    let most = *counts.iter().max().unwrap();
                    let full = gpu.roots.length(Queue::Free) == 0;
                    // What is nobody's may go as the oldest of all.
                    let giver = gpu.next().filter(|&giver| giver != 0 && full);
                    if let Some(giver) = giver.filter(|_| most > gpu.spared) {
                        prop_assert_eq!(counts[giver as usize], most);
                    }
                    gpu.faults(holder, block);
                }
            }
        }
    }

    /// What an instruction needs is there after a fault for each block, whoever has how much.
    #[test]
    fn an_instruction_gets_what_it_needs_at_once(
        chunks in 8..600u32,
        before in proptest::collection::vec((1..5u64, 0..700u32), 0..1500),
        needed in 1..=100u32,
        order in proptest::collection::vec(0..1000u32, 0..200),
    ) {
        let mut gpu = Gpu::new("fair", chunks);
        before.into_iter().for_each(|(holder, block)| _ = gpu.faults(holder, block));
        (0..chunks).for_each(|block| _ = gpu.faults(9, block));
        let needed = (gpu.spared as u32 * needed).div_ceil(100);
        let blocks = order.iter().map(|n| n % needed).chain(0..needed);
        let faults = blocks.filter(|&n| gpu.faults(1, 1000 + n)).count();
        prop_assert_eq!(faults as u32, needed);
    }
}
