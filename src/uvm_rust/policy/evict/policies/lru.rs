// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The least recently migrated chunk goes first, unless a kernel that comes soon is expected to
//! access it (DeepUM §5.1). Without a prefetcher this is upstream's order.

use super::{Chunk, OutOfMemory, Policy, Used};

/// The policy `lru`, which keeps nothing of its own: the used queue has the order.
pub(super) struct Lru;

impl Policy for Lru {
    const NAME: &'static str = "lru";

    fn new(_: u32) -> Result<Self, OutOfMemory> {
        Ok(Self)
    }

    fn choose(&self, used: Used<'_>) -> Option<Chunk> {
        first_unexpected(used.oldest_first(), |c| used.needed_in(c)).map(|(chunk, _)| chunk)
    }
}

/// The first of `chunks` that is not expected. `needed_in` gives the kernels until a chunk is needed,
/// `None` if it is not expected. If all are, the one that is needed last is chosen, because a fault must
/// be served now; the oldest would be the one that was prefetched first and is needed next. The second
/// part of what is returned is whether the chunk is expected.
pub(in super::super) fn first_unexpected(
    chunks: impl Iterator<Item = Chunk>,
    mut needed_in: impl FnMut(Chunk) -> Option<u32>,
) -> Option<(Chunk, bool)> {
    let mut last = None;
    for chunk in chunks {
        let Some(kernels) = needed_in(chunk) else {
            return Some((chunk, false));
        };
        if last.is_none_or(|(most, _)| kernels > most) {
            last = Some((kernels, chunk));
        }
    }
    last.map(|(_, chunk)| (chunk, true))
}
