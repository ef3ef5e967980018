// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose read or write of the device begins next: what faults wait for comes before what calls and workers do
//! (G10, §4.6). The arbiter does not rely on an I/O scheduler, of which NVMe devices have none by default.
//!
//! What has begun goes on. So few operations for others are under way at a time ([`DEPTH`]), which are of up to
//! 2 MiB each and so keep a device busy; and none begins while a fault waits for a read that has not begun. A fault
//! finds no more than these few ahead of it.
//!
//! Nobody waits for ever. In a storm of faults, operations for others have a share of the device, as one of them may be
//! the spill that makes room for a fault. However long faults wait for want of host memory, one operation for others
//! begins each quarter of a second. An operation that has waited long for those under way may begin beside them.
//!
//! Locking: none. All that has to be consistent is in one atomic number, so that nothing changes between a look and
//! the step that the look allows.
//!
//! # Invariants
//!
//! - **D-depth**: no more than [`DEPTH`] operations for others are under way, or twice as many where somebody has
//!   waited for [`PATIENCE_US`] without one of them ending, or for [`PATIENCE_MOST_US`] in all.
//! - **D-first**: while a fault waits, no operation for others begins, but where faults have read [`SHARE_PAGES`]
//!   since the last one, or none has begun for [`FAULTS_FIRST_US`].

use crate::policy::sync::{AtomicU64, Ordering::*};

/// Operations for others than faults that are under way at a time.
pub const DEPTH: u64 = 2;

/// Pages that faults have read when an operation for others may begin although others of them wait: 16 MiB.
pub const SHARE_PAGES: u64 = 8 * 512;

/// How long none of the others begins where a fault waits, at most, in microseconds.
pub const FAULTS_FIRST_US: u64 = 250_000;

/// How long an operation waits for those that are under way, none of which ends, in microseconds. A device that
/// does not answer is the kernel's to give up.
pub const PATIENCE_US: u64 = 1_000_000;

/// How long it waits for them in all, in microseconds, where others are quicker each time.
pub const PATIENCE_MOST_US: u64 = 4 * PATIENCE_US;

/// What a device is asked for.
#[derive(Debug, Default)]
pub struct Arbiter {
    /// What is the case now, as a [`Now`] that is packed.
    now: AtomicU64,
    /// Pages that were read for faults that had waited, since an operation for others began.
    read: AtomicU64,
    /// When an operation for others began last, or the first of the faults came that wait; in microseconds.
    closed_us: AtomicU64,
    /// The most operations for others that a fault's was behind.
    most: AtomicU64,
}

/// What is the case at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Now {
    /// Va_blocks of which faults wait for pages that nobody has begun to read. There are fewer than 2^28, which are
    /// of 2 MiB.
    waiting: u64,
    /// Operations for others that are under way: of a thread each, of which Linux has 2^22 at most.
    running: u64,
    /// Operations for others that have begun, modulo 2^14.
    begun: u64,
}

/// Faults wait for pages. Whoever has this gives it back to [`Arbiter::begin`] or [`Arbiter::give_up`].
#[derive(Debug)]
#[must_use]
pub struct Waits {
    /// The state of the arbiter when these faults came.
    came: Now,
}

/// Somebody who is about to begin an operation for others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// When it found that too many operations are under way, in microseconds, and the arbiter's state then.
    deep: Option<(u64, Now)>,
    /// How long it has waited for them without one of them ending; and how long in all.
    waited_us: u64,
    waited_in_all_us: u64,
}

impl Arbiter {
    /// Makes the arbiter of a device that nobody asks for anything.
    pub const fn new() -> Self {
        Self {
            now: AtomicU64::new(0),
            read: AtomicU64::new(0),
            closed_us: AtomicU64::new(0),
            most: AtomicU64::new(0),
        }
    }

