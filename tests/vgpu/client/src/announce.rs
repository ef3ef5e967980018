// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Execution IDs: which kernel comes next, and what our driver learns from it.

use uvm_uapi::{
    uvm_rust_announce, UVM_RUST_ANNOUNCE, UVM_RUST_ANNOUNCE_IDLE, UVM_RUST_GET_PREFETCH_STATS,
};

use crate::uvm::Uuid;
use crate::{Error, Process, Result};

/// What was learnt of a process's kernels on a GPU; the header says what the fields mean.
pub use uvm_uapi::uvm_rust_prefetch_stats as PrefetchStats;

impl Process {
    /// `gpu` runs the kernel `exec_id` next; 0: none that is known.
    pub fn announce(&self, gpu: Uuid, exec_id: u64) -> Result<()> {
        let mut what = uvm_rust_announce {
            size: size_of::<uvm_rust_announce>() as u32,
            flags: if exec_id == 0 {
                UVM_RUST_ANNOUNCE_IDLE
            } else {
                0
            },
            gpu_uuid: gpu.0,
            exec_id,
        };
        self.ask("UVM_RUST_ANNOUNCE", UVM_RUST_ANNOUNCE, &mut what)
    }

    /// What was learnt of this process's kernels on `gpu`.
    pub fn prefetch_stats(&self, gpu: Uuid) -> Result<PrefetchStats> {
        let mut stats = PrefetchStats {
            size: size_of::<PrefetchStats>() as u32,
            gpu_uuid: gpu.0,
            ..Default::default()
        };
        let name = "UVM_RUST_GET_PREFETCH_STATS";
        self.ask(name, UVM_RUST_GET_PREFETCH_STATS, &mut stats)?;
        Ok(stats)
    }

    /// Whether the worker that prefetches for this process has been asked for what it has not done yet. Root only, and
    /// only once a kernel was announced.
    pub fn prefetch_worker_is_at_work(&self) -> Result<bool> {
        Ok(said("prefetch worker ")? != "idle")
    }

    /// For the copies of how many blocks that worker has waited, and how many of these waits began after the copies of
    /// another block had begun. Root only, and only once a kernel was announced.
    pub fn prefetch_waits(&self) -> Result<(u64, u64)> {
        let begins = "prefetch waited for copies of ";
        let line = said(begins)?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match numbers[..] {
            [waited, beside] => Ok((waited, beside)),
            _ => Err(Error::Missing(format!("{PROCESSES} says {begins}{line}"))),
        }
    }
}

impl Process {
    /// What comes along with the faults of each VA space of this program on each of its GPUs, where the driver picks that
    /// (`uvm_rust_choose=1`). Root only.
    pub fn picks_along(&self) -> Result<Vec<String>> {
        let picks = all_said("along")?;
        Ok(picks.iter().map(|pick| pick.trim().to_owned()).collect())
    }

    /// Whether the driver picks for this process, which is the program's first, to prefetch. Root only, and only once a
    /// kernel was announced.
    pub fn prefetch_is_picked(&self) -> Result<bool> {
        Ok(said("prefetch picked ")? == "on")
    }
}

/// What the driver says of processes.
const PROCESSES: &str = "/sys/kernel/debug/nvidia-uvm/processes";

/// The rest of the first line that begins so, of what the driver says of this process.
fn said(begins: &str) -> Result<String> {
    let missing = || Error::Missing(format!("{PROCESSES} has no line {begins}"));
    all_said(begins)?.into_iter().next().ok_or_else(missing)
}

/// The rest of each such line.
fn all_said(begins: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(PROCESSES).map_err(|e| Error::os(PROCESSES, e))?;
    let mine = format!("process {} ", std::process::id());
    let mut is_mine = false;
    let rests = text.lines().filter_map(|line| {
        if line.starts_with("process ") {
            is_mine = line.starts_with(&mine);
        }
        line.strip_prefix(begins).filter(|_| is_mine)
    });
    Ok(rests.map(str::to_owned).collect())
}
