// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Access counters: SM accesses to system memory, counted by region; a region
//! that reaches the threshold is notified once, until UVM clears its counter.

use super::entries::Entries;
use super::gpu::reg;
use super::interrupt::Line;
use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Slot;
use super::personality::CounterAddress;
use super::personality::Personality;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// How many notifications the buffer has room for, less one.
pub(super) const ENTRIES: u32 = 256;
/// Counters. Two regions on one share it badly: the later takes it over.
const COUNTERS: usize = 256;
const APERTURE_SYSMEM: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// Region number, plus one; 0 is unused.
    region: u64,
    accesses: u32,
    /// A bit per 64 KiB accessed, of a 2 MiB region.
    parts: u32,
    notified: bool,
}

/// An access of an SM to system memory, which is what the counters count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) instance: u64,
    pub(super) va: u64,
    /// The address by which the GPU's DMA finds the page in system memory.
    pub(super) physical: u64,
}

/// The counters and the writer's side of the notification buffer.
#[derive(Debug)]
pub(super) struct AccessCounters {
    registers: Slot,
    pub(super) entries: Entries,
    put: u32,
    pub(super) line: Line,
    on: bool,
    threshold: u32,
    /// log2 of a region's bytes.
    shift: u32,
    counters: TryVec<Counter>,
}

impl AccessCounters {
    pub(super) fn new<M: Machine>(m: &mut M, registers: Slot) -> Result<Self, OutOfMemory> {
        let counters = TryVec::filled(COUNTERS, Counter::default())?;
        let entries = Entries::new(m, ENTRIES)?;
        Ok(Self {
            registers,
            entries,
            put: 0,
            line: Line::default(),
            on: false,
            threshold: 256,
            shift: 21,
            counters,
        })
    }

    /// The buffer of notifications.
    pub(super) fn slot(&self) -> Slot {
        self.entries.slot()
    }

    /// Empties the buffer, before UVM takes it over.
    pub(super) fn reset<M: Machine>(&mut self, m: &M) -> Result<(), BadAddress> {
        self.put = 0;
        self.on = false;
        self.entries.reset(m, ENTRIES)?;
        m.store32(Loc::buffer(self.registers, reg::COUNTER_GET), 0)?;
        m.store32(Loc::buffer(self.registers, reg::COUNTER_PUT), 0)
    }

    /// Starts counting. `granularity` is UVM's number for 64 KiB, 2 MiB, 16 MiB
    /// and 16 GiB, from 1; a threshold of 0 means 256.
    pub(super) fn enable(&mut self, granularity: u32, threshold: u32) {
        self.shift = match granularity {
            1 => 16,
            3 => 24,
            4 => 34,
            _ => 21,
        };
        self.threshold = if threshold == 0 { 256 } else { threshold };
        self.counters.fill(Counter::default());
        self.on = true;
    }

    /// Stops counting; the counters keep their values until [`Self::enable`].
    pub(super) fn disable(&mut self) {
        self.on = false;
    }

    /// Clears all counters, or the one that a notification's tag names.
    pub(super) fn clear(&mut self, tag: Option<u32>) {
        match tag {
            None => self.counters.fill(Counter::default()),
            Some(tag) => {
                if let Some(c) = self.counters.get_mut(tag as usize) {
                    *c = Counter::default();
                }
            }
        }
    }

    /// Where the next notification goes.
    pub(super) fn put(&self) -> u32 {
        self.put
    }

    /// Counts `n` accesses; true if UVM is told, by an entry that may be late.
    pub(super) fn count<M: Machine>(
        &mut self,
        m: &M,
        chip: &Personality,
        access: &Remote,
        n: u32,
        is_late: impl FnOnce() -> bool,
    ) -> Result<bool, BadAddress> {
        if !self.on {
            return Ok(false);
        }
        let address = match chip.counter_address {
            CounterAddress::Physical => access.physical,
            CounterAddress::Virtual => access.va,
        };
        let region = (address >> self.shift) + 1;
        let tag = (region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % COUNTERS;
        let c = &mut self.counters[tag];
        if c.region != region {
            *c = Counter {
                region,
                ..Counter::default()
            };
        }
        c.accesses = c.accesses.saturating_add(n);
        c.parts |= if self.shift == 21 {
            1 << ((address >> 16) & 31)
        } else {
            u32::MAX
        };
        if c.notified || c.accesses < self.threshold {
            return Ok(false);
        }
        let counter = *c;
        let next = (self.put + 1) % ENTRIES;
        if next == m.load32(Loc::buffer(self.registers, reg::COUNTER_GET))? {
            return Ok(false);
        }
        let entry = encode(chip, access, address, &counter, tag);
        self.entries.write(m, self.put, entry, is_late())?;
        m.store32(Loc::buffer(self.registers, reg::COUNTER_PUT), next)?;
        self.put = next;
        self.line.stir();
        self.counters[tag].notified = true;
        Ok(true)
    }
}

fn encode(
    chip: &Personality,
    access: &Remote,
    address: u64,
    counter: &Counter,
    tag: usize,
) -> [u32; 8] {
    let by_gpu = 1;
    let address_type = match chip.counter_address {
        CounterAddress::Physical => 1 << 1,
        CounterAddress::Virtual => 0,
    };
    let address = address & !0xffff;
    [
        by_gpu | address_type | (APERTURE_SYSMEM << 8) | (access.instance as u32 & !0xfff),
        (access.instance >> 32) as u32,
        address as u32,
        (address >> 32) as u32,
        counter.parts,
        tag as u32,
        counter.accesses.min(0xffff),
        (chip.graphics_engine << 20) | (1 << 31),
    ]
}

#[cfg(test)]
mod tests;
