// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Plays a step of uvmsim's on the software GPU, with its plan or without one, and counts
//! what moved.
//!
//! Before each kernel the driver is given the plan's moves in one call (`UVM_RUST_FLASH_SUBMIT`):
//! first what gives memory back, then what takes it. The kernel waits for their completions,
//! which must come in the plan's order. Each page of a tensor holds one word that is checked,
//! as in `run`. Under `deepum` there is no plan and nothing that uvmsim predicted: each kernel
//! is announced, and a driver with `uvm_rust_prefetch=1` does the rest.

use crate::run::link;
use crate::scaled::{machine, Bytes, Case, Files, POLICIES, WARM_UP};
use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;
use uvmsim_machine::PAGE;
use uvmsim_physical::plan::{Op, Plan, What};
use uvmsim_physical::{Layout, Tier, Workload};
use vgpu_client::flash::{self, FlashCompletion, FlashRequest};
use vgpu_client::{Buffer, Discard, DriverStats, Flash, Gpu, Idle, Kernel, Process, BLOCK};

const WORDS: u64 = PAGE / 8;

/// How long the moves before a kernel may take; the VM is slow.
const MOVES_WITHIN_MS: u32 = 600_000;

/// A run; the fields are those of `out/ssd.json` (docs/ssd.md).
#[derive(Deserialize, Serialize)]
struct Run {
    workload: String,
    policy: String,
    bytes: Bytes,
    predicted: Option<Bytes>,
    /// How far the bytes of the link that is furthest off are from uvmsim's, in percent.
    off_percent: Option<f64>,
    faults: u64,
    predicted_faults: Option<u64>,
    /// Moves of the plan that the driver has completed, all in the plan's order.
    moves: u64,
    slots_leaked: u64,
    verified: bool,
    gpu_bytes: u64,
    program_bytes: u64,
    scale: f64,
}

/// The policy that is the driver's own.
const DEEPUM: &str = "deepum";

/// `uvm-dnn play`: one line of JSON for each network and policy.
pub fn run(folder: &str, device: &str, net: &str, policies: &[&str]) -> Result<()> {
    for policy in policies {
        let files = Files::new(folder);
        let (mut case, workload, layout, plan) = match *policy {
            DEEPUM => files.read(net, POLICIES[0])?,
            _ => files.read(net, policy)?,
        };
        (*policy).clone_into(&mut case.policy);
        let run = play(&case, &workload, &layout, plan.as_ref(), device.as_ref())
            .with_context(|| format!("{net}, {policy}"))?;
        let off = shown(run.off_percent, 2);
        eprintln!("    {net} {policy}: {off} % off, {} faults", run.faults);
        println!("{}", serde_json::to_string(&run)?);
    }
    Ok(())
}

/// Most that a link may be off uvmsim's bytes where no plan says what moves, since the order in which
/// faults arrive then chooses what is evicted; and that a plan may leave of the faults that come
/// without one. In percent.
pub const MOST_PERCENT: f64 = 2.0;
/// Most that the prefetcher may leave of them: a wrong prediction costs next to nothing.
pub const WITHOUT_PLAN_PERCENT: f64 = 105.0;

/// `uvm-dnn ssd`: shows the runs in a file of such lines, and adds them to the report of
/// `make ssd-demo`, if there is one. Fails unless they are what uvmsim predicted.
pub fn report(lines: &Path, report: &Path) -> Result<()> {
    let text = fs::read_to_string(lines).with_context(|| format!("reading {}", lines.display()))?;
    let runs = text
        .lines()
        .filter(|l| l.starts_with('{'))
        .map(|l| Ok(serde_json::from_str(l)?))
        .collect::<Result<Vec<Run>>>()?;
    ensure!(!runs.is_empty(), "{} holds no runs", lines.display());
    show(&runs);
    let mut all: Value = match fs::read_to_string(report) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => serde_json::json!({ "runs": [] }),
    };
    let list = all["runs"].as_array_mut().context("it has no runs")?;
    for run in &runs {
        list.push(serde_json::to_value(run)?);
    }
    fs::write(report, serde_json::to_string_pretty(&all)? + "\n")
        .with_context(|| format!("writing {}", report.display()))?;
    let wrong = wrong(&runs);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// A number with so many decimals, or that there is none.
