// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discards, prefetches, and both, in the order of a CUDA stream.
//!
//! CUDA 13 has calls for all three, and every CUDA prefetches: where these serve, they are used.
//! Else a host function does it by UVM's ioctls, when the work before it in the stream is done:
//! one for each call, however many ranges it has ([`host`]).
//!
//! | | discard | prefetch | discard and prefetch |
//! |---|---|---|---|
//! | uvm-rust's driver | host function | CUDA; host function after lazy discards | host function |
//! | NVIDIA's | host function | the same | CUDA 13, but not in the legacy stream; else as above |
//! | no UVM to be found | CUDA 13's discard and prefetch, to the stream's GPU | CUDA | CUDA 13 |
//! | in a capture | host function | host function | host function |
//!
//! The host function that does both sees whether the prefetch has failed, and ends the lazy discard then. CUDA
//! tells nobody of a prefetch that fails after its call, so that one which only CUDA can do, to a part
//! of a GPU (MIG), comes behind an eager discard.
//!
//! CUDA promises no more than that memory "may be migrated" by its prefetch (CUDA Programming Guide, Data
//! Prefetching), and "This operation can be undone [...] by either writing to it or prefetching it" only of its own
//! discard, which a write ends as well (CUDA Driver API, cuMemDiscardBatchAsync). So a host function prefetches once
//! this copy of the library has discarded lazily without a prefetch in the same call. It sees whether that has
//! failed, and brings the memory to the host then, which ends the lazy discard and keeps what else is there. A copy
//! that discards lazily nowhere has CUDA's prefetch, and knows nothing of what others have discarded.
//!
//! `cuMemDiscardBatchAsync`, CUDA 13's discard alone, is called by nobody: a GPU loses
//! what was written behind it in a stream (`cuda::batches`).
//!
//! While a stream is being captured, the host function becomes a node of the graph. CUDA's own
//! calls do not: among the types of nodes (CUDA Driver API, CUgraphNodeType) there is none for
//! them. They would break the capture: "a small number of APIs that enqueue asynchronous
//! operations into streams are not currently supported in graphs and will return an error if
//! called with a stream which is being captured" (CUDA Programming Guide, Prohibited and
//! Unhandled Operations). What a graph cannot do is refused instead.

use core::ffi::c_int;

use crate::backend::{all_fit, behind_a_discard, half_way, is_part, ordinal, Fit};
use crate::cuda::{is_legacy, Cuda, Stream};
use crate::sys::Sys;
use crate::{broken, Backend, Error, Mode, Outcome, Place, Range, Result, Uvm};

mod host;

/// What is to be done to ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Discard(Mode),
    Prefetch(Place),
    DiscardAndPrefetch(Place),
}

impl Task {
    /// Whereto, if it brings memory to somewhere.
    fn place(self) -> Option<Place> {
        match self {
            Self::Discard(_) => None,
            Self::Prefetch(place) | Self::DiscardAndPrefetch(place) => Some(place),
        }
    }

    /// The task as it is done on the current device. The prefetch behind a discard is CUDA's on a part of a
    /// GPU (MIG), which tells nobody that it has failed: so the discard is not lazy there. CUDA's own is none.
    fn on(self, cuda: &Cuda, backend: Backend) -> Self {
        let part = || (cuda.current_device()).is_ok_and(|device| cuda.is_part(device));
        match self {
            Self::Discard(Mode::Lazy) if backend == Backend::Cuda || part() => {
                Self::Discard(Mode::Eager)
            }
            other => other,
        }
    }

    /// How ranges are made to fit pages or blocks for it. (Of both, the prefetch touches more.)
    fn fit(self) -> Fit {
        match self {
            Self::Discard(mode) => mode.fit(),
            Self::Prefetch(_) | Self::DiscardAndPrefetch(_) => Range::grown,
        }
    }
}

impl Uvm {
    /// Discards in the order of `stream`: when all before it is done, and before
    /// anything after it starts. What is wrong with the memory itself may be told only
    /// by [`Uvm::take_stream_error`]. Returns at once.
    ///
    /// While `stream` is being captured, the discard becomes a node of the graph: it is
    /// done at each launch, of the same ranges.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a range goes over the end of the address space, or there is no such
    /// stream; [`Error::NotSupported`]: nobody discards. Nothing has changed.
    ///
    /// [`Error::Capture`]: `stream` is being captured, and it does not become a node:
    /// the backend is [`Backend::Cuda`], or CUDA is older than 11.3, or the graph is the body of a
    /// conditional node, which has no host functions. Or it is the legacy
    /// default stream, and another's capture forbids its use. Nothing has changed.
    ///
    /// After any other error, the first ranges may have been discarded, or be about to be.
    ///
    /// # Safety
    /// As for [`Uvm::discard`], in the order of the stream, and at each launch of a
    /// graph; and `stream` is a stream, or a special one of the current context. No other
    /// thread begins or ends a capture of it meanwhile.
    pub unsafe fn discard_async(
        &'static self,
        ranges: &[Range],
        mode: Mode,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: by our contract.
        unsafe { self.in_stream(ranges, Task::Discard(mode), stream) }
    }

