// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::vec;
use std::vec::Vec;

mod gpu;

use crate::testing::Dice;
use gpu::{Expected, Gpu, Program};

fn b(n: u32) -> UmBlock {
    UmBlock(n)
}

fn predictor(config: Config) -> Predictor {
    Predictor::new(Config {
        max_kernels: crate::testing::size(config.max_kernels),
        ..config
    })
    .unwrap()
}

/// All that is predicted now, as (block, kernels ahead).
fn drain(p: &mut Predictor) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    for _ in 0..1_000_000 {
        match p.next(8) {
            Next::Prefetch(x) => all.push((x.block.0, x.ahead)),
            Next::More => {}
            Next::Idle => return all,
        }
    }
    panic!("the chain does not end");
}

/// Runs kernels with their faults, without prefetching.
fn train(p: &mut Predictor, kernels: &[(u64, &[u32])]) {
    for (id, faults) in kernels {
        p.on_kernel(ExecId(*id)).unwrap();
        for &f in *faults {
            p.on_fault(b(f)).unwrap();
        }
    }
}

#[test]
fn addresses_of_a_block() {
    assert_eq!(
        UmBlock::from_address(0x7f00_0020_1234).unwrap().address(),
        0x7f00_0020_0000
    );
    assert_eq!(UmBlock::from_address(u64::MAX), None);
    assert_eq!(UmBlock::from_address((1 << 53) - 1), None);
    assert!(UmBlock::from_address((1 << 53) - (1 << 21) - 1).is_some());
}

#[test]
fn blocks_of_a_kernel_are_predicted_when_it_runs_again() {
    let mut p = predictor(Config::default());
    train(&mut p, &[(1, &[10, 11, 12]), (2, &[20])]);
    p.on_kernel(ExecId(1)).unwrap();
    assert_eq!(drain(&mut p)[..3], [(10, 0), (11, 0), (12, 0)]);
}

#[test]
fn the_chain_goes_on_into_the_next_kernels() {
    let step: [(u64, &[u32]); 3] = [(1, &[10, 11]), (2, &[20, 21]), (3, &[30])];
    let mut p = predictor(Config {
        ahead: 2,
        ..Config::default()
    });
    for _ in 0..3 {
        train(&mut p, &step);
    }
    p.on_kernel(ExecId(1)).unwrap();
    assert_eq!(drain(&mut p), [(10, 0), (11, 0), (20, 1), (21, 1), (30, 2)]);
    // It pauses at N kernels and resumes when one is over.
    p.on_kernel(ExecId(2)).unwrap();
    assert_eq!(drain(&mut p), [(10, 2), (11, 2)]);
}

#[test]
fn three_predecessors_tell_apart_what_follows() {
    let mut p = predictor(Config {
        ahead: 1,
        ..Config::default()
    });
    // 9 is followed by 5 after 1 2 3, and by 6 after 4 2 3.
    let a: [(u64, &[u32]); 5] = [(1, &[]), (2, &[]), (3, &[]), (9, &[]), (5, &[50])];
    let c: [(u64, &[u32]); 5] = [(4, &[]), (2, &[]), (3, &[]), (9, &[]), (6, &[60])];
    for _ in 0..3 {
        train(&mut p, &a);
        train(&mut p, &c);
    }
    train(&mut p, &a[..4]);
    assert_eq!(drain(&mut p).first(), Some(&(50, 1)));
    train(&mut p, &a[4..]);
    train(&mut p, &c[..4]);
    assert_eq!(drain(&mut p).first(), Some(&(60, 1)));
}

#[test]
fn a_walk_to_the_end_stops_there_and_an_exhaustive_one_does_not() {
    for (walk, blocks) in [(Walk::ToEnd, vec![1, 2]), (Walk::Exhaustive, vec![1, 2, 3])] {
        let mut p = predictor(Config {
            walk,
            ahead: 0,
            ..Config::default()
        });
        train(&mut p, &[(1, &[1, 2, 3, 2]), (2, &[])]);
        // The last fault of the first execution is 3, as 2 was known by then.
        p.kernels.table(0).unwrap().set_end(b(2));
        p.on_kernel(ExecId(1)).unwrap();
        assert_eq!(
            drain(&mut p).iter().map(|x| x.0).collect::<Vec<_>>(),
            blocks
        );
    }
}

