// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The host functions: what a stream does by ioctls when it comes there.
//!
//! A host function gets one word, which names a [`Job`] in a table, so that no memory is
//! allocated while that has room ([`crate::jobs`]). It runs once, and gives the job back. If
//! another thread's capture has made it a node of a graph, which nobody may, later launches
//! find no job and say so.
//!
//! While a stream is being captured, the host function becomes a node of a graph,
//! which runs any number of times. Its pointer is to a [`Recorded`], which the graph
//! owns for as long as it, or an executable graph made of it, may use it ("CUDA User
//! Objects" in the CUDA Programming Guide).

use core::ffi::c_void;
use core::mem::MaybeUninit;

use super::Task;
use crate::cuda::{Cuda, Graph, Stream};
use crate::jobs::{Slot, Table, Tag};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};
use crate::sys::Sys;
use crate::{Backend, Error, Mode, Outcome, Place, Range, Result, Uvm};

/// What a stream will do.
struct Job {
    uvm: &'static Uvm,
    task: Task,
    ranges: Ranges,
}

/// The ranges of a job that need no memory.
const FEW: usize = 8;

/// The ranges of a job.
enum Ranges {
    /// The first ones, so many.
    Few([Range; FEW], usize),
    Many(Box<[Range]>),
}

impl Ranges {
    /// Those of `ranges` that a task has something to do with.
    fn of(ranges: &[Range], task: Task) -> Result<Self> {
        let mut few = [Range::default(); FEW];
        let mut count = 0;
        for range in ranges {
            let Some(range) = for_host(*range, task)? else {
                continue;
            };
            if count == FEW {
                return Ok(Self::Many(all_for_host(ranges, task)?));
            }
            few[count] = range;
            count += 1;
        }
        Ok(Self::Few(few, count))
    }

    fn as_slice(&self) -> &[Range] {
        match self {
            Self::Few(ranges, count) => &ranges[..*count],
            Self::Many(ranges) => ranges,
        }
    }
}

/// A range as the host function is given it, if there is something to be done with it: fit, so
/// that a batch of discards is one call; but as it is where a prefetch takes more of it than the
/// discard.
fn for_host(range: Range, task: Task) -> Result<Option<Range>> {
    let fit = task.fit()(range)?;
    let given = match task {
        Task::DiscardAndPrefetch(_) => range,
        _ => fit,
    };
    Ok((fit.length != 0).then_some(given))
}

fn all_for_host(ranges: &[Range], task: Task) -> Result<Box<[Range]>> {
    let kept = ranges
        .iter()
        .map(|range| for_host(*range, task).transpose());
    kept.flatten().collect()
}

/// Jobs under way that need no memory. For more at once the table grows. Miri, under which the
/// test that fills three tables takes a quarter of an hour with as many, has fewer.
const SLOTS: usize = if cfg!(miri) { 16 } else { 256 };

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
    /// The word that a host function gets.
    fn data(self) -> *mut c_void {
        core::ptr::without_provenance_mut(self.0 as usize)
    }
}

impl<S: Sys> Uvm<S> {
    /// The first error of what was done in a stream since this was last asked.
    pub fn take_stream_error(&self) -> Result<()> {
        let code = self.stream_error.swap(0, Ordering::Relaxed);
        Error::from_code(code).map_or(Ok(()), Err)
    }

    /// How many discards have failed so far in the order of streams, all together: what they were of
    /// may be lazily discarded. That is so after [`Error::NotSupported`] too, where they were before.
    ///
    /// A host function may ask, for discards that come before it in its stream.
    pub fn failed_discards(&self) -> u64 {
        self.failed_discards.load(Ordering::Relaxed)
    }

    /// How many ranges host functions could not prefetch so far, but for those that are no managed memory. Those of
    /// CUDA's own prefetches nobody knows.
    pub fn failed_prefetches(&self) -> u64 {
        self.failed_prefetches.load(Ordering::Relaxed)
    }

