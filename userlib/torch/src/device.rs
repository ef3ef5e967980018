// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the allocator needs of CUDA and of discard, so that tests can stand in.

use core::ffi::c_int;
use std::sync::OnceLock;

use uvmrust::cuda::{self, check, Context, Cuda, Stream};
use uvmrust::{Error, Mode, Place, Range, Result, Uvm};

use crate::broken;

/// A stream, by its handle as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub usize);

/// A stream of a device. The default streams of all devices have the same handle, so it
/// takes both to name one ("Each device has its own default stream": CUDA Programming
/// Guide, Stream and Event Behavior).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue {
    /// CUDA's number of the device.
    pub device: c_int,
    /// The handle of the stream, which may be a default stream's.
    pub stream: StreamId,
}

/// A point that a queue had come to: an event, which is there until it has passed, and its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The event, by its handle as a number.
    pub event: usize,
    /// The context, in the same way.
    pub context: usize,
}

/// What a stream is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// No capture: what is put into it runs.
    None,
    /// The capture of this number, which no other of the process has: what is put into it is
    /// recorded for later.
    Into(u64),
    /// What is put into it is recorded, or would break the capture of another stream, or its own
    /// capture is broken already; or CUDA does not tell which capture it is.
    Unknown,
}

/// The GPUs' memory calls, whichever of them is current. Those with a queue take effect
/// in its order.
pub trait Device {
    /// Managed memory, for use on a device.
    fn alloc(&self, length: u64, device: c_int) -> Result<u64>;
    /// How much is free on a device, and how much it has, in bytes.
    fn memory(&self, device: c_int) -> Result<(u64, u64)>;
    /// Waits until all is done that new work in the queue would come behind. Fails where it is being captured.
    fn drain(&self, queue: Queue) -> Result<()>;
    /// Waits for all that is now in any queue of a device. It breaks a capture that is under
    /// way there.
    fn drain_all(&self, device: c_int) -> Result<()>;
    /// Gives it back. Nothing uses it any more: CUDA promises no wait ("this API may
    /// perform implicit synchronization", `cuMemFree`).
    fn free(&self, base: u64, device: c_int);
    /// Discards lazily: must be prefetched before it is used.
    fn discard(&self, range: Range, queue: Queue) -> Result<()>;
    /// Makes it usable on the queue's device. What can only fail there when the queue comes to it is counted.
    fn prefetch(&self, range: Range, queue: Queue) -> Result<()>;
    /// How many prefetches have failed so far when their queues came to them, on all devices.
    fn failed_prefetches(&self) -> u64;
    /// Lets `queue` wait for all that is now in `other`.
    fn wait(&self, queue: Queue, other: Queue) -> Result<()>;
    /// Marks what is now in a queue.
    fn mark(&self, queue: Queue) -> Result<Mark>;
    /// Whether all that was marked is done, without a wait. A mark that has passed is not used
    /// again.
    fn passed(&self, mark: Mark) -> bool;
    /// Waits until all that was marked is done, and puts nothing into a queue for that. The mark is asked
    /// by nobody else meanwhile.
    fn reach(&self, mark: Mark) -> Result<()>;
    /// Which capture the queue is part of. An error that says nothing of captures counts as
    /// none: the calls that follow meet it too.
    fn capture(&self, queue: Queue) -> Capture;
    /// Whether what is put into the queue is recorded for later, not done, or would break
    /// the capture of another.
    fn capturing(&self, queue: Queue) -> bool {
        self.capture(queue) != Capture::None
    }
    /// The devices whose default streams may have work: those that somebody in the process uses.
    fn active(&self) -> Vec<c_int>;
}

/// The GPUs of this machine, by way of CUDA's driver library.
#[derive(Debug)]
pub struct CudaDevice {
    cuda: OnceLock<Cuda>,
    /// The primary contexts, PyTorch's own, by device, as they become known. Each is held
    /// from then on.
    contexts: [OnceLock<usize>; DEVICES],
}

/// Devices with a number from here on are not used.
pub(crate) const DEVICES: usize = 64;

impl Default for CudaDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl CudaDevice {
    /// CUDA is looked for at the first call; PyTorch has loaded it by then.
    pub const fn new() -> Self {
        Self {
            cuda: OnceLock::new(),
            contexts: [const { OnceLock::new() }; DEVICES],
        }
    }

