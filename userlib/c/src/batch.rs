// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The structures of `include/uvmrust.h` that say how long they are, so that later versions of it
//! can add to them: a program and a library of different versions understand each other as far as
//! both know the same.

use core::ffi::c_void;
use std::borrow::Cow;

use uvmrust::{Error, Outcome, Place, Range, Result};

/// What is longer was not filled in.
const MOST: usize = 256;

/// The layout of `struct uvmrust_batch`; a caller of another version may have one of another size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CBatch {
    size: u32,
    range_size: u32,
    ranges: *const Range,
    count: usize,
    gpu_uuid: *const [u8; 16],
    flags: u32,
    reserved: u32,
}

impl CBatch {
    /// Of these ranges, which outlive it, as does the UUID, if it is not null.
    pub fn of(ranges: &[Range], gpu_uuid: *const [u8; 16], flags: u32) -> Self {
        Self {
            size: size_of::<Self>() as u32,
            range_size: size_of::<Range>() as u32,
            ranges: ranges.as_ptr(),
            count: ranges.len(),
            gpu_uuid,
            flags,
            reserved: 0,
        }
    }
}

/// The layout of `struct uvmrust_outcome`, of which a caller may know less.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct COutcome {
    size: u32,
    counted: u32,
    done: u64,
    blocks_discarded: u64,
    blocks_skipped: u64,
    blocks_partial: u64,
}

/// A batch, as far as this version knows it.
pub(crate) struct Batch<'a> {
    pub(crate) ranges: Cow<'a, [Range]>,
    gpu_uuid: Option<[u8; 16]>,
    flags: u32,
}

impl Batch<'_> {
    /// The flags of a batch that goes nowhere.
    pub(crate) fn flags(&self) -> Result<u32> {
        match self.gpu_uuid {
            None => Ok(self.flags),
            Some(_) => Err(Error::Invalid),
        }
    }

    /// Where a batch goes, which has no flags.
    pub(crate) fn place(&self) -> Result<Place> {
        match self.flags {
            0 => Ok(self.gpu_uuid.map_or(Place::Host, Place::Gpu)),
            _ => Err(Error::Invalid),
        }
    }
}

/// Whether all bytes from `from` to `end` are 0.
///
/// # Safety
/// They can be read.
unsafe fn is_zero(base: *const c_void, from: usize, end: usize) -> bool {
    // SAFETY: by our contract.
    (from..end).all(|at| unsafe { base.cast::<u8>().add(at).read() } == 0)
}

/// Reads a batch.
///
/// # Errors
/// [`Error::Invalid`]: null, too short, or with something that this version does not know.
///
/// # Safety
/// `batch` is null or points to as many bytes as its first field says, which stay as they are
/// for 'a, as do the ranges and the UUID.
pub(crate) unsafe fn read<'a>(batch: *const CBatch) -> Result<Batch<'a>> {
    if batch.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: by our contract. Whoever declares the structure aligns it.
    let size = unsafe { batch.cast::<u32>().read() } as usize;
    if !(size_of::<CBatch>()..=MOST).contains(&size) {
        return Err(Error::Invalid);
    }
    // SAFETY: it is as long, by our contract.
    let (known, all_known) = unsafe {
        let rest_is_zero = is_zero(batch.cast(), size_of::<CBatch>(), size);
        (batch.read(), rest_is_zero)
    };
    if !all_known || known.reserved != 0 {
        return Err(Error::Invalid);
    }
    // SAFETY: by our contract.
    unsafe {
        Ok(Batch {
            ranges: ranges(&known)?,
            gpu_uuid: known.gpu_uuid.as_ref().copied(),
            flags: known.flags,
        })
    }
}

/// # Safety
/// As for [`read`].
unsafe fn ranges<'a>(batch: &CBatch) -> Result<Cow<'a, [Range]>> {
    let each = batch.range_size as usize;
    if each == size_of::<Range>() {
        // SAFETY: by our contract.
        return Ok(Cow::Borrowed(unsafe {
            super::array(batch.ranges, batch.count)?
        }));
    }
    let longer = size_of::<Range>()..=MOST;
    let fits = longer.contains(&each) && each % align_of::<Range>() == 0;
    if !fits || batch.count > isize::MAX as usize / each {
        return Err(Error::Invalid);
    }
    if batch.ranges.is_null() && batch.count != 0 {
        return Err(Error::Invalid);
    }
    let all = (0..batch.count).map(|i| {
        // SAFETY: by our contract there are so many, each as long.
        unsafe {
            let range = batch.ranges.byte_add(i * each);
            match is_zero(range.cast(), size_of::<Range>(), each) {
                true => Ok(range.read()),
                false => Err(Error::Invalid),
            }
        }
    });
    all.collect::<Result<_>>().map(Cow::Owned)
}

/// Where an outcome is to be written: null, or as long as its first field says.
pub(crate) struct Out(*mut COutcome, usize);

