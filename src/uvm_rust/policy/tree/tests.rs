// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::testing::model;
use proptest::prelude::*;

/// The rule read page by page and level by level, from the leaf up: the last node that is
/// full enough counts.
fn page_by_page(
    leaves: &PageMask,
    shape: Shape,
    faulted: &PageMask,
    within: Region,
    threshold: u32,
) -> PageMask {
    let mut out = PageMask::EMPTY;
    for page in within.first()..within.outer() {
        if !faulted.test(page) {
            continue;
        }
        let leaf = page - shape.max.first() + shape.offset;
        let mut node = None;
        let mut size = 1;
        while size <= shape.leaves.next_power_of_two() {
            let first = leaf / size * size;
            let outer = (first + size).min(shape.leaves);
            let count = (first..outer).filter(|&l| leaves.test(l)).count() as u32;
            if count * 100 > u32::from(outer - first) * threshold {
                node = Some((first, outer));
            }
            size *= 2;
        }
        let Some((first, outer)) = node else { continue };
        let (mut first, mut outer) = (first + shape.max.first(), outer + shape.max.first());
        if first < shape.offset {
            first = shape.offset;
        } else {
            first = (first - shape.offset).max(shape.max.first());
        }
        if outer < shape.offset {
            outer = shape.offset;
        } else {
            outer = (outer - shape.offset).min(shape.max.outer());
        }
        (first..outer).for_each(|p| out.set(p));
        if outer == shape.max.outer() {
            break;
        }
    }
    out
}

fn grow_page_by_page(
    leaves: &mut PageMask,
    shape: Shape,
    big: Region,
    granule: u16,
    faulted: &PageMask,
    thrashing: Option<&PageMask>,
) {
    let mut pieces = std::vec::Vec::new();
    if big.outer() == 0 {
        pieces.push((shape.max.first(), shape.max.outer()));
    } else {
        pieces.push((shape.max.first(), big.first()));
        pieces.extend(
            (big.first()..big.outer())
                .step_by(granule.into())
                .map(|p| (p, p + granule)),
        );
        pieces.push((big.outer(), shape.max.outer()));
    }
    for (first, outer) in pieces {
        let any = |mask: &PageMask| (first..outer).any(|p| mask.test(p));
        if any(faulted) && !thrashing.is_some_and(any) {
            (first..outer).for_each(|p| leaves.set(p - shape.max.first() + shape.offset));
        }
    }
}

/// Sparse and dense, in runs and scattered.
fn mask() -> impl Strategy<Value = PageMask> {
    let runs = prop::collection::vec((0..512u16, 1..200u16), 0..6);
    let pages = prop::collection::vec(0..512u16, 0..40);
    (runs, pages).prop_map(|(runs, pages)| {
        let mut mask = PageMask::EMPTY;
        for (first, n) in runs {
            mask.fill(Region::new(first, first + n));
        }
        pages.into_iter().for_each(|p| mask.set(p));
        mask
    })
}

/// A part of a va_block, and the big pages in it as upstream finds them.
fn shape() -> impl Strategy<Value = (Shape, Region, u16)> {
    (0..512u16, 1..=512u16, 0..3u16, 0..2u16).prop_map(|(first, pages, misfit, big)| {
        let granule = 16u16 << big;
        // Most va_blocks are whole.
        let max = match misfit {
            0 => Region::new(first, first + pages),
            _ => Region::WHOLE,
        };
        let inner = max.shrink(granule.trailing_zeros(), 0);
        let big = if inner.is_empty() {
            Region::new(0, 0)
        } else {
            inner
        };
        let lead = big.first().saturating_sub(max.first());
        let offset = if big.outer() != 0 && lead > 0 {
            granule - lead
        } else {
            0
        };
        let leaves = max.pages() + offset;
        (
            Shape {
                max,
                offset,
                leaves,
            },
            big,
            granule,
        )
    })
}

proptest! {
    #![proptest_config(model(4000))]

    #[test]
    fn takes_what_upstream_takes(
        (shape, big, granule) in shape(),
        resident in mask(),
        faulted in mask(),
        thrashing in prop::option::of(mask()),
        threshold in 1..=100u32,
        part in prop::bool::ANY,
    ) {
        prop_assume!(shape.leaves <= PAGES);
        let faulted = faulted & PageMask::from(shape.max);
        let whole = shape.max;
        let within = if part {
            Region::new(whole.first(), whole.first() + whole.pages() / 2)
        } else {
            whole
        };
        let mut leaves = (resident | faulted).shifted_down(whole.first());
        // Moved up by the offset, as upstream does.
        let mut moved = PageMask::EMPTY;
        leaves.pages().filter(|p| p + shape.offset < PAGES).for_each(|p| moved.set(p + shape.offset));
        leaves = moved;
        let mut expected = leaves;
        grow(&mut leaves, shape, big, granule, &faulted, thrashing.as_ref());
        grow_page_by_page(&mut expected, shape, big, granule, &faulted, thrashing.as_ref());
        prop_assert_eq!(leaves, expected);
        prop_assert_eq!(
            prefetch(&leaves, shape, &faulted, within, threshold),
            page_by_page(&leaves, shape, &faulted, within, threshold)
        );
    }
}

#[test]
fn one_fault_brings_its_big_page() {
    let shape = Shape::WHOLE;
    let mut faulted = PageMask::EMPTY;
    faulted.set(40);
    let mut leaves = faulted;
    grow(&mut leaves, shape, Region::WHOLE, 16, &faulted, None);
    let taken = prefetch(&leaves, shape, &faulted, Region::WHOLE, 51);
    assert_eq!(taken, PageMask::from(Region::new(32, 48)));
}