    /// Prefetches several ranges in the order of `stream`; see [`Uvm::prefetch`]. Returns at once.
    ///
    /// While `stream` is being captured, the prefetch becomes a node of the graph: it is done at
    /// each launch.
    ///
    /// # Errors
    /// [`Error::Invalid`], as for [`Uvm::discard_async`]; [`Error::NoDevice`]: CUDA knows no such
    /// GPU; [`Error::NotSupported`]: there is no CUDA. Nothing has changed.
    ///
    /// [`Error::Capture`]: as for [`Uvm::discard_async`]; it does not become a node if UVM's
    /// descriptor is not found, if the GPU is a part of one (MIG), or before CUDA 11.3.
    ///
    /// After any other error, the first ranges are on their way.
    ///
    /// After a lazy discard, wherever it was, one that cannot be done when the stream comes there is told by
    /// [`Uvm::take_stream_error`]; what was lazily discarded is brought to the host then, so that a write is kept.
    /// Before, nobody is told.
    ///
    /// # Safety
    /// `stream` is a stream, or a special one of the current context. No other thread begins or
    /// ends a capture of it meanwhile. No discard of the memory comes at the same time.
    pub unsafe fn prefetch_batch_async(
        &'static self,
        ranges: &[Range],
        place: Place,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: by our contract.
        unsafe { self.in_stream(ranges, Task::Prefetch(place), stream) }
    }

