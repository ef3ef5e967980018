// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A fetch on a block and a table as they are, and a device that does what a test says.

use super::super::super::mask::Region;
use super::super::block::AGAIN_US;
use super::super::table::Config;
use super::*;
use std::vec::Vec;

/// A va_block with pages on a device, and what becomes of its reads.
struct Script {
    block: BlockPages,
    table: Table,
    said: Vec<&'static str>,
    locked: bool,
    open: bool,
    held: PageMask,
    /// Pages that cannot be read, or not now; that the device does not give, and may; that are something else;
    /// whose memory changes.
    bad: PageMask,
    failed: PageMask,
    not_now: PageMask,
    wrong: PageMask,
    /// Those of them that are right from the second read on.
    wrong_once: PageMask,
    changed: PageMask,
    now_us: u64,
    keeps: bool,
    /// Memory that may be handed out as it is.
    prepared: PageMask,
    no_memory: Option<&'static str>,
    /// What reads are made with is lent to others.
    is_scarce: bool,
    errors: u32,
    arrived: PageMask,
    lost: PageMask,
    turn: NeedsTurn,
    has_turn: bool,
    has_begun: bool,
    /// Nothing is known of the block on this device any more.
    is_gone: bool,
    /// What becomes of the block while somebody waits for a turn.
    meanwhile: Option<fn(&mut Script)>,
}

impl Script {
    /// All of its pages are on the device, in one piece.
    fn new() -> Self {
        let config = Config {
            slots: 4,
            checksums: false,
            quota: u64::MAX,
        };
        let (mut table, mut block) = (Table::new(config).unwrap(), BlockPages::new(512));
        let tenant = table.tenant(1).unwrap();
        let all = PageMask::FULL;
        let spill = block.begin_spill(&mut table, tenant, &all).unwrap();
        assert_eq!(block.end_spill(&mut table, spill, &all), all);
        Self {
            block,
            table,
            said: Vec::new(),
            locked: true,
            open: false,
            held: PageMask::EMPTY,
            bad: PageMask::EMPTY,
            failed: PageMask::EMPTY,
            now_us: 5_000_000,
            not_now: PageMask::EMPTY,
            wrong: PageMask::EMPTY,
            wrong_once: PageMask::EMPTY,
            changed: PageMask::EMPTY,
            keeps: false,
            prepared: PageMask::FULL,
            no_memory: None,
            is_scarce: false,
            errors: 0,
            arrived: PageMask::EMPTY,
            lost: PageMask::EMPTY,
            turn: NeedsTurn::No,
            has_turn: false,
            has_begun: false,
            is_gone: false,
            meanwhile: None,
        }
    }

    fn fetch(&mut self, wanted: PageMask) -> Fetched {
        let fetched = fetch(self, &wanted).unwrap();
        assert!(self.locked && !self.open && self.held.is_empty(), "F-lock");
        assert!(!self.has_turn, "F-turn");
        assert!(
            self.block.in_flight().is_empty() && !self.table.is_busy(),
            "F-pins"
        );
        fetched
    }

    fn count(&self, what: &str) -> usize {
        self.said.iter().filter(|said| **said == what).count()
    }
}

fn pages(first: u16, outer: u16) -> PageMask {
    Region::new(first, outer).into()
}