    fn cuda(&self) -> Result<&Cuda> {
        match self.cuda.get() {
            Some(cuda) => Ok(cuda),
            None => {
                let found = Cuda::loaded().ok_or(Error::NotSupported)?;
                Ok(self.cuda.get_or_init(|| found))
            }
        }
    }
}

impl CudaDevice {
    fn context(&self, device: c_int) -> Result<Context> {
        let slot = usize::try_from(device).ok();
        let slot = slot.and_then(|device| self.contexts.get(device));
        let slot = slot.ok_or(Error::NoDevice)?;
        if let Some(&known) = slot.get() {
            return Ok(known as Context);
        }
        let retain = self.cuda()?.primary_retain().ok_or(Error::NotSupported)?;
        let mut context = core::ptr::null_mut();
        // SAFETY: the output is writable; CUDA checks the device.
        check(unsafe { retain(&mut context, device) })?;
        Ok(*slot.get_or_init(|| context as usize) as Context)
    }

    /// How many devices may be in use.
    fn count(&self) -> c_int {
        let mut count = 0;
        let call = self.cuda().ok().and_then(|cuda| cuda.device_count());
        // SAFETY: the output is writable and of the right type.
        let told = call.map(|call| check(unsafe { call(&mut count) }));
        let most = DEVICES as c_int;
        if matches!(told, Some(Ok(()))) {
            count.min(most)
        } else {
            most
        }
    }

    /// Whether somebody has made the primary context of a device.
    fn is_active(&self, device: c_int) -> bool {
        let state = self.cuda().ok().and_then(|cuda| cuda.primary_state());
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the outputs are writable; CUDA checks the device.
        let told = state.map(|call| check(unsafe { call(device, &mut flags, &mut active) }));
        matches!(told, Some(Ok(()))) && active != 0
    }

    /// Does something with a context current, and the thread's own afterwards.
    fn inside<T>(&self, context: Context, work: impl FnOnce(&Cuda) -> Result<T>) -> Result<T> {
        let cuda = self.cuda()?;
        if broken::DEVICE {
            return work(cuda);
        }
        let push = cuda.ctx_push().ok_or(Error::NotSupported)?;
        let pop = cuda.ctx_pop().ok_or(Error::NotSupported)?;
        // SAFETY: the context is one that is held, or that of a stream in use.
        check(unsafe { push(context) })?;
        let done = work(cuda);
        // SAFETY: the output is writable. The stack has what was pushed above.
        let _ = unsafe { pop(&mut core::ptr::null_mut()) };
        done
    }

    /// An event behind all that is now in a queue, and its context.
    fn event(&self, queue: Queue) -> Result<(Event<'_>, Context)> {
        let mut event = Event(core::ptr::null_mut(), self.cuda()?);
        let context = self.context_of(queue)?;
        self.inside(context, |cuda| {
            let create = cuda.event_create().ok_or(Error::NotSupported)?;
            let record = cuda.event_record().ok_or(Error::NotSupported)?;
            // SAFETY: the output is writable; the stream PyTorch's and, like the event, of
            // the context that is current.
            unsafe {
                check(create(&mut event.0, DISABLE_TIMING))?;
                check(record(event.0, queue.stream.handle()))
            }
        })?;
        Ok((event, context))
    }

    /// Does something with a device current.
    fn on<T>(&self, device: c_int, work: impl FnOnce(&Cuda) -> Result<T>) -> Result<T> {
        self.inside(self.context(device)?, work)
    }

    /// Does something in the order of a stream, whatever device is current: with the stream's
    /// own context current, or, for a default stream, with that of `device`, by CUDA's number.
    /// `None` is the device that is current.
    ///
    /// # Errors
    /// [`Error::NotSupported`]: CUDA is not loaded; [`Error::NoContext`]: no device is
    /// current; or what `work` gives.
    pub fn within<T>(
        &self,
        stream: StreamId,
        device: Option<c_int>,
        work: impl FnOnce(Stream) -> Result<T>,
    ) -> Result<T> {
        let device = match device {
            Some(device) => device,
            None => self.cuda()?.current_device()?,
        };
        let context = self.context_of(Queue { device, stream })?;
        self.inside(context, |_| work(stream.handle()))
    }

