// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which used chunks may go, where processes have a share that is protected from others (`low`).
//!
//! A process that holds no more chunks than its low gives up none of its used ones while another process, or memory that
//! is nobody's, has used chunks beyond its own low. It is `memory.low` of cgroups, for a cgroup right below the root
//! (Documentation/admin-guide/cgroup-v2.rst of Linux): "the cgroup's memory won't be reclaimed unless there is no
//! reclaimable memory available in unprotected cgroups". A low takes nothing from anybody, refuses nobody memory, and
//! nobody waits for it. What a process does not use of its low is lent.
//!
//! # More lows than memory
//!
//! Lows are not scaled. Linux scales those of a cgroup's children to what the cgroup itself has, and has nothing to scale
//! those below the root to: "Putting more memory than generally available under this protection is discouraged". Here,
//! if no process is above its low, the victims are those that there would be without lows.
//!
//! # Why a kernel gets on
//!
//! Lows could leave a process without one so few chunks that the blocks which one instruction needs evict each other for
//! ever. So if what may go is no more than [`spared`](super::spared) chunks, all chunks may go, in the order that there
//! is without lows. Together, whoever is not protected so comes to that many chunks, and one more. The same goes for
//! evictions that fail in a row: the caller has all chunks tried then
//! ([`RootChunks::set_by_default`](super::RootChunks::set_by_default)).
//!
//! # Cost
//!
//! A list of protected chunks beside the used queue would have to take all of a process's chunks when the process comes to
//! its low, and to give them back when it leaves its low, which one fault and one eviction do. And the chunks that come
//! back would need their old places in the order. So each process has a list of its own instead, in the order of the used
//! queue, and each chunk the time of its last use. No chunk moves when a process comes to its low: the lists of the
//! processes that are protected at this moment are left out, and of the others' chunks the oldest is the one with the least
//! time. For each chunk that a policy looks at, a pick compares the next of [`PLACES`] + 1 lists, which it finds past those
//! that the policy has looked at; and a policy looks at 64 chunks at most, mostly at one. A use or an eviction of a chunk
//! looks at [`PLACES`] places, twice for a chunk that has no process's list. No step depends on how many chunks there are.
//!
//! Until the first low is set on a GPU nothing of this is kept. Then [`Lows::fill`] lists the chunks that are used
//! already, so many in a call, from the newest to the oldest: what is used meanwhile is newer than all of these. Lows are
//! in force once that is done. From then on the lists are kept for as long as the GPU is there.
//!
//! # How many
//!
//! There are [`PLACES`] lists for processes that have chunks. Half of them are only for processes with a low, so that no
//! number of others keeps these from being protected. What another process uses while all of its lists are taken is listed
//! with what is nobody's. If the process gets a low, its chunks are looked for there, and a process that has no low any more
//! gives such a list back (`walks.rs`). Both take so many steps in a call as the caller likes, which may let its lock go in
//! between. A process without chunks needs no list. So nothing is to be told when a process ends.
//!
//! Locking as for [`super::Queues`]: only [`Lows::new`] allocates.

use super::chains::Chains;
use super::{Chunk, Holder, Queue, Queues};
use crate::mem::{OutOfMemory, TryVec};
use walks::Walk;

mod walks;

/// How many processes can have a list of their own at the same time.
pub const PLACES: usize = 64;

/// A process that has chunks.
#[derive(Clone, Copy, Default)]
struct Place {
    holder: Holder,
    /// How many chunks are protected; 0 without a low.
    low: u32,
    /// How many chunks the process holds, in use or not; counted with a low only.
    held: u32,
    /// How many chunks its list has.
    used: u32,
    /// How many of its chunks are taken for an eviction. They count as gone: others pick meanwhile, as the eviction of a
    /// chunk lets the memory manager's lock go.
    leaving: u32,
    /// The walk by which chunks come to its list, or leave it, other than by a use.
    walk: Walk,
}

impl Place {
    /// Whether the process gives up none of its used chunks while others have more than their lows.
    fn is_protected(&self) -> bool {
        self.low > 0 && self.held.saturating_sub(self.leaving) <= self.low
    }

    /// Whether another process may take the place.
    fn is_free(&self) -> bool {
        self.used == 0 && self.low == 0 && self.leaving == 0
    }

    /// The process holds so many chunks now. One that holds none has no low: it may have ended, and another process may
    /// have its number next.
    fn holds(&mut self, chunks: u32) {
        self.held = chunks;
        if chunks == 0 {
            self.low = 0;
        }
    }
}

/// Whether the lists are kept, and how far they are filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No low was ever set.
    Off,
    /// The used queue has chunks that are in no list, all of them older than this one; all of the queue, if it is
    /// `None`.
    Filling(Option<Chunk>),
    /// Each used chunk is in a list.
    Ready,
}

