// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Picks, for one process on one GPU, what comes along with a page that faults, and whether predicted blocks are brought
//! ahead of need, by what the process has been seen to do.
//!
//! This is in the style of HELM ("HELM: Characterizing Unified Memory Accesses to Improve GPU Performance Under Memory
//! Oversubscription", SC 2025): measures that a reader can understand, of what a driver can count, select a policy. Only
//! that paper's abstract was at hand, so that the measures and the rules here are our own. There are two of them, and
//! neither needs the other:
//!
//! - `duel`: whether what comes along with faults saves more work than it brings pages in vain. A few blocks are served
//!   another way from time to time, and the costs are compared. That is set dueling (M. K. Qureshi et al., "Adaptive
//!   insertion policies for high performance caching", ISCA 2007), on va_blocks.
//! - `ahead`: whether announced kernels come as DeepUM's predictor has said. Then what the predictor says is brought.
//!
//! Time is counted in *arrivals*: blocks on which a fault is served, where the process has had nothing on the GPU before.
//! A process of which nothing moves costs nothing, and is left as it is.
//!
//! Locking: the caller serialises all calls. Only [`Chooser::new`] allocates, and all calls take constant time.

mod ahead;
mod duel;
mod here;

use crate::mem::OutOfMemory;
pub use ahead::Ahead;
use duel::Duel;
use here::Here;

/// What comes with a page that faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Along {
    /// What the tree prefetcher says.
    #[default]
    Tree,
    /// Nothing but the page itself.
    Nothing,
    /// All of the va_block that may come.
    Block,
}

impl Along {
    /// All that can be picked.
    pub const ALL: [Self; 3] = [Self::Tree, Self::Nothing, Self::Block];

    /// What it is called in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Nothing => "nothing",
            Self::Block => "block",
        }
    }

    /// The threshold, in percent, with which the tree prefetcher (`tree`) does so, whose own is `tree`. No part of a block
    /// has more than all of its pages, and every part with a fault in it has more than none.
    pub const fn threshold(self, tree: u32) -> u32 {
        match self {
            Self::Tree => tree,
            Self::Nothing => 100,
            Self::Block => 0,
        }
    }
}

/// What the service of one of `blocks` va_blocks in a batch of faults costs, in copies of a page of 4 KiB. This is for who
/// cannot measure it: 45 us from the interrupt to the replay, shared by the blocks of the batch, and 2 us for each block,
/// on a link of 25 GB/s.
pub const fn service_work(blocks: u32) -> u32 {
    const BATCH: u32 = 274;
    const BLOCK: u32 = 12;
    BATCH / if blocks == 0 { 1 } else { blocks } + BLOCK
}

/// What is known of one process on one GPU, and what comes along with its faults.
pub struct Chooser {
    duel: Duel,
    here: Here,
}

impl Chooser {
    /// For a GPU with `chunks` chunks of 2 MiB. Takes 8 bytes for each, or up to twice that.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            duel: Duel::new(chunks),
            here: Here::new(chunks)?,
        })
    }

    /// Faults on the block at `address` are about to be served. Returns what comes along.
    pub fn faults(&mut self, address: u64) -> Along {
        if self.here.comes(address) {
            self.duel.arrived(address);
        }
        self.duel.along(address)
    }

    /// So many `pages` of 4 KiB of the block at `address` are copied for a fault, those included that come along.
    pub fn copied(&mut self, address: u64, pages: u64) {
        self.duel.copied(address, pages);
    }

    /// Faults on so many pages of the block at `address` were served. Besides the copies, that cost as much time as a copy
    /// of `work` pages.
    pub fn served(&mut self, address: u64, faulted: u32, work: u32) {
        self.duel.served(address, faulted, work);
    }

    /// The block at `address` was evicted, or memory of it was freed: what comes there next has not been there.
    pub fn left(&mut self, address: u64) {
        self.here.leaves(address);
    }

    /// What comes along with faults now, but for the few blocks that have another rule in a duel.
    pub fn picked(&self) -> Along {
        self.duel.picked()
    }
}

#[cfg(test)]
mod tests;
