// SPDX-License-Identifier: GPL-2.0-only OR MIT

mod script;
mod storm;
mod turns;
mod upstream;
mod world;

use super::*;
use crate::testing::model;
use proptest::prelude::*;
use std::vec::Vec;

fn params() -> Params {
    Params {
        ring: 64,
        max_batch: 32,
        utlbs: 8,
        policy: ReplayPolicy::BatchFlush,
        update_put_percent: 50,
        max_batches: 20,
        max_throttled: 5,
        coalesce: true,
        cancels_by_address: true,
        turn_us: 0,
    }
}

fn record(entry: u32, who: u64, page: u64, access: u8, utlb: u16) -> Record {
    Record {
        address: page << 12,
        who,
        entry,
        instances: 1,
        utlb,
        access,
        accesses: 1 << access,
        ..Record::default()
    }
}

fn faults() -> impl Strategy<Value = Vec<Record>> {
    let fault = (0..3u64, 0..20u64, 0..5u8, 0..4u16, 0..20u8);
    prop::collection::vec(fault, 0..64).prop_map(|faults| {
        let number = |(i, (who, page, access, utlb, fatal))| Record {
            fatal: u8::from(fatal == 0),
            ..record(i as u32, who, page, access, utlb)
        };
        faults.into_iter().enumerate().map(number).collect()
    })
}

fn fill(batch: &mut Batch, faults: &[Record], steps: usize, coalesce: bool) {
    batch.clear();
    for part in faults.chunks(steps) {
        batch.room()[..part.len()].copy_from_slice(part);
        batch.absorb(part.len(), coalesce);
    }
    batch.order(coalesce);
}

proptest! {
    #![proptest_config(model(2000))]

    /// Whatever the order of arrival: one record for each page that someone asked
    /// for, with all that was asked.
    #[test]
    fn coalesces_across_the_batch(faults in faults(), steps in 1..64usize) {
        let mut batch = Batch::new(64).unwrap();
        fill(&mut batch, &faults, steps, true);
        let key = |r: &Record| (r.who, r.address);
        for (entry, &by) in batch.representatives().iter().enumerate() {
            prop_assert_eq!(key(&faults[entry]), key(&faults[by as usize]));
            prop_assert!(batch.records().iter().any(|r| r.entry == by));
            prop_assert!(faults[entry].fatal == 0 || by as usize == entry);
        }
        for r in batch.records().iter().filter(|r| r.fatal == 0) {
            let same: Vec<_> =
                faults.iter().filter(|f| f.fatal == 0 && key(f) == key(r)).collect();
            prop_assert!(same.len() >= usize::from(r.instances));
            prop_assert_eq!(r.access, faults[r.entry as usize].access);
        }
        batch.translate(|entry| Ok::<_, ()>(faults[entry as usize].who)).unwrap();
        prop_assert!(batch.is_sound());
        // A fatal fault in between may keep two apart; else every page is there once.
        if faults.iter().all(|f| f.fatal == 0) {
            let mut pages: Vec<_> = faults.iter().map(key).collect();
            pages.sort_unstable();
            pages.dedup();
            prop_assert_eq!(batch.records().iter().map(key).collect::<Vec<_>>(), pages);
        }
    }

    #[test]
    fn keeps_all_without_coalescing(faults in faults(), steps in 1..64usize) {
        let mut batch = Batch::new(64).unwrap();
        fill(&mut batch, &faults, steps, false);
        prop_assert_eq!(batch.records().len(), faults.len());
        batch.translate(|entry| Ok::<_, ()>(faults[entry as usize].who)).unwrap();
        prop_assert!(batch.is_sound());
    }

    /// Translating asks once for each run and leaves VA spaces together.
    #[test]
    fn translates(faults in faults(), spaces in prop::array::uniform3(0..3u64)) {
        let mut batch = Batch::new(64).unwrap();
        fill(&mut batch, &faults, 7, true);
        let mut asked = 0;
        batch.translate(|entry| {
            asked += 1;
            Ok::<_, ()>(spaces[faults[entry as usize].who as usize])
        }).unwrap();
        prop_assert!(asked <= 3);
        prop_assert!(batch.is_sound());
        for r in batch.records() {
            prop_assert_eq!(r.who, spaces[faults[r.entry as usize].who as usize]);
        }
    }
}

/// In order as they come, so that nothing is sorted: each takes the place of the one before it.
#[test]
fn what_is_asked_for_more_and_more_intrusively_stands_for_all() {
    let faults: Vec<_> = (0..4).map(|i| record(i, 0, 1, i as u8, 0)).collect();
    let mut batch = Batch::new(64).unwrap();
    for steps in 1..=faults.len() {
        fill(&mut batch, &faults, steps, true);
        assert_eq!(batch.representatives(), [3; 4], "{steps} at a time");
    }
}

