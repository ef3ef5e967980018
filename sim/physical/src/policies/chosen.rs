// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the driver's chooser picks, as the program runs (`src/uvm_rust/policy/chooser.rs`).
//!
//! The process begins with what the driver has by default: the tree prefetcher, and nothing brought ahead of need. DeepUM's
//! predictor learns all the while, as the driver's does. What is evicted is the machine's policy's to say.

use uvm_policy::chooser::Ahead;
use uvm_policy::chooser::Along;
use uvm_policy::chooser::Chooser;
use uvm_policy::prefetch::Config;
use uvmsim_machine::BLOCK;

use super::DeepUm;
use super::Parts;
use crate::policy::Policy;
use crate::RunError;
use crate::System;

/// One process under the chooser.
pub struct Chosen {
    chooser: Chooser,
    ahead: Ahead,
    deepum: DeepUm,
    /// Whether the program announces its kernels.
    announces: bool,
}

impl Chosen {
    /// For a step whose kernels have these execution IDs, and whose program announces them or not, on a GPU with room for
    /// so many chunks.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub fn new(
        ids: Vec<u64>,
        announces: bool,
        chunks: u64,
        config: Config,
    ) -> Result<Self, RunError> {
        let chunks = u32::try_from(chunks).unwrap_or(u32::MAX);
        let chooser = Chooser::new(chunks)
            .map_err(|_| RunError::Infeasible("no memory for the chooser".into()))?;
        Ok(Self {
            chooser,
            ahead: Ahead::default(),
            deepum: DeepUm::new(ids, config)?.with(Parts::PreEvict),
            announces,
        })
    }

    fn follow(&mut self, s: &mut System<'_>) {
        if self.ahead.picked() {
            self.deepum.follow(s);
        }
    }
}

fn address(block: u32) -> u64 {
    u64::from(block) * BLOCK
}

impl Policy for Chosen {
    fn name(&self) -> &str {
        "chooser"
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        if self.announces {
            self.deepum.learn_kernel(k, s);
            self.ahead.looks(&self.deepum.stats());
            self.follow(s);
        }
    }

    fn fault(&mut self, block: u32, s: &mut System<'_>) {
        if self.announces {
            self.deepum.learn_fault(block);
            self.follow(s);
        }
    }

    fn along(&mut self, block: u32, s: &mut System<'_>) -> Option<Along> {
        for left in s.left() {
            self.chooser.left(address(left));
        }
        Some(self.chooser.faults(address(block)))
    }

    fn served(&mut self, block: u32, faulted: u32, pages: u32, work: u32) {
        self.chooser.copied(address(block), pages.into());
        self.chooser.served(address(block), faulted, work);
    }

    fn watches(&self) -> bool {
        true
    }
}
