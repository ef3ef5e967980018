// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What tests take out of the pool, to see that the explorer notices.

#[cfg(test)]
use core::cell::Cell;

/// A part of what makes the line one in which all get on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Part {
    /// Others let faults go first.
    FaultsFirst,
    /// Sets are granted in the order in which readers came.
    Order,
    /// Neither faults nor others have all of the sets.
    Share,
    /// A set that is granted to one reader is not lent to another.
    Tied,
    /// A reader that gives a set back tells the readers in line.
    TellsOfBack,
    /// A reader in line reads the progress before it looks for a set.
    LooksFirst,
}

#[cfg(test)]
impl Part {
    pub(super) const ALL: [Self; 6] = [
        Self::FaultsFirst,
        Self::Order,
        Self::Share,
        Self::Tied,
        Self::TellsOfBack,
        Self::LooksFirst,
    ];
}

#[cfg(test)]
std::thread_local! {
    static WITHOUT: Cell<Option<Part>> = const { Cell::new(None) };
}

/// Whether `part` is taken out, for this thread.
#[cfg(test)]
pub(in super::super) fn lacks(part: Part) -> bool {
    WITHOUT.get() == Some(part)
}

/// Takes a part out, for this thread.
#[cfg(test)]
pub(in super::super) fn take_out(part: Option<Part>) {
    WITHOUT.set(part);
}

/// Nothing is taken out but in tests.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn lacks(_: Part) -> bool {
    false
}
