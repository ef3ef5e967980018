// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! TLBs that forget nothing unless told, so that a missing or too shallow invalidate shows.
//!
//! A GPU has two: one of all GPCs, for the SMs, and one of the hub, for the host and the copy
//! engines. Each keeps pages of their true size, entries that map no page, and the directory
//! entries of all levels, valid or not. A walk begins at the deepest directory entry that is
//! kept. As in hardware a page of 2 MiB is an entry of the lowest directory (PDE0), and one of
//! 512 MiB of the next one (PDE1).
//!
//! UVM invalidates on every permission change, so an access that the cached permissions do not
//! allow faults without looking at the tables again.

use super::space::SpaceId;
use super::walk::Directories;
use super::walk::FaultType;
use super::walk::Miss;
use super::walk::Page;
use super::walk::Pdb;
use super::walk::DIRECTORY_SHIFTS;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;
use core::ops::Deref;
use core::ops::DerefMut;

/// The sizes of pages, as shifts, and how many of each are kept.
const PAGES: [(u32, usize); 4] = [(12, 4096), (16, 1024), (21, 1024), (29, 64)];
/// How many directory entries are kept of each level.
const DIRECTORIES: [usize; DIRECTORY_SHIFTS.len()] = [1024, 256, 64, 8, 2];

/// What a page table says of an address: its page, or that an access to it faults.
pub(super) type Leaf = Result<Page, FaultType>;

/// Something that is known of so many bytes of an address space.
#[derive(Clone, Copy, Debug)]
struct Line<T> {
    space: SpaceId,
    number: u64,
    what: T,
}

/// Lines for one size of what they are about. It is direct-mapped, so what it holds depends on
/// the accesses only.
#[derive(Debug)]
struct Set<T> {
    shift: u32,
    /// How many lines are in use.
    used: usize,
    /// A bit per line that is in use, so that an invalidate of much looks at these alone.
    in_use: TryVec<u64>,
    lines: TryVec<Option<Line<T>>>,
}

impl<T: Copy> Set<T> {
    fn new(shift: u32, count: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            shift,
            used: 0,
            in_use: TryVec::filled(count.div_ceil(64), 0)?,
            lines: TryVec::filled(count, None)?,
        })
    }

    /// Where a line is; the number of lines is a power of two.
    #[inline(always)]
    fn index(&self, space: SpaceId, number: u64) -> usize {
        number.wrapping_add(space.0.wrapping_mul(0x9e37)) as usize & (self.lines.len() - 1)
    }

    #[inline(always)]
    fn find(&self, space: SpaceId, va: u64) -> Option<&T> {
        let number = va >> self.shift;
        match &self.lines[self.index(space, number)] {
            Some(l) if l.number == number && l.space == space => Some(&l.what),
            _ => None,
        }
    }

    fn insert(&mut self, space: SpaceId, va: u64, what: T) {
        let number = va >> self.shift;
        let index = self.index(space, number);
        let line = Line {
            space,
            number,
            what,
        };
        self.used += usize::from(self.lines[index].replace(line).is_none());
        self.in_use[index / 64] |= 1 << (index % 64);
    }

    /// Forgets the lines of `space`, or of all, that have something in common with the bytes
    /// from `first` to `last`.
    fn invalidate(&mut self, space: Option<SpaceId>, (first, last): (u64, u64)) {
        if self.used == 0 {
            return;
        }
        let (first, last) = (first >> self.shift, last >> self.shift);
        match space {
            Some(space) if last - first < self.lines.len() as u64 => {
                for number in first..=last {
                    self.drop_if(self.index(space, number), |l| {
                        l.number == number && l.space == space
                    });
                }
            }
            _ => self.drop_all(|l| {
                (first..=last).contains(&l.number) && space.is_none_or(|s| s == l.space)
            }),
        }
    }

    /// Forgets the lines of which `test` is true.
    fn drop_all(&mut self, test: impl Fn(&Line<T>) -> bool) {
        if self.used == 0 {
            return;
        }
        for word in 0..self.in_use.len() {
            let mut bits = self.in_use[word];
            while bits != 0 {
                self.drop_if(word * 64 + bits.trailing_zeros() as usize, &test);
                bits &= bits - 1;
            }
        }
    }

    #[inline(always)]
    fn drop_if(&mut self, index: usize, test: impl Fn(&Line<T>) -> bool) {
        let line = &mut self.lines[index];
        if line.as_ref().is_some_and(test) {
            *line = None;
            self.in_use[index / 64] &= !(1 << (index % 64));
            self.used -= 1;
        }
    }
}

/// What an invalidate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalidate {
    /// The page directory whose translations go; all of them go without.
    pub(super) pdb: Option<Pdb>,
    /// Address and number of 4 KiB pages; all addresses without.
    pub(super) range: Option<(u64, u64)>,
    /// Of how many levels of directories the entries go, from PDE0 up. Those of page tables go in
    /// any case.
    pub(super) levels: usize,
    /// Whether it is for the TLB of the GPCs as well as for the hub's.
    pub(super) gpcs: bool,
}

