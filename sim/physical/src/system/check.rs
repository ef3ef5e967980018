// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The books of the machine, and whether they add up.

use uvmsim_machine::PAGE;

use super::System;
use crate::run::RunError;

impl System<'_> {
    /// Bytes of GPU memory by kind, then of pages that hold nothing alive.
    pub(crate) fn memory_by_kind(&self, k: u32) -> [u64; 7] {
        let mut out = [0; 7];
        let mut alive = 0;
        for (i, t) in self.workload.tensors.iter().enumerate() {
            if t.uses.is_empty() || !(t.lasting || (t.first() <= k && k <= t.last())) {
                continue;
            }
            let parts = self
                .parts(i as u32)
                .map(|(b, p)| (&self.blocks[b as usize], p));
            let pages: u64 = parts.map(|(b, p)| u64::from((b.gpu & p).count())).sum();
            out[t.kind as usize] += pages * PAGE;
            alive += pages * PAGE;
        }
        let all: u64 = self.blocks.iter().map(|b| u64::from(b.gpu.count())).sum();
        out[6] = (all * PAGE).saturating_sub(alive);
        out
    }

    /// Whether everything adds up: no live page without a copy, no memory over
    /// its limit, as many chunks as there are, as many pages in as came and left.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let mut chunks = self.chunks.unheld() + self.chunks.staged;
        let (mut host, mut gpu) = (0, 0);
        for (i, b) in self.blocks.iter().enumerate() {
            if !(b.live - (b.gpu | b.host | b.ssd)).is_empty() {
                return Err(RunError::Lost { block: i as u32 });
            }
            if b.chunk == b.gpu.is_empty() {
                let what = "chunks and resident pages";
                return Err(RunError::Accounts { what });
            }
            chunks += u64::from(b.chunk);
            host += u64::from(b.host.count());
            gpu += u64::from(b.gpu.count());
        }
        let in_host = host == self.host.pages && host <= self.host.cap;
        let stayed = gpu == self.flow[0] - self.flow[1];
        let whats = [
            (chunks == self.chunks.all, "root chunks"),
            (in_host, "host pages"),
            (stayed, "pages that came and left"),
            (gpu * PAGE <= self.machine.gpu_mem, "GPU memory"),
        ];
        match whats.into_iter().find(|(ok, _)| !ok) {
            Some((_, what)) => Err(RunError::Accounts { what }),
            None => Ok(()),
        }
    }
}
