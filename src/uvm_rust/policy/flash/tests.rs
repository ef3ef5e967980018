// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One test for each sentence of the documentation, and a model.

use super::*;
use crate::policy::mask::{PageMask, Region};

mod again;
mod explore;
mod model;
mod tier;

fn pages(first: u16, outer: u16) -> PageMask {
    Region::new(first, outer).into()
}

fn table(slots: u32) -> Table {
    Table::new(Config {
        slots,
        checksums: true,
        quota: u64::MAX,
    })
    .unwrap()
}

/// Puts `mask` of `block` on flash.
fn spill(t: &mut Table, block: &mut BlockPages, mask: PageMask) -> PageMask {
    let tenant = t.tenant(1).unwrap();
    let spill = block.begin_spill(t, tenant, &mask).unwrap();
    block.end_spill(t, spill, &PageMask::FULL)
}

/// Fetches `mask` of `block`.
fn fetch(t: &mut Table, block: &mut BlockPages, mask: PageMask) -> PageMask {
    read(t, block, mask, false)
}

/// Fetches `mask` of `block`, leaving the copies.
fn fetch_copy(t: &mut Table, block: &mut BlockPages, mask: PageMask) -> PageMask {
    read(t, block, mask, true)
}

fn read(t: &mut Table, block: &mut BlockPages, mask: PageMask, keep: bool) -> PageMask {
    let read = block.begin_read(t, &mask).unwrap().unwrap();
    block.end_read(t, read, &PageMask::FULL, &PageMask::EMPTY, keep)
}

#[test]
fn what_flash_has_too_is_written_to_by_who_asks_unless_some_cannot_ask() {
    assert!(block::may_only_read(true, false));
    assert!(!block::may_only_read(true, true));
    assert!(!block::may_only_read(false, false) && !block::may_only_read(false, true));
}

#[test]
fn a_device_has_slots_behind_those_that_are_reserved() {
    let slot = 2 << 20;
    assert_eq!(
        (Config::slots_of(0), Config::slots_of(4 * slot - 1)),
        (None, None)
    );
    assert_eq!(Config::slots_of(4 * slot), Some(3));
    assert_eq!(Config::slots_of(9 * slot + 17), Some(8));
    assert_eq!(Config::slots_of(u64::MAX), Some(u32::MAX - 1));
    assert_eq!(
        (Config::quota_of(0), Config::quota_of(slot)),
        (u64::MAX, 512)
    );
    assert_eq!(Config::quota_of(1), 0);
}

#[test]
fn a_whole_block_is_one_extent_in_a_slot_of_its_own() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    assert_eq!(spill(&mut t, &mut b, PageMask::FULL), PageMask::FULL);
    let places = b.places(&t);
    assert_eq!(places.len(), 1);
    assert_eq!(
        (places[0].pages, places[0].place.offset),
        (Region::WHOLE, 0)
    );
    assert_eq!(t.usage().free_slots, 3);
    assert_eq!(fetch(&mut t, &mut b, PageMask::FULL), PageMask::FULL);
    assert_eq!((t.usage().free_slots, t.usage().extents), (4, 0));
    assert!(b.is_idle());
}

#[test]
fn parts_of_blocks_share_a_slot() {
    let mut t = table(4);
    let mut blocks = [(); 8].map(|()| BlockPages::new(512));
    for b in &mut blocks {
        spill(&mut t, b, pages(10, 70));
    }
    assert_eq!(t.usage().free_slots, 3);
    assert_eq!(t.usage().pages, 480);
    for b in &mut blocks {
        b.release(&mut t);
    }
    assert_eq!((t.usage().free_slots, t.usage().pages), (4, 0));
    t.check();
}

#[test]
fn a_use_ends_the_write_of_a_page() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    let tenant = t.tenant(1).unwrap();
    let s = b.begin_spill(&mut t, tenant, &PageMask::FULL).unwrap();
    b.touched(&pages(100, 101));
    let moved = b.end_spill(&mut t, s, &PageMask::FULL);
    assert_eq!(moved, PageMask::FULL - pages(100, 101));
    assert_eq!(t.usage().pages, 511);
    assert_eq!(b.places(&t).len(), 2);
    t.check();
}

