// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The replayable fault buffer: a ring of 32-byte entries in memory that UVM
//! reads, with GET and PUT in the registers.
//!
//! The fault that meets a full buffer is dropped, as on hardware, and so are all others until UVM has made room and
//! then written that the overflow is over. What was dropped comes again with a replay.

use core::sync::atomic::Ordering;

use super::entries::Entries;
use super::gpu::reg;
use super::interrupt::Line;
use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Slot;
use super::personality::Personality;
use super::personality::UTLBS;
use super::personality::UTLBS_PER_GPC;
use super::walk::FaultType;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// GET and PUT count in their low 20 bits; UVM sets others of GET to clear conditions.
const INDEX_MASK: u32 = 0xf_ffff;
/// In PUT: faults are dropped. In GET: UVM wants this to end.
const OVERFLOW: u32 = 1 << 31;
/// Slots of the set of outstanding pages: at least twice what µTLBs may have
/// outstanding together.
const SET: usize = 16384;
/// Most outstanding faults of a µTLB; see [`SET`].
pub(super) const UTLB_FAULTS_MAX: u32 = 512;

/// How the faulting access wanted its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read = 0,
    Write = 1,
    Atomic = 2,
    Prefetch = 3,
}

/// An access that found no page, or no permission there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// Instance pointer of the channel.
    pub(super) instance: u64,
    pub(super) va: u64,
    pub(super) kind: FaultType,
    pub(super) access: Access,
    /// The µTLB that missed, below [`UTLBS`].
    pub(super) utlb: u32,
}

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The fault has an entry of its own now.
    Written {
        /// Its page had an entry already since the last replay.
        duplicate: bool,
    },
    /// The buffer is full, or was and UVM has not said that it knows: the fault is lost.
    Dropped,
    /// The buffer was found full because somebody asked for it: nothing in it would bring a replay.
    Full,
}

/// The GPU's side of the replayable fault buffer, of which UVM reads the other.
#[derive(Debug)]
pub(super) struct FaultBuffer {
    registers: Slot,
    pub(super) entries: Entries,
    count: u32,
    put: u32,
    /// Nothing is taken until UVM clears this.
    overflow: bool,
    pub(super) line: Line,
    /// Faults each µTLB waits for, since the last replay: at most [`UTLB_FAULTS_MAX`]. The GPU is put together on the kernel's stack, which
    /// is small.
    outstanding: [u16; UTLBS as usize],
    /// Pages faulted on since the last replay: hash table with linear probing of
    /// (round, instance + page); entries of other rounds are free.
    pages: TryVec<(u32, u64)>,
    round: u32,
    /// Injected: so many times to be found full.
    pub(super) pretend_full: u64,
}

impl FaultBuffer {
    pub(super) fn new<M: Machine>(
        m: &mut M,
        registers: Slot,
        count: u32,
    ) -> Result<Self, OutOfMemory> {
        let pages = TryVec::filled(SET, (0, 0))?;
        let entries = Entries::new(m, count)?;
        Ok(Self {
            registers,
            entries,
            count,
            put: 0,
            overflow: false,
            line: Line::default(),
            outstanding: [0; UTLBS as usize],
            pages,
            round: 1,
            pretend_full: 0,
        })
    }

    /// The buffer of entries.
    pub(super) fn slot(&self) -> Slot {
        self.entries.slot()
    }

    /// Empties the buffer, before UVM takes it over.
    pub(super) fn reset<M: Machine>(&mut self, m: &M) -> Result<(), BadAddress> {
        self.put = 0;
        self.overflow = false;
        self.entries.reset(m, self.count)?;
        m.store32(Loc::buffer(self.registers, reg::FAULT_GET), 0)?;
        m.store32(Loc::buffer(self.registers, reg::FAULT_PUT), 0)?;
        self.replay();
        Ok(())
    }

    /// Where the next entry goes.
    pub(super) fn put(&self) -> u32 {
        self.put
    }

    /// How many faults `utlb` waits for.
    pub(super) fn outstanding(&self, utlb: u32) -> u32 {
        self.outstanding[utlb as usize].into()
    }

