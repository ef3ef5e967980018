// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whom somebody tells who waits for its turn, and that it waits for nothing that nobody tells it of.

use super::super::arbiter::DEPTH;
use super::*;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::vec::Vec;

/// A device whose others do something at each wait, one after the other, and at the first look at its progress.
#[derive(Default)]
struct Fake {
    arbiter: Arbiter,
    told: Cell<u32>,
    waited: Cell<u32>,
    first: RefCell<Option<Does>>,
    then: RefCell<Vec<Does>>,
}

type Does = Box<dyn FnOnce(&Fake)>;

impl Fake {
    /// One as many of whose operations are under way as may be.
    fn busy() -> Self {
        let fake = Self::default();
        (0..DEPTH).for_each(|_| assert!(fake.arbiter.others_begin(&mut Turn::default(), 0)));
        fake
    }

    /// The others do this at the next wait to which they have nothing to do yet.
    fn then(&self, does: impl FnOnce(&Fake) + 'static) {
        self.then.borrow_mut().insert(0, Box::new(does));
    }

    /// An operation ends, as in the driver.
    fn ends(&self) {
        self.arbiter.others_end();
        self.tell();
    }

    /// Somebody else has come to the line of `class`.
    fn waits(&self, class: Class) -> Turn {
        let mut turn = Turn::new(class);
        assert!(!self.arbiter.others_begin(&mut turn, 0));
        turn
    }
}

impl Device for Fake {
    fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    fn now_us(&self) -> u64 {
        0
    }

    fn progress(&self) -> u32 {
        if let Some(does) = self.first.take() {
            does(self);
        }
        self.told.get()
    }

    fn wait(&self, progress: u32) {
        self.waited.set(self.waited.get() + 1);
        if progress != self.told.get() {
            return;
        }
        let does = self.then.borrow_mut().pop();
        does.expect("it waits, and nobody tells it of anything")(self);
        assert_ne!(progress, self.told.get(), "it is not told");
    }

    fn tell(&self) {
        self.told.set(self.told.get() + 1);
    }
}

#[test]
fn whoever_begins_tells_the_next_if_there_is_room() {
    for (room, waits, tells) in [(2, true, 1), (1, true, 0), (2, false, 0)] {
        let fake = Fake::busy();
        let next = waits.then(|| fake.waits(Class::Spill));
        (0..room).for_each(|_| fake.arbiter.others_end());
        assert!(begin(&fake, || Class::Fetch, || false));
        assert_eq!(fake.told.get(), tells, "{room} {waits}");
        assert_eq!(fake.waited.get(), 0);
        next.into_iter().for_each(|turn| fake.arbiter.leave(turn));
    }
}

#[test]
fn whoever_passes_tells_the_next() {
    let fake = Fake::busy();
    let next = fake.waits(Class::Spill);
    fake.arbiter.others_end();
    pass(&fake, Class::Evict, || false);
    assert_eq!((fake.told.get(), fake.waited.get()), (1, 0));
    fake.arbiter.leave(next);
}

/// It is the end of an operation here, before the first look.
#[test]
fn what_happens_before_the_look_is_not_waited_for() {
    let fake = Fake::busy();
    *fake.first.borrow_mut() = Some(Box::new(Fake::ends));
    assert!(begin(&fake, || Class::Spill, || false));
    assert_eq!(fake.waited.get(), 0);
}

/// A spill is urgent, and then not any more: who waited behind it is next.
#[test]
fn whoever_goes_to_another_line_tells_those_behind_it() {
    let fake = Fake::busy();
    let next = fake.waits(Class::Prefetch);
    let class = std::rc::Rc::new(Cell::new(Class::Fetch));
    let becomes = std::rc::Rc::clone(&class);
    fake.then(move |fake| {
        becomes.set(Class::Spill);
        fake.ends();
    });
    // It has gone to the other line, and room was left to the next, who has been told.
    let told = std::rc::Rc::new(Cell::new(0));
    let stops = || {
        told.set(fake.told.get());
        fake.waited.get() == 2
    };
    assert!(!begin(&fake, || class.get(), stops));
    assert_eq!(told.get(), 2, "the end of an operation, and that");
    fake.arbiter.leave(next);
}

#[test]
fn whoever_is_stopped_leaves_and_says_so() {
    for passes in [false, true] {
        let fake = Fake::busy();
        fake.then(Fake::tell);
        let stops = || fake.waited.get() == 1;
        if passes {
            pass(&fake, Class::Fetch, stops);
        } else {
            assert!(!begin(&fake, || Class::Fetch, stops));
        }
        assert_eq!(fake.told.get(), 2, "passes: {passes}");
        // Nobody is in line.
        fake.arbiter.others_end();
        assert!(!fake.arbiter.has_room_for_another());
    }
}
