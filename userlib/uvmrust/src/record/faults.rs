// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which launches the faults are of that UVM tells of.
//!
//! UVM tells when it took a fault, and the recorder when a launch ran. A fault is a launch's that
//! ran then; of several that ran at once, each has it. A fault when none ran is nobody's:
//! a copy's, or that of a launch whose time is not known.

use std::collections::VecDeque;

use crate::follow::Allocations;
use crate::tools::{now, Fault, Tracker};
use crate::Uvm;

/// Faults on one allocation in a row that are no farther apart, in ns, count as one access.
/// No fault is served in less.
const APART: u64 = 10_000;
/// Accesses among which such an allocation is looked for.
const TOGETHER: usize = 8;
/// Accesses that are kept until the launch is known that made them.
const MOST: usize = 1 << 16;

/// Faults on an allocation, from when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    number: u64,
    from: u64,
    until: u64,
}

/// Where faults come from.
#[derive(Debug)]
enum Source {
    /// Nobody has asked UVM, or not since it was let go.
    Later(&'static Uvm),
    Uvm(&'static Uvm, Tracker),
    /// UVM does not tell.
    None,
}

/// What is known of a process's faults.
#[derive(Debug)]
pub(super) struct Faults {
    source: Source,
    accesses: VecDeque<Access>,
    /// When each launch was made that was not told of yet, in their order.
    launched: VecDeque<(u64, u64)>,
    /// What the tracker has dropped by the last look.
    dropped: u32,
}

impl Faults {
    pub(super) fn new(uvm: &'static Uvm) -> Self {
        Self {
            source: Source::Later(uvm),
            accesses: VecDeque::new(),
            launched: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Says that a launch is about to be made. `true`: UVM is asked from now on.
    pub(super) fn begin(&mut self, launch: u64) -> bool {
        let mut begins = false;
        if let Source::Later(uvm) = self.source {
            self.source = match Tracker::new(uvm) {
                Ok(tracker) => Source::Uvm(uvm, tracker),
                Err(why) => {
                    eprintln!(
                        "uvmrust: what kernels fault on is not recorded, since UVM's tools interface \
                         does not tell: {why}. What their arguments point into is"
                    );
                    Source::None
                }
            };
            self.dropped = 0;
            begins = matches!(self.source, Source::Uvm(..));
        }
        if !matches!(self.source, Source::None) {
            self.launch_at(launch, now());
        }
        begins
    }

    fn launch_at(&mut self, launch: u64, time: u64) {
        if self.launched.len() == MOST {
            self.launched.pop_front();
        }
        self.launched.push_back((launch, time));
    }

    /// Closes the tools interface until the next launch.
    pub(super) fn let_go(&mut self) {
        if let Source::Uvm(uvm, _) = self.source {
            self.source = Source::Later(uvm);
        }
    }

    /// Takes what UVM has told. Gives how many faults were lost since the last call.
    pub(super) fn take(&mut self, allocations: &Allocations) -> u64 {
        let Source::Uvm(_, tracker) = &self.source else {
            return 0;
        };
        let mut lost = 0;
        let accesses = &mut self.accesses;
        tracker.take(|fault| lost += add(accesses, allocations, fault));
        let dropped = tracker.dropped();
        lost += u64::from(dropped.wrapping_sub(self.dropped));
        self.dropped = dropped;
        lost
    }

    /// Adds to `uses` what faulted while a launch ran, each allocation once.
    pub(super) fn ran(&mut self, launch: u64, from: u64, until: u64, uses: &mut Vec<u64>) {
        for access in &self.accesses {
            let meets = access.from <= until && from <= access.until;
            if meets && !uses.contains(&access.number) {
                uses.push(access.number);
            }
        }
        while self.launched.front().is_some_and(|&(n, _)| n <= launch) {
            self.launched.pop_front();
        }
        // No launch runs before it is made, and those that are made later neither.
        let first = self.launched.front().map_or_else(now, |&(_, time)| time);
        self.accesses.retain(|access| access.until >= first);
    }
}

/// Adds a fault to the accesses. Gives how many are lost, for want of room.
fn add(accesses: &mut VecDeque<Access>, allocations: &Allocations, fault: Fault) -> u64 {
    let Some(allocation) = allocations.at(fault.address) else {
        return 0;
    };
    let number = allocation.number;
    // A kernel goes through several allocations at once.
    let mut last = accesses.iter_mut().rev().take(TOGETHER);
    if let Some(last) = last.find(|last| last.number == number) {
        if last.until <= fault.time && fault.time - last.until <= APART {
            last.until = fault.time;
            return 0;
        }
    }
    let full = accesses.len() == MOST;
    if full {
        accesses.pop_front();
    }
    accesses.push_back(Access {
        number,
        from: fault.time,
        until: fault.time,
    });
    full.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults() -> Faults {
        static NOBODY: Uvm = Uvm::new(crate::Linux::new());
        Faults::new(&NOBODY)
    }

    fn told(faults: &mut Faults, allocations: &Allocations, times: &[(u64, u64)]) -> u64 {
        let one = |&(address, time): &(u64, u64)| {
            add(&mut faults.accesses, allocations, Fault { address, time })
        };
        times.iter().map(one).sum()
    }

    fn ran(faults: &mut Faults, launch: u64, from: u64, until: u64) -> Vec<u64> {
        let mut uses = Vec::new();
        faults.ran(launch, from, until, &mut uses);
        uses
    }

    fn three() -> Allocations {
        let mut allocations = Allocations::default();
        for base in [0x1000, 0x4000, 0x6000] {
            allocations.add(base, 0x1000);
        }
        allocations
    }

    /// A time, in APART, from the beginning of the process on.
    const T: u64 = 2 * APART;

    #[test]
    fn a_fault_is_of_the_launches_that_ran_then() {
        let (mut faults, allocations) = (faults(), three());
        (0..4).for_each(|launch| faults.launch_at(launch, launch * T));
        let times = [
            (0x1fff, 5 * T),
            (0x1000, 6 * T),
            (0x4000, 7 * T),
            // Of no allocation.
            (0x5000, 7 * T),
            (0x6000, 9 * T),
        ];
        assert_eq!(told(&mut faults, &allocations, &times), 0);
        assert_eq!(ran(&mut faults, 0, 5 * T, 7 * T - 1), [0]);
        // Beside it, in another stream.
        assert_eq!(ran(&mut faults, 1, 6 * T, 7 * T), [0, 1]);
        assert_eq!(ran(&mut faults, 2, 7 * T + 1, 9 * T - 1), []);
        assert_eq!(ran(&mut faults, 3, 9 * T, 9 * T), [2]);
    }

    #[test]
    fn what_no_launch_can_have_done_is_forgotten() {
        let (mut faults, allocations) = (faults(), three());
        faults.launch_at(0, 1);
        faults.launch_at(1, 4 * T);
        told(
            &mut faults,
            &allocations,
            &[(0x1000, 3 * T), (0x4000, 4 * T)],
        );
        assert_eq!(ran(&mut faults, 0, 2, 3), []);
        assert_eq!(faults.accesses.len(), 1);
        assert_eq!(ran(&mut faults, 1, 4 * T, 5 * T), [1]);
        assert!(faults.accesses.is_empty() && faults.launched.is_empty());
    }

    #[test]
    fn faults_in_a_row_are_one_access() {
        let (mut faults, allocations) = (faults(), three());
        let near = [(0x1000, T), (0x1800, T + APART), (0x1000, T + 2 * APART)];
        told(&mut faults, &allocations, &near);
        assert_eq!(faults.accesses.len(), 1);
        assert_eq!(faults.accesses[0].until, T + 2 * APART);
        let far = [(0x1000, T + 3 * APART + 1), (0x4000, T + 3 * APART + 2)];
        told(&mut faults, &allocations, &far);
        assert_eq!(faults.accesses.len(), 3);
        // Beside those on another allocation.
        let beside = [(0x1000, T + 3 * APART + 3), (0x4000, T + 3 * APART + 4)];
        told(&mut faults, &allocations, &beside);
        assert_eq!(faults.accesses.len(), 3);
        // Of another GPU, whose faults are served later.
        told(&mut faults, &allocations, &[(0x4000, 0)]);
        assert_eq!(faults.accesses.len(), 4);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let (mut faults, allocations) = (faults(), three());
        let many: Vec<_> = (0..MOST as u64 + 5).map(|n| (0x1000, n * T)).collect();
        assert_eq!(told(&mut faults, &allocations, &many), 5);
        assert_eq!(faults.accesses.len(), MOST);
        (0..2 * MOST as u64).for_each(|launch| faults.launch_at(launch, launch));
        assert_eq!(faults.launched.len(), MOST);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn where_uvm_does_not_tell_nothing_is_kept() {
        let mut faults = faults();
        if Tracker::new(Uvm::process()).is_err() {
            assert!(!faults.begin(0));
            assert!(matches!(faults.source, Source::None));
            assert!(!faults.begin(1) && faults.launched.is_empty());
            faults.let_go();
            assert!(matches!(faults.source, Source::None));
        }
    }
}
