// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long launches take: by an event of CUDA's before each and one behind it, in its stream.
//! What host functions do before the kernel is not between them. Events are used again.
//!
//! And when they ran, by the host's clock, which CUDA does not tell: it tells how much later than
//! another an event was, of the same context. How far the GPU's clock is from the host's is known within
//! bounds: no launch begins before it is made, none ends after it was seen to have
//! ended, and none had ended when it was seen not to. A launch that finds its stream empty has its time
//! right by what it takes a launch to reach the GPU, and so have those behind it, in all streams of the context.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::collections::VecDeque;

use uvmrust::cuda::{Cuda, Stream};

use uvmrust::record::now;

use super::Handle;

/// The type of `cuEventRecord` in the driver.
type RecordFn = unsafe extern "C" fn(*mut c_void, Stream) -> i32;

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
    asked: Asked,
    /// Launches in the lanes, here and where CUDA is being asked of them.
    running: usize,
    /// Launches since CUDA was asked last.
    since: usize,
    /// How often all events were forgotten.
    forgotten: u64,
}

/// What CUDA is asked of, by one thread at a time, and nothing is locked meanwhile: CUDA may wait for
/// another thread, or call what calls it.
#[derive(Debug, Default)]
struct Asked {
    lanes: Vec<Lane>,
    /// One for each context.
    anchors: Vec<Anchor>,
}

/// A question to CUDA: which launches are done, and when they ran.
#[derive(Debug)]
pub(super) struct Question {
    asked: Asked,
    forgotten: u64,
    /// Events that are not needed any more.
    spare: Vec<Pair>,
    /// When and how long launches ran that are done, or that it is not known; in the order of each stream.
    told: Vec<Told>,
}

/// A launch, and when it ran; `None`: that is not known.
pub(super) type Told = (u64, Option<Ran>);

/// The current context, or null.
pub(super) fn current(cuda: &Cuda) -> Handle {
    let mut context = null_mut();
    if let Some(call) = cuda.ctx_current() {
        // SAFETY: the output is writable. After an error nobody has written it.
        let _ = unsafe { call(&mut context) };
    }
    Handle(context)
}

/// Takes the spare pair of events, or makes one in the current context, and puts the first into a
/// stream.
///
/// # Errors
/// It cannot be; the events, if there are any, can be used again.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(super) unsafe fn begin(
    cuda: &Cuda,
    stream: Stream,
    context: Handle,
    spare: Option<Pair>,
) -> Result<Begun, Option<Pair>> {
    let (Some(record), false) = (cuda.event_record(), context.0.is_null()) else {
        return Err(spare);
    };
    let pair = spare.or_else(|| make(cuda, context)).ok_or(None)?;
    let made = now();
    // SAFETY: the event is of the current context, and the stream by our contract.
    let done = unsafe { record(pair.before.0, stream) };
    let stream = stream.addr();
    match done {
        0 => Ok(Begun { stream, made, pair }),
        _ => Err(Some(pair)),
    }
}

fn make(cuda: &Cuda, context: Handle) -> Option<Pair> {
    let create = cuda.event_create()?;
    let event = || {
        let mut event = null_mut();
        // SAFETY: the output is writable.
        let done = unsafe { create(&mut event, DEFAULT) };
        (done == 0).then_some(event)
    };
    let before = event()?;
    let Some(behind) = event() else {
        // SAFETY: the event is new, and in no stream.
        let _ = cuda.event_destroy().map(|call| unsafe { call(before) });
        return None;
    };
    let [before, behind] = [before, behind].map(Handle);
    Some(Pair {
        context,
        before,
        behind,
    })
}

/// Puts the second event into the stream.
///
/// # Errors
/// There was no launch, or CUDA refuses the event: both can be used again.
///
/// # Safety
/// As for [`begin`].
pub(super) unsafe fn end(
    cuda: &Cuda,
    stream: Stream,
    begun: Begun,
    launched: bool,
) -> Result<Begun, Pair> {
    // SAFETY: by our contract.
    let record = |call: RecordFn| unsafe { call(begun.pair.behind.0, stream) } == 0;
    match launched && cuda.event_record().is_some_and(record) {
        true => Ok(begun),
        false => Err(begun.pair),
    }
}

