// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who reclaims memory of a GPU right now, so that an allocation that finds none can tell whether
//! some is on its way ([`super::wait`]).

use super::wait::{Ended, Row};
use crate::policy::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A thread, by any number but 0 that no other has at the same time.
pub type Thread = u64;

/// Reclaim of one GPU's memory, as all of its threads share it.
///
/// Locking: none, but [`Reclaim::eviction_ended`], which is called by one thread at a time.
#[derive(Debug)]
pub struct Reclaim {
    /// Root chunks that are being evicted.
    evictions: AtomicU32,
    /// Calls in which RM asks for memory. RM keeps every chunk that it evicts until it has all that it asks for.
    rm_calls: AtomicU32,
    /// How many evictions and calls of RM have left memory for others.
    gains: AtomicU32,
    /// The thread that has given up; 0 if none has.
    gave_up: AtomicU64,
    /// Evictions that have failed since one succeeded.
    failed: AtomicU32,
    row: SharedRow,
}

/// Evictions that fail in a row before the default order is asked, whatever the policy.
const FAILURES: u32 = 8;

impl Reclaim {
    /// A GPU whose memory nobody reclaims.
    pub const fn new() -> Self {
        Self {
            evictions: AtomicU32::new(0),
            rm_calls: AtomicU32::new(0),
            gains: AtomicU32::new(0),
            gave_up: AtomicU64::new(0),
            failed: AtomicU32::new(0),
            row: SharedRow::new(),
        }
    }

    /// Notes that `thread` tries to allocate, and forgets that it gave up before. Returns the gains so far, which the
    /// calls below compare.
    pub fn begin(&self, thread: Thread) -> u32 {
        // Another thread may give up at any moment, and take this one's place there.
        let _ = self
            .gave_up
            .compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
        self.gains.load(Ordering::Relaxed)
    }

    /// Notes that the eviction of a root chunk begins.
    pub fn eviction_begins(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an eviction by `thread` has ended. Returns true if the thread gives up, because there is no memory.
    pub fn eviction_ended(&self, how: Ended, thread: Thread, now: u64) -> bool {
        let gives_up = self.row.ended(how, now);
        match how {
            Ended::Got => {
                self.gains.fetch_add(1, Ordering::Relaxed);
                self.failed.store(0, Ordering::Relaxed);
            }
            Ended::ForOwner => {}
            Ended::Held { .. } | Ended::Guessed | Ended::Failed => {
                // Nobody counts beyond that, and the number does not wrap.
                let failed = self.failed.load(Ordering::Relaxed);
                self.failed
                    .store(failed.saturating_add(1), Ordering::Relaxed);
            }
        }
        // A thread that sees the end of the eviction also sees its gain.
        self.evictions.fetch_sub(1, Ordering::Release);
        // A guess does not wait, so that nobody asks whether it gave up.
        if gives_up && how != Ended::Guessed {
            self.gave_up.store(thread, Ordering::Relaxed);
        }
        gives_up
    }

    /// Whether so many evictions have failed in a row that the next chunk is to be chosen in the default order
    /// ([`RootChunks::set_by_default`](super::RootChunks::set_by_default)).
    pub fn is_in_vain(&self) -> bool {
        self.failed.load(Ordering::Relaxed) > FAILURES
    }

    /// Notes that RM begins to ask for memory.
    pub fn rm_call_begins(&self) {
        self.rm_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that RM has `got` all of the memory, or gives back the part that it had.
    pub fn rm_call_ended(&self, got: bool) {
        if !got {
            self.gains.fetch_add(1, Ordering::Relaxed);
        }
        self.rm_calls.fetch_sub(1, Ordering::Release);
    }

    /// Whether other threads are about to give memory back, or have done so since the count of gains was `gains`. The
    /// caller itself evicts nothing at this time.
    pub fn goes_on(&self, gains: u32) -> bool {
        self.rm_calls.load(Ordering::Acquire) > 0
            || self.evictions.load(Ordering::Acquire) > 0
            || self.gains.load(Ordering::Relaxed) != gains
    }

    /// Whether `thread` has given up since its try began, after a long enough wait for others. A thread that gave up
    /// still waits for RM, and after a gain it waits for all others again.
    pub fn given_up(&self, thread: Thread, gains: u32) -> bool {
        self.gave_up.load(Ordering::Relaxed) == thread
            && self.rm_calls.load(Ordering::Acquire) == 0
            && self.gains.load(Ordering::Relaxed) == gains
    }
}

/// How many threads may allocate for guesses at a time; memory for more guesses is not looked for.
const GUESSES: usize = 64;

/// The threads that allocate for a guess (a prefetch). Nobody needs what a guess brings, and its thread holds locks that
/// others wait for. So such a thread takes what can be had at once, and waits neither for chunks that are held nor for
/// what others evict.
///
/// A tenant can have as many such threads as it likes. So it takes a place only while it has fewer than are free. Alone it has
/// half of them. Of *n* tenants that want all of them each has one part of *n* + 1, and so many are free. One that has none finds
/// a place unless 64 others have one each.
///
/// Locking: none. A thread notes and asks for itself.
#[derive(Debug)]
pub struct Guesses([Place; GUESSES]);

#[derive(Debug)]
struct Place {
    /// The thread that has the place; 0 for none.
    thread: AtomicU64,
    /// Whose thread that is, or was; a moment later than that it is there.
    tenant: AtomicU64,
}

/// A thread allocates for a guess as long as this value lives.
#[derive(Debug)]
pub struct Guess<'a>(&'a AtomicU64);

impl Guesses {
    /// No thread allocates for a guess.
    pub const fn new() -> Self {
        Self(
            [const {
                Place {
                    thread: AtomicU64::new(0),
                    tenant: AtomicU64::new(0),
                }
            }; GUESSES],
        )
    }