#[test]
fn one_write_of_a_block_at_a_time() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    let tenant = t.tenant(1).unwrap();
    let s = b.begin_spill(&mut t, tenant, &pages(0, 8)).unwrap();
    b.touched(&PageMask::FULL);
    let again = b.begin_spill(&mut t, tenant, &pages(0, 8));
    assert_eq!(again.err(), Some(Error::Busy));
    assert!(b.end_spill(&mut t, s, &PageMask::FULL).is_empty());
    assert_eq!(t.usage().pages, 0);
}

#[test]
fn what_the_device_refused_stays_in_the_host() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    let tenant = t.tenant(1).unwrap();
    let s = b.begin_spill(&mut t, tenant, &PageMask::FULL).unwrap();
    assert!(b.end_spill(&mut t, s, &PageMask::EMPTY).is_empty());
    assert!(b.is_idle());
    assert_eq!(t.usage().free_slots, 4);
}

/// Every other page is an extent of its own: 256 extents a block.
#[test]
#[cfg_attr(miri, ignore = "4096 extents take minutes")]
fn extents_have_a_limit_that_leaves_small_devices_some() {
    let alternate = (0..512)
        .step_by(2)
        .fold(PageMask::EMPTY, |m, p| m | pages(p, p + 1));
    let mut t = table(20);
    let tenant = t.tenant(1).unwrap();
    let mut blocks = std::vec::Vec::new();
    let refused = loop {
        let mut b = BlockPages::new(512);
        match b.begin_spill(&mut t, tenant, &alternate) {
            Ok(s) => assert_eq!(b.end_spill(&mut t, s, &PageMask::FULL), alternate),
            Err(error) => break error,
        }
        blocks.push(b);
        assert!(blocks.len() < 40, "no limit");
    };
    assert_eq!(refused, Error::Fragmented);
    // Three quarters of them, as there is always something left for another one.
    assert_eq!(t.usage().extents, table::EXTENTS_AT_LEAST / 4 * 3);
    // What was refused left nothing behind.
    assert_eq!(t.usage().pages, 12 * 256);
    t.check();
}

/// One process has used up the extents: others write, and what they have on flash is split and
/// given back as ever. Upstream destroys a range of memory whose split fails, with its data.
#[test]
fn who_uses_up_the_extents_harms_nobody_else() {
    let mut t = table(20);
    t.limit_extents(64);
    let mut theirs = BlockPages::new(512);
    let other = t.tenant(2).unwrap();
    let s = theirs.begin_spill(&mut t, other, &PageMask::FULL).unwrap();
    assert_eq!(theirs.end_spill(&mut t, s, &PageMask::FULL), PageMask::FULL);

    // A page at a time, as calls of UVM_RUST_FLASH_MOVE have it.
    let hog = t.tenant(1).unwrap();
    let mut block = BlockPages::new(512);
    let refused =
        (0..512)
            .step_by(2)
            .find_map(|p| match block.begin_spill(&mut t, hog, &pages(p, p + 1)) {
                Ok(s) => {
                    let _ = block.end_spill(&mut t, s, &PageMask::FULL);
                    None
                }
                Err(error) => Some(error),
            });
    assert_eq!(refused, Some(Error::Fragmented));

    theirs.cut(&mut t, 100).expect("a split is refused");
    let mut upper = theirs.split(&mut t, 100);
    // A hole in the middle of an extent.
    assert_eq!(fetch(&mut t, &mut upper, pages(50, 60)), pages(50, 60));
    assert_eq!(t.held(2), 502, "pages that were given back are in use");
    let mut more = BlockPages::new(512);
    let s = more.begin_spill(&mut t, other, &PageMask::FULL);
    let s = s.expect("another process's write is refused");
    assert_eq!(more.end_spill(&mut t, s, &PageMask::FULL), PageMask::FULL);
    // Also one that has nothing on flash yet, but little at a time.
    let third = t.tenant(3).unwrap();
    let mut first = BlockPages::new(512);
    let s = first.begin_spill(&mut t, third, &pages(7, 8));
    first.end_spill(
        &mut t,
        s.expect("the first write is refused"),
        &PageMask::FULL,
    );
    for b in [&mut theirs, &mut upper, &mut more, &mut first, &mut block] {
        b.release(&mut t);
    }
    assert_eq!((t.usage().extents, t.usage().free_slots), (0, 20));
    t.check();
}

