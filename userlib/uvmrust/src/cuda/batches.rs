// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Several ranges in the order of a stream, by CUDA's own calls: CUDA 13's batches where they
//! serve.
//!
//! What NVIDIA says of them (CUDA Driver API, cuMemDiscardBatchAsync, cuMemPrefetchBatchAsync,
//! cuMemDiscardAndPrefetchBatchAsync), and what follows from it here:
//!
//! - "The batch as a whole executes in stream order but operations within a batch are not
//!   guaranteed to execute in any specific order", and what happens to memory "simultaneously"
//!   with its discard is undefined. So ranges that touch each other are discarded by one batch
//!   and prefetched by another behind it.
//! - `hStream`: "Must not be legacy NULL stream".
//! - "All devices in the system must have a non-zero value for the device attribute
//!   CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS otherwise the API will return an error",
//!   which one it does not say. A single prefetch needs that of its two devices only.
//! - The batch "executes in stream order". On a GPU (H200, driver 580.159.04, CUDA 13.0) it does
//!   not: what was written behind `cuMemDiscardBatchAsync` in the same stream, and brought to the
//!   host by a prefetch behind that, was lost in 7 of 48 cases. In 4 of them the program
//!   had waited for the stream before the write. Where another stream wrote, behind an event, it
//!   was lost in 8 of 48. With `UVM_DISCARD` in a host function, with `cuMemDiscardAndPrefetchBatchAsync`, and
//!   with a prefetch or a host function behind the discard, in 0 of 48 (`tests/order_program.c`).
//!   So nobody here calls it: what discards alone discards and prefetches.
//! - "Calling cuMemDiscardAndPrefetchBatchAsync is semantically equivalent to calling
//!   cuMemDiscardBatchAsync followed by cuMemPrefetchBatchAsync, but is more optimal."

use core::ffi::c_int;

use super::{check_range, is_legacy, Cuda, Location, Stream, STREAM_LEGACY, STREAM_PER_THREAD};
use crate::backend::{behind_a_discard, Outcome};
use crate::groups::{in_groups, GROUP};
use crate::{broken, Error, Range, Result};

/// The arrays that a batch is given. CUDA takes them for writable.
struct Arrays {
    bases: [u64; GROUP],
    sizes: [usize; GROUP],
    count: usize,
}

impl Arrays {
    fn of(group: &[Range]) -> Self {
        let mut arrays = Self {
            bases: [0; GROUP],
            sizes: [0; GROUP],
            count: group.len(),
        };
        for (i, range) in group.iter().enumerate() {
            arrays.bases[i] = range.base;
            arrays.sizes[i] = range.length as usize;
        }
        arrays
    }

    /// What became of the batch: all of it, or nothing.
    fn outcome(&self, code: c_int) -> (usize, Result<()>) {
        match check_range(code) {
            Ok(()) => (self.count, Ok(())),
            // The devices of the call are known, so this is about the others of the system.
            Err(Error::NoDevice) => (0, Err(Error::NotSupported)),
            Err(error) => (0, Err(error)),
        }
    }
}

impl Cuda {
    /// Discards the whole pages of all ranges, in the order of `stream`, and brings them to
    /// `device`, or to the one that is current.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`]; nothing is being captured into which it would go; the contents
    /// are not needed by what comes behind in the stream.
    pub(crate) unsafe fn discard_all(
        &self,
        ranges: &[Range],
        device: Option<c_int>,
        stream: Stream,
        outcome: &mut Outcome,
    ) -> Result<()> {
        if broken::DISCARD {
            // SAFETY: by our contract.
            return unsafe { self.discard_out_of_order(ranges, stream, outcome) };
        }
        let device = device.map_or_else(|| self.current_device(), Ok)?;
        let work = |stream| {
            in_groups(ranges, Range::shrunk, outcome, |group, _| {
                let at_once = if are_apart(group) { group.len() } else { 1 };
                let mut done = 0;
                for some in group.chunks(at_once) {
                    // SAFETY: by our contract.
                    let (count, result) = unsafe { self.discard_and_bring(some, device, stream) };
                    done += count;
                    if result.is_err() {
                        return (done, result);
                    }
                }
                (done, Ok(()))
            })
        };
        // SAFETY: by our contract.
        unsafe { self.beside_legacy(stream, work) }
    }

    /// CUDA's discard alone, for the tests that see it lose what is written behind it.
    ///
    /// # Safety
    /// As for [`Cuda::discard_all`].
    unsafe fn discard_out_of_order(
        &self,
        ranges: &[Range],
        stream: Stream,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let call = self.mem_discard_batch.ok_or(Error::NotSupported)?;
        let work = |stream| {
            in_groups(ranges, Range::shrunk, outcome, |group, _| {
                let mut arrays = Arrays::of(group);
                let (bases, sizes) = (arrays.bases.as_mut_ptr(), arrays.sizes.as_mut_ptr());
                // SAFETY: both arrays hold at least `count` elements; CUDA checks the ranges; the
                // stream by our contract.
                arrays.outcome(unsafe { call(bases, sizes, arrays.count, 0, stream) })
            })
        };
        // SAFETY: by our contract.
        unsafe { self.beside_legacy(stream, work) }
    }

