// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The workers that write those pages to the device that have been longest in host memory, when
//! there are too many; what is written by call; and how room is made on the device.
//!
//! ```text
//!  work           as long as there is too much host memory: a victim, a spill, relocation, a rest
//!    spill        of a va_block; anew where copies of others' make room for it
//!      once       lock; begin; unlock; write; lock; end; unlock
//!        write    all of it is encrypted; the turn with the device; piece after piece
//! ```
//!
//! A spill takes no lock for longer than it needs to look: it unmaps the pages, writes a copy that is
//! encrypted, and comes back to see whether the pages are as it left them. Whoever uses or maps one of
//! them in the meantime says so ([`BlockPages::touched`]), and it stays. The mapping itself need not be
//! there any more by then: upstream ends some without a migration.
//!
//! The driver does not see accesses to a page without a mapping: direct I/O, a buffer registered with
//! io_uring or for RDMA, a pipe. Their users hold a reference on the page for as long as they may access it.
//! Such a page stays ([`Machine::not_held`]): it would be written to, or read from, after the process has got
//! another page in its place. One look after the mappings have gone is enough: nobody gets a new
//! reference without a mapping, and each new mapping is noted ([`BlockPages::touched`]).
//!
//! The spill acts only through [`Machine`]: in the driver that is upstream's va_blocks, under
//! `cargo test` a model of them, with other threads between any two of its calls.
//!
//! # Invariants
//!
//! - **S-lock**: each `lock` is followed by one `unlock`, each `open` that succeeds by one `close`,
//!   each `try_space` that succeeds by one `leave_space`, each `choose` by one `release`. What needs
//!   the block's lock is only asked with it.
//! - **S-io**: nothing is written, and nothing is waited for but the GPUs' work on the block, while
//!   it is locked.
//! - **S-order**: the VA space's lock is only tried with the block's held: whoever waits to write
//!   comes first, and a thread that waits for us holds it in read mode.
//! - **S-end**: the spill lets the VA space's lock go before the block's. A thread that ends the VA space
//!   takes the VA space's lock first and the block's last, and then frees the VA space's: by then nobody may
//!   still be about to release it.
//! - **S-pins**: a spill that has begun is ended or abandoned, so its room on the device is given back.

use super::super::mask::{PageMask, PAGES};
use super::cause::Writer;
use super::pressure::Tried;
use super::{BlockPages, Error, Move, Piece, Spill, Table};
use relocate::relocate;

pub(super) mod relocate;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// What a spill of a va_block came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Some pages left host memory.
    Moved,
    /// There is nothing to move now; a later arrival queues it again.
    Nothing,
    /// Something is in the way.
    Later,
    /// The device has no room.
    NoRoom,
    /// The tenant may have no more.
    NoQuota,
    /// The device took nothing of what it was given.
    Failed,
}

/// What a spill counts, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Bytes that left the host as they were written.
    Spilled,
    /// Bytes that left it as they were discarded.
    Dropped,
    /// Bytes that left it as flash had them.
    Unwritten,
    /// Bytes that were copied on the device.
    Relocated,
    /// Spills for which there was no room.
    Refused,
}

/// What upstream knows of the locked block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Pages that only the host has.
    pub only_host: PageMask,
    /// Pages that somebody may have mapped.
    pub mapped: PageMask,
    /// Whether it has host memory of pages that are elsewhere or nowhere.
    pub has_unused: bool,
}

/// How unmapping came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// Nobody has the pages mapped, and the GPUs have done what they had to do on the block.
    All,
    /// The block's lock was let go on the way, so that nothing that is known of it holds any more.
    Again,
    /// It cannot be done now.
    Failed,
}

/// Who gives copies up, to make room on the device.
pub trait Copies {
    /// Gives up all copies of the block that has had some longest, of those of the chosen one's tenant or
    /// of anybody's, and says how many; `None` if there is none. No block is locked.
    fn give_up_oldest(&mut self, of_own: bool) -> Option<u32>;
}

/// What a worker works on: the tier, and one va_block at a time, which [`Machine::choose`] chooses.
pub trait Machine: Copies {
    // The worker.

