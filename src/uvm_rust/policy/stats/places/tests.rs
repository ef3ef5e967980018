// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

/// A VA space that checks how it is walked.
#[derive(Default)]
struct Model {
    ranges: Vec<Range>,
    /// What each block that was touched has, by its number.
    blocks: BTreeMap<u64, Places>,
    entered: bool,
    chosen: Option<Range>,
    /// Looks since the lock was taken, and how often it was taken.
    looks: u32,
    enters: u32,
    /// Blocks that were looked at.
    seen: Vec<u64>,
    /// So often somebody else has the lock before it is had each time, and how often that was waited for.
    busy: u32,
    tried: u32,
    naps: u32,
    /// The thread is to die at this nap.
    killed_at: Option<u32>,
    /// The thread is to die at this rest.
    dies_at: Option<u32>,
    /// A range that goes at the first rest, and what comes in its place.
    turn: Option<(usize, Range)>,
}

impl Machine for Model {
    fn enter(&mut self) -> bool {
        assert!(!self.entered);
        if self.tried < self.busy {
            self.tried += 1;
            return false;
        }
        self.tried = 0;
        self.entered = true;
        self.looks = 0;
        self.enters += 1;
        true
    }

    fn leave(&mut self) {
        assert!(self.entered);
        self.entered = false;
        self.chosen = None;
        assert!(self.looks <= AT_ONCE, "P-lock: {}", self.looks);
    }

    fn range(&mut self, from: u64) -> Option<Range> {
        assert!(self.entered);
        let mut behind = self.ranges.iter().filter(|range| range.span.last >= from);
        self.chosen = behind.next().copied();
        // One that is not managed is a look, too.
        self.looks += u32::from(self.chosen.is_some_and(|range| !range.managed));
        self.chosen
    }

    fn pages(&mut self, at: u64) -> Places {
        let range = self.chosen.expect("a range is chosen");
        assert!(self.entered && range.managed);
        assert!((range.span.first..=range.span.last).contains(&at));
        self.looks += 1;
        self.seen.push(at / BLOCK_BYTES);
        let block = self.blocks.get(&(at / BLOCK_BYTES));
        block.copied().unwrap_or_default()
    }

    fn nap(&mut self) {
        assert!(!self.entered);
        self.naps += 1;
    }

    fn rest(&mut self) -> bool {
        assert!(!self.entered);
        if self.killed_at.is_some_and(|at| self.naps >= at) {
            return true;
        }
        if let Some((index, range)) = self.turn.take() {
            self.ranges[index] = range;
        }
        self.dies_at == Some(self.enters)
    }
}

fn blocks(first: u64, count: u64, managed: bool) -> Range {
    Range {
        span: Span {
            first: first * BLOCK_BYTES,
            last: (first + count) * BLOCK_BYTES - 1,
        },
        managed,
    }
}

fn places(host: u64, ssd: u64) -> Places {
    Places { host, ssd }
}

#[test]
fn all_blocks_of_managed_ranges_count_and_no_others() {
    let mut model = Model {
        ranges: [blocks(2, 3, true), blocks(5, 1, false), blocks(9, 1, true)].into(),
        blocks: [
            (2, places(512, 0)),
            (4, places(7, 100)),
            (5, places(500, 500)),
            (9, places(1, 1)),
        ]
        .into(),
        ..Model::default()
    };
    assert_eq!(count(&mut model), Some(places(520, 101)));
    assert_eq!(model.seen, [2, 3, 4, 9]);
    assert_eq!(places(520, 101).bytes(), places(520 * 4096, 101 * 4096));
    assert_eq!(count(&mut Model::default()), Some(Places::default()));
}

/// Ranges need not begin or end with a block, and two of them may share one's 2 MiB.
#[test]
fn parts_of_blocks_are_looked_at_once_for_each_range() {
    let part = |first: u64, last: u64| Range {
        span: Span {
            first: first * PAGE_BYTES,
            last: last * PAGE_BYTES - 1,
        },
        managed: true,
    };
    let mut model = Model {
        ranges: [part(500, 600), part(600, 601), part(601, 1024)].into(),
        ..Model::default()
    };
    assert_eq!(count(&mut model), Some(Places::default()));
    assert_eq!(model.seen, [0, 1, 1, 1]);
}

#[test]
fn the_last_address_ends_the_walk() {
    let last = u64::MAX / BLOCK_BYTES;
    for managed in [true, false] {
        let mut model = Model {
            ranges: [blocks(1, 1, true)].into(),
            blocks: [(1, places(3, 0)), (last, places(4, 0))].into(),
            ..Model::default()
        };
        model.ranges.push(Range {
            span: Span {
                first: last * BLOCK_BYTES,
                last: u64::MAX,
            },
            managed,
        });
        let all = if managed { 7 } else { 3 };
        assert_eq!(count(&mut model), Some(places(all, 0)), "{managed}");
    }
}

