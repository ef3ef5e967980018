// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Prefetches that are done when the call returns, alone and after a discard.

use super::{all_fit, ordinal, Mode, Outcome, Uvm};
use crate::cuda::{self, Cuda};
use crate::sys::Sys;
use crate::{broken, Error, Place, Range, Result};

impl<S: Sys> Uvm<S> {
    /// Discards the contents of several ranges, and brings their pages to `place`, where they
    /// are to be written: nothing is copied, and no access faults. Returns when it is done. A
    /// page that a range covers in part comes with its contents.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a range goes over the end of the address space, and
    /// [`Error::NotSupported`]: nobody discards; nothing has changed. After other errors some
    /// may be lazily discarded: prefetch all of them before they are used.
    ///
    /// # Safety
    /// As for [`Uvm::discard`] with [`Mode::Eager`], for each range.
    pub unsafe fn discard_and_prefetch_batch(&self, ranges: &[Range], place: Place) -> Result<()> {
        all_fit(ranges, Range::grown)?;
        let mut outcome = Outcome::default();
        // SAFETY: by our contract; the prefetch makes them usable again.
        match unsafe { self.discard_batch(ranges, Mode::Lazy, &mut outcome) } {
            Err(Error::NotSupported) => Err(Error::NotSupported),
            // Where the discard failed half-way, the first ranges still need it.
            discarded => discarded.and(self.prefetch_batch(ranges, place)),
        }
    }

    /// [`Uvm::discard_and_prefetch_batch`] of one range.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn discard_and_prefetch(&self, range: Range, place: Place) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.discard_and_prefetch_batch(&[range], place) }
    }

    /// Brings all pages that a range touches to `place`, and makes memory that was
    /// lazily discarded usable again. Returns when it is done.
    ///
    /// Needs no driver with discard, only UVM (found as for discard) or CUDA.
    ///
    /// # Errors
    /// As [`Uvm::prefetch_batch`].
    pub fn prefetch(&self, range: Range, place: Place) -> Result<()> {
        self.prefetch_batch(&[range], place)
    }

    /// [`Uvm::prefetch`] of several ranges.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a range goes over the end of the address space, and nothing has
    /// changed. Another error is that of the first range that did not come; the others did.
    pub fn prefetch_batch(&self, ranges: &[Range], place: Place) -> Result<()> {
        if all_fit(ranges, Range::grown)? == 0 {
            return Ok(());
        }
        let Some(fd) = self.uvm_fd() else {
            self.not_forked()?;
            return self.prefetch_by_cuda(ranges, place);
        };
        match (self.migrate_all(fd, ranges, place), self.sys.cuda()) {
            // Of a part of a GPU (MIG), CUDA tells the compute instance's UUID. No document says
            // by which one UVM knows it.
            (Err(Error::NoDevice), Some(cuda)) if is_part(cuda, place) => {
                self.prefetch_by_cuda(ranges, place)
            }
            (done, _) => done,
        }
    }

    /// Prefetches in a stream of the thread's own, and waits.
    fn prefetch_by_cuda(&self, ranges: &[Range], place: Place) -> Result<()> {
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        let device = ordinal(cuda, place)?;
        // SAFETY: the per-thread stream is always there.
        unsafe {
            cuda.not_captured(cuda::STREAM_PER_THREAD)?;
            let queued = cuda.prefetch_all(ranges, device, cuda::STREAM_PER_THREAD);
            // Also after an error: those before it are on their way.
            cuda.synchronize(cuda::STREAM_PER_THREAD).and(queued)
        }
    }

    /// Prefetches all ranges, which are known to fit, through a descriptor of UVM. Calls nothing
    /// of CUDA.
    ///
    /// # Errors
    /// That of the first range that did not come: where memory is lazily discarded, the others
    /// are prefetched all the more.
    pub(crate) fn migrate_all(&self, fd: i32, ranges: &[Range], place: Place) -> Result<()> {
        let few = if broken::BATCH { 1 } else { ranges.len() };
        let mut first = Ok(());
        for range in ranges.iter().take(few) {
            let one = range.grown().and_then(|range| match range.length {
                0 => Ok(()),
                _ => self.migrate(fd, range, place),
            });
            first = first.and(one);
        }
        first
    }
}

/// Whether a place is a part of a GPU (MIG).
pub(crate) fn is_part(cuda: &Cuda, place: Place) -> bool {
    ordinal(cuda, place).is_ok_and(|device| cuda.is_part(device))
}
