// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who owns which part of vidmem: RM's physical memory allocator.
//!
//! UVM asks for pages of 64 KiB to 2 MiB (its root chunks), usually many at once,
//! and may pin them: pinned memory is never asked back by an eviction of a range.

use super::gpu::Error;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// The smallest piece that can be owned, in bytes.
pub(super) const GRANULE: u64 = 1 << 16;
/// UVM's root chunk. One bitmap word stands for it.
pub(super) const CHUNK: u64 = 1 << 21;

/// What UVM asks for.
#[derive(Clone, Copy, Debug)]
pub struct AllocRequest {
    /// How many pages of `page_bytes` each.
    pub count: u64,
    /// Their size and alignment: a power of two, at least 64 KiB.
    pub page_bytes: u64,
    /// One run; only its address is given back.
    pub contiguous: bool,
    /// Fewer than asked for will do, but not none.
    pub partial: bool,
    /// Never evict them for others.
    pub pinned: bool,
    /// The first address that will do.
    pub begin: u64,
    /// The address after the last acceptable byte.
    pub end: u64,
}

/// How much there is, for UVM's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// How many 2 MiB pages there are, free or not.
    pub total_2m: u64,
    /// Free 64 KiB pages, in free 2 MiB pages too.
    pub free_64k: u64,
    /// Wholly free 2 MiB pages.
    pub free_2m: u64,
}

/// A bit per 64 KiB, a word per 2 MiB.
#[derive(Debug)]
pub(super) struct Pma {
    used: TryVec<u32>,
    pinned: TryVec<u32>,
    reserved: u64,
    /// By 2 MiB: not to be given out, RM has asked UVM to free it. RM marks frames
    /// likewise, so that it may evict several ranges at a time.
    evicting: TryVec<bool>,
}

