// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What threads share without a lock, under every interleaving that loom finds of the calling
//! threads, CUDA's thread that runs host functions, and the threads of a child of `fork`. The
//! modules are those of the library, built on loom's atomics.
//!
//! loom has one process. A child is one whose memory is what the parent's threads had
//! written when it was made: the parent's part of a test runs to such a point, and then
//! the child's threads begin.

#![allow(clippy::unwrap_used)]

mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
}

#[path = "../src/instance.rs"]
mod instance;
#[path = "../src/jobs.rs"]
mod jobs;
#[path = "../src/lineage.rs"]
mod lineage;

use core::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use instance::Current;
use jobs::{Slot, Table, Tag};
use lineage::{Generation, Lineage};
use loom::sync::mpsc::{channel, Receiver, Sender};
use loom::thread;
use sync::{AtomicPtr, AtomicU64, UnsafeCell};

/// Runs `body` under each interleaving, and says how many there were: more than one, unless
/// the threads only read. `preemptions` bounds how often a thread is taken the processor from.
fn every_interleaving(
    what: &str,
    preemptions: Option<usize>,
    body: impl Fn() + Sync + Send + 'static,
) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        counted.fetch_add(1, Relaxed);
        body();
    });
    println!("{what}: {} interleavings", count.load(Relaxed));
    assert!(
        count.load(Relaxed) > usize::from(!what.contains("only read")),
        "{what}: nothing is interleaved"
    );
}

/// A value that is freed once: what is taken twice, or never, is seen.
type Counted = (u32, loom::sync::Arc<()>);

fn table<const N: usize>() -> loom::sync::Arc<Table<Counted, N>> {
    loom::sync::Arc::new(Table {
        slots: std::array::from_fn(|_| Slot {
            state: AtomicU64::new(0),
            held: UnsafeCell::new(MaybeUninit::uninit()),
        }),
        more: AtomicPtr::new(core::ptr::null_mut()),
    })
}

/// Enqueues jobs of these numbers, in this order.
fn caller<const N: usize>(
    table: &Table<Counted, N>,
    stream: &Sender<Tag>,
    alive: &loom::sync::Arc<()>,
    numbers: impl Iterator<Item = u32>,
) {
    for number in numbers {
        let tag = table.put((number, loom::sync::Arc::clone(alive)));
        stream.send(tag.unwrap()).unwrap();
    }
}

/// As CUDA's thread does: each job once, in the order of the stream.
fn runs_host_functions<const N: usize>(
    table: &Table<Counted, N>,
    stream: &Receiver<Tag>,
    count: usize,
) -> Vec<u32> {
    (0..count)
        .map(|_| table.take(stream.recv().unwrap()).unwrap().0)
        .collect()
}

/// A slot that was given back is used again while the others' jobs stay what they are.
#[test]
fn a_caller_and_the_completion_thread_use_a_slot_again() {
    every_interleaving("one caller, one slot", None, || {
        let (jobs, alive) = (table::<1>(), loom::sync::Arc::new(()));
        let (send, receive) = channel();
        let theirs = loom::sync::Arc::clone(&jobs);
        let completion = thread::spawn(move || runs_host_functions(&theirs, &receive, 3));
        caller(&jobs, &send, &alive, 0..3);
        assert_eq!(completion.join().unwrap(), [0, 1, 2]);
        assert_eq!(loom::sync::Arc::strong_count(&alive), 1);
    });
}

/// Two callers with streams of their own, one slot and what the table grows by.
#[test]
fn two_callers_never_have_the_same_slot() {
    every_interleaving("two callers, one slot", None, || {
        let (jobs, alive) = (table::<1>(), loom::sync::Arc::new(()));
        let (send, receive) = channel();
        let (theirs, theirs_alive) = (
            loom::sync::Arc::clone(&jobs),
            loom::sync::Arc::clone(&alive),
        );
        let (other_send, other_receive) = channel();
        let other = thread::spawn(move || {
            caller(&theirs, &other_send, &theirs_alive, 7..8);
        });
        caller(&jobs, &send, &alive, 0..1);
        other.join().unwrap();
        assert_eq!(runs_host_functions(&jobs, &other_receive, 1), [7]);
        assert_eq!(runs_host_functions(&jobs, &receive, 1), [0]);
        assert_eq!(loom::sync::Arc::strong_count(&alive), 1);
    });
}

/// Two callers and the thread that gives their slots back.
#[test]
fn callers_and_the_completion_thread() {
    every_interleaving(
        "two callers, two slots, the completion thread",
        Some(3),
        || {
            let (jobs, alive) = (table::<2>(), loom::sync::Arc::new(()));
            let (send, receive) = channel();
            let callers = [0, 1].map(|n| {
                let (jobs, alive) = (
                    loom::sync::Arc::clone(&jobs),
                    loom::sync::Arc::clone(&alive),
                );
                let send = send.clone();
                thread::spawn(move || caller(&jobs, &send, &alive, n..n + 1))
            });
            let mut ran = runs_host_functions(&jobs, &receive, 2);
            ran.sort_unstable();
            assert_eq!(ran, [0, 1]);
            for caller in callers {
                caller.join().unwrap();
            }
            assert_eq!(loom::sync::Arc::strong_count(&alive), 1);
        },
    );
}

