// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Why an operation of the device begins that is for no fault, and so in which class it waits ([`super::arbiter`]).
//!
//! What a call writes waits twice. Before a part of up to 16 MiB is locked, the call stands in line with the planned
//! writes, and passes without beginning anything. The writes of that part then wait with the VA space's lock, behind
//! which its writers and in the end the faults of all processes queue up, and so wait in the first class, which has half
//! of what begins, at least.

use super::arbiter::Class;

/// Why an operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A read by a call, ahead of a call, or for detaching.
    Read,
    /// A read of what was guessed.
    Guess,
    /// A part of what a call writes is about to be locked.
    Part,
    /// A write of such a part, or relocation to make room for it.
    PartWrite,
    /// A worker's write for want of host memory, or its relocation.
    Spill {
        /// There is more host memory than may be, so that faults wait until some is written
        /// ([`super::tier::Tier::is_short`]). It may change while the worker waits, who asks at each look.
        is_short: bool,
    },
    /// The device is told to forget something.
    Trim,
}

/// Who writes to the device for want of memory, or makes room there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A worker, which takes the lock of power management for each of its operations.
    Worker,
    /// A call, which has that lock, and the lock of a VA space, all the time, and keeps the device attached.
    Call,
}

impl Writer {
    /// Says why its operation begins. `is_short`: there is more host memory than may be.
    pub fn cause(self, is_short: impl FnOnce() -> bool) -> Cause {
        match self {
            // D-lock.
            Self::Call => Cause::PartWrite,
            Self::Worker => Cause::Spill {
                is_short: is_short(),
            },
        }
    }

    /// Whether it waits for its turn no more. Whoever suspends the system, or detaches the device, waits for a worker, and
    /// the worker's operation can be done later, or is not wanted any more.
    pub fn gives_up(
        self,
        suspends: impl FnOnce() -> bool,
        is_detached: impl FnOnce() -> bool,
    ) -> bool {
        self == Self::Worker && (suspends() || is_detached())
    }
}

impl Cause {
    /// Says in which class it waits.
    pub fn class(self) -> Class {
        match self {
            Self::Read | Self::PartWrite | Self::Spill { is_short: true } => Class::Fetch,
            Self::Guess => Class::Prefetch,
            Self::Part => Class::Evict,
            Self::Spill { is_short: false } | Self::Trim => Class::Spill,
        }
    }

    /// Whether it may be waited for with the lock of a VA space (D-lock of the arbiter).
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

    /// D-lock: all who want the VA space wait behind a writer of it, who waits for the one that waits here.
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
