// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Sets of buffers for reads of a device. They are made when the device is attached, so a read that a GPU's fault cannot
//! do without needs no memory but the pages that it fills.
//!
//! A reader takes a set ([`take`]) when its turn with the device ([`super::arbiter`]) has come, and gives the set back
//! ([`give_back`]). If no set is free, the reader waits in line. A set that comes back is granted at once to the next
//! reader in line, which takes it when it runs. So a reader that does not get to run ties up one set, and not the line.
//! A reader that may be told to stop stands in no line: it looks again now and then, and takes a set that is free
//! ([`Pool::try_take`]).
//!
//! Locking: the pool has a lock of its own, inside all others, for each use of it.
//!
//! # Invariants
//!
//! - **L-first**: as long as a fault waits that may have a set, nobody else is granted one.
//! - **L-order**: of faults, and of others, who came first is granted a set first.
//! - **L-granted**: as long as a set is free and granted to nobody, no reader waits that may have it.
//! - **L-share**: an eighth of the sets is never lent to faults, and others never have more than a quarter. So
//!   neither wait for what only the other has.
//! - **L-told**: whoever waits is told when it is granted a set.
//! - **L-last**: a reader that has a set never waits for a reader that waits for one. The first has its turn with the
//!   device by then, and the second has no va_block locked (F-set of [`super::fetch`]).

use self::part::{lacks, Part};
use crate::mem::TryVec;

mod part;

/// Whom a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A fault, which cannot do without it.
    Fault,
    /// Anybody else, who can wait.
    Others,
}

/// The line of the readers of one kind, and the sets that they have.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// How many of them may have a set at a time, at most.
    most: usize,
    /// How many sets are lent or granted to them.
    held: usize,
    /// How many have come to wait, how many of those were granted a set, and how many of these have taken it.
    came: u64,
    granted: u64,
    taken: u64,
}

/// A place in line. The set that it is for is to be taken.
#[derive(Debug)]
#[must_use]
pub struct InLine {
    who: Who,
    number: u64,
}

/// Sets, those that are free and how many are lent.
pub struct Pool<T> {
    free: TryVec<T>,
    faults: Queue,
    others: Queue,
}

/// The fewest sets: one for faults and one for others.
pub const LEAST: usize = 2;

impl Queue {
    const fn new(most: usize) -> Self {
        Self {
            most,
            held: 0,
            came: 0,
            granted: 0,
            taken: 0,
        }
    }

    /// Whether another set is allowed (L-share).
    fn may_have(&self) -> bool {
        self.held < self.most || lacks(Part::Share)
    }

    /// Whether somebody waits who may have a set.
    fn wants(&self) -> bool {
        self.granted < self.came && self.may_have()
    }

    /// So many sets are granted and not taken.
    fn tied(&self) -> usize {
        self.granted.saturating_sub(self.taken) as usize
    }
}

impl<T> Pool<T> {
    /// Sets that are free, at least [`LEAST`].
    pub fn new(free: TryVec<T>) -> Self {
        let all = free.len();
        Self {
            faults: Queue::new(all - (all / 8).max(1).min(all)),
            others: Queue::new((all / 4).max(1)),
            free,
        }
    }

    /// How many there are, free or lent.
    pub fn count(&self) -> usize {
        let held = self.faults.held + self.others.held;
        self.free.len() + held - self.faults.tied() - self.others.tied()
    }

    /// A set, or a place in line for one.
    ///
    /// # Errors
    ///
    /// None is to be had now.
    pub fn ask(&mut self, who: Who) -> Result<T, InLine> {
        if let Some(set) = self.try_take(who) {
            return Ok(set);
        }
        let queue = self.queue(who);
        let number = queue.came;
        queue.came += 1;
        Err(InLine { who, number })
    }

