// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Spilling: when host memory has too many pages, workers write those that have been there longest
//! to the device. Also writes by call, and how room is made on the device.
//!
//! ```text
//!  work           as long as there is too much host memory: a victim, a spill, relocation, a rest
//!    spill        of a va_block; anew where copies of others' make room for it
//!      once       lock; begin; unlock; write; lock; end; unlock
//!        write    all of it is encrypted; the turn with the device; piece after piece
//! ```
//!
//! A spill holds no lock during its I/O. It unmaps the pages, writes an encrypted copy, and then
//! looks whether the pages are as it left them. Code that uses or maps one of them meanwhile notes
//! that ([`BlockPages::touched`]), and the page stays. The look cannot go by mappings, as upstream
//! ends some without a migration.
//!
//! The driver does not see accesses without a mapping: by direct I/O, a buffer registered with
//! io_uring or for RDMA, a pipe. Such users hold a reference on the page for as long as they may
//! access it. A page with such a reference stays ([`Machine::not_held`]): otherwise they would
//! access it after the process has got another page in its place. One look after the mappings are
//! gone is enough: nobody gets a new reference without a mapping, and each new mapping is noted
//! ([`BlockPages::touched`]).
//!
//! The spill acts only through [`Machine`]: in the driver that is upstream's va_blocks, under
//! `cargo test` a model of them, with other threads between any two of its calls.
//!
//! # Invariants
//!
//! - **S-lock**: each `lock` is followed by one `unlock`, each `open` that succeeds by one `close`,
//!   each `try_space` that succeeds by one `leave_space`, each `choose` by one `release`. What needs
//!   the block's lock is only asked with it.
//! - **S-io**: while the block is locked, the spill does no I/O, and waits for nothing but the
//!   GPUs' work on the block.
//! - **S-order**: the VA space's lock is only tried with the block's held. A writer that waits for
//!   it comes first, and would wait for a thread that holds it in read mode and waits for the
//!   block.
//! - **S-end**: the spill releases the VA space's lock before the block's. A thread that ends the
//!   VA space takes the VA space's lock first and the block's last, and then frees the VA space's
//!   lock, which nobody may then still be about to release.
//! - **S-pins**: a spill that has begun is ended or abandoned, so its room on the device is given back.

use super::super::mask::{PageMask, PAGES};
use super::cause::Writer;
use super::pressure::Tried;
use super::{BlockPages, Error, Move, Piece, Spill, Table};
use relocate::relocate;

pub(super) mod relocate;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// The outcome of a spill of a va_block.
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
    /// The tenant has used up its quota.
    NoQuota,
    /// The device took none of the pages that it was given.
    Failed,
}

/// What a spill counts, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Bytes that left host memory because they were written.
    Spilled,
    /// Bytes that left host memory because they were discarded.
    Dropped,
    /// Bytes that left host memory because flash had a copy.
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
    /// Whether the block has host memory for pages that are elsewhere or nowhere.
    pub has_unused: bool,
}

/// The outcome of unmapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// Nobody has the pages mapped, and the GPUs' work on the block has ended.
    All,
    /// The block's lock was released meanwhile, so that nothing that was known of the block holds any more.
    Again,
    /// The pages cannot be unmapped now.
    Failed,
}

/// Giving up copies, to make room on the device.
pub trait Copies {
    /// Gives up all copies of the block that has had some longest, of the chosen block's tenant
    /// (`of_own`) or of any. Returns how many; `None` if no block has copies. No block is locked.
    fn give_up_oldest(&mut self, of_own: bool) -> Option<u32>;
}

/// What a worker works on: the tier, and one va_block at a time, which [`Machine::choose`] chooses.
pub trait Machine: Copies {
    // The worker.

    /// Whether workers have something to do.
    fn goes_on(&mut self) -> bool;

    /// Chooses the block to be spilled next, and keeps it; false if there is none.
    fn choose(&mut self) -> bool;

    /// Releases the chosen block.
    fn release(&mut self);

    /// Tries to take the lock of power management in read mode, without waiting. A suspend comes
    /// first, and may itself wait for a thread that waits for this one.
    fn enter(&mut self) -> bool;

    /// Releases what `enter` took.
    fn leave(&mut self);

    /// Whether a suspend waits; asked by a call, which holds the lock of power management.
    fn suspends(&mut self) -> bool;

    /// Notes how a try ended. Returns whether the worker stops for now.
    fn ended(&mut self, tried: Tried) -> bool;

    /// Has the next search look at all blocks again.
    fn hope_for_all(&mut self);

    /// The time, in microseconds.
    fn now_us(&mut self) -> u64;