    /// Notes that `thread` allocates for a guess of `tenant`, by any number; `None` if too many threads do, or too many of the tenant's.
    pub fn begin(&self, thread: Thread, tenant: u64) -> Option<Guess<'_>> {
        let (mut free, mut own) = (0, 0);
        for place in &self.0 {
            if place.thread.load(Ordering::Relaxed) == 0 {
                free += 1;
            } else if place.tenant.load(Ordering::Relaxed) == tenant {
                own += 1;
            }
        }
        if own >= free {
            return None;
        }
        let take = |place: &&Place| {
            place
                .thread
                .compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        let place = self.0.iter().find(take)?;
        place.tenant.store(tenant, Ordering::Relaxed);
        Some(Guess(&place.thread))
    }

    /// Whether `thread`, which is the caller, allocates for a guess.
    pub fn has(&self, thread: Thread) -> bool {
        self.0
            .iter()
            .any(|of| of.thread.load(Ordering::Relaxed) == thread)
    }
}

impl Default for Guesses {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Guess<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Default for Reclaim {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`Row`] that the threads of a GPU share; one thread at a time uses it.
#[derive(Debug)]
struct SharedRow {
    goes_on: AtomicBool,
    first: AtomicU64,
    last: AtomicU64,
    held: AtomicU32,
}

impl SharedRow {
    const fn new() -> Self {
        Self {
            goes_on: AtomicBool::new(false),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            held: AtomicU32::new(0),
        }
    }

