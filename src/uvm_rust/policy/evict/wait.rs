// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What an allocation does when a GPU has no memory: whether it waits, how long it looks for some, and when it gives up.
//!
//! Memory that is all in use may be on its way all the same, in three cases:
//!
//! - The driver of the whole GPU (RM) evicts one root chunk after the other. RM keeps all of them
//!   until it has what it asks for, or gives them back.
//! - A root chunk of which somebody holds pages stays, and what an eviction had got of it is
//!   everybody's.
//! - Between two evictions of one thread nobody evicts for a moment.
//!
//! An allocation that fails meanwhile would make a GPU fault a fatal one.
//!
//! Time is in milliseconds from wherever the caller counts.

/// There is no memory when so many root chunks in a row were held, or as many as there are...
pub const HELD_CHUNKS: u32 = 64;
/// ... and for so long.
pub const HELD_MS: u64 = 3000;

/// How long an allocation waits for memory that others are about to give back.
pub const ON_ITS_WAY_MS: u64 = 30_000;

/// How long nobody may have evicted anything before no eviction is waited for any more. Between
/// two evictions of one thread nobody evicts for a moment. Evicted memory is copied and mapped
/// before it can be evicted again. And RM gives back what it does not use only after its call.
pub const QUIET_MS: u64 = 100;

/// How an eviction of a root chunk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The eviction got the chunk.
    Got,
    /// The chunk stays, because somebody holds pages of it.
    Held {
        /// How many root chunks an eviction may choose from.
        of: u32,
    },
    /// The same, and the thread allocates for a guess: it gives up at once, and tells nothing of others' waits.
    Guessed,
    /// Something else went wrong.
    Failed,
    /// However the eviction ended, it was to make room for the chunk's own process: it leaves no memory for others, and says
    /// nothing of theirs.
    ForOwner,
}

/// A row of evictions on one GPU, each of which left its root chunk held. All threads that evict share the row. An
/// eviction that gets its chunk ends the row for all of them. A thread that gives up does not end the row; otherwise
/// each thread would wait as long again. The next thread only looks at as many chunks once more.
///
/// Locking: the caller's, one call at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When the first and the last of the row ended; `None` without a row.
    ended: Option<(u64, u64)>,
    /// How many held evictions there were since a thread last gave up.
    held: u32,
}

impl Row {
    /// The row with these `held` evictions, the first and the last of which `ended` then.
    pub fn new(ended: Option<(u64, u64)>, held: u32) -> Self {
        Self { ended, held }
    }

    /// The row in parts, as [`Row::new`] takes them.
    pub fn parts(&self) -> (Option<(u64, u64)>, u32) {
        (self.ended, self.held)
    }

    /// Notes the end of an eviction. Returns true if its thread gives up, because there is no memory. Otherwise a
    /// thread whose chunk was held tries another chunk, which may not be held.
    pub fn ended(&mut self, how: Ended, now: u64) -> bool {
        let of = match how {
            Ended::Got => {
                self.ended = None;
                return false;
            }
            Ended::Failed | Ended::ForOwner => return false,
            Ended::Guessed => return true,
            Ended::Held { of } => of,
        };
        // A row of long ago does not count.
        let goes_on = |&(_, last): &(u64, u64)| now <= last + HELD_MS;
        let first = match self.ended.filter(goes_on) {
            Some((first, _)) => first,
            None => {
                self.held = 0;
                now
            }
        };
        self.ended = Some((first, now));
        self.held += 1;
        if self.held < HELD_CHUNKS.min(of) || now < first + HELD_MS {
            return false;
        }
        self.held = 0;
        true
    }
}

/// What an allocation is like, by which it waits for memory or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asks {
    /// It may evict what is in use. Who may not holds locks that an eviction takes, and asks again without them.
    pub evicts: bool,
    /// It asks for programs' memory. The kernel's own is not evicted, and may lie elsewhere.
    pub for_users: bool,
    /// Its thread frees memory of Linux's, which waits for it.
    pub frees: bool,
}

impl Asks {
    /// Whether the allocation waits for memory that others are about to give back.
    pub fn waits(self) -> bool {
        self.evicts && self.for_users && !self.frees
    }
}

