// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Programs that take turns on a GPU which has room for one and a half of their working sets, in the style of MSched
//! (arXiv 2512.24637): what moves to the GPU, and what has to.
//!
//! Each program is a process. In its turn it goes through its memory twice, kernel by kernel. It announces each kernel and,
//! where the driver prefetches, waits until what was predicted has come. The first pass finds what the last turn wrote, and
//! the second writes. What had to move is reckoned apart from the driver (`uvmsim_programs::Programs::least`), for the room
//! that the GPU had.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, ExitCode, Stdio};
use std::time::{Duration, Instant};

use uvm_suite::{ensure, this_program, Failure, Outcome, Pass, Suite};
use uvmsim_programs::Programs;
use vgpu_client::{
    driver_version, Buffer, DriverStats, EventCounts, EventQueue, Gpu, Kernel, Op, Process, BLOCK,
};

use crate::quota::{resident, told};
use crate::together;

/// The program's option with which a test starts each of the programs; how many blocks it has follows.
pub const CHILD: &str = "--child-takes-turns";

/// What a program does in each turn.
const PASSES: u32 = 2;
const KERNELS: u32 = 3;

/// How far from each other the accesses are.
const APART: u64 = 64 << 10;
const APART_WORDS: usize = APART as usize / 8;
const FIRST: u64 = 0x0bad_cafe_5eed_f00d;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// How long the worker may take for what one announcement asks of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The tests; each program has so many turns.
pub fn run(suite: &mut Suite, evicts: Option<&str>, turns: u32) {
    for programs in [2, 4, 8] {
        let name = format!("{programs} programs that take turns");
        suite.test(&name, &[], || take_turns(programs, evicts, turns));
    }
}

/// A program in a process of its own.
struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// What the driver has counted of a program.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Bytes that have come to the GPU.
    bytes: u64,
    faults: u64,
    /// Bytes of chunks of the GPU that it has now; 0 if that is not told.
    resident: u64,
}

impl Program {
    fn start(blocks: u32) -> Result<Self, Failure> {
        let mut command = this_program()?;
        command.args([CHILD, &blocks.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().ok_or("no pipe to a program")?;
        let from = child.stdout.take().ok_or("no pipe from a program")?;
        let from = BufReader::new(from);
        let mut it = Self { child, to, from };
        it.answer()?;
        Ok(it)
    }

    /// Has the program do what it is told.
    fn tell(&mut self, what: &str) -> Result<Counts, Failure> {
        writeln!(self.to, "{what}")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Counts, Failure> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[bytes, faults, resident]) => Ok(Counts {
                bytes,
                faults,
                resident,
            }),
            _ => Err(format!("a program says {:?}", line.trim()).into()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends by itself when nobody tells it anything, unless its kernel goes on for ever.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn take_turns(programs: u32, evicts: Option<&str>, turns: u32) -> Outcome {
    let prefetches = together::is_on();
    let policy = match evicts {
        None => "uvm",
        Some("lru") if prefetches => "deepum",
        Some(policy) => policy,
    };
    let room = room()?;
    // A chunk of it is UVM's own.
    let working_set = (room - 1) / 3 * 2;
    let all = (0..programs).map(|_| Program::start(working_set));
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    let mut counts = vec![Counts::default(); all.len()];
    let mut held = 0;
    let mut first_faults = 0;
    for turn in 0..turns {
        for n in 0..all.len() {
            counts[n] = all[n].tell("turn")?;
            // What others have lost meanwhile they do not have any more.
            let now = all.iter_mut().map(|program| program.tell("count"));
            let now = now.collect::<Result<Vec<_>, _>>()?;
            held = held.max(now.iter().map(|c| c.resident).sum());
        }
        if turn == 0 {
            first_faults = counts.iter().map(|c| c.faults).sum();
        }
    }
    for program in &mut all {
        program.tell("verify")?;
    }
    let faults: u64 = counts.iter().map(|c| c.faults).sum();
    let bytes: u64 = counts.iter().map(|c| c.bytes).sum();
    let chunks = match held {
        0 => room,
        held => u32::try_from(held / BLOCK).map_err(|e| e.to_string())?,
    };
    let what = Programs {
        programs,
        working_set,
        chunks,
        turns,
        passes: PASSES,
        kernels: KERNELS,
        rests: true,
    };
    let least = what.least().map_err(|e| format!("{what:?}: {e:?}"))?;
    let required = least * BLOCK;
    // All that was read was compared, or this were not reached.
    println!(
        r#"# program {{"programs": {programs}, "policy": "{policy}", "bytes": {bytes}, "required": {required}, "simulated": false, "verified": true, "working_set_bytes": {}, "gpu_bytes": {}, "turns": {turns}, "faults_in_first_turns": {first_faults}, "faults": {faults}}}"#,
        u64::from(working_set) * BLOCK,
        u64::from(chunks) * BLOCK,
    );
    ensure!(
        2 * chunks >= 3 * working_set && 2 * chunks < 4 * working_set,
        "{chunks} chunks are not one and a half of {working_set}"
    );
    ensure!(
        bytes >= required,
        "{bytes} bytes moved, and {required} have to"
    );
    let whole = u64::from(programs * turns * working_set) * BLOCK;
    match policy {
        "turns" => {
            ensure!(
                10 * bytes <= 11 * required,
                "{bytes} bytes moved, {required} had to"
            );
            // With many programs nearly all has to move, and that alone keeps any order within that.
            ensure!(
                2 * (bytes - required) <= whole - required,
                "{bytes} bytes moved, {required} had to, and {whole} do in the order of `lru`"
            );
            ensure!(
                !prefetches || 10 * (faults - first_faults) <= first_faults,
                "{faults} faults, {first_faults} in the first turns"
            );
        }
        "lru" | "uvm" => ensure!(bytes == whole, "{bytes} bytes moved, of {whole}"),
        _ => {}
    }
    Ok(Pass::Ok)
}

/// The blocks that the GPU has room for.
fn room() -> Result<u32, Failure> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    Ok(u32::try_from(gpu.info().usable_bytes() / BLOCK).map_err(|e| e.to_string())?)
}

/// What a program has, in its own process.
struct Own {
    process: Process,
    gpu: Gpu,
    data: Buffer<u64>,
    /// Where NVIDIA's driver counts.
    events: Option<EventQueue>,
    seen: EventCounts,
    turns: u64,
}

/// Run for each program: does what it reads, line by line, and answers each with what was counted so far.
pub fn child(blocks: Option<String>) -> ExitCode {
    let takes_turns = || -> Result<(), Failure> {
        let blocks = blocks.and_then(|blocks| blocks.parse().ok());
        let blocks = blocks.ok_or("no number of blocks")?;
        let mut own = Own::new(blocks)?;
        own.answers()?;
        for line in std::io::stdin().lines() {
            match line?.as_str() {
                "turn" => own.turn()?,
                "verify" => own.verify()?,
                _ => {}
            }
            own.answers()?;
        }
        Ok(())
    };
    match takes_turns() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            println!("{failed:?}");
            ExitCode::FAILURE
        }
    }
}

impl Own {
    fn new(blocks: u64) -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let events = match driver_version(&process)? {
            Some(_) => None,
            None => Some(EventQueue::new(&process, 1 << 16)?),
        };
        let data = Buffer::managed(&process, (blocks * BLOCK / 8) as usize)?;
        data.fill(|i| value(i, 0));
        Ok(Self {
            process,
            gpu,
            data,
            events,
            seen: EventCounts::default(),
            turns: 0,
        })
    }

