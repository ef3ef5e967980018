// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fetching: brings pages of a va_block from the device to host memory.
//!
//! ```text
//!  fetch          host memory for what is wanted; the turn with the device; a set of buffers; the read begins, or is
//!                 waited for
//!    begun        the lock is let go; each piece is read, then opened; lock; what has arrived is resident
//!      read       as a whole, or page by page: one bad sector is not to cost all
//! ```
//!
//! A failed read does not say that the device has lost the page: a path may be down, a controller be reset, bytes be
//! changed on the way. As with the kernel's swap, whoever wants the page gets an error, and the page keeps its place.
//! From a second later on, an access reads the page again ([`BlockPages::put_off`]), and no other failed page with it.
//! A page is lost for good only where the device says that its medium does not have it, or where the device is gone.
//!
//! # Invariants
//!
//! - **F-lock**: what needs the block's lock is only called with it. The lock is held again at the end; what was
//!   known of the block before it was released may not hold any more.
//! - **F-memory**: a read goes to host memory that is held meanwhile, and counts only if the block still has that
//!   memory.
//! - **F-bytes**: memory that a read has filled without bringing the page must not be handed out as it is. It may
//!   hold anybody's data that the device gave.
//! - **F-pins**: a read that has begun ends, so that its places on the device are let go.
//! - **F-turn**: a thread that waits for a turn with the device ([`super::arbiter`]) does not hold the block's lock, and
//!   has marked none of its pages as being read. Otherwise a fault on the block would wait for the turn as well. The thread gets
//!   host memory before the turn, so that it hardly waits for memory during the turn. The turn ends when the device is
//!   done, before anything is decrypted.
//! - **F-rest**: a read for faults that were put off leaves none of their pages on the device, except for want of
//!   memory. The thread that serves all processes services these faults next, and would read the rest itself.
//! - **F-set**: a thread that waits for a set of buffers ([`super::pool`]) does not hold the block's lock either, and has
//!   marked nothing. It has its turn already, so a thread that has a set never waits for a thread that waits for one.

use super::super::mask::PageMask;
use super::{BlockPages, Piece, Read, ReadError, Table};

/// The outcome of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// None of the wanted pages is on the device any more.
    All,
    /// The block's lock was released: ask again.
    Again,
    /// A wanted page cannot be read any more.
    Lost,
    /// There is no memory, or nothing has come.
    NoMemory,
    /// There is host memory: ask again with a turn ([`NeedsTurn::Elsewhere`]), or a set ([`NeedsTurn::OnlySet`]).
    Turn,
}

/// Whether a read has to wait for a turn with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsTurn {
    /// No: it is for a fault, or has a turn. With a turn `try_open` does not fail.
    No,
    /// It waits here, with the lock of the VA space.
    Here,
    /// The caller waits for it, without the lock of the VA space.
    Elsewhere,
    /// It is for faults that were put off, and waits for no turn. The caller waits for a set of buffers, without the
    /// lock of the VA space. After the read all wanted pages have come or are lost (F-rest).
    OnlySet,
}

/// The outcome of a read of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// All bytes were read.
    All,
    /// Nothing was read for want of memory, or because of a signal: it is worth asking again at once.
    NotNow,
    /// The device did not give the bytes. It may another time.
    Failed,
    /// The device cannot give the bytes, and never will.
    Never,
}

impl Did {
    /// The outcome of a read that failed with this negative errno; `is_there`: the device is plugged in.
    ///
    /// Want of memory or a signal passes at once. Only `ENODATA` says that the medium does not have what was to be read
    /// (the block layer's `BLK_STS_MEDIUM`). `EILSEQ` (`BLK_STS_PROTECTION`) says that it came with other tags than it has,
    /// which the way to the host may have changed. All others may pass as well: a path that is down (`ENOLINK`), a time
    /// that is over (`ETIMEDOUT`), a device that is offline (`ENODEV`) or busy (`EBUSY`), and `EIO`, which is whatever has
    /// no name.
    pub fn failed(errno: i32, is_there: bool) -> Self {
        const EINTR: i32 = 4;
        const EAGAIN: i32 = 11;
        const ENOMEM: i32 = 12;
        const ENODATA: i32 = 61;
        const ERESTARTSYS: i32 = 512;
        match errno.wrapping_neg() {
            EINTR | EAGAIN | ENOMEM | ERESTARTSYS => Self::NotNow,
            ENODATA => Self::Never,
            _ if !is_there => Self::Never,
            _ => Self::Failed,
        }
    }
}

