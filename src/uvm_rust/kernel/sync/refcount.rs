// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A count of references that does not wrap.
//!
//! As the kernel's `refcount_t`: a count that ran over, or that is used after it came to
//! 0, goes to a number in the middle of the negative ones and stays near it. Then what
//! it counts for is never freed: a leak, and a line in the log, instead of a use of
//! freed memory.

use crate::helpers;
use core::sync::atomic::{fence, AtomicI32, Ordering};

/// So far from both 0 and the largest number that no race of a few threads reaches them.
const SATURATED: i32 = i32::MIN / 2;

/// How many references there are.
pub(super) struct Refcount(AtomicI32);

impl Refcount {
    /// A count of one, which is its maker's.
    pub(super) const fn one() -> Self {
        Self(AtomicI32::new(1))
    }

    /// One more. Whoever calls this has one, which keeps the count from coming to 0.
    pub(super) fn inc(&self) {
        let old = self.0.fetch_add(1, Ordering::Relaxed);
        if old <= 0 || old == i32::MAX {
            self.saturate();
        }
    }

    /// One less. Says whether it was the last: then all that others did with what is
    /// counted for has happened before.
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
        // However many come and go now, none is the last.
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
