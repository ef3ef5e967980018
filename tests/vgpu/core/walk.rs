// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Page tables of two versions: 2 (Volta to GA100) with 49 bits, and 3 (Hopper and Blackwell) with 57.
//!
//! | level | VA bits | entries | bytes |
//! |---|---|---|---|
//! | PDE4 | 56 | 2 | 8; version 3 alone has it |
//! | PDE3 | 55:47, or 48:47 in version 2 | 512, or 4 | 8 |
//! | PDE2 | 46:38 | 512 | 8 |
//! | PDE1 | 37:29 | 512 | 8: a table, or in version 3 one 512 MiB page |
//! | PDE0 | 28:21 | 256 | 16: a table of 64 KiB pages and one of 4 KiB pages, or one 2 MiB page |
//! | PTE | 20:16 or 20:12 | 32 or 512 | 8 |
//!
//! A level's number is that of its PDE. So it means the same in both versions, and to a TLB.
//! The walk is compiled once for each [`Format`], and asks which one it is for before its first step.

use super::bits::field;
use super::machine::load64;
use super::machine::Loc;
use super::machine::Machine;

mod v2;
mod v3;

/// The version of page tables that an MMU walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mmu {
    V2,
    V3,
}

impl Mmu {
    /// Bits of an address that page tables translate.
    pub(super) const fn va_bits(self) -> u32 {
        match self {
            Self::V2 => v2::V2::VA_BITS,
            Self::V3 => v3::V3::VA_BITS,
        }
    }

    /// First address that no page table covers.
    pub(super) const fn va_end(self) -> u64 {
        1 << self.va_bits()
    }

    /// Level of the root directory.
    pub(super) const fn root(self) -> usize {
        match self {
            Self::V2 => v2::V2::ROOT,
            Self::V3 => v3::V3::ROOT,
        }
    }
}

/// First address that the page tables of no GPU cover.
pub(super) const VA_END: u64 = Mmu::V3.va_end();

/// Where a page directory lies: UVM's page directory base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pdb {
    /// Byte address, 4 KiB aligned.
    pub(super) at: u64,
    /// Whether the directory is in vidmem; else it is in system memory.
    pub(super) vidmem: bool,
}

impl Pdb {
    fn loc(self) -> Loc {
        if self.vidmem {
            Loc::vidmem(self.at)
        } else {
            Loc::sysmem(self.at)
        }
    }
}

/// Why an access faults, in the numbers of a fault buffer entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultType {
    /// A table is missing at some level.
    InvalidPde = 0,
    /// The tables end in an entry that maps no page.
    InvalidPte = 2,
    /// Write or atomic to a read-only page.
    WriteToReadOnly = 6,
    /// Atomic to a page without atomics.
    AtomicDisabled = 15,
}

/// The page that a walk of the tables found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Where the page starts.
    pub(super) base: Loc,
    /// 4 KiB, 64 KiB or 2 MiB, and of version 3 also 512 MiB.
    pub(super) bytes: u64,
    /// Whether the page may be written.
    pub(super) writable: bool,
    /// Atomics are allowed, if writes are.
    pub(super) atomic: bool,
}

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// The access faults, as the tables say.
    Fault(FaultType),
    /// A table lies where there is no memory.
    BadTable(Loc),
    /// The entry, given here, asks for what is not emulated: memory behind a switch, a sparse page, a
    /// kind of memory, or a cache of what is not this GPU's.
    NotEmulated(u64),
}

const PDE_FAULT: Miss = Miss::Fault(FaultType::InvalidPde);
const PTE_FAULT: Miss = Miss::Fault(FaultType::InvalidPte);

/// Bits of an address below those that choose a directory's entry, by the directory's level.
pub(super) const DIRECTORY_SHIFTS: [u32; 5] = [21, 29, 38, 47, 56];
/// Level of the directory with two tables or a page to an entry.
const PDE0: usize = 0;
/// Level of the directory with a page of 512 MiB to an entry, in version 3.
const PDE1: usize = 1;

/// Directory entries that are kept from one walk to the next.
pub(super) trait Directories {
    /// The entry of `va` at `level`, if it is kept. Only entries of PDE0 have a second word.
    fn find(&self, level: usize, va: u64) -> Option<[u64; 2]>;

    /// Takes note of an entry that was read.
    fn keep(&mut self, level: usize, va: u64, entry: [u64; 2]);
}

/// Keeps no directory entry: each walk begins at the root.
struct NotKept;

impl Directories for NotKept {
    #[inline(always)]
    fn find(&self, _: usize, _: u64) -> Option<[u64; 2]> {
        None
    }

    #[inline(always)]
    fn keep(&mut self, _: usize, _: u64, _: [u64; 2]) {}
}

/// What an entry of a directory above PDE0 leads to.
enum Way {
    Table(Loc),
    Page(Page),
}

/// What an invalid page table entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    /// Nothing is mapped; of a 64 KiB page, the 4 KiB pages in its place count.
    Nothing,
    /// Nothing is mapped, by 4 KiB pages neither.
    NoSmallPages,
    /// What is not emulated.
    Other,
}

/// How one version's entries are read.
trait Format {
    /// Bits of an address that are translated.
    const VA_BITS: u32;
    /// Level of the root.
    const ROOT: usize;

