// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Sizes: what is given for a request, and what is asked of CUDA for it.
//!
//! They are those of PyTorch's own allocator (c10/cuda/CUDACachingAllocator.cpp, as of 2.9:
//! `kMinBlockSize`, `kSmallSize`, `kSmallBuffer`, `kLargeBuffer`, `kMinLargeAlloc`,
//! `kRoundLarge`), so that a program which fits the GPU with that fits with this.

/// UVM's block, the unit of eviction: what is discarded is whole blocks.
pub(crate) const BLOCK: u64 = 2 << 20;

/// Sizes are multiples of this, and so are addresses; PyTorch relies on their alignment.
const UNIT: u64 = 512;

/// Requests of up to this share segments of [`BLOCK`] bytes.
const SMALL: u64 = 1 << 20;

/// Requests of less than this share segments of [`SHARED`] bytes; larger ones begin one.
const OWN: u64 = 10 << 20;

/// The bytes of a segment that requests between [`SMALL`] and [`OWN`] share.
const SHARED: u64 = 20 << 20;

/// The bytes that are given for a request; `None` if it is too large.
pub(crate) fn rounded(size: usize) -> Option<u64> {
    // No segment may be longer than half the address space.
    let size = u64::try_from(size).ok().filter(|&size| size < 1 << 62)?;
    Some(size.max(1).next_multiple_of(UNIT))
}

/// Whether a length of [`rounded`] is taken from the small segments.
pub(crate) fn is_small(length: u64) -> bool {
    length <= SMALL
}

/// The bytes of a new segment in which a length of [`rounded`] fits.
pub(crate) fn segment_for(length: u64) -> u64 {
    match length {
        _ if is_small(length) => BLOCK,
        _ if length < OWN => SHARED,
        _ => length.next_multiple_of(BLOCK),
    }
}

/// Whether what is left of a free part, `rest` bytes of it, is one for itself.
pub(crate) fn splits(small: bool, rest: u64) -> bool {
    match small {
        true => rest >= UNIT,
        false => rest > SMALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_hold_what_is_asked_and_little_more() {
        let odd = [0, 1, 512, 513, 1 << 20, (1 << 20) + 1, (10 << 20) - 1];
        for size in (1..200_000_000).step_by(98_765).chain(odd) {
            let length = rounded(size).unwrap();
            assert!(length >= size as u64 && length % UNIT == 0 && length <= size as u64 + UNIT);
            let segment = segment_for(length);
            assert!(segment >= length && segment % BLOCK == 0, "{size}");
            assert!(segment - length < BLOCK || segment <= SHARED, "{size}");
        }
        assert_eq!(rounded(usize::MAX), None);
    }
}
