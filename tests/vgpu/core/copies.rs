// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What users' copy engines access: a word, to which they add 1, as a semaphore's reduction does.
//!
//! An access that finds no page is a fault that nobody replays. RM has an entry of it, in a ring of its own, and hands it to
//! UVM when it is asked. The channel's copies are switched out meanwhile, and are tried again when UVM clears the channel's
//! faulted bit. Kernels of the channel go on: they are another engine's.

use super::bits::field32;
use super::entries::ENTRY_BYTES;
use super::fault::encode_copy;
use super::gpu::reg;
use super::gpu::Error;
use super::gpu::Gpu;
use super::gpu::Hw;
use super::late::Who;
use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;
use super::sm::UserChannel;
use super::space::Lost;
use super::walk::FaultType;
use super::walk::Miss;

/// Entries that the ring has room for.
const ENTRIES: u32 = (reg::COPY_FAULTS_BYTES / ENTRY_BYTES) as u32;
/// CLEAR_FAULTED: the bit says that it is the engine's faulted bit, the others name the channel.
const ENGINE_FAULTED: u32 = 31;

/// What a channel's copy engine does, and has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copies {
    /// The address of the access that is not over.
    at: Option<u64>,
    /// The access waits for the faulted bit to be cleared.
    is_faulted: bool,
    /// Accesses that are over, and the faults that all have made.
    made: u64,
    faults: u64,
}

impl Copies {
    /// Whether an access can be tried.
    pub(super) fn is_busy(&self) -> bool {
        self.at.is_some() && !self.is_faulted
    }

    /// The channel stops: its access is over, and was not made.
    pub(super) fn stop(&mut self) {
        (self.at, self.is_faulted) = (None, false);
    }
}

impl<M: Machine> Gpu<M> {
    /// Has a channel's copy engine add 1 to the 32 bit word at `va`, some time later.
    pub fn copy(&mut self, h_channel: u32, va: u64) -> Result<(), Error> {
        let i = self.find_user(h_channel)?;
        let chip = self.config().chip;
        if chip.copy_engine.is_none() || va % 4 != 0 || va >= chip.mmu.va_end() {
            return Err(Error::Invalid);
        }
        let user = &mut self.hw.users[i];
        if user.stopped {
            return Err(Error::Stopped);
        }
        if user.bound.is_none() {
            return Err(Error::NotBound);
        }
        if user.copies.at.is_some() {
            return Err(Error::Busy);
        }
        user.copies.at = Some(va);
        self.hw.has_copies = true;
        Ok(())
    }

    /// How many accesses a channel's copy engine has made, and how many faults that took so far.
    pub fn copies(&self, h_channel: u32) -> Result<(u64, u64), Error> {
        let copies = self.hw.users[self.find_user(h_channel)?].copies;
        Ok((copies.made, copies.faults))
    }
}

impl<M: Machine> Hw<M> {
    /// Tries what can be tried. True if something was done. Each turn asks, and most GPUs have no copies.
    #[inline(always)]
    pub(super) fn run_copies(&mut self) -> bool {
        self.has_copies && self.run_copies_now()
    }

    #[cold]
    #[inline(never)]
    fn run_copies_now(&mut self) -> bool {
        let mut any = false;
        self.has_copies = false;
        for i in 0..self.users.len() {
            if self.users[i].copies.is_busy() {
                any |= self.run_copy(i);
                self.has_copies |= self.users[i].copies.is_busy();
            }
        }
        any
    }

    fn run_copy(&mut self, i: usize) -> bool {
        let user = &self.users[i];
        let (Some(space), Some(va)) = (user.bound, user.copies.at) else {
            return false;
        };
        let instance = user.instance();
        let located = match self.find_space(space) {
            Ok(space) => self.locate_mapped(space, va, true),
            Err(_) => Err(Lost::Miss(Miss::Fault(FaultType::InvalidPde))),
        };
        let done = match located {
            Ok((at, _)) => {
                self.settle(Who::User(instance), at, 4);
                self.mark_dirty(at, 4);
                self.m.fetch_add32(at, 1).map(|_| None)
            }
            Err(Lost::Miss(Miss::Fault(kind))) => self.put_copy_fault(instance, va, kind).map(Some),
            Err(_) => Err(BadAddress(Loc::sysmem(va))),
        };
        let copies = &mut self.users[i].copies;
        match done {
            // The ring is full.
            Ok(Some(false)) => return false,
            Ok(Some(true)) => {
                copies.is_faulted = true;
                copies.faults += 1;
            }
            Ok(None) => {
                copies.at = None;
                copies.made += 1;
            }
            Err(bad) => {
                copies.stop();
                self.stats.bad_addresses += 1;
                self.m.report(format_args!(
                    "vgpu{}: a user's copy at {va:#x}: {}; dropped",
                    self.index, bad.0
                ));
            }
        }
        true
    }

    /// Adds an entry to RM's ring; false if that is full. Both numbers of the ring count on.
    fn put_copy_fault(
        &mut self,
        instance: u64,
        va: u64,
        kind: FaultType,
    ) -> Result<bool, BadAddress> {
        let register = |offset| Loc::buffer(self.registers, offset);
        let get = self.m.load32(register(reg::COPY_FAULT_GET))?;
        let put = self.m.load32(register(reg::COPY_FAULT_PUT))?;
        if put.wrapping_sub(get) >= ENTRIES {
            return Ok(false);
        }
        let at = register(reg::COPY_FAULTS + u64::from(put % ENTRIES) * ENTRY_BYTES);
        let entry = encode_copy(instance, va, kind, self.chip, self.m.now_ns());
        for (i, word) in entry.iter().enumerate() {
            self.m.store32(at.plus(4 * i as u64), *word)?;
        }
        self.m
            .store32(register(reg::COPY_FAULT_PUT), put.wrapping_add(1))?;
        Ok(true)
    }

    /// Empties RM's ring, before UVM takes it over.
    pub(super) fn reset_copy_faults(&mut self) -> Result<(), BadAddress> {
        let put = self
            .m
            .load32(Loc::buffer(self.registers, reg::COPY_FAULT_PUT))?;
        self.m
            .store32(Loc::buffer(self.registers, reg::COPY_FAULT_GET), put)
    }

    /// CLEAR_FAULTED: the channel that it names tries its access again.
    pub(super) fn clear_faulted(&mut self, value: u32) {
        let of_engine = field32(value, ENGINE_FAULTED, ENGINE_FAULTED) == 1;
        let token = u64::from(field32(value, ENGINE_FAULTED - 1, 0));
        let named = |user: &&mut UserChannel| user.instance() >> 12 == token;
        if let Some(user) = self.users.iter_mut().find(named).filter(|_| of_engine) {
            user.copies.is_faulted = false;
            self.has_copies = true;
        }
    }
}

#[cfg(test)]
mod tests;
