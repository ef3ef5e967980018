// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What goes wrong, on purpose: fatal faults, injected errors, bad input. Each
//! must end as documented, and hurt nobody else.

mod access;
mod anew;
mod charge;
mod copying;
mod covered;
mod crowd;
mod dirty;
mod discarded;
mod events;
mod faults;
mod forked;
mod half_way;
mod held;
mod inject;
mod input_uvm;
mod input_vgpu;
mod isolation;
mod lazy;
mod migrate;
mod notifier;
mod ordinary;
mod orphans;
mod queues;
mod replaced;
mod room;
mod signals;
mod split;
mod suspend;
mod two_spaces;
mod zombies;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use uvm_suite::{no_leak, Allowed, Failure, Suite};
use vgpu_client::uvm::BareTest;
use vgpu_client::{driver_version, Buffer, Gpu, Kernel, Op, Process, Vgpu, BLOCK, PAGE};

const HELP: &str = "usage: hazards [--only TEXT] [--fuzz N] [--unmodified-too] [--channel-sanity]
  --only TEXT       only tests whose name holds TEXT
  --unmodified-too  also on NVIDIA's driver what it is known not to survive
  --fuzz N          so many fuzzed calls from each thread (5000)
  --channel-sanity  show the use after free around UVM_TEST_CHANNEL_SANITY; the
                    kernel is expected to oops
";

pub(crate) const NONE: &[Allowed] = &[];
pub(crate) use uvm_suite::rm::ENDLESS;
/// Words of a 2 MiB block.
pub(crate) const WORDS: usize = (BLOCK / 8) as usize;
/// Words of a page.
pub(crate) const PAGE_WORDS: usize = (PAGE / 8) as usize;

