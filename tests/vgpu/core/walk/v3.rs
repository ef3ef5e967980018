// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Entries of version 3. An address has the same place in all of them, and what else there is to
//! say is a number, the permission control flags (PCF).
//!
//! Some of these say whether the CPU's tables are asked as well (ATS), for which there is none
//! here; and whether a page's accesses are counted, which they are in any case.

use super::Format;
use super::Invalid;
use super::Miss;
use super::Page;
use super::Way;
use super::PDE1;
use super::PDE_FAULT;
use crate::emu::bits::field;
use crate::emu::machine::Loc;
use crate::emu::machine::PeerId;

/// Version 3, which Hopper and Blackwell have.
pub(super) struct V3;

/// What a page is: the kind of its memory, and the PCF's bit of a page that is not for users.
const WHAT: u64 = 0xf << 8 | 1 << 4;
/// Ordinary memory for users, the only one here.
const GENERIC: u64 = 6 << 8;
/// The PCF's bit of what the L2 does not keep. Without it another's memory is cached, which is not coherent, and not emulated.
const UNCACHED: u64 = 1 << 3;

/// The PCF of an invalid entry of a page table.
mod invalid {
    pub(super) const NOTHING: u64 = 0;
    pub(super) const NO_VALID_4KB_PAGE: u64 = 3;
}

impl Format for V3 {
    const VA_BITS: u32 = 57;
    const ROOT: usize = 4;

    fn follow(level: usize, entry: u64) -> Result<Way, Miss> {
        match (entry & 1, level) {
            (0, _) => Self::small(entry).map(Way::Table),
            (_, PDE1) => Self::page(entry, 1 << 29).map(Way::Page),
            _ => Err(Miss::NotEmulated(entry)),
        }
    }

    fn big(entry: u64) -> Result<Option<Loc>, Miss> {
        table(entry, 8)
    }

    fn small(entry: u64) -> Result<Loc, Miss> {
        table(entry, 12)?.ok_or(PDE_FAULT)
    }

    fn page(entry: u64, bytes: u64) -> Result<Page, Miss> {
        if entry & WHAT != GENERIC {
            return Err(Miss::NotEmulated(entry));
        }
        // What is above the address is a peer's number, or nothing. Bits of an address within the page do not count: NVIDIA's
        // driver sets some, in a test.
        let (at, start) = (field(entry, 63, 12) << 12, !(bytes - 1));
        let base = match field(entry, 2, 1) {
            0 if at >> 40 == 0 => Loc::vidmem(at & start),
            1 if field(entry, 60, 40) == 0 && entry & UNCACHED != 0 => Loc::peer(
                PeerId::of(field(entry, 63, 61)),
                field(entry, 39, 12) << 12 & start,
            ),
            2 if at >> 52 == 0 && entry & UNCACHED != 0 => Loc::sysmem(at & start),
            _ => return Err(Miss::NotEmulated(entry)),
        };
        Ok(Page {
            base,
            bytes,
            writable: field(entry, 5, 5) == 0,
            atomic: field(entry, 6, 6) == 0,
        })
    }

    fn invalid(entry: u64) -> Invalid {
        match field(entry, 7, 3) {
            invalid::NOTHING => Invalid::Nothing,
            invalid::NO_VALID_4KB_PAGE => Invalid::NoSmallPages,
            // Sparse, or mapped to nowhere; or no number that there is, as in an entry that has lost its valid bit alone.
            _ => Invalid::Other,
        }
    }
}

/// The table a directory entry points to, by an address whose lowest bit is `low`.
fn table(entry: u64, low: u32) -> Result<Option<Loc>, Miss> {
    let pcf = field(entry, 5, 3);
    let at = field(entry, 51, low) << low;
    match field(entry, 2, 1) {
        // Whether the CPU's tables are asked or not; an odd number says "sparse", or that the table is not cached.
        0 if pcf == 0 || pcf == 2 => Ok(None),
        1 if pcf == 1 || pcf == 3 => Ok(Some(Loc::vidmem(at))),
        2 if pcf == 1 || pcf == 3 => Ok(Some(Loc::sysmem(at))),
        _ => Err(Miss::NotEmulated(entry)),
    }
}
