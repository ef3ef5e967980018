// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program whose kernel reaches most of its memory by a pointer that lies in memory: what its
//! arguments point into is a table, and the rest is seen by faults alone. `uvmrun` records it, as
//! it does the programs of `recorded`.

use anyhow::{Context, Result};
use std::os::fd::AsRawFd;
use uvmrust::record::{now, Record};
use uvmrust::Uvm;
use vgpu_client::{Buffer, Gpu, Kernel, Op, Process, PAGE};

/// MiB of the table, of what lies behind its pointers, and of what the other kernel has.
const MIB: [u64; 3] = [2, 4, 6];
const WORDS: u64 = PAGE / 8;
const STEPS: u32 = 3;

/// `uvm-dnn reaches`, with the folder of the record in `UVMRUST_RECORD`.
pub fn run() -> Result<()> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    Uvm::process().use_fd(Some(process.uvm_fd().as_raw_fd()));
    let folder = std::env::var_os("UVMRUST_RECORD").context("uvmrun is to record it")?;
    let mut record = Record::new(folder.as_ref());
    if std::env::var_os("UVMRUST_RECORD_FAULTS").is_none_or(|set| set != "0") {
        record.look_for_faults(Uvm::process());
    }
    let mut buffers = Vec::new();
    for mib in MIB {
        let buffer = Buffer::<u64>::managed(&process, (mib << 20) as usize / 8)?;
        // One word in a page, which is what kernels check.
        for word in (0..buffer.bytes() / 8).step_by(WORDS as usize) {
            buffer.set(word as usize, word);
        }
        record.allocated(buffer.address(), buffer.bytes());
        buffers.push(buffer);
    }
    for _ in 0..STEPS {
        launch(&gpu, &mut record, "gather", &buffers[..2])?;
        launch(&gpu, &mut record, "scale", &buffers[2..])?;
    }
    record.end();
    if let Some(message) = record.message() {
        eprintln!("reaches: {message}");
    }
    Ok(())
}

/// Launches a kernel that is given the first of several buffers, and checks all of them.
fn launch(gpu: &Gpu, record: &mut Record, name: &str, used: &[Buffer<u64>]) -> Result<()> {
    if let Some(question) = record.asks() {
        record.answered(question.ask());
    }
    let mut words = used.iter().take(1).map(Buffer::address);
    let number = record.launched(0, name, Some(&mut words));
    let from = now();
    let mut kernel = Kernel::new();
    for buffer in used {
        let check = Op::check(buffer).every(PAGE).pattern(0, WORDS);
        kernel = kernel.op(check.warps(32).barrier());
    }
    gpu.launch(&kernel)?.wait()?.ok()?;
    let until = now();
    record.took(number, until - from);
    record.ran(number, from, until);
    Ok(())
}