#[test]
fn the_record_is_32_bytes() {
    assert_eq!(size_of::<Record>(), 32);
}

#[test]
fn a_full_count_is_not_exceeded() {
    let mut batch = Batch::new(3).unwrap();
    let mut faults = [
        record(0, 0, 0, 1, 0),
        record(1, 0, 0, 1, 0),
        record(2, 0, 0, 1, 0),
    ];
    faults[0].instances = u16::MAX - 1;
    fill(&mut batch, &faults, 3, true);
    assert_eq!(
        batch.records().iter().map(|r| r.instances).max(),
        Some(u16::MAX)
    );
    assert_eq!(batch.records().len(), 2);
}

#[test]
fn of_a_page_the_more_intrusive_access_comes_first() {
    let accesses = [1, 4, 0, 2, 3];
    let faults: Vec<_> = (0..5)
        .map(|i| record(i, 0, 9, accesses[i as usize], 0))
        .collect();
    let mut batch = Batch::new(8).unwrap();
    fill(&mut batch, &faults, 5, false);
    let order: Vec<_> = batch.records().iter().map(|r| r.access).collect();
    assert_eq!(order, [4, 3, 2, 1, 0]);
}

#[test]
fn of_equal_faults_the_first_stands_for_all() {
    let faults = [0, 1, 2].map(|entry| record(entry, 0, 9, 2, 0));
    let mut batch = Batch::new(8).unwrap();
    fill(&mut batch, &faults, 3, true);
    assert_eq!(batch.representatives(), [0, 0, 0]);
    assert_eq!(
        (batch.records()[0].entry, batch.records()[0].instances),
        (0, 3)
    );
}

/// Each of them is cancelled by its own access type.
#[test]
fn fatal_faults_of_a_page_are_not_merged() {
    for fatal in [[0, 1], [1, 0], [1, 1]] {
        let faults = [0, 1].map(|entry| Record {
            fatal: fatal[entry as usize],
            ..record(entry, 0, 9, 2, 0)
        });
        assert!(!faults[0].merges_with(&faults[1]), "{fatal:?}");
        let mut batch = Batch::new(8).unwrap();
        fill(&mut batch, &faults, 2, true);
        assert_eq!(batch.records().len(), 2, "{fatal:?}");
    }
}

/// Neighbouring pages, and instance pointers, which are addresses of pages as well.
#[test]
fn duplicates_are_merged_as_they_are_read() {
    for who in [0, 0x1f_f000, 0x5000_0000, 0xffff_f000] {
        let faults: Vec<_> = (0..64)
            .map(|i| record(i, who, 0x100 + u64::from(i % 32), 2, 0))
            .collect();
        let mut batch = Batch::new(64).unwrap();
        for round in 0..2 {
            batch.clear();
            batch.room()[..64].copy_from_slice(&faults);
            batch.absorb(64, true);
            assert_eq!(batch.records().len(), 32, "of {who:#x}, round {round}");
        }
        batch.clear();
        batch.room()[..64].copy_from_slice(&faults);
        batch.absorb(64, false);
        assert_eq!(batch.records().len(), 64);
    }
}

/// Each half of F-order and F-merge, broken alone.
#[test]
fn what_is_not_sound_is_found() {
    let sound = [record(0, 0, 1, 2, 0), record(1, 0, 2, 2, 0)];
    let check = |change: fn(&mut [Record; 2])| {
        let mut faults = sound;
        change(&mut faults);
        let mut batch = Batch::new(8).unwrap();
        batch.room()[..2].copy_from_slice(&faults);
        // And not put in order.
        batch.absorb(2, false);
        batch.is_sound()
    };
    assert!(check(|_| {}));
    assert!(!check(|faults| faults.swap(0, 1)));
    assert!(!check(|faults| faults[1].address = 0));
    assert!(!check(|faults| faults[0].instances = 2));
    assert!(!check(|faults| faults[1].entry = 0));
    assert!(!check(|faults| faults[0].accesses = 1 << 3));
    assert!(!check(|faults| faults[0].accesses = 0));
}

#[test]
fn an_entry_that_the_gpu_does_not_write_is_waited_for_for_a_while() {
    for (from, to, how) in [
        (0, SPIN_US - 1, EntryWait::Spin),
        (SPIN_US, UNWRITTEN_US - 1, EntryWait::Sleep),
        (UNWRITTEN_US, u64::MAX, EntryWait::GiveUp),
    ] {
        assert_eq!((waits_for_entry(from), waits_for_entry(to)), (how, how));
    }
}

#[test]
fn batch_stops() {
    let p = params();
    assert!(goes_on(&p, 19, 4));
    assert!(!goes_on(&p, 20, 0));
    assert!(!goes_on(&p, 0, 5));
}

