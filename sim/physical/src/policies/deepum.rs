// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! DeepUM (ASPLOS 2023), on the driver's own correlation tables.
//!
//! Nothing is known in advance: the predictor learns from the kernels' execution
//! IDs and from faults, and mispredicts where it must. Predicted blocks are
//! prefetched up to N kernels ahead; the least recently migrated block that no
//! predicted kernel needs is evicted before memory runs out (section 5.1); pages
//! of tensors that the framework has freed are dropped unwritten (section 5.2).

use uvm_policy::prefetch::Config;
use uvm_policy::prefetch::ExecId;
use uvm_policy::prefetch::Next;
use uvm_policy::prefetch::Predictor;
use uvm_policy::prefetch::Stats;
use uvm_policy::prefetch::UmBlock;
use uvmsim_machine::BLOCK;

use crate::policy::Policy;
use crate::RunError;
use crate::System;

/// Chunks to keep free by evicting ahead of need, and of how many of the GPU's one at most:
/// a GPU of 16 GB has the 64.
const SPARE_CHUNKS: u64 = 64;
const SPARE_OF: u64 = 32;
/// Blocks prefetched at a time, so that a wrong chain can be given up.
const AHEAD: usize = 256;

/// How much of DeepUM: each has what the one before it has (section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Parts {
    /// Predicted blocks are prefetched, and nothing else.
    Prefetch,
    /// Blocks are also evicted ahead of need.
    PreEvict,
    /// What the framework has freed is also dropped unwritten.
    All,
}

/// DeepUM for one step: its predictor, and the execution IDs of the step's kernels.
pub struct DeepUm {
    predictor: Predictor,
    /// Execution ID of each kernel: name and arguments, hashed.
    ids: Vec<ExecId>,
    parts: Parts,
    /// Whether a kernel is announced, asked for each that starts; `None`: all are.
    announces: Option<Box<dyn FnMut(usize) -> bool>>,
}

impl DeepUm {
    /// For a step whose kernels have these execution IDs.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub fn new(ids: Vec<u64>, config: Config) -> Result<Self, RunError> {
        let predictor = Predictor::new(config)
            .map_err(|_| RunError::Infeasible("no memory for DeepUM's tables".into()))?;
        Ok(Self {
            predictor,
            ids: ids.into_iter().map(ExecId).collect(),
            parts: Parts::All,
            announces: None,
        })
    }

    /// With these kernels announced alone, of which each is asked for when it starts. Those between two belong
    /// to the first: what they fault on is learnt of its ID.
    #[must_use]
    pub fn announcing(self, which: impl FnMut(usize) -> bool + 'static) -> Self {
        Self {
            announces: Some(Box::new(which)),
            ..self
        }
    }

    /// With these parts only.
    #[must_use]
    pub fn with(self, parts: Parts) -> Self {
        Self { parts, ..self }
    }

    /// Blocks `first` to `last` were freed, and what is known of them is forgotten. So does the driver, to
    /// which an address that is freed is another's; PyTorch's allocator, which DeepUM is for, keeps its
    /// own.
    pub fn forget(&mut self, first: u32, last: u32) {
        if let (Some(first), Some(last)) = (um_block(first), um_block(last)) {
            self.predictor.forget(first, last);
        }
    }

    /// The kernel `k` starts, which is learnt, and nothing is brought.
    pub(super) fn learn_kernel(&mut self, k: usize, s: &mut System<'_>) {
        let _ = self.predictor.on_kernel(self.ids[k]);
        s.set_clock(self.predictor.now());
    }

    /// A fault on `block` is served, which is learnt, and nothing is brought.
    pub(super) fn learn_fault(&mut self, block: u32) {
        if let Some(b) = um_block(block) {
            let _ = self.predictor.on_fault(b);
        }
    }

    /// What was predicted, and how well.
    pub fn stats(&self) -> Stats {
        self.predictor.stats()
    }

    /// Follows the chain as far as the queue has room.
    pub(super) fn follow(&mut self, s: &mut System<'_>) {
        while s.queued() < AHEAD {
            match self.predictor.next(64) {
                Next::Prefetch(p) => {
                    let block = (p.block.address() / BLOCK) as u32;
                    self.expect(block, p.ahead, s);
                    s.prefetch_block(block);
                }
                Next::More => {}
                Next::Idle => break,
            }
        }
        if self.parts >= Parts::PreEvict {
            self.make_room(s);
        }
    }

    /// `block` is expected by the kernel that is `ahead`.
    fn expect(&self, block: u32, ahead: u32, s: &mut System<'_>) {
        if self.parts >= Parts::PreEvict {
            s.expect(block, ahead);
        }
    }

    /// Evicts ahead of need, if there is something to bring in.
    fn make_room(&self, s: &mut System<'_>) {
        let spare = SPARE_CHUNKS.min(s.machine.chunks() / SPARE_OF);
        while s.queued() > 0 && s.free_chunks() + s.evicting() < spare && s.push_out() {}
    }
}

pub(super) fn um_block(block: u32) -> Option<UmBlock> {
    UmBlock::from_address(u64::from(block) * BLOCK)
}

impl Policy for DeepUm {
    fn name(&self) -> &str {
        match self.parts {
            Parts::All => "deepum",
            _ => "deepum-partly",
        }
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        if self.announces.as_mut().is_none_or(|which| which(k)) {
            // Without memory the predictor merely predicts less.
            let _ = self.predictor.on_kernel(self.ids[k]);
        }
        if self.parts >= Parts::PreEvict {
            s.set_clock(self.predictor.now());
        }
        self.follow(s);
    }

    fn fault(&mut self, block: u32, s: &mut System<'_>) {
        if let Some(b) = um_block(block) {
            let _ = self.predictor.on_fault(b);
        }
        self.follow(s);
    }

    fn whole_blocks(&self) -> bool {
        true
    }

    fn invalidates(&self) -> bool {
        self.parts == Parts::All
    }
}
