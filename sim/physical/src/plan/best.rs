// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Our own planner (`sim/planner`), under some tunings.
//!
//! Each plan is run in virtual time, and the fastest is kept. Where the copies hide
//! behind kernels the first is nearly always the one; the search ends as soon as a
//! plan is `NEAR` the bound. Otherwise the planner plans again with the times that the
//! best plan has shown, and the papers' algorithms are tried as well. If none is `FAIR`
//! either, memory is so short that no time of the ideal step is long enough for the
//! copies: then reads are planned as the walk goes, and so are plans that keep the
//! queues full (`queued.rs`). Where one of these or of the papers' is ahead, the papers'
//! are refined; and what is best by then is tried with everything asked for earlier (`best/short.rs`). What is best then is
//! changed at random, a little at a time (`change.rs`). Then the planner takes large tensors in pieces
//! (`pieces.rs`), and has some leave behind kernels (`behind.rs`); what is best then is changed as well (`best/finely.rs`).
//! At last the papers' own plans are run, however near the bound ours is, so that ours is
//! behind none. How much is tried depends on the step and the machine alone, unless a budget
//! of time is given ([`Until`]): then the papers' plans come right after our first.
//!
//! A policy that makes no plan may be ahead of all plans: where kernels are shorter than copies,
//! what DeepUM moves by whole va_blocks is in time more often than what a plan moves by tensors.
//! So [`find`] runs these as well, and says if one of them is the faster.

mod finely;
mod short;

use std::time::Duration;
use std::time::Instant;

use uvmsim_machine::Machine;
use uvmsim_planner::Reading;
use uvmsim_planner::Tuning;

use crate::bound::bound_ns;
use crate::plan::behind::Trailing;
use crate::plan::ours;
use crate::plan::pieces::Pieces;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::policies;
use crate::policies::Planned;
use crate::policy::Tier;
use crate::run::run;
use crate::Layout;
use crate::Limits;
use crate::Outcome;
use crate::RunError;
use crate::Workload;

/// A plan that takes this share more than the bound, in thousandths, is good enough.
const NEAR: u64 = 10;
/// If one takes no more than this share more, copies hide behind kernels.
const FAIR: u64 = 30;
/// If one takes this share more, they do not.
const FAR: u64 = 200;
/// Plans of other tunings to run, the best by the planner's reckoning.
const RUNS: usize = 4;
/// Rounds of planning with the times of the last.
const ROUNDS: usize = 6;
/// Shares of memory to leave free for reads, in thousandths.
const RESERVES: [u64; 5] = [0, 12, 25, 50, 120];
/// Share of GPU memory to fill, and others to try. How full it can be planned depends
/// on how tensors share va_blocks.
const FILL: f64 = 0.97;
const OTHER_FILLS: [f64; 3] = [0.985, 0.94, 0.9];
/// What was found for a step.
pub struct Found {
    /// The plan that ran fastest of those that were tried before time was over; at least one is.
    pub plan: Plan,
    /// Nanoseconds that a step takes under the plan.
    pub step_ns: u64,
    /// The policy without a plan that is faster still, if one is, and its nanoseconds.
    pub faster: Option<(&'static str, u64)>,
}

/// The best plan, and whether a policy without one is ahead of it.
///
/// # Errors
/// No plan could be run; the error is that of the last.
pub fn find(
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    until: Until<'_>,
) -> Result<Found, RunError> {
    let mut search = Search::new(machine, workload, layout, until);
    search.compares = true;
    search.all();
    let (out, plan) = search.best.ok_or(search.error)?;
    // With a budget, a better plan may have been found after the policies were run.
    let faster = search.faster.filter(|f| f.1 < out.step_ns);
    Ok(Found {
        plan,
        step_ns: out.step_ns,
        faster,
    })
}

/// How far a search is.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// Plans and policies that were run.
    pub runs: u32,
    /// Nanoseconds of a step under the best of them.
    pub best_ns: u64,
}

/// When to look for no better plan, and who is told of each that was run.
#[derive(Clone, Copy)]
pub struct Until<'a> {
    at: Option<Instant>,
    told: Option<&'a dyn Fn(Tried)>,
    coarse: bool,
}

impl<'a> Until<'a> {
    /// Once there is nothing left to try.
    pub const NEVER: Until<'static> = Until {
        at: None,
        told: None,
        coarse: false,
    };

    /// At the latest when so much time has passed from now on.
    pub fn after(budget: Duration) -> Self {
        Self {
            at: Instant::now().checked_add(budget),
            ..Self::NEVER
        }
    }

    /// The same, and `told` is told of each run.
    #[must_use]
    pub fn telling(self, told: &'a dyn Fn(Tried)) -> Self {
        Self {
            told: Some(told),
            ..self
        }
    }

    /// The same, for plans that move whole tensors, before kernels: for programs that follow a plan by
    /// allocations and launches.
    #[must_use]
    pub fn coarse(self) -> Self {
        Self {
            coarse: true,
            ..self
        }
    }

    /// Whether that is now.
    pub fn is_over(self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }
}