    /// Discards ranges of whole pages that are apart, at most [`GROUP`], and brings their pages to
    /// `device`: how many, and with which result.
    ///
    /// # Safety
    /// As for [`Cuda::discard_all`]; `stream` is not the legacy one.
    unsafe fn discard_and_bring(
        &self,
        group: &[Range],
        device: c_int,
        stream: Stream,
    ) -> (usize, Result<()>) {
        let Some(call) = self.mem_discard_and_prefetch_batch else {
            return (0, Err(Error::NotSupported));
        };
        let (mut arrays, mut to) = (Arrays::of(group), Location::of(device));
        let (bases, sizes) = (arrays.bases.as_mut_ptr(), arrays.sizes.as_mut_ptr());
        // SAFETY: both arrays hold at least `count` elements; one location, for all from the
        // first; CUDA checks the ranges; the stream by our contract.
        let code = unsafe { call(bases, sizes, arrays.count, &mut to, &mut 0, 1, 0, stream) };
        arrays.outcome(code)
    }

    /// Prefetches all pages that the ranges touch to `device`, in the order of `stream`. After an
    /// error the first ones are on their way.
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    pub(crate) unsafe fn prefetch_all(
        &self,
        ranges: &[Range],
        device: c_int,
        stream: Stream,
    ) -> Result<()> {
        let call = self.mem_prefetch_batch.filter(|_| !is_legacy(stream));
        in_groups(ranges, Range::grown, &mut Outcome::default(), |group, _| {
            if let (Some(call), true) = (call, group.len() > 1) {
                let (mut arrays, mut to) = (Arrays::of(group), Location::of(device));
                let (bases, sizes) = (arrays.bases.as_mut_ptr(), arrays.sizes.as_mut_ptr());
                // SAFETY: both arrays hold at least `count` elements; one location, for all from
                // the first; CUDA checks the ranges; the stream by our contract.
                let code =
                    unsafe { call(bases, sizes, arrays.count, &mut to, &mut 0, 1, 0, stream) };
                if let (count, Ok(())) = arrays.outcome(code) {
                    return (count, Ok(()));
                }
                // Some other device of the system may be why; or else this says which range is.
            }
            for (i, range) in group.iter().enumerate() {
                // SAFETY: by our contract.
                let done = unsafe { self.prefetch(range.base, range.length, device, stream) };
                if done.is_err() {
                    return (i, done);
                }
            }
            (group.len(), Ok(()))
        })
    }

    /// Discards the whole pages of all ranges, and brings all pages that they touch to `device`,
    /// in the order of `stream`. After an error the first ones are discarded, or on their way.
    ///
    /// # Safety
    /// As for [`Cuda::discard_all`].
    pub(crate) unsafe fn discard_and_prefetch_all(
        &self,
        ranges: &[Range],
        device: c_int,
        stream: Stream,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let can = self.can_discard();
        let work = |stream| {
            if !(can && are_apart(ranges)) {
                // SAFETY: by our contract.
                return unsafe {
                    self.discard_all(ranges, Some(device), stream, outcome)?;
                    self.prefetch_all(ranges, device, stream)
                        .map_err(behind_a_discard)
                };
            }
            in_groups(ranges, Range::shrunk, outcome, |group, _| {
                // SAFETY: by our contract; such ranges are apart in their groups too.
                unsafe { self.discard_and_bring(group, device, stream) }
            })
        };
        // SAFETY: by our contract.
        unsafe { self.beside_legacy(stream, work) }
    }

    /// Does `work` in `stream`. The batches do not take the legacy default stream: for it, `work`
    /// is done in the thread's own default stream, between two events of the legacy stream. The
    /// legacy stream waits for all blocking streams, and they for it, but the thread's own waits
    /// for the legacy stream alone ("Stream synchronization behavior", CUDA Driver API).
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`].
    unsafe fn beside_legacy(
        &self,
        stream: Stream,
        work: impl FnOnce(Stream) -> Result<()>,
    ) -> Result<()> {
        let own = STREAM_PER_THREAD;
        if !is_legacy(stream) {
            return work(stream);
        }
        if broken::LEGACY {
            return work(own);
        }
        // SAFETY: the special streams are always there.
        unsafe {
            self.order(STREAM_LEGACY, own)?;
            let done = work(own);
            // Also after an error: some groups may be on their way. They must not come later
            // than the caller, who sees an error of this, thinks; or the caller is told so.
            let ordered = self.order(own, STREAM_LEGACY);
            ordered
                .map_err(|error| match self.synchronize(own) {
                    Ok(()) => behind_a_discard(error),
                    Err(_) => Error::Driver,
                })
                .and(done)
        }
    }
}

/// Whether no two ranges touch, which is seen where they are in the order of their addresses; and
/// no page is covered in part, which would be prefetched but not discarded.
fn are_apart(ranges: &[Range]) -> bool {
    let apart = |pair: &[Range]| pair[1].base - pair[0].base.min(pair[1].base) >= pair[0].length;
    ranges.iter().all(|range| range.fits()) && ranges.windows(2).all(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(base: u64, length: u64) -> Range {
        Range { base, length }
    }

    #[test]
    fn ranges_that_touch_are_not_in_one_batch() {
        let (a, b, c) = (range(4096, 8192), range(12288, 4096), range(40960, 4096));
        assert!(are_apart(&[]) && are_apart(&[a]) && are_apart(&[a, b, c]));
        // Nobody sorts them; it is only slower.
        assert!(!are_apart(&[b, a]) && !are_apart(&[a, a]));
        assert!(!are_apart(&[a, range(8192, 4096)]));
        assert!(!are_apart(&[range(4097, 4096)]) && !are_apart(&[range(4096, 0)]));
    }
}
