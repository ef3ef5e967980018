// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A VA space that keeps its process' memory, which keeps the VA space: nobody is left to close a file.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Killed, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Process};

use crate::{gpu_writes, spared, start, start_ordinary, still_works, NONE, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "orphans: a VA space goes though only its process' memory refers to it",
        NONE,
        hidden_goes,
    );
    suite.test(
        "mm: the file that keeps a process' memory is closed while CPUs fault",
        NONE,
        closed_under_faults,
    );
}

/// Bytes of managed memory that are mapped at a time.
const PIECE: u64 = 64 << 10;

/// How the child ends where Linux has no io_uring, or forbids it.
const NO_RING: u8 = 42;

/// Run by the test below: hides the file that keeps its memory in that memory, with data on the GPU.
pub(crate) fn child_hides(process: vgpu_client::Result<Process>) -> ExitCode {
    let hide = || -> Result<bool, Failure> {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, 2 * WORDS)?;
        gpu_writes(&gpu, &buffer, 1)?;
        let mm = process.mm_fd().ok_or("it has no mm")?;
        let Some(ring) = ring()? else {
            return Ok(false);
        };
        register(&ring, mm)?;
        std::process::exit(0)
    };
    match hide() {
        Ok(_) => ExitCode::from(NO_RING),
        Err(failure) => {
            eprintln!("{failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// A ring that is mapped; nothing where there are none.
fn ring() -> Result<Option<OwnedFd>, Failure> {
    // struct io_uring_params, with the offset of neither.
    let mut params = [0u32; 30];
    // SAFETY: `params` has the size of the structure that Linux writes.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    if ring < 0 {
        return Ok(None);
    }
    // SAFETY: it was opened just now.
    let ring = unsafe { OwnedFd::from_raw_fd(ring as i32) };
    let (shared, access) = (libc::MAP_SHARED, libc::PROT_READ);
    // SAFETY: Linux chooses a place that is free. Nobody reads there.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            access,
            shared,
            ring.as_raw_fd(),
            0,
        )
    };
    ensure!(
        at != libc::MAP_FAILED,
        "mmap: {}",
        io::Error::last_os_error()
    );
    Ok(Some(ring))
}

/// Has the ring refer to the file.
fn register(ring: &OwnedFd, file: BorrowedFd<'_>) -> Result<(), Failure> {
    const REGISTER_FILES: libc::c_uint = 2;
    let files = [file.as_raw_fd()];
    let ring = ring.as_raw_fd();
    // SAFETY: Linux reads as many numbers of files as are said to be there.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            REGISTER_FILES,
            files.as_ptr(),
            1,
        )
    };
    ensure!(done == 0, "register: {}", io::Error::last_os_error());
    Ok(())
}

fn hidden_goes() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the unmodified driver keeps such a VA space for good, see docs/fixes.md");
    }
    let before = process.gpu_references(gpu.uuid())?;
    let mut child = Killed::run("--child-hides")?;
    let status = child.0.wait()?;
    if status.code() == Some(NO_RING.into()) {
        skip!("there is no io_uring");
    }
    ensure!(status.success(), "the child ended with {status}");
    let start = Instant::now();
    while process.gpu_references(gpu.uuid())? != before {
        ensure!(
            start.elapsed() < Duration::from_secs(60),
            "its VA space is there still, a minute after the child has ended"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("# gone after {:.1} s", start.elapsed().as_secs_f64());
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// CPUs bring ordinary memory back from the GPU, as if the file were there, or without it: each by what it finds once. And
/// managed memory is mapped where there was ordinary memory, or is not.
fn closed_under_faults() -> Outcome {
    const TIMES: usize = 5;
    let (process, gpu) = start_ordinary!("a CPU fault of the unmodified driver oopses");
    for round in 0..TIMES {
        let owner = Process::new()?;
        let buffer = Buffer::<u64>::ordinary(4 * WORDS)?;
        let left = Buffer::<u64>::ordinary(2 * WORDS)?;
        let managed = Buffer::<u64>::managed(&owner, WORDS)?;
        managed.fill(|word| word as u64);
        let owners_gpu = owner.gpu(0)?;
        for of in [&buffer, &left] {
            gpu_writes(&owners_gpu, of, round as u64)?;
        }
        let place = left.address();
        let pieces = left.bytes() / PIECE;
        drop(left);
        std::thread::scope(|scope| -> Result<(), Failure> {
            let half = buffer.len() / 2;
            let readers = [0..half, half..buffer.len()].map(|part| {
                let buffer = &buffer;
                let is_wrong = move |w: &usize| buffer.get(*w) != (round + w) as u64;
                scope.spawn(move || part.step_by(512).find(is_wrong))
            });
            let owner = &owner;
            let mapping = scope.spawn(move || {
                let at =
                    |n| Buffer::<u64>::managed_at(owner, place + n * PIECE, PIECE as usize / 8);
                (0..pieces)
                    .filter_map(|n| at(n).err())
                    .reduce(|_, later| later)
            });
            std::thread::sleep(Duration::from_millis(10));
            close_mm(owner)?;
            for reader in readers {
                let wrong = reader.joined()?;
                ensure!(wrong.is_none(), "word {wrong:?} is not what the GPU wrote");
            }
            let refused = mapping.joined()?.and_then(|error| error.errno());
            ensure!(
                matches!(refused, None | Some(libc::EOPNOTSUPP)),
                "mmap() ends with {refused:?}"
            );
            Ok(())
        })?;
        let late = Buffer::<u64>::managed_at(&owner, place, WORDS).map(drop);
        let errno = late.err().and_then(|error| error.errno());
        ensure!(
            errno == Some(libc::EOPNOTSUPP),
            "mapped after it was closed: {errno:?}"
        );
        let wrong = managed.first_other(|word| word as u64);
        ensure!(wrong.is_none(), "managed memory has {wrong:?}");
        // Of the others of its va_block the GPU has nothing mapped, either.
        drop(buffer.moved(512)?);
    }
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// Puts another file in place of the one that keeps the memory of this process.
pub(crate) fn close_mm(process: &Process) -> Result<(), Failure> {
    let mm = process.mm_fd().ok_or("it has no mm")?;
    let null = File::open("/dev/null")?;
    // SAFETY: both are open. Nobody uses the file by this number but to close it.
    let closed = unsafe { libc::dup2(null.as_raw_fd(), mm.as_raw_fd()) };
    ensure!(closed >= 0, "it stays: {}", io::Error::last_os_error());
    Ok(())
}