    /// Whether there is something to do.
    fn goes_on(&mut self) -> bool;

    /// Chooses the block to be spilled next, and keeps it; false if there is none.
    fn choose(&mut self) -> bool;

    /// Lets the chosen block go.
    fn release(&mut self);

    /// Takes the lock of power management in read mode, if that is possible at once. Who suspends comes
    /// first; it may be waiting for one who waits for us.
    fn enter(&mut self) -> bool;

    /// Lets go what `enter` took.
    fn leave(&mut self);

    /// Whether somebody waits to suspend, for a call that has the lock of power management.
    fn suspends(&mut self) -> bool;

    /// A try ended so. Returns whether the worker ends.
    fn ended(&mut self, tried: Tried) -> bool;

    /// The next time, all blocks are looked at.
    fn hope_for_all(&mut self);

    /// The time, in microseconds.
    fn now_us(&mut self) -> u64;

    /// Leaves the CPU to others for a moment, and the device after a write that `began` then.
    fn rest(&mut self, began: Option<u64>);

    /// How many workers there are.
    fn workers(&mut self) -> u32;

    // The chosen block.

    /// Gets what unmapping needs; false without memory.
    fn open(&mut self) -> bool;

    /// Gives back what `open` got.
    fn close(&mut self);

    /// Takes the block's lock.
    fn lock(&mut self);

    /// Lets the block's lock go.
    fn unlock(&mut self);

    /// Takes the lock of the block's VA space in read mode, if that is possible at once.
    fn try_space(&mut self) -> bool;

    /// Lets the lock of the VA space go.
    fn leave_space(&mut self);

    // With its lock held.

    /// Whether it is alive, and has or had host memory.
    fn is_known(&mut self) -> bool;

    /// Whether its pages may be unmapped: where a fault is fatal, mappings must stay. The VA space's lock
    /// is held, too.
    fn may_spill(&mut self) -> bool;

    /// What upstream knows of it.
    fn facts(&mut self) -> Facts;

    /// Those of `pages` that nobody has a reference of but UVM and the page tables of processes.
    fn not_held(&mut self, pages: &PageMask) -> PageMask;

    /// Gives it a state on this device, if it has none; false if that cannot be.
    fn use_device(&mut self) -> bool;

    /// Works on its state, with the device's table and its tenant's key; `None` if it is dead, or has no
    /// state on this device.
    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table, u64) -> T) -> Option<T>;

    /// Works on the device's table.
    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T;

    /// Unmaps pages from all processors, and waits for the GPUs. The VA space's lock is held, too.
    fn unmap(&mut self, pages: &PageMask) -> Unmapped;

    /// Waits for the GPUs' work on it: a copy out of the host's memory may be under way. False if that
    /// fails.
    fn wait_gpus(&mut self) -> bool;

    /// Those of `pages` that were discarded and are still there.
    fn discarded(&mut self, pages: &PageMask) -> PageMask;

    /// They are no longer there.
    fn dropped(&mut self, pages: &PageMask);

    /// `pages`, which nobody has mapped, leave host memory, and what memory is not needed goes. Returns
    /// whether some did. The GPUs were waited for.
    fn left_host(&mut self, pages: &PageMask) -> bool;

    /// Keeps the host memory of what is being spilled, so that it can be read without a lock; false if
    /// some page has none.
    fn hold(&mut self, spill: &Spill) -> bool;

    /// Takes the block out of the queue: it has nothing to spill, or has been spilled.
    fn set_aside(&mut self);

    /// One of its tenant's blocks was spilled.
    fn hope(&mut self);

    // The device.

    /// Encrypts what is held of a piece, and notes its sums; false if that cannot be done.
    fn seal(&mut self, piece: &Piece) -> bool;

    /// Waits for a turn with the device ([`super::arbiter`]), also while a fault waits, which takes back what is
    /// spilled and waits for no turn. Returns false if whoever this is gives it up ([`Writer::gives_up`]).
    fn take_turn(&mut self) -> bool;

    /// Ends the turn that [`Machine::take_turn`] gave.
    fn end_turn(&mut self);

    /// Writes a piece that was sealed; whether the device took it.
    fn write(&mut self, piece: &Piece) -> bool;

    /// Lets go the host memory that is kept to be written.
    fn written(&mut self);

    /// Reads what is to be copied inside the device. Returns whether it is what was written; `None` if the device did
    /// not give it.
    fn copy_in(&mut self, to_move: &Move) -> Option<bool>;

    /// Writes what was read to its new place; whether the device took it.
    fn copy_out(&mut self, to_move: &Move) -> bool;

    /// Whether it is there, and nothing that it was asked for has failed.
    fn is_sound(&mut self) -> bool;

    /// Host memory may be free. `ended`: a write is over as well, which some wait for.
    fn tell(&mut self, ended: bool);

    /// Adds `n` to what is counted.
    fn count(&mut self, what: Count, n: u64);
}

