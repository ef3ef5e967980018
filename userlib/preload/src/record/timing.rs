// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How long launches take: by an event of CUDA's before each and one behind it, in its stream.
//! What host functions do before the kernel is not between them. Events are used again.
//!
//! And when they ran, by the host's clock, which CUDA does not tell: it tells how much later than
//! another an event was. No launch begins before it is made, and none ends after it was seen
//! to have ended. Each launch that finds its stream empty has its time right by what it takes
//! a launch to reach the GPU, and the launches behind it by theirs.

use core::ptr::null_mut;
use std::collections::VecDeque;

use uvmrust::cuda::{Cuda, Stream};

use uvmrust::record::now;

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
pub(super) struct Begun {
    made: u64,
    pair: Pair,
}

#[derive(Debug)]
struct Running {
    launch: u64,
    /// When it was made, by the host's clock.
    made: u64,
    pair: Pair,
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
    /// Launches whose events are not complete, in the order of the launches.
    running: VecDeque<Running>,
    /// The last launch that was told of: its first event, which is not used again yet, and when that
    /// was.
    last: Option<(Pair, u64)>,
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
    (done == 0).then_some(Begun { made, pair })
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

    /// Keeps a launch until its time is known.
    pub(super) fn keep(&mut self, launch: u64, begun: Begun) {
        let Begun { made, pair } = begun;
        self.running.push_back(Running { launch, made, pair });
        self.since += 1;
        if self.running.len() > MOST {
            // The oldest runs for longest: its events may be recorded anew all the same, and
            // what was recorded in them before is forgotten.
            let oldest = self.running.pop_front();
            self.spare.extend(oldest.map(|oldest| oldest.pair));
        }
    }

    /// Forgets all events: their context is gone.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Tells of the launches that are done when and how long they ran, in the order of the launches
    /// up to the first that is not done. With fewer than `many` since CUDA was asked last, nothing is
    /// asked.
    pub(super) fn harvest(&mut self, cuda: &Cuda, many: usize, mut tell: impl FnMut(u64, Ran)) {
        let Some(elapsed) = cuda.event_elapsed.filter(|_| self.since >= many) else {
            return;
        };
        self.since = 0;
        // Some stream may be being captured, which such a question would break.
        cuda.unordered(|| {
            while let Some(&Running { launch, made, pair }) = self.running.front() {
                let mut ms = 0.0;
                // SAFETY: these are events, and the output is writable.
                let code = unsafe { elapsed(&mut ms, pair.before.0, pair.behind.0) };
                if code == NOT_READY {
                    return;
                }
                self.running.pop_front();
                if code != 0 || ms.is_nan() || ms < 0.0 {
                    self.spare.push(pair);
                    continue;
                }
                let ns = nanoseconds(ms) as u64;
                let mut ms = f32::NAN;
                let before = self.last.filter(|(last, _)| last.context == pair.context);
                if let Some((last, _)) = before {
                    // SAFETY: as before; both are complete.
                    if unsafe { elapsed(&mut ms, last.before.0, pair.before.0) } != 0 {
                        ms = f32::NAN;
                    }
                }
                let known = before.filter(|_| !ms.is_nan());
                let known = known.map(|(_, last)| last.saturating_add_signed(nanoseconds(ms)));
                let from = began(known, made, ns, now());
                let gone = self.last.replace((pair, from));
                self.spare.extend(gone.map(|(last, _)| last));
                tell(launch, Ran { from, ns });
            }
        });
    }
}

fn nanoseconds(ms: f32) -> i64 {
    (f64::from(ms) * 1e6).round() as i64
}

/// When a launch began that was made then, took so long, and was over by now, if by the one before
/// it began at `known`.
fn began(known: Option<u64>, made: u64, ns: u64, now: u64) -> u64 {
    let latest = now.saturating_sub(ns);
    known.unwrap_or(made).min(latest).max(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_begins_when_the_one_before_says_but_not_before_it_is_made() {
        assert_eq!(began(None, 100, 5, 1000), 100);
        // Behind others in its stream.
        assert_eq!(began(Some(700), 100, 5, 1000), 700);
        // In a stream that is empty: by the one before it began before it was made.
        assert_eq!(began(Some(90), 100, 5, 1000), 100);
        // It has ended.
        assert_eq!(began(Some(998), 100, 5, 1000), 995);
        // The clocks do not go alike.
        assert_eq!(began(Some(998), 996, 5, 1000), 996);
        assert_eq!(began(None, 3, u64::MAX, 1000), 3);
    }
}
