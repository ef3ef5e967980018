// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long launches take: by an event of CUDA's before each and one behind it, in its stream.
//! What host functions do before the kernel is not between them. Events are used again.
//!
//! And when they ran, by the host's clock, which CUDA does not tell: it tells how much later than
//! another an event was, of the same context. How far the GPU's clock is from the host's is known within
//! bounds: no launch begins before it is made, none ends after it was seen to have
//! ended, and none had ended when it was seen not to. A launch that finds its stream empty has its time
//! right by what it takes a launch to reach the GPU, and so have those behind it, in all streams of the context.

use core::ptr::null_mut;
use std::collections::VecDeque;

use uvmrust::cuda::{Cuda, Stream};

use uvmrust::record::now;

use super::Handle;

/// `CU_EVENT_DEFAULT`: with a time.
const DEFAULT: u32 = 0;
/// `CUDA_ERROR_NOT_READY`: an event is not complete.
const NOT_READY: i32 = 600;

/// The GPU's clock is taken to go faster than the host's, by one part in 2 to the power of this, which is
/// more than clocks differ by. So a launch is thought to begin too early rather than too late. The next one
/// that finds its stream empty puts that right.
const DRIFT: u32 = 13;

/// Launches whose time is waited for at once. One more has none: a program that launches so
/// far ahead would have as many events.
const MOST: usize = 4096;

/// The events of a launch, and the context that they are of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    context: Handle,
    before: Handle,
    behind: Handle,
}

/// A launch that is being made: its first event is in the stream.
#[derive(Debug)]
pub(super) struct Begun {
    stream: usize,
    /// By the host's clock.
    made: u64,
    pair: Pair,
}

/// The launches of a stream whose events are not complete, in the order in which they were kept.
#[derive(Debug)]
struct Lane {
    context: Handle,
    stream: usize,
    running: VecDeque<(u64, Begun)>,
    /// When the first was last seen not to have ended.
    busy: u64,
}

/// The last launch of a context that was told of: its first event, which is not used again yet, and
/// when that was by the host's clock.
#[derive(Debug)]
struct Anchor {
    pair: Pair,
    at: u64,
}

/// What CUDA says of two events: by how much the second was later, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elapsed {
    Ns(i64),
    NotReady,
    Unknown,
}

/// When a launch began, by the host's clock, in ns, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) from: u64,
    pub(super) ns: u64,
}

/// The events of a process.
#[derive(Debug, Default)]
pub(super) struct Timing {
    spare: Vec<Pair>,
    lanes: Vec<Lane>,
    /// One for each context.
    anchors: Vec<Anchor>,
    /// Launches in the lanes.
    running: usize,
    /// Launches since CUDA was asked last.
    since: usize,
}

/// The current context, or null.
pub(super) fn current(cuda: &Cuda) -> Handle {
    let mut context = null_mut();
    if let Some(call) = cuda.ctx_current {
        // SAFETY: the output is writable. After an error nobody has written it.
        let _ = unsafe { call(&mut context) };
    }
    Handle(context)
}

/// Takes the spare pair of events, or makes one in the current context, and puts the first into a
/// stream.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(super) unsafe fn begin(
    cuda: &Cuda,
    stream: Stream,
    context: Handle,
    spare: Option<Pair>,
) -> Option<Begun> {
    if context.0.is_null() {
        return None;
    }
    let pair = match spare {
        Some(pair) => pair,
        None => make(cuda, context)?,
    };
    let made = now();
    // SAFETY: the event is of the current context, and the stream by our contract.
    let done = unsafe { cuda.event_record?(pair.before.0, stream) };
    let stream = stream.addr();
    (done == 0).then_some(Begun { stream, made, pair })
}

fn make(cuda: &Cuda, context: Handle) -> Option<Pair> {
    let create = cuda.event_create?;
    let mut events = [null_mut(); 2];
    for event in &mut events {
        // SAFETY: the output is writable.
        if unsafe { create(event, DEFAULT) } != 0 {
            return None;
        }
    }
    let [before, behind] = events.map(Handle);
    Some(Pair {
        context,
        before,
        behind,
    })
}

/// Puts the second event into the stream. `None`: there was no launch.
///
/// # Safety
/// As for [`begin`].
pub(super) unsafe fn end(
    cuda: &Cuda,
    stream: Stream,
    begun: Begun,
    launched: bool,
) -> Option<Begun> {
    // SAFETY: by our contract.
    let done = launched && unsafe { cuda.event_record?(begun.pair.behind.0, stream) } == 0;
    done.then_some(begun)
}

impl Timing {
    /// Events of a context that nobody needs.
    pub(super) fn spare(&mut self, context: Handle) -> Option<Pair> {
        let at = self
            .spare
            .iter()
            .rposition(|pair| pair.context == context)?;
        Some(self.spare.swap_remove(at))
    }