/// Does a worker's turn: spills until enough host memory is free, or the turn is over.
pub fn work<M: Machine>(m: &mut M) {
    while m.goes_on() {
        let began = m.now_us();
        let mut outcome = Outcome::Nothing;
        if m.choose() {
            let entered = m.enter();
            if entered {
                outcome = spill(m, None, false);
                note(m, outcome);
                m.leave();
            }
            m.release();
            if !entered {
                m.ended(Tried::Suspended);
                break;
            }
        }
        relocate(m, Writer::Worker);
        let tried = match outcome {
            Outcome::Moved => Tried::Moved,
            Outcome::Failed => Tried::Failed,
            _ => Tried::Nothing,
        };
        if m.ended(tried) {
            break;
        }
        m.rest((outcome == Outcome::Moved).then_some(began));
    }
    m.hope_for_all();
}

/// Notes the outcome of a spill in the tenant's queue, which says whose turn it is next.
fn note<M: Machine>(m: &mut M, outcome: Outcome) {
    if !matches!(outcome, Outcome::Moved | Outcome::Nothing) {
        return;
    }
    m.lock();
    if m.is_known() {
        if outcome == Outcome::Moved {
            m.hope();
        } else if m.facts().only_host.is_empty() {
            // It may have got some in the meantime.
            m.set_aside();
        }
    }
    m.unlock();
}

/// Writes what of `wanted` (`None`: all) the chosen block has in host memory. `in_space`: the caller has
/// the VA space's lock in read mode; it has no other.
pub fn spill<M: Machine>(m: &mut M, wanted: Option<&PageMask>, in_space: bool) -> Outcome {
    loop {
        let outcome = once(m, wanted, in_space);
        // A page that must leave host memory is worth more room than copies of pages that are in memory.
        let again = match outcome {
            Outcome::NoRoom => give_up_copies(m, false),
            Outcome::NoQuota => give_up_copies(m, true),
            _ => false,
        };
        if again {
            continue;
        }
        if matches!(outcome, Outcome::NoRoom | Outcome::NoQuota) {
            m.count(Count::Refused, 1);
        }
        return outcome;
    }
}

/// A block that is written by call.
pub fn move_out<M: Machine>(m: &mut M, wanted: &PageMask) {
    if spill(m, Some(wanted), true) == Outcome::NoRoom {
        relocate(m, Writer::Call);
    }
}

/// Gives up copies, those of a slot if there are so many. Returns whether there were any.
pub fn give_up_copies<C: Copies>(c: &mut C, of_own: bool) -> bool {
    let mut pages = 0;
    while pages < u32::from(PAGES) {
        match c.give_up_oldest(of_own) {
            Some(more) => pages += more,
            None => break,
        }
    }
    pages > 0
}