/// Not one extent of the limit is left: what is on flash is split all the same, and given back
/// from its middle, and who has nothing there yet may begin.
#[test]
fn a_split_takes_no_extent_of_the_limit() {
    const LIMIT: u32 = 64;
    let mut t = table(20);
    t.limit_extents(LIMIT);
    let first = t.tenant(1).unwrap();
    let mut theirs = BlockPages::new(512);
    let s = theirs.begin_spill(&mut t, first, &PageMask::FULL).unwrap();
    assert_eq!(theirs.end_spill(&mut t, s, &PageMask::FULL), PageMask::FULL);

    // A page at a time. Each tenant leaves some, of which the next one leaves less.
    let mut blocks = std::vec::Vec::new();
    for n in 2..u64::from(LIMIT) {
        if t.usage().extents >= LIMIT {
            break;
        }
        let tenant = t.tenant(n).unwrap();
        let mut block = BlockPages::new(512);
        for p in (0..512).step_by(2) {
            let Ok(s) = block.begin_spill(&mut t, tenant, &pages(p, p + 1)) else {
                break;
            };
            let _ = block.end_spill(&mut t, s, &PageMask::FULL);
        }
        blocks.push(block);
    }
    assert!(t.usage().extents >= LIMIT, "{:?}", t.usage().extents);

    theirs.cut(&mut t, 100).expect("a split is refused");
    let mut upper = theirs.split(&mut t, 100);
    assert_eq!(fetch(&mut t, &mut upper, pages(50, 60)), pages(50, 60));
    assert_eq!(t.held(1), 502, "pages that were given back are in use");
    let last = t.tenant(u64::from(LIMIT)).unwrap();
    let mut begins = BlockPages::new(512);
    let s = begins.begin_spill(&mut t, last, &pages(7, 8));
    let s = s.expect("the first write is refused");
    assert_eq!(begins.end_spill(&mut t, s, &PageMask::FULL), pages(7, 8));
    for b in [&mut theirs, &mut upper, &mut begins]
        .into_iter()
        .chain(&mut blocks)
    {
        b.release(&mut t);
    }
    assert_eq!((t.usage().extents, t.usage().free_slots), (0, 20));
    t.check();
}

/// A hole for which there was no extent: when its pages come back there is one, and the
/// old place must not be taken for the new one.
#[test]
fn a_page_that_left_a_hole_has_one_place() {
    let mut t = table(8);
    t.memory_for_extents(2);
    let (mut a, mut b) = (BlockPages::new(512), BlockPages::new(512));
    spill(&mut t, &mut a, PageMask::FULL);
    spill(&mut t, &mut b, PageMask::FULL);
    assert_eq!(fetch(&mut t, &mut a, pages(100, 200)), pages(100, 200));
    assert_eq!(a.places(&t).len(), 1, "the hole was cut");
    let tenant = t.tenant(1).unwrap();
    let refused = a.begin_spill(&mut t, tenant, &pages(100, 200));
    assert_eq!(refused.err(), Some(Error::Fragmented));
    b.release(&mut t);
    // The one that there is cuts the hole, and none is left for the pages.
    let refused = a.begin_spill(&mut t, tenant, &pages(100, 200));
    assert_eq!(refused.err(), Some(Error::OutOfMemory));
    t.memory_for_extents(3);
    assert_eq!(spill(&mut t, &mut a, pages(100, 200)), pages(100, 200));
    let places = a.places(&t);
    assert_eq!(places.iter().map(|p| p.pages.pages()).sum::<u16>(), 512);
    t.check();
}