impl Out {
    /// # Errors
    /// [`Error::Invalid`]: it is too short for the first two fields.
    ///
    /// # Safety
    /// `out` is null or points to as many writable bytes as its first field says.
    pub(crate) unsafe fn new(out: *mut COutcome) -> Result<Self> {
        if out.is_null() {
            return Ok(Self(out, 0));
        }
        // SAFETY: by our contract.
        match unsafe { out.cast::<u32>().read() } as usize {
            size @ 8..=MOST => Ok(Self(out, size)),
            _ => Err(Error::Invalid),
        }
    }

    /// Fills in as much as there is room for.
    pub(crate) fn write(self, outcome: &Outcome) {
        let Self(out, size) = self;
        let filled = COutcome {
            size: size as u32,
            counted: outcome.counted.into(),
            done: outcome.done as u64,
            blocks_discarded: outcome.blocks_discarded,
            blocks_skipped: outcome.blocks_skipped,
            blocks_partial: outcome.blocks_partial,
        };
        let length = size.min(size_of::<COutcome>());
        // SAFETY: by the contract of `new`: of a null pointer nothing is written.
        unsafe {
            let from = (&raw const filled).cast::<u8>();
            core::ptr::copy_nonoverlapping(from, out.cast::<u8>(), length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(ranges: &[Range]) -> CBatch {
        CBatch::of(ranges, core::ptr::null(), 0)
    }

    fn is_refused(batch: &CBatch) -> bool {
        // SAFETY: it has its length, and the ranges are there.
        unsafe { read(batch).is_err() }
    }

    const RANGES: [Range; 2] = [Range { base: 1, length: 2 }, Range { base: 3, length: 4 }];

    #[test]
    fn a_batch_is_read_as_it_is() {
        // SAFETY: it has its length, and the ranges are there.
        let read = unsafe { read(&batch(&RANGES)).ok() };
        let read = read.map(|batch| (batch.ranges.to_vec(), batch.place(), batch.flags()));
        assert_eq!(read, Some((RANGES.to_vec(), Ok(Place::Host), Ok(0))));
        // SAFETY: null is allowed.
        assert!(unsafe { super::read(core::ptr::null()).is_err() });
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let known = batch(&RANGES);
        for size in [0, 8, known.size - 1, MOST as u32 + 1, u32::MAX] {
            assert!(is_refused(&CBatch { size, ..known }), "{size}");
        }
        for range_size in [0, 8, 15, 17, 257, u32::MAX] {
            assert!(
                is_refused(&CBatch {
                    range_size,
                    ..known
                }),
                "{range_size}"
            );
        }
        assert!(is_refused(&CBatch {
            reserved: 1,
            ..known
        }));
        let ranges = core::ptr::null();
        assert!(is_refused(&CBatch { ranges, ..known }));
        assert!(is_refused(&CBatch {
            ranges,
            range_size: 24,
            ..known
        }));
    }

    /// As a later version would pass it, with more behind both structures.
    #[test]
    fn longer_structures_are_taken_if_what_is_more_is_zero() {
        #[repr(C)]
        struct Later(CBatch, u64);
        for more in [0, 1] {
            let ranges: Vec<_> = RANGES.iter().map(|r| [r.base, r.length, more]).collect();
            let later = CBatch {
                range_size: 24,
                ranges: ranges.as_ptr().cast(),
                ..batch(&RANGES)
            };
            // SAFETY: as above.
            let read = unsafe { read(&later) };
            assert_eq!(
                read.ok().map(|b| b.ranges.to_vec()),
                (more == 0).then_some(RANGES.to_vec())
            );
            let mut longer = Later(batch(&RANGES), more);
            longer.0.size = size_of::<Later>() as u32;
            // SAFETY: it is as long as it says.
            let read = unsafe { super::read((&raw const longer).cast()) };
            assert_eq!(read.is_ok(), more == 0);
        }
    }

    #[test]
    fn an_outcome_is_written_as_far_as_there_is_room() {
        let outcome = Outcome {
            done: 5,
            counted: true,
            blocks_discarded: 6,
            ..Outcome::default()
        };
        for (size, kept) in [(16, [5, 9, 9]), (40, [5, 6, 9]), (48, [5, 6, 9])] {
            let mut words = [9_u64; 6];
            words[0] = size;
            // SAFETY: there is room for six words.
            unsafe { Out::new(words.as_mut_ptr().cast()) }
                .ok()
                .unwrap()
                .write(&outcome);
            assert_eq!(words[0], size | 1 << 32);
            assert_eq!([words[1], words[2], words[5]], kept, "{size}");
        }
        let mut short = [4_u64, 9];
        // SAFETY: it is refused before anything is written.
        assert!(unsafe { Out::new(short.as_mut_ptr().cast()).is_err() });
        // SAFETY: null is allowed.
        unsafe { Out::new(core::ptr::null_mut()) }
            .ok()
            .unwrap()
            .write(&outcome);
    }
}
