// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `uvmtop --tools` on NVIDIA's own module: what UVM's tools interface counts, and that nobody's memory is kept for it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use uvm_suite::{ensure, skip, uvmtop, Failure, Outcome, Pass};
use vgpu_client::{driver_version, Buffer, Gpu, Kernel, Op, Process, BLOCK};

/// uvmtop looks at this process, whose memory goes to the GPU and back, each byte once.
pub(crate) fn counts() -> Outcome {
    let process = Process::new()?;
    if driver_version(&process)?.is_some() {
        skip!("this driver counts by itself");
    }
    let gpu: Gpu = process.gpu(0)?;
    let data = Buffer::<u64>::managed(&process, (4 * BLOCK / 8) as usize)?;
    data.fill(|i| i as u64);
    let check = Op::check(&data).every(4096).pattern(0, 512).warps(32);
    // All of it has to be within one interval, as nothing is counted from one to the next.
    for seconds in [4, 16, 64] {
        let mut looking = Looking::new(&seconds.to_string())?;
        looking.next()?;
        let since = Instant::now();
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
        let wrong = data.first_other(|i| i as u64);
        ensure!(
            wrong.is_none(),
            "the data are not what they were: {wrong:?}"
        );
        if since.elapsed() > Duration::from_secs(seconds - 2) {
            continue;
        }
        let shown = looking.next()?;
        let tools = &uvmtop::own(&shown)?["tools"];
        let of = |name: &str| tools[name].as_u64();
        ensure!(
            [of("bytes_in"), of("bytes_out")] == [Some(data.bytes()); 2],
            "{} bytes have come and gone: {tools}",
            data.bytes()
        );
        ensure!(
            of("faults") > Some(0) && of("cpu_faults") > Some(0),
            "both have faulted: {tools}"
        );
        println!("# {tools}");
        return Ok(Pass::Ok);
    }
    Err("this machine is too slow for an interval".into())
}

/// The tools keep the VA space of a process that ends while they are open: it is let go before anybody looks again.
pub(crate) fn who_ends_is_let_go() -> Outcome {
    if driver_version(&Process::new()?)?.is_some() {
        skip!("this driver counts by itself");
    }
    let mut other = Command::new(std::env::current_exe()?)
        .arg("--stay")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = other.stdout.take().ok_or("there is no output")?;
    let there = BufReader::new(out).read_line(&mut String::new())?;
    // It looks now, and then not for an hour.
    let looking = Looking::new("3600");
    let within = |is_so: &dyn Fn() -> bool| {
        (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            is_so()
        })
    };
    let has = |open: bool| looking.as_ref().is_ok_and(|l| (l.tools() > 0) == open);
    let looks = there > 0 && within(&|| has(true));
    other.kill()?;
    other.wait()?;
    ensure!(looks, "uvmtop has no tools open");
    let is_let_go = within(&|| has(false));
    ensure!(is_let_go, "uvmtop keeps the VA space of who has ended");
    Ok(Pass::Ok)
}

/// What [`who_ends_is_let_go`] runs as a process of its own: it has a VA space until its input ends.
pub(crate) fn stay() -> ExitCode {
    let there = || -> Result<_, vgpu_client::Error> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        Ok((process, gpu))
    };
    let Ok(_there) = there() else {
        return ExitCode::FAILURE;
    };
    println!("it is there");
    std::io::stdin().lines().for_each(drop);
    ExitCode::SUCCESS
}

/// A uvmtop that goes on, until this is dropped.
struct Looking {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Looking {
    fn new(seconds: &str) -> Result<Self, Failure> {
        let options = ["--json", "--tools", "--interval", seconds];
        let mut child = uvmtop::command(&options)?.stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("uvmtop has no output")?;
        Ok(Self {
            child,
            lines: BufReader::new(out).lines(),
        })
    }

    /// How many files of UVM's tools it has open.
    fn tools(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        let is_tools = |link: &std::path::PathBuf| link.ends_with("nvidia-uvm-tools");
        links.filter(is_tools).count()
    }

    /// What it tells next.
    fn next(&mut self) -> Result<Value, Failure> {
        let line = self.lines.next().ok_or("uvmtop has ended")??;
        serde_json::from_str(&line).map_err(|e| e.to_string().into())
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
