// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Our planner (`sim/planner`) on the artifact's machine, under some tunings.
//!
//! Plans are cheap, runs are not. The plan of the usual tuning is run on the machine
//! with the profile's times. If it is not near the ideal, so are the best of the others
//! by the planner's own reckoning, and the fastest is taken. G10's way is then tried
//! too, refined
//! ([`Design::Refined`]), and at last every other policy as it is, however near the ideal
//! ours is, so that none is ahead.
//! Memory is allocated at the first kernel that uses it and
//! freed after the last: the artifact's machine does not charge that as a fault.

use uvmsim_planner as planner;

use super::events;
use super::events::Mode;
use super::plan::link_rates;
use super::plan::Design;
use super::plan::Hint;
use super::plan::Target;
use super::view::View;
use super::view::PAGE;
use super::Machine;
use super::Outcome;
use super::RunError;

/// Factors on the links' rates under which G10's way is tried.
const RATES: [f64; 2] = [1.25, 1.5];
/// A step within this share of the ideal, in thousandths, is good enough.
const NEAR: u64 = 12;
/// Other plans to run, the best by the planner's reckoning.
const RUNS: usize = 2;
/// Share of the GPU that a plan fills.
const FILL: f64 = 0.995;

/// The fastest plan that was found, how the machine treats it, and what it came to on
/// the profile's times. `others`: plans made elsewhere, asked for unless ours is the ideal.
///
/// # Errors
/// No plan can be run; the first's error.
pub(super) fn search(
    view: &View,
    machine: &Machine,
    others: impl FnOnce() -> Vec<Vec<Hint>>,
) -> Result<(Vec<Hint>, Mode, Outcome), RunError> {
    // The planner knows the profile, not what the run will take.
    let machine = Machine {
        time_error: 0.0,
        ..machine.clone()
    };
    let mut search = Search {
        view,
        machine: &machine,
        best: None,
        error: None,
    };
    let step = Step::new(view);
    let [usual, unusual @ ..] = &tunings()[..] else {
        return Err(RunError::Internal("no tunings".into()));
    };
    if let Ok(plan) = step.plan(&machine, *usual) {
        search.consider(hints(view, &plan));
    }
    if !search.is_near() {
        let plans = unusual.iter().filter_map(|&t| step.plan(&machine, t).ok());
        let mut plans: Vec<_> = plans.collect();
        plans.sort_by_key(|p| p.step_ns);
        plans.dedup_by_key(|p| p.step_ns);
        for plan in plans.iter().take(RUNS) {
            search.consider(hints(view, plan));
        }
    }
    if !search.is_near() {
        for rate in RATES {
            let plan = super::plan::g10(view, &machine, Design::Refined(rate));
            search.consider(plan.hints);
        }
    }
    if !search.is_within(0) {
        search.consider(super::plan::g10(view, &machine, Design::G10).hints);
        search.consider(Vec::new());
        let ahead = super::plan::look_ahead(view, machine.prefetch_degree);
        search.run(ahead, Mode::DeepUm);
        for hints in others() {
            search.consider(hints);
        }
    }
    let none = || RunError::Internal("no plan was tried".into());
    search.best.ok_or_else(|| search.error.unwrap_or_else(none))
}

struct Search<'a> {
    view: &'a View,
    machine: &'a Machine,
    best: Option<(Vec<Hint>, Mode, Outcome)>,
    error: Option<RunError>,
}

