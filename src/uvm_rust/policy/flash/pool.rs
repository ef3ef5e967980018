// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What reads of a device are made with: sets of buffers, which are made when the device is attached. A read so needs
//! no memory but that which its pages come to, where a GPU's fault cannot do without the read.
//!
//! Who reads takes a set ([`take`]) when its turn with the device ([`super::arbiter`]) has come, and gives it back
//! ([`give_back`]). Where none is free, it waits in line.
//!
//! Locking: the pool has a lock of its own, inside all others, for each use of it.
//!
//! # Invariants
//!
//! - **L-first**: as long as a fault waits that may have a set, nobody else gets one.
//! - **L-order**: of faults, and of others, who came first gets a set first.
//! - **L-share**: an eighth of the sets is never lent to faults, and others never have more than a quarter. So
//!   neither wait for what only the other has.
//! - **L-told**: whoever waits is told when the set that it may have comes back, or when those in front of it have
//!   theirs and one is left.
//! - **L-last**: who has a set waits for nobody who waits for one. It has its turn with the device by then; who waits
//!   has no va_block locked (F-set of [`super::fetch`]).

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

/// Who waits for a set, and who has one.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// So many have one at most.
    most: usize,
    held: usize,
    /// So many have come to wait, and so many of them have got one.
    came: u64,
    served: u64,
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
            served: 0,
        }
    }

    fn is_waiting(&self) -> bool {
        self.served < self.came
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
        self.free.len() + self.faults.held + self.others.held
    }

    /// A set, or a place in line for one.
    ///
    /// # Errors
    ///
    /// None is to be had now.
    pub fn ask(&mut self, who: Who) -> Result<T, InLine> {
        let number = self.queue(who).came;
        if !self.queue(who).is_waiting() {
            if let Some(set) = self.lend(who) {
                return Ok(set);
            }
        }
        self.queue(who).came += 1;
        Err(InLine { who, number })
    }

    /// A set, if it can be had without waiting.
    pub fn try_take(&mut self, who: Who) -> Option<T> {
        if self.queue(who).is_waiting() {
            return None;
        }
        self.lend(who)
    }

    /// The set that was waited for, if it can be had now. Whoever gets it has left the line.
    pub fn claim(&mut self, place: &InLine) -> Option<T> {
        if self.queue(place.who).served != place.number && !lacks(Part::Order) {
            return None;
        }
        let set = self.lend(place.who)?;
        self.queue(place.who).served += 1;
        Some(set)
    }

    /// A set is free again.
    pub fn give_back(&mut self, who: Who, set: T) {
        let queue = self.queue(who);
        queue.held = queue.held.saturating_sub(1);
        // There is room for as many as there ever were, so nothing is allocated.
        let _ = self.free.push(set);
    }

    /// Whether somebody waits who may have a set.
    pub fn is_awaited(&self) -> bool {
        let may_have = |queue: &Queue| queue.is_waiting() && queue.held < queue.most;
        !self.free.is_empty() && (may_have(&self.faults) || may_have(&self.others))
    }

    /// How many are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// A set, if L-first and L-share allow it.
    fn lend(&mut self, who: Who) -> Option<T> {
        let faults_first = self.faults.is_waiting() && self.faults.held < self.faults.most;
        if who == Who::Others && faults_first && !lacks(Part::FaultsFirst) {
            return None;
        }
        if self.queue(who).held >= self.queue(who).most && !lacks(Part::Share) {
            return None;
        }
        let set = self.free.pop()?;
        self.queue(who).held += 1;
        Some(set)
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
            // Who was behind this one has looked too early, perhaps.
            if !lacks(Part::TellsNext) {
                tell_if_awaited(line);
            }
            return set;
        }
        if lacks(Part::LooksFirst) {
            progress = line.progress();
        }
        line.wait(progress);
    }
}

/// Gives a set back.
pub fn give_back<L: Line>(line: &mut L, who: Who, set: L::Set) {
    line.with(|pool| pool.give_back(who, set));
    if !lacks(Part::TellsOfBack) {
        tell_if_awaited(line);
    }
}

/// Tells those who wait, if one of them may have a set (L-told).
fn tell_if_awaited<L: Line>(line: &mut L) {
    if line.with(|pool| pool.is_awaited()) {
        line.tell();
    }
}

#[cfg(test)]
mod tests;