/// With the room that there is.
fn once<M: Machine>(m: &mut M, wanted: Option<&PageMask>, in_space: bool) -> Outcome {
    if !m.open() {
        return Outcome::Later;
    }
    m.lock();
    let mut entered = false;
    let begun = if !m.is_known() {
        Err(Outcome::Nothing)
    } else {
        // S-order.
        entered = !in_space && m.try_space();
        if in_space || entered {
            begin(m, wanted)
        } else {
            Err(Outcome::Later)
        }
    };
    // S-end.
    if entered {
        m.leave_space();
    }
    m.unlock();
    m.close();
    match begun {
        Ok(spill) => written(m, spill),
        Err(outcome) => {
            if outcome == Outcome::Moved {
                m.tell(false);
            }
            outcome
        }
    }
}

/// A spill that has begun is written, and ends.
fn written<M: Machine>(m: &mut M, spill: Spill) -> Outcome {
    let written = write(m, &spill);
    m.lock();
    let outcome = end(m, spill, &written.unwrap_or(PageMask::EMPTY));
    m.unlock();
    m.tell(true);
    // Before those are taken out that were used in the meantime: the device is not at fault for them. Nor is it for what it
    // was not given.
    match written {
        Some(written) if written.is_empty() => Outcome::Failed,
        _ => outcome,
    }
}

/// Writes what is held of a spill, and lets it go. Returns the pages that the device took; `None` if its turn never came.
fn write<M: Machine>(m: &mut M, spill: &Spill) -> Option<PageMask> {
    let (mut sealed, mut good) = (PageMask::EMPTY, PageMask::EMPTY);
    for piece in spill.pieces() {
        if m.seal(piece) {
            sealed |= PageMask::from(piece.pages);
        }
    }
    // One turn is enough for all pieces, which are 2 MiB together.
    let has_turn = !sealed.is_empty() && m.take_turn();
    if has_turn {
        for piece in spill.pieces() {
            if sealed.intersects(&piece.pages.into()) && m.write(piece) {
                good |= PageMask::from(piece.pages);
            }
        }
        m.end_turn();
    }
    m.written();
    (has_turn || sealed.is_empty()).then_some(good)
}

/// What of `wanted` can be spilled.
fn movable<M: Machine>(m: &mut M, facts: &Facts, wanted: Option<&PageMask>) -> PageMask {
    let pages = facts.only_host & *wanted.unwrap_or(&PageMask::FULL);
    m.not_held(&pages)
}

/// With the locks of the block and of its VA space: a spill, or what it came to without one.
fn begin<M: Machine>(m: &mut M, wanted: Option<&PageMask>) -> Result<Spill, Outcome> {
    if !m.may_spill() {
        return Err(Outcome::Nothing);
    }
    let facts = m.facts();
    let mut pages = movable(m, &facts, wanted);
    if pages.is_empty() {
        return Err(free_unused(m, &facts));
    }
    if !m.use_device() {
        return Err(Outcome::Later);
    }
    let (mut dropped, mut taken) = (false, false);
    loop {
        let all = pages;
        let unmapped = drop_needless(m, &mut pages, &mut dropped);
        taken |= pages != all;
        match unmapped {
            Unmapped::All => break,
            Unmapped::Failed => return Err(Outcome::Later),
            Unmapped::Again => {
                let facts = m.facts();
                pages = movable(m, &facts, wanted);
            }
        }
    }
    if pages.is_empty() {
        return Err(match (dropped, taken) {
            (true, _) => Outcome::Moved,
            // Somebody holds all that is left.
            (false, true) => Outcome::Later,
            // Somebody else took all of it where the lock was let go.
            (false, false) => Outcome::Nothing,
        });
    }
    let spill = reserve(m, &pages)?;
    let unmapped = loop {
        match m.unmap(&spill.pages) {
            Unmapped::Again => {}
            unmapped => break unmapped,
        }
    };
    // Somebody may have taken hold of one of them since. The next time, it is left out.
    let ready = unmapped == Unmapped::All && m.not_held(&spill.pages) == spill.pages;
    if ready && m.hold(&spill) {
        return Ok(spill);
    }
    end_spill(m, spill, &PageMask::EMPTY);
    Err(Outcome::Later)
}

