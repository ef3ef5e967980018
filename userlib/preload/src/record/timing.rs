// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How long launches take: by an event of CUDA's before each and one behind it, in its stream.
//! What host functions do before the kernel is not between them. Events are used again.

use core::ptr::null_mut;
use std::collections::VecDeque;

use uvmrust::cuda::{Cuda, Stream};

use super::Handle;

/// `CU_EVENT_DEFAULT`: with a time.
const DEFAULT: u32 = 0;

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

/// A launch that is being made.
#[derive(Debug)]
pub(crate) struct Begun {
    launch: u64,
    pair: Pair,
}

/// The events of a process.
#[derive(Debug, Default)]
pub(super) struct Timing {
    spare: Vec<Pair>,
    /// Launches whose events are not complete, in the order of the launches.
    running: VecDeque<(u64, Pair)>,
}

/// Takes a pair of events, and puts the first into a stream.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(super) unsafe fn begin(
    cuda: &Cuda,
    stream: Stream,
    launch: u64,
    spare: impl FnOnce(Handle) -> Option<Pair>,
) -> Option<Begun> {
    let mut context = null_mut();
    // SAFETY: the output is writable.
    if unsafe { cuda.ctx_current?(&mut context) } != 0 {
        return None;
    }
    let context = Handle(context);
    let pair = match spare(context) {
        Some(pair) => pair,
        None => make(cuda, context)?,
    };
    // SAFETY: the event is of the current context, and the stream by our contract.
    let done = unsafe { cuda.event_record?(pair.before.0, stream) };
    (done == 0).then_some(Begun { launch, pair })
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
) -> Option<(u64, Pair)> {
    // SAFETY: by our contract.
    let done = launched && unsafe { cuda.event_record?(begun.pair.behind.0, stream) } == 0;
    done.then_some((begun.launch, begun.pair))
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

    /// Keeps a launch until its time is known.
    pub(super) fn keep(&mut self, ended: (u64, Pair)) {
        self.running.push_back(ended);
        if self.running.len() > MOST {
            // The oldest runs for longest: its events may be recorded anew all the same, and
            // what was recorded in them before is forgotten.
            self.spare
                .extend(self.running.pop_front().map(|(_, pair)| pair));
        }
    }

    /// Forgets all events: their context is gone.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The next launch that is done, and how long it took, in ns.
    pub(super) fn next(&mut self, cuda: &Cuda) -> Option<(u64, u64)> {
        let &(launch, pair) = self.running.front()?;
        let (query, elapsed) = (cuda.event_query?, cuda.event_elapsed?);
        let mut ms = 0.0;
        // Some stream may be being captured, which a query would break.
        let done = cuda.unordered(|| {
            // SAFETY: these are events, and the output is writable.
            unsafe {
                match query(pair.behind.0) {
                    0 => Some(elapsed(&mut ms, pair.before.0, pair.behind.0) == 0),
                    _ => None,
                }
            }
        })?;
        self.running.pop_front();
        self.spare.push(pair);
        match done && ms >= 0.0 {
            true => Some((launch, (f64::from(ms) * 1e6).round() as u64)),
            false => self.next(cuda),
        }
    }
}
