// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Storms: the same thing again and again, and processes killed in the middle of
//! faults, evictions and migrations. Afterwards no memory is missing, nothing
//! hangs, and the kernel log is clean.
//!
//! A killed process is this program with `--victim`, so that SIGKILL hits all it
//! has. It works until it is killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use uvm_suite::modules::Module;
use uvm_suite::{
    ensure, no_leak, skip, stacks, this_program, Allowed, Failure, Outcome, Pass, Suite,
};
use vgpu_client::uvm::Uuid;
use vgpu_client::vgpu::Stats;
use vgpu_client::{Buffer, Kernel, Op, Process, Vgpu, BLOCK};

const HELP: &str = "usage: storms [--times N] [--only TEXT]
  --times N     how often each (100)
  --only TEXT   only tests whose name holds TEXT
";

const NONE: &[Allowed] = &[];
/// Longest that the end of a killed process may take, on a slow VM, and one whose kernel
/// checks every access.
fn patience() -> Duration {
    let debug = std::env::var_os("KERNEL").is_some_and(|kernel| kernel == "debug");
    Duration::from_secs(if debug { 300 } else { 60 })
}

fn main() -> ExitCode {
    use lexopt::prelude::*;
    let (mut times, mut only) = (100, None);
    let mut parser = lexopt::Parser::from_env();
    let parsed = loop {
        match parser.next() {
            Ok(None) => break Ok(()),
            Ok(Some(Long("times"))) => match parser.value().and_then(|v| v.parse()) {
                Ok(n) => times = n,
                Err(e) => break Err(e),
            },
            Ok(Some(Long("only"))) => only = parser.value().ok().and_then(|v| v.string().ok()),
            Ok(Some(Long("victim"))) => {
                let what = parser
                    .value()
                    .ok()
                    .and_then(|v| v.string().ok())
                    .unwrap_or_default();
                return victim(&what);
            }
            Ok(Some(Long("help"))) => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            Ok(Some(other)) => break Err(other.unexpected()),
            Err(e) => break Err(e),
        }
    };
    if let Err(error) = parsed {
        eprint!("storms: {error}\n{HELP}");
        return ExitCode::from(2);
    }

    let mut suite = Suite::new("storms", only);
    suite.test(
        &format!("register and unregister {times} times"),
        NONE,
        || register(times),
    );
    suite.test(
        &format!("address spaces and channels {times} times"),
        NONE,
        || spaces(times),
    );
    for what in ["faults", "eviction", "migration"] {
        suite.test(
            &format!("SIGKILL during {what} {times} times"),
            NONE,
            || kill(what, times),
        );
        suite.test(
            &format!("no leak after SIGKILL during {what}"),
            NONE,
            nothing_left,
        );
    }
    suite.test(
        &format!("load and unload nvidia-uvm.ko {times} times"),
        NONE,
        || reload(times, false),
    );
    let pairs = times.div_ceil(5);
    suite.test(
        &format!("load and unload both modules {pairs} times"),
        NONE,
        || reload(pairs, true),
    );
    suite.test("parameters that vgpu.ko refuses", REFUSED, refused);
    suite.test("no leak after it all", NONE, nothing_left);
    suite.test("kmemleak", NONE, kmemleak);
    suite.finish()
}

fn register(times: u32) -> Outcome {
    let info = Vgpu::open()?.info(0)?;
    let process = Process::new()?;
    for _ in 0..times {
        process.register_gpu(info.uuid())?;
        process.unregister_gpu(info.uuid())?;
    }
    Ok(Pass::Ok)
}

fn spaces(times: u32) -> Outcome {
    let process = Process::new()?;
    for round in 0..times {
        let gpu = process.gpu(0)?;
        // Now and then with something in it.
        if round % 10 == 0 {
            let buffer = Buffer::<u64>::managed(&process, 4096)?;
            gpu.launch(&Kernel::new().op(Op::write(&buffer).pattern(1, 1)))?
                .wait()?
                .ok()?;
        }
        gpu.unregister()?;
    }
    Ok(Pass::Ok)
}

