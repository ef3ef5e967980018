// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Execution IDs: which kernel comes next, and what our driver learns from it.
#![allow(missing_docs)]

use crate::layout::{c_struct, Layout};
use crate::uvm::Uuid;
use crate::{Process, Result};

c_struct!(
    Announce, "struct uvm_rust_announce", "UVM_RUST_ANNOUNCE" = 0x1003, 32, {
        size "size": u32,
        flags "flags": u32,
        gpu "gpu_uuid": Uuid,
        exec_id "exec_id": u64,
    }
);

c_struct!(
    /// What was learnt of a process's kernels on a GPU; the header says what the fields mean.
    PrefetchStats, "struct uvm_rust_prefetch_stats", "UVM_RUST_GET_PREFETCH_STATS" = 0x1004, 176, {
        size "size": u32,
        flags "flags": u32,
        gpu "gpu_uuid": Uuid,
        kernels "kernels": u64,
        kernels_right "kernels_right": u64,
        kernels_wrong "kernels_wrong": u64,
        dropped_kernels "dropped_kernels": u64,
        blocks "blocks": u64,
        blocks_unknown "blocks_unknown": u64,
        dropped_faults "dropped_faults": u64,
        predicted "predicted": u64,
        prefetched "prefetched": u64,
        resident "resident": u64,
        held "held": u64,
        unfit "unfit": u64,
        failed "failed": u64,
        bytes_in "bytes_in": u64,
        pushed_out "pushed_out": u64,
        bytes_out "bytes_out": u64,
        table_bytes "table_bytes": u64,
        ids_dropped "ids_dropped": u64,
        ids "ids": u32,
        window "window": u32,
    }
);

/// The layouts of this module.
pub const LAYOUTS: &[Layout] = &[Announce::LAYOUT, PrefetchStats::LAYOUT];

/// `UVM_RUST_ANNOUNCE_IDLE`: no kernel that is known runs next.
const IDLE: u32 = 1;

impl Process {
    /// `gpu` runs the kernel `exec_id` next; 0: none that is known.
    pub fn announce(&self, gpu: Uuid, exec_id: u64) -> Result<()> {
        let mut what = Announce {
            size: size_of::<Announce>() as u32,
            flags: if exec_id == 0 { IDLE } else { 0 },
            gpu,
            exec_id,
        };
        self.ask("UVM_RUST_ANNOUNCE", Announce::LAYOUT, &mut what)
    }

    /// What was learnt of this process's kernels on `gpu`.
    pub fn prefetch_stats(&self, gpu: Uuid) -> Result<PrefetchStats> {
        let mut stats = PrefetchStats {
            size: size_of::<PrefetchStats>() as u32,
            gpu,
            ..Default::default()
        };
        let name = "UVM_RUST_GET_PREFETCH_STATS";
        self.ask(name, PrefetchStats::LAYOUT, &mut stats)?;
        Ok(stats)
    }
}