    /// The context of a queue: its stream's own, which may be of another device than was
    /// current when it was named, or the device's for a stream that is special.
    fn context_of(&self, queue: Queue) -> Result<Context> {
        if queue.stream.0 > SPECIAL {
            // SAFETY: the stream is PyTorch's.
            let context = unsafe { self.cuda()?.context_of(queue.stream.handle())? };
            if let Some(context) = context {
                return Ok(context);
            }
        }
        self.context(queue.device)
    }
}

/// The last of the handles that mean another stream in each context: null,
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const SPECIAL: usize = 2;

impl StreamId {
    /// The default stream that all threads share.
    pub const LEGACY: Self = Self(1);
    /// Each thread's own default stream: another one in each.
    pub const PER_THREAD: Self = Self(2);

    /// The stream whose order holds for this handle in whatever thread. What is put into the
    /// legacy stream comes behind all threads' work, and before what they do next. "The
    /// per-thread default stream is not a non-blocking stream and will synchronize with the
    /// legacy default stream if both are used in a program" (CUDA Driver API, Stream
    /// synchronization behavior).
    pub(crate) fn shared(self) -> Self {
        match self {
            Self::PER_THREAD => Self::LEGACY,
            other => other,
        }
    }

    /// Whether its handle means another stream on each device.
    pub(crate) fn is_special(self) -> bool {
        self.0 <= SPECIAL
    }

    fn handle(self) -> Stream {
        self.0 as Stream
    }
}

/// `CU_MEM_ATTACH_GLOBAL`: any stream on any device may use the memory.
const ATTACH_GLOBAL: u32 = 1;
// The streams in these calls are those that PyTorch gave with the memory, and
// that it keeps for as long as memory in them is in use.
impl Device for &CudaDevice {
    fn alloc(&self, length: u64, device: c_int) -> Result<u64> {
        let length = usize::try_from(length).map_err(|_| Error::NoMemory)?;
        self.on(device, |cuda| {
            let call = cuda.mem_alloc_managed().ok_or(Error::NotSupported)?;
            let mut base = 0;
            // SAFETY: the output is writable and of the right type.
            let code = cuda.unordered(|| unsafe { call(&mut base, length, ATTACH_GLOBAL) });
            // Of the arguments, only the length can be one that CUDA does not take.
            check(code).map_err(|error| match error {
                Error::Invalid => Error::NoMemory,
                other => other,
            })?;
            Ok(base)
        })
    }

    fn memory(&self, device: c_int) -> Result<(u64, u64)> {
        self.on(device, |cuda| {
            let call = cuda.mem_info().ok_or(Error::NotSupported)?;
            let (mut free, mut total) = (0, 0);
            // SAFETY: the outputs are writable and of the right type.
            check(cuda.unordered(|| unsafe { call(&mut free, &mut total) }))?;
            Ok((free as u64, total as u64))
        })
    }

    fn drain_all(&self, device: c_int) -> Result<()> {
        self.on(device, |cuda| {
            let call = cuda.ctx_synchronize().ok_or(Error::NotSupported)?;
            // A capture may begin on another device, which forbids the call in its mode.
            // SAFETY: takes nothing.
            check(cuda.unordered(|| unsafe { call() }))
        })
    }

    fn drain(&self, queue: Queue) -> Result<()> {
        self.on(queue.device, |cuda| {
            let stream = queue.stream.handle();
            // SAFETY: the stream is PyTorch's.
            unsafe {
                cuda.not_captured(stream)?;
                cuda.drain(stream)
            }
        })
    }

    fn free(&self, base: u64, device: c_int) {
        // There is nothing to do about an error.
        let _ = self.on(device, |cuda| {
            let call = cuda.mem_free().ok_or(Error::NotSupported)?;
            // SAFETY: from `alloc`, and no longer in use by the allocator's rules.
            check(cuda.unordered(|| unsafe { call(base) }))
        });
    }

    fn discard(&self, range: Range, queue: Queue) -> Result<()> {
        // SAFETY: PyTorch has freed the memory, so in the stream's order nobody uses
        // it; the allocator prefetches before it gives it out again.
        self.on(queue.device, |_| unsafe {
            Uvm::process().discard_async(&[range], Mode::Lazy, queue.stream.handle())
        })
    }

