// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Reading what was asked for of a va_block, for GPU faults that were put off ([`super::wants`]).
//!
//! A tenant's fetcher reads one block at a time; then other tenants' fetchers, which stand in the same work queue,
//! have their turn. The next access to the pages finds out what has failed, and reports it to the program.
//!
//! # Invariants
//!
//! - **A-lock**: the block's lock is held from `lock` to `unlock`, except during the I/O of `fetch`. The VA space's
//!   lock is taken under it, against the order of locks, and so only tried.
//! - **A-again**: whatever the outcome, a request that comes later wakes a fetcher again.
//! - **A-turn**: the fetcher waits for a turn with the device without any lock, and once, and then for a set of
//!   buffers ([`super::pool`]). So it waits for neither with the VA space's lock. A fetcher for faults waits for a set
//!   alone. What a call asks for after that, the call reads itself.

use super::fetch::Fetched;

/// A va_block, on which a reference is held.
pub trait Machine {
    /// Keeps the system from being suspended; false if it is about to be.
    fn enter(&mut self) -> bool;

    /// Lets the system be suspended again.
    fn leave(&mut self);

    /// Takes the block's lock.
    fn lock(&mut self);

    /// Releases the block's lock.
    fn unlock(&mut self);

    // With the block's lock.

    /// Whether the block is alive and has a state.
    fn is_known(&mut self) -> bool;

    /// Tries to take the lock of its VA space, without waiting.
    fn try_space(&mut self) -> bool;

    /// Releases the VA space's lock, while the block's is held: nothing else keeps the VA space.
    fn leave_space(&mut self);

    /// Whether there is too little host memory to read what is asked for, which comes to host memory.
    fn lacks_room(&mut self) -> bool;

    /// Wakes the workers that make room.
    fn kick(&mut self);

    /// Makes upstream's context; false without memory.
    fn open(&mut self) -> bool;

    /// Frees what `open` made.
    fn close(&mut self);

    /// Fetches the pages that are asked for by now; `None` if upstream failed.
    fn fetch(&mut self) -> Option<Fetched>;

    /// Notes that this reader has tried to fetch what was asked for, and whether that failed. Pages that another
    /// reader is to fetch stay asked for.
    fn tried(&mut self, failed: bool);

    // Without any lock.

    /// Waits for a turn with the device, unless the last `fetch` was for faults, and then for a set of buffers. The
    /// next `fetch` uses both.
    fn take_turn(&mut self);
}

/// Reads what is asked for. If a lock cannot be taken now, the fault will come back.
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
    // Without room the faults wait for room first.
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
    // S-end of `spill.rs`: a thread that ends the VA space takes the block's lock before it frees the VA space's.
    if in_space {
        m.leave_space();
    }
    m.unlock();
    if awake {
        m.leave();
    }
    waits
}

/// Fetches until none of the pages that are asked for is on flash, or they cannot be brought now; `None` without
/// memory.
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
