// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const SMALL: Shape = Shape {
    rows: 4,
    assoc: 2,
    succs: 2,
};

fn b(n: u32) -> UmBlock {
    UmBlock(n)
}

fn table(shape: Shape, faults: &[u32]) -> BlockTable {
    let mut t = BlockTable::default();
    for w in faults.windows(2) {
        t.insert(b(w[0]), shape, true).unwrap();
        t.learn(b(w[0]), b(w[1]), shape);
    }
    t
}

fn succs(t: &BlockTable, block: u32, shape: Shape) -> Vec<u32> {
    t.successors(b(block), shape).map(|s| s.0).collect()
}

#[test]
fn successors_are_in_mru_order_and_the_oldest_falls_out() {
    let t = table(SMALL, &[0, 1, 0, 2, 0, 1, 0]);
    assert_eq!(succs(&t, 0, SMALL), [1, 2]);
    let t = table(SMALL, &[0, 1, 0, 2, 0, 3, 0]);
    assert_eq!(succs(&t, 0, SMALL), [3, 2]);
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn the_paper_s_size_is_its_limit() {
    // 2048 rows of 2 ways of a tag, a stamp and 4 successors.
    assert_eq!(Shape::DEEPUM.bytes(), 2048 * 2 * 6 * 4);
    let mut t = BlockTable::default();
    for i in 0..100_000 {
        t.insert(b(i), Shape::DEEPUM, true).unwrap();
    }
    assert_eq!(t.bytes(), Shape::DEEPUM.bytes());
    assert_eq!(t.len(), 4096);
}

#[test]
fn a_small_kernel_takes_little() {
    let faults: Vec<u32> = (1000..1010).collect();
    assert!(table(Shape::DEEPUM, &faults).bytes() <= 8 * 2 * 6 * 4);
}

#[test]
fn growth_says_what_insertion_adds() {
    let shape = Shape::DEEPUM;
    let mut t = BlockTable::default();
    for i in 0..if cfg!(miri) { 60 } else { 3000u32 } {
        let block = b(i.wrapping_mul(2654435761) >> 8);
        let (before, growth) = (t.bytes(), t.growth(block, shape));
        t.insert(block, shape, true).unwrap();
        assert_eq!(t.bytes(), before + growth, "at {i}");
    }
}

#[test]
fn without_leave_to_grow_the_least_recent_makes_room() {
    let mut t = BlockTable::default();
    assert_eq!(t.insert(b(0), SMALL, false), Err(OutOfMemory));
    for n in [0, 4, 0, 8] {
        t.insert(b(n), SMALL, n == 0).unwrap();
    }
    assert!(t.contains(b(0), SMALL) && t.contains(b(8), SMALL) && !t.contains(b(4), SMALL));
}

#[test]
fn a_walk_meets_a_block_once() {
    let mut t = table(SMALL, &[0, 1]);
    assert!(t.meet(b(0), 1, SMALL));
    assert!(!t.meet(b(0), 1, SMALL));
    assert!(t.meet(b(0), 2, SMALL));
    assert!(!t.meet(b(77), 2, SMALL));
}

#[test]
fn forgetting_keeps_a_start_and_an_end() {
    let mut t = table(SMALL, &[0, 1, 2, 3, 0]);
    t.set_start(b(0));
    t.set_end(b(3));
    t.forget(SMALL, |x| x.0 == 0 || x.0 == 3);
    assert!([Some(b(1)), Some(b(2))].contains(&t.start()));
    assert_eq!(succs(&t, 1, SMALL), [2]);
    assert_eq!(succs(&t, 2, SMALL), [] as [u32; 0]);
    t.forget(SMALL, |_| true);
    assert_eq!((t.bytes(), t.start(), t.end()), (0, None, None));
}

/// The reference: the paper's table, with all its rows from the beginning.
#[derive(Default)]
struct Model(BTreeMap<u32, Vec<(u32, Vec<u32>)>>);

impl Model {
    fn row(&mut self, block: u32, shape: Shape) -> &mut Vec<(u32, Vec<u32>)> {
        self.0.entry(block % shape.rows).or_default()
    }

    fn insert(&mut self, block: u32, shape: Shape) {
        let row = self.row(block, shape);
        let way = row.iter().position(|w| w.0 == block).map(|i| row.remove(i));
        row.insert(0, way.unwrap_or((block, Vec::new())));
        row.truncate(shape.assoc as usize);
    }

    fn learn(&mut self, prev: u32, next: u32, shape: Shape) {
        if let Some(w) = self.row(prev, shape).iter_mut().find(|w| w.0 == prev) {
            w.1.retain(|&s| s != next);
            w.1.insert(0, next);
            w.1.truncate(shape.succs as usize);
        }
    }

    fn forget(&mut self, gone: impl Fn(u32) -> bool) {
        for row in self.0.values_mut() {
            row.retain(|w| !gone(w.0));
            row.iter_mut().for_each(|w| w.1.retain(|&s| !gone(s)));
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::model(512))]

    /// Growing by need changes nothing but the memory.
    #[test]
    fn holds_what_the_paper_s_table_holds(
        faults in prop::collection::vec((0..64u32, 0..3u32), 1..crate::testing::steps(200)),
        rows in 0..6u32,
        assoc in 1..4u32,
        succs in 1..5u32,
    ) {
        let shape = Shape { rows: 1 << rows, assoc, succs };
        let mut t = BlockTable::default();
        let mut m = Model::default();
        let mut last = None;
        for (n, what) in faults {
            // Neighbours, and blocks that are far apart and share rows.
            let block = if what == 1 { n * 16 } else { n };
            if what == 2 && n % 8 == 0 {
                t.forget(shape, |x| x.0 / 4 == n / 4);
                m.forget(|x| x / 4 == n / 4);
                continue;
            }
            t.insert(b(block), shape, true).unwrap();
            m.insert(block, shape);
            if let Some(last) = last {
                t.learn(b(last), b(block), shape);
                m.learn(last, block, shape);
            }
            last = Some(block);
            let held: usize = m.0.values().map(Vec::len).sum();
            prop_assert_eq!(t.len() as usize, held);
            for w in m.0.values().flatten() {
                prop_assert!(t.contains(b(w.0), shape), "{} is missing", w.0);
                prop_assert_eq!(&super::tests::succs(&t, w.0, shape), &w.1);
            }
        }
    }
}
