// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the eviction policy that the driver was loaded with (`uvm_rust_evict_policy`) makes of a
//! program that goes through half as much memory again as the GPU has, round after round. In place
//! of that, by option: processes that share the GPU, have a maximum or a low, or take turns.

mod choose;
mod link;
mod low;
mod overlap;
mod programs;
mod quota;
mod shares;
mod stalls;
mod together;
mod wasted;

use std::process::ExitCode;

use shares::When;
use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::{Buffer, EventCounts, EventQueue, Gpu, Kernel, Op, Process, BLOCK};

const HELP: &str =
    "usage: policy [--rounds N] [--short] [--shares] [--quota] [--low [--counts]] [--programs]
              [--stalls] [--link] [--together] [--overlap] [--choose] [--only TEXT]
  --only TEXT  only tests whose name holds TEXT
  --rounds N   how often the program goes through its memory, 2 to 64 (4)
  --shares     instead, three quiet processes beside a loud one, whatever driver is loaded
  --quota      instead, a process that may hold only so much of the GPU
  --low        instead, processes that others leave so much of the GPU to, whatever driver is loaded
  --counts     with it, in a VM whose clock counts instructions (ICOUNT=1): judge these, too
  --programs   instead, programs that take turns on the GPU, whatever driver is loaded
  --stalls     instead, how long a process whose faults come one at a time waits for another one's
  --link       instead, how long a process that moves one block at a time waits for one that moves many,
               on a software GPU whose copies take their time (copy_mib_s)
  --short      of --shares, --low and --programs less, as `make test` has it
  --together   instead, kernels that need several blocks at once, all others being expected
               (uvm_rust_prefetch=1)
  --overlap    instead, what goes on at the same time as prefetches, on a software GPU whose copies
               take their time (uvm_rust_prefetch=1, and copy_mib_s)
  --choose     instead, what the driver picks for each process (uvm_rust_choose=1, uvm_rust_prefetch=1)
";

const PARAMETER: &str = "/sys/module/nvidia_uvm/parameters/uvm_rust_evict_policy";

const FIRST: u64 = 0x0123_4567_89ab_cdef;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn main() -> ExitCode {
    use lexopt::prelude::*;
    let (mut rounds, mut shares, mut quotas, mut together) = (4, false, false, false);
    let (mut lows, mut counts, mut programs) = (false, false, false);
    let (mut overlaps, mut chooses, mut stalls) = (false, false, false);
    let mut links = false;
    let mut amount = shares::LONG;
    let mut only = None;
    match std::env::args().nth(1).as_deref() {
        Some(quota::CHILD) => return quota::child_lowers(),
        Some(low::CHILD) => return low::child_raises(),
        Some(programs::CHILD) => return programs::child(std::env::args().nth(2)),
        Some(quota::LOOPS) => return quota::child_loops(),
        _ => {}
    }
    let mut parser = lexopt::Parser::from_env();
    while let Ok(Some(argument)) = parser.next() {
        let number = match argument {
            Long("rounds") => parser.value().and_then(|v| v.parse()),
            Long("only") => {
                only = parser.value().ok().and_then(|v| v.string().ok());
                continue;
            }
            Long("shares") => {
                shares = true;
                continue;
            }
            Long("quota") => {
                quotas = true;
                continue;
            }
            Long("low") => {
                lows = true;
                continue;
            }
            Long("counts") => {
                counts = true;
                continue;
            }
            Long("programs") => {
                programs = true;
                continue;
            }
            Long("short") => {
                amount = shares::SHORT;
                continue;
            }
            Long("together") => {
                together = true;
                continue;
            }
            Long("stalls") => {
                stalls = true;
                continue;
            }
            Long("link") => {
                links = true;
                continue;
            }
            Long("overlap") => {
                overlaps = true;
                continue;
            }
            Long("choose") => {
                chooses = true;
                continue;
            }
            Long("help") => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            other => Err(other.unexpected()),
        };
        match number {
            Ok(n @ 2..=64) => rounds = n,
            _ => {
                eprint!("policy: {HELP}");
                return ExitCode::from(2);
            }
        }
    }
    let mut suite = Suite::new("policy", only);
    if together {
        for (name, blocks) in [("two", 2), ("three", 3), ("twelve", 12)] {
            let name = format!("{name} blocks that one kernel needs, all others being expected");
            suite.test(&name, &[], || together::together(blocks));
        }
        suite.test(
            "the system sleeps while kernels are expected",
            &[],
            together::sleeps,
        );
        suite.test(
            "what is prefetched and evicted before its kernel is counted",
            &[],
            wasted::wasted,
        );
        return suite.finish();
    }
    if overlaps {
        overlap::run(&mut suite);
        return suite.finish();
    }
    if chooses {
        choose::run(&mut suite);
        return suite.finish();
    }
    if stalls {
        stalls::run(&mut suite);
        return suite.finish();
    }
    if links {
        link::run(&mut suite);
        return suite.finish();
    }
    if quotas {
        quota::run(&mut suite);
        return suite.finish();
    }
    if programs {
        programs::run(&mut suite, policy().as_deref(), amount.turns);
        return suite.finish();
    }
    let policy = || policy().unwrap_or_else(|| "not our driver".to_owned());
    if lows {
        low::run(&mut suite, &policy(), counts, amount);
        return suite.finish();
    }
    if shares {
        let policy = policy();
        for (when, name) in [(When::InTurn, "in turn"), (When::AtOnce, "at once")] {
            let name = format!("three quiet processes beside a loud one, {name}");
            suite.test(&name, &[], || shares::shares(&policy, when, amount));
        }
        return suite.finish();
    }
    suite.test("memory that is gone through again and again", &[], || {
        scan(rounds)
    });
    suite.finish()
}

