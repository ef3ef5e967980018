// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long launches take: by an event of CUDA's before each and one behind it, in its stream.
//! What host functions do before the kernel is not between them. Events are used again.

use core::ptr::null_mut;
use std::collections::VecDeque;

use uvmrust::cuda::{Cuda, Stream};

use super::Handle;

/// `CU_EVENT_DEFAULT`: with a time.
const DEFAULT: u32 = 0;
/// `CUDA_ERROR_NOT_READY`: an event is not complete.
const NOT_READY: i32 = 600;

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
pub(super) struct Begun(Pair);

/// The events of a process.
#[derive(Debug, Default)]
pub(super) struct Timing {
    spare: Vec<Pair>,
    /// Launches whose events are not complete, in the order of the launches.
    running: VecDeque<(u64, Pair)>,
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
    // SAFETY: the event is of the current context, and the stream by our contract.
    let done = unsafe { cuda.event_record?(pair.before.0, stream) };
    (done == 0).then_some(Begun(pair))
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
) -> Option<Pair> {
    // SAFETY: by our contract.
    let done = launched && unsafe { cuda.event_record?(begun.0.behind.0, stream) } == 0;
    done.then_some(begun.0)
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
    pub(super) fn keep(&mut self, launch: u64, pair: Pair) {
        self.running.push_back((launch, pair));
        self.since += 1;
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

    /// Tells of the launches that are done how long they took, in ns, in the order of the launches
    /// up to the first that is not done. With fewer than `many` since CUDA was asked last, nothing is
    /// asked.
    pub(super) fn harvest(&mut self, cuda: &Cuda, many: usize, mut tell: impl FnMut(u64, u64)) {
        let Some(elapsed) = cuda.event_elapsed.filter(|_| self.since >= many) else {
            return;
        };
        self.since = 0;
        // Some stream may be being captured, which such a question would break.
        cuda.unordered(|| {
            while let Some(&(launch, pair)) = self.running.front() {
                let mut ms = 0.0;
                // SAFETY: these are events, and the output is writable.
                let code = unsafe { elapsed(&mut ms, pair.before.0, pair.behind.0) };
                if code == NOT_READY {
                    return;
                }
                self.running.pop_front();
                self.spare.push(pair);
                if code == 0 && ms >= 0.0 {
                    tell(launch, (f64::from(ms) * 1e6).round() as u64);
                }
            }
        });
    }
}
