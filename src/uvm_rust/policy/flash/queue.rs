// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Requests to move ranges, which are carried out after the call that makes them (`UVM_RUST_FLASH_SUBMIT`):
//! the migration metadata queues of G10 (§4.6), one for each place of each VA space.
//!
//! ```text
//!               Out:   to the device, and from GPUs ───────▶ worker ─┐
//!               Host:  from the device to host memory ─────▶ worker ─┤
//!   submit ──▶  Gpu0:  to one GPU, from wherever it is ────▶ worker ─┼─▶ done, in order ──▶ reap
//!               Gpu1:  to another ─────────────────────────▶ worker ─┤
//!               ...    Rest: to all others ────────────────▶ worker ─┘
//! ```
//!
//! What leaves and what comes do not wait for each other, as they need the links in opposite directions, nor does what
//! comes to one GPU wait for what comes to another, as each has a link of its own, or to host memory. But a request may
//! be told to come after all others ([`Request::after`]), as what leaves makes the room for it.
//!
//! There is one lane for what leaves, as there is one device. A GPU has a lane as long as something waits to go
//! there: the first one that is free. Where none is, it goes into the lane of the rest, and so does what goes to that GPU
//! after it, as long as it is there.
//!
//! A worker moves one part of a request at a time ([`super::moves`]), and then stands in line again, so that a
//! tenant's VA spaces and lanes have turns: no more than [`AT_WORK`] are at work for a tenant on each [`Way`].
//!
//! # Invariants
//!
//! - **Q-order**: what leaves, what comes to host memory, and what comes to one GPU begins and ends in the order in
//!   which it was submitted, each by itself. One request never begins before an earlier one that shares a va_block with
//!   it is done, whichever lanes they are in.
//! - **Q-lane**: all requests to one GPU that are not done are in one lane, and a lane is one GPU's, but that of the rest.
//! - **Q-after**: a request that is to come after all others begins when all that were submitted before it have
//!   ended, well or not. It waits for earlier ones alone, so that the first of all that are there never waits.
//! - **Q-once**: each request ends once, with one completion, which is given once: it is in one list, or in
//!   the hands of one worker or of one who reaps.
//! - **Q-done**: a request that is done moves nothing any more; whoever is told of it finds its completion.
//! - **Q-most**: a request has its slot until its completion was given, and there are [`MOST`] of them.
//! - **Q-room**: a worker waits for no memory of a GPU, as it holds the VA space and keeps the system awake. It comes
//!   again, and a request fails only if there was none for some seconds.
//! - **Q-rest**: a worker rests after each look at [`LOOKED_AT`](super::moves::LOOKED_AT) bytes that nobody ever touched, within one
//!   request. A request may name as many terabytes as there are addresses, and the worker's time is nobody's. What many
//!   small requests have looked at is not added up.
//! - **Q-end**: once the VA space has ended nothing begins, and no worker is woken.
//!
//! Locking: the caller's, around each call of [`Queue`]. No call of it allocates, or frees.

mod job;
mod lane;
mod part;

use super::moves::{Failed, To};
use crate::mem::ProcessVec;
use part::{lacks, Part};

pub use job::{Job, Request};
pub use lane::{Lane, Lanes, Way, AT_WORK};

/// So many requests may be under way, or done and not reaped, in one VA space.
pub const MOST: u32 = 4096;

/// Milliseconds until a worker looks again that could not go on.
pub const LATER_MS: u64 = 10;

/// The first table has so many slots.
const FIRST: u32 = 64;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's number for it.
    pub user: u64,
    /// Whether all was moved.
    pub status: Result<(), Failed>,
    /// How many of the VA space were done before it, plus one.
    pub order: u64,
    slot: u32,
}

/// Stands for no slot in a list.
const NONE: u32 = u32::MAX;

/// Room for a request.
#[derive(Clone, Debug)]
pub struct Slot<E> {
    /// The next of the list that it is in.
    next: u32,
    /// How many were submitted before it.
    number: u64,
    blocks: (u64, u64),
    user: u64,
    of: u64,
    after: bool,
    job: Job,
    event: Option<E>,
    status: Result<(), Failed>,
    order: u64,
}

impl<E> Slot<E> {
    fn new(request: &Request, event: Option<E>, number: u64) -> Self {
        Self {
            next: NONE,
            number,
            blocks: request.blocks(),
            user: request.user,
            of: request.of,
            after: request.after,
            job: Job::new(request),
            event,
            status: Ok(()),
            order: 0,
        }
    }

