// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Reading what was asked for of a va_block, for GPU faults that were put off ([`super::wants`]).
//!
//! A fetcher of the tenant's does it, one block at a time: then the others' fetchers, which stand in the same
//! queue, have their turn. Whoever wants the pages next finds out by itself what has failed, and says so to
//! the program.
//!
//! # Invariants
//!
//! - **A-lock**: the block's lock is held from `lock` to `unlock`, but for the I/O of `fetch`; the VA space's
//!   is taken with it, against the order of locks, and so only tried.
//! - **A-again**: whatever comes of it, who asks from then on has somebody told.
//! - **A-turn**: a turn with the device is waited for without any lock, and once; then a set of buffers
//!   ([`super::pool`]), so that neither is waited for with the VA space's lock. Who reads for faults waits for a set
//!   alone. A call reads itself what is asked for after that.

use super::fetch::Fetched;

/// A va_block, on which a reference is held.
pub trait Machine {
    /// Keeps the system from being suspended; false if it is about to be.
    fn enter(&mut self) -> bool;

    /// Does so no more.
    fn leave(&mut self);

    /// Takes the block's lock.
    fn lock(&mut self);

    /// Lets the block's lock go.
    fn unlock(&mut self);

    // With it.

    /// Whether the block is alive, and something is known of it.
    fn is_known(&mut self) -> bool;

    /// Takes the lock of its VA space, if that can be had at once.
    fn try_space(&mut self) -> bool;

    /// Lets the VA space's lock go, while the block's is held: nothing else keeps the VA space.
    fn leave_space(&mut self);

    /// Whether what is asked for needs host memory that is not there: read, it would be in host memory.
    fn lacks_room(&mut self) -> bool;

    /// Has those look who make room.
    fn kick(&mut self);

    /// Gets what upstream works with; false without memory.
    fn open(&mut self) -> bool;

    /// Gives back what `open` got.
    fn close(&mut self);

    /// Fetches what is asked for by now; `None` if upstream failed.
    fn fetch(&mut self) -> Option<Fetched>;

    /// It was tried to fetch what was asked for, which may have failed. What is another reader's to fetch stays asked for.
    fn tried(&mut self, failed: bool);

    // Without any lock.

    /// Waits for a turn with the device, unless the last `fetch` was for faults, and then for what a read is made with,
    /// for the next `fetch`.
    fn take_turn(&mut self);
}

/// Reads what is asked for. If a lock cannot be had now, the fault will be back.
pub fn serve<M: Machine>(m: &mut M) {
    if once(m, true) {
        // A-turn.
        m.take_turn();
        once(m, false);
    }
}

/// Returns whether a turn with the device is to be taken first, if it `may_wait` for one.
fn once<M: Machine>(m: &mut M, may_wait: bool) -> bool {
    let awake = m.enter();
    m.lock();
    let known = m.is_known();
    let in_space = known && awake && m.try_space();
    let mut fetched = Some(Fetched::All);
    // Without room the faults wait for that first.
    if in_space && m.lacks_room() {
        m.kick();
    } else if in_space {
        fetched = all(m);
    }
    let waits = may_wait && fetched == Some(Fetched::Turn);
    // A-again. Without the VA space's lock the block's was never let go, and with it no block dies.
    if known && !waits {
        m.tried(!matches!(fetched, Some(Fetched::All | Fetched::Turn)));
    }
    // S-end of `spill.rs`: who ends the VA space frees its lock after it had the block's.
    if in_space {
        m.leave_space();
    }
    m.unlock();
    if awake {
        m.leave();
    }
    waits
}

/// Until nothing of what is asked for is on flash, or it cannot be brought now; `None` without memory.
fn all<M: Machine>(m: &mut M) -> Option<Fetched> {
    if !m.open() {
        return None;
    }
    let fetched = loop {
        match m.fetch() {
            Some(Fetched::Again) => {}
            fetched => break fetched,
        }
    };
    m.close();
    fetched
}
