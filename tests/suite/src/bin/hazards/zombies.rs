// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Managed memory of a VA space that processes share, of which one ends. GPUs may be using that
//! memory: it stays as a zombie, until UVM_CLEAN_UP_ZOMBIE_RESOURCES.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use uvm_suite::{ensure, skip, this_program, Failure, Joined, Killed, Outcome, Pass, Suite};
use vgpu_client::uvm::{Params, ValidateVaRange};
use vgpu_client::{Buffer, NvStatus, Process, BLOCK};

use crate::charge::child;
use crate::{spared, start, still_works, NONE, WORDS};

/// Bytes of the child's memory that are read: enough for the child to end meanwhile.
const MUCH: usize = 64 << 20;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "zombies: shared memory stays though its process is looked at as it ends",
        NONE,
        looked_at,
    );
}

/// Who reads a process' memory keeps it, and so may be who takes it down.
fn looked_at() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the unmodified driver takes that memory from the GPU, see docs/fixes.md");
    }
    let mut command = this_program()?;
    command.arg("--child-maps").stdin(Stdio::piped());
    let mut child = Killed(command.stdout(Stdio::piped()).spawn()?);
    let said = child.0.stdout.take().ok_or("the child has no output")?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    let told: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
    let Ok([uvm, managed, much]) = told.as_deref() else {
        return Err(format!("the child says {line:?}").into());
    };
    let uvm = file_of(child.0.id(), *uvm)?;
    let memory = File::open(format!("/proc/{}/mem", child.0.id()))?;
    let met = std::thread::scope(|scope| -> Result<bool, Failure> {
        let reading = scope.spawn(|| memory.read_at(&mut vec![0; MUCH], *much));
        std::thread::sleep(Duration::from_millis(50));
        child.0.kill()?;
        child.0.wait()?;
        let was_over = reading.is_finished();
        reading.joined()??;
        Ok(!was_over)
    })?;
    ensure!(met, "the child did not end while it was read");
    let mut valid = ValidateVaRange {
        base: *managed,
        length: BLOCK,
        ..Default::default()
    };
    valid.make(uvm.as_fd())?;
    let status = valid.status();
    ensure!(status == NvStatus::OK, "the memory has gone: {status:?}");
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// The same file as another process' of this number.
fn file_of(process: u32, number: u64) -> Result<OwnedFd, Failure> {
    let opened = |file| -> Result<OwnedFd, Failure> {
        ensure!(file >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: it was opened just now, and is nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(file as i32) })
    };
    // SAFETY: the call takes numbers alone.
    let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })?;
    let process = process.as_raw_fd();
    // SAFETY: so does this one.
    opened(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, number, 0) })
}

/// Run by the test above: maps managed memory, says where that is and where its other memory is, and waits.
pub(crate) fn child_maps() -> ExitCode {
    child(|| {
        let process = Process::shared()?;
        let managed = Buffer::<u64>::managed(&process, WORDS)?;
        managed.fill(|word| word as u64);
        let much = Buffer::<u64>::ordinary(MUCH / 8)?;
        let uvm = process.uvm_fd().as_raw_fd();
        println!("{uvm} {} {}", managed.address(), much.address());
        std::io::stdout().flush()?;
        // Until it is killed.
        std::io::stdin().read_line(&mut String::new())?;
        Ok(())
    })
}