/// Why a try to allocate found no memory, which the caller of the allocation is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There is none, as far as upstream can see.
    Gone,
    /// Chunks are pinned, or being evicted: the caller is to call again, at once. Upstream says so from 580.142 on.
    Again,
}

/// How a try to allocate ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The allocation has its memory.
    Got,
    /// There was no memory, for this reason.
    Lacks(Lack),
}

/// An allocation, and the reclaim that others do meanwhile.
pub trait Machine {
    /// What may go wrong beside a lack of memory.
    type Error;

    /// Tries to allocate; `evict`: evicts what is in use for it, if the allocation may.
    fn allocate(&mut self, evict: bool) -> Result<Tried, Self::Error>;

    /// Whether this thread allocates for a guess, which takes only what memory there is.
    fn guesses(&mut self) -> bool;

    /// Begins a try, and forgets that this thread gave up ([`Row::ended`]). Returns the count of gains: how often
    /// somebody has left memory for others. Later calls compare with it.
    fn begin(&mut self) -> u32;

    /// Whether other threads are about to give memory back, or have done so since the count of gains was `gains`.
    fn goes_on(&mut self, gains: u32) -> bool;

    /// Whether this thread gave up since [`Machine::begin`], and the count of gains is still `gains`. A thread that
    /// gave up still waits for RM.
    fn given_up(&mut self, gains: u32) -> bool;

    /// The time now, in milliseconds from any moment on; it does not go back.
    fn now(&mut self) -> u64;

    /// Whether the thread is to die.
    fn dying(&mut self) -> bool;

    /// Sleeps for a moment, a millisecond at most.
    fn nap(&mut self);
}

/// Allocates: once, and if there is no memory for one that waits, again while others are evicting what there is.
///
/// # Errors
///
/// What a try failed with, beside a lack of memory.
pub fn allocate<M: Machine>(machine: &mut M, asks: Asks) -> Result<Tried, M::Error> {
    if !asks.waits() {
        return machine.allocate(true);
    }
    let gains = machine.begin();
    match machine.allocate(true)? {
        Tried::Got => Ok(Tried::Got),
        Tried::Lacks(lack) => wait_for_memory(machine, gains, lack),
    }
}