    /// Leaves the CPU to others for a moment, and, after a write that `began` at this time, the device.
    fn rest(&mut self, began: Option<u64>);

    /// How many workers there are.
    fn workers(&mut self) -> u32;

    // The chosen block.

    /// Makes upstream's context for unmapping; false without memory.
    fn open(&mut self) -> bool;

    /// Frees what `open` made.
    fn close(&mut self);

    /// Takes the block's lock.
    fn lock(&mut self);

    /// Releases the block's lock.
    fn unlock(&mut self);

    /// Tries to take the lock of the block's VA space in read mode, without waiting.
    fn try_space(&mut self) -> bool;

    /// Releases the lock of the VA space.
    fn leave_space(&mut self);

    // The chosen block, with its lock held.

    /// Whether the block is alive, and has or had host memory.
    fn is_known(&mut self) -> bool;

    /// Whether the block's pages may be unmapped: where a fault is fatal, mappings must stay. The
    /// VA space's lock is held, too.
    fn may_spill(&mut self) -> bool;

    /// The facts that upstream knows of the block.
    fn facts(&mut self) -> Facts;

    /// Those of `pages` on which only UVM and page tables of processes hold references. This is certain only of pages
    /// that are `unmapped`, which may then leave the host. A split block shares a host page with other blocks, whose
    /// part may be mapped at any time: while any of that is mapped, no `unmapped` page there is returned.
    fn not_held(&mut self, pages: &PageMask, unmapped: bool) -> PageMask;

    /// Gives the block a state on this device, unless it has one; false if that fails.
    fn use_device(&mut self) -> bool;

    /// Works on the block's state, with the device's table and the tenant's key; `None` if the
    /// block is dead, or has no state on this device.
    fn with<T>(&mut self, f: impl FnOnce(&mut BlockPages, &mut Table, u64) -> T) -> Option<T>;

    /// Works on the device's table.
    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T;

    /// Unmaps pages from all processors, and waits for the GPUs. The VA space's lock is held, too.
    fn unmap(&mut self, pages: &PageMask) -> Unmapped;

    /// Waits for the GPUs' work on the block, such as a copy out of host memory. False if that
    /// fails.
    fn wait_gpus(&mut self) -> bool;

    /// Those of `pages` that were discarded and are still there.
    fn discarded(&mut self, pages: &PageMask) -> PageMask;

    /// Notes that discarded `pages` were dropped.
    fn dropped(&mut self, pages: &PageMask);

    /// Takes `pages`, which nobody has mapped, out of host memory, and frees memory that is not needed.
    /// Returns whether some was freed. The GPUs were waited for.
    fn left_host(&mut self, pages: &PageMask) -> bool;

    /// Holds the host memory of the spilled pages, so that it can be read without a lock; false if
    /// some page has none.
    fn hold(&mut self, spill: &Spill) -> bool;

    /// Takes the block out of the queue: it has nothing to spill, or has been spilled.
    fn set_aside(&mut self);

    /// Notes that one of the tenant's blocks was spilled.
    fn hope(&mut self);

    // The device.

    /// Encrypts the held pages of a piece, and notes their checksums; false if that fails.
    fn seal(&mut self, piece: &Piece) -> bool;

    /// Waits for a turn with the device ([`super::arbiter`]). Faults do not wait for this thread meanwhile: a fault
    /// takes the pages back. Returns false if the writer gives its turn up ([`Writer::gives_up`]).
    fn take_turn(&mut self) -> bool;

    /// Ends the turn that [`Machine::take_turn`] gave.
    fn end_turn(&mut self);

    /// Writes a sealed piece. Returns whether the device took it.
    fn write(&mut self, piece: &Piece) -> bool;

    /// Releases the host memory that was held for the write.
    fn written(&mut self);

    /// Reads an extent that is to be moved on the device. Returns whether its checksums are right; `None` if the
    /// device did not give it.
    fn copy_in(&mut self, to_move: &Move) -> Option<bool>;

    /// Writes the extent to its new place. Returns whether the device took it.
    fn copy_out(&mut self, to_move: &Move) -> bool;

    /// Whether the device is plugged in, and no read or write has failed.
    fn is_sound(&mut self) -> bool;

    /// Wakes the threads that wait for host memory; `ended`: also those that wait for the end of a write.
    fn tell(&mut self, ended: bool);

