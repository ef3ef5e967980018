// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the tables of one tenant may take together.
//!
//! A process may open the driver as often as it likes, and have children do so for it; each
//! time it has tables of its own. So the limit on them is shared, by all of the user's in a
//! memory cgroup.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A limit that several tables share. No locks: each says what it takes when that has
/// changed, so that together they may be over the limit by what they have grown since.
pub struct Share {
    limit: usize,
    /// The sum of what each has said last.
    taken: AtomicUsize,
}

impl Share {
    /// A limit of `limit` bytes, of which nothing is taken.
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: AtomicUsize::new(0),
        }
    }

    /// One that took `before` bytes, as it said, takes `now`. Returns what it may take:
    /// what the others leave, which may be less than it does.
    pub fn settle(&self, before: usize, now: usize) -> usize {
        let change = now.wrapping_sub(before);
        let all = self.taken.fetch_add(change, Relaxed).wrapping_add(change);
        self.limit.saturating_sub(all.wrapping_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_may_take_what_the_others_leave() {
        let share = Share::new(100);
        assert_eq!(share.settle(0, 0), 100);
        assert_eq!(share.settle(0, 60), 100, "one alone has all of it");
        assert_eq!(share.settle(0, 10), 40);
        assert_eq!(share.settle(60, 70), 90);
        // Over the limit by growth in the same moment: both have to shrink.
        assert_eq!(share.settle(10, 50), 30);
        assert_eq!(share.settle(70, 120), 50);
        assert_eq!(share.settle(50, 0), 0);
        assert_eq!(share.settle(120, 0), 100, "what is gone takes nothing");
    }
}