    /// Faults wait for pages of a va_block from the time `now_us` on, in microseconds.
    pub fn wait(&self, now_us: u64) -> Waits {
        let came = self.change(|now| now.waiting += 1);
        if came.waiting == 0 {
            self.closed_us.store(now_us, Relaxed);
        }
        Waits { came }
    }

    /// The read for these faults begins; faults asked for `pages` of its pages. Ahead of it were the operations for
    /// others that were under way when the faults came, and those that have begun since.
    pub fn begin(&self, waits: Waits, pages: u64) {
        self.read.fetch_add(pages, Relaxed);
        let now = self.give_up_one();
        let since = now.begun.wrapping_sub(waits.came.begun) & Now::BEGUN;
        self.most.fetch_max(waits.came.running + since, Relaxed);
    }

    /// Nobody reads those pages for the faults.
    pub fn give_up(&self, _waits: Waits) {
        self.give_up_one();
    }

    /// Begins an operation for others, if that may be at the time `now_us`, in microseconds. Whatever has begun ends
    /// by [`Arbiter::others_end`].
    #[must_use]
    pub fn others_begin(&self, turn: &mut Turn, now_us: u64) -> bool {
        turn.look(now_us, self.now.load(Acquire).into());
        // A look at these that is a moment too early or late is one that came a moment earlier or later.
        let theirs = self.read.load(Relaxed) < SHARE_PAGES
            && now_us.saturating_sub(self.closed_us.load(Relaxed)) < FAULTS_FIRST_US;
        let begun = self.now.fetch_update(AcqRel, Acquire, |now| {
            let mut now = Now::from(now);
            let depth = if turn.is_patient() { DEPTH } else { 2 * DEPTH };
            let too_deep = now.running >= depth;
            turn.deep = too_deep.then_some((now_us, now));
            let may_begin = !too_deep && (now.waiting == 0 || !theirs);
            now.running += 1;
            now.begun += 1;
            may_begin.then(|| now.into())
        });
        if begun.is_ok() {
            self.read.store(0, Relaxed);
            self.closed_us.store(now_us, Relaxed);
        }
        begun.is_ok()
    }

    /// An operation for others has ended.
    pub fn others_end(&self) {
        self.change(|now| now.running = now.running.saturating_sub(1));
    }

    /// The most operations for others that were under way between a fault's asking and the beginning of its read.
    pub fn most_ahead(&self) -> u64 {
        self.most.load(Relaxed)
    }

    /// One that waited does so no more; returns what was the case.
    fn give_up_one(&self) -> Now {
        self.change(|now| now.waiting = now.waiting.saturating_sub(1))
    }

    /// Changes what is the case; returns what was.
    fn change(&self, how: impl Fn(&mut Now)) -> Now {
        let changed = self.now.fetch_update(AcqRel, Acquire, |now| {
            let mut now = Now::from(now);
            how(&mut now);
            Some(now.into())
        });
        // It never fails, as the closure always has a new value.
        Now::from(changed.unwrap_or_else(|now| now))
    }
}

impl Now {
    const RUNNING_AT: u32 = 28;
    const BEGUN_AT: u32 = 50;
    const WAITING: u64 = (1 << Self::RUNNING_AT) - 1;
    const RUNNING: u64 = (1 << (Self::BEGUN_AT - Self::RUNNING_AT)) - 1;
    const BEGUN: u64 = u64::MAX >> Self::BEGUN_AT;

    /// Operations for others that have ended, modulo 2^14.
    fn ended(self) -> u64 {
        self.begun.wrapping_sub(self.running) & Self::BEGUN
    }
}

impl From<u64> for Now {
    fn from(now: u64) -> Self {
        Self {
            waiting: now & Self::WAITING,
            running: now >> Self::RUNNING_AT & Self::RUNNING,
            begun: now >> Self::BEGUN_AT,
        }
    }
}

impl From<Now> for u64 {
    fn from(now: Now) -> Self {
        now.waiting | now.running << Now::RUNNING_AT | (now.begun & Now::BEGUN) << Now::BEGUN_AT
    }
}

