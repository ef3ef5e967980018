// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Prefetches that are done when the call returns, alone and after a discard.

use super::{all_fit, behind_a_discard, ordinal, Backend, Mode, Outcome, Uvm};
use crate::cuda::{self, Cuda};
use crate::sys::Sys;
use crate::{broken, Error, Place, Range, Result};

impl<S: Sys> Uvm<S> {
    /// Discards the contents of several ranges, and brings their pages to `place`, where they
    /// are to be written: nothing is copied, and no access faults. Returns when it is done. A
    /// page that a range covers in part comes with its contents.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a range goes over the end of the address space;
    /// [`Error::NotSupported`]: nobody discards; [`Error::NoDevice`]: CUDA, if it is loaded, knows no
    /// such GPU, which is not asked of it after [`Uvm::use_fd`]; nothing has changed. Where the prefetch fails, the
    /// ranges are discarded again, [`Mode::Eager`], or brought to the host. Where that fails too, some
    /// stay lazily discarded: after other errors prefetch all of them before they are used.
    ///
    /// # Safety
    /// As for [`Uvm::discard`] with [`Mode::Eager`], for each range.
    pub unsafe fn discard_and_prefetch_batch(&self, ranges: &[Range], place: Place) -> Result<()> {
        let any = all_fit(ranges, Range::grown)? != 0;
        // Who gave a descriptor may have a GPU there that CUDA is not to see.
        let by_cuda = !self.is_given();
        if any && by_cuda && self.backend() != Backend::None && self.is_nowhere(place) {
            return Err(Error::NoDevice);
        }
        // Nobody is told where CUDA's prefetch to a part of a GPU is not done.
        let to_part = any && self.sys.cuda().is_some_and(|cuda| is_part(cuda, place));
        let mode = if to_part { Mode::Eager } else { Mode::Lazy };
        let mut outcome = Outcome::default();
        // SAFETY: by our contract; the prefetch makes them usable again.
        match unsafe { self.discard_for_now(ranges, mode, &mut outcome) } {
            Err(Error::NotSupported) => Err(Error::NotSupported),
            // Where the discard failed half-way, the first ranges still need it.
            discarded => {
                let prefetched = self.prefetch_batch(ranges, place);
                if prefetched.is_err() {
                    // The caller is told of the prefetch in any case.
                    let _ = self.end_lazy(ranges);
                }
                discarded.and(prefetched.map_err(behind_a_discard))
            }
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
                if self.may_be_lazy() {
                    // CUDA's prefetch tells nobody that it is not done, and so ends no lazy discard for sure.
                    self.migrate_all(fd, ranges, Place::Host)?;
                }
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

    /// Whether CUDA is there and knows no such place. (UVM may not know one that CUDA knows.)
    fn is_nowhere(&self, place: Place) -> bool {
        let cuda = self.sys.cuda();
        cuda.is_some_and(|cuda| ordinal(cuda, place) == Err(Error::NoDevice))
    }

    /// Ends a lazy discard whose prefetch has failed. A write through a mapping that stays would not
    /// be noticed, and lost; the pages are unmapped, so that it faults. Calls nothing of CUDA.
    ///
    /// # Errors
    /// That of the first range that may stay lazily discarded.
    pub(crate) fn end_lazy(&self, ranges: &[Range]) -> Result<()> {
        if !matches!(self.backend(), Backend::UvmRust | Backend::Native) {
            // CUDA's discard is an eager one.
            return Ok(());
        }
        let (mut first, mut rest, mut left) = (Ok(()), ranges, false);
        while !rest.is_empty() {
            let mut outcome = Outcome::default();
            // SAFETY: who has discarded them before has promised that nobody needs the contents.
            let done = unsafe { self.discard_batch(rest, Mode::Eager, &mut outcome) };
            left |= outcome.blocks_skipped + outcome.blocks_partial != 0;
            first = first.and(done);
            rest = match done {
                // The others are not lost with the one that failed.
                Err(error @ (Error::NotManaged | Error::NoMemory | Error::Driver)) => {
                    if error != Error::NotManaged {
                        self.move_out(rest.get(outcome.done..=outcome.done).unwrap_or_default());
                    }
                    rest.get(outcome.done + 1..).unwrap_or_default()
                }
                _ => &[],
            };
        }
        let done = match left {
            true => first.and(self.end_lazy_in_part(ranges)),
            false => first,
        };
        done.inspect_err(|_| self.is_lazy())
    }

    /// Brings to the host what uvm-rust's discard cannot discard eagerly, since a migration ends a lazy
    /// discard too. Where the discard is NVIDIA's, with its driver or with ours, that is done already
    /// ([`Uvm::discard_batch`]).
    fn move_out(&self, ranges: &[Range]) {
        if let Ok(choice) = self.choice() {
            if choice.backend == Backend::UvmRust && !choice.native {
                // Where that fails too, the error asks the caller for it.
                let _ = self.migrate_all(choice.fd, ranges, Place::Host);
            }
        }
    }

    /// uvm-rust's driver splits no mapping of 2 MiB for an eager discard of a part of it, and has left
    /// it as it was. There only a migration ends a lazy discard, as it ends others.
    fn end_lazy_in_part(&self, ranges: &[Range]) -> Result<()> {
        let fd = self.uvm_fd().ok_or(Error::NotSupported)?;
        let mut first = Ok(());
        for range in ranges {
            for part in range.shrunk()?.in_part() {
                first = first.and(self.migrate_all(fd, &[part], Place::Host));
            }
        }
        first
    }

    /// Prefetches all ranges, which are known to fit, through a descriptor of UVM. Calls nothing
    /// of CUDA.
    ///
    /// # Errors
    /// That of the first range that did not come: where memory is lazily discarded, the others
    /// are prefetched all the more.
    pub(crate) fn migrate_all(&self, fd: i32, ranges: &[Range], place: Place) -> Result<()> {
        self.migrate_each(fd, ranges, place, |_, _| ())
    }

    /// [`Uvm::migrate_all`], which calls `failed` for each range that did not come, with its error.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn migrate_each(
        &self,
        fd: i32,
        ranges: &[Range],
        place: Place,
        failed: impl Fn(Range, Error),
    ) -> Result<()> {
        let few = if broken::BATCH { 1 } else { ranges.len() };
        let mut first = Ok(());
        for range in ranges.iter().take(few) {
            let one = range.grown().and_then(|range| match range.length {
                0 => Ok(()),
                _ => self.migrate(fd, range, place),
            });
            first = first.and(one.inspect_err(|why| failed(*range, *why)));
        }
        first
    }
}

/// Whether a place is a part of a GPU (MIG).
pub(crate) fn is_part(cuda: &Cuda, place: Place) -> bool {
    ordinal(cuda, place).is_ok_and(|device| cuda.is_part(device))
}
