// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Address spaces: UVM's own, where RM's buffers live as well, and the users'.

use super::gpu::Error;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Slot;
use super::personality::Personality;
use super::tlb::Tlb;
use super::walk::walk;
use super::walk::walk_with;
use super::walk::FaultType;
use super::walk::Miss;
use super::walk::Mmu;
use super::walk::Page;
use super::walk::Pdb;
use crate::mem::TryVec;

/// Names an address space; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceId(pub u64);

const RM_ALIGN: u64 = 1 << 16;

/// Memory that RM gave UVM with an address in UVM's space.
#[derive(Clone, Copy, Debug)]
struct RmBuffer {
    va: u64,
    bytes: u64,
    slot: Slot,
}

/// One address space. It exists from AddressSpaceCreate or DupAddressSpace to
/// AddressSpaceDestroy.
#[derive(Debug)]
pub(super) struct AddressSpace {
    pub(super) id: SpaceId,
    /// The user's handle it was made from; `None` for UVM's own.
    pub(super) h_vaspace: Option<u32>,
    pub(super) pdb: Option<Pdb>,
    mmu: Mmu,
    /// The addresses below are those that UVM leaves to RM, which need no page tables: none in a
    /// user's space.
    rm_end: u64,
    buffers: TryVec<RmBuffer>,
    /// Where the next buffer may begin, and where the last one has to end.
    next_va: u64,
    last_va: u64,
    /// Index of the buffer found last: channels go through one at a time.
    last: usize,
}

impl AddressSpace {
    pub(super) fn new(id: SpaceId, h_vaspace: Option<u32>, chip: &Personality) -> Self {
        let (next_va, last_va) = chip.rm_buffers;
        Self {
            id,
            h_vaspace,
            pdb: None,
            mmu: chip.mmu,
            rm_end: h_vaspace.map_or(chip.rm_end, |_| 0),
            buffers: TryVec::new(),
            next_va,
            last_va,
            last: 0,
        }
    }

    /// Gives `slot`, `bytes` long, an address that is a multiple of `align`, a
    /// power of two.
    pub(super) fn add_buffer(&mut self, slot: Slot, bytes: u64, align: u64) -> Result<u64, Error> {
        let align = align.max(RM_ALIGN);
        let va = self
            .next_va
            .checked_next_multiple_of(align)
            .ok_or(Error::Invalid)?;
        let end = va
            .checked_add(bytes)
            .filter(|&e| e <= self.last_va)
            .ok_or(Error::NoMemory)?;
        self.buffers
            .push(RmBuffer { va, bytes, slot })
            .map_err(|_| Error::NoMemory)?;
        self.next_va = end;
        Ok(va)
    }

    /// The buffer that starts at `va`.
    pub(super) fn buffer_at(&self, va: u64) -> Option<Slot> {
        self.buffers.iter().find(|b| b.va == va).map(|b| b.slot)
    }

    /// Takes the buffer at `va` out.
    pub(super) fn remove_buffer(&mut self, va: u64) -> Option<Slot> {
        let i = self.buffers.iter().position(|b| b.va == va)?;
        self.buffers.swap_remove(i).map(|b| b.slot)
    }

    /// Takes any buffer out.
    pub(super) fn take_buffer(&mut self) -> Option<Slot> {
        self.buffers.pop().map(|b| b.slot)
    }

    /// Where `va` lies in RM's buffers, and how far the buffer goes on.
    #[inline(always)]
    pub(super) fn find_buffer(&mut self, va: u64) -> Option<(Loc, u64)> {
        let hit = |b: &RmBuffer| va >= b.va && va - b.va < b.bytes;
        if !self.buffers.get(self.last).is_some_and(hit) {
            self.last = self.buffers.iter().position(hit)?;
        }
        let b = self.buffers[self.last];
        Some((Loc::buffer(b.slot, va - b.va), b.bytes - (va - b.va)))
    }

    /// Whether `va` is of the addresses that UVM leaves to RM, which need no page tables.
    #[inline(always)]
    pub(super) fn is_rms(&self, va: u64) -> bool {
        va < self.rm_end
    }

    /// Walks the page tables.
    pub(super) fn page<M: Machine>(&self, m: &M, va: u64) -> Result<Page, Miss> {
        match self.pdb {
            Some(pdb) => walk(m, self.mmu, pdb, va),
            None => Err(Miss::Fault(FaultType::InvalidPde)),
        }
    }

    /// Walks the page tables, unless `tlb` has the page. What is found stays there.
    pub(super) fn cached_page<M: Machine>(
        &self,
        m: &M,
        tlb: &mut Tlb,
        va: u64,
    ) -> Result<Page, Miss> {
        if let Some(leaf) = tlb.find(self.id, va) {
            return leaf.map_err(Miss::Fault);
        }
        let Some(pdb) = self.pdb else {
            return Err(Miss::Fault(FaultType::InvalidPde));
        };
        let found = walk_with(m, self.mmu, pdb, va, &mut tlb.directories(self.id));
        tlb.insert(self.id, va, found);
        found
    }
}

/// Why an engine's address leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Of those that UVM leaves to RM, but in none of RM's buffers.
    NoBuffer,
    /// The page tables have no page.
    Miss(Miss),
    /// The page is mapped to what is not memory.
    NotMemory(Loc),
}