#[test]
fn two_reads_of_a_page_are_one() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    let first = b.begin_read(&mut t, &pages(0, 16)).unwrap().unwrap();
    assert_eq!(
        b.begin_read(&mut t, &pages(8, 16)).err(),
        Some(ReadError::Wait)
    );
    let second = b.begin_read(&mut t, &pages(8, 24)).unwrap().unwrap();
    assert_eq!(second.pages, pages(16, 24));
    let none = PageMask::EMPTY;
    assert_eq!(b.end_read(&mut t, first, &none, &none, true), none);
    assert_eq!(b.on_flash(), PageMask::FULL);
    let arrived = b.end_read(&mut t, second, &PageMask::FULL, &none, false);
    assert_eq!(arrived, pages(16, 24));
    t.check();
}

#[test]
fn a_discarded_page_does_not_arrive() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    let read = b.begin_read(&mut t, &pages(0, 8)).unwrap().unwrap();
    b.forget(&mut t, &PageMask::FULL);
    // Its slot stays until nobody reads it.
    assert_eq!(t.usage().free_slots, 3);
    let arrived = b.end_read(&mut t, read, &PageMask::FULL, &PageMask::EMPTY, true);
    assert!(arrived.is_empty());
    assert_eq!(t.usage().free_slots, 4);
}

/// A page that was discarded, used, and spilled again while the first read of it was
/// still under way: that read must not bring the old page.
#[test]
fn an_old_read_does_not_answer_a_new_one() {
    let mut t = table(8);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, pages(0, 8));
    let old = b.begin_read(&mut t, &pages(0, 8)).unwrap().unwrap();
    b.forget(&mut t, &pages(0, 8));
    // Not spilled while a read may still write to that memory.
    assert!(spill(&mut t, &mut b, pages(0, 8)).is_empty());
    assert!(b
        .end_read(&mut t, old, &PageMask::FULL, &PageMask::EMPTY, true)
        .is_empty());
    assert_eq!(spill(&mut t, &mut b, pages(0, 8)), pages(0, 8));
}

#[test]
fn what_cannot_be_read_is_lost_until_it_is_freed() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    let read = b.begin_read(&mut t, &pages(0, 8)).unwrap().unwrap();
    let arrived = b.end_read(&mut t, read, &pages(0, 4), &pages(4, 8), true);
    assert_eq!(arrived, pages(0, 4));
    assert_eq!(b.lost(), pages(4, 8));
    assert_eq!(
        b.begin_read(&mut t, &pages(7, 9)).err(),
        Some(ReadError::Lost)
    );
    let read = b.begin_read(&mut t, &pages(8, 9)).unwrap().unwrap();
    let _ = b.end_read(&mut t, read, &PageMask::EMPTY, &PageMask::EMPTY, false);
    b.forget(&mut t, &pages(4, 8));
    assert!(b.lost().is_empty());
}

#[test]
fn what_was_not_written_since_needs_no_write() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    let before = b.places(&t)[0];
    assert_eq!(fetch_copy(&mut t, &mut b, PageMask::FULL), PageMask::FULL);
    assert_eq!(
        (b.on_flash(), b.copies()),
        (PageMask::EMPTY, PageMask::FULL)
    );
    assert!(!b.is_idle());
    // Nothing is to be read, as it is in memory.
    assert!(b.begin_read(&mut t, &PageMask::FULL).unwrap().is_none());
    assert_eq!(b.drop_clean(&pages(0, 300)), pages(0, 300));
    assert_eq!((b.on_flash(), b.copies()), (pages(0, 300), pages(300, 512)));
    assert_eq!(b.places(&t)[0], before);
    t.check();
}

#[test]
fn what_may_be_written_has_no_copy() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    fetch_copy(&mut t, &mut b, PageMask::FULL);
    b.may_write(&mut t, &pages(100, 512));
    assert_eq!((b.copies(), t.usage().pages), (pages(0, 100), 100));
    assert_eq!(b.drop_clean(&PageMask::FULL), pages(0, 100));
    // What is on flash only is nobody's to write to.
    b.may_write(&mut t, &PageMask::FULL);
    assert_eq!((b.on_flash(), t.usage().pages), (pages(0, 100), 100));
    b.forget(&mut t, &pages(0, 50));
    fetch_copy(&mut t, &mut b, pages(50, 100));
    b.forget(&mut t, &PageMask::FULL);
    assert!(b.is_idle());
    assert_eq!(t.usage().free_slots, 4);
    t.check();
}

