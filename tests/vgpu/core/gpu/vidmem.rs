// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What UVM asks of RM's physical memory allocator, and what it finds in the
//! memory: poison, unless it asked for zeros.

use super::Error;
use super::Gpu;
use super::Hw;
use crate::emu::machine::Loc;
use crate::emu::machine::Machine;
use crate::emu::machine::Space;
use crate::emu::pma::AllocRequest;
use crate::emu::pma::Counts;
use crate::emu::pma::CHUNK;
use crate::emu::pma::GRANULE;

/// What freed memory is filled with: `VGPU_POISON`.
pub(super) const POISON: u64 = 0x5eed_5eed_bad0_bad0;

impl<M: Machine> Gpu<M> {
    /// Allocates vidmem; see [`AllocRequest`]. Gives the number of pages and
    /// whether they are zero.
    pub fn pma_alloc(
        &mut self,
        ask: &AllocRequest,
        no_zero: bool,
        pages: &mut [u64],
    ) -> Result<(u64, bool), Error> {
        if self.pma_skip > 0 {
            self.pma_skip -= 1;
        } else if self.pma_fail > 0 {
            if self.pma_fail != u64::MAX {
                self.pma_fail -= 1;
            }
            self.hw.stats.pma_failures += 1;
            return Err(Error::NoVidmem);
        }
        let n = match self.pma.alloc(ask, pages) {
            Ok(n) => n,
            Err(e) => {
                self.hw.stats.pma_failures += 1;
                return Err(e);
            }
        };
        self.hw.stats.pma_allocs += n;
        let zero = self.config.zero && !no_zero;
        if zero {
            let (runs, bytes) = runs(n, ask.page_bytes, ask.contiguous);
            for &at in &pages[..runs] {
                self.hw.mark_dirty(Loc::vidmem(at), bytes);
                self.hw.fill_vidmem(at, bytes, 0);
            }
        }
        Ok((n, zero))
    }

    /// Takes vidmem back, all of it or none.
    pub fn pma_free(
        &mut self,
        pages: &[u64],
        count: u64,
        page_bytes: u64,
        contiguous: bool,
    ) -> Result<(), Error> {
        let pages = self.check_pages(pages, count, page_bytes, contiguous)?;
        let (_, bytes) = runs(count, page_bytes, contiguous);
        for &at in pages {
            // A page given twice is an error that was not seen above.
            self.pma.free(at, bytes)?;
            self.poison(at, bytes);
        }
        self.hw.stats.pma_frees += count;
        Ok(())
    }

    /// Pins vidmem, all of it or none. Busy if a part of it is being evicted.
    pub fn pma_pin(&mut self, pages: &[u64], count: u64, page_bytes: u64) -> Result<(), Error> {
        let pages = self.check_pages(pages, count, page_bytes, false)?;
        if pages.iter().any(|&at| self.pma.is_evicting(at, page_bytes)) {
            return Err(Error::Busy);
        }
        for &at in pages {
            self.pma.pin(at, page_bytes)?;
        }
        Ok(())
    }

