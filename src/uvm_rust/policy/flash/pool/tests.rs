// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The pool, one call at a time; and its explorer: a thread that takes and gives back as the driver does, among others
//! that do the same step by step, in an order that is drawn.
//!
//! `UVM_EXPLORE` is the number of interleavings, `UVM_TEST_SEED` the seed of the first one; each has the seed after
//! the last one's. A failure names its own.

use super::part::{take_out, Part};
use super::*;
use crate::testing::{setting, tell_mutant, Exploration};
use std::boxed::Box;
use std::format;
use std::future::Future;
use std::pin::Pin;
use std::string::{String, ToString};
use std::task::{Context, Poll, Waker};
use std::vec::Vec;

fn pool(sets: usize) -> Pool<usize> {
    let mut free = TryVec::new();
    (0..sets).for_each(|set| free.push(set).unwrap());
    Pool::new(free)
}

#[test]
fn neither_has_all() {
    for (sets, faults, others) in [(2, 1, 1), (3, 2, 1), (16, 14, 4), (64, 56, 16)] {
        for (who, most) in [(Who::Fault, faults), (Who::Others, others)] {
            let mut pool = pool(sets);
            let lent: Vec<_> = core::iter::from_fn(|| pool.try_take(who)).collect();
            assert_eq!(lent.len(), most, "{who:?} of {sets}");
            assert!(pool.ask(who).is_err());
            let other = [Who::Others, Who::Fault][usize::from(who == Who::Others)];
            assert!(pool.try_take(other).is_some());
        }
    }
}

#[test]
fn who_waits_has_its_turn_and_nobody_goes_before_it() {
    let mut p = pool(3);
    let (a, b) = (p.ask(Who::Fault).unwrap(), p.ask(Who::Fault).unwrap());
    let first = p.ask(Who::Fault).unwrap_err();
    let second = p.ask(Who::Fault).unwrap_err();
    assert_eq!(p.claim(&first), None, "faults have theirs");
    assert!(p.give_back(Who::Fault, a), "the first is to be told");
    assert_eq!(p.claim(&second), None);
    assert_eq!(p.try_take(Who::Fault), None);
    let c = p.claim(&first).unwrap();
    assert_eq!(p.claim(&second), None);
    assert!(p.give_back(Who::Fault, b));
    assert_eq!(p.claim(&second), Some(b));
    assert!(!p.give_back(Who::Fault, b) && !p.give_back(Who::Fault, c));
    assert!(p.try_take(Who::Fault).is_some() && p.count() == 3);
}

#[test]
fn who_does_not_run_ties_up_its_own_set_only() {
    let mut p = pool(16);
    let lent: Vec<_> = core::iter::from_fn(|| p.try_take(Who::Fault)).collect();
    let first = p.ask(Who::Fault).unwrap_err();
    let second = p.ask(Who::Fault).unwrap_err();
    assert!(p.give_back(Who::Fault, lent[0]) && p.give_back(Who::Fault, lent[1]));
    // The first was told, but does not get to run.
    assert!(p.claim(&second).is_some());
    assert_eq!(p.count(), 16);
    assert!(!p.give_back(Who::Fault, lent[2]), "nobody is to be told");
    assert!(p.try_take(Who::Fault).is_some(), "one that came later");
    assert_eq!(p.try_take(Who::Fault), None, "what is left is the first's");
    // Others go on, too.
    let others: Vec<_> = core::iter::from_fn(|| p.try_take(Who::Others)).collect();
    assert_eq!((others.len(), p.free()), (2, 1));
    let other = p.ask(Who::Others).unwrap_err();
    assert!(p.give_back(Who::Others, others[0]) && p.claim(&other).is_some());
    assert!(p.claim(&first).is_some() && p.free() == 0 && p.count() == 16);
}

#[test]
fn a_fault_that_waits_goes_before_others() {
    let mut p = pool(8);
    let lent: Vec<_> = (0..7).map(|_| p.ask(Who::Fault).unwrap()).collect();
    let fault = p.ask(Who::Fault).unwrap_err();
    // What is left is not for faults.
    let set = p.ask(Who::Others).unwrap();
    let other = p.ask(Who::Others).unwrap_err();
    assert!(p.give_back(Who::Fault, lent[0]));
    assert_eq!((p.claim(&other), p.try_take(Who::Others)), (None, None));
    assert!(p.claim(&fault).is_some());
    assert!(p.give_back(Who::Others, set));
    assert_eq!(p.claim(&other), Some(set));
}

