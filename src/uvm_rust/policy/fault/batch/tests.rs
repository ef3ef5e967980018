// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::super::Summary;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

fn fault(space: u64, address: u64, access: Access, utlb: u16) -> Fault {
    Fault {
        space,
        address,
        access,
        utlb,
        ..Fault::default()
    }
}

/// Runs a batch through the coalescer.
fn batch(input: &[Fault], utlbs: &mut [Last], n: u64, merges: bool) -> (Vec<Fault>, Vec<Merge>) {
    let mut faults = vec![Fault::default(); input.len()];
    let mut c = Coalescer::new(&mut faults, utlbs, n, merges);
    let merged = input.iter().map(|&f| c.add(f).unwrap()).collect();
    assert_eq!(c.len(), input.len());
    assert_eq!(c.add(Fault::default()), None);
    let distinct = c.distinct();
    assert_eq!(
        faults.iter().filter(|f| !f.is(Fault::FILTERED)).count(),
        distinct
    );
    (faults, merged)
}

fn utlbs() -> Vec<Last> {
    vec![Last::default(); 8]
}

#[test]
fn a_utlb_that_repeats_itself_is_merged_whatever_came_between() {
    let a = fault(1, 0x1000, Access::Read, 0);
    let other = fault(1, 0x2000, Access::Read, 1);
    let (faults, merged) = batch(&[a, other, a], &mut utlbs(), 1, true);
    assert_eq!(merged, [Merge::New, Merge::New, Merge::Into(0)]);
    assert_eq!((faults[0].instances, faults[2].instances), (2, 0));
}

#[test]
fn a_more_intrusive_access_takes_over_within_a_utlb_only() {
    let read = |utlb| fault(1, 0x1000, Access::Read, utlb);
    let write = |utlb| fault(1, 0x1000, Access::Write, utlb);
    let (faults, merged) = batch(&[read(0), write(0), read(0)], &mut utlbs(), 1, true);
    assert_eq!(merged, [Merge::New, Merge::Replaces(0), Merge::Into(1)]);
    assert_eq!(faults[1].instances, 3);
    assert_eq!(faults[1].accesses, Access::Read.bit() | Access::Write.bit());
    let (_, merged) = batch(&[read(0), write(1)], &mut utlbs(), 1, true);
    assert_eq!(merged, [Merge::New, Merge::New]);
    let (_, merged) = batch(&[write(0), read(1)], &mut utlbs(), 1, true);
    assert_eq!(merged, [Merge::New, Merge::Into(0)]);
}

#[test]
fn addresses_are_those_of_pages() {
    let (faults, merged) = batch(
        &[
            fault(1, 0x1fff, Access::Read, 0),
            fault(1, 0x1001, Access::Read, 1),
        ],
        &mut utlbs(),
        1,
        true,
    );
    assert_eq!(merged[1], Merge::Into(0));
    assert_eq!(faults[0].address, 0x1000);
}

#[test]
fn fatal_faults_stand_alone() {
    let mut fatal = fault(1, 0x1000, Access::Read, 0);
    fatal.flags = Fault::FATAL;
    let plain = fault(1, 0x1000, Access::Read, 0);
    let (_, merged) = batch(&[plain, fatal, fatal, plain], &mut utlbs(), 1, true);
    assert_eq!(merged, [Merge::New; 4]);
}

#[test]
fn nothing_is_merged_where_it_must_not_be() {
    let a = fault(1, 0x1000, Access::Read, 0);
    assert_eq!(batch(&[a, a], &mut utlbs(), 1, false).1, [Merge::New; 2]);
    assert_eq!(
        batch(
            &[a, fault(2, 0x1000, Access::Read, 0)],
            &mut utlbs(),
            1,
            true
        )
        .1[1],
        Merge::New
    );
}

/// The array of faults is used again, and still holds those of the last batch.
#[test]
fn what_a_utlb_did_in_an_earlier_batch_is_over() {
    let mut utlbs = utlbs();
    let mut faults = [Fault::default(); 2];
    for (n, first) in [(1, 0x8000), (2, 0x9000)] {
        let mut c = Coalescer::new(&mut faults, &mut utlbs, n, true);
        assert_eq!(c.add(fault(1, first, Access::Read, 1)), Some(Merge::New));
        assert_eq!(c.add(fault(1, 0x1000, Access::Read, 0)), Some(Merge::New));
    }
}

#[test]
fn a_utlb_that_does_not_exist_is_merged_with_the_last_fault_only() {
    let a = fault(1, 0x1000, Access::Read, u16::MAX);
    let b = fault(1, 0x2000, Access::Read, u16::MAX);
    let (_, merged) = batch(&[a, a, b, a], &mut utlbs(), 1, true);
    assert_eq!(merged, [Merge::New, Merge::Into(0), Merge::New, Merge::New]);
}

#[test]
fn too_little_room_is_an_error() {
    let faults = [fault(1, 0, Access::Read, 0); 3];
    assert_eq!(order(&faults, &mut [Key::default(); 2]), Err(TooMany));
    assert_eq!(order(&[], &mut []), Ok(&[][..]));
    let many = vec![Fault::default(); MAX_BATCH + 1];
    assert_eq!(order(&many, &mut []), Err(TooMany));
}

