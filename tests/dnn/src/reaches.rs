// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program whose kernel reaches most of its memory by a pointer that lies in memory: what its
//! arguments point into is a table, and the rest is seen by faults alone. `uvmrun` records it, and
//! runs it with the plan of its record, as `recorded` has it.

use anyhow::{ensure, Context, Result};
use std::os::fd::AsRawFd;
use std::time::Duration;
use uvmrust::follow::Executor;
use uvmrust::plan::Plan;
use uvmrust::record::{now, Record};
use uvmrust::Uvm;
use vgpu_client::{Buffer, DriverStats, Gpu, Idle, Kernel, Op, Process, BLOCK, PAGE};

use crate::recorded::GPU_BYTES;

/// MiB of the table, of what lies behind its pointers, and of what the other kernel has.
const MIB: [u64; 3] = [2, 14, 20];
const STEPS: u32 = 5;
const MOST: Duration = Duration::from_secs(120);

/// `uvm-dnn reaches`: prints the faults of the last step.
pub fn run() -> Result<()> {
    let plan = match std::env::var_os("UVMRUST_PLAN") {
        Some(path) => Some(Plan::parse(&std::fs::read_to_string(path)?)?),
        None => None,
    };
    let _idle = Idle::leaving(Some((GPU_BYTES / BLOCK) as usize))?;
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    Uvm::process().use_fd(Some(process.uvm_fd().as_raw_fd()));
    let executor = match &plan {
        Some(plan) => {
            let executor = Executor::new(plan, Uvm::process());
            Some(executor.context("the plan was not made of a record")?)
        }
        None => None,
    };
    let mut record = std::env::var_os("UVMRUST_RECORD").map(|folder| Record::new(folder.as_ref()));
    if let Some(record) = &mut record {
        if std::env::var_os("UVMRUST_RECORD_FAULTS").is_none_or(|set| set != "0") {
            record.look_for_faults(Uvm::process());
        }
    }
    let mut buffers = Vec::new();
    for mib in MIB {
        let buffer = Buffer::<u64>::managed(&process, (mib << 20) as usize / 8)?;
        buffer.fill(|word| word as u64);
        if let Some(record) = &mut record {
            record.allocated(buffer.address(), buffer.bytes());
        }
        if let Some(executor) = &executor {
            executor.allocated(buffer.address(), buffer.bytes());
        }
        buffers.push(buffer);
    }
    let mut rig = Rig {
        gpu: &gpu,
        executor,
        record,
    };
    let mut faults = 0;
    for step in 0..STEPS {
        let before = counted(&process, &gpu)?;
        rig.launch("gather", &buffers[0], &buffers[..2])?;
        rig.launch("scale", &buffers[2], &buffers[2..])?;
        faults = counted(&process, &gpu)? - before;
        eprintln!("reaches: step {} of {STEPS}, {faults} faults", step + 1);
    }
    println!("faults {faults}");
    Ok(())
}

fn counted(process: &Process, gpu: &Gpu) -> Result<u64> {
    gpu.drain_faults()?;
    let stats = DriverStats::get(process, gpu.uuid(), false)?;
    Ok(stats.faults - stats.duplicates)
}

struct Rig<'a> {
    gpu: &'a Gpu,
    executor: Option<Executor<'a>>,
    record: Option<Record>,
}

impl Rig<'_> {
    /// Launches a kernel that is given one buffer, and checks all of several.
    fn launch(&mut self, name: &str, given: &Buffer<u64>, used: &[Buffer<u64>]) -> Result<()> {
        let words = [given.address()];
        let mut recorded = None;
        if let Some(record) = &mut self.record {
            let number = record.launched(0, name, Some(&mut words.into_iter()));
            recorded = Some((number, now()));
        }
        if let Some(executor) = &self.executor {
            let (pending, left) = executor.launch(name, &mut words.into_iter());
            ensure!(left.is_none(), "{name} is not what the plan has here");
            if !pending.is_empty() {
                executor.queue(&pending.on(self.gpu.uuid().0));
            }
            ensure!(executor.wait(MOST), "moves take more than {MOST:?}");
        }
        let mut kernel = Kernel::new();
        for buffer in used {
            let check = Op::check(buffer).every(PAGE).pattern(0, PAGE / 8);
            kernel = kernel.op(check.warps(32).barrier());
        }
        self.gpu.launch(&kernel)?.wait()?.ok()?;
        if let (Some(record), Some((number, from))) = (&mut self.record, recorded) {
            record.took(number, 1_000_000);
            record.ran(number, from, now());
        }
        Ok(())
    }
}
