// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Discards in the order of a CUDA stream. CUDA 13 does it itself; with the ioctls,
//! a host function does it when the work before it in the stream is done.
//!
//! A host function gets one pointer. It points to a [`Job`], taken from a fixed
//! table, so that no memory is allocated; when the table is full, from the heap.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::ordinal;
use crate::cuda::Stream;
use crate::sys::Sys;
use crate::{Backend, Error, Mode, Outcome, Place, Range, Result, Uvm};

/// One discard that a stream will do.
struct Job {
    range: Range,
    mode: Mode,
    /// Its place in [`JOBS`]; `None`: on the heap.
    slot: Option<usize>,
}

/// Slots for jobs under way. More at once are on the heap.
const SLOTS: usize = 256;

/// A slot is owned by who has set `taken`, from `enqueue` to the end of `run`.
struct Slot {
    taken: AtomicBool,
    job: core::cell::UnsafeCell<core::mem::MaybeUninit<Job>>,
}

// SAFETY: `job` is accessed only by the owner, and ownership is handed over by
// acquire and release of `taken`, and by CUDA's enqueueing.
unsafe impl Sync for Slot {}

static JOBS: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        job: core::cell::UnsafeCell::new(core::mem::MaybeUninit::uninit()),
    }
}; SLOTS];

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
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        let device = ordinal(cuda, place)?;
        // SAFETY: by our contract.
        unsafe { cuda.prefetch(range.base, range.length, device, stream) }
    }

    /// The first error of a discard that ran in a stream since this was last asked.
    pub fn take_stream_error(&self) -> Result<()> {
        let code = self.stream_error.swap(0, Ordering::Relaxed);
        Error::from_code(code).map_or(Ok(()), Err)
    }

    fn run(&self, job: Job) {
        let done = match self.backend() {
            // SAFETY: who enqueued it has promised that for this point of the stream.
            Backend::UvmRust | Backend::Native => unsafe { self.discard(job.range, job.mode) },
            // The descriptor has gone meanwhile, and CUDA must not be called here.
            Backend::Cuda | Backend::None => Err(Error::NotSupported),
        };
        if let Err(error) = done {
            let _ = self.stream_error.compare_exchange(
                0,
                error.code(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

impl Uvm {
    /// Discards in the order of `stream`: when all before it is done, and before
    /// anything after it starts. What is wrong with a range itself may be told only
    /// by [`Uvm::take_stream_error`]. Returns at once, having enqueued all, or the
    /// first ones where it fails.
    ///
    /// # Safety
    /// As for [`Uvm::discard`], in the order of the stream; and `stream` is a stream
    /// of the current context, or a special one.
    pub unsafe fn discard_async(
        &'static self,
        ranges: &[Range],
        mode: Mode,
        stream: Stream,
    ) -> Result<()> {
        match self.backend() {
            Backend::None => Err(Error::NotSupported),
            // SAFETY: by our contract.
            Backend::Cuda => unsafe { self.cuda_discard(ranges, stream, &mut Outcome::default()) },
            Backend::UvmRust | Backend::Native => {
                let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
                for range in ranges {
                    let range = range.shrunk()?;
                    if range.length == 0 {
                        continue;
                    }
                    let job = enqueue(range, mode);
                    // SAFETY: the job lives until `on_stream` has run; the stream
                    // by our contract.
                    let queued = unsafe { cuda.host_func(stream, on_stream, job.cast()) };
                    if queued.is_err() {
                        // SAFETY: CUDA has not taken it, so it is still ours to take.
                        let _unused = unsafe { take(job) };
                        return queued;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The host function. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn on_stream(job: *mut c_void) {
    // SAFETY: from `enqueue`, and CUDA calls once.
    let job = unsafe { take(job.cast()) };
    Uvm::process().run(job);
}

/// Puts a job where it stays until [`take`].
fn enqueue(range: Range, mode: Mode) -> *mut Job {
    for (i, slot) in JOBS.iter().enumerate() {
        if !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire) {
            // SAFETY: we have just become the owner.
            let job = unsafe { &mut *slot.job.get() };
            return job.write(Job {
                range,
                mode,
                slot: Some(i),
            });
        }
    }
    Box::into_raw(Box::new(Job {
        range,
        mode,
        slot: None,
    }))
}

/// # Safety
/// `job` is from [`enqueue`] and taken once.
unsafe fn take(job: *mut Job) -> Job {
    // SAFETY: initialised by `enqueue`, and nobody else has it.
    match unsafe { (*job).slot } {
        Some(i) => {
            // SAFETY: as above; read once, then given up.
            let copy = unsafe { job.read() };
            JOBS[i].taken.store(false, Ordering::Release);
            copy
        }
        // SAFETY: this one is from Box::into_raw.
        None => *unsafe { Box::from_raw(job) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test of the table, which is the process's.
    #[test]
    fn jobs_survive_a_full_table_and_give_their_slots_back() {
        let job = |n: u64| enqueue(Range { base: n, length: 1 }, Mode::Lazy);
        for _round in 0..2 {
            let jobs: Vec<_> = (0..SLOTS as u64 + 3).map(job).collect();
            // SAFETY: each taken once.
            let taken: Vec<_> = jobs.into_iter().map(|job| unsafe { take(job) }).collect();
            assert!(taken
                .iter()
                .enumerate()
                .all(|(i, job)| job.range.base == i as u64));
            assert_eq!(taken.iter().filter(|job| job.slot.is_none()).count(), 3);
        }
    }
}
