// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What goes into a predictor and what comes out.

use super::blocks::Shape;

/// The 2 MiB of virtual addresses of a va_block, as address divided by 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UmBlock(pub(super) u32);

impl UmBlock {
    const SHIFT: u32 = 21;
    /// How many bytes a block covers.
    pub(super) const SIZE: u64 = 1 << Self::SHIFT;

    /// The block that holds `address`; `None` from 2^53 - 2^21 on, where no GPU of
    /// today has managed memory.
    pub fn from_address(address: u64) -> Option<Self> {
        let n = u32::try_from(address >> Self::SHIFT).ok()?;
        // The tables use the last number for "none".
        (n != u32::MAX).then_some(Self(n))
    }

    /// The first address of the block.
    pub fn address(self) -> u64 {
        u64::from(self.0) << Self::SHIFT
    }
}

/// An execution ID: the same for launches of the same kernel with the same arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExecId(pub u64);

/// How far a walk through a block table goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// To the end block, as in the paper.
    ToEnd,
    /// To everything that can be reached from the start block.
    Exhaustive,
}

/// Parameters of a predictor: sizes, limits, and how far it looks ahead.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Dimensions of a block table.
    pub shape: Shape,
    /// Kernels to look ahead, the current one not counted (`N`); at most 4096.
    pub ahead: u32,
    /// How far a walk goes.
    pub walk: Walk,
    /// IDs remembered, at most.
    pub max_kernels: u32,
    /// Records of one ID, at most.
    pub max_records: u32,
    /// Bytes that the tables may take together.
    pub memory_limit: usize,
    /// A number that is unknown to the programs that choose the IDs.
    pub seed: u64,
}

impl Default for Config {
    /// The paper's best: table 6, configuration 9, and N = 32 (figure 11). The walk
    /// is ours, as it learns a little faster and was never worse, and so is the limit
    /// of 64 MiB.
    fn default() -> Self {
        Self {
            shape: Shape::DEEPUM,
            ahead: 32,
            walk: Walk::Exhaustive,
            max_kernels: 16384,
            max_records: 64,
            memory_limit: 64 << 20,
            seed: 0,
        }
    }
}

/// A block to prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetch {
    /// The block that is to be brought to the GPU.
    pub block: UmBlock,
    /// The kernel that is expected to access it.
    pub kernel: ExecId,
    /// How many kernels ahead that is; 0 is the current one.
    pub ahead: u32,
    /// How far the block has come on its way from the SSD.
    pub ssd: FromSsd,
}

/// How far a prefetch has come whose block is on the SSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FromSsd {
    /// The block is not on its way.
    #[default]
    Not,
    /// Others read pages of the block; the prefetch has asked for none.
    Comes,
    /// The prefetch has asked for pages of the block, which it does once.
    Asked,
    /// The kernel is over, and pages of the block were on their way. The block keeps its place until they have come,
    /// and is not brought.
    Over,
}

impl Prefetch {
    /// This prefetch, with pages of its block on their way.
    pub(super) fn coming(self) -> Self {
        match self.ssd {
            FromSsd::Not => Self {
                ssd: FromSsd::Comes,
                ..self
            },
            _ => self,
        }
    }

    /// This prefetch, with pages of its block asked for.
    pub(super) fn asked(self) -> Self {
        let ssd = FromSsd::Asked;
        Self { ssd, ..self }
    }

    /// This prefetch, whose block is not to be brought any more once its pages have come.
    pub(super) fn over(self) -> Self {
        let ssd = FromSsd::Over;
        Self { ssd, ..self }
    }
}

/// What one call of `Predictor::next` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A block to prefetch.
    Prefetch(Prefetch),
    /// Nothing yet, but there is more to look at. Call again.
    More,
    /// Nothing until the next kernel or fault.
    Idle,
}

/// What was predicted, and how well. Counters never go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Kernels that were announced so far.
    pub kernels: u64,
    /// Announced kernels that had been predicted to come next.
    pub kernels_right: u64,
    /// Announced kernels where another had been predicted.
    pub kernels_wrong: u64,
    /// Faulted blocks, repetitions not counted.
    pub faults: u64,
    /// Faulted blocks that were not in their kernel's table.
    pub faults_unknown: u64,
    /// Blocks handed out for prefetching.
    pub prefetches: u64,
    /// IDs dropped for lack of room.
    pub dropped: u64,
    /// IDs that the tables remember now.
    pub remembered: u32,
    /// Bytes that all tables take now.
    pub table_bytes: usize,
    /// How many kernels the back-off lets the chain look ahead now.
    pub window: u32,
}