    fn empty() -> Self {
        let nothing = Request {
            base: 0,
            length: 0,
            to: To::Host,
            from_gpus: false,
            gpu: [0; 16],
            user: 0,
            of: 0,
            after: false,
        };
        Self::new(&nothing, None, 0)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.blocks.0 <= other.blocks.1 && other.blocks.0 <= self.blocks.1
    }
}

/// Slots, first in, first out.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    length: u32,
}

impl List {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        length: 0,
    };

    fn push<E>(&mut self, slots: &mut [Slot<E>], slot: u32) {
        set_next(slots, slot, NONE);
        if self.length == 0 {
            self.first = slot;
        } else {
            set_next(slots, self.last, slot);
        }
        self.last = slot;
        self.length += 1;
    }

    fn pop<E>(&mut self, slots: &mut [Slot<E>]) -> Option<u32> {
        let first = self.first;
        if self.length == 0 {
            return None;
        }
        self.unlink(slots, NONE, first);
        Some(first)
    }

    /// Takes out `slot`, which stands behind `before`; [`NONE`]: it is the first.
    fn unlink<E>(&mut self, slots: &mut [Slot<E>], before: u32, slot: u32) {
        let next = slots.get(slot as usize).map_or(NONE, |slot| slot.next);
        if before == NONE {
            self.first = next;
        } else {
            set_next(slots, before, next);
        }
        if self.last == slot {
            self.last = before;
        }
        self.length = self.length.saturating_sub(1);
    }

    /// From the first on.
    fn iter<'a, E>(&self, slots: &'a [Slot<E>]) -> impl Iterator<Item = &'a Slot<E>> {
        let mut left = self.length;
        let mut at = self.first;
        core::iter::from_fn(move || {
            let slot = slots.get(at as usize).filter(|_| left > 0)?;
            (at, left) = (slot.next, left - 1);
            Some(slot)
        })
    }
}

fn set_next<E>(slots: &mut [Slot<E>], slot: u32, next: u32) {
    if let Some(slot) = slots.get_mut(slot as usize) {
        slot.next = next;
    }
}

/// What is to be done after a part was moved.
#[derive(Debug, PartialEq, Eq)]
pub struct After<E> {
    /// Whether the request is done, and who is told besides those that wait.
    pub done: Option<Option<E>>,
    /// Whether the lane has something to do: at once, or only later.
    pub again: Option<When>,
    /// The other lanes that may have been waiting for this.
    pub others: Lanes,
}

/// When a worker is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as it can.
    Now,
    /// In a moment: who suspends, its rate, or others come first.
    Later,
}

/// The requests of a VA space. `E`: an event that is signalled for a completion, besides waking those that wait.
#[derive(Debug)]
pub struct Queue<E> {
    slots: ProcessVec<Slot<E>>,
    free: List,
    lanes: [List; Lane::COUNT],
    /// Whether the first of a lane is in the hands of its worker.
    running: [bool; Lane::COUNT],
    /// So many GPUs may have a lane of their own.
    own: usize,
    done: List,
    submitted: u64,
    completed: u64,
    has_ended: bool,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Queue<E> {
    /// An empty queue without memory.
    pub const fn new() -> Self {
        Self {
            slots: ProcessVec::new(),
            free: List::EMPTY,
            lanes: [List::EMPTY; Lane::COUNT],
            running: [false; Lane::COUNT],
            own: Lane::OWN,
            done: List::EMPTY,
            submitted: 0,
            completed: 0,
            has_ended: false,
        }
    }

    /// How many slots a table is to have in which `more` requests find room, as far as there may be so many;
    /// `None` if the one that is there will do.
    pub fn wants(&self, more: u32) -> Option<u32> {
        let have = self.slots.len() as u32;
        let used = have.saturating_sub(self.free.length);
        let needed = used.saturating_add(more).min(MOST);
        (needed > have).then(|| needed.max(have.saturating_mul(2)).clamp(FIRST, MOST))
    }

    /// Takes `table`, which is empty and has room for `most` slots, in place of the one that is there, if that
    /// is smaller. The other is left in its place, to be freed.
    pub fn grow(&mut self, table: &mut ProcessVec<Slot<E>>, most: u32) {
        let have = self.slots.len() as u32;
        if most <= have {
            return;
        }
        core::mem::swap(&mut self.slots, table);
        for slot in table.iter_mut() {
            let _ = self.slots.push(core::mem::replace(slot, Slot::empty()));
        }
        for number in have..most {
            if self.slots.push(Slot::empty()).is_ok() {
                self.free.push(&mut self.slots, number);
            }
        }
    }

    /// The first request of a lane that is not done.
    fn first(&self, lane: Lane) -> Option<&Slot<E>> {
        let list = self.lanes[lane as usize];
        let first = self.slots.get(list.first as usize);
        first.filter(|_| list.length > 0)
    }

    /// The lane for a request (Q-lane). A GPU that has one in the lane of the rest gets no lane of its own before that
    /// is done.
    fn lane_of(&self, request: &Request) -> Lane {
        if request.leaves() {
            return Lane::Out;
        }
        if request.to != To::Gpu {
            return Lane::Host;
        }
        let is_its = |first: &Slot<E>| first.job.gpu == request.gpu && !lacks(Part::KeepsLane);
        let mine = |lane: &Lane| self.first(*lane).is_some_and(is_its);
        let is_free = |lane: &Lane| self.first(*lane).is_none();
        let own = if lacks(Part::LaneEach) { 0 } else { self.own };
        // Only asked of a GPU without a lane: it looks at each request of the rest.
        let gets = |_: &Lane| {
            let mut rest = self.lanes[Lane::Rest as usize].iter(&self.slots);
            !rest.any(|slot| slot.job.gpu == request.gpu) || lacks(Part::RestFirst)
        };
        Lane::of_gpus(own)
            .find(mine)
            .or_else(|| Lane::of_gpus(own).find(is_free).filter(gets))
            .unwrap_or(Lane::Rest)
    }

    /// The lanes that have requests which are not done.
    pub fn waiting(&self) -> Lanes {
        Lanes::of(|lane| self.first(lane).is_some())
    }

    /// Takes a request, as the last of its lane; false if there is no slot for it.
    pub fn submit(&mut self, request: &Request, event: Option<E>) -> bool {
        let lane = self.lane_of(request);
        let Some(number) = self.free.pop(&mut self.slots) else {
            return false;
        };
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = Slot::new(request, event, self.submitted);
        }
        self.submitted = self.submitted.wrapping_add(1);
        self.lanes[lane as usize].push(&mut self.slots, number);
        true
    }