impl Machine for Script {
    type Error = ();

    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table) -> T) -> Option<T> {
        assert!(self.locked, "F-lock");
        (!self.is_gone).then(|| f(&mut self.block, &mut self.table))
    }

    fn populate(&mut self, pages: &PageMask) -> Result<(), ()> {
        assert!(self.locked && !pages.is_empty(), "F-lock");
        assert!(
            pages.is_subset(&self.block.on_flash()),
            "nobody has to read those"
        );
        self.said.push("populate");
        (self.no_memory != Some("host")).then_some(()).ok_or(())
    }

    fn try_open(&mut self) -> bool {
        assert!(self.locked, "F-set");
        self.open |= !self.is_scarce;
        self.open
    }

    fn open(&mut self) {
        assert!(!self.locked && !self.open, "F-set");
        assert!(self.has_turn || self.turn == NeedsTurn::No, "F-set");
        assert!(self.block.in_flight().is_empty(), "F-set");
        self.said.push("open");
        self.open = true;
        if let Some(happens) = self.meanwhile.take() {
            happens(self);
        }
    }

    fn close(&mut self) {
        assert!(core::mem::take(&mut self.open));
        self.held = PageMask::EMPTY;
    }

    fn hold(&mut self, pages: &PageMask) -> bool {
        assert!(self.locked && self.open, "F-lock");
        let held = self.no_memory != Some("page");
        self.held = if held { *pages } else { PageMask::EMPTY };
        held
    }

    fn unchanged(&mut self, pages: &PageMask) -> PageMask {
        assert!(self.locked, "F-lock");
        *pages - self.changed
    }

    fn overwritten(&mut self, pages: &PageMask) {
        assert!(self.locked && pages.is_subset(&self.held), "F-lock");
        self.prepared -= *pages;
    }

    fn keeps_copies(&mut self) -> bool {
        self.keeps
    }

    fn arrived(&mut self, pages: &PageMask) {
        assert!(self.locked, "F-lock");
        self.arrived = *pages;
        self.prepared |= *pages;
    }

    fn lost(&mut self, pages: &PageMask) {
        self.lost = *pages;
    }

    fn now_us(&mut self) -> u64 {
        self.now_us
    }

    fn needs_turn(&mut self) -> NeedsTurn {
        assert!(self.locked, "F-lock");
        if self.has_turn {
            NeedsTurn::No
        } else {
            self.turn
        }
    }

    fn take_turn(&mut self) {
        assert!(!self.locked && !self.open, "F-turn, F-set");
        assert!(
            self.count("populate") > 0,
            "F-turn: memory is waited for with it"
        );
        assert!(
            !self.has_turn && self.block.in_flight().is_empty(),
            "F-turn"
        );
        self.said.push("turn");
        self.has_turn = true;
        if let Some(happens) = self.meanwhile.take() {
            happens(self);
        }
    }

    fn end_turn(&mut self) {
        self.has_turn = false;
    }

    fn begins(&mut self, pages: &PageMask) {
        assert!(
            self.locked && pages.is_subset(&self.block.in_flight()),
            "F-lock"
        );
        self.has_begun = true;
    }

    fn unlock(&mut self) {
        assert!(core::mem::take(&mut self.locked), "F-lock");
    }

    fn lock(&mut self) {
        assert!(!core::mem::replace(&mut self.locked, true), "F-lock");
        self.has_begun = false;
    }

    fn progress(&mut self) -> u32 {
        7
    }

    fn wait(&mut self, progress: u32) {
        assert!(!self.locked && progress == 7, "F-lock");
        assert!(!self.has_turn, "F-turn");
        self.said.push("wait");
    }

    fn read(&mut self, piece: &Piece) -> Did {
        assert!(!self.locked, "F-lock");
        let of = PageMask::from(piece.pages);
        assert!(of.is_subset(&self.held), "F-memory");
        let needs_one = !matches!(self.turn, NeedsTurn::No | NeedsTurn::OnlySet);
        assert!(self.has_turn || !needs_one, "F-turn");
        assert!(self.has_begun, "a fault that waits is not told");
        assert_eq!(
            u32::from(piece.place.offset),
            u32::from(piece.pages.first())
        );
        self.said.push("read");
        if of.intersects(&self.bad) {
            Did::Never
        } else if of.intersects(&self.failed) {
            Did::Failed
        } else if of.intersects(&self.not_now) {
            Did::NotNow
        } else {
            Did::All
        }
    }

    fn decrypt(&mut self, piece: &Piece) -> (PageMask, PageMask) {
        assert!(!self.locked && !self.has_turn, "F-turn");
        let of = PageMask::from(piece.pages);
        let wrong = of & self.wrong;
        self.wrong -= self.wrong_once;
        (of - wrong, wrong)
    }

    fn count_errors(&mut self, n: u32) {
        self.errors += n;
    }

    fn tell(&mut self) {
        self.said.push("tell");
    }
}

#[test]
fn what_is_wanted_comes_and_then_none_of_it_is_there() {
    let mut m = Script::new();
    assert_eq!(m.fetch(pages(3, 9)), Fetched::Again);
    assert_eq!((m.arrived, m.count("read"), m.errors), (pages(3, 9), 1, 0));
    assert_eq!(m.fetch(pages(3, 9)), Fetched::All);
    assert_eq!((m.count("tell"), m.count("populate")), (1, 1));
    assert!(!m.block.on_flash().intersects(&pages(3, 9)));
    m.keeps = true;
    assert_eq!(m.fetch(pages(20, 22)), Fetched::Again);
    assert_eq!(m.block.copies(), pages(20, 22));
}