#[test]
fn a_copy_that_is_written_again_is_given_up() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    fetch_copy(&mut t, &mut b, PageMask::FULL);
    assert_eq!(spill(&mut t, &mut b, pages(0, 512)), PageMask::FULL);
    assert_eq!((b.copies(), t.usage().pages), (PageMask::EMPTY, 512));
    t.check();
}

#[test]
fn a_split_shares_the_copies() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    fetch_copy(&mut t, &mut b, PageMask::FULL);
    b.cut(&mut t, 200).unwrap();
    let mut upper = b.split(&mut t, 200);
    assert_eq!((b.copies(), upper.copies()), (pages(0, 200), pages(0, 312)));
    assert_eq!(upper.drop_clean(&PageMask::FULL), pages(0, 312));
    b.release(&mut t);
    upper.release(&mut t);
    assert_eq!(t.usage().free_slots, 4);
    t.check();
}

#[test]
fn a_split_shares_the_extents() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    let before = b.places(&t)[0];
    b.cut(&mut t, 200).unwrap();
    let upper = b.split(&mut t, 200);
    assert_eq!(
        (b.on_flash(), upper.on_flash()),
        (pages(0, 200), pages(0, 312))
    );
    let places = upper.places(&t);
    assert_eq!(places[0].place.offset, 200);
    assert_eq!(places[0].stamp, before.stamp + 200);
    let (mut lower, mut upper) = (b, upper);
    lower.release(&mut t);
    assert_eq!(t.usage().pages, 312);
    upper.release(&mut t);
    assert_eq!(t.usage().free_slots, 4);
    t.check();
}

#[test]
fn a_process_has_a_quota() {
    let mut t = Table::new(Config {
        slots: 8,
        checksums: false,
        quota: 600,
    })
    .unwrap();
    let (mut a, mut b) = (BlockPages::new(512), BlockPages::new(512));
    let one = t.tenant(1).unwrap();
    let s = a.begin_spill(&mut t, one, &PageMask::FULL).unwrap();
    let _ = a.end_spill(&mut t, s, &PageMask::FULL);
    let refused = b.begin_spill(&mut t, one, &PageMask::FULL);
    assert_eq!(refused.err(), Some(Error::Quota));
    assert_eq!((t.held(1), t.held(2)), (512, 0));
    let other = t.tenant(2).unwrap();
    let s = b.begin_spill(&mut t, other, &PageMask::FULL).unwrap();
    s.abandon(&mut t);
    assert_eq!(t.held(2), 0);
    a.release(&mut t);
    assert_eq!(t.held(1), 0);
}

#[test]
fn a_full_device_refuses_and_holds_nothing_of_it() {
    let mut t = table(3);
    let mut blocks = [(); 3].map(|()| BlockPages::new(512));
    spill(&mut t, &mut blocks[0], PageMask::FULL);
    spill(&mut t, &mut blocks[1], PageMask::FULL);
    let before = t.usage();
    let tenant = t.tenant(1).unwrap();
    // One slot is spared for relocation.
    let refused = blocks[2].begin_spill(&mut t, tenant, &PageMask::FULL);
    assert_eq!(refused.err(), Some(Error::Full));
    assert_eq!(t.usage(), before);
    t.check();
}

/// The device is filled and every second page of each slot given back: half of it is
/// dead, no slot is free, and relocation makes whole slots of it again.
#[test]
fn relocation_gathers_what_is_dead() {
    let mut t = table(17);
    let mut blocks: std::vec::Vec<_> = (0..16).map(|_| BlockPages::new(512)).collect();
    for b in &mut blocks {
        spill(&mut t, b, PageMask::FULL);
    }
    for b in &mut blocks {
        b.forget(&mut t, &pages(64, 448));
    }
    assert_eq!(t.usage().free_slots, 1);
    let mut moved = 0;
    while let Some(m) = t.relocate_begin() {
        moved += t.relocate_end(m, true);
        t.check();
    }
    // 16 times 128 pages fit into four slots.
    assert_eq!(t.usage().free_slots, 17 - 4);
    assert!(moved <= 16 * 128);
    let mut b = BlockPages::new(512);
    assert_eq!(spill(&mut t, &mut b, PageMask::FULL), PageMask::FULL);
}