#[test]
fn what_was_missed_is_found_the_next_time() {
    let mut p = predictor(Config {
        ahead: 0,
        ..Config::default()
    });
    train(&mut p, &[(1, &[10, 11, 12, 13]), (2, &[])]);
    p.on_kernel(ExecId(1)).unwrap();
    assert_eq!(drain(&mut p).len(), 4);
    // A block that never faulted before, first of all and later.
    p.on_fault(b(99)).unwrap();
    p.on_fault(b(98)).unwrap();
    p.on_kernel(ExecId(2)).unwrap();
    p.on_kernel(ExecId(1)).unwrap();
    let found: BTreeSet<_> = drain(&mut p).iter().map(|x| x.0).collect();
    assert_eq!(found, BTreeSet::from([10, 11, 12, 13, 98, 99]));
}

#[test]
fn a_late_prefetch_does_not_disturb_the_chain() {
    let step: [(u64, &[u32]); 2] = [(1, &[10, 11, 12]), (2, &[20, 21])];
    let mut p = predictor(Config::default());
    for _ in 0..4 {
        train(&mut p, &step);
    }
    p.on_kernel(ExecId(1)).unwrap();
    assert_eq!(
        p.next(1),
        Next::Prefetch(Prefetch {
            block: b(10),
            kernel: ExecId(1),
            ahead: 0,
            ssd: FromSsd::Not
        })
    );
    p.on_fault(b(10)).unwrap();
    assert_eq!(
        p.next(1),
        Next::Prefetch(Prefetch {
            block: b(11),
            kernel: ExecId(1),
            ahead: 0,
            ssd: FromSsd::Not
        })
    );
}

#[test]
fn what_is_expected_is_spared_until_its_kernel_is_over() {
    let step: [(u64, &[u32]); 3] = [(1, &[10]), (2, &[20]), (3, &[30])];
    let mut p = predictor(Config {
        ahead: 1,
        ..Config::default()
    });
    for _ in 0..3 {
        train(&mut p, &step);
    }
    let mut e = Expected::default();
    let mut kernel = |p: &mut Predictor, id| {
        p.on_kernel(ExecId(id)).unwrap();
        for (block, ahead) in drain(p) {
            e.expect(p, b(block), ahead);
        }
        [10, 20, 30].map(|n| e.needed_in(p, b(n)).is_some())
    };
    assert_eq!(kernel(&mut p, 1), [true, true, false]);
    assert_eq!(kernel(&mut p, 2), [false, true, true]);
    // A surprise voids what was expected of the old chain.
    assert_eq!(kernel(&mut p, 99), [false, false, false]);
}

#[test]
fn what_went_away_is_not_predicted() {
    let mut p = predictor(Config {
        ahead: 0,
        ..Config::default()
    });
    train(&mut p, &[(1, &[10, 11, 12, 13]), (2, &[])]);
    p.forget(b(11), b(12));
    p.on_kernel(ExecId(1)).unwrap();
    let found: Vec<_> = drain(&mut p).iter().map(|x| x.0).collect();
    assert!(!found.contains(&11) && !found.contains(&12), "{found:?}");
    // The address may come back with another allocation.
    p.on_kernel(ExecId(2)).unwrap();
    train(&mut p, &[(1, &[10, 11]), (2, &[])]);
    p.on_kernel(ExecId(1)).unwrap();
    assert!(drain(&mut p).contains(&(11, 0)));
}