impl Turn {
    /// Looks again: the time since the last look was waited for those that were under way then. As long as some end,
    /// the device answers.
    fn look(&mut self, now_us: u64, now: Now) {
        if let Some((then, was)) = self.deep {
            let waited = now_us.saturating_sub(then);
            self.waited_in_all_us = self.waited_in_all_us.saturating_add(waited);
            self.waited_us = match now.ended() == was.ended() {
                true => self.waited_us.saturating_add(waited),
                false => 0,
            };
        }
    }

    fn is_patient(&self) -> bool {
        self.waited_us < PATIENCE_US && self.waited_in_all_us < PATIENCE_MOST_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{setting, Dice};
    use std::thread;
    use std::vec::Vec;

    /// Whether somebody who has just come may begin.
    fn begins(a: &Arbiter) -> bool {
        a.others_begin(&mut Turn::default(), 0)
    }

    #[test]
    fn others_begin_nothing_while_a_fault_waits() {
        let (a, mut turn) = (Arbiter::new(), Turn::default());
        let (first, second) = (a.wait(7), a.wait(100));
        assert!(!a.others_begin(&mut turn, 8));
        a.begin(first, 1);
        assert!(
            !a.others_begin(&mut turn, 6 + FAULTS_FIRST_US),
            "another waits"
        );
        a.begin(second, 1);
        assert!(a.others_begin(&mut turn, 300));
        assert_eq!(a.most_ahead(), 0);
        a.begin(a.wait(300), 1);
        assert_eq!(a.most_ahead(), 1);
    }

    #[test]
    fn however_long_faults_wait_others_begin_now_and_then() {
        let (a, mut turn) = (Arbiter::new(), Turn::default());
        let waits = a.wait(7);
        assert!(!a.others_begin(&mut turn, 6 + FAULTS_FIRST_US));
        // Whoever it is, and one of them; whatever is read for other faults meanwhile.
        let (mut late, then) = (Turn::default(), 7 + FAULTS_FIRST_US);
        assert!(a.others_begin(&mut late, then));
        a.begin(a.wait(then), 1);
        assert!(!a.others_begin(&mut turn, then + FAULTS_FIRST_US - 1));
        assert!(a.others_begin(&mut turn, then + FAULTS_FIRST_US));
        a.give_up(waits);
        a.others_end();
        assert!(a.others_begin(&mut turn, then + FAULTS_FIRST_US));
        assert_eq!(a.most_ahead(), 1);
    }

    #[test]
    fn others_have_a_share_in_a_storm_of_faults() {
        let (a, mut turn) = (Arbiter::new(), Turn::default());
        let last = a.wait(0);
        let (pages, mut begun) = (SHARE_PAGES / 4, 0);
        for _ in 0..64 {
            a.begin(a.wait(0), pages);
            if a.others_begin(&mut turn, 0) {
                begun += 1;
                a.others_end();
            }
        }
        assert_eq!(begun, 16);
        a.begin(last, pages);
        assert_eq!(a.most_ahead(), 16, "that one waited all the time");
    }

    #[test]
    fn few_are_under_way_and_some_more_where_none_ends() {
        let (a, mut turn) = (Arbiter::new(), Turn::default());
        (0..DEPTH).for_each(|_| assert!(begins(&a)));
        for _ in 0..DEPTH {
            let mut turn = Turn::default();
            assert!(!a.others_begin(&mut turn, 0) && !a.others_begin(&mut turn, PATIENCE_US - 1));
            assert!(a.others_begin(&mut turn, PATIENCE_US));
        }
        assert!(!a.others_begin(&mut turn, 0) && !a.others_begin(&mut turn, 9 * PATIENCE_US));
        (0..=DEPTH).for_each(|_| a.others_end());
        assert!(begins(&a) && !begins(&a));
    }

    #[test]
    fn what_is_waited_for_faults_takes_no_patience() {
        let (a, mut turn) = (Arbiter::new(), Turn::default());
        assert!(begins(&a));
        let waits = a.wait(0);
        assert!(!a.others_begin(&mut turn, 0) && !a.others_begin(&mut turn, FAULTS_FIRST_US - 1));
        a.give_up(waits);
        assert!(begins(&a));
        let now_us = 9 * PATIENCE_US;
        assert!(!a.others_begin(&mut turn, now_us) && !a.others_begin(&mut turn, now_us + 1));
    }

    #[test]
    fn a_device_that_is_slow_answers_all_the_same() {
        let (a, mut turn) = (Arbiter::new(), Turn::default());
        (0..DEPTH).for_each(|_| assert!(begins(&a)));
        let step = PATIENCE_US - 1;
        let looks = PATIENCE_MOST_US / step;
        for look in 0..=looks {
            assert!(!a.others_begin(&mut turn, look * step));
            // Somebody else comes first.
            a.others_end();
            assert!(begins(&a));
        }
        assert!(
            a.others_begin(&mut turn, (looks + 1) * step),
            "always overtaken"
        );
    }

    #[test]
    fn what_is_ahead_is_what_was_under_way_meanwhile() {
        let seed = setting("UVM_TEST_SEED", 1);
        std::eprintln!("UVM_TEST_SEED={seed}");
        let (a, mut d) = (Arbiter::new(), Dice::new(seed));
        let (mut waiting, mut most, mut running, mut read) = (Vec::new(), 0, 0_u64, 0);
        // More than the count of what has begun has values.
        for _ in 0..100_000 {
            match d.below(4) {
                0 if waiting.len() < 8 => waiting.push((a.wait(0), running)),
                1 if !waiting.is_empty() => {
                    let (waits, ahead) = waiting.swap_remove(d.below(waiting.len()));
                    if d.one_in(4) {
                        a.give_up(waits);
                    } else {
                        let pages = 1 + d.below(512) as u64;
                        a.begin(waits, pages);
                        read += pages;
                        most = most.max(ahead);
                    }
                }
                2 if running > 0 => {
                    a.others_end();
                    running -= 1;
                }
                _ => {
                    let now_us = FAULTS_FIRST_US * u64::from(d.one_in(8));
                    let mut turn = Turn {
                        deep: None,
                        waited_us: PATIENCE_US * u64::from(d.one_in(8)),
                        waited_in_all_us: PATIENCE_MOST_US * u64::from(d.one_in(8)),
                    };
                    // The last one began, or the gate closed, at the time 0.
                    a.closed_us.store(0, Relaxed);
                    let depth = if turn.is_patient() { DEPTH } else { 2 * DEPTH };
                    let may = (waiting.is_empty() || now_us > 0 || read >= SHARE_PAGES)
                        && running < depth;
                    assert_eq!(a.others_begin(&mut turn, now_us), may);
                    if may {
                        (running, read) = (running + 1, 0);
                        waiting.iter_mut().for_each(|(_, ahead)| *ahead += 1);
                    }
                }
            }
            assert_eq!(a.most_ahead(), most);
        }
        assert!(most > DEPTH, "seed {seed} tries nothing");
    }

    /// D-depth and D-first, between threads: with a share that nobody reaches, a fault finds [`DEPTH`] at most.
    #[test]
    fn threads_find_few_ahead() {
        let a = Arbiter::new();
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..rounds {
                        while !begins(&a) {
                            thread::yield_now();
                        }
                        a.others_end();
                    }
                });
            }
            s.spawn(|| {
                for _ in 0..rounds {
                    let waits = a.wait(0);
                    thread::yield_now();
                    a.begin(waits, 0);
                }
            });
        });
        assert!(a.most_ahead() <= DEPTH, "{}", a.most_ahead());
        let now = Now::from(a.now.load(Acquire));
        assert_eq!((now.running, now.waiting), (0, 0));
    }
}