/// Extents that are still being written stay where the writer was told that they are,
/// though their slot is closed by the next write and mostly dead.
#[test]
fn what_is_being_written_is_not_moved() {
    let mut t = table(6);
    let mut blocks = [(); 3].map(|()| BlockPages::new(512));
    let [a, b, c] = &mut blocks;
    let tenant = t.tenant(1).unwrap();
    spill(&mut t, a, pages(0, 400));
    let writing = b.begin_spill(&mut t, tenant, &pages(0, 100)).unwrap();
    // The open slot is full after twelve pages, is closed, and only one write is left in it.
    spill(&mut t, c, pages(0, 100));
    a.release(&mut t);
    assert_eq!(t.relocate_begin(), None, "a write in flight was moved");
    assert_eq!(b.end_spill(&mut t, writing, &PageMask::FULL), pages(0, 100));
    // Then it may be.
    let m = t.relocate_begin().expect("nothing is in flight");
    assert!(t.relocate_end(m, true) > 0);
    t.check();
}

/// Two workers do not copy the same pages.
#[test]
fn two_moves_are_out_of_two_slots() {
    let mut t = table(8);
    let mut blocks = [(); 3].map(|()| BlockPages::new(512));
    for b in &mut blocks {
        spill(&mut t, b, PageMask::FULL);
        b.forget(&mut t, &pages(100, 512));
    }
    let (first, second) = (t.relocate_begin().unwrap(), t.relocate_begin().unwrap());
    assert_ne!(first.from.slot, second.from.slot);
    assert_eq!(t.relocate_end(first, true), 100);
    assert_eq!(t.relocate_end(second, true), 100);
    t.check();
}

/// An extent that is cut in pieces while it is copied is moved all the same.
#[test]
fn all_pieces_of_what_was_copied_move() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    b.forget(&mut t, &pages(100, 512));
    let m = t.relocate_begin().unwrap();
    b.cut(&mut t, 40).unwrap();
    let mut upper = b.split(&mut t, 40);
    b.forget(&mut t, &pages(10, 20));
    assert_eq!(t.relocate_end(m, true), 90);
    for (block, pages) in [(&b, 30), (&upper, 60)] {
        let places = block.places(&t);
        assert!(places.iter().all(|p| p.place.slot == m.to.slot));
        assert_eq!(places.iter().map(|p| p.pages.pages()).sum::<u16>(), pages);
    }
    t.check();
    b.release(&mut t);
    upper.release(&mut t);
    assert_eq!(t.usage().free_slots, 4);
}

/// A write that comes to nothing leaves no pin behind.
#[test]
fn a_write_that_is_abandoned_gives_its_slot_back() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    let tenant = t.tenant(1).unwrap();
    for n in 0..20 {
        let writing = b.begin_spill(&mut t, tenant, &pages(0, 512 - n)).unwrap();
        if n % 2 == 0 {
            assert!(b.end_spill(&mut t, writing, &PageMask::EMPTY).is_empty());
        } else {
            b.release(&mut t);
            writing.abandon(&mut t);
        }
        t.check();
    }
    assert_eq!(t.usage().free_slots, 4);
}

/// A read fills host memory also after its pages were discarded: who wants to use them
/// has to wait for it, or the read would overwrite what is written there.
#[test]
fn what_is_being_read_is_not_used_before_it_ends() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, pages(0, 8));
    let read = b.begin_read(&mut t, &pages(0, 8)).unwrap().unwrap();
    b.forget(&mut t, &pages(0, 8));
    assert_eq!(
        b.begin_read(&mut t, &pages(4, 12)).err(),
        Some(ReadError::Wait)
    );
    assert!(b.begin_read(&mut t, &pages(8, 12)).unwrap().is_none());
    let none = PageMask::EMPTY;
    assert!(b
        .end_read(&mut t, read, &PageMask::FULL, &none, false)
        .is_empty());
    assert!(b.begin_read(&mut t, &pages(4, 12)).unwrap().is_none());
}

