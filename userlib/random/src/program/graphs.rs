// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Captures and graphs of a random program. A captured action comes behind those that
//! its stream, or another that it has waited for, had captured before; a launch is one
//! action of its stream, behind the graph's launch before. A launch of a graph without nodes is
//! no action: nothing is ordered by it.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;

use super::ranges::Task;
use super::{g10_free, Owner, Program, CAPTURE, LENGTH, RAW};
use crate::cuda::Handle;
use crate::model::{device_of, kind_of, legacy, Clock, Kind};

/// What a kernel "get" has room for, and so how often a graph is launched.
const MOST_LAUNCHES: usize = 12;

/// What a captured action does with a buffer.
struct Captured {
    buffer: usize,
    writes: bool,
    /// The captured actions that come before it.
    after: u64,
}

/// A capture under way.
pub(super) struct Capture {
    origin: usize,
    /// What the next action of each stream that takes part comes behind.
    pub(super) frontiers: BTreeMap<usize, u64>,
    actions: Vec<Captured>,
    graph: Graph,
}

/// What a graph does, as its launches need to know it.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) executable: usize,
    /// What stands in each buffer that it writes, after it.
    left: BTreeMap<usize, Option<u64>>,
    /// Buffers whose contents it reads before it writes them, and where it tells.
    outside: Vec<(usize, usize)>,
    /// Reads of what it has written itself.
    inside: Vec<(u64, usize)>,
    used: Vec<usize>,
    last: Option<Clock>,
    launches: usize,
}

