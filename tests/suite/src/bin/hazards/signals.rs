// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process gets signals while it opens the driver: UVM_INITIALIZE succeeds as it does without.

use std::io::{stdout, Read, Write};
use std::process::{ExitCode, Stdio};
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, this_program, Failure, Killed, Outcome, Pass, Suite};
use vgpu_client::{Process, PAGE};

use crate::{spared, NONE};

/// How often the child opens the driver.
const TIMES: usize = 40;
/// Mappings of the child, each of which Linux locks as UVM_INITIALIZE registers the notifier: what takes it long enough for
/// a signal to come meanwhile.
const MAPPINGS: usize = 8_000;
/// How long the test waits between two signals.
const PAUSE: Duration = Duration::from_micros(500);
/// A child that has all signals takes some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "signals: a process initializes beside those of a handler",
        NONE,
        || initializes(&[libc::SIGUSR1]),
    );
    suite.test(
        "signals: a process initializes beside those of a stop, and goes on",
        NONE,
        || initializes(&[libc::SIGSTOP, libc::SIGCONT]),
    );
}

/// Sends a child these `signals` in turn, as long as it opens the driver.
fn initializes(signals: &[i32]) -> Outcome {
    let process = Process::new()?;
    if spared(&process)? {
        skip!("UVM_INITIALIZE of the unmodified driver fails, see docs/fixes.md");
    }
    if !process.has_hmm()? {
        skip!("without HMM no notifier is registered");
    }
    let mut command = this_program()?;
    command.arg("--child-initializes").stdout(Stdio::piped());
    let mut child = Killed(command.spawn()?);
    let mut said = child.0.stdout.take().ok_or("the child has no output")?;
    said.read_exact(&mut [0])?;
    let begin = Instant::now();
    let mut sent = 0;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        ensure!(begin.elapsed() < PATIENCE, "the child does not get on");
        // SAFETY: the child has not been waited for, so that its number is nobody else's.
        unsafe { libc::kill(child.0.id() as i32, signals[sent % signals.len()]) };
        sent += 1;
        sleep(PAUSE);
    };
    ensure!(status.success(), "the child ended with {status}");
    ensure!(sent > TIMES, "{sent} signals are too few");
    Ok(Pass::Ok)
}

/// The child, which opens the driver again and again, once it has said a letter.
pub(crate) fn child_initializes() -> ExitCode {
    let opens = || -> Result<(), Failure> {
        handle();
        mappings()?;
        stdout().write_all(b".")?;
        stdout().flush()?;
        for _ in 0..TIMES {
            Process::new()?;
        }
        Ok(())
    };
    match opens() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("the child: {failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// Has SIGUSR1 do nothing.
fn handle() {
    extern "C" fn nothing(_signal: i32) {}
    // SAFETY: the handler touches nothing.
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
}

/// Maps as much. Every second page may be written to, so that no two are one mapping.
fn mappings() -> Result<(), Failure> {
    let (page, anywhere) = (PAGE as usize, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, where nothing is.
    let first = unsafe {
        libc::mmap(
            null_mut(),
            MAPPINGS * page,
            libc::PROT_READ,
            anywhere,
            -1,
            0,
        )
    };
    ensure!(first != libc::MAP_FAILED, "mmap failed");
    for n in (0..MAPPINGS).step_by(2) {
        let write = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the page is of that mapping, to which nobody refers.
        let failed = unsafe { libc::mprotect(first.byte_add(n * page), page, write) };
        ensure!(failed == 0, "mprotect failed");
    }
    Ok(())
}
