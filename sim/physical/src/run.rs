// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Running kernels: touches, faults, waits.

use uvm_policy::chooser::Along;
use uvm_policy::mask::PageMask;
use uvm_policy::mask::Region;
use uvm_policy::mask::PAGES;
use uvm_policy::tree;
use uvm_policy::tree::Shape;
use uvmsim_machine::Machine;
use uvmsim_machine::BLOCK;

use crate::links::Direction;
use crate::links::Links;
use crate::policy::Policy;
use crate::record::Recorder;
use crate::result::Outcome;
use crate::system::System;
use crate::system::NEVER;
use crate::workload::Layout;
use crate::workload::Touch;
use crate::workload::Workload;

/// Pages of a big page, 64 KiB, of which all come with one that faults.
const BIG: u16 = 16;

/// How long to run and what to note.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Iterations before the one that is reported.
    pub warm_up: u32,
    /// Bins of the timeline; 0: no timeline.
    pub bins: usize,
    /// Nanoseconds of virtual time after which a run is given up.
    pub give_up: u64,
    /// Nanoseconds after which the step that is reported is given up. Those before it may take four
    /// times as long, and the time to bring in all that lasts, as the first finds nothing in GPU memory.
    pub longest_step: u64,
    /// Whether those before it may take as long as they like: the policy learns.
    pub learning: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            warm_up: 2,
            bins: 0,
            give_up: 100_000_000_000_000,
            longest_step: u64::MAX,
            learning: false,
        }
    }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Host memory is full and there is no SSD.
    #[error("host memory is full and the machine has no SSD; raise --host-mem or set --ssd-read and --ssd-write")]
    HostFull,
    /// Nothing in GPU memory can be reclaimed.
    #[error("no root chunk can be reclaimed; raise --gpu-mem")]
    GpuFull,
    /// The policy cannot run this: why.
    #[error("{0}")]
    Infeasible(String),
    /// A kernel reads what the policy has thrown away.
    #[error("kernel {kernel} reads va_block {block}, which was discarded or never written")]
    ReadDead {
        /// The name of the kernel.
        kernel: String,
        /// The number of the va_block.
        block: u32,
    },
    /// A page's contents are nowhere: an error of the simulator.
    #[error("internal error: va_block {block} lost live pages")]
    Lost {
        /// The number of the va_block.
        block: u32,
    },
    /// Sums do not agree: an error of the simulator.
    #[error("internal error: {what} do not add up")]
    Accounts {
        /// Of what they are sums.
        what: &'static str,
    },
    /// The run took more virtual time than allowed.
    #[error("given up: the step takes too long")]
    TooLong,
}

/// Runs `workload` on `machine` under `policy`.
///
/// # Errors
/// The step cannot run there, or (an error of policy or simulator) data were
/// lost.
pub fn run(
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    policy: &mut dyn Policy,
    limits: Limits,
) -> Result<Outcome, RunError> {
    if policy.unlimited() {
        return Ok(ideal(machine, workload, policy));
    }
    let mut s = System::new(machine, workload, layout, !policy.faultless())?;
    if policy.watches() {
        s.watch();
    }
    let samples = (workload.kernels.len() / 300).max(1);
    let warm_up = limits.longest_step.saturating_mul(4);
    let warm_up = match limits.learning {
        true => u64::MAX,
        false => warm_up.saturating_add(load_ns(machine, workload)),
    };
    let mut start = 0;
    for iteration in 0..=limits.warm_up {
        let last = iteration == limits.warm_up;
        if let Some(e) = s.failure.take() {
            return Err(e);
        }
        s.check()?;
        start = s.now;
        if last {
            s.out = Outcome::default();
            s.recorder = (limits.bins > 0).then(Recorder::default);
        }
        for k in 0..workload.kernels.len() {
            if s.recorder.is_some() && k % samples == 0 {
                let (now, memory) = (s.now, s.memory_by_kind(k as u32));
                if let Some(r) = &mut s.recorder {
                    r.memory(now, memory);
                }
            }
            let began = s.now;
            kernel(&mut s, policy, k)?;
            if last {
                s.out.kernel_ns.push(s.now - began);
            }
            let longest = if last { limits.longest_step } else { warm_up };
            if s.now > limits.give_up || s.now - start > longest {
                return Err(RunError::TooLong);
            }
        }
        s.check()?;
    }
    let mut out = std::mem::take(&mut s.out);
    out.policy = policy.name().into();
    out.ideal_ns = ideal_ns(machine, workload);
    out.step_ns = s.now - start;
    out.timeline = s
        .recorder
        .take()
        .map(|r| r.finish(start, s.now, limits.bins));
    Ok(out)
}