/// The lock is let go every so often, also among ranges that hold nothing of ours.
#[test]
fn a_walk_rests() {
    for managed in [true, false] {
        let many = AT_ONCE * 10 + 1;
        let mut model = Model {
            ranges: (0..many)
                .map(|n| blocks(u64::from(n) * 2, 1, managed))
                .collect(),
            ..Model::default()
        };
        assert_eq!(count(&mut model), Some(Places::default()));
        assert_eq!(model.enters, 11, "{managed}");
    }
    let mut model = Model {
        ranges: [blocks(0, 1000, true)].into(),
        dies_at: Some(3),
        ..Model::default()
    };
    assert_eq!(count(&mut model), None, "the thread is to die");
    assert_eq!(model.seen.len(), 3 * AT_ONCE as usize);
}

/// Who has the lock may wait for a device that does not answer.
#[test]
fn a_lock_that_is_not_to_be_had_is_not_waited_for() {
    let of = |busy, killed_at| Model {
        ranges: [blocks(0, 2 * u64::from(AT_ONCE), true)].into(),
        blocks: [(1, places(1, 0))].into(),
        busy,
        killed_at,
        ..Model::default()
    };
    for (busy, told) in [(u32::MAX, false), (TRIES / 2, false), (TRIES / 3, true)] {
        let mut model = of(busy, None);
        assert_eq!(count(&mut model), told.then_some(places(1, 0)), "{busy}");
        let naps = if told { 3 * (TRIES / 3) } else { TRIES };
        assert_eq!(model.naps, naps, "P-wait");
    }
    let mut model = of(u32::MAX, Some(3));
    assert_eq!((count(&mut model), model.naps), (None, 3));
}

#[test]
fn a_reservation_of_a_petabyte_is_not_walked_to_its_end() {
    let most = u64::from(MOST);
    for (size, is_told) in [(most - 1, true), (most + 1, false), (1 << 29, false)] {
        let mut model = Model {
            ranges: [blocks(0, size, true)].into(),
            blocks: [(1, places(1, 0))].into(),
            ..Model::default()
        };
        let told = count(&mut model);
        assert_eq!(told, is_told.then_some(places(1, 0)), "{size}");
        assert!(model.seen.len() <= MOST as usize);
    }
}

/// The range that is walked goes, and another one is there that begins before and ends behind.
#[test]
fn what_is_mapped_meanwhile_is_not_counted_twice() {
    let mut model = Model {
        ranges: [blocks(100, 100, true)].into(),
        blocks: (0..1000).map(|block| (block, places(1, 0))).collect(),
        turn: Some((0, blocks(50, 200, true))),
        ..Model::default()
    };
    assert_eq!(count(&mut model), Some(places(150, 0)));
    let distinct: std::collections::BTreeSet<_> = model.seen.iter().collect();
    assert_eq!(distinct.len(), model.seen.len());
    // And one that has ended where the walk is.
    let mut model = Model {
        ranges: [blocks(100, 100, true), blocks(300, 5, true)].into(),
        turn: Some((0, blocks(100, 2, true))),
        ..Model::default()
    };
    assert_eq!(count(&mut model), Some(Places::default()));
    assert_eq!(model.seen.len(), AT_ONCE as usize + 5);
}

proptest! {
    /// Against a sum over all blocks.
    #[test]
    fn counts_are_those_of_a_list(
        lengths in proptest::collection::vec((0..80_u64, 1..90_u64, any::<bool>()), 0..12),
        touched in proptest::collection::btree_map(0..1500_u64, (0..513_u64, 0..513_u64), 0..300),
    ) {
        let mut model = Model::default();
        let mut at = 0;
        for (gap, length, managed) in lengths {
            model.ranges.push(blocks(at + gap, length, managed));
            at += gap + length;
        }
        model.blocks = touched.into_iter().map(|(n, (host, ssd))| (n, places(host, ssd))).collect();
        let is_managed = |block: u64| model.ranges.iter().any(|range| {
            range.managed && (range.span.first..=range.span.last).contains(&(block * BLOCK_BYTES))
        });
        let mut all = Places::default();
        for (_, of) in model.blocks.iter().filter(|(block, _)| is_managed(**block)) {
            all.host += of.host;
            all.ssd += of.ssd;
        }
        prop_assert_eq!(count(&mut model), Some(all));
    }
}
