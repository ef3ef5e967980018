// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The entries of a ring of the GPU's that UVM reads: of the fault buffer, and of the access counters' notifications.
//!
//! PUT may be ahead of them. So UVM has to wait for the valid bit, which is in an entry's last word.

use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Slot;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: u64 = 32;
/// Most entries of a ring that are written later than PUT says.
const LATE: usize = 16;

/// What is written of a fault or a notification.
pub(super) type Entry = [u32; 8];

/// The memory of a ring, and what is still on its way there.
#[derive(Debug)]
pub(super) struct Entries {
    slot: Slot,
    /// Entries before PUT that are not written yet: where, and what. Never more than there is room for.
    late: TryVec<(u32, Entry)>,
}

impl Entries {
    pub(super) fn new<M: Machine>(m: &mut M, count: u32) -> Result<Self, OutOfMemory> {
        let late = TryVec::with_capacity(LATE)?;
        let slot = m.alloc(u64::from(count) * ENTRY_BYTES)?;
        Ok(Self { slot, late })
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Clears all `count` entries, and loses those on their way.
    pub(super) fn reset<M: Machine>(&mut self, m: &M, count: u32) -> Result<(), BadAddress> {
        self.late.clear();
        let bytes = u64::from(count) * ENTRY_BYTES;
        m.fill(Loc::buffer(self.slot, 0), bytes, &[0], 0)
    }

    /// Writes an entry; a `late` one once it arrives, if there is room for one more.
    pub(super) fn write<M: Machine>(
        &mut self,
        m: &M,
        index: u32,
        entry: Entry,
        late: bool,
    ) -> Result<(), BadAddress> {
        if late && self.late.len() < LATE {
            // There is room.
            let _ = self.late.push((index, entry));
            return Ok(());
        }
        self.store(m, index, &entry)
    }

    fn store<M: Machine>(&self, m: &M, index: u32, entry: &Entry) -> Result<(), BadAddress> {
        let at = Loc::buffer(self.slot, u64::from(index) * ENTRY_BYTES);
        for (i, word) in entry.iter().enumerate() {
            // The last word holds the valid bit; UVM may look at it before PUT.
            m.store32(at.plus(4 * i as u64), *word)?;
        }
        Ok(())
    }

    /// How many entries are not written yet.
    pub(super) fn on_their_way(&self) -> usize {
        self.late.len()
    }

    /// Writes the entry that is number `i` of those that are not yet.
    pub(super) fn arrive<M: Machine>(&mut self, m: &M, i: usize) {
        if let Some((index, entry)) = self.late.swap_remove(i) {
            if let Err(bad) = self.store(m, index, &entry) {
                m.report(format_args!("vgpu: no entry at {}", bad.0));
            }
        }
    }

    /// Writes all entries that are not written yet.
    pub(super) fn all_arrive<M: Machine>(&mut self, m: &M) {
        while !self.late.is_empty() {
            self.arrive(m, 0);
        }
    }
}