    /// What the lane's worker does next; `None` if there is nothing, or it has to wait for another lane, whose
    /// worker will say so. It is in the worker's hands until [`Queue::stepped`].
    pub fn next(&mut self, lane: Lane) -> Option<Job> {
        let slot = self.first(lane)?;
        let ended = self.has_ended && !lacks(Part::EndStops);
        if ended || self.running[lane as usize] || self.is_held(lane, slot) {
            return None;
        }
        let job = slot.job;
        self.running[lane as usize] = true;
        Some(job)
    }

    /// Whether the first request of a lane has to wait for an earlier one of another lane (Q-order, Q-after). All
    /// earlier ones of its own have ended.
    fn is_held(&self, lane: Lane, slot: &Slot<E>) -> bool {
        let for_all = slot.after && !lacks(Part::WaitsForAll);
        let ways = |other: Lane| other.way() != lane.way() || !lacks(Part::LanesOfAWay);
        let others = Lane::ALL.into_iter().filter(|l| *l != lane && ways(*l));
        others
            .flat_map(|other| {
                let requests = self.lanes[other as usize].iter(&self.slots);
                requests.take_while(|r| r.number < slot.number || lacks(Part::EarlierOnly))
            })
            .any(|other| for_all || other.overlaps(slot) && !lacks(Part::Overlaps))
    }

    /// A part of the request in hand was moved, or was not.
    pub fn stepped(&mut self, lane: Lane, job: Job, moved: Result<(), Failed>) -> After<E> {
        let at = lane as usize;
        self.running[at] = false;
        let again = match moved {
            Err(Failed::Again) if !lacks(Part::ComesBack) => Some(When::Later),
            // Q-rest.
            Ok(()) if !job.is_over() && job.looked => Some(When::Later),
            Ok(()) if !job.is_over() && !lacks(Part::AllParts) => Some(When::Now),
            _ => None,
        };
        if again.is_some() {
            let first = self.lanes[at].first;
            let slot = self.slots.get_mut(first as usize);
            if let Some(slot) = slot.filter(|_| !lacks(Part::KeepsProgress)) {
                slot.job = job;
            }
            return After {
                done: None,
                again,
                others: Lanes::default(),
            };
        }
        let event = self.complete(lane, moved);
        let waits = |other: Lane| self.first(other).is_some() && !lacks(Part::OtherLanes);
        After {
            done: Some(event),
            again: (self.lanes[at].length > 0 && !lacks(Part::NextInLane)).then_some(When::Now),
            others: Lanes::of(|other| other != lane && waits(other)),
        }
    }

