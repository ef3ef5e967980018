// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The causes of operations that are for no fault, and the class in which each waits ([`super::arbiter`]).
//!
//! A call that writes waits twice. Before it locks a part of up to 16 MiB, it stands in line with the planned writes,
//! and passes without beginning anything. The writes of that part then wait under the VA space's lock, behind which
//! its writers and in the end the faults of all processes queue up. So they wait in the first class, which begins at
//! least half of all operations.

use super::arbiter::Class;

/// The cause of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A read by a call, ahead of a call, or for detaching.
    Read,
    /// A read of predicted pages.
    Guess,
    /// A call is about to lock a part that it writes.
    Part,
    /// A write of such a part, or relocation to make room for it.
    PartWrite,
    /// A worker's write for want of host memory, or its relocation.
    Spill {
        /// Whether more host memory is in use than may be, so that faults wait for this write
        /// ([`super::tier::Tier::is_short`]). This may change while the worker waits, so each look asks anew.
        is_short: bool,
    },
    /// A discard that tells the device to forget slots.
    Trim,
}

/// Who spills, or relocates to make room on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A worker, which takes the lock of power management for each of its operations.
    Worker,
    /// A call, which holds that lock and the lock of a VA space throughout, and keeps the device attached.
    Call,
}

impl Writer {
    /// The cause of its operation. `is_short`: more host memory is in use than may be.
    pub fn cause(self, is_short: impl FnOnce() -> bool) -> Cause {
        match self {
            // D-lock.
            Self::Call => Cause::PartWrite,
            Self::Worker => Cause::Spill {
                is_short: is_short(),
            },
        }
    }

    /// Whether the writer stops waiting for its turn. A suspend and a detach wait for a worker, whose operation can
    /// be done later, or is not wanted any more.
    pub fn gives_up(
        self,
        suspends: impl FnOnce() -> bool,
        is_detached: impl FnOnce() -> bool,
    ) -> bool {
        self == Self::Worker && (suspends() || is_detached())
    }
}

impl Cause {
    /// The class in which an operation of this cause waits.
    pub fn class(self) -> Class {
        match self {
            Self::Read | Self::PartWrite | Self::Spill { is_short: true } => Class::Fetch,
            Self::Guess => Class::Prefetch,
            Self::Part => Class::Evict,
            Self::Spill { is_short: false } | Self::Trim => Class::Spill,
        }
    }

    /// Whether a thread may wait for it with the lock of a VA space (D-lock of the arbiter).
    #[cfg(test)]
    pub(super) fn waits_in_space(self) -> bool {
        matches!(self, Self::Read | Self::PartWrite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Cause; 7] = [
        Cause::Read,
        Cause::Guess,
        Cause::Part,
        Cause::PartWrite,
        Cause::Spill { is_short: true },
        Cause::Spill { is_short: false },
        Cause::Trim,
    ];

    /// D-lock: everybody who wants the VA space waits behind a writer of it, which waits for the thread that waits
    /// here.
    #[test]
    fn nobody_waits_behind_others_with_a_va_space_locked() {
        for cause in ALL.into_iter().filter(|cause| cause.waits_in_space()) {
            assert_eq!(cause.class(), Class::Fetch, "{cause:?}");
        }
        assert!(Cause::PartWrite.waits_in_space() && !Cause::Part.waits_in_space());
    }

    #[test]
    fn a_worker_gives_its_turn_up_and_a_call_does_not() {
        for (suspends, detached) in [(false, false), (true, false), (false, true), (true, true)] {
            let gives_up = |of: Writer| of.gives_up(|| suspends, || detached);
            assert_eq!(gives_up(Writer::Worker), suspends || detached);
            assert!(!gives_up(Writer::Call));
        }
    }

    #[test]
    fn what_a_worker_writes_is_as_urgent_as_memory_is_short() {
        for is_short in [false, true] {
            let causes = [Writer::Worker, Writer::Call].map(|of| of.cause(|| is_short));
            assert_eq!(causes, [Cause::Spill { is_short }, Cause::PartWrite]);
        }
    }

    #[test]
    fn each_class_has_its_causes() {
        use Class::*;
        // A spill that faults wait for waits for nobody but planned reads.
        let classes = [Fetch, Prefetch, Evict, Fetch, Fetch, Spill, Spill];
        assert_eq!(ALL.map(Cause::class), classes);
    }
}