/// What a victim does, until it is killed.
fn victim(what: &str) -> ExitCode {
    let work = || -> vgpu_client::Result<()> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let vidmem = gpu.info().vidmem_bytes;
        let bytes = match what {
            "eviction" => vidmem * 5 / 4,
            _ => vidmem / 2,
        };
        let buffer = Buffer::<u64>::managed(&process, (bytes / 8) as usize)?;
        println!("ready");
        for round in 0.. {
            if what == "migration" {
                // In pieces: a call looks for no signal before it is done, which with a
                // kernel that checks every access takes a quarter of a minute for all.
                for to in [gpu.uuid(), Uuid::CPU] {
                    for at in (0..buffer.bytes()).step_by(2 * BLOCK as usize) {
                        let bytes = (2 * BLOCK).min(buffer.bytes() - at);
                        process.migrate(buffer.address() + at, bytes, to)?;
                    }
                }
                continue;
            }
            let write = Op::write(&buffer).every(16384).pattern(round, 1).warps(64);
            gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
            if what == "faults" {
                // Back to the CPU, so that the GPU faults again.
                (0..buffer.len())
                    .step_by(8192)
                    .for_each(|i| buffer.set(i, round));
            }
        }
        Ok(())
    };
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ends a child whatever happens to the test.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// What the GPU counts while a victim does what it is killed in: eviction and migration
/// copy, faults are faults.
fn done_so_far(stats: &Stats, what: &str) -> u64 {
    match what {
        "eviction" => stats.d2h_bytes,
        "migration" => stats.d2h_bytes + stats.h2d_bytes,
        _ => stats.faults,
    }
}

/// What tells that a victim was killed in the middle of it: there was more to come, or a
/// fault that UVM had not served yet. A killed process's kernels are stopped at once, so
/// that they hardly fault again.
fn more_to_come(stats: &Stats, what: &str) -> u64 {
    match what {
        "faults" => stats.stopped_faulting,
        _ => done_so_far(stats, what),
    }
}