#[test]
fn the_order_is_by_space_page_access_and_arrival() {
    let faults = [
        fault(2, 0x1000, Access::Read, 0),
        fault(1, 0x3000, Access::Read, 0),
        fault(1, 0x1000, Access::Read, 0),
        fault(1, 0x1000, Access::AtomicStrong, 0),
        fault(1, 0x1000, Access::Read, 0),
    ];
    let mut keys = [Key::default(); 5];
    let places: Vec<_> = order(&faults, &mut keys)
        .unwrap()
        .iter()
        .map(|k| k.index())
        .collect();
    assert_eq!(places, [3, 2, 4, 1, 0]);
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn the_highest_addresses_and_places_fit() {
    let mut faults = vec![fault(7, 0, Access::Prefetch, 0); MAX_BATCH];
    let top = (1 << 57) - PAGE_SIZE;
    faults[MAX_BATCH - 1].address = top;
    let mut keys = vec![Key::default(); MAX_BATCH];
    let last = *order(&faults, &mut keys).unwrap().last().unwrap();
    assert_eq!(
        (last.index(), last.address(), last.space()),
        (MAX_BATCH - 1, top, 7)
    );
}

#[test]
fn what_holds_for_a_page_is_counted_for_all_its_faults() {
    let a = fault(1, 0x1000, Access::Prefetch, 0);
    let b = fault(1, 0x1000, Access::Read, 1);
    let c = fault(1, 0x2000, Access::Read, 2);
    let (mut faults, _) = batch(&[a, a, b, c], &mut utlbs(), 1, true);
    let mut keys = [Key::default(); 4];
    let order = order(&faults, &mut keys).unwrap();
    let first = pages(order).next().unwrap();
    assert_eq!((first.leader, first.keys.clone()), (2, 0..2));
    first.mark(&mut faults, order, Fault::INVALID_PREFETCH);
    let s = Summary::of(&faults, order);
    assert_eq!(
        (s.faults, s.duplicates, s.invalid_prefetches, s.throttled),
        (4, 2, 3, false)
    );
    pages(order)
        .last()
        .unwrap()
        .mark(&mut faults, order, Fault::THROTTLED);
    assert!(Summary::of(&faults, order).throttled);
}

#[test]
fn access_numbers() {
    for n in 0..5 {
        assert_eq!(Access::from_number(n).unwrap() as u8, n);
    }
    assert_eq!(Access::from_number(5), None);
}

fn any_fault() -> impl Strategy<Value = Fault> {
    (0..3u64, 0..40u64, 0..5u8, 0..10u16, 0..12u8, any::<bool>()).prop_map(
        |(space, page, access, utlb, flag, far)| {
            let address = page * PAGE_SIZE / 2 + if far { 5 << 21 } else { 0 };
            let mut f = fault(space, address, Access::from_number(access).unwrap(), utlb);
            f.flags = match flag {
                0 => Fault::FATAL,
                1 => Fault::THROTTLED,
                2 => Fault::INVALID_PREFETCH,
                3 => Fault::FILTERED,
                _ => 0,
            };
            f
        },
    )
}

proptest! {
    #![proptest_config(crate::testing::model(512))]

    /// Whatever is merged on the way: the pages, their accesses, their faults and
    /// their leaders are those of a map of all faults.
    #[test]
    fn finds_what_a_map_of_all_faults_finds(
        input in prop::collection::vec(any_fault(), 0..120),
        merges: bool,
    ) {
        let (faults, merged) = batch(&input, &mut utlbs(), 9, merges);
        let mut keys = vec![Key::default(); faults.len()];
        let order = order(&faults, &mut keys).unwrap();

        let mut map: BTreeMap<(u64, u64), (u32, u8, Access)> = BTreeMap::new();
        for f in &input {
            let e = map.entry((f.space, f.address & !(PAGE_SIZE - 1))).or_default();
            *e = (e.0 + 1, e.1 | f.access.bit(), e.2.max(f.access));
        }
        let found: Vec<_> = pages(order)
            .map(|p| {
                let (instances, accesses) = p.count(&faults, order);
                ((p.space, p.address), (instances, accesses, faults[p.leader].access))
            })
            .collect();
        prop_assert_eq!(found, map.clone().into_iter().collect::<Vec<_>>());

        // Groups cut the order into va_blocks, in one piece each.
        let cut: Vec<_> = groups(order).collect();
        prop_assert_eq!(cut.iter().map(|g| g.keys.len()).sum::<usize>(), order.len());
        prop_assert!(cut.windows(2).all(|w| w[0].keys.end == w[1].keys.start));
        prop_assert!(cut.windows(2).all(|w| (w[0].space, w[0].block) < (w[1].space, w[1].block)));
        for g in &cut {
            for k in &order[g.keys.clone()] {
                prop_assert_eq!((k.space(), k.address() >> 21 << 21), (g.space, g.block));
                prop_assert_eq!(k.address(), faults[k.index()].address);
            }
        }

        let s = Summary::of(&faults, order);
        prop_assert_eq!(s.faults as usize, input.len());
        prop_assert_eq!(s.duplicates as usize, input.len() - map.len());

        // A fault that was merged leads to one that stands for it.
        for (i, m) in merged.iter().enumerate() {
            if let Merge::Into(j) | Merge::Replaces(j) = *m {
                prop_assert!(merges && j < i);
                prop_assert_eq!(faults[i].address, faults[j].address);
                prop_assert_eq!(faults[i].space, faults[j].space);
                prop_assert!(!input[i].is(Fault::FATAL) && !input[j].is(Fault::FATAL));
            }
        }
        let fatal = |f: &&Fault| f.is(Fault::FATAL);
        let alone = faults.iter().filter(fatal).filter(|f| !f.is(Fault::FILTERED) && f.instances == 1);
        prop_assert_eq!(alone.count(), input.iter().filter(fatal).count());
    }
}
