// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A count of references that does not wrap.
//!
//! It works as the kernel's `refcount_t`. A count that overflows, or that is used after it reached 0, is set to a number
//! in the middle of the negative ones, and stays near it. Its object is then never freed: a leak and a line in the log
//! take the place of a use of freed memory.

use crate::helpers;
use core::sync::atomic::{fence, AtomicI32, Ordering};

/// The value of a broken count. It is so far from both 0 and the largest number that a race of a few threads reaches
/// neither.
const SATURATED: i32 = i32::MIN / 2;

/// How many references there are.
pub(super) struct Refcount(AtomicI32);

impl Refcount {
    /// A count of one reference, which belongs to the caller.
    pub(super) const fn one() -> Self {
        Self(AtomicI32::new(1))
    }

    /// Adds a reference. The caller has a reference, which keeps the count above 0.
    pub(super) fn inc(&self) {
        let old = self.0.fetch_add(1, Ordering::Relaxed);
        if old <= 0 || old == i32::MAX {
            self.saturate();
        }
    }

    /// Drops a reference. Returns whether it was the last. If so, all accesses that other threads made to the object
    /// happened before.
    #[must_use]
    pub(super) fn dec(&self) -> bool {
        let old = self.0.fetch_sub(1, Ordering::Release);
        if old == 1 {
            fence(Ordering::Acquire);
            return true;
        }
        if old <= 0 {
            self.saturate();
        }
        false
    }

    #[cold]
    fn saturate(&self) {
        self.0.store(SATURATED, Ordering::Relaxed);
        // SAFETY: It has no preconditions.
        unsafe { helpers::uvm_rust_k_refcount_warn() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helpers::testing;

    fn at(n: i32) -> Refcount {
        Refcount(AtomicI32::new(n))
    }

    fn value(r: &Refcount) -> i32 {
        r.0.load(Ordering::Relaxed)
    }

    #[test]
    fn the_last_one_is_told_once() {
        let r = Refcount::one();
        r.inc();
        assert!(!r.dec());
        assert!(r.dec());
        assert_eq!(testing::refcount_warnings(), 0);
    }

    #[test]
    fn a_count_that_runs_over_stays_there() {
        let r = at(i32::MAX - 1);
        r.inc();
        assert_eq!((value(&r), testing::refcount_warnings()), (i32::MAX, 0));
        r.inc();
        assert_eq!((value(&r), testing::refcount_warnings()), (SATURATED, 1));
        // From here on no drop is the last, however many references come and go.
        for _ in 0..100 {
            r.inc();
            assert!(!r.dec());
            assert!(!r.dec());
            assert!((SATURATED - 1..=SATURATED + 1).contains(&value(&r)));
        }
    }

    #[test]
    fn what_was_freed_is_not_counted_again() {
        let r = at(0);
        r.inc();
        assert_eq!((value(&r), testing::refcount_warnings()), (SATURATED, 1));
        let r = at(0);
        assert!(!r.dec());
        assert_eq!((value(&r), testing::refcount_warnings()), (SATURATED, 2));
    }
}