impl Invalidate {
    /// All translations of all levels: of one page directory, or of each.
    pub(super) fn all(pdb: Option<Pdb>) -> Self {
        Self {
            pdb,
            range: None,
            levels: DIRECTORIES.len(),
            gpcs: true,
        }
    }

    /// First and last address.
    pub(super) fn bytes(&self) -> (u64, u64) {
        match self.range {
            Some((va, pages)) => (va, va.saturating_add(pages.saturating_mul(4096) - 1)),
            None => (0, u64::MAX),
        }
    }
}

/// The TLB of the GPCs or of the hub: one element, which is on the heap, as the kernel's stack, on which the GPU is put
/// together, is small.
#[derive(Debug)]
pub(super) struct Tlb(TryVec<Sets>);

/// What a TLB keeps.
#[derive(Debug)]
pub(super) struct Sets {
    pages: [Set<Leaf>; PAGES.len()],
    directories: [Set<[u64; 2]>; DIRECTORIES.len()],
}

impl Deref for Tlb {
    type Target = Sets;

    #[inline(always)]
    fn deref(&self) -> &Sets {
        &self.0[0]
    }
}

impl DerefMut for Tlb {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Sets {
        &mut self.0[0]
    }
}

impl Tlb {
    #[inline(never)]
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        let pages = |i: usize| Set::new(PAGES[i].0, PAGES[i].1);
        let directories = |i: usize| Set::new(DIRECTORY_SHIFTS[i], DIRECTORIES[i]);
        let mut one = TryVec::with_capacity(1)?;
        one.push(Sets {
            pages: [pages(0)?, pages(1)?, pages(2)?, pages(3)?],
            directories: [
                directories(0)?,
                directories(1)?,
                directories(2)?,
                directories(3)?,
                directories(4)?,
            ],
        })?;
        Ok(Self(one))
    }

    /// What is kept of the page of `va`.
    #[inline(always)]
    pub(super) fn find(&self, space: SpaceId, va: u64) -> Option<&Leaf> {
        let [small, big, huge, giant] = &self.pages;
        if let Some(leaf) = small.find(space, va) {
            return Some(leaf);
        }
        let leaf = big.find(space, va).or_else(|| huge.find(space, va));
        if leaf.is_none() && giant.used > 0 {
            return giant.find(space, va);
        }
        leaf
    }

    /// Keeps what a walk for `va` found, if it is a page or that there is none.
    pub(super) fn insert(&mut self, space: SpaceId, va: u64, found: Result<Page, Miss>) {
        let [small, big, huge, giant] = &mut self.pages;
        match found {
            Ok(page) => {
                let set = match page.bytes {
                    0x1000 => small,
                    0x1_0000 => big,
                    0x20_0000 => huge,
                    _ => giant,
                };
                set.insert(space, va, Ok(page));
            }
            // The smallest size there is: hardware chooses any.
            Err(Miss::Fault(kind)) => small.insert(space, va, Err(kind)),
            Err(_) => {}
        }
    }

    /// The directory entries that are kept of `space`, for a walk.
    pub(super) fn directories(&mut self, space: SpaceId) -> Kept<'_> {
        Kept {
            space,
            sets: &mut self.directories,
        }
    }

    /// Forgets what `what` says of `space`, or of all.
    pub(super) fn invalidate(&mut self, space: Option<SpaceId>, what: &Invalidate) {
        let bytes = what.bytes();
        let [small, big, pde0, pde1] = &mut self.pages;
        small.invalidate(space, bytes);
        big.invalidate(space, bytes);
        for set in [pde0, pde1].into_iter().take(what.levels) {
            set.invalidate(space, bytes);
        }
        for set in self.directories.iter_mut().take(what.levels) {
            set.invalidate(space, bytes);
        }
    }

    /// Forgets everything of `space`.
    pub(super) fn forget(&mut self, space: SpaceId) {
        self.invalidate(Some(space), &Invalidate::all(None));
    }

    /// Forgets what says that there is no page.
    pub(super) fn forget_misses(&mut self) {
        let [small, ..] = &mut self.pages;
        small.drop_all(|l| l.what.is_err());
        for set in &mut self.directories {
            set.drop_all(|l| !super::walk::leads_on(&l.what));
        }
    }
}

/// The directory entries of one address space that a TLB keeps.
pub(super) struct Kept<'t> {
    space: SpaceId,
    sets: &'t mut [Set<[u64; 2]>; DIRECTORIES.len()],
}

impl Directories for Kept<'_> {
    fn find(&self, level: usize, va: u64) -> Option<[u64; 2]> {
        self.sets[level].find(self.space, va).copied()
    }

    fn keep(&mut self, level: usize, va: u64, entry: [u64; 2]) {
        self.sets[level].insert(self.space, va, entry);
    }
}

#[cfg(test)]
mod tests;