    /// Keeps a launch until its time is known. Gives one whose time is not going to be known.
    pub(super) fn keep(&mut self, launch: u64, begun: Begun) -> Option<u64> {
        let (context, stream) = (begun.pair.context, begun.stream);
        let mut lanes = self.lanes.iter_mut();
        let lane = lanes.find(|lane| (lane.context, lane.stream) == (context, stream));
        match lane {
            Some(lane) => lane.running.push_back((launch, begun)),
            None => self.lanes.push(Lane {
                context,
                stream,
                running: VecDeque::from([(launch, begun)]),
                busy: 0,
            }),
        }
        self.since += 1;
        self.running += 1;
        if self.running <= MOST {
            return None;
        }
        // The oldest runs for longest: its events may be recorded anew all the same, and
        // what was recorded in them before is forgotten.
        let first = |lane: &&mut Lane| lane.running.front().map(|&(launch, _)| launch);
        let lanes = self.lanes.iter_mut();
        let oldest = lanes
            .filter(|lane| first(lane).is_some())
            .min_by_key(first)?;
        let (launch, begun) = oldest.next()?;
        self.running -= 1;
        self.spare.push(begun.pair);
        Some(launch)
    }

    /// Forgets all events: their context is gone.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Tells of the launches that are done when and how long they ran, or that it is not known; in the
    /// order of each stream, up to the first that is not done. With fewer than `many` since CUDA was
    /// asked last, nothing is asked.
    pub(super) fn harvest(&mut self, cuda: &Cuda, many: usize, tell: impl FnMut(u64, Option<Ran>)) {
        let Some(elapsed) = cuda.event_elapsed.filter(|_| self.since >= many) else {
            return;
        };
        self.since = 0;
        let ask = |start: Handle, end: Handle| {
            let mut ms = f32::NAN;
            // SAFETY: these are events, and the output is writable.
            match unsafe { elapsed(&mut ms, start.0, end.0) } {
                NOT_READY => Elapsed::NotReady,
                0 if !ms.is_nan() => Elapsed::Ns((f64::from(ms) * 1e6).round() as i64),
                _ => Elapsed::Unknown,
            }
        };
        // Some stream may be being captured, which such a question would break.
        cuda.unordered(|| self.look(ask, now, tell));
    }

    fn look(
        &mut self,
        mut ask: impl FnMut(Handle, Handle) -> Elapsed,
        now: impl Fn() -> u64,
        mut tell: impl FnMut(u64, Option<Ran>),
    ) {
        for lane in &mut self.lanes {
            while let Some((_, Begun { pair, .. })) = lane.running.front() {
                let asked = now();
                let took = ask(pair.before, pair.behind);
                if took == Elapsed::NotReady {
                    lane.busy = asked;
                    break;
                }
                let busy = lane.busy;
                let Some((launch, Begun { made, pair, .. })) = lane.next() else {
                    break;
                };
                self.running -= 1;
                let Elapsed::Ns(ns @ 0..) = took else {
                    self.spare.push(pair);
                    tell(launch, None);
                    continue;
                };
                let ns = ns.unsigned_abs();
                let bounds = (made.max(busy.saturating_sub(ns)), now().saturating_sub(ns));
                let from = began(last(&self.anchors, pair, &mut ask), bounds);
                self.spare.extend(anchor(&mut self.anchors, pair, from));
                tell(launch, Some(Ran { from, ns }));
            }
        }
        self.lanes.retain(|lane| !lane.running.is_empty());
    }
}

impl Lane {
    /// Takes out the first.
    fn next(&mut self) -> Option<(u64, Begun)> {
        self.busy = 0;
        self.running.pop_front()
    }
}

/// When the first event of a pair was, by the last launch of its context.
fn last(
    anchors: &[Anchor],
    pair: Pair,
    ask: &mut impl FnMut(Handle, Handle) -> Elapsed,
) -> Option<u64> {
    let anchor = (anchors.iter()).find(|anchor| anchor.pair.context == pair.context)?;
    let Elapsed::Ns(later) = ask(anchor.pair.before, pair.before) else {
        return None;
    };
    let drift = later.unsigned_abs() >> DRIFT;
    Some(anchor.at.saturating_add_signed(later).saturating_sub(drift))
}

/// Makes a launch its context's last, and gives the events of the one that was.
fn anchor(anchors: &mut Vec<Anchor>, pair: Pair, at: u64) -> Option<Pair> {
    let mut known = anchors.iter_mut();
    let known = known.find(|anchor| anchor.pair.context == pair.context);
    let Some(known) = known else {
        anchors.push(Anchor { pair, at });
        return None;
    };
    known.at = at;
    Some(core::mem::replace(&mut known.pair, pair))
}

/// When a launch began that did not begin before the first of these times, nor after the second,
/// if by the one before it that was at `known`. Clocks may not go alike: then the first counts.
fn began(known: Option<u64>, (earliest, latest): (u64, u64)) -> u64 {
    known.unwrap_or(earliest).min(latest).max(earliest)
}

#[cfg(test)]
mod tests;