    /// The first request of a lane is done.
    fn complete(&mut self, lane: Lane, status: Result<(), Failed>) -> Option<E> {
        let number = self.lanes[lane as usize].pop(&mut self.slots)?;
        self.completed = self.completed.wrapping_add(1);
        let slot = self.slots.get_mut(number as usize)?;
        (slot.status, slot.order) = (status, self.completed);
        let event = slot.event.take();
        self.done.push(&mut self.slots, number);
        event
    }

    /// How many requests of `of` are not done.
    pub fn pending(&self, of: u64) -> u32 {
        let all = self.lanes.iter().flat_map(|lane| lane.iter(&self.slots));
        all.filter(|slot| slot.of == of).count() as u32
    }

    /// Whether who wants `most` completions of `of` has no longer to wait for them: there are so many, or no more
    /// come.
    pub fn is_ready(&self, of: u64, most: u32) -> bool {
        let done = self.done.iter(&self.slots).filter(|slot| slot.of == of);
        done.take(most as usize).count() as u32 >= most || self.pending(of) == 0
    }

    /// Takes the first completion of `of`, which is in the caller's hands until it is [given](Queue::given) or
    /// [put back](Queue::put_back).
    pub fn reap(&mut self, of: u64) -> Option<Completion> {
        let (mut before, mut at) = (NONE, self.done.first);
        for _ in 0..self.done.length {
            let slot = self.slots.get(at as usize)?;
            if slot.of == of {
                let completion = Completion {
                    user: slot.user,
                    status: slot.status,
                    order: slot.order,
                    slot: at,
                };
                if !lacks(Part::ReapTakes) {
                    self.done.unlink(&mut self.slots, before, at);
                }
                if lacks(Part::SlotUntilGiven) {
                    self.free.push(&mut self.slots, at);
                }
                return Some(completion);
            }
            (before, at) = (at, slot.next);
        }
        None
    }

    /// Its caller has it.
    pub fn given(&mut self, completion: Completion) {
        if !lacks(Part::SlotUntilGiven) {
            self.free.push(&mut self.slots, completion.slot);
        }
    }

    /// Its caller could not be given it: it comes before all that were done later.
    pub fn put_back(&mut self, completion: Completion) {
        let (mut before, mut at) = (NONE, self.done.first);
        for _ in 0..self.done.length {
            match self.slots.get(at as usize) {
                Some(slot) if slot.order < completion.order => (before, at) = (at, slot.next),
                _ => break,
            }
        }
        let is_last = self.done.length == 0 || before == self.done.last;
        if is_last || lacks(Part::InItsPlace) {
            return self.done.push(&mut self.slots, completion.slot);
        }
        set_next(&mut self.slots, completion.slot, at);
        if before == NONE {
            self.done.first = completion.slot;
        } else {
            set_next(&mut self.slots, before, completion.slot);
        }
        self.done.length += 1;
    }

    /// The VA space ends (Q-end).
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether the VA space has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// What a worker works with.
pub trait Machine {
    /// An event that is signalled for a completion, besides waking those that wait.
    type Event;

    /// Keeps the system from being suspended; false if it is about to be.
    fn enter(&mut self) -> bool;

    /// Does so no more.
    fn leave(&mut self);

    /// Works on the queue, with its lock.
    fn with<R>(&mut self, f: impl FnOnce(&mut Queue<Self::Event>) -> R) -> R;

    /// Moves the next part of a request.
    fn step(&mut self, job: &mut Job) -> Result<(), Failed>;

    /// Wakes those who wait because a request is done, and signals `event`, if there is one.
    fn tell(&mut self, event: Option<Self::Event>);

    /// Has a lane's worker run, once more if it runs, unless the VA space has ended: that is looked at with the
    /// queue's lock (Q-end).
    fn wake(&mut self, lane: Lane, when: When);
}

/// What a lane's worker does when it is woken: a part of the lane's first request.
pub fn turn<M: Machine>(m: &mut M, lane: Lane) {
    if !m.enter() {
        if !lacks(Part::TriesLater) {
            // The suspend may take long, and nobody tells this worker when it is over.
            m.wake(lane, When::Later);
        }
        return;
    }
    if let Some(mut job) = m.with(|queue| queue.next(lane)) {
        let moved = m.step(&mut job);
        let after = m.with(|queue| queue.stepped(lane, job, moved));
        if let Some(event) = after.done {
            m.tell(event);
        }
        for other in after.others.iter() {
            m.wake(other, When::Now);
        }
        if let Some(when) = after.again {
            m.wake(lane, when);
        }
    }
    m.leave();
}

#[cfg(test)]
mod tests;