    /// Adds `n` to a counter.
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

/// Notes the outcome of a spill in the tenant's queue of blocks.
fn note<M: Machine>(m: &mut M, outcome: Outcome) {
    if !matches!(outcome, Outcome::Moved | Outcome::Nothing) {
        return;
    }
    m.lock();
    if m.is_known() {
        if outcome == Outcome::Moved {
            m.hope();
        } else if m.facts().only_host.is_empty() {
            // The block may have got pages in the meantime.
            m.set_aside();
        }
    }
    m.unlock();
}

/// Writes those of `wanted` (`None`: all pages) that the chosen block has in host memory.
/// `in_space`: the caller holds the VA space's lock in read mode. It holds no other lock.
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

/// Writes the chosen block for a call, and makes room for it on the device if there is none.
pub fn move_out<M: Machine>(m: &mut M, wanted: &PageMask) {
    if spill(m, Some(wanted), true) == Outcome::NoRoom {
        relocate(m, Writer::Call);
    }
}

/// Gives up copies, as many as a slot holds if there are so many. Returns whether there were any.
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

/// As [`spill`], with the room that the device has.
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

/// Writes a spill that has begun, and ends it.
fn written<M: Machine>(m: &mut M, spill: Spill) -> Outcome {
    let written = write(m, &spill);
    m.lock();
    let outcome = end(m, spill, &written.unwrap_or(PageMask::EMPTY));
    m.unlock();
    m.tell(true);
    // Judges the device before pages are taken out that were used in the meantime, as those are not its fault. Nor
    // are pages that it was not given.
    match written {
        Some(written) if written.is_empty() => Outcome::Failed,
        _ => outcome,
    }
}

/// Writes the held pages of a spill, and releases them. Returns the pages that the device took; `None` if its turn
/// never came.
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

/// The pages of `wanted` that can be spilled.
fn movable<M: Machine>(m: &mut M, facts: &Facts, wanted: Option<&PageMask>) -> PageMask {
    let pages = facts.only_host & *wanted.unwrap_or(&PageMask::FULL);
    m.not_held(&pages, false)
}

/// Begins a spill, with the locks of the block and of its VA space. Fails with the outcome if there is nothing to
/// write.
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
            // All pages that are left are held.
            (false, true) => Outcome::Later,
            // While the lock was released, all pages were used or moved.
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
    // One of the pages may have got a reference since. The next spill leaves it out.
    let ready = unmapped == Unmapped::All && m.not_held(&spill.pages, true) == spill.pages;
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
        // What blocks it is the tenant's own, so that only its own copies have to go.
        Some(Err(Error::Quota | Error::Fragmented)) => Err(Outcome::NoQuota),
        Some(Err(Error::OutOfMemory | Error::Busy)) | None => Err(Outcome::Later),
    }
}

/// Ends the spill, of which `written` is on the device (S-pins). Returns the pages that are only there.
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

/// Frees host memory of pages that are elsewhere or nowhere, which upstream keeps for their return.
fn free_unused<M: Machine>(m: &mut M, facts: &Facts) -> Outcome {
    if facts.has_unused && m.wait_gpus() && m.left_host(&PageMask::EMPTY) {
        Outcome::Moved
    } else {
        Outcome::Nothing
    }
}

/// Drops pages that need not be written: those that were discarded and are still there, and those that flash has a
/// copy of. Takes them out of `pages`, and sets `dropped` if some left the host. Discarded pages that somebody holds
/// are taken out as well, and stay: a copy on the device would be trusted once the page itself has been dropped.
fn drop_needless<M: Machine>(m: &mut M, pages: &mut PageMask, dropped: &mut bool) -> Unmapped {
    let stale = m.discarded(pages);
    if !stale.is_empty() {
        match m.unmap(&stale) {
            Unmapped::All => {}
            other => return other,
        }
        *pages -= stale;
        let stale = m.not_held(&stale, true);
        m.dropped(&stale);
        m.left_host(&stale);
        *dropped |= !stale.is_empty();
        m.count(Count::Dropped, bytes(&stale));
    }
    let clean = m.with(|block, _, _| block.copies() & *pages);
    let clean = clean.unwrap_or(PageMask::EMPTY);
    // Copies are not relied on once the device has failed anything, or is gone.
    if clean.is_empty() || !m.is_sound() {
        return Unmapped::All;
    }
    match m.unmap(&clean) {
        Unmapped::All => {}
        other => return other,
    }
    let clean = m.not_held(&clean, true);
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

/// Ends a spill of which `written` is on the device, with the block's lock.
fn end<M: Machine>(m: &mut M, spill: Spill, written: &PageMask) -> Outcome {
    if m.with(|_, _, _| ()).is_none() {
        m.table(|table| spill.abandon(table));
        return Outcome::Nothing;
    }
    let facts = m.facts();
    // A GPU may be copying out of host memory, which is not freed before that ends.
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