pub fn shown(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |n| format!("{n:.decimals$}"))
}

fn show(runs: &[Run]) {
    println!(
        "{:<10} {:<9} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6}",
        "MiB",
        "policy",
        "to GPU",
        "of",
        "back",
        "of",
        "to SSD",
        "of",
        "back",
        "of",
        "faults",
        "off %"
    );
    for run in runs {
        let mib = |b: u64| b as f64 / 1048576.0;
        print!("{:<10} {:<9}", run.workload, run.policy);
        let predicted = run.predicted.map(|p| p.links());
        for (i, bytes) in run.bytes.links().into_iter().enumerate() {
            let of = predicted.map(|p| mib(p[i]));
            print!(" {:>6.0} {:>6}", mib(bytes), shown(of, 0));
        }
        println!(" {:>7} {:>6}", run.faults, shown(run.off_percent, 2));
    }
}

/// The most that a run's links may be off uvmsim's bytes, in percent: a plan is carried out to the byte.
fn most_off(run: &Run) -> f64 {
    if run.policy == POLICIES[0] {
        MOST_PERCENT
    } else {
        0.0
    }
}

/// What is not as it must be.
fn wrong(runs: &[Run]) -> Vec<String> {
    let mut wrong = Vec::new();
    for run in runs {
        let name = format!("{}, {}", run.workload, run.policy);
        if !run.verified || run.slots_leaked != 0 {
            wrong.push(format!("{name}: wrong data, or slots that leak"));
        }
        let has_plan = run.predicted.is_some() && run.policy != POLICIES[0];
        if has_plan != (run.moves > 0) {
            wrong.push(format!("{name}: {} moves of a plan", run.moves));
        }
        let off = run.predicted.map(|p| off_percent(&run.bytes, &p));
        if let Some(off) = off.filter(|&off| off > most_off(run)) {
            wrong.push(format!("{name}: {off} % off uvmsim's bytes"));
        }
        let without = runs
            .iter()
            .find(|r| r.workload == run.workload && r.policy == POLICIES[0]);
        if let Some(without) = without.filter(|r| r.policy != run.policy) {
            let share = match run.predicted {
                Some(_) => MOST_PERCENT,
                None => WITHOUT_PLAN_PERCENT,
            };
            let most = without.faults as f64 * share / 100.0;
            if run.faults as f64 > most {
                let faults = run.faults;
                wrong.push(format!("{name}: {faults} faults, more than {most:.0}"));
            }
        }
    }
    wrong
}

fn play(
    case: &Case,
    workload: &Workload,
    layout: &Layout,
    plan: Option<&Plan>,
    device: &Path,
) -> Result<Run> {
    // The GPU has what the plan is for, and no more.
    let idle = Idle::leaving(Some((case.gpu_bytes / BLOCK) as usize))?;
    let there = idle.available() as u64 * BLOCK;
    ensure!(
        there >= case.gpu_bytes,
        "the plan is for {} bytes of GPU memory, but there are {there}",
        case.gpu_bytes
    );
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    // What is on the GPU has host memory too, once it was there: that is not the limit
    // meant. Spilling begins at seven eighths.
    process.flash_attach(Flash {
        path: device,
        host_bytes: (case.host_bytes + case.gpu_bytes) / 7 * 8 + 8 * BLOCK,
        quota_bytes: 0,
        flags: flash::FORCE,
    })?;
    let played = steps(case, workload, layout, plan, &process, &gpu);
    let after = process.flash_stats();
    let detached = process.flash_detach();
    // What went wrong first says more than what could not be detached for it.
    let mut run = played?;
    detached?;
    let after = after?;
    run.slots_leaked = u64::from(after.slots - after.free_slots);
    ensure!(run.slots_leaked == 0, "slots leak: {after:?}");
    Ok(run)
}

