// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Methods of the host engine: semaphores, membars, TLB invalidates with their
//! replays and cancels, access counter clears.

use super::bits::bit32;
use super::bits::field32;
use super::bits::join;
use super::channel::Channel;
use super::channel::Step;
use super::channel::Trouble;
use super::gpu::reg;
use super::gpu::Hw;
use super::machine::Loc;
use super::machine::Machine;
use super::walk::Pdb;

/// The methods of the host engine, by their byte addresses.
mod method {
    pub(super) const SET_OBJECT: u32 = 0x0;
    pub(super) const SEMAPHORE_A: u32 = 0x10;
    pub(super) const SEMAPHORE_B: u32 = 0x14;
    pub(super) const SEMAPHORE_C: u32 = 0x18;
    pub(super) const SEMAPHORE_D: u32 = 0x1c;
    pub(super) const NON_STALL_INTERRUPT: u32 = 0x20;
    pub(super) const MEM_OP_A: u32 = 0x28;
    pub(super) const MEM_OP_B: u32 = 0x2c;
    pub(super) const MEM_OP_C: u32 = 0x30;
    pub(super) const MEM_OP_D: u32 = 0x34;
    pub(super) const SEM_ADDR_LO: u32 = 0x5c;
    pub(super) const SEM_ADDR_HI: u32 = 0x60;
    pub(super) const SEM_PAYLOAD_LO: u32 = 0x64;
    pub(super) const SEM_PAYLOAD_HI: u32 = 0x68;
    pub(super) const SEM_EXECUTE: u32 = 0x6c;
    pub(super) const WFI: u32 = 0x78;
    pub(super) const CLEAR_FAULTED: u32 = 0x84;
}

/// MEM_OP_D of an access counter clear: which counters, in bits 1:0.
mod clear {
    pub(super) const MIMC: u32 = 0;
    pub(super) const ALL: u32 = 2;
    pub(super) const TARGETED: u32 = 3;
    /// Bit 2 of a targeted clear; set, it means a MOMC counter.
    pub(super) const TARGETED_MIMC: bool = false;
}

/// UVM's software class, the only other object it sets.
const CLASS_UVM_SW: u32 = 0xc076;

/// The last value of each host method.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostRegisters([u32; 64]);

impl Default for HostRegisters {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl HostRegisters {
    fn get(&self, method: u32) -> u32 {
        self.0[method as usize / 4]
    }
}

impl Channel {
    /// Executes a host method; `address` is below 0x100.
    pub(super) fn host_method<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        address: u32,
        value: u32,
    ) -> Result<Step, Trouble> {
        self.host.0[address as usize / 4] = value;
        match address {
            method::SET_OBJECT => {
                let class = value & 0xffff;
                if class != hw.chip.ce_class && class != CLASS_UVM_SW {
                    return Err(Trouble::NotEmulated("object class"));
                }
            }
            // Everything executes in order, and no channel of UVM's can be
            // stopped by a fault: nothing to wait for, nothing to resume.
            method::NON_STALL_INTERRUPT | method::WFI | method::CLEAR_FAULTED => {}
            method::MEM_OP_A
            | method::MEM_OP_B
            | method::MEM_OP_C
            | method::SEM_ADDR_LO
            | method::SEM_ADDR_HI
            | method::SEM_PAYLOAD_LO
            | method::SEM_PAYLOAD_HI => {}
            method::MEM_OP_D => self.mem_op(hw, value)?,
            method::SEM_EXECUTE => return self.sem_execute(hw, value),
            method::SEMAPHORE_A | method::SEMAPHORE_B | method::SEMAPHORE_C
                if hw.chip.old_semaphores => {}
            method::SEMAPHORE_D if hw.chip.old_semaphores => {
                return self.semaphore_d(hw, value);
            }
            _ => return Err(Trouble::UnknownMethod),
        }
        Ok(Step::Done)
    }

    /// Executes the semaphore operation of Volta and later, with its payload in registers of its
    /// own.
    fn sem_execute<M: Machine>(&mut self, hw: &mut Hw<M>, value: u32) -> Result<Step, Trouble> {
        let high = self.host.get(method::SEM_ADDR_HI) & 0xff;
        let va = join(high, self.host.get(method::SEM_ADDR_LO) & !3);
        let payload = self.host.get(method::SEM_PAYLOAD_LO);
        if bit32(value, 24) {
            return Err(Trouble::NotEmulated("64 bit semaphore"));
        }
        match field32(value, 2, 0) {
            1 => self.release(hw, va, payload, bit32(value, 25)),
            3 => self.acquire(hw, va, payload),
            _ => Err(Trouble::NotEmulated("semaphore operation")),
        }
    }

    /// Semaphores up to Volta.
    fn semaphore_d<M: Machine>(&mut self, hw: &mut Hw<M>, value: u32) -> Result<Step, Trouble> {
        let high = self.host.get(method::SEMAPHORE_A) & 0xff;
        let va = join(high, self.host.get(method::SEMAPHORE_B) & !3);
        let payload = self.host.get(method::SEMAPHORE_C);
        match field32(value, 4, 0) {
            2 => self.release(hw, va, payload, !bit32(value, 24)),
            4 => self.acquire(hw, va, payload),
            _ => Err(Trouble::NotEmulated("semaphore operation")),
        }
    }

