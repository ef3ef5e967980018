// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whose read or write of the device begins next (G10, §4.6), in five classes:
//!
//! ```text
//!  faults                    whoever waits for a page of its own, which waits for no turn
//!  others    Fetch           planned reads: by a call, or for whoever can wait
//!     |                      and writes for want of host memory that faults wait for
//!     |      Prefetch        reads of what was guessed
//!     |      Evict           planned writes, by a call, before anything is locked
//!     v      Spill           writes before there is want of host memory; relocation and trimming, which make room on the
//!                            device
//! ```
//!
//! `cause.rs` says who waits in which class.
//!
//! The arbiter does not rely on an I/O scheduler, of which NVMe devices have none by default.
//!
//! An operation cannot be stopped. Therefore at most [`DEPTH`] operations for others run at a time, and none begins while
//! a fault waits for its read to begin. An operation moves up to 2 MiB, so these few keep a device busy. A fault
//! finds no more than these few ahead of it, or twice as many where somebody has lost patience.
//!
//! Of the others the most urgent class that somebody waits in comes first. A class that has waited for [`AGE_US`] without
//! beginning anything comes before all others, and of several such classes the one that has waited longest; but after
//! one that was not the most urgent, the most urgent one begins. Where few begin, as faults come first or the device is slow, all
//! classes have waited that long, and the most urgent one has half of what begins all the same. So each class
//! begins something in that time and twice as many operations as there are less urgent classes, whatever the rest asks for.
//! Whoever is next and does not come for its turn, as its thread gets no CPU, is passed over after [`YIELD_US`], in which the
//! time that faults have the device in between does not count.
//!
//! Nobody waits for ever. In a storm of faults, operations for others have a share of the device, as one of them may be
//! the spill that makes room for a fault. However long faults wait for want of host memory, one operation for others
//! begins each quarter of a second. An operation that is next, and has waited long for those under way, may begin beside
//! them. Who waits for its class to be next learns nothing of the device.
//!
//! Within a class whoever has waited longest comes first, of those who have looked since the last such one began: each says
//! since when it waits as it looks in vain, and only the longest time is kept. So for each that begins before somebody, one
//! that came later may do so as well, until that somebody has looked again. Many threads that read by call all the time keep
//! another tenant's read or write of the first class waiting for twice as many operations as were there before it.
//!
//! Locking: none. All that has to be consistent is in one atomic number, so that nothing changes between a look and
//! the step that the look allows.
//!
//! # Invariants
//!
//! - **D-depth**: no more than [`DEPTH`] operations for others are under way, or twice as many where somebody has
//!   waited for [`PATIENCE_US`] without one of them ending, or for [`PATIENCE_MOST_US`] in all, as the one that is next.
//!   Whoever is not next, or next in another's stead, begins none beyond [`DEPTH`].
//! - **D-first**: while a fault waits, no operation for others begins, but where faults have read [`SHARE_PAGES`]
//!   since the last one, or none has begun for [`FAULTS_FIRST_US`].
//! - **D-order**: an operation of a class begins only if nobody waits in a more urgent one, or if it is the one that has
//!   waited longest of the classes that have waited for [`AGE_US`]; and none but that one begins then. Of its class it is
//!   the one that is known to have waited longest. Of two that begin one after the other, only one is ahead of somebody
//!   more urgent for its age; which one that is, is in the atomic number. Whoever has found room for [`YIELD_US`] in
//!   all that nobody used, while no other one began, begins all the same.
//! - **D-lock**: who waits with the lock of a VA space does so in the first class. A writer of the VA space waits for the
//!   one that waits here, behind the writer the thread that services faults, and behind that thread all processes. So
//!   no more than one operation of a less urgent class begins ahead of each of the first class that comes for its turn.

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

/// How long somebody waits in a class, of which nothing begins, until the class comes before those that are more urgent,
/// in microseconds.
pub const AGE_US: u64 = 250_000;

/// How long the one that is next may leave its turn to nobody, in microseconds. Faults that come and go in between do not
/// have the time begin anew.
pub const YIELD_US: u64 = 20_000;

