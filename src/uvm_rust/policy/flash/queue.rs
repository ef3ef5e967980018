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
//! Moves out and moves in do not wait for each other, as they use the links in opposite directions. Nor do moves to
//! one GPU wait for those to another, which has a link of its own, or to host memory. But a request may be told to
//! begin after all earlier ones ([`Request::after`]), because moves out make the room for it.
//!
//! All moves out share one lane, as there is one device. A GPU has a lane while requests to it wait: the first lane
//! that is free. If none is free, a request goes into the lane of the rest, and so do later ones to the same GPU
//! while one is there.
//!
//! A worker moves one part of a request at a time ([`super::moves`]), and then queues again, so that a tenant's VA
//! spaces and lanes take turns: at most [`AT_WORK`] workers are at work for a tenant on each [`Way`].
//!
//! # Invariants
//!
//! - **Q-order**: moves out, moves to host memory, and moves to each GPU begin and end in the order in which they were
//!   submitted. A request never begins before an earlier one that shares a va_block with it is done, whichever their lanes.
//! - **Q-lane**: all unfinished requests to one GPU are in one lane, and a lane other than that of the rest is one GPU's.
//! - **Q-after**: a request with [`Request::after`] begins when all that were submitted before it have ended, well or
//!   not. It waits for earlier ones alone, so the earliest of all requests never waits.
//! - **Q-once**: each request ends once, with one completion, which is given once. It is in one list, or in the hands of
//!   one worker or one reaper.
//! - **Q-done**: a request that is done moves nothing any more; a thread that is told of it finds its completion.
//! - **Q-most**: a request has its slot until its completion was given, and there are [`MOST`] slots.
//! - **Q-room**: a worker does not wait for memory of a GPU, as it holds the VA space and keeps the system awake. It
//!   comes again, and a request fails only if there was no memory for some seconds.
//! - **Q-rest**: a worker rests after each look at [`LOOKED_AT`](super::moves::LOOKED_AT) bytes that nobody ever touched,
//!   within one request. A request may name as many terabytes as there are addresses, and no process pays for the worker's
//!   time. What many small requests have looked at is not added up.
//! - **Q-end**: once the VA space has ended nothing begins, and no worker is woken.
//!
//! Locking: the caller's, around each call of [`Queue`]. No such call allocates or frees.

mod job;
mod lane;
mod part;

use super::moves::{Failed, To};
use crate::mem::ProcessVec;
use part::{lacks, Part};

pub use job::{Job, Request};
pub use lane::{Lane, Lanes, Way, AT_WORK};

/// How many requests of a VA space may be unfinished, or done and not reaped.
pub const MOST: u32 = 4096;

/// Milliseconds after which a worker that could not go on looks again.
pub const LATER_MS: u64 = 10;

/// How many slots the first table has.
const FIRST: u32 = 64;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number that the caller gave the request.
    pub user: u64,
    /// Whether all was moved.
    pub status: Result<(), Failed>,
    /// How many requests of the VA space were done before this one, plus one.
    pub order: u64,
    slot: u32,
}

/// Stands for no slot in a list.
const NONE: u32 = u32::MAX;

/// A place for a request in the queue's table.
#[derive(Clone, Debug)]
pub struct Slot<E> {
    /// The next slot of its list.
    next: u32,
    /// How many requests were submitted before this one.
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

/// A list of slots, first in, first out.
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

    /// Takes `slot` out, which stands behind `before`, or is the first if that is [`NONE`].
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

    /// Its slots, from the first on.
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

/// What the worker does after it has moved a part.
#[derive(Debug, PartialEq, Eq)]
pub struct After<E> {
    /// `Some` if the request is done, with the event to signal besides waking threads.
    pub done: Option<Option<E>>,
    /// When the lane's worker is to run again, if the lane has something to do.
    pub again: Option<When>,
    /// The other lanes whose workers may have waited for this.
    pub others: Lanes,
}

/// When a worker is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as it can.
    Now,
    /// In a moment, because a suspend, the tenant's rate or other threads come first.
    Later,
}

/// The requests of a VA space. `E` is an event that a completion signals, besides waking threads.
#[derive(Debug)]
pub struct Queue<E> {
    slots: ProcessVec<Slot<E>>,
    free: List,
    lanes: [List; Lane::COUNT],
    /// Whether the first request of a lane is in the hands of its worker.
    running: [bool; Lane::COUNT],
    /// How many GPUs may have a lane of their own.
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

