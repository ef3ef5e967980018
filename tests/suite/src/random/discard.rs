// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Discards of all kinds, and what may be read after them.

use vgpu_client::vgpu::POISON;
use vgpu_client::{Discard, Kernel, Op};

use super::area::{Span, PAGE_WORDS};
use super::program::{Change, Done, Program};

impl Program {
    /// Discards pages, perhaps loses the chunk, and uses them again.
    pub(super) fn discard(&mut self, index: u64, area: usize) -> Done {
        if !self.has_discard || !self.areas[area].buffer.is_managed() {
            return Ok(());
        }
        let (mut span, mut base, mut length) = self.pages(area);
        if self.is_large() && self.chance(50) {
            span = self.areas[area].all();
            base = self.areas[area].buffer.address();
            length = self.areas[area].buffer.bytes();
        }
        let how = if self.chance(50) {
            Discard::Eager
        } else {
            Discard::Lazy
        };
        self.note(index, area, span, format!("discard, {how:?}"));
        self.process.discard(base, length, how)?;
        let discarded = self.discarded_pages(area, span)?;
        if self.chance(40) {
            let gpu = self.below(self.gpus.len());
            self.evict_at(gpu, base)?;
        }
        if how == Discard::Lazy || self.chance(30) {
            // Must come before lazily discarded memory is used.
            let to = self.processor();
            self.note(index, area, span, format!("prefetch to {to:?}"));
            self.process.migrate(base, length, to)?;
        }
        match self.below(3) {
            0 => {
                let value = self.value(false);
                self.note(index, area, span, format!("GPU writes {value:#x} + k"));
                self.make(Change {
                    area,
                    span,
                    value,
                    stride: 1,
                    atomic: false,
                })
            }
            1 => {
                let op = self.shape(Op::read(&self.areas[area].buffer), span);
                self.launch(&Kernel::new().op(op))?;
                self.adopt(area, span, &discarded)
            }
            _ => self.adopt(area, span, &discarded),
        }
    }

    /// Which pages of a span the driver discarded; it may leave parts alone.
    fn discarded_pages(&self, area: usize, span: Span) -> vgpu_client::Result<Vec<bool>> {
        let buffer = &self.areas[area].buffer;
        (span.first..span.end())
            .step_by(PAGE_WORDS)
            .map(|word| self.process.is_discarded(buffer.address_of(word)))
            .collect()
    }

    /// Reads a span on the CPU. Where it was discarded, zeros and older values are
    /// right, and stay from now on.
    fn adopt(&mut self, area: usize, span: Span, discarded: &[bool]) -> Done {
        let area = &mut self.areas[area];
        for i in span.words() {
            let (seen, expected) = (area.buffer.get(i), area.model[i]);
            if seen == expected {
                continue;
            }
            let may_change = discarded[(i - span.first) / PAGE_WORDS];
            let older = seen == 0 || (seen != POISON && area.ever.held(i, seen));
            if !(may_change && older) {
                let what = if may_change {
                    "discarded"
                } else {
                    "not discarded"
                };
                let what = format!("word {i}, {what}, is {seen:#x}; it was {expected:#x}");
                return Err(area.wrong(i, Some(seen), what));
            }
            area.model[i] = seen;
        }
        Ok(())
    }
}