/// Whom an operation is for, if not for a fault: the first comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A planned read: by a call, or for whoever else can wait; or a write for want of host memory that faults wait for.
    Fetch,
    /// A read of what was guessed.
    Prefetch,
    /// Planned writes, by a call that has locked nothing yet, and begins them in the first class. It only passes here
    /// ([`Arbiter::may_pass`]).
    Evict,
    /// A write before there is want of host memory, or what makes room on the device.
    #[default]
    Spill,
}

/// What a device is asked for.
#[derive(Debug, Default)]
pub struct Arbiter {
    /// What is the case now, as a [`Now`] that is packed.
    now: AtomicU64,
    /// How many wait in each class, as [`Lines`] that are packed.
    lines: AtomicU64,
    /// When an operation of each class began last, or somebody passed; or when the first came of those that wait in it; in
    /// microseconds.
    since_us: [AtomicU64; Class::ALL.len()],
    /// Since when the one has waited that has waited longest in each class, of those who have looked since the last such one
    /// began or left, in microseconds; 0 if none of them has.
    eldest_us: [AtomicU64; Class::ALL.len()],
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
    /// Operations for others that are under way, which are few (D-depth).
    running: u64,
    /// The last one that began was ahead of somebody more urgent, for its age.
    aged: bool,
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

/// How many wait in each class. Who waits beyond [`Lines::MOST`] is not counted, and is one more of those that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines(u64);

/// Somebody who is about to begin an operation for others. Who does not begin gives this to [`Arbiter::leave`].
#[derive(Clone, Debug, Default)]
pub struct Turn {
    class: Class,
    /// It is counted in the line of its class.
    in_line: bool,
    /// When it first looked in vain, in whatever class, in microseconds.
    came_us: Option<u64>,
    /// The room that it has found, and that was another's.
    passed: Passed,
    /// When its class was next and too many operations were under way, in microseconds, and the arbiter's state then.
    deep: Option<(u64, Now)>,
    /// How long it has waited for them without one of them ending; and how long in all.
    waited_us: u64,
    waited_in_all_us: u64,
}

/// The room that somebody has found who was not next, and that nobody has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Passed {
    /// How many operations had begun by then. Once another one has begun, all of this is over.
    begun: u64,
    /// How long there has been room in all, as far as the looks say, in microseconds.
    open_us: u64,
    /// When the last look was, in microseconds, if that found room.
    since_us: Option<u64>,
}

/// What somebody has seen who looks whether it may begin.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// When that was, in microseconds.
    now_us: u64,
    /// Others may not begin while a fault waits.
    theirs: bool,
    /// Nobody waits in a class that is more urgent.
    is_first: bool,
    /// Of the classes that have waited long, the one that has waited longest.
    oldest: Option<Class>,
    /// Nobody is known to have waited longer in its class.
    is_eldest: bool,
    /// `Some(begun)` if the next in line left room unused for [`YIELD_US`]; void once another operation begins.
    passed_over: Option<u64>,
}

/// Why somebody is next, if it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Others come before it.
    No,
    /// Nobody more urgent waits, or comes for its turn.
    Urgent,
    /// Its class has waited longest.
    Aged,
}

