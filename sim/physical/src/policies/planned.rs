// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The policy that executes a plan.

use crate::plan::Plan;
use crate::plan::What;
use crate::policy::Policy;
use crate::policy::Tier;
use crate::System;

/// A policy that makes a plan's requests, and releases tensors when they die.
///
/// What the plan did not foresee is UVM's: faults, and reclaim of the least
/// recently migrated chunk that neither this kernel nor the next uses.
pub struct Planned {
    name: &'static str,
    plan: Plan,
    faultless: bool,
    reclaim_to: Tier,
    /// Kernels that have started.
    clock: u32,
}

impl Planned {
    /// A plan run under UVM.
    pub fn new(name: &'static str, plan: Plan, reclaim_to: Tier) -> Self {
        Self {
            name,
            plan,
            faultless: false,
            reclaim_to,
            clock: 0,
        }
    }

    /// A plan run by a runtime that copies whole blocks itself, without faults.
    pub fn faultless(name: &'static str, plan: Plan, reclaim_to: Tier) -> Self {
        Self {
            faultless: true,
            ..Self::new(name, plan, reclaim_to)
        }
    }
}

impl Policy for Planned {
    fn name(&self) -> &str {
        self.name
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        self.clock = self.clock.wrapping_add(1);
        s.set_clock(self.clock);
        s.expect_all(k, 0);
        s.expect_all(k + 1, 1);
        if self.clock == 1 {
            s.name_parts(&self.plan.parts);
        }
        for &(what, t) in &self.plan.behind[k] {
            s.behind(t, what);
        }
        for &(what, t) in &self.plan.before[k] {
            match what {
                What::Prefetch | What::Allocate => s.prefetch(t),
                What::Free => s.release(t),
                What::Discard => s.discard(t, false),
                What::Evict(tier) => s.evict(t, tier),
                What::Copy(tier) => s.copy(t, tier),
            }
        }
        if let Some(ahead) = self.plan.allocate_ahead {
            let layout = s.layout;
            let from = if k == 0 { 0 } else { k + ahead as usize };
            for births in layout.births.iter().take(k + ahead as usize + 1).skip(from) {
                for &t in births {
                    s.prefetch(t);
                }
            }
        }
    }

    fn kernel_end(&mut self, k: usize, s: &mut System<'_>) {
        let layout = s.layout;
        if self.plan.releases {
            for &t in &layout.deaths[k] {
                s.release(t);
            }
        }
    }

    fn reclaim_to(&self) -> Tier {
        self.reclaim_to
    }

    fn waits(&self) -> bool {
        true
    }

    fn faultless(&self) -> bool {
        self.faultless
    }
}