#[test]
fn what_is_for_no_fault_waits_for_its_turn_without_the_block() {
    let mut m = Script::new();
    m.turn = NeedsTurn::Here;
    assert_eq!(m.fetch(pages(3, 9)), Fetched::Again);
    assert_eq!((m.arrived, m.count("turn")), (pages(3, 9), 1));
    assert_eq!(m.fetch(pages(3, 9)), Fetched::All);
    assert_eq!(m.count("turn"), 1, "nothing is to be read");
    // Who asks takes it, and asks with it.
    m.turn = NeedsTurn::Elsewhere;
    assert_eq!(m.fetch(pages(9, 12)), Fetched::Turn);
    assert_eq!((m.count("turn"), m.count("read")), (1, 1));
    m.has_turn = true;
    assert_eq!(m.fetch(pages(9, 12)), Fetched::Again);
    assert_eq!(m.arrived, pages(9, 12));
}

#[test]
fn what_has_gone_while_the_turn_was_waited_for_is_not_read() {
    let mut m = Script::new();
    m.turn = NeedsTurn::Here;
    m.meanwhile = Some(|m| m.block.forget(&mut m.table, &pages(3, 9)));
    assert_eq!(m.fetch(pages(3, 9)), Fetched::Again);
    assert_eq!(
        (m.count("turn"), m.count("read"), m.count("populate")),
        (1, 0, 1)
    );
    m.meanwhile = Some(|m| m.block.forget(&mut m.table, &pages(10, 12)));
    assert_eq!(m.fetch(pages(10, 14)), Fetched::Again);
    assert_eq!(m.arrived, pages(12, 14));
    // The device is detached, and perhaps another one attached.
    let reads = m.count("read");
    m.meanwhile = Some(|m| m.is_gone = true);
    assert_eq!(m.fetch(pages(20, 24)), Fetched::Again);
    assert_eq!(m.count("read"), reads);
}

#[test]
fn what_reads_are_made_with_is_waited_for_without_the_block() {
    let mut m = Script::new();
    m.is_scarce = true;
    assert_eq!(m.fetch(pages(3, 9)), Fetched::Again);
    assert_eq!((m.arrived, m.count("open")), (pages(3, 9), 1));
    assert_eq!(m.fetch(pages(3, 9)), Fetched::All);
    assert_eq!(m.count("open"), 1, "nothing is to be read");
    m.meanwhile = Some(|m| m.block.forget(&mut m.table, &pages(10, 12)));
    assert_eq!(m.fetch(pages(10, 14)), Fetched::Again);
    assert_eq!(m.arrived, pages(12, 14));
    let reads = m.count("read");
    m.meanwhile = Some(|m| m.block.forget(&mut m.table, &pages(20, 24)));
    assert_eq!(m.fetch(pages(20, 24)), Fetched::Again);
    assert_eq!(m.count("read"), reads);
}

#[test]
fn who_waits_for_what_reads_are_made_with_elsewhere_keeps_the_lock() {
    let mut m = Script::new();
    (m.is_scarce, m.turn) = (true, NeedsTurn::OnlySet);
    assert_eq!(m.fetch(pages(3, 9)), Fetched::Turn);
    assert_eq!(m.said, ["populate"], "host memory is there before");
    // It was got meanwhile.
    m.open = true;
    assert_eq!(m.fetch(pages(3, 9)), Fetched::Again);
    assert_eq!((m.arrived, m.count("open")), (pages(3, 9), 0));
    assert_eq!(m.fetch(pages(3, 9)), Fetched::All);
    // Or it is to be had at once.
    m.is_scarce = false;
    assert_eq!(m.fetch(pages(9, 12)), Fetched::Again);
    assert_eq!((m.arrived, m.count("open")), (pages(9, 12), 0));
}

#[test]
fn who_waits_for_both_has_its_turn_first() {
    let mut m = Script::new();
    (m.is_scarce, m.turn) = (true, NeedsTurn::Here);
    assert_eq!(m.fetch(pages(3, 9)), Fetched::Again);
    let waits = |said: &&&'static str| ["turn", "open"].contains(*said);
    let waited: Vec<_> = m.said.iter().filter(waits).collect();
    assert_eq!(
        (m.arrived, waited),
        (pages(3, 9), [&"turn", &"open"].to_vec())
    );
}

