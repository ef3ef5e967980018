// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whether a record has a caching allocator's segments in the place of tensors.

use super::recording::Recording;

/// What all segments of PyTorch's cache are multiples of.
const SEGMENT: u64 = 2 << 20;
/// The segment of tensors from 1 MiB to 10 MiB.
const LARGE: u64 = 20 << 20;
/// A kernel makes a tensor, as a rule: launches for each allocation, from which on allocations are few.
const FEW: usize = 4;

/// What is to be said of a record whose allocations are few, and have the sizes of the segments of PyTorch's cache.
pub(super) fn warning(recording: &Recording) -> Option<String> {
    let all = &recording.allocations;
    let segments = all.iter().all(|a| a.bytes % SEGMENT == 0);
    let few = all.len() * FEW <= recording.launches.len();
    if !(few && segments && all.iter().any(|a| a.bytes == LARGE)) {
        return None;
    }
    Some(format!(
        ". WARNING: all memory is in {} allocations of the sizes of PyTorch's cache, which hides the tensors in them: a \
         plan moves whole allocations. Record without --pytorch-cache",
        all.len(),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn warned(mib: &[u64], launches: usize) -> bool {
        let mut text: String = mib.iter().map(|mib| format!("a {}\n", mib << 20)).collect();
        text += &"k 0 kernel -\n".repeat(launches);
        warning(&Recording::parse(&text).unwrap()).is_some()
    }

    #[test]
    fn the_segments_of_a_cache_are_told_from_tensors() {
        assert!(warned(&[2, 20, 20, 64], 16));
        // More allocations, other sizes, or none of those that tensors of some MiB lie in.
        assert!(!warned(&[2, 20, 20, 64], 15));
        assert!(!warned(&[2, 20, 20, 63], 16));
        assert!(!warned(&[2, 4, 64], 16));
        assert!(!warned(&[], 16));
    }
}