/// The lows of one GPU, and the lists that they need.
pub(super) struct Lows {
    state: State,
    places: TryVec<Place>,
    /// The used chunks of each process, by its place; those of all others behind these ([`Lows::others`]).
    chains: Chains<{ PLACES + 1 }>,
    /// The time of the last use of each chunk in a list.
    times: TryVec<u64>,
    /// The time of the last use of all.
    now: u64,
    /// The time of the oldest chunk in a list that was used before the first low.
    before: u64,
    /// If no more than so many chunks may go, all may.
    spared: u32,
}

impl Lows {
    /// Makes the lists for chunks 0 to `chunks` - 1, without lows. Takes 20 bytes for each chunk, as nothing can be
    /// allocated when a low is set.
    pub(super) fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        Self::with_places(chunks, PLACES)
    }

    /// As [`Lows::new`], with so many places, [`PLACES`] at most.
    pub(super) fn with_places(chunks: u32, places: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            state: State::Off,
            places: TryVec::filled(places, Place::default())?,
            chains: Chains::new(chunks)?,
            times: TryVec::filled(chunks as usize, 0)?,
            now: chunks.into(),
            before: chunks.into(),
            spared: super::spared(chunks),
        })
    }

    /// The list of all chunks that are in no process's list.
    fn others(&self) -> usize {
        self.places.len()
    }

    /// Whether the lists are kept, or are being filled.
    #[inline]
    pub(super) fn are_kept(&self) -> bool {
        self.state != State::Off
    }

    /// `chunk` comes to the tail of the used queue, and is this `user`'s; or it leaves all queues or goes to another one,
    /// which has no user. The `queues` are as they were before.
    #[cold]
    pub(super) fn moves(&mut self, chunk: Chunk, user: Option<Holder>, queues: &Queues) {
        if self.state == State::Filling(Some(chunk)) {
            self.state = State::Filling(queues.next(chunk));
        }
        self.passes(chunk);
        let list = self.chains.unlink(chunk);
        if let Some(place) = list.and_then(|list| self.places.get_mut(list)) {
            place.used = place.used.saturating_sub(1);
        }
        let Some(user) = user else {
            return;
        };
        self.now += 1;
        let (list, now) = (self.list_of_use(user), self.now);
        self.note(chunk, list, now);
        self.chains.append(list, chunk);
        if self.state == State::Filling(None) {
            self.state = State::Filling(Some(chunk));
        }
    }

    /// `chunk`, last used at `time`, comes into `list`.
    fn note(&mut self, chunk: Chunk, list: usize, time: u64) {
        if let Some(of) = self.times.get_mut(chunk as usize) {
            *of = time;
            if let Some(place) = self.places.get_mut(list) {
                place.used += 1;
            }
        }
    }

    /// A chunk that was `before`'s is `now`'s; 0 is nobody. The chunk may be taken for an eviction.
    #[cold]
    pub(super) fn gives(&mut self, before: Holder, now: Holder, leaving: bool) {
        if leaving {
            self.leaves(before, false);
            self.leaves(now, true);
        }
        for place in self.places.iter_mut().filter(|place| place.low > 0) {
            if place.holder == before {
                place.holds(place.held.saturating_sub(1));
            } else if place.holder == now {
                place.holds(place.held + 1);
            }
        }
    }

    /// A chunk of `holder` is taken for an eviction, or is not any more. Evictions that began before the first low are not
    /// known.
    #[cold]
    pub(super) fn leaves(&mut self, holder: Holder, whether: bool) {
        let list = self.list_for(holder, false);
        if let Some(place) = self.places.get_mut(list) {
            place.leaving = match whether {
                true => place.leaving + 1,
                false => place.leaving.saturating_sub(1),
            };
        }
    }

    /// Protects `low` chunks of `holder`, which holds `held` now; a process that holds none has no low. False if all places
    /// are taken, or the lists are not kept: then nothing of the process is protected.
    pub(super) fn protect(&mut self, holder: Holder, low: u32, held: u32) -> bool {
        if !self.are_kept() {
            return low == 0;
        }
        let list = self.list_for(holder, low > 0);
        let Some(place) = self.places.get_mut(list) else {
            return low == 0;
        };
        place.low = low;
        place.holds(held);
        true
    }

    /// The list for what `holder` uses.
    fn list_of_use(&mut self, holder: Holder) -> usize {
        let list = self.list_for(holder, false);
        let place = self.places.get(list);
        match place.is_some_and(|place| place.walk.gives_back()) {
            true => self.others(),
            false => list,
        }
    }

    /// The list for `holder`: its own, which it gets if it has none; or that of all others, if there is none to be had. Half
    /// of the places are for processes of which chunks are `protected`.
    fn list_for(&mut self, holder: Holder, protected: bool) -> usize {
        let (others, half) = (self.others(), self.places.len() / 2);
        if holder == 0 {
            return others;
        }
        let mut free = None;
        for (at, place) in self.places.iter().enumerate() {
            if place.holder == holder {
                return at;
            }
            if place.is_free() && (protected || at < half && free.is_none()) {
                free = Some(at);
            }
        }
        let Some(place) = free.and_then(|at| self.places.get_mut(at)) else {
            return others;
        };
        *place = Place {
            holder,
            ..Place::default()
        };
        free.unwrap_or(others)
    }

    /// Lists `most` of the chunks that were used before the first low, of the used one of `queues`. Returns whether all
    /// are listed; the caller calls again if not, and may let its lock go in between.
    pub(super) fn fill(
        &mut self,
        queues: &Queues,
        holder_of: impl Fn(Chunk) -> Holder,
        most: u32,
    ) -> bool {
        for _ in 0..most {
            let next = match self.state {
                State::Ready => return true,
                State::Off | State::Filling(None) => queues.newest(Queue::Used),
                State::Filling(Some(chunk)) => queues.previous(chunk),
            };
            let Some(chunk) = next else {
                self.state = State::Ready;
                return true;
            };
            self.before = self.before.saturating_sub(1);
            let (list, time) = (self.list_of_use(holder_of(chunk)), self.before);
            self.note(chunk, list, time);
            self.chains.prepend(list, chunk);
            self.state = State::Filling(Some(chunk));
        }
        false
    }

    /// Which of the `used` chunks may go; `None` if all of them may, as without lows.
    #[inline]
    pub(super) fn unprotected(&self, used: u32) -> Option<Unprotected<'_>> {
        if self.state == State::Ready {
            self.some_unprotected(used)
        } else {
            None
        }
    }

    #[cold]
    fn some_unprotected(&self, used: u32) -> Option<Unprotected<'_>> {
        let kept = self.places.iter().filter(|place| place.is_protected());
        let kept = kept.map(|place| place.used).sum();
        let count = used.saturating_sub(kept);
        (kept > 0 && count > self.spared).then_some(Unprotected { lows: self, count })
    }
}