/// The pages of a read that did not come.
#[derive(Default)]
struct Missing {
    /// Pages that the device did not give, and may give another time.
    failed: PageMask,
    /// Pages that the device will never give.
    never: PageMask,
    /// Pages whose checksums are wrong.
    wrong: PageMask,
}

/// How many pages in a row may fail one by one. The pages behind them are not tried now: each may take as long as the
/// kernel waits for a device that does not answer.
const FAILURES: u32 = 16;

/// What a fetch works on: one va_block, which is locked unless a comment says otherwise.
pub trait Machine {
    /// The error of upstream's functions.
    type Error;

    /// Works on the block's state, with the device's table; `None` if it has no state.
    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table) -> T) -> Option<T>;

    /// Makes host memory for `pages`.
    ///
    /// # Errors
    ///
    /// Upstream's; one of them says that the lock was released.
    fn populate(&mut self, pages: &PageMask) -> Result<(), Self::Error>;

    /// Takes a set of buffers, if one is free ([`super::pool`]).
    fn try_open(&mut self) -> bool;

    /// Gives the set of buffers back, and releases the host memory that it holds.
    fn close(&mut self);

    /// Holds the host memory that a read fills; false if some page has none.
    fn hold(&mut self, pages: &PageMask) -> bool;

    /// Those of `pages` whose host memory is still the held one.
    fn unchanged(&mut self, pages: &PageMask) -> PageMask;

    /// Notes that a read has filled the memory of `pages`, so that it is zeroed before it is handed out.
    fn overwritten(&mut self, pages: &PageMask);

    /// Whether fetched pages keep a copy on the device.
    fn keeps_copies(&mut self) -> bool;

    /// Makes `pages` resident in host memory.
    fn arrived(&mut self, pages: &PageMask);

    /// Notes that `pages` cannot be read.
    fn lost(&mut self, pages: &PageMask);

    /// Releases the block's lock.
    fn unlock(&mut self);

    /// Takes the block's lock.
    fn lock(&mut self);

    /// The time, in microseconds.
    fn now_us(&mut self) -> u64;

    /// A number that changes whenever a read or a write ends.
    fn progress(&mut self) -> u32;

    /// Whether a read has to wait for a turn with the device.
    fn needs_turn(&mut self) -> NeedsTurn;

    /// Notes that the read of `pages` begins, which faults may wait for. `pages` is empty if another read brings what
    /// is wanted.
    fn begins(&mut self, pages: &PageMask);

    // Without the block's lock.

    /// Waits for a turn with the device.
    fn take_turn(&mut self);

    /// Takes a set of buffers, for which it may wait.
    fn open(&mut self);

    /// Waits for a while until a read or write ends that had not ended when `progress` had this value.
    fn wait(&mut self, progress: u32);

    /// Reads a piece into the held memory.
    fn read(&mut self, piece: &Piece) -> Did;

    /// Decrypts a piece that was read. Returns the pages whose checksums are right, and those whose are wrong.
    fn decrypt(&mut self, piece: &Piece) -> (PageMask, PageMask);

    /// Counts `n` failed reads.
    fn count_errors(&mut self, n: u32);

    // With or without the block's lock.

    /// Wakes the threads that wait for the end of a read.
    fn tell(&mut self);

    /// Ends the turn with the device, if there is one.
    fn end_turn(&mut self);
}

/// Brings those of `wanted` that are on the device to host memory (F-lock).
///
/// # Errors
///
/// Upstream's.
pub fn fetch<M: Machine>(m: &mut M, wanted: &PageMask) -> Result<Fetched, M::Error> {
    let fetched = if m.needs_turn() == NeedsTurn::OnlySet {
        rest(m, wanted)
    } else {
        let now = m.now_us();
        m.with(|block, _| block.read_again_at(now, wanted));
        in_turn(m, wanted)
    };
    m.end_turn();
    fetched
}

/// Brings those of `wanted` that are not lost (F-rest). Lost pages are not read again here: they were tried for these
/// faults, and a device that fails slowly would keep the faults for ever.
fn rest<M: Machine>(m: &mut M, wanted: &PageMask) -> Result<Fetched, M::Error> {
    let lost = m.with(|block, _| block.lost() & *wanted);
    let lost = lost.unwrap_or(PageMask::EMPTY);
    Ok(match in_turn(m, &(*wanted - lost))? {
        Fetched::All if !lost.is_empty() => Fetched::Lost,
        fetched => fetched,
    })
}

/// Those of `wanted` that have to be read; `None` if the block has no state.
fn missing<M: Machine>(m: &mut M, wanted: &PageMask) -> Option<PageMask> {
    m.with(|block, _| (block.on_flash() & *wanted) - block.in_flight())
}

