// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Counters of processes that never go back. What the driver tells of a process is a sum over its
//! VA spaces, and becomes less when one of them is closed. Prometheus takes a counter that became less
//! for one that began anew, and counts all that is left a second time.

use std::collections::BTreeMap;

/// What a counter counts: the process's number, the GPU's number in UVM, and the counter's name with
/// whatever else tells it from others.
type Key = (u32, u32, String);

/// Counters, and what is gone of them.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<Key, Counter>);

#[derive(Debug, Default)]
struct Counter {
    /// What the driver told last.
    last: u64,
    /// By how much that became less, over all times that it did.
    gone: u64,
    told: bool,
}

impl Kept {
    /// The value of a counter now that the driver tells this of it.
    pub(crate) fn value(&mut self, key: Key, told: u64) -> u64 {
        let counter = self.0.entry(key).or_default();
        counter.gone = counter
            .gone
            .saturating_add(counter.last.saturating_sub(told));
        counter.last = told;
        counter.told = true;
        counter.gone.saturating_add(told)
    }

    /// Ends a page: a counter that is not on it is forgotten, as its process is.
    pub(crate) fn ended(&mut self) {
        self.0
            .retain(|_, counter| std::mem::take(&mut counter.told));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_counter_that_becomes_less_goes_on() {
        let mut kept = Kept::default();
        let mut page = |told: &[(u32, u64)]| {
            let values = told.iter().map(|&(pid, n)| {
                let key = (pid, 0, "faults".to_owned());
                kept.value(key, n)
            });
            let values: Vec<_> = values.collect();
            kept.ended();
            values
        };
        assert_eq!(page(&[(1, 11), (2, 5)]), [11, 5]);
        // One VA space of two is closed, and the other goes on.
        assert_eq!(page(&[(1, 10), (2, 6)]), [11, 6]);
        assert_eq!(page(&[(1, 12), (2, 6)]), [13, 6]);
        assert_eq!(page(&[(1, 0)]), [13]);
        // Who was gone begins anew.
        assert_eq!(page(&[(1, 1), (2, 1)]), [14, 1]);
        assert_eq!(page(&[]), [0; 0]);
        assert_eq!(page(&[(1, 1)]), [1]);
    }
}