/// Nanoseconds that bring into GPU memory all that lasts, at the most: one va_block after the
/// other, each by faults of its own, and from the SSD if the host has no room for all.
fn load_ns(machine: &Machine, workload: &Workload) -> u64 {
    let used = workload.tensors.iter().filter(|t| !t.uses.is_empty());
    let lasting = used.filter(|t| t.lasting).map(|t| t.bytes.div_ceil(BLOCK));
    let blocks = lasting.fold(0, u64::saturating_add);
    let mut copy = Links::new(machine).copy(Direction::In, BLOCK, 0).1;
    if machine.ssd_read > 0.0 && blocks.saturating_mul(BLOCK) > machine.host_mem {
        copy = copy.max(Links::new(machine).copy_ssd(Direction::In, BLOCK, 0).1);
    }
    let batches = u64::from(PAGES).div_ceil(machine.fault_batch.max(1));
    let faults = batches.saturating_mul(machine.fault_latency + machine.fault_block);
    blocks.saturating_mul(copy.saturating_add(faults))
}

/// The step's time with everything in GPU memory, and nothing computed again.
fn ideal_ns(machine: &Machine, workload: &Workload) -> u64 {
    let gpus = machine.gpus.max(1);
    let all: u64 = workload.kernels.iter().map(|k| k.ns / gpus).sum();
    all.saturating_sub(workload.again_ns / gpus)
}

/// The outcome with everything in GPU memory.
fn ideal(machine: &Machine, workload: &Workload, policy: &dyn Policy) -> Outcome {
    let ns = ideal_ns(machine, workload);
    Outcome {
        policy: policy.name().into(),
        ideal_ns: ns,
        step_ns: ns,
        gpu_peak: workload.peak_bytes(),
        ..Outcome::default()
    }
}