fn in_turn<M: Machine>(m: &mut M, wanted: &PageMask) -> Result<Fetched, M::Error> {
    let Some(pages) = missing(m, wanted) else {
        return Ok(Fetched::All);
    };
    if pages.is_empty() {
        // All wanted pages are here, under way, or lost: the state says which.
        return Ok(begin(m, wanted));
    }
    m.populate(&pages)?;
    let waits = match m.needs_turn() {
        NeedsTurn::No => false,
        NeedsTurn::Here => true,
        NeedsTurn::OnlySet if m.try_open() => false,
        NeedsTurn::Elsewhere | NeedsTurn::OnlySet => return Ok(Fetched::Turn),
    };
    let fetched = opened(m, wanted, waits);
    m.close();
    fetched
}

/// Takes a set of buffers, once there is host memory, and reads. `waits`: also waits for a turn with the device.
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

/// Begins a read, if there is something to read.
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

/// Makes a read that has begun, and ends it.
fn begun<M: Machine>(m: &mut M, read: Read) -> Fetched {
    let (mut good, mut missing) = (PageMask::EMPTY, Missing::default());
    let is_for_parked = m.needs_turn() == NeedsTurn::OnlySet;
    if m.hold(&read.pages) {
        m.begins(&read.pages);
        m.unlock();
        let mut filled = PageMask::EMPTY;
        for piece in read.pieces.iter() {
            let behind = whole(m, piece, &mut filled, &mut missing);
            if is_for_parked {
                // F-rest.
                missing.failed |= behind;
            }
        }
        // F-turn.
        m.end_turn();
        for piece in read.pieces.iter() {
            decrypt(m, piece, &filled, &mut good, &mut missing.wrong);
        }
        m.lock();
        // F-bytes. Pages that have arrived count as prepared after this.
        m.overwritten(&read.pages);
        // F-memory.
        good = m.unchanged(&good);
    }
    end(m, read, &good, &missing)
}

/// Ends a read, of which `good` has come.
fn end<M: Machine>(m: &mut M, read: Read, good: &PageMask, missing: &Missing) -> Fetched {
    let Missing {
        failed,
        never,
        wrong,
    } = missing;
    let (keep, now) = (m.keeps_copies(), m.now_us());
    let ended = m.with(|block, table| {
        let lost = block.put_off(&read, (failed, wrong), now);
        let arrived = block.end_read(table, read, good, never, keep);
        (arrived, lost | *never)
    });
    let (arrived, lost) = ended.unwrap_or((PageMask::EMPTY, PageMask::EMPTY));
    m.arrived(&arrived);
    if !lost.is_empty() {
        m.lost(&lost);
    }
    m.tell();
    // Pages with wrong checksums are read once more, or are lost.
    if good.is_empty() && (*failed | *never | *wrong).is_empty() {
        Fetched::NoMemory
    } else {
        Fetched::Again
    }
}

/// Reads a piece as a whole, or else page by page. Adds the pages that the device gave to `filled`. Returns the pages
/// that were not tried, because too many before them failed.
fn whole<M: Machine>(
    m: &mut M,
    piece: &Piece,
    filled: &mut PageMask,
    missing: &mut Missing,
) -> PageMask {
    if m.read(piece) == Did::All {
        *filled |= PageMask::from(piece.pages);
        return PageMask::EMPTY;
    }
    m.count_errors(1);
    let mut in_a_row = 0;
    for page in 0..piece.pages.pages() {
        let one = piece.part(page, 1);
        let (did, of) = (m.read(&one), PageMask::from(one.pages));
        match did {
            Did::All => *filled |= of,
            Did::NotNow => {}
            Did::Failed => missing.failed |= of,
            Did::Never => missing.never |= of,
        }
        in_a_row = if did == Did::Failed { in_a_row + 1 } else { 0 };
        if in_a_row == FAILURES {
            let tried = page + 1;
            return piece.part(tried, piece.pages.pages() - tried).pages.into();
        }
    }
    PageMask::EMPTY
}

/// Decrypts the pages of a piece that the device gave.
fn decrypt<M: Machine>(
    m: &mut M,
    piece: &Piece,
    filled: &PageMask,
    good: &mut PageMask,
    all_wrong: &mut PageMask,
) {
    let filled = PageMask::from(piece.pages) & *filled;
    for run in filled.runs() {
        let (right, wrong) = m.decrypt(&piece.part(run.first() - piece.pages.first(), run.pages()));
        *good |= right;
        *all_wrong |= wrong;
        if !wrong.is_empty() {
            m.count_errors(wrong.count().into());
        }
    }
}

#[cfg(test)]
mod tests;
