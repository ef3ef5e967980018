// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Bad input to the calls that our driver adds to /dev/nvidia-uvm.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};

use uvm_suite::{clock_seed, ensure, fuzz, skip, Failure, Outcome, Pass, Suite};
use uvm_uapi as uapi;
use vgpu_client::{driver_version, raw_ioctl, BadPointer, DriverStats, Process, Vgpu};

use crate::{start, still_works, NONE};

const VERSION: (u32, usize) = (
    uapi::UVM_RUST_GET_VERSION,
    size_of::<uapi::uvm_rust_version>(),
);
const STATS: (u32, usize) = (uapi::UVM_RUST_GET_STATS, size_of::<uapi::uvm_rust_stats>());

/// `fuzz` calls are made from each of two threads by the last test.
pub(crate) fn run(suite: &mut Suite, fuzz: u32) {
    let fuzzed = || fuzzed(fuzz);
    for (name, test) in [
        ("UVM_RUST_GET_VERSION", &version as &dyn Fn() -> Outcome),
        ("UVM_RUST_GET_STATS", &stats),
        ("UVM_RUST_GET_STATS before UVM_INITIALIZE", &uninitialised),
        ("UVM_RUST_GET_STATS of GPUs that are not ours", &others),
        ("numbers that are no calls", &numbers),
        ("fuzzed calls of ours", &fuzzed),
    ] {
        suite.test(&format!("bad input: {name}"), NONE, || {
            if driver_version(&Process::new()?)?.is_none() {
                skip!("this driver is not ours");
            }
            test()
        });
    }
}

fn structure(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
    bytes
}

fn errno(fd: BorrowedFd<'_>, number: u32, bytes: &mut [u8], bad: Option<BadPointer>) -> i32 {
    match raw_ioctl(fd, number, bytes, bad) {
        Ok(()) => 0,
        Err(e) => e.raw_os_error().unwrap_or(-1),
    }
}

/// The size of the first version's structure.
const STATS_FIRST: usize = uapi::UVM_RUST_STATS_SIZE_V1 as usize;

/// What all calls share: pointers, sizes, unknown fields.
///
/// `first` is the size of the call's first version, `size` the driver's.
fn envelope(
    fd: BorrowedFd<'_>,
    (number, size): (u32, usize),
    first: usize,
    good: &[u8],
) -> Result<(), Failure> {
    for bad in BadPointer::ALL {
        let got = errno(fd, number, &mut good.to_vec(), Some(bad));
        ensure!(
            got == libc::EFAULT,
            "{bad:?} pointer: errno {got}, not EFAULT"
        );
    }
    let with_size = |total: usize, said: u32| {
        let mut bytes = good.to_vec();
        bytes.resize(total, 0);
        bytes[..4].copy_from_slice(&said.to_ne_bytes());
        bytes
    };
    for said in [0, 4, first as u32 - 1] {
        let got = errno(fd, number, &mut with_size(size, said), None);
        ensure!(got == libc::EINVAL, "size {said}: errno {got}, not EINVAL");
    }
    for said in [4097, u32::MAX] {
        let got = errno(fd, number, &mut with_size(8192, said), None);
        ensure!(got == libc::E2BIG, "size {said}: errno {got}, not E2BIG");
    }
    let got = errno(fd, number, &mut with_size(size, first as u32), None);
    ensure!(got == 0, "the first version's size: errno {got}");
    let longer = size + 16;
    let got = errno(fd, number, &mut with_size(longer, longer as u32), None);
    ensure!(got == 0, "unknown fields that are 0: errno {got}");
    let mut unknown = with_size(longer, longer as u32);
    unknown[size + 3] = 1;
    let got = errno(fd, number, &mut unknown, None);
    ensure!(
        got == libc::E2BIG,
        "an unknown field that is set: errno {got}, not E2BIG"
    );
    let knows = u32::from_ne_bytes([0, 1, 2, 3].map(|i| unknown[i]));
    ensure!(
        knows == size as u32,
        "E2BIG left size {knows}, not what the driver knows"
    );
    Ok(())
}

fn version() -> Outcome {
    let process = Process::new()?;
    envelope(process.uvm_fd(), VERSION, VERSION.1, &structure(VERSION.1))?;
    // Works on a file that is not initialised.
    let file = open()?;
    let got = errno(file.as_fd(), VERSION.0, &mut structure(VERSION.1), None);
    ensure!(got == 0, "before UVM_INITIALIZE: errno {got}");
    Ok(Pass::Ok)
}

fn stats() -> Outcome {
    let (process, gpu) = start()?;
    let mut good = structure(STATS.1);
    good[8..24].copy_from_slice(&gpu.uuid().0);
    envelope(process.uvm_fd(), STATS, STATS_FIRST, &good)?;
    let before = DriverStats::get(&process, gpu.uuid(), false)?;
    for bit in 1..32 {
        let mut flags = good.clone();
        flags[4..8].copy_from_slice(&(1u32 << bit).to_ne_bytes());
        let got = errno(process.uvm_fd(), STATS.0, &mut flags, None);
        ensure!(got == libc::EINVAL, "flag {bit}: errno {got}, not EINVAL");
    }
    let after = DriverStats::get(&process, gpu.uuid(), false)?;
    ensure!(
        after.faults == before.faults && after.batches == before.batches,
        "counts changed"
    );
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

fn fuzzed(calls: u32) -> Outcome {
    let (process, gpu) = start()?;
    let target = fuzz::Target {
        process: &process,
        gpu: &gpu,
        device: None,
        privileged: true,
    };
    let seed = clock_seed();
    println!("# seed {seed}");
    println!("#{}", fuzz::run(&target, seed, calls)?);
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

fn open() -> Result<File, Failure> {
    Ok(OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/nvidia-uvm")?)
}

fn uninitialised() -> Outcome {
    let info = Vgpu::open()?.info(0)?;
    let file = open()?;
    let mut bytes = structure(STATS.1);
    bytes[8..24].copy_from_slice(&info.uuid);
    let got = errno(file.as_fd(), STATS.0, &mut bytes, None);
    ensure!(got == libc::EPERM, "errno {got}, not EPERM");
    Ok(Pass::Ok)
}

fn others() -> Outcome {
    // The GPU is registered, but by another file.
    let (_process, gpu) = start()?;
    let stranger = Process::new()?;
    for uuid in [gpu.uuid().0, [0; 16], [0xff; 16]] {
        let mut bytes = structure(STATS.1);
        bytes[8..24].copy_from_slice(&uuid);
        let got = errno(stranger.uvm_fd(), STATS.0, &mut bytes, None);
        ensure!(
            got == libc::ENODEV,
            "GPU {uuid:x?}: errno {got}, not ENODEV"
        );
    }
    Ok(Pass::Ok)
}

fn numbers() -> Outcome {
    let process = Process::new()?;
    for number in [0xfff, 0x10ff, 0x2000, 0x7fff_ffff] {
        let got = errno(process.uvm_fd(), number, &mut structure(64), None);
        ensure!(
            got == libc::EINVAL,
            "number {number:#x}: errno {got}, not EINVAL"
        );
    }
    Ok(Pass::Ok)
}
