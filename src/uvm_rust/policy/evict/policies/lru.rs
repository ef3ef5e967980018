// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The least recently migrated chunk goes first, unless a kernel that runs or comes soon is expected to
//! access it (DeepUM §5.1). Without a prefetcher this is upstream's order.
//!
//! # Why a kernel gets on
//!
//! A kernel may need blocks that nobody expects, while all else is expected. Each comes by a fault, and if
//! one made way for the other, they could do so for ever. So a mark spares its chunk only at the expense of one
//! that is `Over`. Any other chunk without a mark goes only when it is the oldest of all, as it would
//! without marks.
//!
//! Let faults bring k blocks that fit the chunks that may be evicted, while their processes announce no
//! kernel. A chunk that one of them has come to is `Running` or `Unknown`, so it goes only when all other used
//! chunks were used after it. If nothing else comes, these hold k - 2 of the blocks at most when one more
//! faults, so that an older chunk is there. Each block comes once: k evictions, whatever is marked. What
//! others fault on meanwhile counts as it does upstream, and no prefetch takes what is needed
//! (`Victim::expected`). A kernel that is announced meanwhile makes the k blocks `Over`, and
//! each may have to come once more.
//!
//! It is the same once a kernel has gone through more than there is room for, and its blocks are `Unknown`; but a
//! prefetch may then take the oldest of them.

use super::{first_unspared, Chunk, OutOfMemory, Policy, Standing, Used};

/// The policy `lru`, which keeps nothing of its own: the used queue has the order.
pub(super) struct Lru;

impl Policy for Lru {
    const NAME: &'static str = "lru";

    fn new(_: u32) -> Result<Self, OutOfMemory> {
        Ok(Self)
    }

    // The caller has looked at the oldest already, if all chunks may go.
    const OLDEST_UNLESS_NEEDED: bool = true;

    fn choose(&self, used: Used<'_>) -> Option<Chunk> {
        let first = used.oldest()?;
        let chunks = used.oldest_first().map(|c| (c, standing(used, c, first)));
        first_unspared(chunks).map(|(chunk, _)| chunk)
    }
}

/// Who needs `chunk`, if `first` is the oldest chunk that may go. Kernels that other processes announce do not hurt a
/// process that announces none: its chunks go when they are the oldest, and no earlier.
pub(super) fn standing(used: Used<'_>, chunk: Chunk, first: Chunk) -> Standing {
    match used.standing(chunk) {
        Standing::Unknown if chunk != first => Standing::Running,
        standing => standing,
    }
}
