// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the tests take out of the queue and its workers, to see that the explorer notices.

#[cfg(test)]
use core::cell::Cell;

/// A part without which requests are lost, done too early, done twice, or done at the wrong time.
///
/// That a request in hand is not begun again ([`super::Queue::next`]) is no such part: a work item never runs twice at a
/// time, so that no order of threads shows it.
#[cfg_attr(not(test), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Each GPU has a lane, as there are enough.
    LaneEach,
    /// Q-lane: a GPU's lane stays its own as long as something is in it.
    KeepsLane,
    /// Q-lane: what goes to a GPU without a lane is not overtaken by what goes there later.
    RestFirst,
    /// Q-order: what shares a va_block with a request of another lane waits for it.
    Overlaps,
    /// Q-order: so it does where both of them come.
    LanesOfAWay,
    /// Q-order: only earlier requests are waited for.
    EarlierOnly,
    /// Q-after: what is to come after all others waits for those of the other lanes.
    WaitsForAll,
    /// Q-done: a request of which a part is left is not done.
    AllParts,
    /// Q-done: nor is one that could not go on.
    ComesBack,
    /// Q-done: what was moved is not moved again.
    KeepsProgress,
    /// Who has done a request goes on with the next one of the lane.
    NextInLane,
    /// Who has done a request wakes the other lanes, which may wait for it.
    OtherLanes,
    /// Who finds the system about to suspend comes again.
    TriesLater,
    /// Q-once: a completion that somebody is about to give is in no list.
    ReapTakes,
    /// Q-most: nor is its slot another request's.
    SlotUntilGiven,
    /// What could not be given comes before all that were done later.
    InItsPlace,
    /// Q-end: nothing begins at the end.
    EndStops,
    /// Of the driver: nobody is woken at the end.
    WakeLooks,
    /// Of the driver: who submits wakes the workers.
    SubmitWakes,
    /// Of the driver: nothing is done while the system sleeps.
    EnterLooks,
}

#[cfg(test)]
impl Part {
    pub(super) const ALL: &'static [Self] = &[
        Self::LaneEach,
        Self::KeepsLane,
        Self::RestFirst,
        Self::Overlaps,
        Self::LanesOfAWay,
        Self::EarlierOnly,
        Self::WaitsForAll,
        Self::AllParts,
        Self::ComesBack,
        Self::KeepsProgress,
        Self::NextInLane,
        Self::OtherLanes,
        Self::TriesLater,
        Self::ReapTakes,
        Self::SlotUntilGiven,
        Self::InItsPlace,
        Self::EndStops,
        Self::WakeLooks,
        Self::SubmitWakes,
        Self::EnterLooks,
    ];
}

#[cfg(test)]
std::thread_local! {
    static WITHOUT: Cell<Option<Part>> = const { Cell::new(None) };
}

/// Whether `part` is taken out, for this thread.
#[cfg(test)]
pub(super) fn lacks(part: Part) -> bool {
    WITHOUT.get() == Some(part)
}

/// Takes a part out, for this thread.
#[cfg(test)]
pub(super) fn take_out(part: Option<Part>) {
    WITHOUT.set(part);
}

/// Nothing is taken out but in tests.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn lacks(_: Part) -> bool {
    false
}