    /// Does it now, and calls nothing of CUDA, as a host function must not.
    fn run(&self, ranges: &[Range], task: Task) {
        let done = match task {
            Task::Discard(mode) => self.discard_by_ioctl(ranges, mode),
            Task::Prefetch(place) => {
                self.prefetch_by_ioctl(ranges, place, |fd, range| self.bring_home(fd, range))
            }
            Task::DiscardAndPrefetch(place) => {
                let discarded = self.discard_by_ioctl(ranges, Mode::Lazy);
                // The prefetch comes also where the discard has failed half-way.
                let prefetched = self.prefetch_by_ioctl(ranges, place, |_, _| ());
                if prefetched.is_err() && discarded != Err(Error::NotSupported) {
                    // What the stream writes next would be lost.
                    let _ = self.counted(self.end_lazy(ranges));
                }
                discarded.and(prefetched)
            }
        };
        if let Err(error) = done {
            self.failed_in_stream(error);
        }
    }

    fn discard_by_ioctl(&self, ranges: &[Range], mode: Mode) -> Result<()> {
        self.counted(match self.backend() {
            // SAFETY: who enqueued it has promised that for this point of the stream.
            Backend::UvmRust | Backend::Native => unsafe {
                self.discard_for_now(ranges, mode, &mut Outcome::default())
            },
            // The descriptor has gone meanwhile, and CUDA must not be called here.
            Backend::Cuda | Backend::None => Err(Error::NotSupported),
        })
    }

