// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process that has the lock of its memory held for as long as it likes. Its own GPU faults wait for that. Those of other
//! processes do not.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use uvm_suite::{ensure, skip, this_program, Killed, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, Process, PAGE};

use crate::failures::{has_dmsetup, Dm, PATIENCE};
use crate::rig::{check, Done, WORDS};
use crate::silent::{map_and_unmap, one_after_the_other, Page, Step};
use crate::waits::ends_in;
use crate::SILENT;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "no process' GPU faults wait for the lock of another one's memory",
        SILENT,
        others,
    );
}

/// Pages of the other process, which the GPU and the CPU use in turn. There are few, as a test of one CPU shares it with the
/// faults that come back.
const PAGES: usize = 8;

/// Run by the test below: has GPU faults serviced, once it is told to begin.
pub(crate) fn child_faults() -> ExitCode {
    let work = || -> Done {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, PAGES * PAGE as usize / 8)?;
        println!("ready");
        std::io::stdin().read_line(&mut String::new())?;
        let op = Op::write(&buffer).pattern(3, 1).warps(1);
        gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        check(&buffer, 3)
    };
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// A thread of this process holds the lock of its memory until the device answers. A second one waits to change what memory
/// there is, and whoever wants the lock after that waits behind it. Then come this process' GPU faults, and another one's.
fn others() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer: Buffer<u64> = Buffer::managed(&process, WORDS)?;
    // Both are there before the lock is: a new process needs it, and so may what is made here.
    let mut command = this_program()?;
    command.arg("--child-faults").stdin(Stdio::piped());
    let mut other = Killed(command.stdout(Stdio::piped()).spawn()?);
    let mut said = [0; 6];
    let mut output = other.0.stdout.take().ok_or("there is no output")?;
    std::io::Read::read_exact(&mut output, &mut said)?;
    let mut tell = other.0.stdin.take().ok_or("there is no input")?;
    let kernel = Kernel::new().op(Op::write(&buffer).pattern(5, 1).warps(1));
    gpu.launch(&kernel)?.wait()?.ok()?;
    // A page of this program's that is not there yet would need the lock as well.
    // SAFETY: it changes where memory is, and nothing in it.
    let is_there = unsafe { libc::mlockall(libc::MCL_CURRENT) } == 0;
    ensure!(is_there, "no memory");
    buffer.set(0, 0);
    let device = Dm::new()?;
    let page = Page::of(&device, 0, &[1])?;
    let at = page.0 as u64;
    let memory = File::open("/proc/self/mem")?;
    let steps: Vec<Step<'_>> = vec![
        Box::new(|| memory.read_at(&mut [0], at).map_or(-1, |_| 0)),
        Box::new(map_and_unmap),
    ];
    let silence = device.suspend()?;
    let mut launch = None;
    let got = one_after_the_other(silence, steps, usize::MAX, || {
        let kernel = launch.insert(gpu.launch(&kernel)?);
        std::thread::sleep(Duration::from_millis(300));
        writeln!(tell)?;
        let ended = ends_in(&mut other, PATIENCE / 2)?;
        ensure!(ended, "the other process' faults are not serviced");
        let early = kernel.wait_for(Duration::from_millis(1));
        let errno = early.err().and_then(|error| error.errno());
        ensure!(
            errno == Some(libc::ETIMEDOUT),
            "this process' lock was free"
        );
        Ok(())
    })?;
    // SAFETY: as above.
    unsafe { libc::munlockall() };
    ensure!(got == [0, 0], "{got:?}");
    let status = other.0.wait()?;
    ensure!(status.success(), "the other process ended with {status}");
    launch.ok_or("nothing was launched")?.wait()?.ok()?;
    check(&buffer, 5)?;
    Ok(Pass::Ok)
}
