// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Four processes that share a GPU. Three are quiet: each goes through its own memory, nine tenths of a quarter of the
//! GPU's, round after round. The fourth is the same, or loud: in each round it goes through more memory than the GPU has
//! ([`Amount`]). What the three bring to the GPU again is what the loud one takes from them.
//!
//! The processes are VA spaces, as UVM sees it; each has its own thread, or each has its turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::quota::told;
use uvm_suite::{ensure, Failure, Joined, Outcome, Pass};
use vgpu_client::{Buffer, EventCounts, EventQueue, Gpu, Kernel, Op, Process, BLOCK};

pub const QUIET: u64 = 3;
pub const TENANTS: u64 = QUIET + 1;

/// How much is done of what one could do for longer.
#[derive(Clone, Copy)]
pub struct Amount {
    /// How often the quiet ones go through their memory once they have had all of it.
    pub rounds: u64,
    /// What a loud process goes through in a round where others are promised theirs, in halves of the GPU's memory.
    pub halves: u64,
    /// Whether what is told and not judged is measured, too.
    pub tells: bool,
    /// Turns that each program has, of those that take turns.
    pub turns: u32,
}

/// `make test-extra` and whoever asks for no less.
pub const LONG: Amount = Amount {
    rounds: 2,
    halves: 8,
    tells: true,
    turns: 5,
};
/// `make test`. A promise that is broken shows as soon as the loud process has gone through the GPU's memory once. Turns
/// are learnt in the first one, and the two after it go by what was learnt.
pub const SHORT: Amount = Amount {
    rounds: 1,
    halves: 3,
    tells: false,
    turns: 3,
};

/// How far from each other the accesses are.
const APART: u64 = 64 << 10;
pub const FIRST: u64 = 0x0fed_cba9_8765_4321;
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// When the processes run.
#[derive(Clone, Copy, PartialEq)]
pub enum When {
    /// One after another, so that it is always the same.
    InTurn,
    AtOnce,
}

/// A process, and the memory that it goes through.
pub struct Tenant {
    pub process: Process,
    pub gpu: Gpu,
    events: EventQueue,
    pub data: Buffer<u64>,
}

impl Tenant {
    pub fn new(blocks: u64) -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let events = EventQueue::new(&process, 1 << 16)?;
        let data = Buffer::managed(&process, (blocks * BLOCK / 8) as usize)?;
        data.fill(value);
        Ok(Self {
            process,
            gpu,
            events,
            data,
        })
    }

    /// Reads a word of each 64 KiB, and compares it.
    pub fn goes_through(&self) -> Result<(), Failure> {
        goes_through(&self.gpu, &self.data)
    }

    /// What the process has brought to the GPU since this was asked last.
    pub fn brought(&self) -> Result<EventCounts, Failure> {
        let mut counts = EventCounts::default();
        counts.add(&self.events.take(self.gpu.uuid())?);
        Ok(counts)
    }
}

/// The same, of a buffer in which each element is its [`value`].
pub fn goes_through(gpu: &Gpu, data: &Buffer<u64>) -> Result<(), Failure> {
    let step = STEP.wrapping_mul(APART / 8);
    let check = Op::check(data).pattern(FIRST, step).every(APART);
    let kernel = Kernel::new().op(check.lanes(1).utlbs(0, 1)).utlb_faults(1);
    gpu.launch(&kernel)?.wait()?.ok()?;
    Ok(())
}

/// What element `i` of each buffer holds.
pub fn value(i: usize) -> u64 {
    FIRST.wrapping_add(STEP.wrapping_mul(i as u64))
}

/// Whom the quiet ones have beside them.
#[derive(Clone, Copy)]
pub struct Neighbour {
    /// Blocks that the fourth process goes through.
    pub blocks: u64,
    /// Blocks that are protected of each process; `None` for what the driver was loaded with.
    pub low: Option<u64>,
    pub when: When,
    /// How often the quiet ones go through their memory again.
    pub rounds: u64,
}

/// What becomes of the quiet ones.
#[derive(Clone, Copy, Debug)]
pub struct Quiet {
    /// Bytes that they bring to the GPU once they have had all of their memory there.
    pub again: u64,
    /// Their faults from the beginning on.
    pub faults: u64,
    /// The least that one of them has on the GPU as the fourth one ends a round; `u64::MAX` if that is not told.
    pub kept: u64,
    /// How long their turns took together, from the beginning on, with what the kernel and the software GPU did for
    /// them. In a VM whose clock counts instructions (`ICOUNT=1`) these are instructions. 0 where all run at once.
    pub turns: Duration,
}