    /// What an entry of the directory of `level`, above PDE0, leads to.
    fn follow(level: usize, entry: u64) -> Result<Way, Miss>;
    /// The table of 64 KiB pages, by the first word of an entry of PDE0.
    fn big(entry: u64) -> Result<Option<Loc>, Miss>;
    /// The table of 4 KiB pages, by the second word.
    fn small(entry: u64) -> Result<Loc, Miss>;
    /// The page of so many bytes, by an entry that is valid.
    fn page(entry: u64, bytes: u64) -> Result<Page, Miss>;
    /// What a page table's entry says that is not valid.
    fn invalid(entry: u64) -> Invalid;
}

/// Finds the page of `va`.
#[inline(always)]
pub(super) fn walk<M: Machine>(m: &M, mmu: Mmu, pdb: Pdb, va: u64) -> Result<Page, Miss> {
    walk_with(m, mmu, pdb, va, &mut NotKept)
}

/// Finds the page of `va`, from the lowest directory's entry on that is kept.
#[inline(always)]
pub(super) fn walk_with<M: Machine>(
    m: &M,
    mmu: Mmu,
    pdb: Pdb,
    va: u64,
    kept: &mut impl Directories,
) -> Result<Page, Miss> {
    match mmu {
        Mmu::V2 => walk_by::<v2::V2, M>(m, pdb, va, kept),
        Mmu::V3 => walk_v3(m, pdb, va, kept),
    }
}

/// Not a part of each caller, which is there for version 2 as well.
#[inline(never)]
fn walk_v3<M: Machine>(
    m: &M,
    pdb: Pdb,
    va: u64,
    kept: &mut impl Directories,
) -> Result<Page, Miss> {
    walk_by::<v3::V3, M>(m, pdb, va, kept)
}

fn walk_by<F: Format, M: Machine>(
    m: &M,
    pdb: Pdb,
    va: u64,
    kept: &mut impl Directories,
) -> Result<Page, Miss> {
    if va >> F::VA_BITS != 0 {
        return Err(PDE_FAULT);
    }
    let pde0 = match kept.find(PDE0, va) {
        Some(entry) => entry,
        None => {
            let at = match lowest::<F, M>(m, pdb, va, kept)? {
                Way::Table(table) => table.plus(field(va, 28, 21) * 16),
                Way::Page(page) => return Ok(page),
            };
            let entry = [read(m, at)?, read(m, at.plus(8))?];
            kept.keep(PDE0, va, entry);
            entry
        }
    };
    last_levels::<F, M>(m, pde0, va)
}

/// Where the lowest directory of `va` is, unless a page comes before it.
#[inline(always)]
fn lowest<F: Format, M: Machine>(
    m: &M,
    pdb: Pdb,
    va: u64,
    kept: &mut impl Directories,
) -> Result<Way, Miss> {
    let mut table = pdb.loc();
    let mut level = F::ROOT + 1;
    for l in PDE1..=F::ROOT {
        if let Some([entry, _]) = kept.find(l, va) {
            match F::follow(l, entry)? {
                Way::Table(t) => table = t,
                page => return Ok(page),
            }
            level = l;
            break;
        }
    }
    while level > PDE1 {
        level -= 1;
        // All that is left of an address at the root is its index there.
        let index = (va >> DIRECTORY_SHIFTS[level]) & 0x1ff;
        let entry = read(m, table.plus(index * 8))?;
        kept.keep(level, va, [entry, 0]);
        match F::follow(level, entry)? {
            Way::Table(t) => table = t,
            page => return Ok(page),
        }
    }
    Ok(Way::Table(table))
}

/// Finds the page of `va` by the lowest directory's entry.
#[inline(always)]
fn last_levels<F: Format, M: Machine>(
    m: &M,
    [big, small]: [u64; 2],
    va: u64,
) -> Result<Page, Miss> {
    if big & 1 != 0 {
        return F::page(big, 1 << 21);
    }
    if let Some(table) = F::big(big)? {
        let entry = read(m, table.plus(field(va, 20, 16) * 8))?;
        if entry & 1 != 0 {
            return F::page(entry, 1 << 16);
        }
        match F::invalid(entry) {
            Invalid::Nothing => {}
            Invalid::NoSmallPages => return Err(PTE_FAULT),
            Invalid::Other => return Err(Miss::NotEmulated(entry)),
        }
    }
    let entry = read(m, F::small(small)?.plus(field(va, 20, 12) * 8))?;
    if entry & 1 != 0 {
        return F::page(entry, 1 << 12);
    }
    Err(match F::invalid(entry) {
        Invalid::Nothing => PTE_FAULT,
        _ => Miss::NotEmulated(entry),
    })
}

/// Whether a directory's entry, of any level and version, leads to a table or a page.
pub(super) fn leads_on([big, small]: &[u64; 2]) -> bool {
    let leads = |entry| field(entry, 2, 1) != 0;
    big & 1 != 0 || leads(*big) || leads(*small)
}

fn read<M: Machine>(m: &M, at: Loc) -> Result<u64, Miss> {
    load64(m, at).map_err(|bad| Miss::BadTable(bad.0))
}

#[cfg(test)]
mod tests;
