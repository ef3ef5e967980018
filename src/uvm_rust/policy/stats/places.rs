// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How much of a VA space's managed memory is in host memory, and on the SSD: a walk over its va_blocks.
//!
//! Upstream counts neither. Pages come to the host and leave it in many places of upstream's, so a count that is kept would
//! need a hook in each. Whoever asks pays for a walk instead.
//!
//! # Invariants
//!
//! - **P-lock**: each `enter` is followed by one `leave`, and there are no more than [`AT_ONCE`] places in between. So
//!   who wants the VA space's lock in write mode waits for that many, however much memory there is.
//! - **P-wait**: the lock is only tried, with [`TRIES`] naps at most in a walk, and then there is no count. Somebody may
//!   have it for as long as a device does not answer. Who looks at all processes is not to wait for that, with no signal.
//! - **P-end**: a walk ends after [`MOST`] places, with no count. A process may reserve terabytes that nobody has touched.
//! - **P-once**: each address is looked at once at most, also if memory is mapped and unmapped meanwhile.
//!
//! The count is of no single moment: a page that moves during the walk may be in it or not, as in `/proc/PID/smaps`.

use crate::policy::discard::{Span, BLOCK_BYTES, PAGE_BYTES};

/// How many places are looked at while the VA space's lock is held.
pub const AT_ONCE: u32 = 64;

/// How many places a walk looks at: 2 TiB, if each is a va_block.
pub const MOST: u32 = 1 << 20;

/// How often somebody is waited for in a walk who has the lock.
pub const TRIES: u32 = 64;

/// A range of a VA space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first and last address.
    pub span: Span,
    /// Whether its memory is managed, and so in va_blocks.
    pub managed: bool,
}

/// Pages of managed memory, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Pages that are resident in host memory, whether or not a GPU has them too.
    pub host: u64,
    /// Pages that are on the SSD and nowhere else.
    pub ssd: u64,
}

impl Places {
    /// These pages in bytes.
    pub fn bytes(self) -> Self {
        Self {
            host: self.host.saturating_mul(PAGE_BYTES),
            ssd: self.ssd.saturating_mul(PAGE_BYTES),
        }
    }
}

/// What the walk works on: a VA space.
pub trait Machine {
    /// Takes the VA space's lock, in read mode, if it can be had at once.
    fn enter(&mut self) -> bool;

    /// Lets the lock go.
    fn leave(&mut self);

    /// Chooses the first range that has an address from `from` on; the VA space is entered.
    fn range(&mut self, from: u64) -> Option<Range>;

    /// The pages of the va_block that holds `at`, an address of the chosen range, which is managed. There are none where
    /// nobody has touched the block.
    fn pages(&mut self, at: u64) -> Places;

    /// Sleeps for a moment; the VA space is not entered.
    fn nap(&mut self);

    /// Lets other threads run; the VA space is not entered. Returns whether this thread is to die.
    fn rest(&mut self) -> bool;
}

/// Counts the pages of a VA space; `None` if it is too large to be walked (P-end), its lock cannot be had (P-wait), or the
/// thread is to die.
pub fn count(machine: &mut impl Machine) -> Option<Places> {
    let mut found = Places::default();
    let mut from = 0;
    let mut tries = TRIES;
    for _ in 0..MOST / AT_ONCE {
        while !machine.enter() {
            tries = tries.checked_sub(1)?;
            machine.nap();
            if machine.rest() {
                return None;
            }
        }
        let next = some(machine, from, &mut found);
        machine.leave();
        match next {
            None => return Some(found),
            Some(_) if machine.rest() => return None,
            Some(next) => from = next,
        }
    }
    None
}

/// Adds what [`AT_ONCE`] places from the address `at` on have. Returns the address behind them; `None` if there is no range
/// behind.
fn some(machine: &mut impl Machine, mut at: u64, found: &mut Places) -> Option<u64> {
    let mut left = AT_ONCE;
    while left > 0 {
        let Range { span, managed } = machine.range(at)?;
        at = at.max(span.first);
        while managed && at <= span.last {
            if left == 0 {
                return Some(at);
            }
            left -= 1;
            let pages = machine.pages(at);
            found.host += pages.host;
            found.ssd += pages.ssd;
            at = behind_block(at)?;
        }
        // A range that is not managed takes time as well.
        left -= u32::from(!managed);
        // The next range may begin in the same 2 MiB, and has a va_block of its own there.
        at = span.last.checked_add(1)?;
    }
    Some(at)
}

/// The first address of the next va_block; `None` if there are no addresses behind.
fn behind_block(at: u64) -> Option<u64> {
    (at | (BLOCK_BYTES - 1)).checked_add(1)
}

#[cfg(test)]
mod tests;
