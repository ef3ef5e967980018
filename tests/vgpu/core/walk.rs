// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Page tables, MMU version 2 (Pascal to GA100): 49 bits, five levels.
//!
//! | level | VA bits | entries | bytes |
//! |---|---|---|---|
//! | PDE3 | 48:47 | 4 | 8 |
//! | PDE2 | 46:38 | 512 | 8 |
//! | PDE1 | 37:29 | 512 | 8 |
//! | PDE0 | 28:21 | 256 | 16: a table of 64 KiB pages and one of 4 KiB pages, or one 2 MiB page |
//! | PTE | 20:16 or 20:12 | 32 or 512 | 8 |

use super::bits::field;
use super::machine::load64;
use super::machine::Loc;
use super::machine::Machine;

/// First address that no page table covers.
pub(super) const VA_END: u64 = 1 << 49;

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
    /// 4 KiB, 64 KiB or 2 MiB.
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
    /// The page table entry, given here, asks for what is not emulated: a peer's
    /// memory, or a sparse page.
    NotEmulated(u64),
}

const PDE_FAULT: Miss = Miss::Fault(FaultType::InvalidPde);
const PTE_FAULT: Miss = Miss::Fault(FaultType::InvalidPte);

/// Bits of an address below those that choose a directory's entry, from the root on.
pub(super) const DIRECTORY_SHIFTS: [u32; 4] = [47, 38, 29, 21];
/// Depth of the directory with two tables or a page to an entry.
const PDE0: usize = 3;

/// Directory entries that are kept from one walk to the next.
pub(super) trait Directories {
    /// The entry of `va` at `depth`, if it is kept. Only entries of depth 3 have a second word.
    fn find(&self, depth: usize, va: u64) -> Option<[u64; 2]>;

    /// Takes note of an entry that was read.
    fn keep(&mut self, depth: usize, va: u64, entry: [u64; 2]);
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

/// Finds the page of `va`.
pub(super) fn walk<M: Machine>(m: &M, pdb: Pdb, va: u64) -> Result<Page, Miss> {
    walk_with(m, pdb, va, &mut NotKept)
}

/// Finds the page of `va`, from the deepest directory entry on that is kept.
pub(super) fn walk_with<M: Machine>(
    m: &M,
    pdb: Pdb,
    va: u64,
    kept: &mut impl Directories,
) -> Result<Page, Miss> {
    if va >= VA_END {
        return Err(PDE_FAULT);
    }
    let pde0 = match kept.find(PDE0, va) {
        Some(entry) => entry,
        None => {
            let at = pde0(m, pdb, va, kept)?;
            let entry = [read(m, at)?, read(m, at.plus(8))?];
            kept.keep(PDE0, va, entry);
            entry
        }
    };
    last_levels(m, pde0, va)
}

/// Where the lowest directory's entry of `va` is.
#[inline(always)]
fn pde0<M: Machine>(m: &M, pdb: Pdb, va: u64, kept: &mut impl Directories) -> Result<Loc, Miss> {
    let mut table = pdb.loc();
    let mut depth = 0;
    for d in (0..PDE0).rev() {
        if let Some([entry, _]) = kept.find(d, va) {
            table = directory(entry, 8, 12).ok_or(PDE_FAULT)?;
            depth = d + 1;
            break;
        }
    }
    while depth < PDE0 {
        let bits = if depth == 0 { 2 } else { 9 };
        let index = (va >> DIRECTORY_SHIFTS[depth]) & ((1 << bits) - 1);
        let entry = read(m, table.plus(index * 8))?;
        kept.keep(depth, va, [entry, 0]);
        table = directory(entry, 8, 12).ok_or(PDE_FAULT)?;
        depth += 1;
    }
    Ok(table.plus(field(va, 28, 21) * 16))
}

/// Finds the page of `va` by the lowest directory's entry.
#[inline(always)]
fn last_levels<M: Machine>(m: &M, [big, small]: [u64; 2], va: u64) -> Result<Page, Miss> {
    if big & 1 != 0 {
        return page(big, 1 << 21);
    }
    if let Some(table) = directory(big, 4, 8) {
        let entry = read(m, table.plus(field(va, 20, 16) * 8))?;
        if entry & 1 != 0 {
            return page(entry, 1 << 16);
        }
        // Invalid with the privilege bit: not mapped, and the table of 4 KiB
        // pages does not count.
        if field(entry, 5, 5) != 0 {
            return Err(PTE_FAULT);
        }
        if is_sparse(entry) {
            return Err(Miss::NotEmulated(entry));
        }
    }
    let table = directory(small, 8, 12).ok_or(PDE_FAULT)?;
    let entry = read(m, table.plus(field(va, 20, 12) * 8))?;
    if entry & 1 != 0 {
        page(entry, 1 << 12)
    } else if is_sparse(entry) {
        Err(Miss::NotEmulated(entry))
    } else {
        Err(PTE_FAULT)
    }
}

/// Whether a directory's entry, of any depth, leads to a table or a page.
pub(super) fn leads_on([big, small]: &[u64; 2]) -> bool {
    let leads = |entry| field(entry, 2, 1) != 0;
    big & 1 != 0 || leads(*big) || leads(*small)
}

fn read<M: Machine>(m: &M, at: Loc) -> Result<u64, Miss> {
    load64(m, at).map_err(|bad| Miss::BadTable(bad.0))
}

/// The table a directory entry points to: its address field starts at bit `low`
/// and counts in units of 2^`shift` bytes.
fn directory(entry: u64, low: u32, shift: u32) -> Option<Loc> {
    match field(entry, 2, 1) {
        0 => None,
        1 => Some(Loc::vidmem(field(entry, 32, low) << shift)),
        _ => Some(Loc::sysmem(field(entry, 53, low) << shift)),
    }
}

fn page(entry: u64, bytes: u64) -> Result<Page, Miss> {
    let base = match field(entry, 2, 1) {
        0 => Loc::vidmem(field(entry, 32, 8) << 12),
        1 => return Err(Miss::NotEmulated(entry)),
        _ => Loc::sysmem(field(entry, 53, 8) << 12),
    };
    Ok(Page {
        base,
        bytes,
        writable: field(entry, 6, 6) == 0,
        atomic: field(entry, 7, 7) == 0,
    })
}

/// Invalid and volatile at once, which is how an entry says "sparse".
fn is_sparse(entry: u64) -> bool {
    entry & 1 == 0 && field(entry, 3, 3) != 0
}

#[cfg(test)]
mod tests;
