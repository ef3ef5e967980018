// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How chunks change their lists where a low is set, or is no more, while their process has them.
//!
//! A process that had no list gets one with its low. Its chunks are among those of all others, of which a walk looks at one
//! after the other, from the newest on. Each chunk that the walk finds is older than all that the list has by then.
//!
//! A process that has no low any more, and one of the lists that are for processes with a low, gives it back. Its chunks come
//! to those of all others, at their places in the order, from the newest on. What the process uses meanwhile goes there at once.
//!
//! A walk stands at a chunk of all others. If that chunk leaves these, the walk stands at the next older one.

use super::{Chunk, Holder, Lows, State};

/// What goes on with the list of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Walk {
    /// It has what its process uses.
    #[default]
    No,
    /// Chunks of its process come to it. The next one that is looked at is this one; there is none, if it is `None`.
    Gathers(Option<Chunk>),
    /// Its chunks go to those of all others, behind this one or in front of it; in front of all, if it is `None`.
    GivesBack(Option<Chunk>),
}

impl Walk {
    pub(super) fn gives_back(self) -> bool {
        matches!(self, Self::GivesBack(_))
    }
}

impl Lows {
    /// `chunk` is about to leave its list. No walk stands at it from here on.
    pub(super) fn passes(&mut self, chunk: Chunk) {
        if self.chains.list_of(chunk) != Some(self.others()) {
            return;
        }
        let before = self.chains.beside(chunk, true);
        for place in self.places.iter_mut() {
            match &mut place.walk {
                Walk::Gathers(at) | Walk::GivesBack(at) if *at == Some(chunk) => *at = before,
                _ => {}
            }
        }
    }

    /// Has the list of `holder`, whose low was set, be as the low says: it gathers the process's chunks, or is given back.
    /// [`Lows::settle`] does that.
    pub(in super::super) fn unsettle(&mut self, holder: Holder) {
        let newest = self.chains.end(self.others(), true);
        let (half, is_ready) = (self.places.len() / 2, self.state == State::Ready);
        let mut places = self.places.iter_mut().enumerate();
        let Some((at, place)) = places.find(|(_, place)| place.holder == holder) else {
            return;
        };
        place.walk = if place.low == 0 && at >= half {
            Walk::GivesBack(newest)
        } else if place.low > 0 && place.walk.gives_back() {
            // What the list still has is older than what has left it, so that all of it leaves first.
            place.walk
        } else if place.low > 0 && place.held > place.used && is_ready {
            Walk::Gathers(newest)
        } else {
            Walk::No
        };
    }

    /// Goes on with that for `most` steps; returns whether that was all.
    pub(in super::super) fn settle(
        &mut self,
        holder: Holder,
        holder_of: impl Fn(Chunk) -> Holder,
        most: u32,
    ) -> bool {
        let Some(list) = self.places.iter().position(|place| place.holder == holder) else {
            return true;
        };
        (0..most).any(|_| match self.walk(list) {
            Walk::No => true,
            Walk::Gathers(at) => self.gathers(list, at, holder, &holder_of),
            Walk::GivesBack(at) => self.gives_back(list, at),
        })
    }

    fn walk(&self, list: usize) -> Walk {
        self.places.get(list).map_or(Walk::No, |place| place.walk)
    }

    /// Looks at one chunk of all others; returns whether there was none.
    fn gathers(
        &mut self,
        list: usize,
        at: Option<Chunk>,
        holder: Holder,
        holder_of: impl Fn(Chunk) -> Holder,
    ) -> bool {
        let Some(chunk) = at else {
            self.stands(list, Walk::No);
            return true;
        };
        let before = self.chains.beside(chunk, true);
        if holder_of(chunk) == holder {
            self.passes(chunk);
            self.chains.unlink(chunk);
            self.chains.prepend(list, chunk);
            if let Some(place) = self.places.get_mut(list) {
                place.used += 1;
            }
        }
        self.stands(list, Walk::Gathers(before));
        false
    }

    /// Goes a step to where the newest chunk of `list` belongs, or puts it there; returns whether there is none any more.
    fn gives_back(&mut self, list: usize, at: Option<Chunk>) -> bool {
        let (chains, others) = (&self.chains, self.others());
        let Some(chunk) = chains.end(list, true) else {
            let has_low = self.places.get(list).is_some_and(|place| place.low > 0);
            let newest = chains.end(others, true);
            let walk = match has_low {
                true => Walk::Gathers(newest),
                false => Walk::No,
            };
            self.stands(list, walk);
            return !has_low;
        };
        let next = match at {
            Some(at) => chains.beside(at, false),
            None => chains.end(others, false),
        };
        let is_newer = |than: Option<Chunk>| than.is_some_and(|c| self.time(c) > self.time(chunk));
        if is_newer(at) {
            let before = at.and_then(|at| chains.beside(at, true));
            self.stands(list, Walk::GivesBack(before));
        } else if next.is_some() && !is_newer(next) {
            // Another list has been given back meanwhile.
            self.stands(list, Walk::GivesBack(next));
        } else {
            self.chains.unlink(chunk);
            self.chains.insert(others, at, chunk);
            if let Some(place) = self.places.get_mut(list) {
                place.used = place.used.saturating_sub(1);
            }
        }
        false
    }

    fn time(&self, chunk: Chunk) -> u64 {
        self.times.get(chunk as usize).copied().unwrap_or(0)
    }

    fn stands(&mut self, list: usize, walk: Walk) {
        if let Some(place) = self.places.get_mut(list) {
            place.walk = walk;
        }
    }
}
