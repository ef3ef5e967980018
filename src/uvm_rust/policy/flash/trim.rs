// SPDX-License-Identifier: GPL-2.0 OR MIT

//! When the device is told what it need not keep (table/trim.rs has what that is).
//!
//! Somebody looks in the background, a few runs of slots at a time, while spills have nothing to do; and once more for
//! all of it when the device is let go. Nothing relies on the device having forgotten anything: one that cannot is
//! not asked again.
//!
//! # Invariants
//!
//! - **T-out**: from before the device is told to forget slots until it has said that it did, they are nobody else's.

use super::table::{Next, Trim};
use super::Table;

/// Slots that the device is told to forget at a time: 64 MiB. Others wait for that.
pub const MOST: u32 = 32;

/// Runs of slots in a turn.
const RUNS: u32 = 4;

/// Milliseconds from a write, or from one look, to the next look: what is written is used for longer, mostly.
pub const LOOK_MS: u64 = 1000;

/// Milliseconds until the next look while there is more.
pub const MORE_MS: u64 = 100;

/// How long letting the device go trims it, in microseconds; who detaches waits for that.
pub const LAST_US: u64 = 10_000_000;

/// The device that is trimmed, with its table.
pub trait Machine {
    /// Whether the device is there and to be trimmed, and has not refused.
    fn is_wanted(&mut self) -> bool;

    /// Whether spills have nothing to do, and nobody suspends the system or detaches the device.
    fn is_idle(&mut self) -> bool;

    /// Whether who lets the device go is being killed, or somebody suspends the system.
    fn is_hurried(&mut self) -> bool;

    /// How many workers spill.
    fn workers(&mut self) -> u32;

    /// The time, in microseconds.
    fn now_us(&mut self) -> u64;

    /// Works on the device's table.
    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T;

    /// Has the device forget what is in these slots, and waits for it; false if it does not.
    fn discard(&mut self, trim: &Trim) -> bool;

    /// Adds to the bytes that were trimmed.
    fn count(&mut self, bytes: u64);

    /// Tells those who wait for room that there is some again.
    fn tell(&mut self);
}

/// One turn in the background. Returns in how many milliseconds somebody is to look again; `None`: after the next write.
pub fn turn<M: Machine>(m: &mut M) -> Option<u64> {
    let reserve = m.workers().saturating_add(1);
    let mut ms = LOOK_MS;
    for _ in 0..RUNS {
        if !m.is_wanted() {
            return None;
        }
        ms = LOOK_MS;
        if !m.is_idle() || !once(m, reserve) {
            break;
        }
        ms = MORE_MS;
    }
    m.table(|table| table.has_written()).then_some(ms)
}

/// The device is let go, and nothing is on it: all that was written is trimmed, as far as that goes in [`LAST_US`] and
/// nobody is in a hurry.
pub fn last<M: Machine>(m: &mut M) {
    let began = m.now_us();
    while m.is_wanted()
        && m.now_us().saturating_sub(began) < LAST_US
        && !m.is_hurried()
        && once(m, 0)
    {}
}

/// Trims one run. Returns whether there may be more.
fn once<M: Machine>(m: &mut M, reserve: u32) -> bool {
    let trim = match m.table(|table| table.trim_begin(MOST, reserve)) {
        Next::Run(trim) => trim,
        Next::More => return true,
        Next::Nothing => return false,
    };
    let trimmed = m.discard(&trim);
    if trimmed {
        m.count(trim.bytes());
    }
    m.table(|table| table.trim_end(trim, trimmed));
    m.tell();
    true
}
