// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the tests share.

use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec::Vec;

#[path = "../../../tests/model.rs"]
mod random;

pub use random::{model, steps};

/// A size of tables that are filled when they are made: `n`, or a small one under Miri.
pub fn size(n: u32) -> u32 {
    if cfg!(miri) {
        n.min(512)
    } else {
        n
    }
}

/// The number that an environment variable gives, if it does.
pub fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// What a machine of a test does where it is told that an `invariant` is broken: it keeps that, if the
/// test expects some, and ends the test otherwise.
pub fn tell(expected: &mut Option<Vec<&'static str>>, invariant: &'static str) {
    match expected {
        Some(broken) => broken.push(invariant),
        None => panic!("{invariant}"),
    }
}

/// Tells whether an explorer found that a part was taken out, and by what. `scripts/explore.sh mutants` lists these
/// lines; a part that several threads are tried with has a line for each, with `how` after its name.
pub fn tell_mutant(part: &str, how: &str, found: Option<&str>) {
    std::eprintln!("mutant: {part}: {how}{}", found.unwrap_or("NOT FOUND"));
}

/// Numbers that look random and can be had again (splitmix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.roll() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Puts the elements of `v` into an order that is drawn.
    pub fn shuffle<T>(&mut self, v: &mut [T]) {
        for i in (1..v.len()).rev() {
            v.swap(i, self.below(i + 1));
        }
    }
}

/// A lock with readers and writers, as the VA space's is, for the threads of an exploration.
#[derive(Default)]
pub struct SpaceLock {
    pub readers: u32,
    pub writer: bool,
    /// Who waits to write.
    waiting: u32,
    /// Whether readers that come later wait as well, or do without, as Linux has it mostly.
    pub writers_first: bool,
}

impl SpaceLock {
    /// One more reads, if that is possible now.
    pub fn try_read(&mut self) -> bool {
        let free = !(self.writer || self.writers_first && self.waiting > 0);
        self.readers += u32::from(free);
        free
    }

    pub fn read_unlock(&mut self) {
        self.readers -= 1;
    }

    /// From here on one more waits to write, until [`SpaceLock::write_in_turn`] lets it.
    pub fn wait_to_write(&mut self) {
        self.waiting += 1;
    }

    /// One that waits to write does so, if that is possible now.
    pub fn write_in_turn(&mut self) -> bool {
        let free = !self.writer && self.readers == 0;
        self.writer |= free;
        self.waiting -= u32::from(free);
        free
    }

    pub fn write_unlock(&mut self) {
        self.writer = false;
    }
}

/// What the threads of an exploration share. One runs at a time, from one point where it waits to
/// the next.
pub struct Exploration<S> {
    state: RefCell<S>,
    pub dice: RefCell<Dice>,
    /// Grows whenever a thread gets on.
    pub steps: Cell<u64>,
}

impl<S> Exploration<S> {
    pub fn new(state: S, seed: u64) -> Self {
        Self {
            state: RefCell::new(state),
            dice: RefCell::new(Dice::new(seed)),
            steps: Cell::new(0),
        }
    }

    /// The state, for as long as the thread does not wait.
    pub fn now(&self) -> RefMut<'_, S> {
        self.state.borrow_mut()
    }

    pub fn below(&self, n: usize) -> usize {
        self.dice.borrow_mut().below(n)
    }

    pub fn chance(&self, n: usize) -> bool {
        self.dice.borrow_mut().one_in(n)
    }

    /// Others may run; then waits until `ready` gives something.
    pub fn until<T, F: FnMut(&mut S) -> Option<T>>(&self, ready: F) -> Until<'_, S, F> {
        Until {
            state: &self.state,
            steps: &self.steps,
            ready,
            was_polled: false,
        }
    }

    /// Others may run, once, before the thread goes on.
    pub async fn pause(&self) {
        self.pauses(1).await;
    }

    /// Others may run, `times` times. Most turns of a thread that is slow are such, so that each is one poll.
    pub fn pauses(&self, times: usize) -> Pauses<'_> {
        Pauses {
            steps: &self.steps,
            left: times,
        }
    }
}

/// So many points of a thread of an exploration at which others may run.
pub struct Pauses<'a> {
    steps: &'a Cell<u64>,
    left: usize,
}

impl Future for Pauses<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.steps.set(self.steps.get() + 1);
        if self.left == 0 {
            return Poll::Ready(());
        }
        self.left -= 1;
        Poll::Pending
    }
}

/// A point of a thread of an exploration at which others may run; then it waits until `ready`
/// gives something. Threads are futures that whoever explores polls in an order that is drawn.
pub struct Until<'a, S, F> {
    state: &'a RefCell<S>,
    steps: &'a Cell<u64>,
    ready: F,
    was_polled: bool,
}

impl<S, T, F: FnMut(&mut S) -> Option<T> + Unpin> Future for Until<'_, S, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let (state, steps) = (self.state, self.steps);
        if !self.was_polled {
            self.was_polled = true;
            steps.set(steps.get() + 1);
            return Poll::Pending;
        }
        match (self.ready)(&mut state.borrow_mut()) {
            Some(value) => {
                steps.set(steps.get() + 1);
                Poll::Ready(value)
            }
            None => Poll::Pending,
        }
    }
}