/// Goes on with an allocation whose first try, with `gains` from before it, found no memory, and said so by `lack`.
///
/// At the end the thread looks once more without evicting. Its own failed evictions have freed the chunks that they
/// had got, and upstream looks for free root chunks only while it evicts. If that finds nothing, the caller is told what the
/// last try with eviction said. A guess is not to be tried again at once, whatever that said.
fn wait_for_memory<M: Machine>(
    machine: &mut M,
    mut gains: u32,
    mut lack: Lack,
) -> Result<Tried, M::Error> {
    // The first try may have taken long by itself; the time begins behind it.
    let began = machine.now();
    let mut busy = began;
    loop {
        let (now, guesses) = (machine.now(), machine.guesses());
        if guesses
            || machine.given_up(gains)
            || now > busy + QUIET_MS
            || now > began + ON_ITS_WAY_MS
            || machine.dying()
        {
            let said = if guesses { Lack::Gone } else { lack };
            return Ok(match machine.allocate(false)? {
                Tried::Got => Tried::Got,
                Tried::Lacks(_) => Tried::Lacks(said),
            });
        }
        machine.nap();
        gains = machine.begin();
        match machine.allocate(true)? {
            Tried::Got => return Ok(Tried::Got),
            Tried::Lacks(now) => lack = now,
        }
        if machine.goes_on(gains) {
            busy = machine.now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// An eviction that left its chunk held, one of very many.
    const HELD: Ended = Ended::Held { of: u32::MAX };

    /// Evictions that are held, one each so many milliseconds from `at` on; how many until
    /// somebody gives up.
    fn until_given_up(row: &mut Row, at: &mut u64, each: u64) -> u32 {
        until_given_up_as(row, HELD, at, each)
    }

    /// The same, of evictions that end as `held`.
    fn until_given_up_as(row: &mut Row, held: Ended, at: &mut u64, each: u64) -> u32 {
        for n in 1..100_000 {
            *at += each;
            if row.ended(held, *at) {
                return n;
            }
        }
        panic!("nobody gives up");
    }

    #[test]
    fn who_finds_all_held_gives_up_after_so_many_and_so_long() {
        for (each, evictions) in [
            (1, 3001),
            (40, 76),
            (47, 65),
            (48, 64),
            (100, 64),
            (3000, 64),
        ] {
            let n = until_given_up(&mut Row::default(), &mut 50_000, each);
            assert_eq!(n, evictions, "one each {each} ms");
        }
    }

    /// Or each of several threads would wait as long again.
    #[test]
    fn a_row_goes_on_behind_one_that_gave_up() {
        let (mut row, mut at) = (Row::default(), 0);
        until_given_up(&mut row, &mut at, 10);
        assert_eq!(until_given_up(&mut row, &mut at, 1), HELD_CHUNKS);
    }

    /// Where there are few chunks, to look at each of them is enough: eight threads that all gave up after
    /// 64 evictions took eight times as long as one.
    #[test]
    fn few_chunks_are_each_looked_at_once_by_who_comes_next() {
        for of in [1, 4, HELD_CHUNKS - 1, HELD_CHUNKS, HELD_CHUNKS + 1] {
            let (mut row, mut at) = (Row::default(), 0);
            let mut until = |row: &mut Row| until_given_up_as(row, Ended::Held { of }, &mut at, 1);
            assert_eq!(until(&mut row), 3001, "the first waits as long");
            for _ in 0..3 {
                assert_eq!(until(&mut row), of.min(HELD_CHUNKS));
            }
            row.ended(Ended::Got, 0);
            assert_eq!(until(&mut row), 3001);
        }
    }

    #[test]
    fn a_row_ends_with_what_is_got_or_when_nothing_came_for_long() {
        let (mut row, mut at) = (Row::default(), 0);
        until_given_up(&mut row, &mut at, 10);
        assert!(!row.ended(Ended::Got, at));
        assert_eq!(until_given_up(&mut row, &mut at, 1), 3001);
        at += HELD_MS;
        assert_eq!(until_given_up(&mut row, &mut at, 1), 3001);
        // Evictions of a row that has ended do not count in the next row.
        let (mut long_ago, mut later) = (Row::default(), HELD_MS + 1);
        for _ in 1..HELD_CHUNKS {
            assert!(!long_ago.ended(HELD, 0));
        }
        let n = until_given_up(&mut long_ago, &mut later, 100);
        assert_eq!(n, HELD_CHUNKS);
        // An eviction that fails for another reason neither belongs to the row nor ends it.
        assert!(!row.ended(Ended::Failed, at));
        at += HELD_MS - 1;
        assert_eq!(until_given_up(&mut row, &mut at, 1), HELD_CHUNKS);
        // Nor does one for a guess, whose thread gives up.
        let before = row;
        assert!(row.ended(Ended::Guessed, at + 1));
        assert_eq!(row, before);
        let (ended, held) = row.parts();
        assert_eq!(Row::new(ended, held), row);
    }

    /// What a waiting thread does, and the time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Did {
        Try(bool, u64),
        Nap,
    }

    /// A GPU without memory, in which others do what is said.
    #[derive(Default)]
    struct Script {
        did: Vec<Did>,
        now: u64,
        /// How long one try to allocate takes, in milliseconds.
        takes: u64,
        /// Others are evicting until then; and RM.
        busy_until: u64,
        /// There is memory from then on; and without evicting.
        memory_at: Option<u64>,
        free_at_last: bool,
        fails_at: Option<u64>,
        gains: u32,
        /// Others gain something at each of these times.
        gain_at: Vec<u64>,
        gives_up_at: Option<u64>,
        gave_up: bool,
        dies_at: Option<u64>,
        guesses: bool,
        /// What each try says that finds no memory, the last one over and over; nothing: that there is none.
        says: Vec<Lack>,
        /// What the caller is told.
        told: Option<Lack>,
    }

    const WAITS: Asks = Asks {
        evicts: true,
        for_users: true,
        frees: false,
    };

    impl Script {
        /// Whether there is memory for an allocation that waits.
        fn run(&mut self) -> Result<bool, u32> {
            self.run_as(WAITS)
        }

        fn run_as(&mut self, asks: Asks) -> Result<bool, u32> {
            self.told = match allocate(self, asks)? {
                Tried::Got => None,
                Tried::Lacks(lack) => Some(lack),
            };
            Ok(self.told.is_none())
        }

        fn tries(&self, evict: bool) -> usize {
            let like = |did: &&Did| matches!(did, Did::Try(e, _) if *e == evict);
            self.did.iter().filter(like).count()
        }

        fn passed(time: Option<u64>, now: u64) -> bool {
            time.is_some_and(|at| now >= at)
        }
    }

    impl Machine for Script {
        type Error = u32;

        fn allocate(&mut self, evict: bool) -> Result<Tried, u32> {
            let tried = self.did.iter().filter(|did| **did != Did::Nap).count();
            self.now += self.takes;
            self.did.push(Did::Try(evict, self.now));
            assert!(self.did.len() < 200_000, "no end");
            self.gave_up |= evict && Self::passed(self.gives_up_at, self.now);
            if Self::passed(self.fails_at, self.now) {
                return Err(7);
            }
            if Self::passed(self.memory_at, self.now) || !evict && self.free_at_last {
                return Ok(Tried::Got);
            }
            let said = self.says.get(tried).or(self.says.last());
            Ok(Tried::Lacks(said.copied().unwrap_or(Lack::Gone)))
        }

        fn guesses(&mut self) -> bool {
            self.guesses
        }

        fn begin(&mut self) -> u32 {
            self.gave_up = false;
            self.gains
        }

        fn goes_on(&mut self, gains: u32) -> bool {
            self.now < self.busy_until || self.gains != gains
        }

        fn given_up(&mut self, gains: u32) -> bool {
            self.gave_up && self.gains == gains
        }

        fn now(&mut self) -> u64 {
            self.now
        }

        fn dying(&mut self) -> bool {
            Self::passed(self.dies_at, self.now)
        }

        fn nap(&mut self) {
            self.did.push(Did::Nap);
            self.now += 1;
            let before = self.gain_at.len();
            let now = self.now;
            self.gain_at.retain(|at| *at > now);
            self.gains += (before - self.gain_at.len()) as u32;
        }
    }

    #[test]
    fn where_nobody_evicts_it_is_quiet_and_then_over() {
        let mut script = Script::default();
        assert_eq!(script.run(), Ok(false));
        assert_eq!(script.now, QUIET_MS + 1);
        assert_eq!(script.did.last(), Some(&Did::Try(false, script.now)));
        assert_eq!(script.tries(false), 1);
        // However long the first try takes.
        let mut script = Script {
            takes: 5000,
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(false));
        assert_eq!(script.tries(true), 2);
    }

    #[test]
    fn others_are_waited_for_as_long_as_they_evict() {
        let mut script = Script {
            busy_until: 7000,
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(false));
        assert_eq!(script.now, 7000 - 1 + QUIET_MS + 1);
        // But not for ever.
        script = Script {
            busy_until: u64::MAX,
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(false));
        assert_eq!(script.now, ON_ITS_WAY_MS + 1);
    }

    /// What was got between the naps is an eviction that nobody saw going on.
    #[test]
    fn a_gain_begins_the_quiet_anew() {
        // One while it naps is seen by the try behind it, and one amid a try by the next look.
        let mut script = Script {
            gain_at: [90, 180].to_vec(),
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(false));
        assert_eq!(
            script.now,
            QUIET_MS + 1,
            "a gain before the try is the try's"
        );
        struct Amid(Script);
        impl Machine for Amid {
            type Error = u32;
            fn allocate(&mut self, evict: bool) -> Result<Tried, u32> {
                if evict && self.0.now == 90 {
                    self.0.gains += 1;
                }
                self.0.allocate(evict)
            }
            fn guesses(&mut self) -> bool {
                self.0.guesses()
            }
            fn begin(&mut self) -> u32 {
                self.0.begin()
            }
            fn goes_on(&mut self, gains: u32) -> bool {
                self.0.goes_on(gains)
            }
            fn given_up(&mut self, gains: u32) -> bool {
                self.0.given_up(gains)
            }
            fn now(&mut self) -> u64 {
                self.0.now()
            }
            fn dying(&mut self) -> bool {
                self.0.dying()
            }
            fn nap(&mut self) {
                self.0.nap();
            }
        }
        let mut amid = Amid(Script::default());
        assert_eq!(allocate(&mut amid, WAITS), Ok(Tried::Lacks(Lack::Gone)));
        assert_eq!(amid.0.now, 90 + QUIET_MS + 1);
    }

    #[test]
    fn what_comes_is_had_at_once() {
        let mut script = Script {
            memory_at: Some(50),
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(true));
        assert_eq!(script.did.last(), Some(&Did::Try(true, 50)));
        assert_eq!(script.tries(false), 0);
        script = Script {
            fails_at: Some(50),
            ..Script::default()
        };
        assert_eq!(script.run(), Err(7));
        assert_eq!(script.did.last(), Some(&Did::Try(true, 50)));
    }

    #[test]
    fn the_last_look_finds_what_this_thread_has_evicted() {
        let mut script = Script {
            free_at_last: true,
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(true));
        assert_eq!(script.now, QUIET_MS + 1);
    }

    #[test]
    fn who_gave_up_or_is_to_die_waits_no_more() {
        for at in [0, 20] {
            let busy = || Script {
                busy_until: u64::MAX,
                ..Script::default()
            };
            let mut script = busy();
            script.gives_up_at = Some(at);
            assert_eq!(script.run(), Ok(false));
            assert_eq!((script.now, script.tries(false)), (at, 1));
            let mut script = busy();
            script.dies_at = Some(at);
            assert_eq!(script.run(), Ok(false));
            assert_eq!((script.now, script.tries(false)), (at, 1));
        }
    }

    #[test]
    fn who_may_not_evict_or_frees_or_asks_for_the_kernel_tries_once() {
        for asks in [
            Asks {
                evicts: false,
                ..WAITS
            },
            Asks {
                for_users: false,
                ..WAITS
            },
            Asks {
                frees: true,
                ..WAITS
            },
        ] {
            for lack in [Lack::Gone, Lack::Again] {
                let mut script = Script {
                    busy_until: u64::MAX,
                    says: [lack].to_vec(),
                    ..Script::default()
                };
                assert_eq!(script.run_as(asks), Ok(false));
                assert_eq!(script.did, [Did::Try(true, 0)]);
                assert_eq!(script.told, Some(lack), "as the try said");
            }
        }
        let mut script = Script {
            memory_at: Some(0),
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(true));
        assert_eq!(script.did, [Did::Try(true, 0)], "nor who finds some");
    }

    /// What the look without eviction says at the end is not what the caller may hope for.
    #[test]
    fn the_caller_is_told_what_the_last_eviction_said() {
        use Lack::{Again, Gone};
        for (says, told) in [
            // The first try, then the last; here there is no other between them.
            ([Gone, Again], Gone),
            ([Again, Gone], Again),
        ] {
            let mut script = Script {
                says: says.to_vec(),
                dies_at: Some(0),
                ..Script::default()
            };
            assert_eq!(script.run(), Ok(false));
            assert_eq!((script.told, script.did.len()), (Some(told), 2));
        }
        for told in [Gone, Again] {
            let other = if told == Gone { Again } else { Gone };
            let mut script = Script {
                says: [other, told, other].to_vec(),
                dies_at: Some(1),
                ..Script::default()
            };
            assert_eq!(script.run(), Ok(false));
            assert_eq!((script.told, script.tries(true)), (Some(told), 2));
        }
    }

    #[test]
    fn a_guess_takes_what_there_is_and_is_not_told_to_call_again() {
        let mut script = Script {
            guesses: true,
            busy_until: u64::MAX,
            says: [Lack::Again].to_vec(),
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(false));
        assert_eq!(script.did, [Did::Try(true, 0), Did::Try(false, 0)]);
        assert_eq!(script.told, Some(Lack::Gone));
        let mut script = Script {
            guesses: true,
            free_at_last: true,
            ..Script::default()
        };
        assert_eq!(script.run(), Ok(true));
    }
}