/// A pool of which a set comes back at some nap.
struct Napping {
    pool: Pool<usize>,
    naps: u32,
    back_at: u32,
    lent: Vec<usize>,
}

impl Napping {
    fn new(back_at: u32) -> Self {
        let mut pool = pool(8);
        let lent = core::iter::from_fn(|| pool.try_take(Who::Others)).collect();
        Self {
            pool,
            naps: 0,
            back_at,
            lent,
        }
    }
}

impl Line for Napping {
    type Set = usize;

    fn with<T>(&mut self, f: impl FnOnce(&mut Pool<usize>) -> T) -> T {
        f(&mut self.pool)
    }

    fn progress(&mut self) -> u32 {
        0
    }

    fn wait(&mut self, _: u32) {
        panic!("it waits to be told, and stands in no line");
    }

    fn nap(&mut self, _: u32) {
        self.naps += 1;
        assert!(self.naps < 100, "it waits for ever");
        if self.naps == self.back_at {
            let set = self.lent.pop().unwrap();
            assert!(
                !self.pool.give_back(Who::Others, set),
                "nobody stands in line"
            );
        }
    }

    fn tell(&mut self) {}
}

#[test]
fn who_may_be_told_to_stop_takes_what_is_free_when_it_looks_again() {
    let mut line = Napping::new(3);
    assert!(take_unless(&mut line, Who::Others, |_| false).is_some());
    assert_eq!(line.naps, 3);
    // Told to stop, it takes none, though one is free.
    let mut line = Napping::new(2);
    assert_eq!(
        take_unless(&mut line, Who::Others, |line| line.naps == 2),
        None
    );
    assert_eq!((line.naps, line.pool.free()), (2, 7));
    // Who stands in line comes first.
    let mut line = Napping::new(99);
    let first = line.pool.ask(Who::Others).unwrap_err();
    let set = line.lent.pop().unwrap();
    assert!(line.pool.give_back(Who::Others, set));
    assert_eq!(
        take_unless(&mut line, Who::Others, |line| line.naps == 5),
        None
    );
    assert!(line.pool.claim(&first).is_some());
}

/// What the threads share.
struct State {
    pool: Pool<usize>,
    /// Who has which set.
    lent: Vec<Option<Who>>,
    /// The line, as who came last knows it.
    line: Vec<(Who, u64)>,
    /// Who sleeps, and since which progress.
    asleep: Vec<(Who, u64, u32)>,
    /// So many are about to tell those who wait, if need be.
    about: u32,
    progress: u32,
    wrong: Option<String>,
}

type World = Exploration<State>;

impl State {
    fn blame(&mut self, wrong: &str) {
        self.wrong.get_or_insert(wrong.to_string());
    }

    /// Works on the pool, and checks what it grants.
    fn work<T>(&mut self, f: impl FnOnce(&mut Pool<usize>) -> T) -> T {
        let before = self.pool.others.held;
        let result = f(&mut self.pool);
        let pool = &self.pool;
        let wants = |of: &Queue| of.granted < of.came && of.held < of.most;
        let (faults, others) = (wants(&pool.faults), wants(&pool.others));
        let is_any_left = pool.free.len() > pool.faults.tied() + pool.others.tied();
        if pool.others.held > before && faults {
            self.blame("L-first");
        } else if is_any_left && (faults || others) {
            self.blame("L-granted");
        }
        result
    }

    /// L-told: nobody sleeps on who is granted a set, unless somebody is about to tell it.
    fn check_told(&mut self) {
        let is_granted = |of: &(Who, u64, u32)| match of.0 {
            Who::Fault => of.1 < self.pool.faults.granted,
            Who::Others => of.1 < self.pool.others.granted,
        };
        let sleeps = |of: &(Who, u64, u32)| of.2 == self.progress && is_granted(of);
        if self.about == 0 && self.asleep.iter().any(sleeps) {
            self.blame("L-told");
        }
    }

    /// Who has told those who wait, or need not.
    fn has_told(&mut self) {
        self.about -= 1;
        self.check_told();
    }

    /// Somebody sleeps from now on.
    fn sleeps(&mut self, who: Who, number: u64, progress: u32) {
        self.asleep.push((who, number, progress));
        self.check_told();
    }

    /// Somebody is awake again.
    fn wakes(&mut self, who: Who, number: u64) {
        self.asleep.retain(|of| (of.0, of.1) != (who, number));
    }

