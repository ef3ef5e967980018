// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whether DeepUM's prefetcher brings what it predicts: by how often the kernel that came was the predicted one.
//!
//! The predictor has a back-off of its own, which halves the number of kernels that it looks ahead with each wrong one.
//! That does not turn the predictor off, and forgets after as many kernels. Here whole windows of kernels are looked at. A
//! kernel where none had been predicted, as after one that is unknown, is neither right nor wrong. A process that announces
//! none has nothing brought.

use super::super::prefetch::Stats;

/// Kernels in a window, at least, where one had been predicted.
const WINDOW: u64 = 16;

/// The kernels that a process announces on one GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead {
    /// Kernels until the window began where one had been predicted, and those of them that were the predicted ones.
    before: (u64, u64),
    is_on: bool,
}

impl Ahead {
    /// Looks at what the predictor has counted, which never goes back. Returns whether what it predicts is to be brought.
    pub fn looks(&mut self, stats: &Stats) -> bool {
        let so_far = stats.kernels_right.saturating_add(stats.kernels_wrong);
        let kernels = so_far.saturating_sub(self.before.0);
        let right = stats.kernels_right.saturating_sub(self.before.1);
        if kernels >= WINDOW {
            // Between the two it stays as it is.
            if right.saturating_mul(8) >= kernels.saturating_mul(7) {
                self.is_on = true;
            } else if right.saturating_mul(2) < kernels {
                self.is_on = false;
            }
            self.before = (so_far, stats.kernels_right);
        }
        self.is_on
    }

    /// Whether what is predicted is brought, as was said last.
    pub fn picked(&self) -> bool {
        self.is_on
    }
}
