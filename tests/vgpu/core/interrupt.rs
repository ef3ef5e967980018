// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! When UVM's top half is called, in the adversarial order: of the fault buffer, and of the access counters' one.
//!
//! Up to Volta an interrupt is pending as long as it is enabled and its buffer holds something. From Turing on it comes in
//! pulses: what makes it pending is a new entry, or that GET is written, while there is something. Whoever clears it, as UVM does
//! whenever it disables it, has to write GET once it is enabled again, or what came meanwhile is never told.
//!
//! Registers are memory. GET is written with bits that tell; the access counters' GET is not. So a clear of theirs that comes
//! while the interrupt is enabled is taken for one after which GET is written, as UVM does. What is written between two looks has no order, and then is
//! taken as what lets the interrupt come.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;

use super::fault::FaultBuffer;
use super::gpu::reg;
use super::gpu::Hw;
use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;

/// Among the registers from [`reg::SINK`] on, in words: where a write clears the pulse, enables and disables.
#[derive(Clone, Copy)]
struct Words {
    clear: usize,
    enable: usize,
    disable: usize,
}

const FAULTS: Words = Words {
    clear: 0,
    enable: 1,
    disable: 2,
};
const COUNTERS: Words = Words {
    clear: 5,
    enable: 6,
    disable: 7,
};
/// How many words there are, and where they start among those of the register page.
const WORDS: usize = 8;
const SINK: usize = word(reg::SINK);

/// The number of the word at an offset.
const fn word(offset: u64) -> usize {
    (offset / 4) as usize
}

/// One interrupt, as the GPU knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    is_on: bool,
    is_pulsed: bool,
    /// Since the last look there was a new entry, or GET was written.
    is_stirred: bool,
}

impl Line {
    /// RM hands the buffer over with its interrupt enabled.
    pub(super) fn hand_over(&mut self) {
        *self = Self {
            is_on: true,
            ..Self::default()
        };
    }

    /// There is a new entry, or GET was written.
    pub(super) fn stir(&mut self) {
        self.is_stirred = true;
    }

    /// Takes what UVM wrote since the last look. Whether the interrupt is pending, with something to tell or not.
    fn look(&mut self, words: &[AtomicU32], at: Words, has_pulses: bool, has_any: bool) -> bool {
        // UVM enables and then clears, or disables and then clears: so whatever comes while this looks is seen in that order, now
        // or the next time.
        let written = |word: usize| {
            words[word].load(Ordering::Acquire) != 0 && words[word].swap(0, Ordering::AcqRel) != 0
        };
        let is_cleared = written(at.clear);
        let is_enabled = written(at.enable);
        if written(at.disable) {
            self.is_on = false;
        }
        if is_enabled {
            self.is_on = true;
        }
        let is_stirred = core::mem::take(&mut self.is_stirred);
        if !has_pulses {
            return self.is_on && has_any;
        }
        if is_cleared {
            self.is_pulsed = false;
        }
        let is_rearmed = is_cleared && self.is_on && at.clear == COUNTERS.clear;
        self.is_pulsed |= has_any && (is_stirred || is_rearmed);
        self.is_on && self.is_pulsed
    }
}

impl<M: Machine> Hw<M> {
    /// Shows which interrupts are pending, where the order is an adversarial one.
    pub(super) fn show_interrupts(&mut self) {
        if self.late.is_some() {
            let looked = self.look_at_interrupts();
            self.report_no_register(looked);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_interrupts(&mut self) -> Result<(), BadAddress> {
        let page = Loc::buffer(self.registers, 0);
        let words = self.m.words32(page, SINK + WORDS);
        let words = words.ok_or(BadAddress(page))?;
        // GET first: UVM writes it after it has cleared.
        let mut get = words[word(reg::FAULT_GET)].load(Ordering::Acquire);
        if FaultBuffer::has_bits(get) {
            get = self.faults.look(&self.m)?;
        }
        let has_faults = get != self.faults.put();
        let get = words[word(reg::COUNTER_GET)].load(Ordering::Acquire);
        let has_notifications = get != self.counters.put();
        let (sink, pulses) = (&words[SINK..], self.chip.has_pulses);
        let faults = &mut self.faults.line;
        let counters = &mut self.counters.line;
        let pending = u32::from(faults.look(sink, FAULTS, pulses, has_faults))
            | u32::from(counters.look(sink, COUNTERS, pulses, has_notifications)) << 1;
        words[word(reg::PENDING)].store(pending, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
