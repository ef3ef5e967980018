// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Discards in the order of a CUDA stream. CUDA 13 does it itself; with the ioctls,
//! a host function does it when the work before it in the stream is done.
//!
//! A host function gets one word, which names a [`Job`] in a table, so that no memory is
//! allocated while that has room ([`crate::jobs`]). It runs once, and gives the job back. If
//! another thread's capture has made it a node of a graph, which nobody may, later launches
//! find no job and say so.
//!
//! While a stream is being captured, the host function becomes a node of a graph,
//! which runs any number of times. Its pointer is to a [`Recorded`], which the graph
//! owns for as long as it, or an executable graph made of it, may use it ("CUDA User
//! Objects" in the CUDA Programming Guide). What cannot be such a node is refused.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use crate::backend::{half_way, ordinal};
use crate::cuda::{Cuda, Graph, Stream};
use crate::jobs::{Slot, Table, Tag};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};
use crate::sys::Sys;
use crate::{broken, Backend, Error, Mode, Outcome, Place, Range, Result, Uvm};

/// One discard that a stream will do.
struct Job {
    uvm: &'static Uvm,
    range: Range,
    mode: Mode,
}

/// Jobs under way that need no memory. For more at once the table grows.
const SLOTS: usize = 256;

static JOBS: Table<Job, SLOTS> = Table {
    slots: [const {
        Slot {
            state: AtomicU64::new(0),
            held: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }; SLOTS],
    more: AtomicPtr::new(core::ptr::null_mut()),
};

impl Tag {
    /// As CUDA hands it over.
    fn data(self) -> *mut c_void {
        const { assert!(size_of::<usize>() == size_of::<u64>()) };
        core::ptr::without_provenance_mut(self.0 as usize)
    }
}

impl<S: Sys> Uvm<S> {
    /// Prefetches in the order of `stream`; see [`Uvm::prefetch`].
    ///
    /// # Safety
    /// `stream` is a stream of the current context, or a special one.
    pub unsafe fn prefetch_async(&self, range: Range, place: Place, stream: Stream) -> Result<()> {
        let range = range.grown()?;
        if range.length == 0 {
            return Ok(());
        }
        self.not_forked()?;
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        let device = ordinal(cuda, place)?;
        // SAFETY: by our contract.
        unsafe {
            // CUDA documents no node for a prefetch, so the call may break the capture.
            cuda.not_captured(stream)?;
            cuda.prefetch(range.base, range.length, device, stream)
        }
    }

    /// The first error of a discard that ran in a stream since this was last asked.
    pub fn take_stream_error(&self) -> Result<()> {
        let code = self.stream_error.swap(0, Ordering::Relaxed);
        Error::from_code(code).map_or(Ok(()), Err)
    }

    fn run(&self, ranges: &[Range], mode: Mode) {
        let done = match self.backend() {
            // SAFETY: who enqueued it has promised that for this point of the stream.
            Backend::UvmRust | Backend::Native => unsafe {
                self.discard_batch(ranges, mode, &mut Outcome::default())
            },
            // The descriptor has gone meanwhile, and CUDA must not be called here.
            Backend::Cuda | Backend::None => Err(Error::NotSupported),
        };
        if let Err(error) = done {
            self.failed_in_stream(error);
        }
    }

    fn failed_in_stream(&self, error: Error) {
        let (first, any) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self
            .stream_error
            .compare_exchange(0, error.code(), first, any);
    }
}

impl Uvm {
    /// Discards in the order of `stream`: when all before it is done, and before
    /// anything after it starts. What is wrong with a range itself may be told only
    /// by [`Uvm::take_stream_error`]. Returns at once, having enqueued all, or the
    /// first ones where it fails.
    ///
    /// While `stream` is being captured, the discard becomes a node of the graph: it is
    /// done at each launch, of the same ranges.
    ///
    /// # Errors
    /// [`Error::Capture`]: `stream` is being captured, and it does not become a node:
    /// the backend is [`Backend::Cuda`], or CUDA is older than 11.3. Or it is the legacy
    /// default stream, and another's capture forbids its use. Nothing has changed.
    ///
    /// # Safety
    /// As for [`Uvm::discard`], in the order of the stream, and at each launch of a
    /// graph; and `stream` is a stream of the current context, or a special one. No other
    /// thread begins or ends a capture of it meanwhile.
    pub unsafe fn discard_async(
        &'static self,
        ranges: &[Range],
        mode: Mode,
        stream: Stream,
    ) -> Result<()> {
        let backend = self.backend();
        if backend == Backend::None {
            return Err(Error::NotSupported);
        }
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        // So that the host function need not ask, whatever descriptor there is by then.
        self.cuda_is_ready();
        // SAFETY: the stream, and what is done in its order, by our contract.
        unsafe {
            let graph = match broken::CAPTURE {
                true => None,
                false => cuda.captured_into(stream)?,
            };
            match (backend, graph) {
                (Backend::Cuda, Some(_)) => Err(Error::Capture),
                (Backend::Cuda, None) => {
                    let mut outcome = Outcome::default();
                    self.cuda_discard(ranges, stream, &mut outcome)
                        .map_err(|error| half_way(&ranges[..outcome.done], error))
                }
                (_, Some(graph)) => self.record(cuda, ranges, mode, stream, graph),
                (_, None) => self.enqueue_all(cuda, ranges, mode, stream),
            }
        }
    }

    /// # Safety
    /// As for [`Uvm::discard_async`].
    unsafe fn enqueue_all(
        &'static self,
        cuda: &Cuda,
        ranges: &[Range],
        mode: Mode,
        stream: Stream,
    ) -> Result<()> {
        for (i, range) in ranges.iter().enumerate() {
            let range = range.shrunk()?;
            if range.length == 0 {
                continue;
            }
            let job = Job {
                uvm: self,
                range,
                mode,
            };
            let queued = match JOBS.put(job) {
                // SAFETY: the data is a number, good for ever; the stream by our contract.
                Some(tag) => unsafe { cuda.host_func(stream, on_stream, tag.data()) }
                    // CUDA has not taken it.
                    .inspect_err(|_| {
                        let _unused = JOBS.take(tag);
                    }),
                None => Err(Error::NoMemory),
            };
            if queued.is_err() {
                return queued.map_err(|error| half_way(&ranges[..i], error));
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Uvm::discard_async`]; `stream` is being captured into `graph`.
    unsafe fn record(
        &'static self,
        cuda: &Cuda,
        ranges: &[Range],
        mode: Mode,
        stream: Stream,
        graph: Graph,
    ) -> Result<()> {
        // What is wrong with the ranges is told before the graph has changed.
        let shrunk: Result<Vec<_>> = ranges.iter().map(|range| range.shrunk()).collect();
        let ranges: Box<[_]> = shrunk?.into_iter().filter(|r| r.length != 0).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let recorded = Box::into_raw(Box::new(Recorded {
            uvm: self,
            ranges,
            mode,
        }));
        // SAFETY: the graph by our contract; `forget` is for what Box::into_raw gave.
        if let Err(error) = unsafe { cuda.give_to_graph(graph, recorded.cast(), forget) } {
            // SAFETY: the graph has not taken it.
            drop(unsafe { Box::from_raw(recorded) });
            return Err(error);
        }
        // SAFETY: the graph owns the data for as long as it can call the function; the stream
        // by our contract. If this fails, the graph frees the data with itself.
        unsafe { cuda.host_func(stream, on_launch, recorded.cast()) }
    }
}

/// The host function. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn on_stream(tag: *mut c_void) {
    match JOBS.take(Tag(tag.addr() as u64)) {
        Some(job) => job.uvm.run(&[job.range], job.mode),
        // See above: launched again. Whose it was is not known any more.
        None => Uvm::process().failed_in_stream(Error::Capture),
    }
}

/// A discard that a graph does. Only read, once the graph has it.
struct Recorded {
    uvm: &'static Uvm,
    ranges: Box<[Range]>,
    mode: Mode,
}

/// The host function of a node. It may run many times, and, in copies of the graph, at
/// the same time in several threads. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn on_launch(recorded: *mut c_void) {
    // SAFETY: from `record`; the graph keeps it meanwhile, and nobody writes to it.
    let recorded = unsafe { &*recorded.cast_const().cast::<Recorded>() };
    recorded.uvm.run(&recorded.ranges, recorded.mode);
}

/// The destructor that the graph calls. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn forget(recorded: *mut c_void) {
    // SAFETY: from Box::into_raw in `record`; CUDA calls once, after the last launch.
    drop(unsafe { Box::from_raw(recorded.cast::<Recorded>()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test of the table, which is the process's.
    #[test]
    fn jobs_survive_a_full_table_and_give_their_slots_back() {
        let job = |n: u64| {
            JOBS.put(Job {
                uvm: Uvm::process(),
                range: Range { base: n, length: 1 },
                mode: Mode::Lazy,
            })
        };
        for _round in 0..2 {
            let jobs: Vec<_> = (0..3 * SLOTS as u64 + 3).map(job).collect();
            assert!(jobs.iter().all(Option::is_some));
            let taken = jobs.iter().map(|tag| JOBS.take(tag.unwrap()).unwrap());
            assert!(taken.enumerate().all(|(i, job)| job.range.base == i as u64));
            // Once, also when others are in their places.
            let again: Vec<_> = (0..3 * SLOTS as u64).map(job).collect();
            assert!(jobs.iter().all(|tag| JOBS.take(tag.unwrap()).is_none()));
            assert!(again
                .iter()
                .all(|tag| JOBS.take(tag.unwrap()).is_some() && !jobs.contains(tag)));
        }
    }
}
