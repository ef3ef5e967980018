// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Fault storms that end the same way whichever loop serves them.
//!
//! One seed gives one series of storms: kernels of many warps that read, write and add
//! atomically at the same time, some beside a kernel that may not do what it does, some
//! beside another process. What each storm leaves behind does not depend on timing: the
//! data, where each page is and who maps it, and how each kernel ended. It is written
//! down under one loop, and compared under the other.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::ExitCode;

use oorandom::Rand64;
use uvm_suite::{clock_seed, ensure, no_leak, Failure, Outcome, Pass, Suite};
use vgpu_client::{
    uvm, vgpu, Buffer, Channel, Gpu, Kernel, Op, Outcome as Ended, Process, Report, BLOCK, PAGE,
};

const HELP: &str = "usage: loops [--storms N] [--seed N] --record FILE
       loops --against FILE
  --storms N       how many (1000)
  --seed N         which (from the clock, and printed)
  --record FILE    writes down how each storm ended
  --against FILE   the same storms again; they must end as FILE says
";

/// Words of a 4 KiB page.
const WORDS: usize = (PAGE / 8) as usize;

/// Below where anything is ever mapped.
const NOWHERE: u64 = 0x1000_0000;

struct Options {
    storms: u64,
    seed: u64,
    record: Option<PathBuf>,
    against: Option<PathBuf>,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        storms: 1000,
        seed: clock_seed(),
        record: None,
        against: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("storms") => options.storms = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("record") => options.record = Some(parser.value()?.into()),
            Long("against") => options.against = Some(parser.value()?.into()),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if options.record.is_some() == options.against.is_some() {
        return Err("give one of --record and --against".into());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprint!("loops: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let mut suite = Suite::new("loops", None);
    match &options.against {
        None => {
            let name = format!("{} storms, seed {}", options.storms, options.seed);
            suite.test(&name, &[], || record(&options));
        }
        Some(path) => {
            suite.test("the same storms end alike", &[], || against(path));
        }
    }
    suite.test("no leak after it", &[], no_leak);
    suite.finish()
}

fn record(options: &Options) -> Outcome {
    let mut text = format!("{} {}\n", options.seed, options.storms);
    run(options.seed, options.storms, |_, line| {
        text.push_str(line);
        text.push('\n');
        Ok(())
    })?;
    if let Some(path) = &options.record {
        std::fs::write(path, text)?;
    }
    Ok(Pass::Ok)
}

fn against(path: &PathBuf) -> Outcome {
    let text = std::fs::read_to_string(path)?;
    let (head, lines) = text.split_once('\n').ok_or("the file is empty")?;
    let numbers: Vec<u64> = head.split(' ').filter_map(|n| n.parse().ok()).collect();
    let &[seed, storms] = &numbers[..] else {
        return Err(format!("{}: not written by loops --record", path.display()).into());
    };
    let lines: Vec<&str> = lines.lines().collect();
    ensure!(
        storms > 0 && lines.len() as u64 == storms,
        "{} storms are written down, not {storms}",
        lines.len()
    );
    println!("# seed {seed}, {storms} storms");
    run(seed, storms, |n, line| {
        let before = lines[n as usize];
        ensure!(
            line == before,
            "storm {n} of seed {seed} ended otherwise\nbefore: {before}\nnow:    {line}"
        );
        Ok(())
    })?;
    Ok(Pass::Ok)
}

/// Runs the storms of a seed, and hands over what each left behind.
fn run(
    seed: u64,
    storms: u64,
    mut each: impl FnMut(u64, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let place = Place::new()?;
    for n in 0..storms {
        let mut random = Rand64::new(u128::from(seed) << 64 | u128::from(n));
        let line = place
            .storm(&mut random)
            .map_err(|why| Failure::from(format!("storm {n} of seed {seed}: {why:?}")))?;
        each(n, &line)?;
        if n % (storms / 10).max(1) == 0 {
            println!("# {n} storms");
        }
    }
    Ok(())
}

/// The processes and channels that all storms use.
struct Place {
    process: Process,
    gpu: Gpu,
    offender: Channel,
    other: Process,
    other_gpu: Gpu,
}

/// The parts of a buffer, in pages: read, written, added to.
struct Parts {
    read: (usize, usize),
    written: (usize, usize),
    added: (usize, usize),
}

impl Place {
    fn new() -> Result<Self, Failure> {
        let (process, other) = (Process::new()?, Process::new()?);
        let (gpu, other_gpu) = (process.gpu(0)?, other.gpu(0)?);
        for process in [&process, &other] {
            // Which pages it pins depends on the time between faults.
            process.call(&mut uvm::SetPageThrashingPolicy {
                policy: 1,
                ..Default::default()
            })?;
            prefetching(process, false)?;
        }
        let offender = gpu.new_channel()?;
        Ok(Self {
            process,
            gpu,
            offender,
            other,
            other_gpu,
        })
    }

    fn storm(&self, random: &mut Rand64) -> Result<String, Failure> {
        // What the tree prefetcher adds depends on what comes in one batch, unless
        // every fault is alone.
        let serial = random.rand_range(0..4) == 0;
        prefetching(&self.process, serial)?;
        let pages = random.rand_range(48..640) as usize;
        let buffer = Buffer::<u64>::managed(&self.process, pages * WORDS)?;
        let mut model = vec![0; pages * WORDS];
        // Few, as without prefetching each of them is a fault of the CPU's.
        let from = random.rand_range(0..pages as u64) as usize;
        for page in some_range(random, (from, pages.min(from + 32))) {
            let value = random.rand_u64();
            for (i, word) in (page * WORDS..).zip(&mut model[page * WORDS..][..WORDS]) {
                *word = value.wrapping_add(i as u64);
                buffer.set(i, *word);
            }
        }
        let kernel = work(random, &buffer, &mut model, serial);
        let beside = random.rand_range(0..4) == 0;
        let theirs = Buffer::<u64>::managed(&self.other, 16 * WORDS)?;
        let launch = self.gpu.launch(&kernel)?;
        let their_launch = match beside {
            true => Some(
                self.other_gpu
                    .launch(&Kernel::new().op(scatter(random, Op::write(&theirs).pattern(5, 1))))?,
            ),
            false => None,
        };
        let mut line = String::new();
        if random.rand_range(0..4) == 0 {
            let _ = write!(line, "offender {} ", self.offend(random)?);
        }
        let report = launch.wait()?;
        ensure!(
            report.outcome == Ended::Done,
            "a good kernel ended so: {report}"
        );
        let _ = write!(line, "{} sum {:x}", ended(&report), report.sum);
        if let Some(launch) = their_launch {
            let report = launch.wait()?.ok()?;
            let wrong = theirs.first_other(|i| 5 + i as u64);
            ensure!(wrong.is_none(), "the other process has {wrong:x?}");
            let _ = write!(line, " other {}", ended(&report));
        }
        let _ = write!(line, " pages {:x}", self.pages(&buffer)?);
        // All at once, for the same reason.
        self.process
            .migrate(buffer.address(), buffer.bytes(), uvm::Uuid::CPU)?;
        let wrong = buffer.first_other(|i| model[i]);
        ensure!(
            wrong.is_none(),
            "(word, value) is {wrong:x?}, not {:x?}",
            wrong.map(|(i, _)| model[i])
        );
        let _ = write!(line, " data {:x}", hash(&model));
        Ok(line)
    }

    /// A kernel that makes an access which it may not make. Returns how the kernel ended.
    ///
    /// If its one warp asks for all pages at once, any page may be the one that is cancelled:
    /// UVM empties the fault buffer while the warp fills it. The replay that UVM then waits for
    /// is over "when all fault replays are in-flight" (`uvm_hal_types.h`), not when they have
    /// faulted again. So what UVM finds in the buffer may begin with a later page.
    fn offend(&self, random: &mut Rand64) -> Result<String, Failure> {
        let kinds = [vgpu::OP_READ, vgpu::OP_WRITE, vgpu::OP_ATOMIC_ADD];
        let kind = kinds[random.rand_range(0..3) as usize];
        let utlb = random.rand_range(0..16) as u32;
        if random.rand_range(0..2) == 0 {
            let va = NOWHERE + PAGE * random.rand_range(0..512);
            let op = Op::wild(kind, va).utlbs(utlb, 1);
            let report = self.offender.launch(&Kernel::new().op(op))?.wait()?;
            faulted(&report)?;
            ensure!(report.fault_va == va, "a fault at {:#x}", report.fault_va);
            return Ok(ended(&report));
        }
        let fixed = Buffer::<u64>::managed(&self.process, 8 * WORDS)?;
        fixed.fill(|i| i as u64);
        fixed.protect()?;
        let op = match kind {
            vgpu::OP_ATOMIC_ADD => Op::atomic_add(&fixed),
            _ => Op::write(&fixed),
        };
        let together = random.rand_range(0..2) == 0;
        let lanes = if together { 32 } else { 1 };
        let op = op.pattern(99, 0).utlbs(utlb, 1).lanes(lanes);
        let report = self.offender.launch(&Kernel::new().op(op))?.wait()?;
        let wrong = fixed.first_other(|i| i as u64);
        ensure!(wrong.is_none(), "read-only memory was changed: {wrong:x?}");
        faulted(&report)?;
        let pages = if together { fixed.bytes() } else { PAGE };
        let within = fixed.address()..fixed.address() + pages;
        ensure!(
            within.contains(&report.fault_va),
            "a fault at {:#x}, outside of {within:#x?}",
            report.fault_va
        );
        Ok(format!("{:?}", report.outcome))
    }

    /// A digest of where each page is, and who maps it how.
    fn pages(&self, buffer: &Buffer<u64>) -> Result<u64, Failure> {
        let mut state = DefaultHasher::new();
        for va in (0..buffer.bytes()).step_by(PAGE as usize) {
            let page = self.process.residency(buffer.address() + va)?;
            for processor in [uvm::Uuid::CPU, self.gpu.uuid()] {
                page.resident.contains(&processor).hash(&mut state);
                page.mapping(processor).hash(&mut state);
            }
        }
        Ok(state.finish())
    }
}

fn prefetching(process: &Process, on: bool) -> Result<(), Failure> {
    Ok(process.call(&mut uvm::SetPagePrefetchPolicy {
        policy: u32::from(!on),
        rm_status: 0,
    })?)
}

/// A kernel over the buffer; the model gets what it will have done.
fn work(random: &mut Rand64, buffer: &Buffer<u64>, model: &mut [u64], serial: bool) -> Kernel {
    let parts = cut(random, buffer.len() / WORDS);
    let mut kernel = Kernel::new().utlb_faults(random.rand_range(1..65) as u32);
    let mut add = |random: &mut Rand64, op: Op| {
        let op = if serial {
            op.lanes(1).barrier()
        } else {
            scatter(random, op)
        };
        kernel = std::mem::take(&mut kernel).op(op);
    };
    let words = |r: &std::ops::Range<usize>| (r.start * WORDS, r.len() * WORDS);

    let range = some_range(random, parts.read);
    let (first, count) = words(&range);
    if !range.is_empty() {
        add(random, Op::read(buffer).range(first, count));
        if !serial {
            add(random, Op::prefetch(buffer).range(first, count));
        }
    }
    // Each page by one of them only: they run at the same time.
    let mut from = parts.written.0;
    while from < parts.written.1 {
        let range = some_range(random, (from, parts.written.1));
        from = range.end.max(from + 1);
        let (first, count) = words(&range);
        if !range.is_empty() {
            let value = random.rand_u64() >> 1;
            add(
                random,
                Op::write(buffer).range(first, count).pattern(value, 3),
            );
            (0..count).for_each(|i| model[first + i] = value + 3 * i as u64);
        }
    }
    // Sums do not mind the order.
    for _ in 0..random.rand_range(0..4) {
        let range = some_range(random, parts.added);
        let (first, count) = words(&range);
        if !range.is_empty() {
            let value = random.rand_range(1..1000);
            add(
                random,
                Op::atomic_add(buffer).range(first, count).pattern(value, 0),
            );
            let part = &mut model[first..first + count];
            part.iter_mut().for_each(|w| *w = w.wrapping_add(value));
        }
    }
    // So that there is one op at least.
    add(random, Op::read(buffer).range(0, WORDS));
    kernel
}

/// Cuts the pages from the second on in three.
fn cut(random: &mut Rand64, pages: usize) -> Parts {
    let mut at = [0, 0].map(|_: usize| random.rand_range(1..pages as u64 + 1) as usize);
    at.sort_unstable();
    Parts {
        read: (1, at[0]),
        written: (at[0], at[1]),
        added: (at[1], pages),
    }
}

/// Some neighbouring pages of those from `of.0` to `of.1`, or none.
fn some_range(random: &mut Rand64, of: (usize, usize)) -> std::ops::Range<usize> {
    let (from, to) = (of.0 as u64, of.1 as u64);
    if from >= to {
        return 0..0;
    }
    let first = random.rand_range(from..to);
    let end = random.rand_range(first..to) + 1;
    first as usize..end as usize
}

/// Gives the op some shape.
fn scatter(random: &mut Rand64, op: Op) -> Op {
    let first = random.rand_range(0..8) as u32;
    let op = op
        .warps(random.rand_range(1..65) as u32)
        .lanes(random.rand_range(1..33) as u32)
        .utlbs(first, random.rand_range(1..9) as u32);
    match random.rand_range(0..3) {
        0 => op.permuted(),
        1 => op.blocked(),
        _ => op,
    }
}

fn faulted(report: &Report) -> Result<(), Failure> {
    ensure!(
        report.outcome == Ended::Faulted,
        "an offender got away: {report}"
    );
    Ok(())
}

/// The part of a report that does not depend on time.
fn ended(report: &Report) -> String {
    format!("{:?} {:x}", report.outcome, report.fault_va % BLOCK)
}

fn hash(words: &[u64]) -> u64 {
    let mut state = DefaultHasher::new();
    words.hash(&mut state);
    state.finish()
}
