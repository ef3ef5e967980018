// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Ordinary memory that a child of fork() has as well: each sees its own writes, and none of the other's.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use uvm_suite::{ensure, this_program, Failure, Forked, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Gpu, Kernel, Op, Process};

use crate::half_way::ACROSS_POLICIES;
use crate::{gpu_writes, start, start_ordinary};

const PAGES: u64 = 16;
/// Words of the memory.
const SOME: usize = PAGES as usize * 512;

/// Where the memory is when the process forks, and what happens to it before the GPU writes.
const WAYS: [&str; 7] = [
    "on the GPU when it forks",
    "on the host",
    "moved afterwards",
    "on the GPU, and moved",
    "read afterwards",
    "on the GPU, and accessed by it",
    "on the GPU, and read by the CPU",
];

pub(crate) fn run(suite: &mut Suite) {
    for way in WAYS {
        suite.test(
            &format!("forked: a child does not see what a GPU writes ({way})"),
            ACROSS_POLICIES,
            || stays(way),
        );
    }
}

/// In a program of one thread, as only such a one forks.
fn stays(way: &str) -> Outcome {
    let _ = start_ordinary!("it evicts ordinary memory");
    let child = this_program()?.args(["--child-forks", way]).status()?;
    ensure!(child.success(), "the process that forks ended with {child}");
    Ok(Pass::Ok)
}

/// Run by the test above.
pub(crate) fn child_forks(way: &str) -> ExitCode {
    match forks(way) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("# {failure:?}");
            ExitCode::FAILURE
        }
    }
}

fn forks(way: &str) -> Result<(), Failure> {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::ordinary(SOME)?;
    buffer.huge_pages(false)?;
    buffer.fill(|i| 100 + i as u64);
    if way.starts_with("on the GPU") {
        gpu_writes(&gpu, &buffer, 100)?;
    }
    let (mut here, there) = UnixStream::pair()?;
    let child = Forked::new(|| keeps(&buffer, &there))?;
    meanwhile(way, &process, &gpu, &buffer)?;
    gpu_writes(&gpu, &buffer, 1 << 32)?;
    here.write_all(&[1])?;
    let status = child.wait()?;
    ensure!(
        status.success(),
        "the child does not see what it inherited, or its own writes"
    );
    let wrong = buffer.first_other(|i| (1 << 32) + i as u64);
    ensure!(
        wrong.is_none(),
        "the parent sees, of what the GPU wrote: {wrong:x?}"
    );
    Ok(())
}

fn meanwhile(way: &str, process: &Process, gpu: &Gpu, buffer: &Buffer<u64>) -> Result<(), Failure> {
    match way {
        "moved afterwards" | "on the GPU, and moved" => {
            process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
            for page in 0..PAGES {
                let there = process.residency(buffer.address() + page * 4096)?;
                ensure!(
                    there.resident == [gpu.uuid()],
                    "page {page} is on {:?} after UVM_MIGRATE",
                    there.resident
                );
            }
        }
        // It maps what is on the GPU.
        "on the GPU, and accessed by it" => {
            process.set_accessed_by(buffer.address(), buffer.bytes(), gpu.uuid())?
        }
        // Linux brings one page to the host for both, and the GPU that accesses it gets a mapping.
        "on the GPU, and read by the CPU" => {
            process.set_accessed_by(buffer.address(), buffer.bytes(), gpu.uuid())?;
            let wrong = buffer.first_other(|i| 100 + i as u64);
            ensure!(wrong.is_none(), "before the write: {wrong:x?}");
        }
        // The GPU may get more of a mapping than it has asked for.
        "read afterwards" => {
            let read = Op::read(buffer).warps(8);
            gpu.launch(&Kernel::new().op(read))?.wait()?.ok()?;
        }
        _ => {}
    }
    Ok(())
}

/// What the child sees once its parent's GPU has written, and then of its own writes.
fn keeps(buffer: &Buffer<u64>, mut parent: &UnixStream) -> bool {
    let told = parent.read_exact(&mut [0]);
    if told.is_err() {
        return false;
    }
    if let Some((i, seen)) = buffer.first_other(|i| 100 + i as u64) {
        println!("# the child sees {seen:#x} in word {i}");
        return false;
    }
    buffer.fill(|i| 7 + i as u64);
    buffer.first_other(|i| 7 + i as u64).is_none()
}