/// A graph launches a host function again, and another caller has the slot by then: that
/// job is run by its own stream, once.
#[test]
fn a_job_that_is_launched_again_takes_nobody_elses() {
    every_interleaving("launched again", None, || {
        let (jobs, alive) = (table::<1>(), loom::sync::Arc::new(()));
        let old = jobs.put((1, loom::sync::Arc::clone(&alive))).unwrap();
        assert_eq!(jobs.take(old).unwrap().0, 1);
        let theirs = loom::sync::Arc::clone(&jobs);
        let graph = thread::spawn(move || [(); 2].map(|()| theirs.take(old).map(|job| job.0)));
        for number in [2, 3] {
            let new = jobs.put((number, loom::sync::Arc::clone(&alive))).unwrap();
            assert_eq!(jobs.take(new).unwrap().0, number);
        }
        assert_eq!(graph.join().unwrap(), [None, None]);
        assert_eq!(loom::sync::Arc::strong_count(&alive), 1);
    });
}

/// A graph may be launched by two streams at a time: one of them has the job.
#[test]
fn a_job_that_is_launched_twice_at_a_time_is_run_once() {
    every_interleaving("launched twice", None, || {
        let (jobs, alive) = (table::<1>(), loom::sync::Arc::new(()));
        let tag = jobs.put((1, loom::sync::Arc::clone(&alive))).unwrap();
        let theirs = loom::sync::Arc::clone(&jobs);
        let other = thread::spawn(move || theirs.take(tag).map(|job| job.0));
        let here = jobs.take(tag).map(|job| job.0);
        let ran: Vec<_> = here.into_iter().chain(other.join().unwrap()).collect();
        assert_eq!(ran, [1]);
        assert_eq!(loom::sync::Arc::strong_count(&alive), 1);
    });
}

fn lineage() -> Lineage {
    Lineage {
        word: AtomicU64::new(0),
    }
}

/// What two threads of process `pid` are told that ask at the same time, twice.
fn two_threads_ask(lineage: Lineage, pid: u32) -> [Generation; 4] {
    let lineage = loom::sync::Arc::new(lineage);
    let theirs = loom::sync::Arc::clone(&lineage);
    let ask = move |lineage: &Lineage| [lineage.generation(pid), lineage.generation(pid)];
    let other = thread::spawn(move || ask(&theirs));
    let [a, b] = ask(&lineage);
    let [c, d] = other.join().unwrap();
    [a, b, c, d]
}

const CHILD: Generation = Generation {
    forks: 1,
    inherited: true,
};

#[test]
fn threads_of_a_child_of_fork_know_that_it_is_one() {
    every_interleaving("fork (they only read)", None, || {
        let lineage = lineage();
        lineage.began(1);
        lineage.forked(2, true);
        assert_eq!(two_threads_ask(lineage, 2), [CHILD; 4]);
    });
}

#[test]
fn threads_of_a_process_that_never_forked_know_that_too() {
    every_interleaving("no fork (they only read)", None, || {
        let lineage = lineage();
        lineage.began(1);
        assert_eq!(two_threads_ask(lineage, 1), [Generation::default(); 4]);
    });
}

/// Nobody told of the fork: the first that asks notices, whichever thread that is.
#[test]
fn threads_of_a_child_of_clone_know_that_it_is_one() {
    every_interleaving("clone", None, || {
        let lineage = lineage();
        lineage.began(1);
        assert_eq!(two_threads_ask(lineage, 2), [CHILD; 4]);
    });
}

/// A value that a thread may read only if all that was done to make it is visible there.
fn made(value: u32) -> UnsafeCell<u32> {
    let cell = UnsafeCell::new(0);
    cell.with_mut(|p| {
        // SAFETY: nobody else has it yet.
        unsafe { *p = value }
    });
    cell
}

fn read(cell: &UnsafeCell<u32>) -> u32 {
    // SAFETY: nobody writes any more, which is what loom looks at.
    cell.with(|p| unsafe { *p })
}

/// A parent's thread came to its instance, or not yet, when it forked; then two threads of the
/// child ask. They have one instance, and it is not the parent's.
#[test]
fn threads_of_a_child_share_an_instance_of_its_own() {
    for parent_has in [false, true] {
        every_interleaving("instances", None, move || {
            let current = loom::sync::Arc::new(Current {
                instance: AtomicPtr::new(core::ptr::null_mut()),
            });
            if parent_has {
                assert_eq!(read(current.get(0, || made(100))), 100);
            }
            let theirs = loom::sync::Arc::clone(&current);
            let other = thread::spawn(move || read(theirs.get(1, || made(2))));
            let here = read(current.get(1, || made(1)));
            assert_eq!(here, other.join().unwrap());
            assert!(here == 1 || here == 2);
            assert_eq!(read(current.get(1, || made(3))), here);
        });
    }
}