    /// A set, if it can be had without waiting. None of those that wait could have it (L-granted).
    pub fn try_take(&mut self, who: Who) -> Option<T> {
        if !self.is_any_left() || !self.queue(who).may_have() {
            return None;
        }
        let set = self.free.pop()?;
        self.queue(who).held += 1;
        Some(set)
    }

    /// The set that was waited for, if it is granted by now. Whoever gets it has left the line.
    pub fn claim(&mut self, place: &InLine) -> Option<T> {
        if self.queue(place.who).granted <= place.number && !lacks(Part::Order) {
            return None;
        }
        let set = self.free.pop()?;
        self.queue(place.who).taken += 1;
        Some(set)
    }

    /// A set is free again. Returns whether it is granted to somebody, who is to be told.
    pub fn give_back(&mut self, who: Who, set: T) -> bool {
        let queue = self.queue(who);
        queue.held = queue.held.saturating_sub(1);
        // There is room for as many as there ever were, so nothing is allocated.
        let _ = self.free.push(set);
        self.grant()
    }

    /// Grants what is left, if somebody waits who may have it. One set is enough for L-granted, as one came back.
    fn grant(&mut self) -> bool {
        if !self.is_any_left() {
            return false;
        }
        let order = match lacks(Part::FaultsFirst) {
            false => [Who::Fault, Who::Others],
            true => [Who::Others, Who::Fault],
        };
        for who in order {
            let queue = self.queue(who);
            if queue.wants() {
                queue.granted += 1;
                queue.held += 1;
                return true;
            }
        }
        false
    }

    /// Whether a set is free that is granted to nobody.
    fn is_any_left(&self) -> bool {
        let tied = self.faults.tied() + self.others.tied();
        self.free.len() > tied || lacks(Part::Tied)
    }

    /// How many are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    fn queue(&mut self, who: Who) -> &mut Queue {
        match who {
            Who::Fault => &mut self.faults,
            Who::Others => &mut self.others,
        }
    }
}

/// The pool of a device, and how those wait who wait for it.
pub trait Line {
    /// What is lent to whoever reads.
    type Set;

    /// Works on the pool, with its lock.
    fn with<T>(&mut self, f: impl FnOnce(&mut Pool<Self::Set>) -> T) -> T;

    /// Changes whenever somebody is told.
    fn progress(&mut self) -> u32;

    /// Waits until somebody is told, if nobody was since `progress` was that. No va_block is locked.
    fn wait(&mut self, progress: u32);

    /// Does the same, but for a moment at most: what comes back is told only to who stands in line.
    fn nap(&mut self, progress: u32);

    /// Tells all who wait.
    fn tell(&mut self);
}

/// Takes a set, for which it may wait.
pub fn take<L: Line>(line: &mut L, who: Who) -> L::Set {
    let place = match line.with(|pool| pool.ask(who)) {
        Ok(set) => return set,
        Err(place) => place,
    };
    loop {
        // Before the look: what comes back after it is told of.
        let mut progress = line.progress();
        if let Some(set) = line.with(|pool| pool.claim(&place)) {
            return set;
        }
        if lacks(Part::LooksFirst) {
            progress = line.progress();
        }
        line.wait(progress);
    }
}

/// Takes a set. Now and then asks `is_stopped` whether the set is still wanted, and returns `None` if it is not. This
/// caller stands in no line, so those who stand in line come first.
pub fn take_unless<L: Line>(
    line: &mut L,
    who: Who,
    mut is_stopped: impl FnMut(&mut L) -> bool,
) -> Option<L::Set> {
    while !is_stopped(line) {
        let progress = line.progress();
        if let Some(set) = line.with(|pool| pool.try_take(who)) {
            return Some(set);
        }
        line.nap(progress);
    }
    None
}

/// Gives a set back.
pub fn give_back<L: Line>(line: &mut L, who: Who, set: L::Set) {
    // L-told.
    if line.with(|pool| pool.give_back(who, set)) && !lacks(Part::TellsOfBack) {
        line.tell();
    }
}

#[cfg(test)]
mod tests;