    /// Somebody has got a set, who was in line if it waited.
    fn got(&mut self, who: Who, place: Option<u64>, set: usize) {
        if self.lent[set].replace(who).is_some() {
            self.blame("a set is lent twice");
        }
        let of = |kind: Who| self.lent.iter().filter(|w| **w == Some(kind)).count();
        let (faults, others) = (of(Who::Fault), of(Who::Others));
        let all = self.lent.len();
        if faults > all - (all / 8).max(1) || others > (all / 4).max(1) {
            self.blame("L-share");
        }
        let is_before = |(kind, n): &(Who, u64)| *kind == who && place.is_none_or(|p| *n < p);
        // A set is left for each that came before.
        if self.line.iter().filter(|at| is_before(at)).count() > all - faults - others {
            self.blame("L-order");
        }
        self.line.retain(|at| Some(at.1) != place || at.0 != who);
    }
}

/// Takes a set and gives it back, `times` times, as [`take`] and [`give_back`] do it.
async fn reads(w: &World, who: Who, times: usize) {
    for _ in 0..times {
        w.pause().await;
        let set = asks(w, who).await;
        w.pauses(w.below(4)).await;
        let is_granted = {
            let s = &mut *w.now();
            s.lent[set] = None;
            s.about += 1;
            s.work(|pool| pool.give_back(who, set))
        };
        w.pause().await;
        if is_granted && !lacks(Part::TellsOfBack) {
            w.now().progress += 1;
        }
        w.now().has_told();
    }
}

async fn asks(w: &World, who: Who) -> usize {
    let place = {
        let s = &mut *w.now();
        match s.work(|pool| pool.ask(who)) {
            Ok(set) => {
                s.got(who, None, set);
                return set;
            }
            Err(place) => place,
        }
    };
    w.now().line.push((who, place.number));
    loop {
        let mut progress = w.now().progress;
        w.pause().await;
        let claimed = {
            let s = &mut *w.now();
            let set = s.work(|pool| pool.claim(&place));
            set.inspect(|set| s.got(who, Some(place.number), *set))
        };
        if let Some(set) = claimed {
            return set;
        }
        w.pause().await;
        if lacks(Part::LooksFirst) {
            progress = w.now().progress;
        }
        w.now().sleeps(who, place.number, progress);
        w.until(|s| (s.progress != progress).then_some(())).await;
        w.now().wakes(who, place.number);
    }
}

/// The thread that is as it is, with all others.
struct Real<'a, 'w> {
    w: &'w World,
    others: &'a mut Vec<Pin<Box<dyn Future<Output = ()> + 'w>>>,
    who: Who,
    place: Option<u64>,
    /// It is about to tell.
    owes: bool,
}

/// Steps of others that whoever waits needs at most.
const FOR_EVER: usize = 20_000;

impl Real<'_, '_> {
    /// One of the others goes on.
    fn other(&mut self) {
        if self.others.is_empty() {
            return;
        }
        let choice = self.w.below(self.others.len());
        let mut context = Context::from_waker(Waker::noop());
        if self.others[choice].as_mut().poll(&mut context) == Poll::Ready(()) {
            drop(self.others.swap_remove(choice));
        }
    }

    fn pause(&mut self) {
        (0..self.w.below(6)).for_each(|_| self.other());
    }

    fn has_told(&mut self) {
        if core::mem::take(&mut self.owes) {
            self.w.now().has_told();
        }
    }
}

impl Line for Real<'_, '_> {
    type Set = usize;

    fn with<T>(&mut self, f: impl FnOnce(&mut Pool<usize>) -> T) -> T {
        self.pause();
        let s = &mut *self.w.now();
        let (was, top) = (*s.pool.queue(self.who), s.pool.free.last().copied());
        let left = s.pool.free.len();
        let result = s.work(f);
        // What it did is seen by the counts.
        let (now, left_now) = (*s.pool.queue(self.who), s.pool.free.len());
        if now.came > was.came {
            self.place = Some(was.came);
            s.line.push((self.who, was.came));
        }
        if let Some(set) = top.filter(|_| left_now < left) {
            let place = self.place.take();
            s.got(self.who, place, set);
        }
        if let Some(set) = s.pool.free.last().filter(|_| left_now > left) {
            s.lent[*set] = None;
            self.owes = true;
            s.about += 1;
        }
        result
    }

    fn progress(&mut self) -> u32 {
        self.pause();
        self.w.now().progress
    }

