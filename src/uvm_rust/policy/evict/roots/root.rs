// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is known of each chunk.

use super::{Holder, Owner, Queue};

/// The owner that expects a chunk, and the kernel up to which it does.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    pub(super) owner: Owner,
    /// A kernel's number in its owner's sequence.
    pub(super) until: u32,
}

/// The kernel that ran when a chunk was last asked for.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    pub(super) owner: Owner,
    /// The kernel's number among those that its owner has begun.
    pub(super) kernel: u32,
}

/// Whether a chunk was taken for an eviction, and has not come back since.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) enum Leaving {
    #[default]
    No,
    /// The chunk is evicted for anybody.
    Yes,
    /// The chunk goes because its own process wants another one.
    ForOwner,
}

/// What is known of a chunk, but for the queue that it is on. All of it is in one place, which a change finds at once.
#[derive(Clone, Copy)]
pub(in super::super) struct Root {
    /// The chunk's process; 0 for none, or several.
    pub(super) holder: Holder,
    pub(super) mark: Mark,
    /// The kernel that ran when the chunk was last asked for. It has no owner if no kernel was known, or if nobody has
    /// asked for the chunk.
    pub(super) asked: Asked,
    /// The mark for which a prediction brought the chunk, until somebody asks for it.
    pub(super) brought: Mark,
    pub(in super::super) belongs: Queue,
    /// Whether the chunk was taken for an eviction, and has not come back since.
    pub(in super::super) leaving: Leaving,
    /// Which eviction has failed, as a change has told, whose end is not told yet.
    pub(in super::super) failed: Leaving,
    /// Whether an eviction is under way that counts in [`RootChunks::evictions`](super::RootChunks::evictions).
    pub(super) counted: bool,
}

impl Root {
    /// Nobody's, and asked for by nobody.
    pub(super) const fn new() -> Self {
        let nobodys = Mark { owner: 0, until: 0 };
        Self {
            holder: 0,
            mark: nobodys,
            asked: Asked {
                owner: 0,
                kernel: 0,
            },
            brought: nobodys,
            belongs: Queue::Used,
            leaving: Leaving::No,
            failed: Leaving::No,
            counted: false,
        }
    }

    /// Whoever runs this kernel has asked for the chunk.
    #[inline(always)]
    pub(super) fn ask(&mut self, running: Asked) {
        self.asked = running;
        self.brought = Mark::default();
    }

    /// Nobody expects the chunk, has brought it or has asked for it.
    #[inline(always)]
    pub(in super::super) fn forget(&mut self) {
        self.mark = Mark::default();
        self.asked = Asked::default();
        self.brought = Mark::default();
    }
}