#[test]
fn one_bad_page_costs_itself_and_one_that_is_not_there_now_nothing() {
    let mut m = Script::new();
    (m.bad, m.not_now) = (pages(5, 6), pages(7, 8));
    assert_eq!(m.fetch(pages(4, 9)), Fetched::Again);
    assert_eq!(
        (m.lost, m.arrived),
        (pages(5, 6), pages(4, 9) - pages(5, 6) - pages(7, 8))
    );
    assert_eq!(
        m.prepared,
        PageMask::FULL - pages(5, 6) - pages(7, 8),
        "F-bytes"
    );
    // The whole, and each page.
    assert_eq!((m.count("read"), m.errors), (6, 1));
    assert!(pages(7, 8).is_subset(&m.block.on_flash()));
    assert_eq!(m.fetch(pages(4, 9)), Fetched::Lost);
    m.not_now = PageMask::EMPTY;
    assert_eq!(m.fetch(pages(7, 8)), Fetched::Again);
    assert_eq!(m.arrived, pages(7, 8));
}

#[test]
fn what_came_to_other_memory_is_not_there() {
    let mut m = Script::new();
    m.changed = pages(4, 5);
    assert_eq!(m.fetch(pages(0, 6)), Fetched::Again);
    assert_eq!(m.arrived, pages(0, 6) - pages(4, 5));
    assert_eq!(m.prepared, PageMask::FULL - pages(4, 5), "F-bytes");
    assert!(pages(4, 5).is_subset(&m.block.on_flash()));
}

#[test]
fn what_is_something_else_is_read_once_more_before_it_is_lost() {
    let mut m = Script::new();
    (m.wrong, m.wrong_once) = (pages(1, 4), pages(3, 4));
    assert_eq!(m.fetch(pages(0, 6)), Fetched::Again);
    assert_eq!((m.lost, m.errors), (PageMask::EMPTY, 3));
    assert_eq!(m.arrived, pages(0, 6) - pages(1, 4));
    assert_eq!(m.prepared, PageMask::FULL - pages(1, 4), "F-bytes");
    assert!(pages(1, 4).is_subset(&m.block.on_flash()));
    // Of what is read again nothing else is.
    assert_eq!(m.fetch(pages(0, 6)), Fetched::Again);
    assert_eq!((m.arrived, m.lost), (pages(3, 4), pages(1, 3)));
    assert_eq!(m.fetch(pages(0, 6)), Fetched::Lost);
    // What is wrong once in a while has its second read each time.
    m.now_us += AGAIN_US;
    m.wrong_once = pages(1, 3);
    assert_eq!(m.fetch(pages(1, 3)), Fetched::Again);
    assert_eq!(m.fetch(pages(1, 3)), Fetched::Again);
    assert_eq!(m.arrived, pages(1, 3));
}

#[test]
fn nothing_but_wrong_bytes_is_no_want_of_memory() {
    let mut m = Script::new();
    m.wrong = pages(0, 6);
    assert_eq!(m.fetch(pages(0, 6)), Fetched::Again);
    assert_eq!(m.fetch(pages(0, 6)), Fetched::Again);
    assert_eq!((m.lost, m.arrived), (pages(0, 6), PageMask::EMPTY));
}

#[test]
fn what_the_device_does_not_give_keeps_its_place_and_is_read_again_later() {
    let mut m = Script::new();
    m.failed = PageMask::FULL;
    let before = m.block.places(&m.table);
    assert_eq!(m.fetch(pages(5, 6)), Fetched::Again);
    assert_eq!((m.lost, m.count("read")), (pages(5, 6), 2));
    assert_eq!((m.block.lost(), m.block.kept()), (m.lost, m.lost));
    assert_eq!(m.block.places(&m.table)[..], before[..]);
    // For a while nobody asks the device.
    m.now_us += AGAIN_US - 1;
    assert_eq!(m.fetch(pages(5, 6)), Fetched::Lost);
    assert_eq!(m.count("read"), 2);
    m.now_us += 1;
    assert_eq!(m.fetch(pages(5, 6)), Fetched::Again);
    assert_eq!((m.count("read"), m.block.lost()), (4, pages(5, 6)));
    assert_eq!(m.fetch(pages(5, 6)), Fetched::Lost);
    // Who wants another page then has no part in that.
    m.failed = pages(5, 6);
    m.now_us += AGAIN_US;
    assert_eq!(m.fetch(pages(6, 7)), Fetched::Again);
    assert_eq!((m.count("read"), m.block.lost()), (5, pages(5, 6)));
    // The device is there again.
    m.failed = PageMask::EMPTY;
    m.now_us += AGAIN_US;
    assert_eq!(m.fetch(pages(5, 6)), Fetched::Again);
    assert_eq!((m.arrived, m.block.lost()), (pages(5, 6), PageMask::EMPTY));
    assert_eq!(m.fetch(pages(5, 6)), Fetched::All);
}

