// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The last part of the search: changes at random, tensors in pieces, and what leaves behind kernels.

use super::Search;
use super::NEAR;
use crate::plan::behind::Trailing;
use crate::plan::change::Changes;
use crate::plan::pieces::Pieces;

/// A step of which so many changed plans can be run is small enough to be planned in pieces, too.
const SMALL: usize = 100;

impl Search<'_> {
    /// Small changes of the best plan, as long as there is time for them; tensors may leave behind kernels, or not.
    pub(super) fn change(&mut self, behind: bool) {
        let (workload, layout) = self.planned;
        let mut changes = Changes::new(workload, layout, behind);
        for _ in 0..changes.tries {
            if self.is_within(NEAR) {
                return;
            }
            let Some((_, plan)) = &self.best else { return };
            let Some(plan) = changes.change(plan) else {
                return;
            };
            self.consider(plan);
        }
    }

    /// What was set aside is the best, if it is faster.
    pub(super) fn take_back(&mut self) {
        let aside = self.aside.take();
        if let Some(aside) = aside.filter(|(out, _)| out.step_ns < self.best_ns()) {
            self.best = Some(aside);
        }
    }

    /// With what leaves behind kernels, and with large tensors in pieces; and small changes of that. It begins with
    /// what there was before changes, as few changes lead from one whose tensors are whole to one with parts.
    pub(super) fn finely(&mut self) {
        if Changes::new(self.workload, self.layout, true).tries < SMALL {
            self.sooner();
            return self.change(true);
        }
        self.trail();
        self.sooner();
        let cut = Pieces::new(self.machine, self.workload, self.layout);
        let Some(pieces) = &cut else {
            return self.change(true);
        };
        let best = self.best.as_ref();
        let mut search = Search {
            planned: (&pieces.workload, &pieces.layout),
            pieces: Some(pieces),
            trailing: Trailing::default(),
            best: best.map(|(out, plan)| (out.clone(), pieces.cut(plan))),
            aside: None,
            error: self.error.clone(),
            ..*self
        };
        search.tune();
        search.again();
        search.trail();
        search.sooner();
        search.change(true);
        self.runs = search.runs;
        let found = search.best.filter(|(out, _)| out.step_ns < self.best_ns());
        if let Some((out, plan)) = found {
            self.best = Some((out, pieces.named(&plan)));
        }
    }

    /// Plans in which what dies with a kernel leaves behind it.
    fn trail(&mut self) {
        self.trailing = Trailing::new(self.machine, self.planned, &self.step(0));
        if !self.trailing.less().is_empty() {
            self.tune();
            self.again();
            self.trailing = Trailing::default();
        }
    }

    /// The best plan, but with all that leaves right after a kernel that uses it leaving behind that.
    fn sooner(&mut self) {
        if let Some((_, plan)) = &self.best {
            let sooner = plan.sooner(self.planned.0);
            self.consider(sooner);
        }
    }
}