    /// The result of a discard, which [`Uvm::failed_discards`] counts.
    fn counted(&self, done: Result<()>) -> Result<()> {
        done.inspect_err(|_| {
            self.failed_discards.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Calls `failed` with UVM's descriptor for each range that did not come, but for what is no managed memory:
    /// a migration is of no use there, and no discard either.
    fn prefetch_by_ioctl(
        &self,
        ranges: &[Range],
        place: Place,
        failed: impl Fn(i32, Range),
    ) -> Result<()> {
        let count = |by: usize| {
            self.failed_prefetches
                .fetch_add(by as u64, Ordering::Relaxed)
        };
        let Some(fd) = self.uvm_fd() else {
            count(ranges.len());
            return Err(Error::NotSupported);
        };
        self.migrate_each(fd, ranges, place, |range, why| {
            if why != Error::NotManaged {
                count(1);
                failed(fd, range);
            }
        })
    }

    /// Ends a lazy discard whose prefetch has failed, of memory that may also hold data: the host may
    /// have room for it. Where it has not, nobody can do more, and the error is told in any case.
    fn bring_home(&self, fd: i32, range: Range) {
        if self.may_be_lazy() {
            let _ = self.migrate_all(fd, &[range], Place::Host);
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
    /// Has a task done when the stream comes there: all of it, or, after an error, nothing.
    ///
    /// # Safety
    /// As for [`Uvm::in_stream`]; `stream` is not being captured.
    pub(super) unsafe fn call_later(
        &'static self,
        cuda: &Cuda,
        ranges: &[Range],
        task: Task,
        stream: Stream,
    ) -> Result<()> {
        let ranges = Ranges::of(ranges, task)?;
        if ranges.as_slice().is_empty() {
            return Ok(());
        }
        let job = Job {
            uvm: self,
            task,
            ranges,
        };
        let tag = JOBS.put(job).ok_or(Error::NoMemory)?;
        // SAFETY: the data is a number, good for ever; the stream by our contract.
        unsafe { cuda.host_func(stream, on_stream, tag.data()) }.inspect_err(|_| {
            // CUDA has not taken it.
            let _unused = JOBS.take(tag);
        })
    }

    /// Makes a task a node of a graph.
    ///
    /// # Safety
    /// As for [`Uvm::in_stream`]; `stream` is being captured into `graph`.
    pub(super) unsafe fn record(
        &'static self,
        cuda: &Cuda,
        ranges: &[Range],
        task: Task,
        stream: Stream,
        graph: Graph,
    ) -> Result<()> {
        let ranges = all_for_host(ranges, task)?;
        let recorded = Box::into_raw(Box::new(Recorded {
            uvm: self,
            task,
            ranges,
        }));
        // SAFETY: the graph by our contract; `forget` is for what Box::into_raw gave.
        if let Err(error) = unsafe { cuda.give_to_graph(graph, recorded.cast(), forget) } {
            // SAFETY: the graph has not taken it.
            drop(unsafe { Box::from_raw(recorded) });
            return Err(no_node(error));
        }
        // SAFETY: the graph owns the data for as long as it can call the function; the stream
        // by our contract. If this fails, the graph frees the data with itself.
        let added = unsafe { cuda.host_func(stream, on_launch, recorded.cast()) };
        added.map_err(no_node)
    }
}

/// What it means that CUDA refuses good arguments for a node: the body of a conditional node, for one,
/// has no host nodes.
fn no_node(error: Error) -> Error {
    match error {
        Error::NotSupported | Error::Invalid => Error::Capture,
        error => error,
    }
}

/// The host function. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn on_stream(tag: *mut c_void) {
    match JOBS.take(Tag(tag.addr() as u64)) {
        Some(job) => job.uvm.run(job.ranges.as_slice(), job.task),
        // See above: launched again. Whose it was is not known any more.
        None => Uvm::process().failed_in_stream(Error::Capture),
    }
}

/// What a graph does at each launch. Only read, once the graph has it.
///
/// An executable graph that is updated from this one keeps it too, also as a child. "If an executable graph or
/// child graph is updated with cudaGraphExecUpdate or cudaGraphExecChildGraphNodeSetParams, the references in
/// the new source graph are cloned" (CUDA Programming Guide, CUDA User Objects).
struct Recorded {
    uvm: &'static Uvm,
    task: Task,
    ranges: Box<[Range]>,
}

/// The host function of a node. It may run many times, and, in copies of the graph, at
/// the same time in several threads. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn on_launch(recorded: *mut c_void) {
    // SAFETY: from `record`; the graph keeps it meanwhile, and nobody writes to it.
    let recorded = unsafe { &*recorded.cast_const().cast::<Recorded>() };
    recorded.uvm.run(&recorded.ranges, recorded.task);
}

/// The destructor that the graph calls. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn forget(recorded: *mut c_void) {
    // SAFETY: from Box::into_raw in `record`; CUDA calls once, after the last launch.
    drop(unsafe { Box::from_raw(recorded.cast::<Recorded>()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn pages(count: u64) -> Vec<Range> {
        let page = |n| Range {
            base: n * PAGE,
            length: PAGE,
        };
        (1..=count).map(page).collect()
    }

    /// The only test of the table, which is the process's.
    #[test]
    fn jobs_survive_a_full_table_and_give_their_slots_back() {
        let task = Task::Discard(Mode::Lazy);
        let job = |n: u64| {
            JOBS.put(Job {
                uvm: Uvm::process(),
                task,
                ranges: Ranges::Few([Range { base: n, length: 1 }; FEW], 1),
            })
        };
        for _round in 0..2 {
            let jobs: Vec<_> = (0..3 * SLOTS as u64 + 3).map(job).collect();
            assert!(jobs.iter().all(Option::is_some));
            let taken = jobs.iter().map(|tag| JOBS.take(tag.unwrap()).unwrap());
            assert!(taken
                .enumerate()
                .all(|(i, job)| job.ranges.as_slice()[0].base == i as u64));
            // Once, also when others are in their places.
            let again: Vec<_> = (0..3 * SLOTS as u64).map(job).collect();
            assert!(jobs.iter().all(|tag| JOBS.take(tag.unwrap()).is_none()));
            assert!(again
                .iter()
                .all(|tag| JOBS.take(tag.unwrap()).is_some() && !jobs.contains(tag)));
        }
    }

    #[test]
    fn a_few_ranges_need_no_memory_and_many_are_all_kept() {
        let task = Task::Discard(Mode::Eager);
        for count in [0, 1, FEW as u64, FEW as u64 + 1, 100] {
            let mut given = pages(count);
            let kept = given.clone();
            // Those without a whole page are left out, wherever they are.
            for at in [0, given.len() / 2, given.len()] {
                given.insert(at, Range { base: 7, length: 9 });
            }
            let ranges = Ranges::of(&given, task).unwrap();
            assert_eq!(ranges.as_slice(), kept);
            let few = matches!(ranges, Ranges::Few(..));
            assert_eq!(few, count <= FEW as u64);
        }
    }

    #[test]
    fn a_prefetch_behind_a_discard_is_given_the_whole_range() {
        let ragged = Range {
            base: 5 * PAGE + 1,
            length: 9,
        };
        let task = Task::DiscardAndPrefetch(Place::Host);
        assert_eq!(Ranges::of(&[ragged], task).unwrap().as_slice(), [ragged]);
        let discard = Ranges::of(&[ragged], Task::Discard(Mode::Lazy)).unwrap();
        assert!(discard.as_slice().is_empty());
    }
}
