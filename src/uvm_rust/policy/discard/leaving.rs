// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A GPU leaves a VA space. What it has of a va_block goes to the host, but for what is discarded, which is dropped.

/// How often the pages of one va_block are dropped anew because the block's lock was let go on the way. It is let go for the
/// memory of a page table, which then stays with the block. A block of 2 MiB has three tables at most on each of 32 GPUs.
/// Other threads take little away meanwhile, as the VA space's lock is held for writing.
pub const TRIES: u32 = 128;

/// Calls `once` until it does not let the block's lock go, [`TRIES`] times at most. `once` drops what is discarded by then. It
/// returns whether it let the lock go; after that nothing holds which was known of the block.
///
/// Returns false if no try came to its end. What was not dropped by then is moved with the rest. That costs a copy of
/// discarded pages, and loses nothing.
pub fn drop_leaving(mut once: impl FnMut() -> bool) -> bool {
    (0..TRIES).any(|_| !once())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many tries there are if so many let the lock go, and whether the last one came to its end.
    fn tries(let_go: u32) -> (u32, bool) {
        let mut tries = 0;
        let ended = drop_leaving(|| {
            tries += 1;
            tries <= let_go
        });
        (tries, ended)
    }

    #[test]
    fn a_try_that_keeps_the_lock_is_the_last() {
        assert_eq!(tries(0), (1, true));
        assert_eq!(tries(5), (6, true));
        assert_eq!(tries(TRIES - 1), (TRIES, true));
    }

    #[test]
    fn a_block_whose_lock_is_let_go_each_time_is_given_up() {
        assert_eq!(tries(TRIES), (TRIES, false));
        assert_eq!(tries(u32::MAX), (TRIES, false));
    }

    /// Each table that a try got memory for is there at the next try.
    #[test]
    fn there_are_tries_for_each_table_of_each_gpu() {
        let (tables, gpus) = (3, 32);
        assert_eq!(tries(tables * gpus), (tables * gpus + 1, true));
    }
}