impl Program<'_> {
    pub(super) fn begin_capture(&mut self) {
        let Some(origin) = self.some_stream() else {
            return;
        };
        if self.capture.is_some() || kind_of(origin) == Kind::Legacy {
            return;
        }
        let mode = self.random.below(3) as c_int;
        let handle = self.enter(origin);
        self.say(|| format!("stream {origin}: a capture begins, mode {mode}"));
        self.machine.cuda.begin_capture(handle, mode);
        self.capture = Some(Capture {
            origin,
            frontiers: BTreeMap::from([(origin, 0)]),
            actions: Vec::new(),
            graph: Graph::default(),
        });
    }

    pub(super) fn captured_step(&mut self) -> Result<(), String> {
        let Some(mut capture) = self.capture.take() else {
            return Ok(());
        };
        let mut streams: Vec<_> = capture.frontiers.keys().copied().collect();
        streams.sort_unstable();
        let stream = streams[self.random.below(streams.len())];
        let full = capture.actions.len() >= 36;
        let done = match self.random.below(12) {
            0..=2 if !full => self.captured_put(&mut capture, stream),
            3..=5 if !full => self.captured_get(&mut capture, stream),
            6..=7 if !full => self.captured_ranges(&mut capture, stream),
            8 => self.fork(&mut capture, stream),
            9 => self.refused(&capture, stream),
            10 => Ok(()),
            _ => {
                self.end_capture(capture);
                return Ok(());
            }
        };
        self.capture = Some(capture);
        done
    }

    /// Lets a captured stream wait for another, which so becomes one.
    fn fork(&mut self, capture: &mut Capture, from: usize) -> Result<(), String> {
        let to = self.any_stream();
        let joins = self.usable(to) && !capture.frontiers.contains_key(&to);
        let blocks = |stream: usize| kind_of(stream) == Kind::Legacy;
        if to == from || blocks(to) || !(joins || capture.frontiers.contains_key(&to)) {
            return Ok(());
        }
        self.join(capture, from, to);
        Ok(())
    }

    fn join(&mut self, capture: &mut Capture, from: usize, to: usize) {
        let event = self.machine.cuda.event(self.enter(from));
        self.say(|| format!("captured: stream {to} waits for {from}"));
        self.machine.cuda.wait(self.enter(to), event);
        let more = capture.frontiers.get(&from).copied().unwrap_or(0);
        *capture.frontiers.entry(to).or_insert(0) |= more;
    }

    /// Sees to it that the captured uses of a buffer come before the next action.
    fn wait_in_graph(&mut self, capture: &mut Capture, at: usize, stream: usize, writes: bool) {
        loop {
            let frontier = capture.frontiers[&stream];
            let missing = capture.actions.iter().enumerate().find(|(i, action)| {
                action.buffer == at && (writes || action.writes) && frontier >> i & 1 == 0
            });
            let Some((missing, _)) = missing else { return };
            // Some stream has come past it: all frontiers hold what comes before.
            let from = capture
                .frontiers
                .iter()
                .find(|(_, f)| **f >> missing & 1 == 1);
            let Some((&from, _)) = from else { return };
            self.join(capture, from, stream);
        }
    }

    fn captured(&mut self, capture: &mut Capture, stream: usize, buffer: usize, writes: bool) {
        let number = capture.actions.len();
        let after = capture.frontiers[&stream];
        capture.actions.push(Captured {
            buffer,
            writes,
            after,
        });
        debug_assert_eq!(capture.actions[number].after, after);
        capture.frontiers.insert(stream, after | 1 << number);
        if !capture.graph.used.contains(&buffer) {
            capture.graph.used.push(buffer);
        }
    }

    fn captured_put(&mut self, capture: &mut Capture, stream: usize) -> Result<(), String> {
        let at = self.random.below(RAW);
        self.wait_in_graph(capture, at, stream, true);
        let value = self.value();
        let handle = self.enter(stream);
        self.say(|| format!("stream {stream}, captured: writes {value:x} to buffer {at}"));
        self.machine.cuda.put(handle, self.base(at), LENGTH, value);
        self.captured(capture, stream, at, true);
        capture.graph.left.insert(at, Some(value));
        Ok(())
    }

    fn captured_get(&mut self, capture: &mut Capture, stream: usize) -> Result<(), String> {
        let at = self.random.below(RAW);
        let inside = capture.graph.left.get(&at).copied();
        if inside == Some(None) {
            return Ok(());
        }
        self.wait_in_graph(capture, at, stream, false);
        let (check, seen) = self.check(format!("a graph reads buffer {at}"));
        let handle = self.enter(stream);
        self.say(|| format!("stream {stream}, captured: reads buffer {at}, check {check}"));
        self.machine.cuda.get(handle, self.base(at), LENGTH, seen);
        self.captured(capture, stream, at, false);
        match inside.flatten() {
            Some(value) => capture.graph.inside.push((value, check)),
            None => capture.graph.outside.push((at, check)),
        }
        Ok(())
    }

    /// A task that becomes a node: of a discard that is lazy, the prefetch too.
    fn captured_ranges(&mut self, capture: &mut Capture, stream: usize) -> Result<(), String> {
        let task = self.task();
        let at = self.some_raw(|_| true);
        if cfg!(broken = "1") && (task != Task::Eager || self.backend != "ours") {
            // CUDA's own calls would break the capture. What is wrong shall be seen in data.
            return Ok(());
        }
        if self.backend == "cuda" || (self.backend == "old" && task.discards()) {
            self.machine.totals.refused += 1;
            return self.call(task, &at, stream, CAPTURE);
        }
        for &at in &at {
            self.wait_in_graph(capture, at, stream, true);
        }
        self.say(|| format!("stream {stream}, captured: {task:?} of {at:?}"));
        self.call(task, &at, stream, 0)?;
        for &at in &at {
            self.captured(capture, stream, at, true);
            if task.discards() {
                capture.graph.left.insert(at, None);
            }
        }
        if task == Task::Lazy {
            self.call(Task::Prefetch, &at, stream, 0)?;
            for &at in &at {
                self.captured(capture, stream, at, true);
            }
        }
        Ok(())
    }

    /// What is not done in a graph is refused, and the capture goes on.
    fn refused(&mut self, capture: &Capture, stream: usize) -> Result<(), String> {
        if cfg!(broken = "1") {
            // It is not refused then. What is wrong shall be seen in data.
            return Ok(());
        }
        self.machine.totals.refused += 1;
        let blocking = kind_of(capture.origin) != Kind::NonBlocking;
        let legacy = legacy(device_of(capture.origin));
        let held = self.some_buffer(|b| b.owner == Owner::G10);
        let (task, at) = (self.task(), self.some_raw(|_| true));
        match (blocking && self.random.one_in(2), held) {
            // The default stream has an implicit dependency on the captured one.
            (true, None) => self.call(task, &at, legacy, CAPTURE),
            (in_legacy, Some(at)) => {
                let handle = self.enter(if in_legacy { legacy } else { stream });
                // SAFETY: it is refused, or the buffer has no further use in the program.
                let code = unsafe { g10_free(self.base(at) as *mut c_void, handle) };
                match code {
                    CAPTURE => Ok(()),
                    code => Err(format!("g10_free in a capture gives {code}")),
                }
            }
            (false, None) => Ok(()),
        }
    }

    pub(super) fn end_capture(&mut self, mut capture: Capture) {
        let origin = capture.origin;
        let mut others: Vec<_> = capture.frontiers.keys().copied().collect();
        others.sort_unstable();
        for other in others.into_iter().filter(|&other| other != origin) {
            self.join(&mut capture, other, origin);
        }
        let handle = self.enter(origin);
        capture.graph.executable = self.machine.cuda.end_capture(handle) as usize;
        self.say(|| format!("graph {} is captured", self.graphs.len()));
        self.graphs.push(capture.graph);
        self.machine.totals.graphs += 1;
    }

    pub(super) fn launch(&mut self) {
        if self.graphs.is_empty() {
            return;
        }
        let number = self.random.below(self.graphs.len());
        let Some(stream) = self.some_stream() else {
            return;
        };
        let graph = &self.graphs[number];
        if graph.launches == MOST_LAUNCHES {
            let graph = self.graphs.swap_remove(number);
            self.say(|| format!("graph {number} is destroyed"));
            // Whether it is in flight or not, and whether a stream is being captured or not.
            return self.machine.cuda.destroy_graph(graph.executable as Handle);
        }
        let used = graph.used.clone();
        let outside: Vec<_> = graph.outside.iter().map(|(at, _)| *at).collect();
        let readable = |at: &usize| {
            self.buffers[*at]
                .as_ref()
                .is_some_and(|b| b.value.is_some())
        };
        let lazy = |at: &usize| self.buffers[*at].as_ref().is_some_and(|b| b.lazy);
        if used.iter().any(lazy) || !outside.iter().all(readable) {
            return;
        }
        if !used.iter().all(|&at| self.wait_for_uses(at, stream, true)) {
            return;
        }
        let handle = self.enter(stream);
        let executable = self.graphs[number].executable as Handle;
        self.say(|| {
            format!(
                "stream {stream}: graph {number} of {} is launched{}",
                self.graphs.len(),
                if used.is_empty() {
                    ", which is empty"
                } else {
                    ""
                }
            )
        });
        self.machine.cuda.launch_graph(executable, handle);
        self.machine.totals.launches += 1;
        if used.is_empty() && !self.machine.empty_orders {
            // CUDA says of launches which order they have, but not of one that does nothing;
            // and a GPU has run what is behind such a launch before what is in front of it.
            self.graphs[number].launches += 1;
            return;
        }
        if let Some(last) = self.graphs[number].last {
            self.order.also_after(stream, &last);
        }
        let access = self.order.act(stream);
        let clock = self.order.clock(stream);
        let Self {
            graphs,
            buffers,
            checks,
            ..
        } = self;
        let graph = &mut graphs[number];
        graph.last = Some(clock);
        graph.launches += 1;
        for &(at, check) in &graph.outside {
            checks[check]
                .expected
                .extend(buffers[at].as_ref().and_then(|b| b.value));
        }
        for &(value, check) in &graph.inside {
            checks[check].expected.push(value);
        }
        let left = graph.left.clone();
        for at in used {
            let before = self.buffers[at].as_ref().and_then(|b| b.value);
            self.wrote(at, access, left.get(&at).copied().unwrap_or(before));
        }
    }
}
