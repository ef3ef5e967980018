// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Entries of version 2. Addresses in vidmem and in system memory have fields of their own.

use super::Format;
use super::Invalid;
use super::Miss;
use super::Page;
use super::Way;
use super::PDE_FAULT;
use crate::emu::bits::field;
use crate::emu::machine::Loc;
use crate::emu::machine::PeerId;

/// Version 2, from Pascal to GA100.
pub(super) struct V2;

/// What a page is where: aperture, encryption, privilege and kind of memory.
const WHERE: u64 = 0xff << 56 | 1 << 5 | 1 << 4 | 3 << 1;
/// Of these, ordinary memory of this GPU; of a peer; and of the system, which is coherent.
const VIDMEM: u64 = 0;
const PEER: u64 = 1 << 1;
const SYSMEM: u64 = 2 << 1;
/// The kind that ordinary memory has from Turing on. Up to Volta it is 0.
const GENERIC: u64 = 6 << 56;
const VIDMEM_GENERIC: u64 = VIDMEM | GENERIC;
const PEER_GENERIC: u64 = PEER | GENERIC;
const SYSMEM_GENERIC: u64 = SYSMEM | GENERIC;
/// The L2 keeps nothing of the page. Without it another's memory is cached, which is not coherent, and not emulated.
const VOLATILE: u64 = 1 << 3;
/// The same of tables, which have another number for vidmem.
const VIDMEM_TABLE: u64 = VOLATILE | 1 << 1;
const SYSMEM_TABLE: u64 = VOLATILE | 2 << 1;

impl Format for V2 {
    const VA_BITS: u32 = 49;
    const ROOT: usize = 3;

    #[inline(always)]
    fn follow(_: usize, entry: u64) -> Result<Way, Miss> {
        Self::small(entry).map(Way::Table)
    }

    #[inline(always)]
    fn big(entry: u64) -> Result<Option<Loc>, Miss> {
        table(entry, 4, 8)
    }

    #[inline(always)]
    fn small(entry: u64) -> Result<Loc, Miss> {
        table(entry, 8, 12)?.ok_or(PDE_FAULT)
    }

    #[inline(always)]
    fn page(entry: u64, bytes: u64) -> Result<Page, Miss> {
        let base = match entry & WHERE {
            VIDMEM | VIDMEM_GENERIC => Loc::vidmem(field(entry, 32, 8) << 12),
            SYSMEM | SYSMEM_GENERIC if entry & VOLATILE != 0 => {
                Loc::sysmem(field(entry, 53, 8) << 12)
            }
            PEER | PEER_GENERIC => peer(entry)?,
            _ => return Err(Miss::NotEmulated(entry)),
        };
        Ok(Page {
            base,
            bytes,
            writable: field(entry, 6, 6) == 0,
            atomic: field(entry, 7, 7) == 0,
        })
    }

    #[inline(always)]
    fn invalid(entry: u64) -> Invalid {
        // The privilege bit says that the table of 4 KiB pages does not count, the volatile bit "sparse".
        if field(entry, 5, 5) != 0 {
            Invalid::NoSmallPages
        } else if field(entry, 3, 3) != 0 {
            Invalid::Other
        } else {
            Invalid::Nothing
        }
    }
}

/// Where a page of a peer's memory starts.
#[cold]
#[inline(never)]
fn peer(entry: u64) -> Result<Loc, Miss> {
    // Bits of an address above its own are for GPUs behind a switch.
    if field(entry, 53, 36) != 0 || entry & VOLATILE == 0 {
        return Err(Miss::NotEmulated(entry));
    }
    let id = PeerId::of(field(entry, 35, 33));
    Ok(Loc::peer(id, field(entry, 32, 8) << 12))
}

/// The table a directory entry points to: its address field starts at bit `low`
/// and counts in units of 2^`shift` bytes.
#[inline(always)]
fn table(entry: u64, low: u32, shift: u32) -> Result<Option<Loc>, Miss> {
    match entry & (VOLATILE | 3 << 1) {
        // "Sparse" is as volatile as a table.
        0 => Ok(None),
        VIDMEM_TABLE => Ok(Some(Loc::vidmem(field(entry, 32, low) << shift))),
        SYSMEM_TABLE => Ok(Some(Loc::sysmem(field(entry, 53, low) << shift))),
        _ => Err(Miss::NotEmulated(entry)),
    }
}