/// Who detaches the device has to know that somebody is reading it still.
#[test]
fn what_is_under_way_is_counted() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    let tenant = t.tenant(1).unwrap();
    let writing = b.begin_spill(&mut t, tenant, &pages(0, 8)).unwrap();
    assert!(t.is_busy());
    let _ = b.end_spill(&mut t, writing, &PageMask::FULL);
    assert!(!t.is_busy());
    let read = b.begin_read(&mut t, &pages(0, 8)).unwrap().unwrap();
    b.forget(&mut t, &pages(0, 8));
    assert_eq!((t.usage().pages, t.is_busy()), (0, true));
    let none = PageMask::EMPTY;
    let _ = b.end_read(&mut t, read, &none, &none, false);
    assert!(!t.is_busy());
}

#[test]
fn what_is_given_back_during_its_move_stays_given_back() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    b.forget(&mut t, &pages(100, 512));
    let m = t.relocate_begin().unwrap();
    assert_eq!(m.pages, 100);
    b.forget(&mut t, &(pages(0, 10) | pages(90, 100)));
    assert_eq!(t.relocate_end(m, true), 80);
    assert_eq!((t.usage().pages, t.usage().free_slots), (80, 3));
    let places = b.places(&t);
    assert_eq!(places[0].pages, Region::new(10, 90));
    assert_eq!(places[0].place.offset, m.to.offset + 10);
    t.check();
}

#[test]
fn a_failed_copy_moves_nothing() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, pages(0, 512));
    b.forget(&mut t, &pages(64, 512));
    let before = b.places(&t)[0];
    let m = t.relocate_begin().unwrap();
    assert_eq!(t.relocate_end(m, false), 0);
    assert_eq!(b.places(&t)[0], before);
    t.check();
}

/// Somebody suspends the system before the bytes are read.
#[test]
fn a_move_that_was_given_up_comes_first_again() {
    let mut t = table(8);
    let mut blocks = [(); 3].map(|()| BlockPages::new(512));
    for b in &mut blocks {
        spill(&mut t, b, PageMask::FULL);
        b.forget(&mut t, &pages(100, 512));
    }
    let free = t.usage().free_slots;
    let first = t.relocate_begin().unwrap();
    let from = first.from;
    t.relocate_give_up(first);
    for _ in 0..20 {
        let m = t.relocate_begin().unwrap();
        assert_eq!((m.from, m.pages, t.is_busy()), (from, 100, true));
        t.relocate_give_up(m);
        t.check();
        assert_eq!((t.usage().free_slots, t.is_busy()), (free, false));
    }
    let m = t.relocate_begin().unwrap();
    assert_eq!((m.from, t.relocate_end(m, true)), (from, 100));
    t.check();
}

/// A place that cannot be read keeps its slot, and no other.
#[test]
fn one_bad_place_does_not_end_relocation() {
    let mut t = table(8);
    let mut blocks: std::vec::Vec<_> = (0..7).map(|_| BlockPages::new(512)).collect();
    for b in &mut blocks {
        spill(&mut t, b, PageMask::FULL);
        b.forget(&mut t, &pages(100, 512));
    }
    // What relocation comes to first.
    let bad = t.relocate_begin().unwrap();
    let slot = bad.from.slot;
    assert_eq!(t.relocate_end(bad, false), 0);
    let mut tried = 0;
    for _ in 0..64 {
        let Some(m) = t.relocate_begin() else { break };
        tried += u32::from(m.from.slot == slot);
        let copied = m.from.slot != slot;
        let _ = t.relocate_end(m, copied);
        t.check();
    }
    // Six of 100 pages are in two slots, and the bad one is where it was.
    assert_eq!(
        t.usage().free_slots,
        8 - 3,
        "{tried} times: {}",
        t.describe()
    );
    assert!(tried > 0, "what failed once is never tried again");
    // It ends with its pages.
    let at = |b: &BlockPages, t: &Table| b.places(t)[0].place.slot;
    let i = blocks.iter().position(|b| at(b, &t) == slot).unwrap();
    blocks[i].release(&mut t);
    assert_eq!(t.usage().free_slots, 8 - 2);
    t.check();
}

