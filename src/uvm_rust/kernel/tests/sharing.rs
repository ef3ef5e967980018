// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `Arc`, locks, waiting, and values that are made in place.

#![allow(clippy::unwrap_used, clippy::type_complexity)]

use kernel::alloc::{flags::GFP_KERNEL, KBox};
use kernel::prelude::*;
use kernel::sync::{
    new_condvar, new_mutex, new_spinlock, Arc, ArcBorrow, CondVar, CondVarTimeoutResult, Mutex,
    SpinLock,
};
use kernel::testing;
use kernel::time::Jiffies;
use kernel::types::ForeignOwnable;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// All that `pin_data` has to cope with.
#[pin_data]
pub(crate) struct Table {
    /// With a comment, which is an attribute.
    name: u32,
    #[pin]
    pub(crate) rows: Mutex<Vec<(u8, Option<Box<dyn Fn(u32) -> u64 + Send>>)>>,
    call: Option<fn(u32, u32) -> Result<u32, [u8; 2]>>,
    #[pin]
    changed: CondVar,
    pub(crate) map: std::collections::BTreeMap<u32, [u8; 4]>,
}

fn table(name: u32) -> Arc<Table> {
    let map = [(1, [2; 4])].into();
    let call: Option<fn(u32, u32) -> Result<u32, [u8; 2]>> = Some(|a, b| Ok(a + b));
    Arc::pin_init(
        pin_init!(Table {
            name,
            rows <- new_mutex!(Vec::new(), "rows"),
            call,
            changed <- new_condvar!(),
            map: map,
        }),
        GFP_KERNEL,
    )
    .unwrap()
}

#[test]
fn a_value_is_made_in_its_place() {
    let t = table(7);
    t.rows
        .lock()
        .push((1, Some(Box::new(|n| u64::from(n) + 1))));
    let rows = t.rows.lock();
    assert_eq!(
        (t.name, rows[0].0, rows[0].1.as_ref().unwrap()(2)),
        (7, 1, 3)
    );
    assert_eq!(t.map[&1], [2; 4]);
    assert_eq!(t.call.map(|f| f(1, 2)), Some(Ok(3)));
}

/// Whether a type is `Unpin`, by which of two functions of a name is found.
macro_rules! is_unpin {
    ($type:ty) => {{
        #[allow(dead_code)]
        trait Otherwise {
            fn answer(&self) -> bool {
                false
            }
        }
        struct Probe<T>(std::marker::PhantomData<T>);
        impl<T> Otherwise for Probe<T> {}
        #[allow(dead_code)]
        impl<T: Unpin> Probe<T> {
            fn answer(&self) -> bool {
                true
            }
        }
        Probe::<$type>(std::marker::PhantomData).answer()
    }};
}

#[test]
fn only_what_has_no_pinned_lock_may_move() {
    #[pin_data]
    struct Loose {
        a: u32,
        b: Option<Mutex<u32>>,
    }
    assert!(!is_unpin!(Table));
    assert!(!is_unpin!(Mutex<u32>) && !is_unpin!(SpinLock<u32>) && !is_unpin!(CondVar));
    assert!(is_unpin!(Loose));
    let loose = KBox::pin_init(pin_init!(Loose { a: 1, b: None }), GFP_KERNEL).unwrap();
    assert!(loose.a == 1 && loose.b.is_none());
}

#[test]
fn a_pinned_value_is_dropped_once_and_its_memory_given_back() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Drops;
    impl Drop for Drops {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    #[pin_data]
    struct Holder {
        #[pin]
        behind: SpinLock<Drops>,
        beside: Drops,
    }
    let make = || {
        KBox::pin_init(
            pin_init!(Holder { behind <- new_spinlock!(Drops), beside: Drops }),
            GFP_KERNEL,
        )
    };
    let holder = make().unwrap();
    let _ = &holder.beside;
    drop(holder.behind.lock());
    let at: *const Holder = &*holder;
    assert!(testing::is_allocated(at));
    drop(holder);
    assert!(!testing::is_allocated(at));
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    // Where there is no memory, nothing has been made yet.
    testing::fail_after(0);
    assert!(make().is_err());
    testing::fail_never();
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
}

/// The class and the name of a lock that this makes.
fn class_of_one_place(value: u32) -> (usize, String) {
    drop(Arc::pin_init(new_mutex!(value), GFP_KERNEL).unwrap());
    testing::last_class()
}

#[test]
fn each_place_that_makes_a_lock_has_a_class_of_its_own() {
    let first = class_of_one_place(1);
    assert_eq!(first, class_of_one_place(2));
    assert!(first.1.contains("tests/sharing.rs:"), "{}", first.1);

    drop(Arc::pin_init(new_mutex!(1), GFP_KERNEL).unwrap());
    let second = testing::last_class();
    drop(Arc::pin_init(new_spinlock!(1, "spin"), GFP_KERNEL).unwrap());
    let third = testing::last_class();
    drop(Arc::pin_init(new_condvar!("queue"), GFP_KERNEL).unwrap());
    let fourth = testing::last_class();
    let mut classes = [first.0, second.0, third.0, fourth.0];
    classes.sort_unstable();
    assert!(
        classes.windows(2).all(|w| w[0] != w[1]) && classes[0] != 0,
        "{classes:?}"
    );
    assert_eq!((third.1.as_str(), fourth.1.as_str()), ("spin", "queue"));
    assert_ne!(first.1, second.1);
}

