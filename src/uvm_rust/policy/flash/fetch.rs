// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How pages of a va_block come back from the device, for whoever wants them in host memory.
//!
//! ```text
//!  fetch          host memory for what is wanted; the turn with the device; a set of buffers; the read begins, or is
//!                 waited for
//!    begun        the lock is let go; each piece is read, then opened; lock; what has arrived is resident
//!      read       as a whole, or page by page: one bad sector is not to cost all
//! ```
//!
//! # Invariants
//!
//! - **F-lock**: what needs the block's lock is only asked with it. It is held again at the end; nothing that was
//!   known of the block before it was let go holds then.
//! - **F-memory**: what is read goes to host memory that is kept meanwhile, and counts only if the block still
//!   has that memory.
//! - **F-bytes**: what a read has filled and has not brought is no memory that may be handed out as it is. It may
//!   hold what the device gave, of whomever.
//! - **F-pins**: a read that has begun ends, so that its places on the device are let go.
//! - **F-turn**: who waits for a turn with the device ([`super::arbiter`]) has not the block's lock, and no page of
//!   it is marked as being read: a fault on the block would wait for the turn with it. There is host memory before,
//!   so that who has a turn hardly waits for any. The turn is over when the device is done, before anything
//!   is decrypted.
//! - **F-set**: who waits for a set of buffers ([`super::pool`]) has not the block's lock either, nor marked anything. It
//!   has its turn, so that who has a set never waits for one of those who wait for it.

use super::super::mask::PageMask;
use super::{BlockPages, Piece, Read, ReadError, Table};

/// What a fetch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// None of what is wanted is on the device.
    All,
    /// The block's lock was let go: ask again.
    Again,
    /// Something wanted cannot be read any more.
    Lost,
    /// There is no memory, or nothing has come.
    NoMemory,
    /// There is host memory: ask again with a turn ([`NeedsTurn::Elsewhere`]).
    Turn,
}

/// Whether a read has to wait for a turn with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsTurn {
    /// It is for a fault, or has one. In the latter case `try_open` does not fail.
    No,
    /// It waits where it is, with the lock of the VA space.
    Here,
    /// Whoever asks waits for it, without the lock of the VA space.
    Elsewhere,
}

/// How the device did what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// All of it was read.
    All,
    /// Not now; it is worth asking again.
    NotNow,
    /// The device cannot, and will not be able to.
    Never,
}

/// What a fetch works on: one va_block, which is locked where nothing else is said.
pub trait Machine {
    /// What upstream says is wrong.
    type Error;

    /// Works on its state, with the device's table; `None` if it has no state.
    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table) -> T) -> Option<T>;

    /// Makes host memory for `pages`.
    ///
    /// # Errors
    ///
    /// Upstream's; also where the lock was let go.
    fn populate(&mut self, pages: &PageMask) -> Result<(), Self::Error>;

    /// Takes what a read is made with, if that is to be had at once ([`super::pool`]).
    fn try_open(&mut self) -> bool;

    /// Gives back what `open` or `try_open` got, and what host memory is kept.
    fn close(&mut self);

    /// Keeps the host memory that a read fills; false if some page has none.
    fn hold(&mut self, pages: &PageMask) -> bool;

    /// Those of `pages` that have the host memory that is kept.
    fn unchanged(&mut self, pages: &PageMask) -> PageMask;

    /// The memory of `pages` has been read into, so it is not prepared for whoever gets it next.
    fn overwritten(&mut self, pages: &PageMask);

    /// Whether what is read stays on the device as well.
    fn keeps_copies(&mut self) -> bool;

    /// `pages` are in host memory now.
    fn arrived(&mut self, pages: &PageMask);

    /// `pages` of a process cannot be read.
    fn lost(&mut self, pages: &PageMask);

    /// Lets the block's lock go.
    fn unlock(&mut self);

    /// Takes the block's lock.
    fn lock(&mut self);

    /// Changes whenever a read or a write ends.
    fn progress(&mut self) -> u32;

    /// Whether a read has to wait for a turn with the device.
    fn needs_turn(&mut self) -> NeedsTurn;

    /// The read of `pages` begins, which faults may wait for; or what is wanted is being read already, and it is
    /// none.
    fn begins(&mut self, pages: &PageMask);

    // Without the lock.

    /// Waits for a turn with the device.
    fn take_turn(&mut self);

    /// Takes what a read is made with, which it may wait for.
    fn open(&mut self);

    /// Waits until something ends, for a while; since `progress` was that.
    fn wait(&mut self, progress: u32);

    /// Reads a piece into the memory that is kept.
    fn read(&mut self, piece: &Piece) -> Did;

    /// Decrypts what was read of a piece. Returns the pages that are what was written, and those that are
    /// something else.
    fn decrypt(&mut self, piece: &Piece) -> (PageMask, PageMask);

    /// So many reads have failed.
    fn count_errors(&mut self, n: u32);

    // With or without it.

    /// A read has ended, which some wait for.
    fn tell(&mut self);

    /// Ends the turn with the device, if there is one.
    fn end_turn(&mut self);
}