/// What the planner's first plan comes to by its own reckoning.
pub(super) fn reckon(machine: &Machine, workload: &Workload, layout: &Layout) -> Option<u64> {
    let step = ours::Step::new(workload, layout, 0);
    let made = step.plan(machine, FILL, Tuning::default()).ok()?;
    Some(made.step_ns)
}

/// The planner's first plan, and how it ran.
///
/// # Errors
/// No plan could be run; the error is that of the last one that was tried, as with [`find`].
pub(super) fn first(
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    until: Until<'_>,
) -> Result<(Outcome, Plan), RunError> {
    let mut search = Search::new(machine, workload, layout, until);
    search.walk();
    search.best.ok_or(search.error)
}

/// The plan that ran fastest, and how it ran.
///
/// # Errors
/// No plan could be run; the error is that of the last one that was tried, as with [`find`].
pub(super) fn measured(
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    until: Until<'_>,
) -> Result<(Outcome, Plan), RunError> {
    let mut search = Search::new(machine, workload, layout, until);
    search.all();
    search.best.ok_or(search.error)
}

/// Tunings to try: kernels that memory is asked for ahead, share of memory to fill,
/// and what the planner has.
fn tunings() -> Vec<(u32, f64, Tuning)> {
    let usual = Tuning::default();
    let mut all = Vec::new();
    for fill in [FILL].into_iter().chain(OTHER_FILLS) {
        all.extend([0, 1].map(|ahead| (ahead, fill, usual)));
    }
    for reserve in RESERVES {
        for fill in [1.0, FILL, 0.92] {
            let walked = Tuning {
                reads: Reading::Walked,
                reserve,
                ..usual
            };
            all.push((0, fill, walked));
        }
    }
    for (ssd_share, ratio) in [(930, 950), (970, 1000), (900, 900), (970, 1200)] {
        let tuning = Tuning {
            ssd_share,
            ratio,
            ..usual
        };
        all.push((0, FILL, tuning));
    }
    all.remove(0);
    all
}

struct Search<'a> {
    machine: &'a Machine,
    workload: &'a Workload,
    layout: &'a Layout,
    /// The step and layout that are planned; plans are in their terms.
    planned: (&'a Workload, &'a Layout),
    /// What they are pieces of, if they are.
    pieces: Option<&'a Pieces>,
    /// What leaves behind kernels in all plans that the planner makes.
    trailing: Trailing,
    bound: u64,
    until: Until<'a>,
    /// Whether policies without a plan are run as well.
    compares: bool,
    best: Option<(Outcome, Plan)>,
    /// What was found by another way, while one is tried from an earlier plan on.
    aside: Option<(Outcome, Plan)>,
    /// Nanoseconds that its step takes.
    aside_ns: u64,
    faster: Option<(&'static str, u64)>,
    runs: u32,
    error: RunError,
}

impl<'a> Search<'a> {
    fn new(
        machine: &'a Machine,
        workload: &'a Workload,
        layout: &'a Layout,
        until: Until<'a>,
    ) -> Self {
        Self {
            machine,
            workload,
            layout,
            planned: (workload, layout),
            pieces: None,
            trailing: Trailing::default(),
            bound: bound_ns(machine, workload),
            until,
            compares: false,
            best: None,
            aside: None,
            aside_ns: u64::MAX,
            faster: None,
            runs: 0,
            error: RunError::TooLong,
        }
    }

    /// Everything, until time is over.
    fn all(&mut self) {
        self.walk();
        let limited = self.until.at.is_some();
        if limited {
            self.others();
        }
        if !self.is_within(NEAR) {
            self.tune();
        }
        if !self.is_within(NEAR) {
            self.again();
        }
        let own = self.best_ns();
        let near = self.is_within(NEAR);
        if !limited && !self.is_within(0) {
            self.papers();
        }
        if !near {
            self.go_on(own);
        }
        if !self.is_within(NEAR) {
            let unchanged = self.best.clone();
            self.change(false);
            if !self.until.coarse && !self.is_within(NEAR) {
                self.aside_ns = self.best_ns();
                self.aside = std::mem::replace(&mut self.best, unchanged);
                self.finely();
                self.take_back();
            }
        }
        if !limited && !self.is_within(0) {
            self.reactive();
        }
    }

    /// The papers' planners, and what makes no plan.
    fn others(&mut self) {
        self.papers();
        self.reactive();
    }

    /// Whether the best plan is within this share of the bound, or time is over.
    fn is_within(&self, share: u64) -> bool {
        self.is_over() || self.best_ns() <= self.bound.saturating_add(self.bound / 1000 * share)
    }

    /// Whether there is a plan, and no time for a better one.
    fn is_over(&self) -> bool {
        self.best.is_some() && self.until.is_over()
    }

    /// The planner as it is.
    fn walk(&mut self) {
        let step = self.step(0);
        if let Some((_, plan)) = self.ours(&step, 0, FILL, Tuning::default()) {
            self.consider(plan);
        }
    }

    /// Tries other tunings of the planner.
    fn tune(&mut self) {
        let steps = [0, 1].map(|ahead| self.step(ahead));
        self.consider_best_of(&steps, RUNS);
    }

