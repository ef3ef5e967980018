// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which launches the faults are of that UVM tells of.
//!
//! UVM tells when it took a fault, and the recorder when a launch ran. A fault is a launch's that
//! ran then; of several that ran at once, each has it. A fault when none ran is nobody's:
//! a copy's, or that of a launch whose time is not known.
//!
//! UVM tells which page a fault is on. Where several allocations share the page, each counts as used.

use std::collections::VecDeque;

use crate::follow::Allocations;
use crate::ranges::page_size;
use crate::tools::{now, Fault, Tracker};
use crate::Uvm;

/// Faults on one allocation in a row that are no farther apart, in ns, count as one access.
/// No fault is served in less.
const APART: u64 = 10_000;
/// Accesses among which such an allocation is looked for.
const TOGETHER: usize = 8;
/// An access that takes longer, in ns, is several: so that those of a time are found by
/// when they began.
const LONGEST: u64 = 10 * APART;
/// Accesses that are kept until the launch is known that made them, and launches that are waited for.
const MOST: usize = if cfg!(miri) { 64 } else { 1 << 16 };
/// Launches after which the descriptor is looked at anew.
const LOOK: u64 = 16;
/// Where UVM does not tell it is asked again: after one launch, after two more, and so on up to this.
const LAST_TRY: u64 = 1 << 16;

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
    /// Nobody has asked UVM with success, or not since it was let go.
    Later(&'static Uvm),
    Uvm(&'static Uvm, Tracker),
}

/// What is known of a process's faults.
#[derive(Debug)]
pub(super) struct Faults {
    source: Source,
    tries: Tries,
    /// Somebody asks UVM now.
    asking: bool,
    /// How often UVM was let go.
    let_go: u64,
    /// What is to be dropped, where no lock is held.
    closed: Closed,
    /// Whether the last launch that was begun had a tracker.
    watched: bool,
    /// The first launch that the descriptor has not been seen to be open behind, and when it was looked at.
    seen: (u64, u64),
    /// The first launch of those told of that may have run when the descriptor was open no more.
    unsure: Option<u64>,
    /// The first launch whose faults are not known, which is to be said.
    ends: Option<u64>,
    accesses: Accesses,
    launched: Launched,
    /// What the tracker has dropped by the last look.
    dropped: u32,
    said: bool,
    /// What is to be said, where no lock is held.
    pub(super) message: Option<String>,
}

/// What UVM is to be asked, where no lock is held: whether it tells of faults.
#[derive(Debug)]
#[must_use]
pub struct Question {
    uvm: &'static Uvm,
    let_go: u64,
}

/// What it has answered.
#[derive(Debug)]
#[must_use]
pub struct Answer {
    tracker: std::io::Result<Tracker>,
    let_go: u64,
}

impl Question {
    /// Asks UVM, which may take its time.
    pub fn ask(self) -> Answer {
        let Self { uvm, let_go } = self;
        let tracker = Tracker::new(uvm);
        Answer { tracker, let_go }
    }
}

/// UVM's tools interface, as far as it is not needed any more. It is closed when this is dropped.
#[derive(Debug, Default)]
#[must_use]
pub struct Closed(#[allow(dead_code)] Vec<Tracker>);

/// When UVM is asked again.
#[derive(Debug, Default)]
struct Tries {
    next: u64,
    wait: u64,
}

/// What changes at a launch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// From this launch on nobody looks for faults.
    pub(super) ends: Option<u64>,
    /// Somebody does from now on.
    pub(super) begins: bool,
}

impl Faults {
    pub(super) fn new(uvm: &'static Uvm) -> Self {
        Self {
            source: Source::Later(uvm),
            tries: Tries::default(),
            asking: false,
            let_go: 0,
            closed: Closed::default(),
            watched: false,
            seen: (0, 0),
            unsure: None,
            ends: None,
            accesses: Accesses::default(),
            launched: Launched::default(),
            dropped: 0,
            said: false,
            message: None,
        }
    }

    /// What UVM is to be asked before a launch.
    pub(super) fn asks(&mut self, launch: u64) -> Option<Question> {
        self.asks_by(launch, Tracker::is_open)
    }

    fn asks_by(&mut self, launch: u64, is_open: impl FnOnce(&Tracker) -> bool) -> Option<Question> {
        if launch >= self.seen.0 + LOOK {
            self.look(launch, is_open);
        }
        let Source::Later(uvm) = self.source else {
            return None;
        };
        if self.asking || !self.tries.may(launch) {
            return None;
        }
        self.asking = true;
        let let_go = self.let_go;
        Some(Question { uvm, let_go })
    }

    /// Takes the answer, before a launch.
    pub(super) fn answered(&mut self, answer: Answer, launch: u64) {
        self.asking = false;
        let Source::Later(uvm) = self.source else {
            return;
        };
        match answer.tracker {
            // It is of a context that has gone meanwhile.
            Ok(tracker) if answer.let_go != self.let_go => {
                self.closed.0.push(tracker);
                self.tries = Tries::default();
            }
            Ok(tracker) => {
                self.source = Source::Uvm(uvm, tracker);
                self.tries = Tries::default();
                (self.dropped, self.seen, self.unsure) = (0, (launch, now()), None);
            }
            Err(why) => self.lost(&format!("UVM's tools interface does not tell: {why}")),
        }
    }

    /// Says that a launch is about to be made.
    pub(super) fn begin(&mut self, launch: u64) -> Change {
        let watches = matches!(self.source, Source::Uvm(..));
        let was = core::mem::replace(&mut self.watched, watches);
        self.launched.push(launch, watches.then(now));
        let ends = self.ends.take();
        Change {
            ends: ends.or_else(|| (was && !watches).then_some(launch)),
            begins: watches && !was,
        }
    }

    /// Looks whether the descriptor is open. Where it is not, nobody knows from that launch on which may have
    /// run behind the last look.
    fn look(&mut self, launch: u64, is_open: impl FnOnce(&Tracker) -> bool) {
        let Source::Uvm(uvm, tracker) = &self.source else {
            return;
        };
        let uvm = *uvm;
        let (seen, _) = self.seen;
        if is_open(tracker) {
            (self.seen, self.unsure) = ((launch, now()), None);
            return;
        }
        let may = [self.unsure, self.launched.number()].into_iter().flatten();
        self.ends = Some(may.fold(seen, u64::min));
        self.watched = false;
        self.leave(uvm);
        self.lost("the program has closed the descriptor of UVM's tools interface");
    }

    /// The same at the end of the program, behind so many launches.
    pub(super) fn end(&mut self, launches: u64) -> Option<u64> {
        self.look(launches, Tracker::is_open);
        self.ends.take()
    }

    /// Has no tracker any more: it is to be closed.
    fn leave(&mut self, uvm: &'static Uvm) {
        let source = core::mem::replace(&mut self.source, Source::Later(uvm));
        if let Source::Uvm(_, tracker) = source {
            self.closed.0.push(tracker);
        }
    }

    /// What is to be dropped where no lock is held.
    pub(super) fn closed(&mut self) -> Closed {
        core::mem::take(&mut self.closed)
    }

    /// Nobody looks for faults now, which is said once.
    fn lost(&mut self, why: &str) {
        if !core::mem::replace(&mut self.said, true) {
            self.message = Some(format!(
                "what kernels fault on is not recorded for now, since {why}. What their arguments \
                 point into is"
            ));
        }
    }

    /// Has no tools interface until the next launch. Whose accesses these were is not known any more.
    pub(super) fn let_go(&mut self) {
        if let Source::Uvm(uvm, _) = self.source {
            self.leave(uvm);
        }
        self.let_go += 1;
        self.launched = Launched::default();
        self.accesses = Accesses::default();
    }

    /// Takes what UVM has told. Gives how many faults were lost since the last call.
    pub(super) fn take(&mut self, allocations: &Allocations) -> u64 {
        let Source::Uvm(_, tracker) = &self.source else {
            return 0;
        };
        let mut lost = 0;
        let accesses = &mut self.accesses;
        tracker.take(|fault| lost += accesses.add(allocations, fault));
        let dropped = tracker.dropped();
        lost += u64::from(dropped.wrapping_sub(self.dropped));
        self.dropped = dropped;
        lost
    }

    /// Gives in `uses` what faulted while a launch ran, each allocation once.
    pub(super) fn ran(&mut self, launch: u64, from: u64, until: u64, uses: &mut Vec<u64>) {
        uses.extend(self.accesses.between(from, until).map(|a| a.number));
        uses.sort_unstable();
        uses.dedup();
        if until > self.seen.1 {
            self.unsure = Some(self.unsure.map_or(launch, |first| first.min(launch)));
        }
        self.not_timed(launch);
    }

    /// Says that it is not going to be known when a launch ran, or that it is known.
    pub(super) fn not_timed(&mut self, launch: u64) {
        self.launched.remove(launch);
        let first = self.launched.first();
        self.accesses.forget(first.unwrap_or_else(now));
    }
}

impl Tries {
    /// Whether UVM is asked at this launch, which then counts as a try.
    fn may(&mut self, launch: u64) -> bool {
        if launch < self.next {
            return false;
        }
        self.wait = (2 * self.wait).clamp(1, LAST_TRY);
        self.next = launch + self.wait;
        true
    }
}

/// When launches were made, of those whose time is not known yet. It is known in no order.
#[derive(Debug, Default)]
struct Launched {
    /// The number of the first.
    base: u64,
    /// One for each number from the first on; `None`: nobody waits for it.
    made: VecDeque<Option<u64>>,
}

impl Launched {
    /// Adds the next launch.
    fn push(&mut self, launch: u64, made: Option<u64>) {
        if self.made.is_empty() {
            self.base = launch;
        }
        self.made.push_back(made);
        if self.made.len() > MOST {
            self.made.pop_front();
            self.base += 1;
        }
        self.shorten();
    }

    fn remove(&mut self, launch: u64) {
        let at = launch.checked_sub(self.base);
        let at = at.and_then(|at| usize::try_from(at).ok());
        if let Some(made) = at.and_then(|at| self.made.get_mut(at)) {
            *made = None;
        }
        self.shorten();
    }

    fn shorten(&mut self) {
        while self.made.front() == Some(&None) {
            self.made.pop_front();
            self.base += 1;
        }
    }

    /// The number of the first that is waited for.
    fn number(&self) -> Option<u64> {
        (!self.made.is_empty()).then_some(self.base)
    }

    /// When the first was made.
    fn first(&self) -> Option<u64> {
        self.made.front().copied().flatten()
    }
}

/// Accesses in the order in which they began.
#[derive(Debug, Default)]
struct Accesses(VecDeque<Access>);

impl Accesses {
    /// Adds a fault. Gives how many are lost, for want of room.
    fn add(&mut self, allocations: &Allocations, fault: Fault) -> u64 {
        let meeting = allocations.meeting(fault.page, page_size());
        meeting.map(|a| self.add_to(a.number, fault.time)).sum()
    }

    fn add_to(&mut self, number: u64, time: u64) -> u64 {
        // A kernel goes through several allocations at once.
        let mut last = self.0.iter_mut().rev().take(TOGETHER);
        let last = last.find(|last| last.number == number);
        let near = last.filter(|last| last.until <= time && time - last.until <= APART);
        let from = match near {
            Some(last) if time - last.from <= LONGEST => {
                last.until = time;
                return 0;
            }
            Some(last) => last.until,
            None => time,
        };
        let full = self.0.len() == MOST;
        if full {
            self.0.pop_front();
        }
        // Of several GPUs, one's are told of somewhat later.
        let later = self.0.iter().rev().take_while(|a| a.from > from).count();
        let access = Access {
            number,
            from,
            until: time,
        };
        self.0.insert(self.0.len() - later, access);
        full.into()
    }

    /// Those of a time.
    fn between(&self, from: u64, until: u64) -> impl Iterator<Item = &Access> {
        let range = self.may_be_between(from, until);
        self.0.range(range).filter(move |a| from <= a.until)
    }

    /// Where those of a time are. No other access is looked at for a launch.
    fn may_be_between(&self, from: u64, until: u64) -> std::ops::Range<usize> {
        let first = from.saturating_sub(LONGEST);
        let start = self.0.partition_point(|a| a.from < first);
        let end = self.0.partition_point(|a| a.from <= until);
        start..end.max(start)
    }

    /// Forgets those before a time. No launch runs before it is made.
    fn forget(&mut self, before: u64) {
        while self.0.front().is_some_and(|a| a.until < before) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
