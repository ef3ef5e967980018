// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Trimming: when the device is told which slots it need not keep (table/trim.rs chooses them).
//!
//! A work item trims in the background, a few runs of slots at a time, while spills have nothing to do. When the
//! device is let go, all slots are trimmed. Nothing relies on the device having forgotten anything: a device that
//! cannot is not asked again.
//!
//! # Invariants
//!
//! - **T-out**: from before the device is told to forget slots until it has answered, nobody else uses them.

use super::table::{Next, Trim};
use super::Table;

/// How many slots the device is told to forget at a time: 64 MiB. Other operations wait for that.
pub const MOST: u32 = 32;

/// How many runs of slots a turn trims.
const RUNS: u32 = 4;

/// Milliseconds from a write, or from one look, to the next look: most pages that are written stay for longer.
pub const LOOK_MS: u64 = 1000;

/// Milliseconds until the next look while there is more to trim.
pub const MORE_MS: u64 = 100;

/// For how long the device is trimmed when it is let go, in microseconds; the detach waits for that.
pub const LAST_US: u64 = 10_000_000;

/// The device that is trimmed, with its table.
pub trait Machine {
    /// Whether the device is plugged in, is to be trimmed, and has not refused.
    fn is_wanted(&mut self) -> bool;

    /// Whether spills have nothing to do, and no suspend or detach waits.
    fn is_idle(&mut self) -> bool;

    /// Whether the thread that lets the device go is being killed, or a suspend waits.
    fn is_hurried(&mut self) -> bool;

    /// How many workers spill.
    fn workers(&mut self) -> u32;

    /// The time, in microseconds.
    fn now_us(&mut self) -> u64;

    /// Works on the device's table.
    fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T;

    /// Has the device forget these slots, and waits for that. False if the device refuses, or if a suspend or a
    /// detach comes before the operation's turn.
    fn discard(&mut self, trim: &Trim) -> bool;

    /// Counts `bytes` as trimmed.
    fn count(&mut self, bytes: u64);

    /// Wakes the threads that wait for room on the device.
    fn tell(&mut self);
}

/// Trims for one turn in the background. Returns after how many milliseconds to look again; `None`: after the next
/// write.
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

/// Trims all slots that were written of a device that is let go and holds no pages. Ends after [`LAST_US`], or when
/// the thread is in a hurry.
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

#[cfg(test)]
mod tests {
    use super::super::{BlockPages, Config};
    use super::*;
    use crate::policy::mask::PageMask;

    /// A device of which all was written, and is free again.
    struct Script {
        table: Table,
        is_hurried: bool,
        /// What a discard takes, in microseconds.
        takes_us: u64,
        now_us: u64,
        discards: u32,
        /// Discards of which the slots are back, and those were told who wait for room.
        told: u32,
    }

    impl Script {
        fn new(slots: u32) -> Self {
            let config = Config {
                slots,
                checksums: false,
                quota: u64::MAX,
            };
            let mut table = Table::new(config).unwrap();
            let tenant = table.tenant(1).unwrap();
            let mut blocks: std::vec::Vec<_> = (1..slots).map(|_| BlockPages::new(512)).collect();
            for block in &mut blocks {
                let spill = block.begin_spill(&mut table, tenant, &PageMask::FULL);
                let _ = block.end_spill(&mut table, spill.unwrap(), &PageMask::FULL);
            }
            blocks
                .iter_mut()
                .for_each(|block| block.release(&mut table));
            Self {
                table,
                is_hurried: false,
                takes_us: 0,
                now_us: 0,
                discards: 0,
                told: 0,
            }
        }
    }

    impl Machine for Script {
        fn is_wanted(&mut self) -> bool {
            true
        }

        fn is_idle(&mut self) -> bool {
            true
        }

        fn is_hurried(&mut self) -> bool {
            self.is_hurried
        }

        fn workers(&mut self) -> u32 {
            1
        }

        fn now_us(&mut self) -> u64 {
            self.now_us
        }

        fn table<T>(&mut self, f: impl FnOnce(&mut Table) -> T) -> T {
            f(&mut self.table)
        }

        fn discard(&mut self, _trim: &Trim) -> bool {
            self.now_us += self.takes_us;
            self.discards += 1;
            true
        }

        fn count(&mut self, _bytes: u64) {}

        fn tell(&mut self) {
            self.table.check();
            self.told = self.discards;
        }
    }

    #[test]
    fn who_lets_a_device_go_trims_all_of_it() {
        let mut m = Script::new(200);
        last(&mut m);
        assert!(!m.table.has_written() && m.discards > 1);
    }

    #[test]
    fn who_is_in_a_hurry_trims_nothing_and_who_is_slow_not_all() {
        let mut m = Script::new(200);
        m.is_hurried = true;
        last(&mut m);
        assert_eq!(m.discards, 0);
        (m.is_hurried, m.takes_us) = (false, LAST_US);
        last(&mut m);
        assert!(m.discards == 1 && m.table.has_written());
    }

    #[test]
    fn those_are_told_that_slots_are_back_who_wait_for_room() {
        let mut m = Script::new(200);
        assert_eq!(turn(&mut m), Some(MORE_MS));
        assert_eq!((m.discards, m.told), (RUNS, RUNS));
    }
}
