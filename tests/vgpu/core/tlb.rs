// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A TLB that forgets nothing unless told: it shows when an invalidate is missing.
//!
//! It keeps final, valid translations of 4 KiB each, of SM accesses only. UVM
//! invalidates on every permission change, so an access that the cached
//! permissions do not allow faults without looking at the tables again.

use super::machine::Loc;
use super::space::SpaceId;
use super::walk::Page;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

const ENTRIES: usize = 4096;

/// One cached translation of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    space: SpaceId,
    vpn: u64,
    /// Start of the 4 KiB.
    pub(super) base: Loc,
    pub(super) writable: bool,
    pub(super) atomic: bool,
}

/// The cache: direct-mapped, so what it holds depends on the accesses only.
#[derive(Debug)]
pub(super) struct Tlb {
    entries: TryVec<Option<Entry>>,
}

impl Tlb {
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            entries: TryVec::filled(ENTRIES, None)?,
        })
    }

    fn index(space: SpaceId, vpn: u64) -> usize {
        (vpn.wrapping_add(space.0.wrapping_mul(0x9e37))) as usize % ENTRIES
    }

    /// The translation of `va`, if cached.
    pub(super) fn find(&self, space: SpaceId, va: u64) -> Option<Entry> {
        let vpn = va >> 12;
        self.entries[Self::index(space, vpn)].filter(|e| e.space == space && e.vpn == vpn)
    }

    /// Caches the part of `page` that holds `va`, and returns it.
    pub(super) fn insert(&mut self, space: SpaceId, va: u64, page: Page) -> Entry {
        let vpn = va >> 12;
        let entry = Entry {
            space,
            vpn,
            base: page.base.plus((va & (page.bytes - 1)) & !0xfff),
            writable: page.writable,
            atomic: page.atomic,
        };
        self.entries[Self::index(space, vpn)] = Some(entry);
        entry
    }

    /// Forgets all of `space`.
    pub(super) fn invalidate_space(&mut self, space: SpaceId) {
        for e in self.entries.iter_mut() {
            if e.is_some_and(|e| e.space == space) {
                *e = None;
            }
        }
    }

    /// Forgets `pages` pages of 4 KiB from `va` on.
    pub(super) fn invalidate_range(&mut self, space: SpaceId, va: u64, pages: u64) {
        let first = va >> 12;
        if pages < ENTRIES as u64 {
            for vpn in first..first.saturating_add(pages) {
                let e = &mut self.entries[Self::index(space, vpn)];
                if e.is_some_and(|e| e.space == space && e.vpn == vpn) {
                    *e = None;
                }
            }
            return;
        }
        for e in self.entries.iter_mut() {
            if e.is_some_and(|e| e.space == space && e.vpn.wrapping_sub(first) < pages) {
                *e = None;
            }
        }
    }

    /// Drops the translations of all address spaces.
    pub(super) fn invalidate_all(&mut self) {
        self.entries.fill(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(at: u64, bytes: u64) -> Page {
        Page {
            base: Loc::vidmem(at),
            bytes,
            writable: true,
            atomic: false,
        }
    }

    #[test]
    fn keeps_the_right_part_of_a_large_page() {
        let mut t = Tlb::new().unwrap();
        let va = 0x7000_0000_5678;
        let e = t.insert(SpaceId(1), va, page(0x20_0000, 1 << 16));
        assert_eq!(e.base, Loc::vidmem(0x20_5000));
        assert_eq!(t.find(SpaceId(1), va), Some(e));
        assert_eq!(t.find(SpaceId(1), va + 0x1000), None);
        assert_eq!(t.find(SpaceId(2), va), None);
    }

    #[test]
    fn forgets_only_what_it_is_told() {
        for pages in [2, 3 * ENTRIES as u64] {
            let mut t = Tlb::new().unwrap();
            let base = 1 << 40;
            for s in [1, 2] {
                for i in 0..4 {
                    t.insert(SpaceId(s), base + i * 4096, page(0, 4096));
                }
            }
            t.invalidate_range(SpaceId(1), base + 4096, pages);
            let left = |s| {
                (0..4)
                    .filter(|i| t.find(SpaceId(s), base + i * 4096).is_some())
                    .count()
            };
            assert_eq!(left(1), if pages == 2 { 2 } else { 1 });
            assert_eq!(left(2), 4);
            t.invalidate_space(SpaceId(2));
            assert!(t.find(SpaceId(2), base).is_none());
            assert!(t.find(SpaceId(1), base).is_some());
            t.invalidate_all();
            assert!(t.find(SpaceId(1), base).is_none());
        }
    }
}
