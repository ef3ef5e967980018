// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discards, prefetches, and both, of one buffer or of several, in a stream of the device that is
//! current or of the other one; and calls with a mistake, after which nothing has changed.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{null, null_mut};

use uvmrust::Range;
use uvmrust_c::{
    uvmrust_discard, uvmrust_discard_and_prefetch, uvmrust_discard_and_prefetch_async,
    uvmrust_discard_and_prefetch_batch, uvmrust_discard_and_prefetch_batch_async,
    uvmrust_discard_async, uvmrust_discard_batch, uvmrust_discard_batch_async, uvmrust_prefetch,
    uvmrust_prefetch_async, uvmrust_prefetch_batch, uvmrust_prefetch_batch_async, CBatch,
};

use super::{Buffer, Owner, Program, LENGTH, RAW};
use crate::cuda::Handle;
use crate::model::{device_of, kind_of, legacy, Access, Kind};

/// `UVMRUST_EINVALID` and `UVMRUST_ENODEVICE`, the refusals that the calls below may give.
const INVALID: c_int = -2;
const NO_DEVICE: c_int = -6;

/// What is done to buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Eager,
    Lazy,
    Prefetch,
    /// A discard, and a prefetch behind it.
    Both,
}

impl Task {
    pub(super) fn discards(self) -> bool {
        self != Self::Prefetch
    }

    fn flags(self) -> c_uint {
        c_uint::from(self == Self::Lazy)
    }
}

/// Where memory goes, as C has it: null for the host.
struct To(Option<[u8; 16]>);

impl To {
    fn name(&self) -> &'static str {
        self.0.map_or("the host", |_| "a GPU")
    }

    /// Of a call that moves memory; others go nowhere.
    fn uuid(&self, task: Task) -> *const [u8; 16] {
        let to = match task {
            Task::Prefetch | Task::Both => self.0.as_ref(),
            Task::Eager | Task::Lazy => None,
        };
        to.map_or(null(), |uuid| uuid)
    }
}

/// Calls the library: by the call of one range, or as a batch.
fn call(task: Task, ranges: &[Range], batch: bool, to: &To, stream: Handle) -> c_int {
    let uuid = to.uuid(task);
    // SAFETY, for all: by the model, nobody reads what is discarded before it is written again,
    // and it is prefetched first if need be; the batch is as long as it says, and the rest is
    // there.
    #[allow(clippy::undocumented_unsafe_blocks)]
    if let (&[Range { base, length }], false) = (ranges, batch) {
        let (base, length) = (base as *mut c_void, length as usize);
        unsafe {
            match task {
                Task::Prefetch => uvmrust_prefetch_async(base, length, uuid, stream),
                Task::Both => uvmrust_discard_and_prefetch_async(base, length, uuid, stream),
                _ => uvmrust_discard_async(base, length, task.flags(), stream),
            }
        }
    } else {
        let batch = CBatch::of(ranges, uuid, task.flags());
        unsafe {
            match task {
                Task::Prefetch => uvmrust_prefetch_batch_async(&batch, stream),
                Task::Both => uvmrust_discard_and_prefetch_batch_async(&batch, stream),
                _ => uvmrust_discard_batch_async(&batch, stream),
            }
        }
    }
}

/// The same by the calls that are in no stream's order, and return when it is done.
fn call_at_once(task: Task, ranges: &[Range], batch: bool, to: &To) -> c_int {
    let uuid = to.uuid(task);
    // SAFETY, for all: as in `call`; all earlier uses of the memory are over.
    #[allow(clippy::undocumented_unsafe_blocks)]
    if let (&[Range { base, length }], false) = (ranges, batch) {
        let (base, length) = (base as *mut c_void, length as usize);
        unsafe {
            match task {
                Task::Prefetch => uvmrust_prefetch(base, length, uuid),
                Task::Both => uvmrust_discard_and_prefetch(base, length, uuid),
                _ => uvmrust_discard(base, length, task.flags()),
            }
        }
    } else {
        let batch = CBatch::of(ranges, uuid, task.flags());
        unsafe {
            match task {
                Task::Prefetch => uvmrust_prefetch_batch(&batch),
                Task::Both => uvmrust_discard_and_prefetch_batch(&batch),
                _ => uvmrust_discard_batch(&batch, null_mut()),
            }
        }
    }
}