/// Of a device that fails all, not each page has to be waited for.
#[test]
fn who_wants_many_pages_of_a_device_that_fails_asks_for_few() {
    let mut m = Script::new();
    m.failed = PageMask::FULL - pages(3, 4);
    assert_eq!(m.fetch(pages(0, 300)), Fetched::Again);
    let tried = pages(0, 20);
    assert_eq!((m.lost, m.arrived), (tried - pages(3, 4), pages(3, 4)));
    assert_eq!((m.count("read"), m.block.kept()), (21, m.lost));
    assert_eq!(m.fetch(pages(0, 300)), Fetched::Lost);
    // What is for good takes no time.
    (m.bad, m.failed) = (PageMask::FULL, PageMask::EMPTY);
    assert_eq!(m.fetch(pages(300, 400)), Fetched::Again);
    assert_eq!(
        (m.lost, m.block.kept()),
        (pages(300, 400), tried - pages(3, 4))
    );
}

/// Faults that were put off are serviced when it is over, and the rest would be read then, by who serves all processes.
#[test]
fn what_is_read_for_faults_that_were_put_off_comes_or_is_lost() {
    let mut m = Script::new();
    m.turn = NeedsTurn::OnlySet;
    m.failed = pages(0, 64);
    let all = |m: &mut Script, wanted| {
        for _ in 0..8 {
            match m.fetch(wanted) {
                // A device that fails takes its time.
                Fetched::Again => m.now_us += 2 * AGAIN_US,
                fetched => return fetched,
            }
        }
        panic!("a device that fails is asked for ever");
    };
    assert_eq!(all(&mut m, pages(0, 64)), Fetched::Lost);
    assert!(!m.block.on_flash().intersects(&pages(0, 64)), "F-rest");
    assert_eq!((m.count("read"), m.block.kept()), (17, pages(0, 64)));
    // What was asked for meanwhile is tried, also where others have failed.
    assert_eq!(all(&mut m, pages(0, 80)), Fetched::Lost);
    assert_eq!((m.arrived, m.count("read")), (pages(64, 80), 18));
    m.failed = pages(90, 91);
    assert_eq!(all(&mut m, pages(60, 100)), Fetched::Lost);
    let lost = pages(0, 64) | pages(90, 91);
    assert_eq!((m.arrived, m.block.lost()), (pages(80, 100) - lost, lost));
    assert_eq!(all(&mut m, pages(64, 90)), Fetched::All);
}

/// Bytes that were changed on the way are on the device still.
#[test]
fn only_what_the_medium_does_not_have_is_lost_for_good() {
    const EIO: i32 = 5;
    const ENODEV: i32 = 19;
    const ENODATA: i32 = 61;
    const EILSEQ: i32 = 84;
    const ETIMEDOUT: i32 = 110;
    for errno in [EIO, ENODEV, EILSEQ, ETIMEDOUT] {
        assert_eq!(Did::failed(-errno, true), Did::Failed, "{errno}");
        assert_eq!(Did::failed(-errno, false), Did::Never, "{errno}");
    }
    assert_eq!(Did::failed(-ENODATA, true), Did::Never);
    // EINTR, EAGAIN, ENOMEM, ERESTARTSYS.
    for errno in [4, 11, 12, 512] {
        assert_eq!(Did::failed(-errno, false), Did::NotNow, "{errno}");
    }
}

#[test]
fn without_memory_all_is_where_it_was() {
    for (what, fetched) in [("host", Err(())), ("page", Ok(Fetched::NoMemory))] {
        let mut m = Script::new();
        m.no_memory = Some(what);
        assert_eq!(fetch(&mut m, &pages(0, 6)), fetched);
        assert!(
            m.locked && !m.open && m.block.in_flight().is_empty(),
            "{what}"
        );
        assert_eq!((m.block.on_flash(), m.count("read")), (PageMask::FULL, 0));
    }
}

#[test]
fn who_wants_what_is_being_read_waits_for_that() {
    let mut m = Script::new();
    let read = m.block.begin_read(&mut m.table, &pages(0, 4));
    assert_eq!(fetch(&mut m, &pages(0, 2)), Ok(Fetched::Again));
    assert_eq!(
        (m.count("wait"), m.count("populate"), m.locked),
        (1, 0, true)
    );
    let read = read.unwrap().unwrap();
    let none = PageMask::EMPTY;
    let _ = m
        .block
        .end_read(&mut m.table, read, &pages(0, 4), &none, false);
    assert_eq!(m.fetch(pages(0, 2)), Fetched::All);
}