    fn answers(&mut self) -> Result<(), Failure> {
        let (bytes, faults) = match &self.events {
            Some(events) => {
                self.seen.add(&events.take(self.gpu.uuid())?);
                (self.seen.h2d_bytes, self.seen.gpu_faults)
            }
            None => {
                let stats = DriverStats::get(&self.process, self.gpu.uuid(), false)?;
                (
                    stats.host_to_gpu.iter().map(|t| t.bytes).sum(),
                    stats.faults,
                )
            }
        };
        let resident = match told(&self.process, &self.gpu, "resident")? {
            Some(_) => resident(&self.process, &self.gpu)?,
            None => 0,
        };
        println!("{bytes} {faults} {resident}");
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Failure> {
        for pass in 0..PASSES {
            let writes = pass + 1 == PASSES;
            for n in 0..KERNELS {
                self.announce(u64::from(n) + 1)?;
                self.kernel(n, writes)?;
            }
        }
        self.turns += 1;
        self.announce(0)
    }

    /// Announces a kernel, or that none follows, where that can be, and waits until the worker has done what it makes of it.
    fn announce(&self, kernel: u64) -> Result<(), Failure> {
        if self.events.is_some() {
            return Ok(());
        }
        self.process.announce(self.gpu.uuid(), kernel)?;
        let began = Instant::now();
        while self.process.prefetch_worker_is_at_work()? {
            ensure!(began.elapsed() < PATIENCE, "the worker does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// One warp goes through a part of the memory.
    fn kernel(&self, n: u32, writes: bool) -> Result<(), Failure> {
        let block = |n: u32| self.data.len() / (BLOCK as usize / 8) * n as usize / KERNELS as usize;
        let first = block(n) * BLOCK as usize / 8;
        let count = block(n + 1) * BLOCK as usize / 8 - first;
        let (op, turns) = if writes {
            (Op::write(&self.data), self.turns + 1)
        } else {
            (Op::check(&self.data), self.turns)
        };
        let step = STEP.wrapping_mul(APART / 8);
        let op = op.range(first, count).pattern(value(first, turns), step);
        let op = op.every(APART).lanes(1).utlbs(0, 1);
        let kernel = Kernel::new().op(op).utlb_faults(1);
        let report = self.gpu.launch(&kernel)?.wait()?.ok()?;
        ensure!(report.mismatches == 0, "the data are not what they were");
        Ok(())
    }

    /// All data are what the last turn wrote, and what was there before in between.
    fn verify(&self) -> Result<(), Failure> {
        let turns = |i: usize| if i % APART_WORDS == 0 { self.turns } else { 0 };
        let other = self.data.first_other(|i| value(i, turns(i)));
        ensure!(other.is_none(), "the data are not what they were");
        Ok(())
    }
}

/// What element `i` is after so many turns.
fn value(i: usize, turns: u64) -> u64 {
    FIRST
        .wrapping_add(turns << 40)
        .wrapping_add(STEP.wrapping_mul(i as u64))
}
