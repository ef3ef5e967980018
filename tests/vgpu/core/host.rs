// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Methods of the host engine: semaphores, membars, TLB invalidates with their
//! replays and cancels, access counter clears.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;

use super::bits::bit32;
use super::bits::field32;
use super::bits::join;
use super::bits::mask32;
use super::channel::Channel;
use super::channel::Step;
use super::channel::Trouble;
use super::gpu::reg;
use super::gpu::Hw;
use super::late::Who;
use super::machine::Loc;
use super::machine::Machine;
use super::personality::Personality;
use super::tlb::Invalidate;
use super::walk::Mmu;
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

/// The bits of words that belong to a field, by NVIDIA's class headers. The rest must be zero.
mod known {
    use super::mask32;

    pub(super) const SET_OBJECT: u32 = mask32(20, 0);
    pub(super) const SEMAPHORE_LOW: u32 = mask32(31, 2);
    pub(super) const WFI: u32 = mask32(0, 0);
    /// Operation, size, and whether to wait for the engine.
    pub(super) const SEM_RELEASE: u32 = mask32(2, 0) | mask32(20, 20) | mask32(25, 24);
    /// Operation, and whether other channels go on meanwhile, which they do.
    pub(super) const SEM_ACQUIRE: u32 = mask32(2, 0) | mask32(12, 12) | mask32(24, 24);
    pub(super) const OLD_RELEASE: u32 = mask32(4, 0) | mask32(20, 20) | mask32(24, 24);
    pub(super) const OLD_ACQUIRE: u32 = mask32(4, 0) | mask32(12, 12);
    pub(super) const MEMBAR: u32 = mask32(0, 0);
    /// MEM_OP_A: whether a membar follows.
    pub(super) const INVALIDATE: u32 = mask32(11, 11);
    /// MEM_OP_A: address and size beside it.
    pub(super) const TARGETED: u32 = INVALIDATE | mask32(31, 12) | mask32(5, 0);
    /// MEM_OP_A of an invalidate without a replay, from Ampere on: which TLBs.
    pub(super) const SCOPE: u32 = mask32(7, 6);
    /// MEM_OP_A: address, beside the MMU engine.
    pub(super) const CANCEL: u32 = INVALIDATE | mask32(31, 12);
    pub(super) const CLEAR: u32 = mask32(1, 0);
    /// MEM_OP_D: type and bank beside it.
    pub(super) const CLEAR_TARGETED: u32 = mask32(6, 0);
    /// MEM_OP_C of a clear: which counter, if it is targeted.
    pub(super) const CLEAR_TAG: u32 = mask32(19, 0);
    /// MEM_OP_D, whatever the operation.
    pub(super) const OPERATION: u32 = mask32(31, 27);
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
                Trouble::unless_known("SET_OBJECT", value, known::SET_OBJECT)?;
                let class = value & 0xffff;
                if class != hw.chip.ce_class && class != CLASS_UVM_SW {
                    return Err(Trouble::NotEmulated("object class"));
                }
            }
            method::WFI => {
                Trouble::unless_known("WFI", value, known::WFI)?;
                hw.complete(self.id);
            }
            method::NON_STALL_INTERRUPT => {}
            method::CLEAR_FAULTED => hw.clear_faulted(value),
            method::SEM_ADDR_LO => {
                Trouble::unless_known("SEM_ADDR_LO", value, known::SEMAPHORE_LOW)?;
            }
            method::SEM_ADDR_HI => {
                Trouble::unless_known("SEM_ADDR_HI", value, hw.chip.host_upper())?;
            }
            method::MEM_OP_A
            | method::MEM_OP_B
            | method::MEM_OP_C
            | method::SEM_PAYLOAD_LO
            | method::SEM_PAYLOAD_HI => {}
            method::MEM_OP_D => self.mem_op(hw, value)?,
            method::SEM_EXECUTE => return self.sem_execute(hw, value),
            method::SEMAPHORE_A if hw.chip.old_semaphores => {
                Trouble::unless_known("SEMAPHORE_A", value, hw.chip.host_upper())?;
            }
            method::SEMAPHORE_B if hw.chip.old_semaphores => {
                Trouble::unless_known("SEMAPHORE_B", value, known::SEMAPHORE_LOW)?;
            }
            method::SEMAPHORE_C if hw.chip.old_semaphores => {}
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
        let high = self.host.get(method::SEM_ADDR_HI);
        let va = join(high, self.host.get(method::SEM_ADDR_LO));
        let payload = self.host.get(method::SEM_PAYLOAD_LO);
        if bit32(value, 24) {
            return Err(Trouble::NotEmulated("64 bit semaphore"));
        }
        match field32(value, 2, 0) {
            1 => {
                Trouble::unless_known("SEM_EXECUTE", value, known::SEM_RELEASE)?;
                if bit32(value, 20) {
                    hw.complete(self.id);
                }
                self.release(hw, va, payload, bit32(value, 25))
            }
            3 => {
                Trouble::unless_known("SEM_EXECUTE", value, known::SEM_ACQUIRE)?;
                self.acquire(hw, va, payload)
            }
            _ => Err(Trouble::NotEmulated("semaphore operation")),
        }
    }

    /// Semaphores up to Volta.
    fn semaphore_d<M: Machine>(&mut self, hw: &mut Hw<M>, value: u32) -> Result<Step, Trouble> {
        let high = self.host.get(method::SEMAPHORE_A);
        let va = join(high, self.host.get(method::SEMAPHORE_B));
        let payload = self.host.get(method::SEMAPHORE_C);
        match field32(value, 4, 0) {
            2 => {
                Trouble::unless_known("SEMAPHORE_D", value, known::OLD_RELEASE)?;
                // Here the bit says not to wait.
                if !bit32(value, 20) {
                    hw.complete(self.id);
                }
                self.release(hw, va, payload, !bit32(value, 24))
            }
            4 => {
                Trouble::unless_known("SEMAPHORE_D", value, known::OLD_ACQUIRE)?;
                self.acquire(hw, va, payload)
            }
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
        hw.settle(Who::Channel(self.id), at, bytes);
        if write {
            hw.mark_dirty(at, bytes);
        }
        Ok(at)
    }

    /// MEM_OP_D executes what A to D together describe.
    fn mem_op<M: Machine>(&mut self, hw: &mut Hw<M>, d: u32) -> Result<(), Trouble> {
        match field32(d, 31, 27) {
            0x05 => {
                self.mem_op_bits(0, 0, known::MEMBAR, known::OPERATION)?;
                hw.stats.membars += 1;
                hw.membar(self.id, !bit32(self.host.get(method::MEM_OP_C), 0));
            }
            0x09 => self.tlb_invalidate(hw, d, false)?,
            0x0a => self.tlb_invalidate(hw, d, true)?,
            0x16 => self.access_counter_clear(hw, d)?,
            _ => return Err(Trouble::NotEmulated("memory operation")),
        }
        Ok(())
    }

    /// Refuses a memory operation whose words have bits out of what is known of each.
    fn mem_op_bits(&self, a: u32, b: u32, c: u32, d: u32) -> Result<(), Trouble> {
        for (word, address, known) in [
            ("MEM_OP_A", method::MEM_OP_A, a),
            ("MEM_OP_B", method::MEM_OP_B, b),
            ("MEM_OP_C", method::MEM_OP_C, c),
            ("MEM_OP_D", method::MEM_OP_D, d),
        ] {
            Trouble::unless_known(word, self.host.get(address), known)?;
        }
        Ok(())
    }

    fn access_counter_clear<M: Machine>(&mut self, hw: &mut Hw<M>, d: u32) -> Result<(), Trouble> {
        let (kind, tag) = (field32(d, 1, 0), self.host.get(method::MEM_OP_C));
        let clear = match kind {
            clear::TARGETED => known::CLEAR_TARGETED,
            _ => known::CLEAR,
        };
        self.mem_op_bits(0, 0, known::CLEAR_TAG, known::OPERATION | clear)?;
        hw.stats.access_clears += 1;
        // There are no MOMC counters to clear, nor one that a tag could name.
        match (kind, bit32(d, 2)) {
            (clear::MIMC | clear::ALL, _) => hw.counters.clear(None),
            (clear::TARGETED, clear::TARGETED_MIMC) => hw.counters.clear(Some(tag)),
            _ => {}
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
        // Of an invalidate of all addresses they are parts of no address, and are not looked at.
        let va = if targeted {
            gpu_address(hw.chip, va)?
        } else {
            va
        };
        let replay = field32(c, 4, 2);
        let (a_known, b_known) = match (targeted, replay) {
            (false, _) => (known::INVALIDATE, 0),
            (true, 5) => (known::CANCEL | hw.chip.cancel_engine, u32::MAX),
            (true, _) => (known::TARGETED, u32::MAX),
        };
        let scoped = hw.chip.invalidate_scopes && replay == 0;
        let scope = if scoped { known::SCOPE } else { 0 };
        self.mem_op_bits(a_known | scope, b_known, u32::MAX, u32::MAX)?;
        // All TLBs, or all but those of links, which are none here.
        if scoped && !matches!(field32(a, 7, 6), 0 | 2) {
            return Err(Trouble::NotEmulated("scope of an invalidate"));
        }
        if matches!(field32(c, 11, 10), 1 | 3) {
            return Err(Trouble::NotEmulated("aperture of the page directory"));
        }
        if replay != 0 && bit32(c, 1) {
            return Err(Trouble::NotEmulated("replay or cancel without the GPCs"));
        }
        match replay {
            replay @ 0..=2 => {
                if targeted {
                    hw.stats.tlb_invalidates_targeted += 1;
                } else {
                    hw.stats.tlb_invalidates_all += 1;
                }
                let pages = 1u64.checked_shl(field32(a, 5, 0)).unwrap_or(u64::MAX);
                let start = va & !pages.saturating_mul(4096).wrapping_sub(1);
                let what = Invalidate {
                    pdb: (!bit32(c, 0)).then_some(pdb),
                    range: targeted.then_some((start, pages)),
                    levels: levels(field32(c, 9, 7), hw.chip.mmu)?,
                    gpcs: !bit32(c, 1),
                };
                hw.invalidate_in_time(&what, field32(c, 6, 5) != 0);
                // Some drivers ask for it here, others push one more operation.
                if bit32(a, 11) {
                    hw.stats.membars += 1;
                    hw.membar(self.id, true);
                }
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
                // None but the graphics engine's accesses wait for a replay.
                if a & hw.chip.cancel_engine != hw.chip.graphics_engine {
                    return Err(Trouble::NotEmulated("cancel of another engine's accesses"));
                }
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

/// Of how many levels of directories an invalidate's page table level has the entries forgotten.
fn levels(level: u32, mmu: Mmu) -> Result<usize, Trouble> {
    let all = mmu.root() + 1;
    match level as usize {
        0 => Ok(all),
        // Entries of page tables alone, up to PDE0, and so on up to the root.
        n if n <= all + 1 => Ok(n - 1),
        _ => Err(Trouble::NotEmulated("page table level of an invalidate")),
    }
}

/// Words of the register page up to the end of the time.
const TIME_WORDS: usize = (reg::TIME_HIGH / 4 + 1) as usize;

/// Shows `now` in the time registers, which are among the first words of the register page.
#[inline(always)]
pub(super) fn show_time(words: &[AtomicU32], now: u64) {
    words[(reg::TIME_LOW / 4) as usize].store(now as u32, Ordering::Release);
    words[(reg::TIME_HIGH / 4) as usize].store((now >> 32) as u32, Ordering::Release);
}

impl<M: Machine> Hw<M> {
    /// Shows `now` in the time registers.
    pub(super) fn set_time(&self, now: u64) {
        match self.m.words32(Loc::buffer(self.registers, 0), TIME_WORDS) {
            Some(words) => show_time(words, now),
            None => {
                let index = self.index;
                self.m
                    .report(format_args!("vgpu{index}: no time registers"));
            }
        }
    }
}

/// The address that the GPU has for one of UVM's, which are sign-extended to 64 bits: by the GPU's highest bit, or by the
/// CPU's where that is lower.
fn gpu_address(chip: &Personality, va: u64) -> Result<u64, Trouble> {
    let beyond = va >> chip.mmu.va_bits();
    if beyond != 0 && beyond != u64::MAX >> chip.mmu.va_bits() {
        return Err(Trouble::NotEmulated("address that is not sign-extended"));
    }
    Ok(va & (chip.mmu.va_end() - 1))
}

#[cfg(test)]
mod tests;
