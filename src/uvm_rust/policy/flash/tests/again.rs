// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages that could not be read, and have their places still.

use super::super::block::AGAIN_US;
use super::*;

/// A block that is on flash as a whole, but for `failed` of it, which could not be read at `now`.
fn failed(t: &mut Table, failed: PageMask, now: u64) -> BlockPages {
    let mut b = BlockPages::new(512);
    spill(t, &mut b, PageMask::FULL);
    let none = PageMask::EMPTY;
    let read = b.begin_read(t, &failed).unwrap().unwrap();
    assert_eq!(b.put_off(&read, (&failed, &none), now), failed);
    assert_eq!(b.end_read(t, read, &none, &none, false), none);
    assert_eq!((b.lost(), b.kept()), (failed, failed));
    b
}

#[test]
fn what_could_not_be_read_comes_when_it_is_read_again() {
    let mut t = table(4);
    let mut b = failed(&mut t, pages(4, 8), 7);
    assert_eq!(t.usage().pages, 512);
    let place = b.places(&t)[0];
    for (now, err) in [(7, true), (6 + AGAIN_US, true), (7 + AGAIN_US, false)] {
        b.read_again_at(now, &PageMask::FULL);
        assert_eq!(b.kept().is_empty(), !err);
    }
    assert_eq!((b.on_flash(), b.lost()), (PageMask::FULL, PageMask::EMPTY));
    let read = b.begin_read(&mut t, &pages(4, 8)).unwrap().unwrap();
    assert_eq!(read.pieces[..], [place.part(4, 4)]);
    let none = PageMask::EMPTY;
    let arrived = b.end_read(&mut t, read, &pages(4, 8), &none, false);
    assert_eq!((arrived, t.usage().pages), (pages(4, 8), 508));
    assert!(b.kept().is_empty());
    b.release(&mut t);
    t.check();
}

/// A read of `wanted` fails at `now`.
fn fails(t: &mut Table, b: &mut BlockPages, wanted: PageMask, now: u64) {
    let none = PageMask::EMPTY;
    let read = b.begin_read(t, &wanted).unwrap().unwrap();
    assert_eq!(b.put_off(&read, (&wanted, &none), now), wanted);
    let _ = b.end_read(t, read, &none, &none, false);
}

/// Who wants one page does not wait for the others that failed.
#[test]
fn only_what_is_wanted_is_read_again() {
    let mut t = table(4);
    let mut b = failed(&mut t, pages(3, 10), 0);
    b.read_again_at(AGAIN_US, &pages(20, 21));
    assert_eq!(b.lost(), pages(3, 10));
    b.read_again_at(AGAIN_US, &pages(9, 20));
    assert_eq!((b.lost(), b.kept()), (pages(3, 9), pages(3, 9)));
    // One that fails each time does not keep the others.
    fails(&mut t, &mut b, pages(9, 10), AGAIN_US);
    b.read_again_at(AGAIN_US + 1, &pages(8, 10));
    assert_eq!(b.lost(), pages(3, 8) | pages(9, 10));
    // Nor does a page that has failed anew come sooner, before a split or behind it.
    fails(&mut t, &mut b, pages(8, 9), AGAIN_US + 2);
    b.read_again_at(AGAIN_US + 3, &pages(8, 10));
    assert_eq!(b.lost(), pages(3, 10));
    b.forget(&mut t, &pages(4, 5));
    b.cut(&mut t, 6).unwrap();
    let mut upper = b.split(&mut t, 6);
    for (b, lost, left) in [
        (&mut b, pages(3, 6) - pages(4, 5), PageMask::EMPTY),
        (&mut upper, pages(0, 4), pages(2, 4)),
    ] {
        assert_eq!(b.lost(), lost);
        b.read_again_at(AGAIN_US + 3, &PageMask::FULL);
        assert_eq!((b.lost(), b.kept()), (left, left));
        b.release(&mut t);
    }
    t.check();
}

#[test]
fn what_could_not_be_read_is_forgotten_as_what_is_there() {
    let mut t = table(4);
    let mut b = failed(&mut t, pages(0, 8), 0);
    b.forget(&mut t, &pages(8, 512));
    assert_eq!(t.usage().pages, 8);
    b.forget(&mut t, &pages(0, 4));
    assert_eq!((b.kept(), b.lost()), (pages(4, 8), pages(4, 8)));
    b.forget(&mut t, &pages(4, 8));
    assert!(b.is_idle());
    assert_eq!((t.usage().pages, t.usage().free_slots), (0, 4));
    // It is not there again later.
    b.read_again();
    assert!(b.is_idle());
    t.check();
}

#[test]
fn a_split_shares_what_could_not_be_read() {
    let mut t = table(4);
    let mut b = failed(&mut t, pages(190, 210), 0);
    b.cut(&mut t, 200).unwrap();
    let mut upper = b.split(&mut t, 200);
    assert_eq!((b.kept(), upper.kept()), (pages(190, 200), pages(0, 10)));
    upper.read_again_at(AGAIN_US - 1, &PageMask::FULL);
    assert_eq!(upper.lost(), pages(0, 10));
    upper.read_again();
    let read = upper.begin_read(&mut t, &pages(0, 10)).unwrap().unwrap();
    let none = PageMask::EMPTY;
    let arrived = upper.end_read(&mut t, read, &pages(0, 10), &none, false);
    assert_eq!(arrived, pages(0, 10));
    b.release(&mut t);
    upper.release(&mut t);
    assert_eq!((t.usage().pages, t.usage().free_slots), (0, 4));
    t.check();
}

/// What was wrong before the split, and is wrong in the next read, was wrong twice.
#[test]
fn a_split_shares_what_was_wrong_once() {
    let mut t = table(4);
    let (mut b, none) = (BlockPages::new(512), PageMask::EMPTY);
    spill(&mut t, &mut b, PageMask::FULL);
    let wrong = pages(190, 210);
    let read = b.begin_read(&mut t, &wrong).unwrap().unwrap();
    assert_eq!(b.put_off(&read, (&none, &wrong), 0), none);
    let _ = b.end_read(&mut t, read, &none, &none, false);
    assert_eq!(b.on_flash(), PageMask::FULL);
    b.cut(&mut t, 200).unwrap();
    let mut upper = b.split(&mut t, 200);
    for (b, first) in [(&mut b, 190), (&mut upper, 0)] {
        let wrong = pages(first, first + 10);
        let read = b.begin_read(&mut t, &wrong).unwrap().unwrap();
        assert_eq!(b.put_off(&read, (&none, &wrong), 0), wrong);
        let _ = b.end_read(&mut t, read, &none, &none, false);
        b.release(&mut t);
    }
    t.check();
}

/// A page that is discarded while it is read is nobody's to be read again.
#[test]
fn what_is_discarded_meanwhile_is_not_kept() {
    let mut t = table(4);
    let (mut b, none) = (BlockPages::new(512), PageMask::EMPTY);
    spill(&mut t, &mut b, pages(0, 8));
    let read = b.begin_read(&mut t, &pages(0, 8)).unwrap().unwrap();
    b.forget(&mut t, &pages(0, 4));
    let all = pages(0, 8);
    assert_eq!(b.put_off(&read, (&all, &none), 0), pages(4, 8));
    let _ = b.end_read(&mut t, read, &none, &none, false);
    assert_eq!((b.lost(), t.usage().pages), (pages(4, 8), 4));
    b.release(&mut t);
    t.check();
}