    /// How many slots a table needs for `more` further requests, up to [`MOST`]; `None` if the present table has
    /// room.
    pub fn wants(&self, more: u32) -> Option<u32> {
        let have = self.slots.len() as u32;
        let used = have.saturating_sub(self.free.length);
        let needed = used.saturating_add(more).min(MOST);
        (needed > have).then(|| needed.max(have.saturating_mul(2)).clamp(FIRST, MOST))
    }

    /// Uses `table`, which is empty and has room for `most` slots, in place of the present one, if that is smaller.
    /// Leaves the other one in `table`, for the caller to free.
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

    /// The first unfinished request of a lane.
    fn first(&self, lane: Lane) -> Option<&Slot<E>> {
        let list = self.lanes[lane as usize];
        let first = self.slots.get(list.first as usize);
        first.filter(|_| list.length > 0)
    }

    /// The lane for a request (Q-lane). A GPU with a request in the lane of the rest gets no lane of its own before
    /// that is done.
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
        // Only called for a GPU without a lane, as it looks at each request of the rest.
        let gets = |_: &Lane| {
            let mut rest = self.lanes[Lane::Rest as usize].iter(&self.slots);
            !rest.any(|slot| slot.job.gpu == request.gpu) || lacks(Part::RestFirst)
        };
        Lane::of_gpus(own)
            .find(mine)
            .or_else(|| Lane::of_gpus(own).find(is_free).filter(gets))
            .unwrap_or(Lane::Rest)
    }

    /// The lanes with unfinished requests.
    pub fn waiting(&self) -> Lanes {
        Lanes::of(|lane| self.first(lane).is_some())
    }

    /// Takes a request as the last of its lane. Returns false if there is no slot for it.
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

    /// The request that the lane's worker works on next. `None` if there is none, or if it has to wait for another
    /// lane, whose worker will wake this one. The request is in the worker's hands until [`Queue::stepped`].
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
    /// earlier ones of its own lane have ended.
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

    /// Notes that a worker moved a part of its request, or failed to.
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

    /// Completes the first request of a lane.
    fn complete(&mut self, lane: Lane, status: Result<(), Failed>) -> Option<E> {
        let number = self.lanes[lane as usize].pop(&mut self.slots)?;
        self.completed = self.completed.wrapping_add(1);
        let slot = self.slots.get_mut(number as usize)?;
        (slot.status, slot.order) = (status, self.completed);
        let event = slot.event.take();
        self.done.push(&mut self.slots, number);
        event
    }

    /// How many requests of the user `of` are unfinished.
    pub fn pending(&self, of: u64) -> u32 {
        let all = self.lanes.iter().flat_map(|lane| lane.iter(&self.slots));
        all.filter(|slot| slot.of == of).count() as u32
    }

    /// Whether a thread that waits for `most` completions of `of` can go on: there are so many, or no more will come.
    pub fn is_ready(&self, of: u64, most: u32) -> bool {
        let done = self.done.iter(&self.slots).filter(|slot| slot.of == of);
        done.take(most as usize).count() as u32 >= most || self.pending(of) == 0
    }

    /// Takes the first completion of `of`. It is in the caller's hands until it is [given](Queue::given) or [put
    /// back](Queue::put_back).
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

    /// Notes that the caller has written the completion to its user, and frees the slot.
    pub fn given(&mut self, completion: Completion) {
        if !lacks(Part::SlotUntilGiven) {
            self.free.push(&mut self.slots, completion.slot);
        }
    }

    /// Puts a completion back that could not be written to its user, in front of all that were done later.
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

    /// Ends the queue, as the VA space ends (Q-end).
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether the VA space has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// The operations of a worker.
pub trait Machine {
    /// An event that a completion signals, besides waking threads.
    type Event;

    /// Keeps the system from being suspended; false if it is about to be.
    fn enter(&mut self) -> bool;

    /// Lets the system be suspended again.
    fn leave(&mut self);

    /// Works on the queue, under its lock.
    fn with<R>(&mut self, f: impl FnOnce(&mut Queue<Self::Event>) -> R) -> R;

    /// Moves the next part of a request.
    fn step(&mut self, job: &mut Job) -> Result<(), Failed>;

    /// Wakes the threads that wait for completions, and signals `event`, if there is one.
    fn tell(&mut self, event: Option<Self::Event>);

    /// Has a lane's worker run, once more if it runs now. Does nothing once the VA space has ended, which is checked
    /// under the queue's lock (Q-end).
    fn wake(&mut self, lane: Lane, when: When);
}

/// Moves a part of the lane's first request; a worker calls this when it is woken.
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