/// Brings those of `wanted` that are on the device to host memory. F-lock.
///
/// # Errors
///
/// Upstream's.
pub fn fetch<M: Machine>(m: &mut M, wanted: &PageMask) -> Result<Fetched, M::Error> {
    let fetched = in_turn(m, wanted);
    m.end_turn();
    fetched
}

/// What of `wanted` somebody has to read; `None` if nothing is known of the block.
fn missing<M: Machine>(m: &mut M, wanted: &PageMask) -> Option<PageMask> {
    m.with(|block, _| (block.on_flash() & *wanted) - block.in_flight())
}

fn in_turn<M: Machine>(m: &mut M, wanted: &PageMask) -> Result<Fetched, M::Error> {
    let Some(pages) = missing(m, wanted) else {
        return Ok(Fetched::All);
    };
    if pages.is_empty() {
        // All that is wanted is here, under way, or lost: the state says which.
        return Ok(begin(m, wanted));
    }
    m.populate(&pages)?;
    let waits = match m.needs_turn() {
        NeedsTurn::No => false,
        NeedsTurn::Here => true,
        NeedsTurn::Elsewhere => return Ok(Fetched::Turn),
    };
    let fetched = opened(m, wanted, waits);
    m.close();
    fetched
}

/// With host memory, takes what a read is made with, and reads. `waits`: for a turn with the device.
fn opened<M: Machine>(m: &mut M, wanted: &PageMask, waits: bool) -> Result<Fetched, M::Error> {
    if waits || !m.try_open() {
        // F-turn, F-set.
        m.unlock();
        if waits {
            m.take_turn();
        }
        m.open();
        m.lock();
        match missing(m, wanted) {
            Some(pages) if !pages.is_empty() => m.populate(&pages)?,
            _ => return Ok(Fetched::Again),
        }
    }
    Ok(begin(m, wanted))
}

/// A read begins, if there is something to read.
fn begin<M: Machine>(m: &mut M, wanted: &PageMask) -> Fetched {
    let progress = m.progress();
    match m.with(|block, table| block.begin_read(table, wanted)) {
        None => Fetched::Again,
        Some(Ok(None)) => Fetched::All,
        Some(Ok(Some(read))) => begun(m, read),
        Some(Err(ReadError::Wait)) => {
            m.begins(&PageMask::EMPTY);
            m.end_turn();
            m.unlock();
            m.wait(progress);
            m.lock();
            Fetched::Again
        }
        Some(Err(ReadError::Lost)) => Fetched::Lost,
        Some(Err(ReadError::OutOfMemory)) => Fetched::NoMemory,
    }
}