/// Destroys events that nobody knows any more, whether they are complete or not.
pub(super) fn destroy(cuda: &Cuda, pairs: Vec<Pair>) {
    let Some(call) = cuda.event_destroy().filter(|_| !pairs.is_empty()) else {
        return;
    };
    for pair in pairs {
        for event in [pair.before, pair.behind] {
            // SAFETY: the event is ours, and its context is there.
            let _ = unsafe { call(event.0) };
        }
    }
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

    /// Takes back the events of a launch that has no time.
    pub(super) fn give_back(&mut self, pair: Pair) {
        self.spare.push(pair);
    }

    /// Keeps a launch until its time is known. Gives one whose time is not going to be known.
    pub(super) fn keep(&mut self, launch: u64, begun: Begun) -> Option<u64> {
        let (context, stream) = (begun.pair.context, begun.stream);
        let lanes = &mut self.asked.lanes;
        match Lane::of(lanes, context, stream) {
            Some(lane) => lane.running.push_back((launch, begun)),
            None => lanes.push(Lane {
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
        let lanes = self.asked.lanes.iter_mut();
        let oldest = lanes
            .filter(|lane| first(lane).is_some())
            .min_by_key(first)?;
        let (launch, begun) = oldest.next()?;
        self.running -= 1;
        self.spare.push(begun.pair);
        Some(launch)
    }

    /// Forgets all launches, and gives their events: the context of some may go.
    pub(super) fn forget(&mut self) -> Vec<Pair> {
        let forgotten = Self {
            forgotten: self.forgotten + 1,
            ..Self::default()
        };
        let Self { spare, asked, .. } = core::mem::replace(self, forgotten);
        let running = asked.lanes.into_iter().flat_map(|lane| lane.running);
        let running = running.map(|(_, begun)| begun.pair);
        let anchors = asked.anchors.into_iter().map(|anchor| anchor.pair);
        spare.into_iter().chain(running).chain(anchors).collect()
    }

    /// Whether there were as many launches since CUDA was asked last.
    pub(super) fn is_due(&self, many: usize) -> bool {
        self.since >= many
    }

    /// What CUDA is to be asked. It is to be given back.
    pub(super) fn question(&mut self) -> Question {
        self.since = 0;
        Question {
            asked: core::mem::take(&mut self.asked),
            forgotten: self.forgotten,
            spare: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Takes back what CUDA was asked of, and gives what is known by now. Of events that were forgotten
    /// meanwhile nothing is known.
    pub(super) fn answered(&mut self, question: Question) -> Vec<Told> {
        let Question { asked, told, .. } = question;
        if question.forgotten != self.forgotten {
            return Vec::new();
        }
        self.spare.extend(question.spare);
        self.running -= told.len();
        self.asked.anchors = asked.anchors;
        // What was launched meanwhile is behind what is still waited for.
        for mut old in asked.lanes {
            match Lane::of(&mut self.asked.lanes, old.context, old.stream) {
                Some(lane) => {
                    old.running.append(&mut lane.running);
                    *lane = old;
                }
                None => self.asked.lanes.push(old),
            }
        }
        told
    }
}

impl Question {
    /// Asks CUDA of all streams, in each up to the first launch that is not done.
    pub(super) fn ask(&mut self, cuda: &Cuda) {
        // A child of `fork` that only ends has none, and must not call CUDA.
        let elapsed = cuda.event_elapsed();
        let Some(elapsed) = elapsed.filter(|_| !self.asked.lanes.is_empty()) else {
            return;
        };
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
        cuda.unordered(|| self.look(ask, now));
    }

    fn look(&mut self, mut ask: impl FnMut(Handle, Handle) -> Elapsed, now: impl Fn() -> u64) {
        let Asked { lanes, anchors } = &mut self.asked;
        for lane in &mut *lanes {
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
                let Elapsed::Ns(ns @ 0..) = took else {
                    self.spare.push(pair);
                    self.told.push((launch, None));
                    continue;
                };
                let ns = ns.unsigned_abs();
                let bounds = (made.max(busy.saturating_sub(ns)), now().saturating_sub(ns));
                let from = began(last(anchors, pair, &mut ask), bounds);
                self.spare.extend(anchor(anchors, pair, from));
                self.told.push((launch, Some(Ran { from, ns })));
            }
        }
        lanes.retain(|lane| !lane.running.is_empty());
    }
}

impl Lane {
    /// The lane of a stream, if there is one.
    fn of(lanes: &mut [Self], context: Handle, stream: usize) -> Option<&mut Self> {
        let mut lanes = lanes.iter_mut();
        lanes.find(|lane| (lane.context, lane.stream) == (context, stream))
    }

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