/// The used chunks that may go, if not all may.
#[derive(Clone, Copy)]
pub(super) struct Unprotected<'a> {
    lows: &'a Lows,
    count: u32,
}

impl<'a> Unprotected<'a> {
    /// How many chunks may go.
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// Whether `chunk`, which is used, is one of them.
    pub(super) fn has(self, chunk: Chunk) -> bool {
        let list = self.lows.chains.list_of(chunk);
        let place = list.and_then(|list| self.lows.places.get(list));
        place.is_none_or(|place| !place.is_protected())
    }

    /// Whether `holder` has a list of its own, all chunks of which are protected.
    pub(super) fn spares(self, holder: Holder) -> bool {
        let mut places = self.lows.places.iter();
        places.any(|place| place.holder == holder && place.is_protected())
    }

    /// The chunks in the order in which they were last used, or in the other one.
    pub(super) fn in_order(self, newest_first: bool) -> InOrder<'a> {
        InOrder {
            lows: self.lows,
            newest_first,
            last: None,
        }
    }
}

/// A walk over the lists of all that is not protected at the same time. It is small, as a walk over a queue is that
/// policies have without lows: it has no place in each list, but looks for these from the end on, past what it has given.
pub(super) struct InOrder<'a> {
    lows: &'a Lows,
    newest_first: bool,
    /// The key of the chunk that it gave last.
    last: Option<u64>,
}

impl InOrder<'_> {
    /// A chunk's time; of the newest first, what is less for a newer one.
    fn key(&self, chunk: Chunk) -> Option<u64> {
        let time = *self.lows.times.get(chunk as usize)?;
        Some(if self.newest_first { !time } else { time })
    }

    /// The first chunk of `list` that comes after the last one, with its key.
    fn next_of(&self, list: usize) -> Option<(u64, Chunk)> {
        let place = self.lows.places.get(list);
        if place.is_some_and(Place::is_protected) {
            return None;
        }
        let chains = &self.lows.chains;
        let mut next = chains.end(list, self.newest_first);
        while let Some(chunk) = next {
            let key = self.key(chunk)?;
            if self.last.is_none_or(|last| key > last) {
                return Some((key, chunk));
            }
            next = chains.beside(chunk, self.newest_first);
        }
        None
    }
}

impl Iterator for InOrder<'_> {
    type Item = Chunk;

    #[cold]
    fn next(&mut self) -> Option<Chunk> {
        let (key, chunk) = (0..=self.lows.others())
            .filter_map(|list| self.next_of(list))
            .min()?;
        self.last = Some(key);
        Some(chunk)
    }
}

#[cfg(test)]
mod tests;
