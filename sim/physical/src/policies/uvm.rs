// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! UVM as it is, with prefetches by hand, and with discard.

use crate::policy::Policy;
use crate::System;

/// Upstream UVM: migration on faults, the tree prefetcher, reclaim of the least
/// recently migrated root chunk.
#[derive(Debug, Default)]
pub struct BaseUvm;

impl Policy for BaseUvm {
    fn name(&self) -> &str {
        "base-uvm"
    }
}

/// UVM with a prefetch of each kernel's tensors one kernel ahead, and a discard
/// of each tensor after its last use (UvmDiscard listing 6, section 7.5).
#[derive(Debug)]
pub struct Discard {
    /// Its name, and whether discards are eager; `None`: prefetches only, the paper's UVM-opt.
    of: (&'static str, Option<bool>),
}

impl Discard {
    /// Prefetches each kernel ahead, without discards.
    pub const OPT: Self = Self {
        of: ("uvm-opt", None),
    };
    /// UvmDiscard: pages are unmapped at once.
    pub const EAGER: Self = Self {
        of: ("uvm-discard", Some(true)),
    };
    /// UvmDiscardLazy: pages stay mapped until they are taken.
    pub const LAZY: Self = Self {
        of: ("uvm-discard-lazy", Some(false)),
    };
}

/// Prefetches, as kernel `k` starts, what the next uses; the calls before it are in its stream.
pub fn prefetch_ahead(k: usize, s: &mut System<'_>) {
    if k == 0 {
        prefetch_for(0, s);
    }
    s.in_stream();
    prefetch_for(k + 1, s);
}

fn prefetch_for(k: usize, s: &mut System<'_>) {
    let workload = s.workload;
    if let Some(kernel) = workload.kernels.get(k) {
        for u in &kernel.uses {
            s.prefetch(u.tensor);
        }
    }
}

impl Policy for Discard {
    fn name(&self) -> &str {
        self.of.0
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        prefetch_ahead(k, s);
    }

    fn kernel_end(&mut self, k: usize, s: &mut System<'_>) {
        if let Some(eager) = self.of.1 {
            let layout = s.layout;
            for &t in &layout.deaths[k] {
                s.discard(t, eager);
            }
        }
    }

    fn waits(&self) -> bool {
        true
    }
}

/// Everything in GPU memory, however much it is: the sum of the kernels'
/// durations.
#[derive(Debug, Default)]
pub struct Ideal;

impl Policy for Ideal {
    fn name(&self) -> &str {
        "ideal"
    }

    fn unlimited(&self) -> bool {
        true
    }
}