impl Arbiter {
    /// Makes the arbiter of a device that nobody asks for anything.
    pub const fn new() -> Self {
        Self {
            now: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            since_us: [const { AtomicU64::new(0) }; Class::ALL.len()],
            eldest_us: [const { AtomicU64::new(0) }; Class::ALL.len()],
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
    /// by [`Arbiter::others_end`]. Who may not begin waits in the line of its class until it does, or leaves it.
    #[must_use]
    pub fn others_begin(&self, turn: &mut Turn, now_us: u64) -> bool {
        self.looks(turn, now_us, Self::tries_to_begin)
    }

    fn tries_to_begin(&self, turn: &mut Turn, now_us: u64) -> bool {
        let look = self.look(turn, now_us);
        let begun = self.now.fetch_update(AcqRel, Acquire, |now| {
            let mut now = Now::from(now);
            let found = turn.finds(look, now);
            now.running += 1;
            now.begun += 1;
            now.aged = found == Next::Aged;
            (found != Next::No).then(|| now.into())
        });
        if begun.is_ok() {
            self.read.store(0, Relaxed);
            self.closed_us.store(now_us, Relaxed);
        }
        self.is_served(turn, look, begun.is_ok())
    }

    /// Whether an operation for others might begin at the time `now_us`, in microseconds. None does, so nobody has less of
    /// the device for it. Who may not pass waits in the line of its class until it does, or leaves it.
    #[must_use]
    pub fn may_pass(&self, turn: &mut Turn, now_us: u64) -> bool {
        self.looks(turn, now_us, Self::tries_to_pass)
    }

    fn tries_to_pass(&self, turn: &mut Turn, now_us: u64) -> bool {
        let look = self.look(turn, now_us);
        let passes = turn.finds(look, self.now.load(Acquire).into()) != Next::No;
        self.is_served(turn, look, passes)
    }

    /// Looks, and once more if this one came to its line only after the look: whoever left a line in between found nobody in
    /// line to tell ([`Arbiter::has_room_for_another`]).
    fn looks(
        &self,
        turn: &mut Turn,
        now_us: u64,
        tries: impl Fn(&Self, &mut Turn, u64) -> bool,
    ) -> bool {
        let was_in_line = turn.in_line;
        tries(self, turn, now_us) || !was_in_line && turn.in_line && tries(self, turn, now_us)
    }

    /// Looks at all but how many operations are under way.
    fn look(&self, turn: &mut Turn, now_us: u64) -> Look {
        let seen = Now::from(self.now.load(Acquire));
        // A look at these that is a moment too early or late is one that came a moment earlier or later.
        let closed_us = self.closed_us.load(Relaxed);
        let theirs = self.read.load(Relaxed) < SHARE_PAGES
            && now_us.saturating_sub(closed_us) < FAULTS_FIRST_US;
        let is_closed = theirs && seen.waiting > 0;
        turn.look(now_us, seen);
        turn.sum_room(if is_closed { closed_us } else { now_us }, seen);
        let lines = Lines(self.lines.load(Acquire));
        let waits = |of: &Class| lines.of(*of) > 0;
        // The first of those that have waited equally long is the most urgent one.
        let oldest = Class::ALL
            .into_iter()
            .filter(waits)
            .map(|of| (self.since(of), of))
            .filter(|(since, _)| now_us.saturating_sub(*since) >= AGE_US)
            .min();
        Look {
            now_us,
            theirs,
            is_first: !Class::ALL.iter().any(|of| *of < turn.class && waits(of)),
            oldest: oldest.map(|(_, oldest)| oldest),
            is_eldest: self.is_eldest(turn, now_us),
            passed_over: turn.passed.is_long(seen).then_some(seen.begun),
        }
    }

    /// Whoever looked goes on if it `is` served, or waits in line; returns which.
    fn is_served(&self, turn: &mut Turn, look: Look, is: bool) -> bool {
        if !is {
            self.waits_on(turn, look.now_us);
            return false;
        }
        if look.passed_over.is_some() {
            // Whoever was next has not looked for long. It says that it has waited longest when it looks again, and until
            // then the others do not wait for it anew.
            self.eldest_us.iter().for_each(|of| of.store(0, Relaxed));
        }
        self.leave_line(turn);
        self.begins(turn.class, look.now_us);
        turn.passed = Passed::default();
        true
    }

    /// Whether nobody is known to have waited longer than this one in its class.
    fn is_eldest(&self, turn: &Turn, now_us: u64) -> bool {
        let eldest = self.eldest_us.get(turn.class as usize);
        let eldest = eldest.map_or(0, |eldest| eldest.load(Relaxed));
        eldest == 0 || turn.came_us.unwrap_or(now_us) <= eldest
    }

    /// Whoever looked in vain waits in line, and says since when, if nobody has waited longer.
    fn waits_on(&self, turn: &mut Turn, now_us: u64) {
        if !turn.in_line {
            self.join_line(turn, now_us);
        }
        // 0 is nobody.
        let came = *turn.came_us.get_or_insert(now_us.max(1));
        if let Some(eldest) = self.eldest_us.get(turn.class as usize) {
            let is_longer = |than| (than == 0 || came < than).then_some(came);
            // It fails where another one has waited longer.
            let _ = eldest.fetch_update(Relaxed, Relaxed, is_longer);
        }
    }

    /// Moves this turn to `class`. Its age stays; its patience starts anew. Returns whether it was in another class.
    pub fn change_class(&self, turn: &mut Turn, class: Class) -> bool {
        let changes = turn.class != class;
        if changes {
            let came_us = turn.came_us;
            self.leave_line(turn);
            *turn = Turn {
                came_us,
                ..Turn::new(class)
            };
        }
        changes
    }

    /// Gives the turn up without beginning.
    pub fn leave(&self, mut turn: Turn) {
        self.leave_line(&mut turn);
    }

    /// Whether one of those who wait in lines may find room now.
    pub fn has_room_for_another(&self) -> bool {
        let now = Now::from(self.now.load(Acquire));
        self.lines.load(Relaxed) != 0 && now.waiting == 0 && now.running < DEPTH
    }

    fn since(&self, class: Class) -> u64 {
        let since = self.since_us.get(class as usize);
        since.map_or(0, |since| since.load(Relaxed))
    }

    /// Of this class one begins, or passes; or the first comes to wait.
    fn begins(&self, class: Class, now_us: u64) {
        if let Some(since) = self.since_us.get(class as usize) {
            since.store(now_us, Relaxed);
        }
    }

    fn join_line(&self, turn: &mut Turn, now_us: u64) {
        let class = turn.class;
        // Whoever sees somebody in an empty line sees since when: otherwise the class would seem to have waited since
        // something of it last began.
        if Lines(self.lines.load(Relaxed)).of(class) == 0 {
            self.begins(class, now_us);
        }
        let joined = self
            .lines
            .fetch_update(Release, Relaxed, |lines| Lines(lines).with_one(class));
        turn.in_line = joined.is_ok();
        // The last one may have left the line since that look.
        if joined.is_ok_and(|before| Lines(before).of(class) == 0) {
            self.begins(class, now_us);
        }
    }

    fn leave_line(&self, turn: &mut Turn) {
        let eldest = self.eldest_us.get(turn.class as usize);
        if let (Some(eldest), Some(came)) = (eldest, turn.came_us.take()) {
            // It fails where another one has waited longer.
            let _ = eldest.compare_exchange(came, 0, Relaxed, Relaxed);
        }
        if core::mem::take(&mut turn.in_line) {
            // Whoever finds the line without this one finds that it is not the eldest either.
            self.lines.fetch_sub(Lines::one(turn.class), Release);
        }
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
    const AGED_AT: u32 = 49;
    const BEGUN_AT: u32 = 50;
    const WAITING: u64 = (1 << Self::RUNNING_AT) - 1;
    const RUNNING: u64 = (1 << (Self::AGED_AT - Self::RUNNING_AT)) - 1;
    const BEGUN: u64 = u64::MAX >> Self::BEGUN_AT;

    /// Operations for others that have ended, modulo 2^14.
    fn ended(self) -> u64 {
        self.begun.wrapping_sub(self.running) & Self::BEGUN
    }
}

impl Class {
    /// All of them, the most urgent one first.
    pub const ALL: [Self; 4] = [Self::Fetch, Self::Prefetch, Self::Evict, Self::Spill];
}

impl Lines {
    const BITS: u32 = u64::BITS / Class::ALL.len() as u32;
    /// The most that are counted in a line.
    const MOST: u64 = (1 << Self::BITS) - 1;

    /// One that waits in this class.
    const fn one(class: Class) -> u64 {
        1 << (class as u32 * Self::BITS)
    }

    fn of(self, class: Class) -> u64 {
        (self.0 / Self::one(class)) & Self::MOST
    }

    /// The same with one more in this class, if that can be counted.
    fn with_one(self, class: Class) -> Option<u64> {
        (self.of(class) < Self::MOST).then(|| self.0 + Self::one(class))
    }
}

impl From<u64> for Now {
    fn from(now: u64) -> Self {
        Self {
            waiting: now & Self::WAITING,
            running: now >> Self::RUNNING_AT & Self::RUNNING,
            aged: now >> Self::AGED_AT & 1 != 0,
            begun: now >> Self::BEGUN_AT,
        }
    }
}

impl From<Now> for u64 {
    fn from(now: Now) -> Self {
        let aged = u64::from(now.aged) << Now::AGED_AT;
        let begun = (now.begun & Now::BEGUN) << Now::BEGUN_AT;
        now.waiting | now.running << Now::RUNNING_AT | aged | begun
    }
}

impl Look {
    /// Whether whoever is next has left room to nobody for long, still with the device as it is `now`.
    fn is_passed_over(&self, now: Now) -> bool {
        self.passed_over == Some(now.begun)
    }
}

impl Passed {
    /// What is left of it with the device as it is `now`.
    fn as_of(self, now: Now) -> Self {
        if self.begun == now.begun {
            return self;
        }
        Self {
            begun: now.begun,
            ..Self::default()
        }
    }

    /// Whether whoever is next has left room to nobody for long.
    fn is_long(self, now: Now) -> bool {
        self.as_of(now).open_us >= YIELD_US
    }
}

impl Turn {
    /// A turn for an operation of this class.
    pub fn new(class: Class) -> Self {
        Self {
            class,
            ..Self::default()
        }
    }

    /// Why it may begin what it looked for, if it may, with the device as it is `now`. Notes why it may not.
    fn finds(&mut self, look: Look, now: Now) -> Next {
        let next = self.next(look, now);
        let is_next = next != Next::No;
        // An operation that takes the place of one that did not come gets no more than its room.
        let may_wait = self.is_patient() || !is_next || look.is_passed_over(now);
        let depth = if may_wait { DEPTH } else { 2 * DEPTH };
        let too_deep = now.running >= depth;
        let has_room = !too_deep && (now.waiting == 0 || !look.theirs);
        // All who wait in the class that is next lose patience at the same time, and begin one after the other.
        let is_class_next = self.is_class_next(look, now);
        self.deep = (too_deep && is_class_next).then_some((look.now_us, now));
        self.finds_room(has_room && !is_next, look.now_us, now);
        if has_room {
            next
        } else {
            Next::No
        }
    }

    /// Why it is next (D-order). Whether the last one was for its age, and whether one has begun since the look, is asked of
    /// the device as it is `now`: of two that have looked at the same time, one begins.
    fn next(&self, look: Look, now: Now) -> Next {
        let is_next = self.is_class_next(look, now) && look.is_eldest;
        if is_next && !look.is_first {
            Next::Aged
        } else if is_next || look.is_passed_over(now) {
            Next::Urgent
        } else {
            Next::No
        }
    }

    /// Whether its class is next.
    fn is_class_next(&self, look: Look, now: Now) -> bool {
        let oldest = look.oldest.filter(|_| !now.aged);
        oldest.map_or(look.is_first, |oldest| oldest == self.class)
    }

    /// Notes whether there `is` room that is another's.
    fn finds_room(&mut self, is: bool, now_us: u64, now: Now) {
        self.passed = Passed {
            since_us: is.then_some(now_us),
            ..self.passed.as_of(now)
        };
    }

    /// There was room from the last look on, if that found some, until `end_us`, as far as this one can say.
    fn sum_room(&mut self, end_us: u64, now: Now) {
        let passed = self.passed.as_of(now);
        let more = passed.since_us.map_or(0, |of| end_us.saturating_sub(of));
        self.passed = Passed {
            open_us: passed.open_us.saturating_add(more),
            ..passed
        };
    }

    /// Looks again: if its class was next, the time since the last look was waited for those that were under way then. As long
    /// as some end, the device answers.
    fn look(&mut self, now_us: u64, now: Now) {
        let Some((then, was)) = self.deep else {
            self.waited_us = 0;
            return;
        };
        let waited = now_us.saturating_sub(then);
        self.waited_in_all_us = self.waited_in_all_us.saturating_add(waited);
        self.waited_us = match now.ended() == was.ended() {
            true => self.waited_us.saturating_add(waited),
            false => 0,
        };
    }

    fn is_patient(&self) -> bool {
        self.waited_us < PATIENCE_US && self.waited_in_all_us < PATIENCE_MOST_US
    }
}

#[cfg(test)]
mod tests;