    /// Everything that waited tries again: forgets who waits.
    pub(super) fn replay(&mut self) {
        self.outstanding = [0; UTLBS as usize];
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.pages.fill((0, 0));
            self.round = 1;
        }
    }

    /// Whether there is something to take note of in GET.
    pub(super) fn has_bits(get: u32) -> bool {
        get & !INDEX_MASK != 0
    }

    /// Takes note of the bits that UVM has written to GET since the last look, which read as 0 from then on. Gives the index.
    pub(super) fn look<M: Machine>(&mut self, m: &M) -> Result<u32, BadAddress> {
        let get = m.word32(Loc::buffer(self.registers, reg::FAULT_GET))?;
        let seen = get.load(Ordering::Acquire);
        if !Self::has_bits(seen) {
            return Ok(seen);
        }
        // One swap takes the bits and the index that they came with; UVM may write both meanwhile.
        let seen = get.fetch_and(INDEX_MASK, Ordering::AcqRel);
        self.line.stir();
        if self.overflow && seen & OVERFLOW != 0 {
            self.overflow = false;
            self.show_put(m)?;
        }
        Ok(seen & INDEX_MASK)
    }

    fn show_put<M: Machine>(&self, m: &M) -> Result<(), BadAddress> {
        let overflow = if self.overflow { OVERFLOW } else { 0 };
        let put = Loc::buffer(self.registers, reg::FAULT_PUT);
        m.store32(put, self.put | overflow)
    }

    /// Writes an entry, or says why not. A `late` one is written once it arrives.
    pub(super) fn write<M: Machine>(
        &mut self,
        m: &M,
        chip: &Personality,
        fault: &Fault,
        late: bool,
    ) -> Result<Put, BadAddress> {
        if self.pretend_full > 0 {
            if self.pretend_full != u64::MAX {
                self.pretend_full -= 1;
            }
            return Ok(Put::Full);
        }
        let next = if self.put + 1 < self.count {
            self.put + 1
        } else {
            0
        };
        let get = self.look(m)?;
        if self.overflow {
            return Ok(Put::Dropped);
        }
        if next == get {
            self.overflow = true;
            self.show_put(m)?;
            return Ok(Put::Dropped);
        }
        let entry = encode(fault, chip, m.now_ns());
        self.entries.write(m, self.put, entry, late)?;
        self.put = next;
        self.line.stir();
        self.show_put(m)?;
        self.outstanding[fault.utlb as usize] += 1;
        Ok(Put::Written {
            duplicate: self.remember(fault),
        })
    }

    /// Adds the fault's page to those of this round; true if it was among them.
    fn remember(&mut self, fault: &Fault) -> bool {
        let key = (fault.va >> 12) ^ (fault.instance << 16);
        let mut i = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize % SET;
        // At most UTLBS * UTLB_FAULTS_MAX = SET / 2 entries are of this round.
        for _ in 0..SET {
            let (round, page) = self.pages[i];
            if round != self.round {
                self.pages[i] = (self.round, key);
                return false;
            }
            if page == key {
                return true;
            }
            i = (i + 1) % SET;
        }
        false
    }
}

/// The first copy engine among the hub's clients (NV_PFAULT_CLIENT_HUB_CE0), by which UVM from 560 on knows a copy engine's fault.
const HUB_CE0: u32 = 1;

/// An entry of RM's: of an access of a copy engine, which is the hub's client, writes, and is not replayed.
pub(super) fn encode_copy(
    instance: u64,
    va: u64,
    kind: FaultType,
    chip: &Personality,
    now: u64,
) -> [u32; 8] {
    let (hub, enabled, valid) = (1 << 20, 1 << 30, 1 << 31);
    let what =
        kind as u32 | (HUB_CE0 << 8) | ((Access::Write as u32) << 16) | hub | enabled | valid;
    let engine = chip.copy_engine.unwrap_or(0);
    words(instance, va, now, engine, what)
}

fn encode(fault: &Fault, chip: &Personality, now: u64) -> [u32; 8] {
    let gpc = fault.utlb / UTLBS_PER_GPC;
    let client = chip.clients[(fault.utlb % UTLBS_PER_GPC) as usize];
    let replayable = (1 << 7) | (1 << 30);
    let valid = 1 << 31;
    let what = fault.kind as u32
        | (client << 8)
        | ((fault.access as u32) << 16)
        | (gpc << 24)
        | replayable
        | valid;
    words(fault.instance, fault.va, now, chip.graphics_engine, what)
}

/// An entry: channel, page, time, engine, and `what` happened.
fn words(instance: u64, va: u64, now: u64, engine: u32, what: u32) -> [u32; 8] {
    let va = va & !0xfff;
    [
        instance as u32 & !0xfff,
        (instance >> 32) as u32,
        va as u32,
        (va >> 32) as u32,
        now as u32,
        (now >> 32) as u32,
        engine,
        what,
    ]
}

#[cfg(test)]
mod tests;
