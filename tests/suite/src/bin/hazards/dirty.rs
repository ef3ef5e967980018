// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a GPU writes to ordinary memory that is in host memory, before Linux takes the pages back. Linux drops a page that it takes for
//! clean and can have again, and by the CPUs' page tables alone nobody has written to it. No swap is needed to show that.

use std::os::fd::AsFd;

use uvm_suite::{ensure, file_in_memory, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Process};

use crate::{gpu_writes, start, NONE, WORDS};

/// What a GPU writes counts from here, so that no word is 0.
const FIRST: u64 = 7;

type Way = (
    &'static str,
    fn(&Process, &Gpu) -> Result<Buffer<u64>, Failure>,
);

/// What was done to the memory, which the GPU has then written to.
const WAYS: [Way; 4] = [
    ("shared memory that nobody has touched", shared),
    ("shared memory that a CPU has read", shared_and_read),
    ("freed lazily, and stays in the host", freed_in_host),
    ("freed lazily, and has been on a GPU", freed_on_gpu),
];

pub(crate) fn run(suite: &mut Suite) {
    for (way, prepare) in WAYS {
        let name = format!("dirty: what a GPU writes is kept when Linux pages it out: {way}");
        suite.test(&name, NONE, || is_kept(prepare));
    }
}

fn is_kept(prepare: fn(&Process, &Gpu) -> Result<Buffer<u64>, Failure>) -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let buffer = prepare(&process, &gpu)?;
    buffer.page_out()?;
    let wrong = buffer.first_other(|i| FIRST + i as u64);
    ensure!(
        wrong.is_none(),
        "(word, value) is {wrong:x?} after the GPU wrote to it"
    );
    Ok(Pass::Ok)
}

fn of_memory() -> Result<Buffer<u64>, Failure> {
    let file = file_in_memory(c"shared")?;
    file.set_len(WORDS as u64 * 8)?;
    Ok(Buffer::of_file(file.as_fd(), 0, WORDS)?)
}

fn shared(_: &Process, gpu: &Gpu) -> Result<Buffer<u64>, Failure> {
    let buffer = of_memory()?;
    gpu_writes(gpu, &buffer, FIRST)?;
    Ok(buffer)
}

fn shared_and_read(_: &Process, gpu: &Gpu) -> Result<Buffer<u64>, Failure> {
    let buffer = of_memory()?;
    let wrong = buffer.first_other(|_| 0);
    ensure!(wrong.is_none(), "a new file has {wrong:x?}");
    gpu_writes(gpu, &buffer, FIRST)?;
    Ok(buffer)
}

/// madvise(2) promises of MADV_FREE that what is written later is kept.
fn freed() -> Result<Buffer<u64>, Failure> {
    let buffer = Buffer::<u64>::ordinary(WORDS)?;
    buffer.huge_pages(false)?;
    buffer.fill(|_| 1);
    buffer.free_lazily()?;
    Ok(buffer)
}

fn freed_in_host(process: &Process, gpu: &Gpu) -> Result<Buffer<u64>, Failure> {
    let buffer = freed()?;
    process.set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    gpu_writes(gpu, &buffer, FIRST)?;
    Ok(buffer)
}

fn freed_on_gpu(process: &Process, gpu: &Gpu) -> Result<Buffer<u64>, Failure> {
    let buffer = freed()?;
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    gpu_writes(gpu, &buffer, FIRST)?;
    process.migrate(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    Ok(buffer)
}