impl Neighbour {
    /// Three quiet processes go through so many blocks each beside it.
    pub fn beside(self, blocks: u64) -> Result<Quiet, Failure> {
        let quiet = (0..QUIET).map(|_| Tenant::new(blocks));
        let quiet = quiet.collect::<Result<Vec<_>, _>>()?;
        let fourth = Tenant::new(self.blocks)?;
        let mut faults = 0;
        let mut turns = Duration::ZERO;
        // Everybody has what there is room for before the others are counted.
        for tenant in quiet.iter().chain([&fourth]) {
            if let Some(low) = self.low {
                (tenant.process).set_low(tenant.gpu.uuid(), low * BLOCK)?;
            }
            let begin = Instant::now();
            tenant.goes_through()?;
            let took = begin.elapsed();
            let first = tenant.brought()?.gpu_faults;
            if !core::ptr::eq(tenant, &fourth) {
                faults += first;
                turns += took;
            }
        }
        let kept = AtomicU64::new(u64::MAX);
        let passes = || -> Result<(), Failure> {
            fourth.goes_through()?;
            for tenant in &quiet {
                let now = told(&tenant.process, &tenant.gpu, "resident")?;
                kept.fetch_min(now.unwrap_or(u64::MAX), Relaxed);
            }
            Ok(())
        };
        match self.when {
            When::InTurn => {
                for _ in 0..self.rounds {
                    passes()?;
                    let begin = Instant::now();
                    quiet.iter().try_for_each(Tenant::goes_through)?;
                    turns += begin.elapsed();
                }
            }
            When::AtOnce => {
                turns = Duration::ZERO;
                at_once(&quiet, self.rounds, passes)?;
            }
        }
        let mut again = 0;
        for tenant in &quiet {
            let counts = tenant.brought()?;
            again += counts.h2d_bytes;
            faults += counts.gpu_faults;
            ensure!(
                tenant.data.first_other(value).is_none(),
                "the data are not what they were"
            );
        }
        drop(fourth);
        let kept = kept.into_inner();
        Ok(Quiet {
            again,
            faults,
            kept,
            turns,
        })
    }
}

/// The quiet ones go through their memory `least` times or more, each in its thread, while the fourth does what `passes` does, once at least.
fn at_once(
    quiet: &[Tenant],
    least: u64,
    passes: impl Fn() -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let (over, passed) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let loud = scope.spawn(|| {
            let goes_on = || -> Result<(), Failure> {
                while !over.load(Relaxed) {
                    passes()?;
                    passed.store(true, Relaxed);
                }
                Ok(())
            };
            let ended = goes_on();
            passed.store(true, Relaxed);
            ended
        });
        let rounds = |tenant: &Tenant| {
            for round in 0.. {
                if round >= least && passed.load(Relaxed) {
                    break;
                }
                tenant.goes_through()?;
            }
            Ok(())
        };
        let threads: Vec<_> = quiet
            .iter()
            .map(|tenant| scope.spawn(move || rounds(tenant)))
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        over.store(true, Relaxed);
        for ended in ended.into_iter().chain([loud.join()]) {
            ended.joined()??;
        }
        Ok(())
    })
}

/// The blocks that the GPU has, and nine tenths of a quarter of these.
pub fn room() -> Result<(u64, u64), Failure> {
    let process = Process::new()?;
    let gpu: Gpu = process.gpu(0)?;
    let room = gpu.info().usable_bytes() / BLOCK;
    Ok((room, room / TENANTS * 9 / 10))
}

/// What the driver's policy, `policy`, leaves to quiet processes beside a loud one.
pub fn shares(policy: &str, when: When, amount: Amount) -> Outcome {
    let (room, blocks) = room()?;
    let beside = |neighbour| {
        let neighbour = Neighbour {
            blocks: neighbour,
            low: None,
            when,
            rounds: amount.rounds,
        };
        neighbour.beside(blocks).map(|quiet| quiet.again)
    };
    let beside_a_quiet_one = beside(blocks)?;
    // Each eviction is a chance to break the promise of `fair`. Without one, all that the quiet ones have is gone once
    // the loud one has gone through as much as the GPU holds.
    let Amount { rounds, halves, .. } = amount;
    let halves = if policy == "fair" {
        halves
    } else {
        halves.min(4)
    };
    let loud = halves * room / 2;
    let beside_a_loud_one = beside(loud)?;
    let working_sets = QUIET * blocks * BLOCK;
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "# {policy}: {QUIET} processes of {} MiB on a GPU of {} MiB bring {} MiB in {rounds} rounds beside a quiet one, {} beside a loud one",
        mib(blocks * BLOCK), mib(room * BLOCK), mib(beside_a_quiet_one), mib(beside_a_loud_one)
    );
    // All of it fits.
    ensure!(
        beside_a_quiet_one <= working_sets / 10,
        "more than a tenth of {working_sets} bytes came again beside a quiet process"
    );
    match (policy, when) {
        // Of what was promised nine tenths stay.
        ("fair", _) => ensure!(
            beside_a_loud_one <= working_sets / 10,
            "more than a tenth of {working_sets} bytes came again beside a loud process"
        ),
        ("lru", When::InTurn) => ensure!(
            beside_a_loud_one == rounds * working_sets,
            "all of it should come again in each round"
        ),
        _ => {}
    }
    Ok(Pass::Ok)
}