    /// By the library, which sees where a prefetch fails. CUDA's own tells nobody, and what is written behind
    /// one that it could not do would be lost, as the discard was lazy.
    fn prefetch(&self, range: Range, queue: Queue) -> Result<()> {
        self.on(queue.device, |cuda| {
            let place = Place::Gpu(cuda.uuid(queue.device)?);
            let stream = queue.stream.handle();
            // SAFETY: the stream is PyTorch's; the allocator's discards of the memory come before it there.
            unsafe { Uvm::process().prefetch_async(range, place, stream) }
        })
    }

    fn failed_prefetches(&self) -> u64 {
        Uvm::process().failed_prefetches()
    }

    fn wait(&self, queue: Queue, other: Queue) -> Result<()> {
        let (event, _) = self.event(other)?;
        self.on(queue.device, |cuda| {
            let wait = cuda.stream_wait_event().ok_or(Error::NotSupported)?;
            // SAFETY: the stream is PyTorch's; an event may be of another context.
            check(unsafe { wait(queue.stream.handle(), event.0, 0) })
        })
    }

    fn mark(&self, queue: Queue) -> Result<Mark> {
        self.cuda()?.event_query().ok_or(Error::NotSupported)?;
        let (event, context) = self.event(queue)?;
        let mark = Mark {
            event: event.0.expose_provenance(),
            context: context.expose_provenance(),
        };
        core::mem::forget(event);
        Ok(mark)
    }

    /// The mode of captures lets nobody ask in one, so the thread is in the relaxed one for that.
    fn passed(&self, mark: Mark) -> bool {
        let context = core::ptr::with_exposed_provenance_mut(mark.context);
        let event: cuda::Event = core::ptr::with_exposed_provenance_mut(mark.event);
        let passed = self.inside(context, |cuda| {
            let query = cuda.event_query().ok_or(Error::NotSupported)?;
            // SAFETY: the event is one of `mark`, which is destroyed only here.
            let code = cuda.unordered(|| unsafe { query(event) });
            let left = code == NOT_READY || check(code) == Err(Error::Capture);
            if !left {
                drop(Event(event, cuda));
            }
            Ok(!left)
        });
        passed.unwrap_or(false)
    }

    fn reach(&self, mark: Mark) -> Result<()> {
        let context = core::ptr::with_exposed_provenance_mut(mark.context);
        let event: cuda::Event = core::ptr::with_exposed_provenance_mut(mark.event);
        self.inside(context, |cuda| {
            let call = cuda.event_synchronize().ok_or(Error::NotSupported)?;
            // SAFETY: the event is one of `mark`, which only `passed` destroys, and nobody calls that
            // meanwhile.
            check(cuda.unordered(|| unsafe { call(event) }))
        })
    }

    fn capture(&self, queue: Queue) -> Capture {
        let capture = self.on(queue.device, |cuda| {
            // SAFETY: the stream is PyTorch's.
            unsafe { cuda.capture(queue.stream.handle()) }
        });
        match capture {
            Ok(Some((number, _))) => Capture::Into(number),
            Err(Error::Capture) => Capture::Unknown,
            Ok(None) | Err(_) => Capture::None,
        }
    }

    /// A default stream that has work is one of a context that is there. A context that is made
    /// later has no work from before.
    fn active(&self) -> Vec<c_int> {
        let active = |&device: &c_int| {
            let slot = self.contexts.get(device as usize);
            slot.is_some_and(|known| known.get().is_some()) || self.is_active(device)
        };
        (0..self.count()).filter(active).collect()
    }
}

/// `CU_EVENT_DISABLE_TIMING`: the event orders work and measures nothing.
const DISABLE_TIMING: u32 = 2;

/// `CUDA_ERROR_NOT_READY`: what an event stands behind is not done.
const NOT_READY: c_int = 600;

/// An event, or null.
struct Event<'a>(cuda::Event, &'a Cuda);

impl Drop for Event<'_> {
    fn drop(&mut self) {
        if let (false, Some(destroy)) = (self.0.is_null(), self.1.event_destroy()) {
            // SAFETY: ours, and not used any more; CUDA keeps what a wait needs.
            let _ = unsafe { destroy(self.0) };
        }
    }
}
