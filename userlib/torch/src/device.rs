// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What the allocator needs of CUDA and of discard, so that tests can stand in.

use core::ffi::c_int;
use std::sync::OnceLock;

use uvmrust::cuda::{check, Cuda, Stream};
use uvmrust::{Error, Mode, Range, Result, Uvm};

/// A stream, by its handle as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub usize);

/// A GPU's memory calls. Those with a stream take effect in its order.
pub trait Device {
    /// Managed memory.
    fn alloc(&self, length: usize) -> Result<u64>;
    /// Gives it back, after all that uses it.
    fn free(&self, base: u64);
    /// Discards lazily: must be prefetched before it is used.
    fn discard(&self, range: Range, stream: StreamId) -> Result<()>;
    /// Makes it usable on a GPU.
    fn prefetch(&self, range: Range, device: c_int, stream: StreamId) -> Result<()>;
    /// Lets `stream` wait for all that is now in `other`.
    fn wait(&self, stream: StreamId, other: StreamId) -> Result<()>;
    /// Whether what is put into the stream is recorded for later, not done.
    fn capturing(&self, stream: StreamId) -> bool;
}

/// The real one.
#[derive(Debug)]
pub struct CudaDevice {
    cuda: OnceLock<Cuda>,
}

impl CudaDevice {
    /// CUDA is looked for at the first call; PyTorch has loaded it by then.
    pub(crate) const fn new() -> Self {
        Self {
            cuda: OnceLock::new(),
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

impl StreamId {
    fn handle(self) -> Stream {
        self.0 as Stream
    }
}

/// `CU_MEM_ATTACH_GLOBAL`
const ATTACH_GLOBAL: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: u32 = 2;

// The streams in these calls are those that PyTorch gave with the memory, and
// that it keeps for as long as memory in them is in use.
impl Device for CudaDevice {
    fn alloc(&self, length: usize) -> Result<u64> {
        let call = self.cuda()?.mem_alloc_managed.ok_or(Error::NotSupported)?;
        let mut base = 0;
        // SAFETY: the output is writable and of the right type.
        check(unsafe { call(&mut base, length, ATTACH_GLOBAL) })?;
        Ok(base)
    }

    fn free(&self, base: u64) {
        if let Some(call) = self.cuda().ok().and_then(|cuda| cuda.mem_free) {
            // SAFETY: from `alloc`, and no longer in use by the allocator's rules.
            // There is nothing to do about an error.
            let _ = unsafe { call(base) };
        }
    }

    fn discard(&self, range: Range, stream: StreamId) -> Result<()> {
        // SAFETY: PyTorch has freed the memory, so in the stream's order nobody uses
        // it; the allocator prefetches before it gives it out again.
        unsafe { Uvm::process().discard_async(&[range], Mode::Lazy, stream.handle()) }
    }

    fn prefetch(&self, range: Range, device: c_int, stream: StreamId) -> Result<()> {
        // SAFETY: the stream is PyTorch's.
        unsafe {
            self.cuda()?
                .prefetch(range.base, range.length, device, stream.handle())
        }
    }

    fn wait(&self, stream: StreamId, other: StreamId) -> Result<()> {
        let cuda = self.cuda()?;
        let create = cuda.event_create.ok_or(Error::NotSupported)?;
        let record = cuda.event_record.ok_or(Error::NotSupported)?;
        let wait = cuda.stream_wait_event.ok_or(Error::NotSupported)?;
        let destroy = cuda.event_destroy.ok_or(Error::NotSupported)?;
        let mut event = core::ptr::null_mut();
        // SAFETY: outputs are writable, the streams PyTorch's, and the event is used
        // only between its creation and destruction; CUDA keeps what the wait needs.
        unsafe {
            check(create(&mut event, DISABLE_TIMING))?;
            let queued = check(record(event, other.handle()))
                .and_then(|()| check(wait(stream.handle(), event, 0)));
            let _ = destroy(event);
            queued
        }
    }

    fn capturing(&self, stream: StreamId) -> bool {
        let Some(call) = self.cuda().ok().and_then(|cuda| cuda.stream_is_capturing) else {
            return false;
        };
        let mut status = 0;
        // SAFETY: the output is writable, the stream PyTorch's. An error means that
        // another stream's capture forbids its use.
        unsafe { call(stream.handle(), &mut status) != 0 || status != 0 }
    }
}
