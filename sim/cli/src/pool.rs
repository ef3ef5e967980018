// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Work on several threads.

use rayon::prelude::*;

/// How many threads there are at once, at the most.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What `work` makes of each item, in the order of the items, on so many threads; the results
/// do not depend on how many.
pub fn map<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = threads.clamp(1, items.len().max(1));
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(|| items.par_iter().with_max_len(1).map(&work).collect()),
        // There are no threads to be had.
        Err(_) => items.iter().map(work).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_in_order() {
        let items: Vec<u32> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            let done = map(&items, threads, |i| i * 2);
            assert!(done.iter().zip(&items).all(|(d, i)| *d == i * 2));
            assert_eq!(done.len(), items.len());
        }
        assert!(map(&[], 2, |i: &u32| *i).is_empty());
    }
}