    fn wait(&mut self, progress: u32) {
        let (who, number) = (self.who, self.place.unwrap_or_default());
        self.w.now().sleeps(who, number, progress);
        for _ in 0..FOR_EVER {
            if self.w.now().progress != progress {
                self.w.now().wakes(who, number);
                return;
            }
            self.other();
        }
        panic!("it waits for ever");
    }

    fn nap(&mut self, _: u32) {
        self.pause();
    }

    fn tell(&mut self) {
        self.pause();
        self.w.now().progress += 1;
    }
}

/// One interleaving. Returns how often somebody waited. What is broken may panic, too.
fn explored(seed: u64) -> Result<usize, String> {
    std::panic::catch_unwind(|| explore(seed)).unwrap_or(Err("panicked".to_string()))
}

fn explore(seed: u64) -> Result<usize, String> {
    let dice = |n: usize, salt: u64| crate::testing::Dice::new(seed ^ (salt << 40)).below(n);
    let sets = LEAST + dice(8, 1);
    let state = State {
        pool: pool(sets),
        lent: (0..sets).map(|_| None).collect(),
        line: Vec::new(),
        asleep: Vec::new(),
        about: 0,
        progress: 0,
        wrong: None,
    };
    let w = &World::new(state, seed);
    let any = |salt: u64| match dice(3, salt) {
        0 => Who::Others,
        _ => Who::Fault,
    };
    let mut others: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for n in 0..sets + dice(6, 2) {
        let times = 1 + w.below(4);
        others.push(Box::pin(reads(w, any(3 + n as u64), times)));
    }
    let who = any(2);
    let mut real = Real {
        w,
        others: &mut others,
        who,
        place: None,
        owes: false,
    };
    for _ in 0..4 {
        let set = take(&mut real, who);
        (0..2).for_each(|_| real.pause());
        if let Some(wrong) = w.now().wrong.take() {
            return Err(wrong);
        }
        give_back(&mut real, who, set);
        real.has_told();
    }
    run(w, &mut others)?;
    let s = &mut *w.now();
    match s.wrong.take() {
        Some(wrong) => Err(wrong),
        None if s.pool.free.len() < sets => Err("a set is gone".to_string()),
        None => Ok((s.pool.faults.came + s.pool.others.came) as usize),
    }
}

/// All go on until they have ended.
fn run(w: &World, others: &mut Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) -> Result<(), String> {
    let mut context = Context::from_waker(Waker::noop());
    while !others.is_empty() {
        let before = w.steps.get();
        for _ in 0..others.len() * 16 {
            if others.is_empty() {
                break;
            }
            let choice = w.below(others.len());
            if others[choice].as_mut().poll(&mut context) == Poll::Ready(()) {
                drop(others.swap_remove(choice));
            }
        }
        if w.steps.get() == before && !others.is_empty() {
            // Whoever has not been drawn has its chance.
            for i in (0..others.len()).rev() {
                if others[i].as_mut().poll(&mut context) == Poll::Ready(()) {
                    drop(others.swap_remove(i));
                }
            }
            if w.steps.get() == before && !others.is_empty() {
                return Err(format!("{} wait for each other", others.len()));
            }
        }
    }
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "thousands of interleavings")]
fn no_interleaving_leaves_anybody_waiting() {
    let (count, seed) = (setting("UVM_EXPLORE", 5_000), setting("UVM_TEST_SEED", 1));
    std::eprintln!("UVM_TEST_SEED={seed} UVM_EXPLORE={count}");
    let mut waited = 0;
    for seed in (0..count).map(|n| seed.wrapping_add(n)) {
        match explored(seed) {
            Ok(more) => waited += more,
            Err(wrong) => panic!("{wrong}: UVM_TEST_SEED={seed} UVM_EXPLORE=1"),
        }
    }
    std::eprintln!("{waited} waited");
    assert!(count < 1000 || waited as u64 > count, "nobody waits");
}

/// Each part is needed, and the explorer notices within 10,000 interleavings that it is gone.
#[test]
#[cfg_attr(miri, ignore = "thousands of interleavings")]
fn whatever_is_taken_out_is_noticed() {
    for part in Part::ALL {
        take_out(Some(part));
        let found = (1..=10_000).find_map(|seed| {
            let wrong = explored(seed).err()?;
            Some(format!("order {seed}: {wrong}"))
        });
        take_out(None);
        tell_mutant(&format!("{part:?}"), "", found.as_deref());
        assert!(found.is_some(), "{part:?} is not noticed");
    }
}