    /// The planner again, with the times that the best plan has shown.
    fn again(&mut self) {
        for _ in 0..ROUNDS {
            let before = self.best_ns();
            let Some(times) = self.best.as_ref().map(|(out, _)| out.kernel_ns.clone()) else {
                return;
            };
            let steps = [0, 1].map(|ahead| self.step(ahead).with_times(times.clone()));
            self.consider_best_of(&steps, RUNS / 2);
            if self.is_within(NEAR) || self.best_ns() >= before - before / 500 {
                break;
            }
        }
    }

    /// Plans under all tunings, and runs of those with either way to plan reads the
    /// best by the planner's reckoning. `steps`: by kernels ahead.
    fn consider_best_of(&mut self, steps: &[ours::Step; 2], runs: usize) {
        let made = |(ahead, fill, tuning): (u32, f64, Tuning)| {
            if self.is_over() {
                return None;
            }
            let (ns, plan) = self.ours(&steps[ahead as usize], ahead, fill, tuning)?;
            Some((tuning.reads, ns, plan))
        };
        let mut plans: Vec<(Reading, u64, Plan)> = tunings().into_iter().filter_map(made).collect();
        plans.sort_by_key(|p| p.1);
        // What comes to the same is nearly always the same.
        plans.dedup_by_key(|p| (p.1, p.0 == Reading::Booked));
        let hidden = [(Reading::Booked, FAR, true), (Reading::Walked, FAIR, false)];
        for (reads, share, within) in hidden {
            if self.is_within(share) != within {
                continue;
            }
            let own = plans.iter().filter(|p| p.0 == reads);
            for (_, _, plan) in own.take(runs) {
                self.consider(plan.clone());
            }
        }
    }

    /// The planner's plan, and what it comes to by its own reckoning.
    fn ours(
        &self,
        step: &ours::Step,
        ahead: u32,
        fill: f64,
        tuning: Tuning,
    ) -> Option<(u64, Plan)> {
        let made = step.plan(self.machine, fill, tuning).ok()?;
        let (workload, layout) = self.planned;
        let profile = Profile::new(self.machine, workload, layout, fill, ahead);
        let mut plan = ours::requests(&profile, &made);
        self.trailing.add_to(&mut plan);
        Some((made.step_ns, plan))
    }

    /// The step as the planner sees it.
    fn step(&self, ahead: u32) -> ours::Step {
        let (workload, layout) = self.planned;
        ours::Step::new(workload, layout, ahead).with_less(self.trailing.less())
    }

    /// The papers' planners as they are, so that ours is behind none of them.
    fn papers(&mut self) {
        for name in policies::PLANNERS {
            if self.is_over() {
                return;
            }
            let Ok(plan) = policies::plan(name, self.machine, self.workload, self.layout) else {
                continue;
            };
            if !plan.releases {
                // With what the driver is not told there.
                self.consider(Plan {
                    releases: true,
                    allocate_ahead: Some(1),
                    ..plan.clone()
                });
            }
            self.consider(plan);
        }
    }

    /// The policies that make no plan, if they are asked for: whether one is ahead.
    fn reactive(&mut self) {
        if !self.compares {
            return;
        }
        for &name in policies::REACTIVE {
            if self.is_over() {
                return;
            }
            let fastest = self.faster.map_or(u64::MAX, |f| f.1).min(self.best_ns());
            let limits = Limits {
                longest_step: fastest,
                // Its first steps say little of the others.
                learning: policies::LEARNING.contains(&name),
                ..Limits::default()
            };
            let (machine, workload, layout) = (self.machine, self.workload, self.layout);
            let done = policies::make(name, machine, workload, layout)
                .and_then(|mut policy| run(machine, workload, layout, policy.as_mut(), limits));
            let ns = done.map_or(u64::MAX, |out| out.step_ns);
            if ns < fastest {
                self.faster = Some((name, ns));
            }
            self.tell();
        }
    }

    /// Says that one more was run.
    fn tell(&mut self) {
        self.runs += 1;
        if let Some(told) = self.until.told {
            told(Tried {
                runs: self.runs,
                best_ns: self
                    .faster
                    .map_or(u64::MAX, |f| f.1)
                    .min(self.best_ns().min(self.aside_ns)),
            });
        }
    }

    fn best_ns(&self) -> u64 {
        self.best.as_ref().map_or(u64::MAX, |(out, _)| out.step_ns)
    }

    /// Runs `plan` and keeps it if it is the fastest.
    fn consider(&mut self, plan: Plan) {
        if self.is_over() {
            return;
        }
        let limits = Limits {
            longest_step: self.best_ns(),
            ..Limits::default()
        };
        let run_as = match self.pieces {
            Some(pieces) => pieces.named(&plan),
            None => plan.clone(),
        };
        let mut policy = Planned::new("best", run_as, Tier::Host);
        let (machine, workload, layout) = (self.machine, self.workload, self.layout);
        match run(machine, workload, layout, &mut policy, limits) {
            Ok(out) if out.step_ns < self.best_ns() => self.best = Some((out, plan)),
            Ok(_) => {}
            Err(e) => self.error = e,
        }
        self.tell();
    }
}