/// Nor does it where relocation has taken the last slot for what it cannot empty now.
#[test]
fn one_bad_place_does_not_keep_the_last_slot() {
    let mut t = table(4);
    let mut blocks = [(); 3].map(|()| BlockPages::new(512));
    for b in &mut blocks {
        spill(&mut t, b, PageMask::FULL);
        b.forget(&mut t, &pages(100, 200));
        b.forget(&mut t, &pages(300, 512));
    }
    let m = t.relocate_begin().unwrap();
    let slot = m.from.slot;
    assert_eq!(t.relocate_end(m, true), 100);
    assert_eq!(t.usage().free_slots, 0);
    // The other half of it is bad. One of the others fits into the room.
    for _ in 0..16 {
        let Some(m) = t.relocate_begin() else { break };
        let copied = m.from.slot != slot;
        let _ = t.relocate_end(m, copied);
        t.check();
    }
    assert!(t.usage().free_slots > 0, "{}", t.describe());
}

#[test]
fn checksums_move_with_their_pages() {
    let mut t = table(4);
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, PageMask::FULL);
    let piece = b.places(&t)[0];
    let from = piece.place;
    t.note_sums(
        &piece,
        &core::array::from_fn::<u32, 512, _>(|k| k as u32 + 7),
    );
    b.forget(&mut t, &pages(32, 512));
    let m = t.relocate_begin().unwrap();
    assert_eq!(t.relocate_end(m, true), 32);
    let to = b.places(&t)[0].place;
    assert_ne!(from, to);
    assert_eq!(
        t.sum(Place {
            offset: to.offset + 5,
            ..to
        }),
        Some(12)
    );
}

#[test]
fn checksums_tell_which_pages_are_as_they_were_written() {
    let mut t = table(4);
    let (mut b, mut other) = (BlockPages::new(512), BlockPages::new(512));
    spill(&mut t, &mut b, pages(100, 140));
    spill(&mut t, &mut other, pages(100, 140));
    let (piece, beside) = (b.places(&t)[0], other.places(&t)[0]);
    assert_eq!(piece.place.slot, beside.place.slot);
    let mut sums: [u32; 40] = core::array::from_fn(|k| k as u32 + 7);
    // More sums than pages, as a buffer has: the neighbour's stay.
    t.note_sums(&beside, &[3; 40]);
    t.note_sums(&piece.part(0, 32), &sums);
    let mut rest = [9; 32];
    rest[..8].copy_from_slice(&sums[32..]);
    t.note_sums(&piece.part(32, 32), &rest);
    assert_eq!(t.as_written(&piece, &sums), pages(100, 140));
    assert_eq!(t.as_written(&beside, &[3; 40]), pages(100, 140));
    sums[4] += 1;
    sums[39] += 1;
    let part = piece.part(3, 36);
    assert_eq!(
        (part.pages, part.stamp),
        (Region::new(103, 139), piece.stamp + 3)
    );
    assert_eq!(
        t.as_written(&part, &sums[3..]),
        pages(103, 139) - pages(104, 105)
    );
    // What there is no sum of is not as it was written.
    assert_eq!(t.as_written(&part, &sums[3..4]), pages(103, 104));
    assert_eq!(piece.part(40, 1).pages.pages(), 0);
    assert_eq!(piece.part(u16::MAX, u16::MAX).pages.pages(), 0);
    // Without checksums all are taken to be.
    let mut t = Table::new(Config {
        slots: 4,
        checksums: false,
        quota: u64::MAX,
    })
    .unwrap();
    let mut b = BlockPages::new(512);
    spill(&mut t, &mut b, pages(0, 8));
    let piece = b.places(&t)[0];
    t.note_sums(&piece, &[1; 8]);
    assert_eq!(t.as_written(&piece, &[2; 8]), pages(0, 8));
}

/// What docs/ssd.md says of memory.
#[test]
fn memory_for_each_tebibyte() {
    let slots = (1u64 << 40) / (2 << 20);
    assert_eq!(slots * Table::BYTES_PER_SLOT as u64, 24 << 20);
    assert_eq!(slots * Table::BYTES_PER_EXTENT as u64, 20 << 20);
}