#[test]
fn replay_policies() {
    let with = |policy| Params { policy, ..params() };
    assert_eq!(
        flush_after_batch(&with(ReplayPolicy::Block), 8, 8),
        AfterBatch::GoOn
    );
    assert_eq!(
        flush_after_batch(&with(ReplayPolicy::Once), 8, 8),
        AfterBatch::GoOn
    );
    assert_eq!(
        flush_after_batch(&with(ReplayPolicy::Batch), 8, 8),
        AfterBatch::Replay
    );
    let flush = with(ReplayPolicy::BatchFlush);
    assert_eq!(
        flush_after_batch(&flush, 8, 4),
        AfterBatch::Flush(Flush::CachedPut)
    );
    assert_eq!(
        flush_after_batch(&flush, 8, 5),
        AfterBatch::Flush(Flush::UpdatePut)
    );
    for n in 0..4 {
        assert_eq!(ReplayPolicy::from_number(n) as u32, n);
    }
    assert_eq!(ReplayPolicy::from_number(4), ReplayPolicy::BatchFlush);
}

#[test]
fn prefetch_faults_are_throttled() {
    let p = Params {
        max_batch: 30,
        ..params()
    };
    let decide = |now, invalid, lapse, test| prefetch_faults(&p, now, invalid, lapse, test);
    assert_eq!(decide(PrefetchFaults::On, 20, 1000, false), None);
    assert_eq!(
        decide(PrefetchFaults::On, 21, 1000, false),
        Some(PrefetchSwitch::Off)
    );
    assert_eq!(decide(PrefetchFaults::On, 30, 0, false), None);
    assert_eq!(
        decide(PrefetchFaults::On, 6, 1000, true),
        Some(PrefetchSwitch::Off)
    );
    assert_eq!(decide(PrefetchFaults::On, 5, 1000, true), None);
    assert_eq!(decide(PrefetchFaults::Fixed, 30, 1000, true), None);
    assert_eq!(
        decide(PrefetchFaults::Off(1_000_000_000), 0, 1000, false),
        None
    );
    assert_eq!(
        decide(PrefetchFaults::Off(1_000_000_001), 0, 1000, false),
        Some(PrefetchSwitch::On)
    );
}

/// Every length around those of runs, in orders that sorts by pivots find hard too.
#[test]
fn any_order_of_many_faults_is_put_in_order() {
    let orders: [fn(u64, u64) -> u64; 5] = [
        |i, _| i,
        |i, n| n - i,
        // Runs in falling order, as after a translation.
        |i, n| ((n / 17 + 1 - i / 17) << 16) | (i % 17),
        // An organ pipe.
        |i, n| i.min(n - i),
        |i, _| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
    ];
    let lengths = [0, 1, 2, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 600];
    // Miri takes a minute for the long ones.
    let most = if cfg!(miri) { 33 } else { 600 };
    for n in lengths.into_iter().filter(|n| *n <= most) {
        for order in orders {
            let faults: Vec<_> = (0..n)
                .map(|i| Record {
                    address: order(i, n) << 12,
                    who: 1 + i % 3,
                    entry: i as u32,
                    instances: 1,
                    accesses: 1,
                    ..Record::default()
                })
                .collect();
            let mut batch = Batch::new(600).unwrap();
            fill(&mut batch, &faults, 64, false);
            let key = |r: &Record| (r.who, r.address);
            assert!(batch.records().is_sorted_by_key(key), "{n}");
            // Spaces in another order than the keys.
            let space = |entry: u32| Ok::<_, ()>(9 - faults[entry as usize].who);
            batch.translate(space).unwrap();
            assert!(batch.is_sound(), "{n}");
            assert_eq!(batch.records().len() as u64, n);
        }
    }
}

#[test]
fn a_run_ends_with_its_addresses_its_vaspace_and_before_a_fatal_fault() {
    let record = |address, who, fatal| Record {
        address,
        who,
        fatal,
        ..Record::default()
    };
    let all = [
        record(0x1000, 1, 0),
        record(0x2000, 1, 0),
        record(0x3000, 1, 1),
        record(0x4000, 1, 0),
        record(0x5000, 2, 0),
    ];
    let run = |from: usize, first, last| run_within(&all[from..], first, last).len();
    assert_eq!(run(0, 0, u64::MAX), 2);
    assert_eq!(run(0, 0x1000, 0x1fff), 1);
    assert_eq!(run(0, 0x2000, 0x2fff), 0);
    assert_eq!(run(2, 0, u64::MAX), 0);
    assert_eq!(run(3, 0, u64::MAX), 1);
    assert_eq!(run(4, 0x5000, 0x5000), 1);
    assert_eq!(run(5, 0, u64::MAX), 0);
}
