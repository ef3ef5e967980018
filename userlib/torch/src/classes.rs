// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Sizes that are kept apart in the cache.

/// UVM's block. Blocks of at least this are allocated for themselves, in multiples
/// of it, and discarded; smaller ones share one.
pub(crate) const BLOCK: usize = 2 << 20;

/// Smallest size given out; PyTorch relies on its alignment.
const MIN: usize = 512;

/// The size that is given for a request, in bytes; `None` if it is too large.
///
/// Small ones are powers of two. Large ones have eight steps to a power of two, in
/// multiples of 2 MiB, so that at most an eighth is lost over 2 MiB.
pub(crate) fn class_of(size: usize) -> Option<usize> {
    if size <= BLOCK / 2 {
        return Some(size.max(MIN).next_power_of_two());
    }
    let step = (size.checked_next_power_of_two()? / 16).max(BLOCK);
    size.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_is_asked_and_little_more() {
        for size in
            (1..200_000_000)
                .step_by(98_765)
                .chain([0, 1, 512, 513, BLOCK / 2, BLOCK / 2 + 1])
        {
            let class = class_of(size).unwrap();
            assert!(class >= size && class % MIN == 0);
            assert_eq!(class_of(class), Some(class), "{size}");
            match size <= BLOCK / 2 {
                true => assert!(class.is_power_of_two() && class <= (2 * size).max(MIN)),
                false => {
                    assert!(class % BLOCK == 0 && class - size < (size / 8).max(BLOCK) + BLOCK)
                }
            }
        }
        assert_eq!(class_of(usize::MAX), None);
        assert_eq!(class_of(usize::MAX / 2 + 2), None);
    }
}