fn main() -> ExitCode {
    use lexopt::prelude::*;
    let mut only = None;
    let mut fuzz = 5000;
    let refuse = |error: lexopt::Error| {
        eprint!("hazards: {error}\n{HELP}");
        ExitCode::from(2)
    };
    let mut parser = lexopt::Parser::from_env();
    loop {
        let next = match parser.next() {
            Ok(next) => next,
            Err(error) => return refuse(error),
        };
        match next {
            None => break,
            Some(Long("only")) => only = parser.value().ok().and_then(|v| v.string().ok()),
            Some(Long("fuzz")) => match parser.value().and_then(|v| v.parse()) {
                Ok(calls) => fuzz = calls,
                Err(error) => return refuse(error),
            },
            Some(Long("unmodified-too")) => UNMODIFIED_TOO.store(true, Ordering::Relaxed),
            Some(Long("channel-sanity")) => return channel_sanity(),
            Some(Long("child-evicted")) => return charge::child_evicted(Process::new()),
            Some(Long("child-on-host")) => return charge::child_on_host(Process::new()),
            Some(Long("child-migrates-little")) => {
                return charge::child_migrates(Process::new(), charge::LITTLE)
            }
            Some(Long("child-migrates-much")) => {
                return charge::child_migrates(Process::new(), charge::MUCH)
            }
            Some(Long("child-touches")) => return room::child_touches(Process::new()),
            Some(Long("child-reads-untouched")) => {
                return room::child_reads(Process::new(), room::Read::Nothing)
            }
            Some(Long("child-reads-huge")) => {
                return room::child_reads(Process::new(), room::Read::NothingHuge)
            }
            Some(Long("child-reads-hole")) => {
                return room::child_reads(Process::new(), room::Read::AllButOne)
            }
            Some(Long("child-writes-ends")) => return room::child_writes_ends(Process::new()),
            Some(Long("child-discards-little")) => {
                return discarded::child_discards(Process::new(), discarded::FEW)
            }
            Some(Long("child-discards-much")) => {
                return discarded::child_discards(Process::new(), discarded::MANY)
            }
            Some(Long("child-splits")) => return discarded::child_splits(Process::new()),
            Some(Long("child-evicted-shared")) => return charge::child_evicted(Process::shared()),
            Some(Long("child-overflows")) => return charge::child_overflows(Process::new()),
            Some(Long("child-leaves")) => return charge::child_leaves(Process::new()),
            Some(Long("child-deserts")) => return charge::child_deserts(Process::new()),
            Some(Long("child-maps")) => return zombies::child_maps(),
            Some(Long("child-hides")) => return orphans::child_hides(Process::new()),
            Some(Long("child-shares")) => return charge::child_overflows(Process::shared()),
            Some(Long("child-forks")) => {
                let way = parser.value().and_then(|way| way.string());
                return forked::child_forks(&way.unwrap_or_default());
            }
            Some(Long("child-isolates")) => {
                let way = parser.value().and_then(|way| way.string());
                return isolation::child_isolates(&way.unwrap_or_default());
            }
            Some(Long("child-debugs")) => {
                let way = parser.value().and_then(|way| way.string());
                return access::child_debugs(&way.unwrap_or_default());
            }
            Some(Long("child-initializes")) => return signals::child_initializes(),
            Some(Long("inject-unprivileged")) => return inject::unprivileged(),
            Some(Long("help")) => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            Some(_) => {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    let mut suite = Suite::new("hazards", only);
    faults::run(&mut suite);
    copying::run(&mut suite);
    inject::run(&mut suite);
    suspend::run(&mut suite);
    migrate::run(&mut suite);
    notifier::run(&mut suite);
    ordinary::run(&mut suite);
    held::run(&mut suite);
    half_way::run(&mut suite);
    lazy::run(&mut suite);
    charge::run(&mut suite);
    room::run(&mut suite);
    discarded::run(&mut suite);
    dirty::run(&mut suite);
    orphans::run(&mut suite);
    forked::run(&mut suite);
    isolation::run(&mut suite);
    crowd::run(&mut suite);
    signals::run(&mut suite);
    split::run(&mut suite);
    zombies::run(&mut suite);
    two_spaces::run(&mut suite);
    covered::run(&mut suite);
    events::run(&mut suite);
    access::run(&mut suite);
    queues::run(&mut suite);
    anew::run(&mut suite);
    replaced::run(&mut suite);
    input_vgpu::run(&mut suite);
    input_uvm::run(&mut suite, fuzz);
    suite.test("no leak, and the GPU still works", NONE, || {
        let (process, gpu) = start()?;
        still_works(&process, &gpu)?;
        drop((process, gpu));
        no_leak()
    });
    suite.finish()
}

static UNMODIFIED_TOO: AtomicBool = AtomicBool::new(false);

/// Whether `process` is to be spared what NVIDIA's driver, as it is, does not survive.
pub(crate) fn spared(process: &Process) -> Result<bool, Failure> {
    Ok(!UNMODIFIED_TOO.load(Ordering::Relaxed) && driver_version(process)?.is_none())
}

/// A process and its GPU for a test of ordinary memory. Ends the test where there is none, and on
/// NVIDIA's driver, of which `$why` says what it would do.
macro_rules! start_ordinary {
    ($why:literal) => {{
        let (process, gpu) = $crate::start()?;
        if $crate::spared(&process)? {
            uvm_suite::skip!("{}, see docs/fixes.md", $why);
        }
        if !process.has_hmm()? {
            uvm_suite::skip!("no HMM");
        }
        (process, gpu)
    }};
}
pub(crate) use start_ordinary;

/// Has the GPU find numbers that count from `first` on.
pub(crate) fn gpu_reads(gpu: &Gpu, buffer: &Buffer<u64>, first: u64) -> Result<(), Failure> {
    let check = Op::check(buffer).pattern(first, 1).warps(8);
    gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    Ok(())
}

/// Has the GPU write numbers that count from `first` on.
pub(crate) fn gpu_writes(gpu: &Gpu, buffer: &Buffer<u64>, first: u64) -> Result<(), Failure> {
    let write = Op::write(buffer).pattern(first, 1).warps(8);
    gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
    Ok(())
}

pub(crate) fn start() -> Result<(Process, Gpu), Failure> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    Ok((process, gpu))
}

/// Does a small job after an error, and checks that it is done right.
pub(crate) fn still_works(process: &Process, gpu: &Gpu) -> Result<(), Failure> {
    let buffer = Buffer::<u64>::managed(process, 2 * WORDS)?;
    buffer.fill(|i| i as u64);
    let kernel = Kernel::new().op(Op::atomic_add(&buffer).pattern(1, 0).warps(8));
    gpu.launch(&kernel)?.wait()?.ok()?;
    match buffer.first_other(|i| i as u64 + 1) {
        None => Ok(()),
        Some((i, seen)) => Err(format!("element {i} is {seen:#x}").into()),
    }
}

/// Without the allocation that makes the ladder's run safe: pushes of page-table
/// frees may be under way when the test destroys UVM's channels, and the trackers
/// of the root chunks then point to freed memory. The order is the one in which an
/// oops was seen first, on a GPU that was registered just before.
fn channel_sanity() -> ExitCode {
    use BareTest as T;
    let attempt = |round: u32| -> Result<(), Failure> {
        let info = Vgpu::open()?.info(0)?;
        let process = Process::new()?;
        process.register_gpu(info.uuid())?;
        for test in [T::RM_MEM_SANITY, T::TRACKER_SANITY, T::HOST_SANITY] {
            process.run(test)?;
        }
        process.call(&mut vgpu_client::uvm::CeSanity::default())?;
        for test in [T::CHANNEL_SANITY, T::MEM_SANITY] {
            println!("# round {round}: {}", test.name);
            process.run(test)?;
        }
        Ok(())
    };
    for round in 0..5 {
        if let Err(failure) = attempt(round) {
            println!("# {failure:?}");
        }
    }
    println!("# the use after free did not show in 5 rounds");
    ExitCode::SUCCESS
}
