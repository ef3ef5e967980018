// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which va_blocks have left the GPU, for a policy that goes by it: what the driver's hooks would tell.

use uvmsim_machine::PAGE;

use super::System;

impl System<'_> {
    /// Has the va_blocks noted from now on that leave the GPU.
    pub(crate) fn watch(&mut self) {
        self.left = Some(Vec::new());
    }

    /// The va_blocks that have left since this was last called, in order.
    pub fn left(&mut self) -> Vec<u32> {
        self.left.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes that a va_block has left the GPU, if somebody asks.
    pub(super) fn note_left(&mut self, block: u32) {
        if let Some(left) = &mut self.left {
            left.push(block);
        }
    }

    /// What the service of one of `blocks` va_blocks in a batch of faults costs, in copies of a page over the link.
    pub(crate) fn service_cost(&self, blocks: usize) -> u32 {
        let ns = self.machine.fault_latency / blocks.max(1) as u64 + self.machine.fault_block;
        (ns as f64 * self.machine.pcie_h2d / 1e9 / PAGE as f64) as u32
    }
}
