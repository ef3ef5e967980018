// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What tests take out of the tier, to see that the explorer notices.

use super::Table;

/// A part of what keeps pages from being lost while operations overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Part {
    /// A write pins its slots.
    WritePins,
    /// A read pins its slots.
    ReadPins,
    /// The end of a move looks whether the extent is the one that was copied.
    MoveLooks,
    /// The checksums move with their pages.
    MoveSums,
    /// The end of a spill leaves out what was used in the meantime.
    SpillLooks,
    /// A block has one spill at a time.
    OneSpill,
    /// The end of a read leaves out what was discarded in the meantime.
    ReadLooks,
    /// A thread that wants a page that is being read waits, even if the page was discarded.
    ReadWaits,
    /// A split ends the spill of the block.
    SplitEndsSpill,
    /// Copies are given up before their pages are written to.
    CopiesGivenUp,
    /// A split needs no extent of the limit.
    CutsAnyway,
    /// A slot is spared for relocation, and the room of the last one.
    Spare,
    /// With no slot free, relocation empties the slot that it began with.
    OneVictim,
    /// Relocation takes a slot that it failed to move after all other slots.
    Shuns,
    /// A tenant gets no more pages than its quota.
    Quota,
    /// A slot that is being trimmed is not handed out.
    TrimTakesOut,
    /// What could not be read keeps its place.
    LostKeepPlaces,
    /// Failed moves give the room back that they were to fill, where it is the last slot's.
    RoomBack,
}

impl Table {
    /// Whether a test has taken `part` out.
    #[cfg(test)]
    pub(in super::super) fn lacks(&self, part: Part) -> bool {
        self.without == Some(part)
    }

    /// Nothing is taken out but in tests.
    #[cfg(not(test))]
    pub(in super::super) const fn lacks(&self, _part: Part) -> bool {
        false
    }

    /// Takes a part out.
    #[cfg(test)]
    pub(in super::super) fn take_out(&mut self, part: Option<Part>) {
        self.without = part;
    }
}