#[test]
fn a_flood_of_freed_ranges_forgets_too_much_rather_than_too_little() {
    let mut p = predictor(Config::default());
    train(&mut p, &[(1, &[10, 11]), (2, &[])]);
    p.forget(b(10), b(10));
    for n in 0..2 * MAX_FORGETS as u32 {
        p.forget(b(1000 + n), b(1000 + n));
    }
    p.on_kernel(ExecId(1)).unwrap();
    assert_eq!(drain(&mut p), []);
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn memory_stays_within_its_limit_and_old_ids_go_first() {
    let config = Config {
        memory_limit: 256 << 10,
        max_kernels: 1000,
        ..Config::default()
    };
    let mut p = predictor(config);
    for id in 0..5000 {
        let _ = p.on_kernel(ExecId(id));
        for n in 0..20 {
            let _ = p.on_fault(b(id as u32 * 100 + n));
        }
        assert!(
            p.kernels.bytes() <= config.memory_limit,
            "at {id}: {}",
            p.kernels.bytes()
        );
    }
    let s = p.stats();
    assert!(s.dropped > 4000 && s.remembered >= 50, "{s:?}");
    assert!(p.kernels.find(ExecId(4999)).is_some() && p.kernels.find(ExecId(0)).is_none());
}

/// As a process that has opened the driver several times.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn several_predictors_share_a_limit() {
    const LIMIT: usize = 1 << 20;
    const GROWTH: usize = 32 << 10;
    let share = Share::new(LIMIT);
    let mut all: Vec<_> = (0..3).map(|_| predictor(Config::default())).collect();
    let bytes = |p: &Predictor| p.stats().table_bytes;
    for id in 0..2000 {
        for p in &mut all {
            let _ = p.on_kernel(ExecId(id));
            for n in 0..20 {
                let _ = p.on_fault(b(id as u32 * 100 + n));
            }
            p.settle(&share);
        }
        let sum: usize = all.iter().map(bytes).sum();
        assert!(sum <= LIMIT + GROWTH, "at {id}: {sum}");
    }
    // What one leaves is the others'.
    let mut gone = all.pop().unwrap();
    gone.leave(&share);
    let before = bytes(&all[0]);
    for id in 0..2000 {
        let _ = all[0].on_kernel(ExecId(1 << 20 | id));
        for n in 0..20 {
            let _ = all[0].on_fault(b(id as u32 * 100 + n));
        }
        all[0].settle(&share);
    }
    assert!(bytes(&all[0]) >= before + bytes(&gone) / 2, "{before}");
}

/// Runs a training step 16 times; with `seed`, the blocks of a kernel fault in another
/// order in every step, as warps race. Checks the share of the faults of a GPU
/// without prefetching that is left.
fn learns_a_step(walk: Walk, seed: u64) {
    let config = Config {
        walk,
        ..Config::default()
    };
    let program = Program::training(60, 12);
    let run = |mut gpu: Gpu| -> Vec<u64> {
        (0..16)
            .map(|n| gpu.run(&program, if seed == 0 { 0 } else { seed + n }))
            .collect()
    };
    let (ours, plain) = (run(Gpu::new(config, 400)), run(Gpu::without_prefetch(400)));
    std::eprintln!("{walk:?}, seed {seed}: {ours:?} against {plain:?}");
    let left = |from: usize| {
        ours[from..].iter().sum::<u64>() as f64 / plain[from..].iter().sum::<u64>() as f64
    };
    assert!(left(2) < 0.1);
    assert!(left(11) < 0.01);
}

/// A block that happens to be resident does not fault, so its kernel's table misses
/// it at first: the tables are complete only after some steps.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn a_repeated_step_hardly_faults_once_it_is_learnt() {
    learns_a_step(Walk::ToEnd, 0);
    learns_a_step(Walk::Exhaustive, 0);
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn the_order_of_faults_within_a_kernel_does_not_matter_much() {
    learns_a_step(Walk::ToEnd, 77);
    learns_a_step(Walk::Exhaustive, 77);
}