    fn ended(&self, how: Ended, now: u64) -> bool {
        let at = Ordering::Relaxed;
        let ends = (self.first.load(at), self.last.load(at));
        let mut row = Row::new(self.goes_on.load(at).then_some(ends), self.held.load(at));
        let gives_up = row.ended(how, now);
        let (ended, held) = row.parts();
        let (first, last) = ended.unwrap_or_default();
        self.goes_on.store(ended.is_some(), at);
        self.first.store(first, at);
        self.last.store(last, at);
        self.held.store(held, at);
        gives_up
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::{HELD_CHUNKS, HELD_MS};
    use super::*;
    use std::vec::Vec;

    /// An eviction that left its chunk held, one of very many.
    const HELD: Ended = Ended::Held { of: u32::MAX };
    const ME: Thread = 1;
    const OTHER: Thread = 2;

    /// Has `thread` find all chunks held until it gives up.
    fn give_up(reclaim: &Reclaim, thread: Thread) {
        for n in 0.. {
            reclaim.eviction_begins();
            if reclaim.eviction_ended(HELD, thread, n * HELD_MS) {
                return;
            }
            assert!(n < u64::from(HELD_CHUNKS) + 1, "nobody gives up");
        }
    }

    #[test]
    fn it_goes_on_while_somebody_evicts_and_when_somebody_has_gained() {
        let reclaim = Reclaim::new();
        let gains = reclaim.begin(ME);
        assert!(!reclaim.goes_on(gains));
        reclaim.eviction_begins();
        reclaim.eviction_begins();
        reclaim.eviction_ended(Ended::Failed, OTHER, 0);
        assert!(reclaim.goes_on(gains), "the other eviction");
        reclaim.eviction_ended(HELD, OTHER, 0);
        assert!(!reclaim.goes_on(gains), "neither got anything");
        reclaim.eviction_begins();
        reclaim.eviction_ended(Ended::Got, OTHER, 0);
        assert!(reclaim.goes_on(gains));
        assert!(!reclaim.goes_on(reclaim.begin(ME)));
    }

    /// What RM gets is RM's; what it gives back is everybody's.
    #[test]
    fn rm_leaves_memory_when_it_does_not_get_all() {
        let reclaim = Reclaim::new();
        for got in [true, false] {
            let gains = reclaim.begin(ME);
            reclaim.rm_call_begins();
            assert!(reclaim.goes_on(gains));
            reclaim.rm_call_ended(got);
            assert_eq!(reclaim.goes_on(gains), !got);
        }
    }

    /// A chunk that goes for its owner is on its way somewhere: the owner's new chunk can be evicted for anybody soon. How
    /// the eviction ends is nothing to others.
    #[test]
    fn who_evicts_for_itself_is_waited_for_and_tells_nothing() {
        let reclaim = Reclaim::new();
        let gains = reclaim.begin(ME);
        reclaim.eviction_begins();
        assert!(reclaim.goes_on(gains), "somebody evicts");
        assert!(!reclaim.eviction_ended(Ended::ForOwner, OTHER, 0));
        assert!(!reclaim.goes_on(gains), "there is nothing to be had");
        // Such an end neither makes a row or a failure, nor ends one.
        for n in 0..2 * u64::from(HELD_CHUNKS) {
            reclaim.eviction_begins();
            assert!(!reclaim.eviction_ended(Ended::ForOwner, ME, n * HELD_MS));
        }
        assert!(!reclaim.is_in_vain() && !reclaim.given_up(ME, gains));
        for _ in 0..=FAILURES {
            reclaim.eviction_begins();
            reclaim.eviction_ended(Ended::Failed, OTHER, 0);
        }
        for n in 1..u64::from(HELD_CHUNKS) {
            reclaim.eviction_begins();
            assert!(!reclaim.eviction_ended(HELD, ME, n * 100));
        }
        reclaim.eviction_begins();
        assert!(!reclaim.eviction_ended(Ended::ForOwner, OTHER, 6400));
        assert!(reclaim.is_in_vain());
        reclaim.eviction_begins();
        assert!(reclaim.eviction_ended(HELD, ME, 6400));
        assert!(reclaim.given_up(ME, gains));
    }

    #[test]
    fn who_gave_up_has_until_something_changes() {
        let reclaim = Reclaim::default();
        let gains = reclaim.begin(ME);
        assert!(!reclaim.given_up(ME, gains));
        give_up(&reclaim, ME);
        assert!(reclaim.given_up(ME, gains));
        assert!(!reclaim.given_up(OTHER, gains), "it was not the other");
        reclaim.rm_call_begins();
        assert!(!reclaim.given_up(ME, gains), "RM may give some back");
        reclaim.rm_call_ended(true);
        assert!(reclaim.given_up(ME, gains));
        // What another begins is none of its business; what it begins itself is a new try.
        assert_eq!(reclaim.begin(OTHER), gains);
        assert!(reclaim.given_up(ME, gains));
        assert_eq!(reclaim.begin(ME), gains);
        assert!(!reclaim.given_up(ME, gains));
        // And there may be memory after all.
        give_up(&reclaim, ME);
        assert!(reclaim.given_up(ME, gains));
        reclaim.eviction_begins();
        reclaim.eviction_ended(Ended::Got, OTHER, 0);
        assert!(!reclaim.given_up(ME, gains));
    }

    #[test]
    fn a_guess_gives_up_at_once_and_takes_no_ones_place() {
        let reclaim = Reclaim::new();
        give_up(&reclaim, OTHER);
        let gains = reclaim.gains.load(Ordering::Relaxed);
        reclaim.eviction_begins();
        assert!(reclaim.eviction_ended(Ended::Guessed, ME, 0));
        assert!(!reclaim.goes_on(gains), "its eviction is over");
        assert!(reclaim.given_up(OTHER, gains));
    }

    #[test]
    fn a_thread_guesses_from_its_begin_to_its_end() {
        let guesses = Guesses::default();
        assert!(!guesses.has(ME));
        let mine = guesses.begin(ME, 0).unwrap();
        let others: Vec<_> = (OTHER..).map_while(|n| guesses.begin(n, n)).collect();
        assert_eq!(others.len(), GUESSES - 1);
        assert!(guesses.has(ME) && guesses.has(OTHER));
        drop(mine);
        assert!(!guesses.has(ME) && guesses.has(OTHER));
        assert!(guesses.begin(ME, 0).is_some(), "there is a place again");
    }

    /// Begins as many guesses of the tenant as it may have.
    fn all_of(guesses: &Guesses, tenant: u64) -> Vec<Guess<'_>> {
        let threads = 1000 * tenant + 1..;
        threads.map_while(|n| guesses.begin(n, tenant)).collect()
    }

    #[test]
    fn a_tenant_leaves_places_to_others() {
        let guesses = Guesses::new();
        let loud = all_of(&guesses, 1);
        assert_eq!(loud.len(), 32, "as many as are free");
        let second = all_of(&guesses, 2);
        assert_eq!(second.len(), 16);
        assert!(guesses.begin(ME, 1).is_none(), "it has more than its part");
        drop(loud);
        assert_eq!(all_of(&guesses, 1).len(), 24);
        drop(second);
        assert_eq!(all_of(&guesses, 2).len(), 32, "what is over does not count");
        // Of as many tenants as there may be each has one, whoever came first.
        let all: Vec<_> = (1..=GUESSES as u64)
            .map(|tenant| (tenant, guesses.begin(tenant, tenant)))
            .collect();
        assert!(all.iter().all(|(_, guess)| guess.is_some()));
    }

    /// The row is the GPU's, and no thread's.
    #[test]
    fn threads_share_a_row() {
        let reclaim = Reclaim::new();
        let mut held = 0;
        loop {
            held += 1;
            reclaim.eviction_begins();
            if reclaim.eviction_ended(HELD, 1 + held % 7, held * 100) {
                break;
            }
        }
        assert_eq!(held, u64::from(HELD_CHUNKS));
        assert!(reclaim.given_up(1 + held % 7, 0));
    }
}