/// Runs kernel `k` from `s.now`, and advances `s.now` to its end.
fn kernel(s: &mut System<'_>, policy: &mut dyn Policy, k: usize) -> Result<(), RunError> {
    let layout = s.layout;
    let touches = &layout.touches[k];
    if policy.invalidates() {
        for &t in &layout.births[k] {
            s.mark_dead(t, false);
        }
    }
    policy.kernel_start(k, s);
    s.unblock();
    let gate = s.gate;
    stall(s, gate, |o| &mut o.stalls.calls);
    peers(s, k, |u| u.read);
    let ns = s.workload.kernels[k].ns / s.machine.gpus.max(1);
    let pages: u64 = touches.iter().map(|t| u64::from(t.region.pages())).sum();
    let mut done = 0;
    let mut passed = 0;
    for i in 0..touches.len() {
        // What the kernel has computed by the time it gets here.
        let progress = (ns as f64 * (done as f64 / pages as f64)) as u64;
        s.now += progress - passed;
        passed = progress;
        if let Some(last) = i.checked_sub(1) {
            s.passed(touches[last].block, touches[last].pages());
        }
        access(s, policy, k, &touches[i..])?;
        done += u64::from(touches[i].region.pages());
    }
    s.now += ns - passed;
    if let Some(last) = touches.last() {
        s.passed(last.block, last.pages());
    }
    s.passed_all();
    peers(s, k, |u| u.write);
    policy.kernel_end(k, s);
    for &t in &layout.refreshed[k] {
        s.place_outside(t);
    }
    if policy.invalidates() {
        for &t in &layout.deaths[k] {
            s.mark_dead(t, true);
        }
    }
    match s.failure.take() {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// Scatters or reduces tensors among GPUs over NVLink (MOST section IV.C).
fn peers(s: &mut System<'_>, k: usize, role: impl Fn(&crate::workload::Use) -> bool) {
    let g = s.machine.gpus;
    if g < 2 {
        return;
    }
    let uses = s.workload.kernels[k].uses.iter().filter(|u| role(u));
    let sizes = uses.map(|u| s.workload.tensors[u.tensor as usize].bytes);
    let bytes: u64 = sizes.sum();
    let ns = bytes as f64 * (g - 1) as f64 / g as f64 / s.machine.nvlink * 1e9;
    let until = s.now + ns as u64;
    stall(s, until, |o| &mut o.stalls.peers);
}

/// Nothing runs until `until`.
fn stall(s: &mut System<'_>, until: u64, cause: impl Fn(&mut Outcome) -> &mut u64) {
    if until <= s.now {
        return;
    }
    *cause(&mut s.out) += until - s.now;
    if let Some(r) = &mut s.recorder {
        r.stall(s.now, until);
    }
    s.now = until;
}

/// The kernel reaches the first of `touches`: waits or faults until its pages are
/// there, then reads and writes them.
fn access(
    s: &mut System<'_>,
    policy: &mut dyn Policy,
    k: usize,
    touches: &[Touch],
) -> Result<(), RunError> {
    let touch = touches[0];
    let pages = touch.pages();
    if s.now >= s.pump_next {
        s.pump(s.now, policy);
    }
    let mut batched = match policy.block_by_block() {
        true => &touches[..1],
        false => touches,
    };
    loop {
        let block = &s.blocks[touch.block as usize];
        if (pages - block.mapped()).is_empty() {
            break;
        }
        if policy.waits() && block.queued > 0 && s.pump_next < NEVER {
            let next = s.pump_next.max(s.now);
            let link = s.link_until(touch.block).clamp(s.now, next);
            stall(s, link, |o| &mut o.stalls.prefetch);
            stall(s, next, |o| &mut o.stalls.eviction);
            s.pump(next, policy);
        } else {
            service(s, policy, batched);
            if !s.blocks[touch.block as usize].chunk {
                // The rest of its batch took its chunk, and would again.
                batched = &touches[..1];
            }
        }
        if let Some(e) = s.failure.take() {
            return Err(e);
        }
    }
    let ready = s.blocks[touch.block as usize].ready_at;
    stall(s, ready, |o| &mut o.stalls.prefetch);
    if touch.read && !(pages - s.blocks[touch.block as usize].live).is_empty() {
        let (kernel, block) = (s.workload.kernels[k].name.clone(), touch.block);
        return Err(RunError::ReadDead { kernel, block });
    }
    if touch.write {
        s.written(touch.block, pages);
    }
    Ok(())
}

/// Services a batch of the faults that `touches` raise from now on.
///
/// In upstream's order: fetch, then block by block evict, populate, copy and map,
/// then wait for the copies and replay. Evictions are waited for in turn; copies
/// to different blocks overlap with the work on the next. A block that comes later in
/// the batch may lose its chunk to one that comes before.
pub(crate) fn service(s: &mut System<'_>, policy: &mut dyn Policy, touches: &[Touch]) {
    let faultless = policy.faultless();
    let whole = faultless || policy.block_by_block();
    let batch = collect(s, touches, whole);
    s.evict_wait = 0;
    let mut t = s.now;
    if !faultless {
        t += s.machine.fault_latency;
        s.out.batches += 1;
    }
    let mut replay = t;
    for &(b, faulted) in &batch {
        if !faultless {
            s.out.faults += u64::from(faulted.count());
            if s.blocks[b as usize].queued > 0 {
                s.out.late_faults += u64::from(faulted.count());
            }
            t += s.machine.fault_block;
        }
        let along = policy.along(b, s).unwrap_or_else(|| along(s, policy));
        let pages = if along == Along::Block {
            let block = &s.blocks[b as usize];
            ((block.seen | block.live) - block.gpu) | faulted
        } else if along == Along::Tree {
            let threshold = s.machine.tree_threshold;
            tree_prefetch(s.blocks[b as usize].mapped(), faulted, threshold) | faulted
        } else {
            faulted
        };
        t = s.demand_chunk(b, t, policy);
        if s.failure.is_some() {
            return;
        }
        let coming = pages - s.blocks[b as usize].gpu;
        replay = replay.max(s.copy_in(b, pages, t));
        let work = s.service_cost(batch.len());
        policy.served(b, faulted.count().into(), coming.count().into(), work);
    }
    let until = replay.max(t);
    let evicting = s.evict_wait.min(until - s.now);
    let from = s.now;
    stall(s, from + evicting, |o| &mut o.stalls.eviction);
    stall(s, until, |o| &mut o.stalls.fault);
    for (b, _) in batch {
        policy.fault(b, s);
    }
    s.pump(s.now, policy);
}

/// What comes along with a fault under `policy`, if it does not say of each block.
fn along(s: &System<'_>, policy: &dyn Policy) -> Along {
    if policy.whole_blocks() {
        Along::Block
    } else if s.machine.tree_prefetch != 0 && !policy.faultless() {
        Along::Tree
    } else {
        Along::Nothing
    }
}

/// The pages that the next batch of faults is about, by va_block: those that the
/// kernel is about to touch, up to the size of a batch.
pub(crate) fn collect(s: &System<'_>, touches: &[Touch], whole: bool) -> Vec<(u32, PageMask)> {
    let mut room = if whole {
        u32::from(touches[0].region.pages())
    } else {
        s.machine.fault_batch.max(1) as u32
    };
    let mut batch: Vec<(u32, PageMask)> = Vec::new();
    for touch in touches.iter().take(s.machine.fault_batch.max(1) as usize) {
        let block = &s.blocks[touch.block as usize];
        let missing = lowest(touch.pages() - block.mapped(), room);
        if missing.is_empty() {
            continue;
        }
        room -= u32::from(missing.count());
        match batch.iter_mut().find(|(b, _)| *b == touch.block) {
            Some((_, m)) => *m |= missing,
            None => batch.push((touch.block, missing)),
        }
        if room == 0 {
            break;
        }
    }
    batch
}

/// The `n` lowest of `pages`, or all.
fn lowest(pages: PageMask, n: u32) -> PageMask {
    let mut out = PageMask::EMPTY;
    let mut left = n;
    for run in pages.runs() {
        let some = left.min(u32::from(run.pages())) as u16;
        out.fill(Region::new(run.first(), run.first() + some));
        left -= u32::from(some);
    }
    out
}

/// What the driver's tree prefetcher brings in with `faulted`, or finds there; `threshold` in
/// percent. Where that was discarded it is not any more: eagerly discarded pages are not resident
/// for the driver, and lazily discarded ones are made resident like all others.
fn tree_prefetch(resident: PageMask, faulted: PageMask, threshold: u64) -> PageMask {
    let shape = Shape::WHOLE;
    let mut leaves = resident | faulted;
    tree::grow(&mut leaves, shape, Region::WHOLE, BIG, &faulted, None);
    let threshold = threshold.min(100) as u32;
    tree::prefetch(&leaves, shape, &faulted, Region::WHOLE, threshold)
}