fn steps(
    case: &Case,
    workload: &Workload,
    layout: &Layout,
    plan: Option<&Plan>,
    process: &Process,
    gpu: &Gpu,
) -> Result<Run> {
    let mut player = Player {
        process,
        gpu,
        workload,
        layout,
        plan,
        data: Buffer::managed(process, (layout.span.next_multiple_of(BLOCK) / 8) as usize)?,
        holds: vec![None; workload.tensors.len()],
        value: 0,
        live: Vec::new(),
        early: Vec::new(),
        asked: Vec::new(),
        moved: 0,
        slower: match &*case.policy {
            DEEPUM => {
                let scaled = machine(case.gpu_bytes, case.scale)?;
                Some(scaled.pcie_h2d / link(process, gpu)?)
            }
            _ => None,
        },
    };
    for (t, tensor) in workload.tensors.iter().enumerate() {
        if tensor.lasting && !tensor.uses.is_empty() {
            player.fill(t as u32);
        }
    }
    for _ in 0..WARM_UP {
        player.step()?;
    }
    let (before, moved) = (player.counts()?, player.moved);
    player.step()?;
    let after = player.counts()?;
    player.check_all()?;
    let bytes = Bytes {
        host_to_gpu: after.0.host_to_gpu - before.0.host_to_gpu,
        gpu_to_host: after.0.gpu_to_host - before.0.gpu_to_host,
        ssd_to_host: after.0.ssd_to_host - before.0.ssd_to_host,
        host_to_ssd: after.0.host_to_ssd - before.0.host_to_ssd,
    };
    let predicted = (case.policy != DEEPUM).then_some(case.predicted);
    Ok(Run {
        workload: case.net.clone(),
        policy: case.policy.clone(),
        bytes,
        predicted,
        off_percent: predicted.map(|p| off_percent(&bytes, &p)),
        faults: after.1 - before.1,
        predicted_faults: predicted.map(|_| case.predicted_faults),
        moves: player.moved - moved,
        slots_leaked: 0,
        verified: true,
        gpu_bytes: case.gpu_bytes,
        program_bytes: case.span,
        scale: case.scale,
    })
}

/// The largest distance of a link's bytes from the prediction; of a link that is to carry
/// nothing, in blocks.
pub fn off_percent(bytes: &Bytes, predicted: &Bytes) -> f64 {
    (bytes.links().into_iter())
        .zip(predicted.links())
        .map(|(b, p)| b.abs_diff(p) as f64 / p.max(BLOCK) as f64 * 100.0)
        .fold(0.0, f64::max)
}

/// How many moves the driver has completed with these, if all were carried out, in the order in which
/// they were asked for; `before` is how many it had completed before.
fn in_order(asked: &[FlashRequest], done: &[FlashCompletion], before: u64) -> Result<u64> {
    let failed = done.iter().find(|one| one.status != 0);
    ensure!(failed.is_none(), "a move failed: {failed:?}");
    let planned: Vec<_> = asked.iter().map(|one| one.user_data).collect();
    let order: Vec<_> = done.iter().map(|one| one.user_data).collect();
    ensure!(
        order == planned,
        "moves ended in the order {order:x?}, the plan's is {planned:x?} (the lower half is the tensor)"
    );
    let counted = (before + 1..).zip(done).all(|(n, one)| one.order == n);
    ensure!(counted, "moves are not numbered from {before} on: {done:?}");
    Ok(before + done.len() as u64)
}

