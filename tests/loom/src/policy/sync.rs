// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! loom's atomics under the names of the processor's, each use of which can be made weaker to see that a test notices:
//! a use that is ordered becomes relaxed, and one that reads and writes becomes two.
//!
//! An atomic is made when it is used first, as loom cannot make it in a constant. What threads share has to be looked
//! at before they begin: as text, say, which shows each of its atomics.
//!
//! Of the uses of an atomic loom remembers the last one alone. So a thread that reads before it writes hides from loom that
//! another one has read as well, and no order of these two is tried. Here each use changes a second number first, with
//! no order, so that loom takes all for writes when it looks for orders to try.

use loom::sync::atomic;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::sync::OnceLock;

pub use loom::sync::atomic::Ordering;

/// What makes a use of an atomic weaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weaker {
    /// The use has no order.
    Relaxed,
    /// It reads and writes, and others may come in between.
    Torn,
}

/// A use of an atomic in the source, and how it is made weaker.
pub type Change = (&'static Location<'static>, Weaker);

// All threads of a model run on the thread of its test, in turn.
thread_local! {
    static CHANGES: RefCell<BTreeSet<Change>> = const { RefCell::new(BTreeSet::new()) };
    static POSSIBLE: RefCell<BTreeSet<Change>> = const { RefCell::new(BTreeSet::new()) };
}

/// Makes these uses weaker from now on, and no others.
pub fn make_weaker(changes: &[Change]) {
    CHANGES.set(changes.iter().copied().collect());
}

/// What could be made weaker of all that ran since the last call.
pub fn possible() -> BTreeSet<Change> {
    POSSIBLE.take()
}

/// Notes what can be done; whether it is to be.
fn is_to_be(change: Change) -> bool {
    POSSIBLE.with_borrow_mut(|possible| possible.insert(change));
    CHANGES.with_borrow(|changes| changes.contains(&change))
}

/// The order of a use, as it is now.
#[track_caller]
fn order(of: Ordering) -> Ordering {
    let ordered = of != Ordering::Relaxed;
    if ordered && is_to_be((Location::caller(), Weaker::Relaxed)) {
        return Ordering::Relaxed;
    }
    of
}

/// Whether a use is two.
#[track_caller]
fn is_torn() -> bool {
    is_to_be((Location::caller(), Weaker::Torn))
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// loom's atomic of this name.
        pub struct $name {
            first: $value,
            made: OnceLock<(atomic::$name, atomic::AtomicU32)>,
        }

        impl $name {
            /// Holds `first` at first.
            pub const fn new(first: $value) -> Self {
                let made = OnceLock::new();
                Self { first, made }
            }

            /// Gives the number itself, for one use.
            fn made(&self) -> &atomic::$name {
                let make = || (atomic::$name::new(self.first), atomic::AtomicU32::new(0));
                let (made, uses) = self.made.get_or_init(make);
                uses.fetch_add(1, Ordering::Relaxed);
                made
            }

            /// Reads the value in this order.
            #[track_caller]
            pub fn load(&self, of: Ordering) -> $value {
                self.made().load(order(of))
            }

            /// Writes a value in this order.
            #[track_caller]
            pub fn store(&self, value: $value, of: Ordering) {
                self.made().store(value, order(of));
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.made().load(Ordering::SeqCst).fmt(f)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        impl $name {
            /// Reads, and writes what `change` makes of the value, if it makes something.
            ///
            /// # Errors
            ///
            /// The value, if `change` made nothing of it.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                // Both, as each is made weaker.
                let (set, fetch) = (order(set), order(fetch));
                if !is_torn() {
                    return self.made().fetch_update(set, fetch, change);
                }
                let mut changed = true;
                let was = self.torn(|value| match change(value) {
                    Some(value) => value,
                    None => {
                        changed = false;
                        value
                    }
                });
                if changed {
                    Ok(was)
                } else {
                    Err(was)
                }
            }

            /// Adds to the value; returns what was.
            #[track_caller]
            pub fn fetch_add(&self, more: $value, of: Ordering) -> $value {
                if is_torn() {
                    return self.torn(|value| value.wrapping_add(more));
                }
                self.made().fetch_add(more, order(of))
            }

            /// Takes from the value; returns what was.
            #[track_caller]
            pub fn fetch_sub(&self, less: $value, of: Ordering) -> $value {
                if is_torn() {
                    return self.torn(|value| value.wrapping_sub(less));
                }
                self.made().fetch_sub(less, order(of))
            }

            /// The greater of both; returns what was.
            #[track_caller]
            pub fn fetch_max(&self, other: $value, of: Ordering) -> $value {
                if is_torn() {
                    return self.torn(|value| value.max(other));
                }
                self.made().fetch_max(other, order(of))
            }

            /// Writes a value; returns what was.
            #[track_caller]
            pub fn swap(&self, value: $value, of: Ordering) -> $value {
                if is_torn() {
                    return self.torn(|_| value);
                }
                self.made().swap(value, order(of))
            }

            /// Writes `new` where `current` is.
            ///
            /// # Errors
            ///
            /// The value, if it is another one.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                set: Ordering,
                fetch: Ordering,
            ) -> Result<$value, $value> {
                let (set, fetch) = (order(set), order(fetch));
                if is_torn() {
                    let was = self.torn(|value| if value == current { new } else { value });
                    return if was == current { Ok(was) } else { Err(was) };
                }
                self.made().compare_exchange(current, new, set, fetch)
            }

            /// Reads and writes in two steps; returns what was.
            fn torn(&self, how: impl FnOnce($value) -> $value) -> $value {
                let was = self.made().load(Ordering::Acquire);
                self.made().store(how(was), Ordering::Release);
                was
            }
        }
    };
}

atomic!(AtomicBool, bool);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