/// The policy that the driver was loaded with, if it is ours.
fn policy() -> Option<String> {
    let policy = std::fs::read_to_string(PARAMETER).ok()?;
    Some(policy.trim().to_owned())
}

/// One warp reads each page in turn, so that what moves depends on the order of evictions alone.
fn scan(rounds: u64) -> Outcome {
    let Some(policy) = policy() else {
        skip!("{PARAMETER} is not there: not our driver");
    };
    let process = Process::new()?;
    let gpu: Gpu = process.gpu(0)?;
    let events = EventQueue::new(&process, 1 << 16)?;
    let room = gpu.info().vidmem_bytes;
    let bytes = (room + room / 2) / BLOCK * BLOCK;
    let data = Buffer::<u64>::managed(&process, (bytes / 8) as usize)?;
    data.fill(value);
    let before = gpu.stats()?;
    for _ in 0..rounds {
        let check = Op::check(&data).pattern(FIRST, STEP).lanes(1).utlbs(0, 1);
        gpu.launch(&Kernel::new().op(check).utlb_faults(1))?
            .wait()?
            .ok()?;
    }
    let moved = gpu.stats()?.h2d_bytes - before.h2d_bytes;
    let mut counts = EventCounts::default();
    counts.add(&events.take(gpu.uuid())?);
    let evictions = counts.evictions;
    ensure!(
        data.first_other(value).is_none(),
        "the data are not what they were"
    );
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "# {policy}: {rounds} rounds through {} MiB on a GPU of {} MiB: {} MiB to the GPU, {evictions} evictions",
        mib(bytes),
        mib(room),
        mib(moved)
    );
    // Nobody can do with less: what is not there when a round begins must come.
    let least = bytes + (rounds - 1) * (bytes - room);
    ensure!(moved >= least, "fewer bytes than must move, {least}");
    match &policy[..] {
        // Each block is evicted just before its turn comes.
        "lru" => ensure!(
            moved == rounds * bytes,
            "all of it should move in each round"
        ),
        // All stays but the blocks that the policy spares and what the GPU's own structures take.
        "mru" => ensure!(
            moved <= least + (rounds - 1) * 16 * BLOCK,
            "more than 16 blocks a round over the least, {least}"
        ),
        _ => {}
    }
    Ok(Pass::Ok)
}

/// What element `i` of the buffer holds.
fn value(i: usize) -> u64 {
    FIRST.wrapping_add(STEP.wrapping_mul(i as u64))
}
