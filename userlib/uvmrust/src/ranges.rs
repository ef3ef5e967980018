// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Ranges of addresses, and how they are made to fit pages.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Error, Result};

/// A range of the address space, laid out as the ioctl takes it
/// (`struct uvm_rust_discard_range`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Address of the first byte.
    pub base: u64,
    /// How many bytes; the range may be empty.
    pub length: u64,
}

impl Range {
    /// The bytes that start at `base`.
    pub fn new<T>(base: *const T, length: usize) -> Self {
        Self {
            base: base as u64,
            length: length as u64,
        }
    }

    /// The whole pages inside; length 0 if there are none.
    pub fn shrunk(self) -> Result<Self> {
        let mask = page_size() - 1;
        let end = self.end()? & !mask;
        let base = self.base.checked_add(mask).ok_or(Error::Invalid)? & !mask;
        Ok(Self {
            base,
            length: end.saturating_sub(base),
        })
    }

    /// The whole blocks of 2 MiB inside; length 0 if there are none.
    pub(crate) fn blocks(self) -> Result<Self> {
        let end = self.end()?;
        let end = end - end % BLOCK;
        let base = (self.base.checked_next_multiple_of(BLOCK)).ok_or(Error::Invalid)?;
        Ok(Self {
            base,
            length: end.saturating_sub(base),
        })
    }

    /// The range with all pages that it touches, also in part.
    pub fn grown(self) -> Result<Self> {
        let mask = page_size() - 1;
        if self.length == 0 {
            return Ok(self);
        }
        let end = self.end()?.checked_add(mask).ok_or(Error::Invalid)? & !mask;
        let base = self.base & !mask;
        Ok(Self {
            base,
            length: end - base,
        })
    }

    /// Its two ends, where they are in a block of which it is not all; length 0 if there are none.
    pub(crate) fn in_part(self) -> [Self; 2] {
        let end = self.base + self.length;
        let first = self.base.checked_next_multiple_of(BLOCK);
        let first = first.map_or(end, |first| first.min(end));
        let last = (end - end % BLOCK).max(first);
        [(self.base, first), (last, end)].map(|(base, end)| Self {
            base,
            length: end - base,
        })
    }

    /// Whether the ioctls take it as it is.
    pub(crate) fn fits(self) -> bool {
        self.length != 0
            && self.base != 0
            && (self.base | self.length) & (page_size() - 1) == 0
            && self.end().is_ok()
    }

    fn end(self) -> Result<u64> {
        self.base.checked_add(self.length).ok_or(Error::Invalid)
    }
}

/// Bytes that UVM maps by one entry at most, and of the blocks in which it keeps memory.
const BLOCK: u64 = 2 << 20;

/// Bytes of a page of the host, a power of two.
pub(crate) fn page_size() -> u64 {
    static SIZE: AtomicU64 = AtomicU64::new(0);
    match SIZE.load(Relaxed) {
        0 => {
            // SAFETY: always safe to call.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let size = u64::try_from(size)
                .ok()
                .filter(|s| s.is_power_of_two())
                .unwrap_or(4096);
            SIZE.store(size, Relaxed);
            size
        }
        size => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(base: u64, length: u64) -> Range {
        Range { base, length }
    }

    #[test]
    fn discard_takes_whole_pages_only_and_prefetch_all_touched() {
        let p = page_size();
        assert_eq!(range(p, 3 * p).shrunk(), Ok(range(p, 3 * p)));
        assert_eq!(range(p + 1, 3 * p).shrunk(), Ok(range(2 * p, 2 * p)));
        assert_eq!(range(p + 1, p - 1).shrunk().map(|r| r.length), Ok(0));
        assert_eq!(range(p + 1, 3 * p).grown(), Ok(range(p, 4 * p)));
        assert_eq!(range(p + 1, 0).grown().map(|r| r.length), Ok(0));
    }

    #[test]
    fn a_lazy_discard_takes_whole_blocks_only() {
        let b = BLOCK;
        assert_eq!(range(b, 2 * b).blocks(), Ok(range(b, 2 * b)));
        assert_eq!(range(b - 1, 2 * b).blocks(), Ok(range(b, b)));
        assert_eq!(range(b + 1, 3 * b).blocks(), Ok(range(2 * b, 2 * b)));
        for none in [range(b, b - 1), range(b + 1, 2 * b - 2), range(7, 0)] {
            assert_eq!(none.blocks().map(|r| r.length), Ok(0), "{none:?}");
        }
    }

    #[test]
    fn the_ends_of_a_range_lie_in_blocks_that_it_covers_in_part() {
        let b = BLOCK;
        let none = |base| range(base, 0);
        assert_eq!(range(b, 2 * b).in_part(), [none(b), none(3 * b)]);
        assert_eq!(
            range(b + 1, b).in_part(),
            [range(b + 1, b - 1), range(2 * b, 1)]
        );
        assert_eq!(range(b + 1, 7).in_part(), [range(b + 1, 7), none(b + 8)]);
        assert_eq!(range(b, 7).in_part(), [none(b), range(b, 7)]);
        assert_eq!(range(b - 7, 7).in_part(), [range(b - 7, 7), none(b)]);
        assert_eq!(range(u64::MAX, 0).in_part(), [none(u64::MAX); 2]);
    }

    #[test]
    fn the_end_of_the_address_space_is_no_panic() {
        let p = page_size();
        assert_eq!(range(u64::MAX, 1).shrunk(), Err(Error::Invalid));
        assert_eq!(range(u64::MAX - 1, 1).shrunk(), Err(Error::Invalid));
        assert_eq!(range(u64::MAX, 1).blocks(), Err(Error::Invalid));
        assert_eq!(range(u64::MAX - 1, 1).blocks(), Err(Error::Invalid));
        assert_eq!(range(u64::MAX - p, p).grown(), Err(Error::Invalid));
        assert_eq!(range(p, u64::MAX).grown(), Err(Error::Invalid));
        assert!(!range(p, u64::MAX - p + 1).fits());
        assert!(!range(0, p).fits() && !range(p, 0).fits() && range(p, p).fits());
    }
}
