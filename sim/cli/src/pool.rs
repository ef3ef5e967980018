// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Work on several threads.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Mutex;

/// What `work` makes of each item, in the order of the items, on so many threads; the results
/// do not depend on how many.
pub fn map<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| loop {
                let i = next.fetch_add(1, Relaxed);
                let Some(item) = items.get(i) else { break };
                let result = work(item);
                // Nothing panics while it is locked.
                done.lock()
                    .unwrap_or_else(|e| e.into_inner())
                    .push((i, result));
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|d| d.0);
    done.into_iter().map(|d| d.1).collect()
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