#[test]
fn what_comes_otherwise_than_foreseen_ends_what_is_done_ahead() -> Result<(), OutOfMemory> {
    let mut p = predictor(Config::default());
    let forth = || (1..=20).map(ExecId);
    for id in forth().chain(forth()) {
        p.on_kernel(id)?;
    }
    assert!(p.foresees());
    for id in forth().rev() {
        p.on_kernel(id)?;
        drain(&mut p);
    }
    assert!(p.stats().kernels_wrong > 5);
    assert!(!p.foresees());
    // Until kernels come as they did before.
    for id in forth().chain(forth()).chain(forth()) {
        p.on_kernel(id)?;
        drain(&mut p);
    }
    assert!(p.foresees());
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn random_kernels_cost_no_more_than_five_percent() {
    let seed = 5;
    let mut rng = Dice::new(seed);
    std::eprintln!("seed {seed}");
    let mut gpu = Gpu::new(Config::default(), 400);
    let mut plain = Gpu::without_prefetch(400);
    let kernels = Program::training(60, 12);
    let mut faults = [0; 2];
    for n in 0..40 {
        let shuffled = kernels.shuffled(&mut rng);
        faults[0] += gpu.run(&shuffled, n);
        faults[1] += plain.run(&shuffled, n);
    }
    std::eprintln!(
        "{faults:?} faults, {} against {} copies",
        gpu.copies,
        plain.copies
    );
    assert!(faults[0] * 100 <= faults[1] * 105);
    assert!(gpu.copies * 100 <= plain.copies * 105);
}

/// Kernels that never touch the same blocks again: each costs what was prefetched
/// for it until its table lost its trust, and then nothing.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn random_blocks_cost_little_and_only_at_first() {
    let seed = 6;
    let mut rng = Dice::new(seed);
    std::eprintln!("seed {seed}");
    let mut gpu = Gpu::new(Config::default(), 400);
    let mut plain = Gpu::without_prefetch(400);
    let (mut faults, mut at_first) = ([0; 2], 0);
    for n in 0..100 {
        let program = Program::lookups(30, 20, 5000, &mut rng);
        faults[0] += gpu.run(&program, n);
        faults[1] += plain.run(&program, n);
        if n == 9 {
            at_first = gpu.copies - plain.copies;
        }
    }
    let wasted = gpu.copies - plain.copies;
    std::eprintln!(
        "{faults:?} faults, {} copies, {wasted} more, {at_first} at first",
        plain.copies
    );
    assert!(faults[0] * 100 <= faults[1] * 101);
    assert!(wasted * 100 <= plain.copies * 5);
    assert!(wasted - at_first <= at_first / 10);
}

#[derive(Clone, Debug)]
enum Op {
    Kernel(u64),
    Fault(u32),
    Next(u32),
    Forget(u32, u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..40u64).prop_map(Op::Kernel),
        8 => (0..200u32).prop_map(Op::Fault),
        6 => (1..5u32).prop_map(Op::Next),
        1 => (0..200u32, 0..10u32).prop_map(|(a, n)| Op::Forget(a, a + n)),
    ]
}

proptest! {
    #![proptest_config(crate::testing::model(512))]

    /// Whatever arrives: memory is bounded, nothing is predicted that did not fault
    /// since it was last forgotten.
    #[test]
    fn keeps_its_promises(
        ops in prop::collection::vec(op(), 1..crate::testing::steps(400)),
        limit in 4096..65536usize,
        ahead in 0..5u32,
        to_end: bool,
    ) {
        let config = Config {
            shape: Shape { rows: 8, assoc: 2, succs: 2 },
            ahead,
            walk: if to_end { Walk::ToEnd } else { Walk::Exhaustive },
            max_kernels: 16,
            max_records: 4,
            memory_limit: limit,
            seed: 1,
        };
        let mut p = predictor(config);
        let mut faulted = BTreeSet::new();
        for op in ops {
            match op {
                Op::Kernel(id) => drop(p.on_kernel(ExecId(id))),
                Op::Fault(n) => {
                    faulted.insert(n);
                    let _ = p.on_fault(b(n));
                }
                Op::Next(steps) => {
                    if let Next::Prefetch(x) = p.next(steps) {
                        prop_assert!(faulted.contains(&x.block.0), "{x:?}");
                        prop_assert!(x.ahead <= ahead);
                    }
                }
                Op::Forget(first, last) => {
                    faulted.retain(|n| !(first..=last).contains(n));
                    p.forget(b(first), b(last));
                }
            }
            prop_assert!(p.kernels.bytes() <= limit.max(256));
            prop_assert!(p.stats().remembered <= 16);
        }
    }

    #[test]
    fn a_ring_is_a_bounded_deque(ops in prop::collection::vec(any::<(bool, u8)>(), 0..100), n in 0..9usize) {
        let mut r = Ring::new(n).unwrap();
        let mut m = VecDeque::new();
        for (push, x) in ops {
            if push {
                prop_assert_eq!(r.push(x), m.len() < n);
                if m.len() < n {
                    m.push_back(x);
                }
            } else {
                prop_assert_eq!(r.pop(), m.pop_front());
            }
            prop_assert_eq!(r.iter().copied().collect::<Vec<_>>(), m.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(r.front(), m.front().copied());
            prop_assert_eq!(r.back_mut().copied(), m.back().copied());
        }
    }
}