/// Reserves room on the device for `pages`, and pins it.
fn reserve<M: Machine>(m: &mut M, pages: &PageMask) -> Result<Spill, Outcome> {
    let begun = m.with(|block, table, tenant| {
        let tenant = table.tenant(tenant)?;
        block.begin_spill(table, tenant, pages)
    });
    match begun {
        Some(Ok(spill)) if spill.pages.is_empty() => {
            end_spill(m, spill, &PageMask::EMPTY);
            Err(Outcome::Nothing)
        }
        Some(Ok(spill)) => Ok(spill),
        Some(Err(Error::Full)) => Err(Outcome::NoRoom),
        // What it has of both is its own, so that only its own copies have to go.
        Some(Err(Error::Quota | Error::Fragmented)) => Err(Outcome::NoQuota),
        Some(Err(Error::OutOfMemory | Error::Busy)) | None => Err(Outcome::Later),
    }
}

/// S-pins: ends the spill, of which `written` is on the device. Returns what is there only.
fn end_spill<M: Machine>(m: &mut M, spill: Spill, written: &PageMask) -> PageMask {
    let mut spill = Some(spill);
    let moved = m.with(|block, table, _| {
        spill
            .take()
            .map(|spill| block.end_spill(table, spill, written))
    });
    if let Some(spill) = spill {
        m.table(|table| spill.abandon(table));
    }
    moved.flatten().unwrap_or(PageMask::EMPTY)
}

/// Host memory of pages that are elsewhere or nowhere, which upstream keeps for their return.
fn free_unused<M: Machine>(m: &mut M, facts: &Facts) -> Outcome {
    if facts.has_unused && m.wait_gpus() && m.left_host(&PageMask::EMPTY) {
        Outcome::Moved
    } else {
        Outcome::Nothing
    }
}

/// Drops what need not be written: what was discarded and is still there, and what flash has a copy of.
/// Takes it out of `pages`, and sets `dropped` if some left the host. What was discarded and somebody holds is taken out
/// as well: it stays where it is, as a copy of it on the device would be trusted once the page itself has been dropped.
fn drop_needless<M: Machine>(m: &mut M, pages: &mut PageMask, dropped: &mut bool) -> Unmapped {
    let stale = m.discarded(pages);
    if !stale.is_empty() {
        match m.unmap(&stale) {
            Unmapped::All => {}
            other => return other,
        }
        *pages -= stale;
        let stale = m.not_held(&stale);
        m.dropped(&stale);
        m.left_host(&stale);
        *dropped |= !stale.is_empty();
        m.count(Count::Dropped, bytes(&stale));
    }
    let clean = m.with(|block, _, _| block.copies() & *pages);
    let clean = clean.unwrap_or(PageMask::EMPTY);
    // They are not relied on once the device has failed anything, or is gone.
    if clean.is_empty() || !m.is_sound() {
        return Unmapped::All;
    }
    match m.unmap(&clean) {
        Unmapped::All => {}
        other => return other,
    }
    let clean = m.not_held(&clean);
    let clean = m.with(|block, _, _| block.drop_clean(&clean));
    let clean = clean.unwrap_or(PageMask::EMPTY);
    if !clean.is_empty() {
        m.left_host(&clean);
        *pages -= clean;
        *dropped = true;
        m.count(Count::Unwritten, bytes(&clean));
    }
    Unmapped::All
}

/// With the block's lock: `written` is on the device.
fn end<M: Machine>(m: &mut M, spill: Spill, written: &PageMask) -> Outcome {
    if m.with(|_, _, _| ()).is_none() {
        m.table(|table| spill.abandon(table));
        return Outcome::Nothing;
    }
    let facts = m.facts();
    // A copy out of the host's memory may be under way, and frees nothing before it has ended.
    let still = if m.wait_gpus() {
        facts.only_host - facts.mapped
    } else {
        PageMask::EMPTY
    };
    let moved = end_spill(m, spill, &(*written & still));
    if moved.is_empty() {
        return Outcome::Later;
    }
    m.left_host(&moved);
    m.count(Count::Spilled, bytes(&moved));
    Outcome::Moved
}

fn bytes(pages: &PageMask) -> u64 {
    u64::from(pages.count()) * PAGE_BYTES
}