struct Player<'a> {
    process: &'a Process,
    gpu: &'a Gpu,
    workload: &'a Workload,
    layout: &'a Layout,
    plan: Option<&'a Plan>,
    data: Buffer<u64>,
    /// For each tensor what its first page holds; the others count on from it.
    holds: Vec<Option<u64>>,
    /// The last one that was written.
    value: u64,
    /// Tensors that the plan has allocated and not freed.
    live: Vec<u32>,
    /// Those that are to be allocated where another one still is. A plan of uvmsim's may ask
    /// for that a kernel ahead; a program's allocator hands an address out again when it is free.
    early: Vec<u32>,
    /// Moves that the driver is to be given in one call, and how many it has completed.
    asked: Vec<FlashRequest>,
    moved: u64,
    /// Where kernels are announced, by how much they are slower than the trace's: as the
    /// link is, so that what is to hide behind them has the same share of the time.
    slower: Option<f64>,
}

impl Player<'_> {
    fn range(&self, t: u32) -> (u64, u64) {
        let bytes = self.workload.tensors[t as usize]
            .bytes
            .next_multiple_of(PAGE);
        (self.layout.addresses[t as usize], bytes)
    }

    fn next_value(&mut self) -> u64 {
        self.value += 1 << 24;
        self.value
    }

    /// The host writes a tensor.
    fn fill(&mut self, t: u32) {
        let value = self.next_value();
        let (at, bytes) = self.range(t);
        for page in 0..bytes / PAGE {
            self.data
                .set(((at / PAGE + page) * WORDS) as usize, value + page);
        }
        self.holds[t as usize] = Some(value);
    }

    fn step(&mut self) -> Result<()> {
        for k in 0..self.workload.kernels.len() {
            self.requests(k)?;
            self.launch(k)?;
            for &t in &self.layout.refreshed[k] {
                // The next step's is read to where the last one's was.
                self.discard(t)?;
                self.fill(t);
            }
        }
        Ok(())
    }

    fn requests(&mut self, k: usize) -> Result<()> {
        let Some(plan) = self.plan else {
            return Ok(());
        };
        let gives = |op: &&Op| matches!(op.0, What::Evict(_) | What::Free | What::Discard);
        let ops = &plan.before[k];
        for op in ops.iter().filter(gives) {
            self.request(op)?;
        }
        for t in std::mem::take(&mut self.early) {
            self.allocate(t);
        }
        for op in ops.iter().filter(|op| !gives(op)) {
            self.request(op)?;
        }
        self.carry_out()
    }

    fn request(&mut self, op: &Op) -> Result<()> {
        match *op {
            (What::Prefetch, t) => self.ask(t, flash::TO_GPU),
            (What::Allocate, t) => self.allocate(t),
            (What::Evict(Tier::Ssd), t) => self.ask(t, flash::FROM_GPUS),
            (What::Evict(_), t) => self.ask(t, flash::FROM_GPUS | flash::TO_HOST),
            (What::Free | What::Discard, t) => {
                self.live.retain(|&l| l != t);
                // Its moves come first.
                if self.asked.iter().any(|one| one.user_data as u32 == t) {
                    self.carry_out()?;
                }
                self.discard(t)?;
            }
            // A page is in one place.
            (What::Copy(_), _) => {}
        }
        Ok(())
    }

    fn allocate(&mut self, t: u32) {
        let (at, bytes) = self.range(t);
        let taken = self.live.iter().any(|&l| {
            let (other, size) = self.range(l);
            l != t && other < at + bytes && at < other + size
        });
        if taken {
            self.early.push(t);
            return;
        }
        self.live.push(t);
        self.ask(t, flash::TO_GPU);
    }

    /// Adds the move of a tensor to those that the driver is to be given. What comes to the GPU begins
    /// when what leaves has left.
    fn ask(&mut self, t: u32, mut flags: u32) {
        let (at, length) = self.range(t);
        let leaves = |one: &FlashRequest| one.flags & flash::TO_GPU == 0;
        let mut gpu_uuid = [0; 16];
        if flags == flash::TO_GPU {
            gpu_uuid = self.gpu.uuid().0;
            if self.asked.last().is_some_and(leaves) {
                flags |= flash::AFTER;
            }
        }
        self.asked.push(FlashRequest {
            base: self.data.address() + at,
            length,
            // A tensor may be asked for twice at a time.
            user_data: (self.asked.len() as u64) << 32 | u64::from(t),
            flags,
            gpu_uuid,
            ..FlashRequest::default()
        });
    }

    /// Gives the driver the moves that were asked for, in one call, and waits for their completions.
    fn carry_out(&mut self) -> Result<()> {
        let asked = std::mem::take(&mut self.asked);
        if asked.is_empty() {
            return Ok(());
        }
        let taken = self.process.flash_submit(&asked, None)?;
        ensure!(
            taken as usize == asked.len(),
            "the driver took {taken} of {} moves",
            asked.len()
        );
        let (done, left) = self
            .process
            .flash_reap(asked.len(), taken, MOVES_WITHIN_MS)?;
        ensure!(left == 0, "{left} moves do not end");
        self.moved = in_order(&asked, &done, self.moved)?;
        Ok(())
    }

    fn discard(&self, t: u32) -> Result<()> {
        let (at, bytes) = self.range(t);
        Ok(self
            .process
            .discard(self.data.address() + at, bytes, Discard::Eager)?)
    }

    fn launch(&mut self, k: usize) -> Result<()> {
        let mut kernel = Kernel::new();
        let uses = &self.workload.kernels[k].uses;
        for u in uses.iter().filter(|u| u.read) {
            let value = self.holds[u.tensor as usize]
                .with_context(|| format!("tensor {} holds nothing", u.tensor))?;
            kernel = kernel.op(self.pages(vgpu_client::Op::check(&self.data), u.tensor, value));
        }
        let mut first = uses.iter().any(|u| u.read);
        for u in uses.iter().filter(|u| u.write) {
            let value = self.next_value();
            let op = self.pages(vgpu_client::Op::write(&self.data), u.tensor, value);
            // What is read and written in place is read first.
            kernel = kernel.op(if first { op.barrier() } else { op });
            first = false;
            self.holds[u.tensor as usize] = Some(value);
        }
        if self.slower.is_some() {
            self.process.announce(self.gpu.uuid(), k as u64 + 1)?;
        }
        self.gpu.launch(&kernel)?.wait()?.ok()?;
        if let Some(slower) = self.slower {
            let ns = self.workload.kernels[k].ns as f64 * slower;
            std::thread::sleep(Duration::from_nanos(ns as u64));
        }
        Ok(())
    }

    /// An access to every page of a tensor.
    fn pages(&self, op: vgpu_client::Op, t: u32, value: u64) -> vgpu_client::Op {
        let (at, bytes) = self.range(t);
        op.range((at / 8) as usize, (bytes / 8) as usize)
            .every(PAGE)
            .pattern(value, 1)
            .warps((bytes / PAGE).div_ceil(32).clamp(1, 64) as u32)
    }

    fn counts(&self) -> Result<(Bytes, u64)> {
        self.gpu.drain_faults()?;
        let s = DriverStats::get(self.process, self.gpu.uuid(), false)?;
        let f = self.process.flash_stats()?;
        let bytes = Bytes {
            ssd_to_host: f.fetched,
            host_to_ssd: f.spilled,
            ..Bytes::moved(&s)
        };
        Ok((bytes, self.gpu.stats()?.faults))
    }

    /// The host reads what lives on.
    fn check_all(&self) -> Result<()> {
        for (t, tensor) in self.workload.tensors.iter().enumerate() {
            if !tensor.lasting || tensor.uses.is_empty() {
                continue;
            }
            let (at, bytes) = self.range(t as u32);
            let value = self.holds[t].context("a tensor holds nothing")?;
            for page in 0..bytes / PAGE {
                let seen = self.data.get(((at / PAGE + page) * WORDS) as usize);
                ensure!(
                    seen == value + page,
                    "tensor {t}, page {page}: {seen:#x}, not {:#x}",
                    value + page
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, to_gpu: u64, faults: u64) -> Run {
        let predicted = Bytes {
            host_to_gpu: 100 * BLOCK,
            ..Bytes::default()
        };
        let bytes = Bytes {
            host_to_gpu: to_gpu,
            ..Bytes::default()
        };
        Run {
            workload: "net".into(),
            policy: policy.into(),
            bytes,
            predicted: Some(predicted),
            off_percent: Some(off_percent(&bytes, &predicted)),
            faults,
            predicted_faults: Some(0),
            moves: u64::from(policy != POLICIES[0]),
            slots_leaked: 0,
            verified: true,
            gpu_bytes: 0,
            program_bytes: 0,
            scale: 1.0,
        }
    }

    #[test]
    fn what_is_not_as_predicted_is_told() {
        let base = || run("base-uvm", 100 * BLOCK, 1000);
        assert!(wrong(&[base(), run("g10", 100 * BLOCK, 20)]).is_empty());
        for bytes in [100 * BLOCK - 1, 100 * BLOCK + 1] {
            assert_eq!(wrong(&[base(), run("g10", bytes, 20)]).len(), 1);
        }
        assert!(wrong(&[run("base-uvm", 102 * BLOCK, 1000)]).is_empty());
        assert_eq!(wrong(&[run("base-uvm", 97 * BLOCK, 1000)]).len(), 1);
        assert_eq!(wrong(&[base(), run("g10", 100 * BLOCK, 21)]).len(), 1);
        let alone = |faults| Run {
            predicted: None,
            off_percent: None,
            moves: 0,
            ..run(DEEPUM, 0, faults)
        };
        assert!(wrong(&[base(), alone(1050)]).is_empty());
        assert_eq!(wrong(&[base(), alone(1051)]).len(), 1);
        let leaking = Run {
            slots_leaked: 1,
            ..base()
        };
        assert_eq!(wrong(&[leaking]).len(), 1);
        for (policy, moves) in [("g10", 0), (POLICIES[0], 1)] {
            let run = Run {
                moves,
                ..run(policy, 100 * BLOCK, 0)
            };
            assert_eq!(wrong(&[run]).len(), 1, "{policy}");
        }
    }

    #[test]
    fn moves_end_in_the_order_of_the_plan() {
        let asked = [7, 3, 7].map(|user_data| FlashRequest {
            user_data,
            ..FlashRequest::default()
        });
        let done = |tensors: [u64; 3]| {
            let mut order = 4;
            tensors.map(|user_data| {
                order += 1;
                FlashCompletion {
                    user_data,
                    order,
                    ..FlashCompletion::default()
                }
            })
        };
        assert_eq!(in_order(&asked, &done([7, 3, 7]), 4).ok(), Some(7));
        assert!(in_order(&asked, &done([3, 7, 7]), 4).is_err());
        assert!(in_order(&asked, &done([7, 3, 7])[..2], 4).is_err());
        // Of somebody else's moves, or one that was completed before.
        assert!(in_order(&asked, &done([7, 3, 7]), 3).is_err());
        // The same tensor twice, the other way round.
        let asked = [7, 1 << 32 | 7].map(|user_data| FlashRequest {
            user_data,
            ..FlashRequest::default()
        });
        assert!(in_order(&asked, &done([1 << 32 | 7, 7, 0])[..2], 4).is_err());
        let mut failed = done([7, 3, 7]);
        failed[1].status = -5;
        assert!(in_order(&asked, &failed, 4).is_err());
    }

    #[test]
    fn a_link_that_is_to_carry_nothing_is_compared_too() {
        let mut ssd = run("g10", 100 * BLOCK, 0).bytes;
        ssd.host_to_ssd = BLOCK;
        let off = off_percent(&ssd, &run("g10", 0, 0).predicted.unwrap());
        assert!(off > 99.0, "{off}");
    }
}