/// A read that has begun is made, and ends.
fn begun<M: Machine>(m: &mut M, read: Read) -> Fetched {
    let (mut good, mut failed) = (PageMask::EMPTY, PageMask::EMPTY);
    if m.hold(&read.pages) {
        m.begins(&read.pages);
        m.unlock();
        let mut filled = PageMask::EMPTY;
        for piece in read.pieces.iter() {
            whole(m, piece, &mut filled, &mut failed);
        }
        // F-turn.
        m.end_turn();
        for piece in read.pieces.iter() {
            decrypt(m, piece, &filled, &mut good, &mut failed);
        }
        m.lock();
        // F-bytes. What has arrived is prepared after this.
        m.overwritten(&read.pages);
        // F-memory.
        good = m.unchanged(&good);
    }
    let keep = m.keeps_copies();
    let arrived = m.with(|block, table| block.end_read(table, read, &good, &failed, keep));
    m.arrived(&arrived.unwrap_or(PageMask::EMPTY));
    if !failed.is_empty() {
        m.lost(&failed);
    }
    m.tell();
    if good.is_empty() && failed.is_empty() {
        Fetched::NoMemory
    } else {
        Fetched::Again
    }
}

/// Reads a piece as a whole, or else page by page. What the device gave is added to `filled`, and what it will
/// never give to `failed`.
fn whole<M: Machine>(m: &mut M, piece: &Piece, filled: &mut PageMask, failed: &mut PageMask) {
    if m.read(piece) == Did::All {
        *filled |= PageMask::from(piece.pages);
        return;
    }
    m.count_errors(1);
    for page in 0..piece.pages.pages() {
        let one = piece.part(page, 1);
        match m.read(&one) {
            Did::All => *filled |= PageMask::from(one.pages),
            Did::NotNow => {}
            Did::Never => *failed |= PageMask::from(one.pages),
        }
    }
}

/// Decrypts what the device gave of a piece.
fn decrypt<M: Machine>(
    m: &mut M,
    piece: &Piece,
    filled: &PageMask,
    good: &mut PageMask,
    failed: &mut PageMask,
) {
    let filled = PageMask::from(piece.pages) & *filled;
    for run in filled.runs() {
        let (right, wrong) = m.decrypt(&piece.part(run.first() - piece.pages.first(), run.pages()));
        *good |= right;
        *failed |= wrong;
        if !wrong.is_empty() {
            m.count_errors(wrong.count().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::mask::Region;
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
        /// Pages that cannot be read, or not now; that are something else; whose memory changes.
        bad: PageMask,
        not_now: PageMask,
        wrong: PageMask,
        changed: PageMask,
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
                not_now: PageMask::EMPTY,
                wrong: PageMask::EMPTY,
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
            assert!(self.locked && !self.open, "F-set");
            self.open = !self.is_scarce;
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
            assert!(self.has_turn || self.turn == NeedsTurn::No, "F-turn");
            assert!(self.has_begun, "a fault that waits is not told");
            assert_eq!(
                u32::from(piece.place.offset),
                u32::from(piece.pages.first())
            );
            self.said.push("read");
            if of.intersects(&self.bad) {
                Did::Never
            } else if of.intersects(&self.not_now) {
                Did::NotNow
            } else {
                Did::All
            }
        }

        fn decrypt(&mut self, piece: &Piece) -> (PageMask, PageMask) {
            assert!(!self.locked && !self.has_turn, "F-turn");
            let of = PageMask::from(piece.pages);
            (of - self.wrong, of & self.wrong)
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
    fn what_is_something_else_is_lost_and_what_came_to_other_memory_is_not_there() {
        let mut m = Script::new();
        (m.wrong, m.changed) = (pages(1, 3), pages(4, 5));
        assert_eq!(m.fetch(pages(0, 6)), Fetched::Again);
        assert_eq!((m.lost, m.errors), (pages(1, 3), 2));
        assert_eq!(m.arrived, pages(0, 6) - pages(1, 3) - pages(4, 5));
        assert_eq!(
            m.prepared,
            PageMask::FULL - pages(1, 3) - pages(4, 5),
            "F-bytes"
        );
        assert!(pages(4, 5).is_subset(&m.block.on_flash()));
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
}
