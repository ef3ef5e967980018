// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the tests take out of the worker, to see that they notice.

use super::Worker;

/// A part of the worker without which it does something wrong, or never what it should.
#[cfg_attr(not(test), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// W-learn: the rings are emptied before a block is chosen.
    LearnsFirst,
    /// W-faults: the fault service is waited for.
    FaultsFirst,
    /// W-faults: it is looked at again before each further block.
    FaultsMeanwhile,
    /// W-faults: a wait in vain ends the turn.
    StallEnds,
    /// W-faults: only what has to be copied waits.
    WaitsToMove,
    /// W-learn: a kernel that was announced during the wait is learnt of before a block is begun.
    LearnsAgain,
    /// W-lock: the locks are let go before the wait.
    WaitsUnlocked,
    /// W-lock: the locks are let go after some blocks.
    HoldEnds,
    /// W-copies: a number is settled before it is used again.
    Window,
    /// W-copies: all are settled before the locks are let go.
    Settles,
    /// W-copies: what a copy failed at is not counted as moved.
    SettleTells,
    /// W-room: what is expected is no room.
    Room,
    /// W-room: a block that has its chunk needs none.
    HasChunk,
    /// W-room: what found no room is held back.
    HoldsBack,
    /// W-ssd: what is on the SSD is asked for.
    AsksSsd,
    /// W-ssd: of what is on the SSD, pages that thrash or are discarded stay there.
    SsdFits,
    /// W-ssd: there is room for what is asked for.
    SsdRoom,
    /// W-ssd: what did not come is not asked for again.
    SsdOnce,
    /// W-ssd: so many blocks are on their way at most.
    SsdWindow,
    /// W-ssd: the worker hears of reads that others make.
    SsdTold,
    /// W-ssd: what was read goes to the GPU.
    SsdComes,
    /// W-ssd: what is not to be brought any more keeps its place until it has been read.
    SsdOver,
    /// W-ssd: so does what the worker has to leave.
    SsdKept,
    /// W-own: policy is asked about a block that is brought.
    PolicyIn,
    /// W-own: and about one that is pushed out.
    PolicyOut,
    /// W-own: there are chunks enough.
    Watermark,
    /// W-own: what cannot be pushed out is passed over.
    PassesOver,
    /// W-own: once its lock is held, a block that is needed by then stays.
    StaysIfNeeded,
    /// W-own: the chunks hear at once of a kernel that begins.
    Begins,
    /// W-own: nothing is pushed out where kernels do not come as foreseen.
    Foresees,
    /// W-fit: thrashing pages stay.
    Thrashing,
    /// W-fit: discarded pages stay.
    Discarded,
    /// W-fit: discarded pages are dropped before a block is pushed out.
    DropsFirst,
    /// W-fit: after the lock was let go, pages are looked at again.
    LooksAgain,
    /// W-mark: what was brought is marked.
    Marks,
    /// W-mark: what was there is marked.
    MarksResident,
    /// W-mark: what was brought is not the running kernel's.
    MarksBrought,
    /// W-mark: a number of queues that are gone is not used.
    Generation,
    /// W-mark: who lost its number gets another.
    ComesAgain,
    /// W-mark: the marks go with the VA space.
    Retires,
    /// W-bound: a turn ends.
    TurnEnds,
    /// W-bound: so do the victims in vain of a turn.
    VictimsEnd,
    /// W-stop: the end is looked for before each block.
    Stops,
}

#[cfg(test)]
impl Part {
    pub(super) const ALL: &'static [Self] = &[
        Self::LearnsFirst,
        Self::FaultsFirst,
        Self::FaultsMeanwhile,
        Self::StallEnds,
        Self::WaitsToMove,
        Self::LearnsAgain,
        Self::WaitsUnlocked,
        Self::HoldEnds,
        Self::Window,
        Self::Settles,
        Self::SettleTells,
        Self::Room,
        Self::HasChunk,
        Self::HoldsBack,
        Self::AsksSsd,
        Self::SsdFits,
        Self::SsdRoom,
        Self::SsdOnce,
        Self::SsdWindow,
        Self::SsdTold,
        Self::SsdComes,
        Self::SsdOver,
        Self::SsdKept,
        Self::PolicyIn,
        Self::PolicyOut,
        Self::Watermark,
        Self::PassesOver,
        Self::StaysIfNeeded,
        Self::Begins,
        Self::Foresees,
        Self::Thrashing,
        Self::Discarded,
        Self::DropsFirst,
        Self::LooksAgain,
        Self::Marks,
        Self::MarksResident,
        Self::MarksBrought,
        Self::Generation,
        Self::ComesAgain,
        Self::Retires,
        Self::TurnEnds,
        Self::VictimsEnd,
        Self::Stops,
    ];
}

#[cfg(test)]
impl Worker {
    /// Whether `part` is taken out.
    pub(super) fn lacks(&self, part: Part) -> bool {
        self.without == Some(part)
    }

    pub(super) fn take_out(&mut self, part: Option<Part>) {
        self.without = part;
    }
}

#[cfg(not(test))]
impl Worker {
    #[inline(always)]
    pub(super) const fn lacks(&self, _: Part) -> bool {
        false
    }
}