#[test]
fn one_at_a_time_has_what_is_behind_a_lock() {
    let n = if cfg!(miri) { 20 } else { 10_000 };
    let mutex = Arc::pin_init(new_mutex!(0_u64), GFP_KERNEL).unwrap();
    let spin = Arc::pin_init(new_spinlock!(0_u64), GFP_KERNEL).unwrap();
    thread::scope(|s| {
        for _ in 0..4 {
            let (mutex, spin) = (mutex.clone(), spin.clone());
            s.spawn(move || {
                for _ in 0..n {
                    *mutex.lock() += 1;
                    *spin.lock() += 1;
                }
            });
        }
    });
    assert_eq!((*mutex.lock(), *spin.lock()), (4 * n, 4 * n));
}

/// What somebody waits for.
#[pin_data]
struct Gate {
    #[pin]
    open: Mutex<bool>,
    #[pin]
    changed: CondVar,
}

fn gate() -> Arc<Gate> {
    Arc::pin_init(
        pin_init!(Gate { open <- new_mutex!(false), changed <- new_condvar!() }),
        GFP_KERNEL,
    )
    .unwrap()
}

#[test]
fn who_waits_is_woken_or_times_out() {
    let gate = gate();
    let mut open = gate.open.lock();
    let end = gate.changed.wait_interruptible_timeout(&mut open, 1);
    assert_eq!(end, CondVarTimeoutResult::Timeout);
    drop(open);

    let other = gate.clone();
    let opener = thread::spawn(move || {
        *other.open.lock() = true;
        other.changed.notify_all();
    });
    let mut open = gate.open.lock();
    let mut left = 2_500;
    while !*open {
        left = match gate.changed.wait_interruptible_timeout(&mut open, left) {
            CondVarTimeoutResult::Woken { jiffies } => jiffies,
            end => panic!("{end:?}"),
        };
    }
    drop(open);
    opener.join().unwrap();
}

#[test]
fn a_signal_ends_a_wait() {
    let gate = gate();
    let mut open = gate.open.lock();
    testing::signal(true);
    // However long that was to be: C's timeouts have a sign, and these have none.
    for jiffies in [2_500, Jiffies::MAX] {
        let end = gate.changed.wait_interruptible_timeout(&mut open, jiffies);
        assert!(
            matches!(end, CondVarTimeoutResult::Signal { jiffies } if jiffies > 0),
            "{end:?}"
        );
    }
    // And if its time is over as well.
    let end = gate.changed.wait_interruptible_timeout(&mut open, 0);
    assert_eq!(end, CondVarTimeoutResult::Signal { jiffies: 0 });
    testing::signal(false);
    let end = gate.changed.wait_interruptible_timeout(&mut open, 0);
    assert_eq!(end, CondVarTimeoutResult::Timeout);
}

#[test]
fn the_last_reference_drops_the_value() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Drops(u32);
    impl Drop for Drops {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let a = Arc::new(Drops(3), GFP_KERNEL).unwrap();
    let b = a.clone();
    assert!(Arc::ptr_eq(&a, &b));
    let borrowed: ArcBorrow<'_, Drops> = a.as_arc_borrow();
    let c: Arc<Drops> = borrowed.into();
    drop(a);
    let raw = Arc::into_raw(b);
    // SAFETY: `raw` is a reference that nobody drops until it is taken again.
    assert_eq!(unsafe { &*raw }.0, 3);
    thread::spawn(move || drop(c)).join().unwrap();
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    // SAFETY: It is from `into_raw`, and taken once.
    drop(unsafe { Arc::from_raw(raw) });
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
}

#[test]
fn what_was_made_in_place_has_as_many_owners_as_references() {
    let before = testing::held();
    let first = table(1);
    let second = first.clone();
    drop(first);
    assert_eq!((second.name, testing::held()), (1, before + 1));
    drop(second);
    assert_eq!((testing::held(), testing::refcount_warnings()), (before, 0));
}

/// Under Miri a count with weaker orderings is a data race: the last to drop frees what the
/// others have read, and nothing but the count says that they have.
#[test]
fn whoever_drops_last_does_so_after_the_others_have_read() {
    let value = Arc::new([1_u64, 2], GFP_KERNEL).unwrap();
    thread::scope(|s| {
        for _ in 0..2 {
            let value = value.clone();
            s.spawn(move || assert_eq!(value[0] + value[1], 3));
        }
        assert_eq!(value[1], 2);
        drop(value);
    });
}

#[test]
fn c_keeps_what_it_is_given() {
    let arc = table(9);
    let raw = arc.clone().into_foreign();
    // SAFETY: It is from `into_foreign`, and not taken back while it is borrowed.
    let borrowed = unsafe { <Arc<Table> as ForeignOwnable>::borrow(raw) };
    assert_eq!(borrowed.name, 9);
    let again: Arc<Table> = borrowed.into();
    // SAFETY: It is from `into_foreign`, and nothing borrowed of it is left.
    drop(unsafe { <Arc<Table> as ForeignOwnable>::from_foreign(raw) });
    assert!(Arc::ptr_eq(&arc, &again));

    let raw = KBox::new(5_u64, GFP_KERNEL).unwrap().into_foreign();
    // SAFETY: As above.
    assert_eq!(unsafe { *<KBox<u64> as ForeignOwnable>::borrow(raw) }, 5);
    // SAFETY: As above.
    drop(unsafe { <KBox<u64> as ForeignOwnable>::from_foreign(raw) });
    assert!(!testing::is_allocated(raw));

    let pinned = KBox::pin_init(new_mutex!(6_u64), GFP_KERNEL).unwrap();
    let raw = pinned.into_foreign();
    // SAFETY: As above.
    let borrowed = unsafe { <Pin<KBox<Mutex<u64>>> as ForeignOwnable>::borrow(raw) };
    assert_eq!(*borrowed.lock(), 6);
    // SAFETY: As above.
    drop(unsafe { <Pin<KBox<Mutex<u64>>> as ForeignOwnable>::from_foreign(raw) });
    assert!(!testing::is_allocated(raw));
}