impl Search<'_> {
    /// Runs a plan and keeps it if it is the fastest.
    fn consider(&mut self, hints: Vec<Hint>) {
        self.run(hints, Mode::Lru);
    }

    /// The same where the machine chooses victims by `mode`.
    fn run(&mut self, hints: Vec<Hint>, mode: Mode) {
        match events::run(self.view, self.machine, mode, hints.clone()) {
            Ok(new) => {
                let best = self.best.as_ref().map(|b| b.2.step_cycles);
                if best.is_none_or(|b| new.step_cycles < b) {
                    self.best = Some((hints, mode, new));
                }
            }
            Err(e) => self.error = self.error.take().or(Some(e)),
        }
    }

    fn is_near(&self) -> bool {
        self.is_within(NEAR)
    }

    fn is_within(&self, share: u64) -> bool {
        self.best.as_ref().is_some_and(|(.., o)| {
            o.step_cycles <= o.ideal_cycles.saturating_add(o.ideal_cycles / 1000 * share)
        })
    }
}

/// The tunings of the planner that are tried.
fn tunings() -> Vec<planner::Tuning> {
    let usual = planner::Tuning::default();
    let mut all = Vec::new();
    for (ratio, urgency) in [(950, 2000), (1000, 2000), (900, 1300)] {
        for ssd_share in [1000, 960] {
            all.push(planner::Tuning {
                ratio,
                urgency,
                ssd_share,
                ..usual
            });
        }
    }
    for reserve in [0, 30] {
        all.push(planner::Tuning {
            reads: planner::Reading::Walked,
            reserve,
            ..usual
        });
    }
    all
}

/// A trace in the planner's terms.
struct Step(planner::Step);

impl Step {
    fn new(view: &View) -> Self {
        let kernels = view.kernels.len();
        let mut live = vec![0; kernels];
        for t in &view.tensors {
            let (from, to) = if t.is_weight {
                (0, kernels)
            } else {
                (t.birth.min(kernels), t.end().min(kernels))
            };
            for l in live.get_mut(from..to).unwrap_or_default() {
                *l += t.pages;
            }
        }
        let tensors = view.tensors.iter().map(|t| planner::Tensor {
            pages: t.pages,
            lasting: t.is_weight,
        });
        let uses = view.kernels.iter().enumerate().flat_map(|(k, kernel)| {
            let alive = move |t: &&u32| {
                let t = &view.tensors[**t as usize];
                t.is_weight || k < t.end()
            };
            let used = kernel.required.iter().filter(alive);
            used.map(move |&tensor| planner::Use {
                kernel: k as u32,
                tensor,
                // Every copy outside is lost when it is fetched.
                write: true,
            })
        });
        Self(planner::Step {
            // 1.2 cycles a nanosecond.
            kernel_ns: view.kernels.iter().map(|k| k.cycles * 5 / 6).collect(),
            live,
            tensors: tensors.collect(),
            uses: uses.collect(),
        })
    }

    fn plan(
        &self,
        machine: &Machine,
        tuning: planner::Tuning,
    ) -> Result<planner::Plan, planner::Error> {
        // Bytes per µs to ps a page.
        let (link, ssd) = link_rates(machine);
        let ps = |r: f64| (PAGE as f64 / r * 1e6) as u64;
        let pages = |gib: f64| (gib * (1u64 << 30) as f64) as u64 / PAGE;
        let memories = planner::Machine {
            gpu: pages(machine.gpu_gib * FILL),
            host: pages(machine.host_gib * 0.99),
            link_out: ps(link),
            link_in: ps(link),
            ssd_out: ps(ssd),
            ssd_in: ps(ssd),
            keep_clean: false,
        };
        planner::plan(&self.0, &memories, tuning)
    }
}

/// The planner's requests in the artifact's terms.
fn hints(view: &View, plan: &planner::Plan) -> Vec<Hint> {
    let hints = plan.requests.iter().filter_map(|r| {
        let to = match r.what {
            planner::What::Evict(planner::Tier::Host) => Target::Host,
            planner::What::Evict(planner::Tier::Ssd) => Target::Ssd,
            planner::What::Prefetch => Target::Gpu,
            // Copies are not kept here, nor is memory asked for.
            _ => return None,
        };
        Some(Hint::new(r.kernel as usize, r.tensor, to))
    });
    super::plan::with_lifetimes(view, hints.collect())
}