    /// [`Uvm::prefetch_batch_async`] of one range.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn prefetch_async(
        &'static self,
        range: Range,
        place: Place,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.prefetch_batch_async(&[range], place, stream) }
    }

    /// Discards the contents of several ranges and brings their pages to `place`, in the order of
    /// `stream`: what comes behind in the stream may write them, without a fault. Pages at the
    /// ends of a range that it covers in part come with their contents. Returns at once.
    ///
    /// # Errors
    /// Those of [`Uvm::discard_async`] and [`Uvm::prefetch_batch_async`]. With
    /// [`Error::Invalid`], [`Error::NotSupported`], [`Error::NoDevice`] and [`Error::Capture`]
    /// nothing has changed. After any other, and after an error that is told by
    /// [`Uvm::take_stream_error`], the contents are gone. What cannot be prefetched is discarded again
    /// there, [`Mode::Eager`], so that what comes behind in the stream is kept. Where that fails
    /// too, some ranges stay lazily discarded: prefetch all of them before they are used.
    ///
    /// Where UVM's descriptor is known, a GPU that this process does not use is an error that
    /// [`Uvm::take_stream_error`] tells. The prefetch is CUDA's to a part of a GPU (MIG), and where CUDA 13 does
    /// both. One that CUDA cannot do after all, nobody is told of; what comes behind in the stream is kept
    /// there too.
    ///
    /// # Safety
    /// As for [`Uvm::discard_async`] with [`Mode::Eager`].
    pub unsafe fn discard_and_prefetch_batch_async(
        &'static self,
        ranges: &[Range],
        place: Place,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: by our contract.
        unsafe { self.in_stream(ranges, Task::DiscardAndPrefetch(place), stream) }
    }

    /// [`Uvm::discard_and_prefetch_batch_async`] of one range.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn discard_and_prefetch_async(
        &'static self,
        range: Range,
        place: Place,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.discard_and_prefetch_batch_async(&[range], place, stream) }
    }

    /// Looks at all that can be known to be wrong before anything is done, and then does it.
    ///
    /// # Safety
    /// As for [`Uvm::discard_async`] and [`Uvm::prefetch_batch_async`].
    unsafe fn in_stream(&'static self, ranges: &[Range], task: Task, stream: Stream) -> Result<()> {
        let pages = match task {
            Task::Discard(_) => Range::shrunk,
            task => task.fit(),
        };
        if all_fit(ranges, pages)? == 0 {
            // Nothing is needed for nothing.
            return Ok(());
        }
        let backend = self.backend();
        match task {
            Task::Prefetch(_) => self.not_forked()?,
            _ if backend == Backend::None => return Err(Error::NotSupported),
            _ => {}
        }
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        // So that the host function need not ask, whatever descriptor there is by then.
        self.cuda_is_ready();
        let device = match task.place() {
            Some(place) => ordinal(cuda, place)?,
            None => crate::cuda::DEVICE_CPU,
        };
        // SAFETY: the stream, and what is done in its order, by our contract.
        unsafe {
            cuda.in_context_of(stream, || {
                let task = task.on(cuda, backend);
                if all_fit(ranges, task.fit())? == 0 {
                    return Ok(());
                }
                if task == Task::Discard(Mode::Lazy) {
                    // Before any prefetch of it can be asked for.
                    self.is_lazy();
                }
                let graph = match broken::CAPTURE {
                    true => None,
                    false => cuda.captured_into(stream)?,
                };
                match graph {
                    Some(_) if !self.is_by_ioctls(cuda, task, backend) => Err(Error::Capture),
                    Some(graph) => self.record(cuda, ranges, task, stream, graph),
                    None => self.enqueue(cuda, ranges, task, backend, device, stream),
                }
            })
        }
    }

    /// Whether a host function can do it, by ioctls alone.
    fn is_by_ioctls(&self, cuda: &Cuda, task: Task, backend: Backend) -> bool {
        let discards = matches!(backend, Backend::UvmRust | Backend::Native);
        let comes = |place| self.uvm_fd().is_some() && !is_part(cuda, place);
        match task {
            Task::Discard(_) => discards,
            Task::Prefetch(place) => comes(place),
            Task::DiscardAndPrefetch(place) => discards && comes(place),
        }
    }

    /// Prefetches by CUDA's own call where nobody needs to know whether that is done. What may be lazily
    /// discarded, a host function prefetches; or, to a part of a GPU, which only CUDA can do, first to the host.
    ///
    /// # Safety
    /// As for [`Uvm::enqueue`].
    unsafe fn prefetch_later(
        &'static self,
        cuda: &Cuda,
        ranges: &[Range],
        task: Task,
        device: c_int,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: by our contract.
        unsafe {
            if self.may_be_lazy() && self.uvm_fd().is_some() {
                if self.is_by_ioctls(cuda, task, self.backend()) {
                    return self.call_later(cuda, ranges, task, stream);
                }
                self.call_later(cuda, ranges, Task::Prefetch(Place::Host), stream)?;
            }
            cuda.prefetch_all(ranges, device, stream)
        }
    }

    /// # Safety
    /// As for [`Uvm::in_stream`]; `stream` is not being captured.
    unsafe fn enqueue(
        &'static self,
        cuda: &Cuda,
        ranges: &[Range],
        task: Task,
        backend: Backend,
        device: c_int,
        stream: Stream,
    ) -> Result<()> {
        let mut outcome = Outcome::default();
        let alone = matches!(task, Task::Discard(_));
        let cuda_discards = match backend {
            Backend::Cuda => true,
            Backend::Native => {
                let serves = !alone || (broken::DISCARD && task != Task::Discard(Mode::Lazy));
                cuda.can_discard() && serves && !is_legacy(stream)
            }
            Backend::UvmRust | Backend::None => false,
        };
        // SAFETY: by our contract.
        let done = unsafe {
            match task {
                Task::Prefetch(_) => {
                    return self.prefetch_later(cuda, ranges, task, device, stream)
                }
                Task::Discard(_) if cuda_discards => {
                    cuda.discard_all(ranges, None, stream, &mut outcome)
                }
                Task::DiscardAndPrefetch(_) if cuda_discards => {
                    cuda.discard_and_prefetch_all(ranges, device, stream, &mut outcome)
                }
                _ => Err(Error::NotSupported),
            }
        };
        match done.map_err(|error| half_way(&ranges[..outcome.done], error)) {
            // CUDA's call refuses a system in which it is not for all devices.
            Err(Error::NotSupported) if backend != Backend::Cuda => {}
            done => return done,
        }
        // SAFETY: by our contract.
        unsafe {
            match task {
                Task::DiscardAndPrefetch(_) if !self.is_by_ioctls(cuda, task, backend) => {
                    // A prefetch that fails later is told to nobody, so it has nothing to end.
                    self.call_later(cuda, ranges, Task::Discard(Mode::Eager), stream)?;
                    let prefetched = cuda.prefetch_all(ranges, device, stream);
                    prefetched.map_err(behind_a_discard)
                }
                task => self.call_later(cuda, ranges, task, stream),
            }
        }
    }
}
