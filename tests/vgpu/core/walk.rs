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

/// Finds the page of `va`.
pub(super) fn walk<M: Machine>(m: &M, pdb: Pdb, va: u64) -> Result<Page, Miss> {
    if va >= VA_END {
        return Err(PDE_FAULT);
    }
    let mut table = pdb.loc();
    for (high, low) in [(48, 47), (46, 38), (37, 29)] {
        let entry = read(m, table.plus(field(va, high, low) * 8))?;
        table = directory(entry, 8, 12).ok_or(PDE_FAULT)?;
    }
    let pde0 = table.plus(field(va, 28, 21) * 16);
    let big = read(m, pde0)?;
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
    let small = read(m, pde0.plus(8))?;
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