fn kill(what: &str, times: u32) -> Outcome {
    let device = Vgpu::open()?;
    let mut rng = oorandom::Rand32::new(7);
    let (mut hits, mut round, wanted) = (0, 0, times.div_ceil(10));
    // More if chance has it that few were hit so far: the machine says how many are.
    while round < times || (hits < wanted && round < 4 * times) {
        let mut command = this_program()?;
        command.args(["--victim", what]).stdout(Stdio::piped());
        let mut victim = Victim(command.spawn()?);
        let mut said = String::new();
        if let Some(stdout) = victim.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        ensure!(
            said == "ready\n",
            "round {round}: the victim said '{}'",
            said.trim()
        );
        // Once it is at it, at any point of the first moments: in each second round just as more of it is seen. On a slow
        // machine that may be when all of a call's copies are over, and nothing is left to be hit.
        let wait_for_more = |than: &Stats| -> Result<Stats, Failure> {
            let start = Instant::now();
            loop {
                let now = device.stats(0)?;
                if done_so_far(&now, what) != done_so_far(than, what) {
                    return Ok(now);
                }
                let waited = start.elapsed();
                ensure!(
                    waited < patience(),
                    "round {round}: no {what} in {waited:?}"
                );
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        wait_for_more(&device.stats(0)?)?;
        std::thread::sleep(Duration::from_micros(u64::from(rng.rand_range(0..200_000))));
        let mut before = device.stats(0)?;
        if round % 2 == 0 {
            before = wait_for_more(&before)?;
        }
        victim.0.kill()?;
        reap(victim, round)?;
        hits += u32::from(more_to_come(&device.stats(0)?, what) > more_to_come(&before, what));
        round += 1;
    }
    println!("# {hits} of {round} were killed in the middle of {what}");
    ensure!(
        hits >= wanted,
        "only {hits} of {round} were killed in the middle of {what}"
    );
    Ok(Pass::Ok)
}

/// Waits for the end of a killed process, but not for ever.
fn reap(mut victim: Victim, round: u32) -> Result<(), Failure> {
    use std::os::unix::process::ExitStatusExt;
    let (done, wait) = mpsc::channel();
    let (start, pid) = (Instant::now(), victim.0.id());
    std::thread::spawn(move || done.send(victim.0.wait()));
    match wait.recv_timeout(patience()) {
        Ok(status) => {
            let signal = status?.signal();
            ensure!(
                signal == Some(libc::SIGKILL),
                "round {round}: it ended by itself: {signal:?}"
            );
            Ok(())
        }
        Err(_) => {
            let (after, stacks) = (start.elapsed(), stacks(pid));
            Err(format!("round {round}: hangs {after:?} after SIGKILL\n{stacks}").into())
        }
    }
}

/// All of the GPU's memory is to be had again, and the GPU works.
fn nothing_left() -> Outcome {
    no_leak()?;
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer = Buffer::<u64>::managed(&process, 1 << 20)?;
    gpu.launch(&Kernel::new().op(Op::write(&buffer).pattern(1, 1).warps(16)))?
        .wait()?
        .ok()?;
    ensure!(buffer.first_other(|i| 1 + i as u64).is_none(), "wrong data");
    Ok(Pass::Ok)
}

fn reload(times: u32, both: bool) -> Outcome {
    let (Some(uvm), Some(vgpu)) = (Module::uvm(), Module::vgpu()) else {
        skip!("not under `make vm`, which says where the modules are");
    };
    for round in 0..times {
        uvm.unload()?;
        if both {
            vgpu.unload()?;
            vgpu.load()?;
        }
        uvm.load()?;
        // Every tenth time, with use in between.
        if round % 10 == 0 {
            let process = Process::new()?;
            let gpu = process.gpu(0)?;
            let buffer = Buffer::<u64>::managed(&process, 4096)?;
            gpu.launch(&Kernel::new().op(Op::write(&buffer)))?
                .wait()?
                .ok()?;
        }
    }
    Ok(Pass::Ok)
}

/// What vgpu.ko says of a parameter that it refuses.
const REFUSED: &[Allowed] = &[
    refusal("vgpu: gpus="),
    refusal("vgpu: link="),
    refusal("vgpu: personality="),
    refusal("vgpu: fault_entries="),
    refusal("vgpu: vidmem_mb="),
    refusal("vgpu: irq="),
    refusal("vgpu: order="),
];

const fn refusal(text: &'static str) -> Allowed {
    Allowed { text, times: 2 }
}

/// The software GPU is not made with a parameter that its documentation excludes, and is made after that.
fn refused() -> Outcome {
    let (Some(uvm), Some(vgpu)) = (Module::uvm(), Module::vgpu()) else {
        skip!("not under `make vm`, which says where the modules are");
    };
    uvm.unload()?;
    vgpu.unload()?;
    let wrong: &[&[&str]] = &[
        &["gpus=0"],
        &["gpus=9"],
        &["link=sli"],
        &["link=nvlink", "personality=blackwell"],
        &["personality=pascal"],
        &["fault_entries=3"],
        &["fault_entries=65537"],
        &["vidmem_mb=6"],
        &["vidmem_mb=9"],
        &["irq=soft"],
        &["order=any"],
    ];
    let mut taken = Vec::new();
    for parameters in wrong {
        if vgpu.load_with(parameters).is_ok() {
            taken.push(parameters);
            vgpu.unload()?;
        }
    }
    vgpu.load()?;
    uvm.load()?;
    ensure!(taken.is_empty(), "it was loaded with {taken:?}");
    Ok(Pass::Ok)
}

/// Where the kernel has kmemleak, asks it twice: what it sees once may be on its
/// way.
fn kmemleak() -> Outcome {
    let path = "/sys/kernel/debug/kmemleak";
    if std::fs::metadata(path).is_err() {
        skip!("the kernel has no kmemleak; run with KERNEL=debug");
    }
    for _ in 0..2 {
        std::fs::write(path, "scan")?;
        std::thread::sleep(Duration::from_secs(5));
    }
    let report = std::fs::read_to_string(path)?;
    ensure!(!report.contains("unreferenced"), "{report}");
    Ok(Pass::Ok)
}