    fn check_pages<'p>(
        &self,
        pages: &'p [u64],
        count: u64,
        page_bytes: u64,
        contiguous: bool,
    ) -> Result<&'p [u64], Error> {
        count.checked_mul(page_bytes).ok_or(Error::Invalid)?;
        let (n, bytes) = runs(count, page_bytes, contiguous);
        let pages = pages.get(..n).ok_or(Error::Invalid)?;
        if pages.iter().all(|&at| self.pma.is_allocated(at, bytes)) {
            Ok(pages)
        } else {
            Err(Error::Invalid)
        }
    }

    /// How much vidmem there is.
    pub fn pma_counts(&self) -> Counts {
        self.pma.counts()
    }

    /// Prepares an eviction of `begin..end`, 2 MiB aligned: nothing there is given
    /// out until [`Gpu::end_eviction`] of the same range. Busy if something there is
    /// pinned or already being evicted; ranges that do not overlap may be at the same time.
    pub fn begin_eviction(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        if begin % CHUNK != 0 || end % CHUNK != 0 || begin >= end || end > self.pma.bytes() {
            return Err(Error::Invalid);
        }
        if self.pma.any_pinned(begin, end) {
            return Err(Error::Busy);
        }
        self.pma.begin_eviction(begin, end)
    }

    /// Ends an eviction: takes the 2 MiB pages that are free there for RM, as far
    /// as `pages` holds them. Gives their number. `begin` and `end` are what
    /// [`Gpu::begin_eviction`] took.
    pub fn end_eviction(&mut self, begin: u64, end: u64, pages: &mut [u64]) -> usize {
        if begin % CHUNK != 0 || end % CHUNK != 0 || begin >= end || end > self.pma.bytes() {
            return 0;
        }
        self.pma.end_eviction(begin, end);
        self.pma.claim(begin, end, pages)
    }

    /// Fills what was written of `bytes` bytes at `at`, both multiples of 64 KiB.
    fn poison(&mut self, at: u64, bytes: u64) {
        if self.config.poison {
            self.hw.poison(at, bytes);
        }
    }
}

/// How many addresses stand for `count` pages, and the bytes at each.
fn runs(count: u64, page_bytes: u64, contiguous: bool) -> (usize, u64) {
    if contiguous {
        (1, count.saturating_mul(page_bytes))
    } else {
        (count as usize, page_bytes)
    }
}

impl<M: Machine> Hw<M> {
    /// Fills what was written of `bytes` bytes at `at`, both multiples of 64 KiB.
    pub(super) fn poison(&mut self, at: u64, bytes: u64) {
        self.take_peers_marks(at, bytes);
        let mut granule = at;
        while granule < at + bytes {
            let run = self.clean_run(granule, at + bytes - granule);
            if run > 0 {
                self.fill_vidmem(granule, run, POISON);
                self.stats.poisoned_bytes += run;
            }
            granule += run.max(GRANULE);
        }
    }

    /// Notes that `bytes` bytes are written, if they are in vidmem, of this GPU or of a peer.
    pub(in crate::emu) fn mark_dirty(&mut self, at: Loc, bytes: u64) {
        if at.space != Space::Vidmem || bytes == 0 {
            if let Some(id) = at.of_peer().filter(|_| bytes != 0) {
                self.mark_peer(id, at.at, bytes);
            }
            return;
        }
        for granule in at.at / GRANULE..=at.at.saturating_add(bytes - 1) / GRANULE {
            if let Some(word) = self.dirty.get_mut((granule / 32) as usize) {
                *word |= 1 << (granule % 32);
            }
        }
    }

    /// Notes that granules of 2 MiB number `chunk` are written, a bit each.
    pub(in crate::emu) fn mark_granules(&mut self, chunk: u64, granules: u32) {
        if let Some(word) = self.dirty.get_mut(chunk as usize) {
            *word |= granules;
        }
    }

    /// Marks as clean the dirty granules that start at `at`, up to `most` bytes;
    /// gives their bytes.
    fn clean_run(&mut self, at: u64, most: u64) -> u64 {
        let mut bytes = 0;
        while bytes < most {
            let granule = (at + bytes) / GRANULE;
            let Some(word) = self.dirty.get_mut((granule / 32) as usize) else {
                break;
            };
            if (*word >> (granule % 32)) & 1 == 0 {
                break;
            }
            *word &= !(1 << (granule % 32));
            bytes += GRANULE;
        }
        bytes
    }

    pub(super) fn fill_vidmem(&self, at: u64, bytes: u64, value: u64) {
        if self
            .m
            .fill(Loc::vidmem(at), bytes, &value.to_ne_bytes(), 0)
            .is_err()
        {
            self.m
                .report(format_args!("vgpu{}: no vidmem at {at:#x}", self.index));
        }
    }
}