    /// Writes `payload`, with the time after it if `timestamp`.
    pub(super) fn release<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        va: u64,
        payload: u32,
        timestamp: bool,
    ) -> Result<Step, Trouble> {
        let bytes = if timestamp { 16 } else { 4 };
        let at = self.semaphore(hw, va, bytes, true)?;
        if timestamp {
            let now = hw.m.now_ns();
            for (i, word) in [(1, 0), (2, now as u32), (3, (now >> 32) as u32)] {
                hw.m.store32(at.plus(4 * i), word)
                    .map_err(Trouble::at("semaphore"))?;
            }
            // The time must not be behind what a semaphore shows.
            hw.set_time(now);
        }
        hw.m.store32(at, payload)
            .map_err(Trouble::at("semaphore"))?;
        hw.stats.semaphore_releases += 1;
        Ok(Step::Done)
    }

    /// Passes once the semaphore has reached `payload`, modulo 2^32.
    fn acquire<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        va: u64,
        payload: u32,
    ) -> Result<Step, Trouble> {
        let at = self.semaphore(hw, va, 4, false)?;
        let seen = hw.m.load32(at).map_err(Trouble::at("semaphore"))?;
        let ahead = seen.wrapping_sub(payload) as i32;
        Ok(if ahead < 0 { Step::Blocked } else { Step::Done })
    }

    /// Finds `bytes` bytes of a semaphore.
    pub(super) fn semaphore<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        va: u64,
        bytes: u64,
        write: bool,
    ) -> Result<Loc, Trouble> {
        let (at, extent) = hw.locate(self.space, va, write, "semaphore")?;
        if extent < bytes {
            return Err(Trouble::NotMemory("end of semaphore", at.plus(extent)));
        }
        if write {
            hw.mark_dirty(at, bytes);
        }
        Ok(at)
    }

    /// MEM_OP_D executes what A to D together describe.
    fn mem_op<M: Machine>(&mut self, hw: &mut Hw<M>, d: u32) -> Result<(), Trouble> {
        let c = self.host.get(method::MEM_OP_C);
        match field32(d, 31, 27) {
            0x05 => hw.stats.membars += 1,
            0x09 => self.tlb_invalidate(hw, d, false)?,
            0x0a => self.tlb_invalidate(hw, d, true)?,
            0x16 => {
                hw.stats.access_clears += 1;
                let tag = field32(c, 19, 0);
                // There are no MOMC counters to clear, nor one that a tag could name.
                match (field32(d, 1, 0), bit32(d, 2)) {
                    (clear::MIMC | clear::ALL, _) => hw.counters.clear(None),
                    (clear::TARGETED, clear::TARGETED_MIMC) => hw.counters.clear(Some(tag)),
                    _ => {}
                }
            }
            _ => return Err(Trouble::NotEmulated("memory operation")),
        }
        Ok(())
    }

    fn tlb_invalidate<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        d: u32,
        targeted: bool,
    ) -> Result<(), Trouble> {
        let (a, b, c) = (
            self.host.get(method::MEM_OP_A),
            self.host.get(method::MEM_OP_B),
            self.host.get(method::MEM_OP_C),
        );
        let pdb = Pdb {
            at: join(field32(d, 26, 0), c & !0xfff),
            vidmem: field32(c, 11, 10) == 0,
        };
        let va = join(b, a & !0xfff);
        match field32(c, 4, 2) {
            replay @ 0..=2 => {
                if targeted {
                    hw.stats.tlb_invalidates_targeted += 1;
                } else {
                    hw.stats.tlb_invalidates_all += 1;
                }
                // Drivers from 570 on ask for it here, where others push one more operation.
                if bit32(a, 11) {
                    hw.stats.membars += 1;
                }
                let all_spaces = bit32(c, 0);
                let pages = 1u64.checked_shl(field32(a, 5, 0)).unwrap_or(u64::MAX);
                let start = va & !pages.saturating_mul(4096).wrapping_sub(1);
                hw.invalidate(
                    (!all_spaces).then_some(pdb),
                    targeted.then_some((start, pages)),
                );
                match replay {
                    1 => hw.stats.replays_start += 1,
                    2 => hw.stats.replays_ack += 1,
                    _ => return Ok(()),
                }
                hw.replay();
            }
            4 => {
                hw.stats.cancels_global += 1;
                hw.cancel_all();
            }
            5 => {
                hw.stats.cancels_va += 1;
                hw.cancel(pdb, va, field32(c, 9, 7));
            }
            _ => return Err(Trouble::NotEmulated("targeted cancel")),
        }
        Ok(())
    }

    /// Wraps a counter: a semaphore reduction of the copy engine.
    pub(super) fn increment<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        va: u64,
        limit: u32,
    ) -> Result<(), Trouble> {
        let at = self.semaphore(hw, va, 4, true)?;
        let seen = hw.m.load32(at).map_err(Trouble::at("semaphore"))?;
        let next = if seen >= limit { 0 } else { seen + 1 };
        hw.m.store32(at, next).map_err(Trouble::at("semaphore"))?;
        hw.stats.semaphore_releases += 1;
        Ok(())
    }
}

impl<M: Machine> Hw<M> {
    /// Shows `now` in the time registers.
    pub(super) fn set_time(&self, now: u64) {
        let low = self
            .m
            .store32(Loc::buffer(self.registers, reg::TIME_LOW), now as u32);
        let high = self.m.store32(
            Loc::buffer(self.registers, reg::TIME_HIGH),
            (now >> 32) as u32,
        );
        if low.is_err() || high.is_err() {
            self.m
                .report(format_args!("vgpu{}: no time registers", self.index));
        }
    }
}

#[cfg(test)]
mod tests;
