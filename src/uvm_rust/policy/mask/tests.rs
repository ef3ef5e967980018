// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::format;
use std::vec::Vec;

fn set(m: &PageMask) -> BTreeSet<u16> {
    (0..PAGES).filter(|&p| m.test(p)).collect()
}

/// Masks with both lone pages and long runs.
fn mask() -> impl Strategy<Value = PageMask> {
    (any::<[u64; 2]>(), 0..=PAGES, 0..=PAGES, any::<bool>()).prop_map(|(w, a, b, sparse)| {
        let runs = PageMask::from(Region::new(a, b));
        let [x, y] = w;
        if sparse {
            PageMask::from_words([x, 0, y, x & y, 0, u64::MAX, x ^ y, y])
        } else {
            runs
        }
    })
}

#[test]
fn regions_are_cut_to_the_block() {
    assert_eq!(Region::new(500, 600).pages(), 12);
    assert!(Region::new(7, 3).is_empty());
    assert!(Region::new(600, 700).is_empty());
    assert_eq!(Region::new(1, 511).shrink(4, 0), Region::new(16, 496));
    assert!(Region::new(1, 511).shrink(9, 0).is_empty());
    assert_eq!(Region::WHOLE.shrink(99, 0), Region::WHOLE);
    assert_eq!(Region::new(1, 511).shrink(4, 1), Region::new(15, 511));
    assert_eq!(Region::new(15, 31).shrink(4, 1), Region::new(15, 31));
    assert_eq!(Region::new(0, 30).shrink(4, 497), Region::new(15, 15));
    assert_eq!(Region::new(0, 31).shrink(4, 497), Region::new(15, 31));
    assert!(Region::new(0, 14).shrink(4, 497).is_empty());
    assert!(Region::new(500, 512).shrink(9, 512).is_empty());
}

#[test]
fn pages_outside_are_never_in() {
    let mut m = PageMask::FULL;
    m.set(PAGES);
    m.set(u16::MAX);
    assert_eq!(m, PageMask::FULL);
    assert!(!m.test(PAGES) && !m.test(u16::MAX));
}

#[test]
fn prints_its_runs() {
    let m = PageMask::from(Region::new(0, 16)) | PageMask::from(Region::new(511, 512));
    assert_eq!(format!("{m:?}"), "{0..16, 511..512}");
}

proptest! {
    #![proptest_config(crate::testing::model(256))]

    #[test]
    fn is_a_set_of_pages(a in mask(), b in mask(), shift in 0..=PAGES) {
        let (x, y) = (set(&a), set(&b));
        prop_assert_eq!(set(&(a & b)), &x & &y);
        prop_assert_eq!(set(&(a | b)), &x | &y);
        prop_assert_eq!(set(&(a - b)), &x - &y);
        prop_assert_eq!(set(&!a), (0..PAGES).filter(|p| !x.contains(p)).collect());
        prop_assert_eq!(a.count() as usize, x.len());
        prop_assert_eq!(a.is_empty(), x.is_empty());
        prop_assert_eq!(a.is_subset(&b), x.is_subset(&y));
        prop_assert_eq!(a.intersects(&b), !x.is_disjoint(&y));
        prop_assert_eq!(a.pages().collect::<Vec<_>>(), x.iter().copied().collect::<Vec<_>>());
        let moved = x.iter().filter_map(|p| p.checked_sub(shift)).collect();
        prop_assert_eq!(set(&a.shifted_down(shift)), moved);
    }

    #[test]
    fn runs_are_maximal_and_make_up_the_mask(a in mask()) {
        let runs: Vec<_> = a.runs().collect();
        let union = runs.iter().fold(PageMask::EMPTY, |m, &r| m | r.into());
        prop_assert_eq!(union, a);
        prop_assert!(runs.iter().all(|r| !r.is_empty()));
        prop_assert!(runs.windows(2).all(|w| w[0].outer() < w[1].first()));
    }
}