impl Program<'_> {
    pub(super) fn task(&mut self) -> Task {
        [Task::Eager, Task::Lazy, Task::Prefetch, Task::Both][self.random.below(4)]
    }

    /// One to three of the buffers that fit, in the order of their numbers or not; or none.
    pub(super) fn some_raw(&mut self, fits: impl Fn(&Buffer) -> bool) -> Vec<usize> {
        let mut some = Vec::new();
        for _ in 0..=self.random.below(3) {
            let at = self.random.below(RAW);
            let fits = self.buffers[at].as_ref().is_some_and(&fits);
            if fits && !some.contains(&at) {
                some.push(at);
            }
        }
        some
    }

    /// Does something to some buffers, whose earlier uses come before it.
    pub(super) fn ranges(&mut self) -> Result<(), String> {
        let task = self.task();
        // A lazy discard ends with a prefetch.
        let ends = matches!(task, Task::Prefetch | Task::Both);
        let some = self.some_raw(|b| b.owner == Owner::Raw && (ends || !b.lazy));
        let Some(stream) = self.some_stream() else {
            return Ok(());
        };
        if self.random.one_in(6) {
            return self.mistake(task, &some, stream);
        }
        if self.calls_at_once && self.capture.is_none() && self.random.one_in(2) {
            return self.at_once(task, &some);
        }
        if some.is_empty() || !some.iter().all(|&at| self.wait_for_uses(at, stream, true)) {
            return Ok(());
        }
        self.call(task, &some, stream, 0)?;
        let access = self.order.act(stream);
        for at in some {
            let value = self.buffers[at].as_ref().and_then(|b| b.value);
            self.wrote(at, access, value.filter(|_| !task.discards()));
            if let Some(b) = self.buffers[at].as_mut() {
                b.lazy = task == Task::Lazy;
            }
        }
        Ok(())
    }

    /// Does it by a call in no stream's order: the program waits for all earlier uses first, and what it puts into
    /// any stream afterwards comes behind.
    fn at_once(&mut self, task: Task, some: &[usize]) -> Result<(), String> {
        for &at in some {
            let uses = self.buffers[at].iter().flat_map(|b| b.uses(true));
            for Access { stream, .. } in uses.collect::<Vec<_>>() {
                self.machine.cuda.synchronize(self.enter(stream));
                self.order.synchronize(stream);
            }
        }
        let ranges: Vec<_> = some.iter().map(|&at| self.range(at)).collect();
        let (to, batch) = (self.somewhere(), self.random.one_in(2));
        let device = self.some_gpu();
        self.enter(legacy(device));
        self.say(|| {
            format!(
                "at once: {task:?} of {some:?} to {}, as a batch: {batch}",
                to.name()
            )
        });
        let code = call_at_once(task, &ranges, batch, &to);
        if code != 0 {
            return Err(format!("{task:?} of {some:?} at once gives {code}"));
        }
        self.machine.totals.at_once += 1;
        for &at in some {
            let Some(b) = self.buffers[at].as_mut() else {
                continue;
            };
            b.written = None;
            b.read.clear();
            b.value = b.value.filter(|_| !task.discards());
            b.lazy = task == Task::Lazy;
        }
        Ok(())
    }

    /// Calls the library, which must give `must`.
    pub(super) fn call(
        &mut self,
        task: Task,
        some: &[usize],
        stream: usize,
        must: c_int,
    ) -> Result<(), String> {
        let ranges: Vec<_> = some.iter().map(|&at| self.range(at)).collect();
        let (handle, to) = (self.enter_or_not(stream), self.somewhere());
        let batch = self.random.one_in(2);
        self.say(|| {
            let called = format!("stream {stream}: {task:?} of {some:?}");
            format!(
                "{called} to {}, as a batch: {batch}, must give {must}",
                to.name()
            )
        });
        let code = call(task, &ranges, batch, &to, handle);
        let totals = &mut self.machine.totals;
        match task {
            _ if must != 0 => {}
            Task::Prefetch => totals.prefetches += 1,
            Task::Both => totals.prepared += 1,
            Task::Eager | Task::Lazy => totals.discards += 1,
        }
        totals.batches += u64::from(ranges.len() > 1);
        // Of no ranges there is nothing to do or to refuse, but in the wrong stream.
        match code == must || (some.is_empty() && code == 0) {
            true => Ok(()),
            false => Err(format!(
                "{task:?} of {some:?} in stream {stream} gives {code}, not {must}"
            )),
        }
    }

    fn range(&self, at: usize) -> Range {
        Range {
            base: self.base(at),
            length: LENGTH as u64,
        }
    }

    /// The handle of a stream. Its device is current if it is a default stream, which the handle
    /// alone does not name.
    fn enter_or_not(&mut self, stream: usize) -> Handle {
        let handle = self.enter(stream);
        let named = matches!(kind_of(stream), Kind::Blocking | Kind::NonBlocking);
        if named && self.random.one_in(3) {
            let other = self.machine.contexts[1 - device_of(stream)];
            self.machine.cuda.use_context(other);
            self.machine.totals.elsewhere += 1;
        }
        handle
    }

    fn somewhere(&mut self) -> To {
        let gpus = self.machine.gpus;
        let device = self.random.below(gpus + 1);
        To((device < gpus).then(|| self.machine.uuids[device]))
    }

    /// A call that is refused, whatever is under way: nothing comes of it.
    fn mistake(&mut self, task: Task, some: &[usize], stream: usize) -> Result<(), String> {
        let mut ranges: Vec<_> = some.iter().map(|&at| self.range(at)).collect();
        let goes = matches!(task, Task::Prefetch | Task::Both);
        let mut to = self.somewhere();
        let handle = self.enter_or_not(stream);
        // What has no page to work on is a success, before GPU and stream are looked at.
        let is_nothing = ranges.iter().all(|range| has_no_page(task, range));
        let seen = |code| if is_nothing { 0 } else { code };
        let (handle, must) = match self.random.below(3) {
            0 if goes => {
                to = To(Some([9; 16]));
                (handle, seen(NO_DEVICE))
            }
            // CUDA itself takes any handle for a stream's.
            1 if self.machine.gpus > 1 => (0x1_2340 as Handle, seen(INVALID)),
            _ => {
                let (base, length) = (self.base(0), u64::MAX);
                ranges.push(Range { base, length });
                (handle, INVALID)
            }
        };
        let code = call(task, &ranges, self.random.one_in(2), &to, handle);
        self.machine.totals.mistakes += 1;
        match code == must {
            true => Ok(()),
            false => Err(format!("{task:?} with a mistake gives {code}, not {must}")),
        }
    }
}

/// Whether a call of this kind finds no page in `range`: discards take whole pages, prefetches each page that is touched.
fn has_no_page(task: Task, range: &Range) -> bool {
    const PAGE: u64 = 4096;
    match task {
        Task::Prefetch | Task::Both => range.length == 0,
        _ => range.base.next_multiple_of(PAGE) >= (range.base + range.length) / PAGE * PAGE,
    }
}