impl Pma {
    /// `bytes` of vidmem, a multiple of 2 MiB, of which the first `reserved`, a
    /// multiple too, are not to be had.
    pub(super) fn new(bytes: u64, reserved: u64) -> Result<Self, OutOfMemory> {
        let chunks = (bytes / CHUNK) as usize;
        let mut used = TryVec::filled(chunks, 0)?;
        let held = (reserved / CHUNK) as usize;
        used[..held.min(chunks)].fill(u32::MAX);
        Ok(Self {
            used,
            pinned: TryVec::filled(chunks, 0)?,
            reserved,
            evicting: TryVec::filled(chunks, false)?,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.used.len() as u64 * CHUNK
    }

    /// Allocates; `pages` has room for what is asked. Gives the number of pages
    /// found, which is below `count` only if `partial`. Nothing is allocated on
    /// an error.
    pub(super) fn alloc(&mut self, ask: &AllocRequest, pages: &mut [u64]) -> Result<u64, Error> {
        let size = ask.page_bytes;
        if !size.is_power_of_two() || size < GRANULE || ask.count == 0 {
            return Err(Error::Invalid);
        }
        let slots = if ask.contiguous { 1 } else { ask.count };
        if (pages.len() as u64) < slots {
            return Err(Error::Invalid);
        }
        let end = ask.end.min(self.bytes());
        if ask.contiguous {
            let run = size.checked_mul(ask.count).ok_or(Error::Invalid)?;
            let at = self
                .find(run, size, ask.begin, end)
                .ok_or(Error::NoVidmem)?;
            self.mark(at, run, true, ask.pinned);
            pages[0] = at;
            return Ok(ask.count);
        }
        let mut got = 0;
        let mut from = ask.begin;
        while got < ask.count {
            let Some(at) = self.find(size, size, from, end) else {
                break;
            };
            self.mark(at, size, true, ask.pinned);
            pages[got as usize] = at;
            got += 1;
            from = at + size;
        }
        if got == ask.count || (ask.partial && got > 0) {
            return Ok(got);
        }
        for &at in &pages[..got as usize] {
            self.mark(at, size, false, false);
        }
        Err(Error::NoVidmem)
    }

    /// Whether all of `size` bytes at `at` is allocated, and not RM's.
    pub(super) fn is_allocated(&self, at: u64, size: u64) -> bool {
        at >= self.reserved && self.all(at, size, |used, mask| used & mask == mask)
    }

    /// Frees `size` bytes at `at`, all allocated, and unpins them.
    pub(super) fn free(&mut self, at: u64, size: u64) -> Result<(), Error> {
        if !self.is_allocated(at, size) {
            return Err(Error::Invalid);
        }
        self.mark(at, size, false, false);
        Ok(())
    }

    /// Pins allocated memory. Busy if a part of it is being evicted.
    pub(super) fn pin(&mut self, at: u64, size: u64) -> Result<(), Error> {
        if !self.is_allocated(at, size) {
            return Err(Error::Invalid);
        }
        if self.is_evicting(at, size) {
            return Err(Error::Busy);
        }
        self.mark(at, size, true, true);
        Ok(())
    }

    /// Whether anything pinned lies in `begin..end`, 2 MiB aligned.
    pub(super) fn any_pinned(&self, begin: u64, end: u64) -> bool {
        let (a, b) = (begin / CHUNK, end.min(self.bytes()) / CHUNK);
        self.pinned[a as usize..b.max(a) as usize]
            .iter()
            .any(|&w| w != 0)
    }

    /// Holds `begin..end`, 2 MiB aligned and within vidmem, back from allocation until
    /// [`Pma::end_eviction`] of the same. Busy if a part of it is held back already.
    pub(super) fn begin_eviction(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        let chunks = &mut self.evicting[(begin / CHUNK) as usize..(end / CHUNK) as usize];
        if chunks.contains(&true) {
            return Err(Error::Busy);
        }
        chunks.fill(true);
        Ok(())
    }

    /// Ends what [`Pma::begin_eviction`] began.
    pub(super) fn end_eviction(&mut self, begin: u64, end: u64) {
        self.evicting[(begin / CHUNK) as usize..(end / CHUNK) as usize].fill(false);
    }

    /// Allocates for RM the free 2 MiB pages of `begin..end`, 2 MiB aligned, until
    /// `pages` is full. Gives their number.
    pub(super) fn claim(&mut self, begin: u64, end: u64, pages: &mut [u64]) -> usize {
        let mut n = 0;
        let mut at = begin;
        while at < end.min(self.bytes()) && n < pages.len() {
            if self.used[(at / CHUNK) as usize] == 0 {
                self.mark(at, CHUNK, true, false);
                pages[n] = at;
                n += 1;
            }
            at += CHUNK;
        }
        n
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            total_2m: self.used.len() as u64,
            free_64k: self.used.iter().map(|w| u64::from(w.count_zeros())).sum(),
            free_2m: self.used.iter().filter(|&&w| w == 0).count() as u64,
        }
    }

    /// Bytes allocated, without what is RM's from the start.
    pub(super) fn allocated(&self) -> u64 {
        self.bytes() - self.counts().free_64k * GRANULE - self.reserved
    }

    fn find(&self, size: u64, align: u64, begin: u64, end: u64) -> Option<u64> {
        let mut at = begin.checked_next_multiple_of(align)?;
        while at.checked_add(size)? <= end {
            // The end may lie beyond vidmem, which `all` refuses.
            if !self.is_evicting(at, size) && self.all(at, size, |used, mask| used & mask == 0) {
                return Some(at);
            }
            at += align;
        }
        None
    }

    /// Whether RM has asked for a part of a range that is in vidmem.
    pub(super) fn is_evicting(&self, at: u64, size: u64) -> bool {
        let chunks = (at / CHUNK) as usize..(at + size).div_ceil(CHUNK) as usize;
        self.evicting
            .get(chunks)
            .is_some_and(|chunks| chunks.contains(&true))
    }

    /// Whether `test(word, mask)` holds for every chunk of a range in vidmem.
    fn all(&self, at: u64, size: u64, test: impl Fn(u32, u32) -> bool) -> bool {
        let Some(end) = at.checked_add(size).filter(|&e| e <= self.bytes()) else {
            return false;
        };
        at % GRANULE == 0
            && size % GRANULE == 0
            && size > 0
            && Parts { at, end }.all(|(chunk, mask)| test(self.used[chunk], mask))
    }

    fn mark(&mut self, at: u64, size: u64, used: bool, pinned: bool) {
        for (chunk, mask) in (Parts { at, end: at + size }) {
            set(&mut self.used[chunk], mask, used);
            set(&mut self.pinned[chunk], mask, pinned);
        }
    }
}

fn set(word: &mut u32, mask: u32, on: bool) {
    if on {
        *word |= mask;
    } else {
        *word &= !mask;
    }
}

/// Cuts a range into chunks: number and mask of each.
struct Parts {
    at: u64,
    end: u64,
}

impl Iterator for Parts {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        if self.at >= self.end {
            return None;
        }
        let chunk = self.at / CHUNK;
        let stop = self.end.min((chunk + 1) * CHUNK);
        let first = (self.at % CHUNK) / GRANULE;
        let n = (stop - self.at) / GRANULE;
        self.at = stop;
        let mask = (((1u64 << n) - 1) << first) as u32;
        Some((chunk as usize, mask))
    }
}

#[cfg(test)]
mod tests;
