// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The SMs: users' channels and the kernels that run on them.
//!
//! A warp executes one instruction at a time, whose lanes each make an access. A
//! lane without translation writes a fault and waits for the next replay, and the
//! warp with it. Warps that can go on are in a queue; a replay puts all others
//! back into it.

use core::mem::take;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

use super::counters::Remote;
use super::fault::Access;
use super::fault::Fault;
use super::fault::Put;
use super::gpu::Error;
use super::gpu::Hw;
use super::kernel::Kernel;
use super::kernel::Kind;
use super::kernel::Outcome;
use super::kernel::Plan;
use super::kernel::State;
use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Space;
use super::space::SpaceId;
use super::walk::FaultType;
use super::walk::Miss;
use super::walk::Pdb;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// Unfinished kernels a channel holds, and results it remembers.
const MAX_QUEUED: usize = 128;
/// Ops of these kernels, all together.
const MAX_QUEUED_OPS: usize = 8192;
const KEPT_RESULTS: u64 = 128;

/// One warp of the running phase.
#[derive(Clone, Copy, Debug)]
struct Warp {
    plan: u16,
    /// Number within the op.
    number: u32,
    step: u64,
    /// Lanes of the instruction that are not done.
    todo: u32,
    /// Of these, lanes that have faulted before.
    faulted: u32,
    /// Why lanes wait, as the last try found: the type of the last fault.
    fault: Option<FaultType>,
}

/// What one try at an instruction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    /// The instruction is done.
    Done,
    /// Lanes wait for a replay.
    Waits,
    /// Lanes found the fault buffer full: try again soon.
    Full,
    /// The kernel cannot go on.
    Failed,
}

/// The kernel that a channel runs.
#[derive(Debug)]
struct Running {
    kernel: Kernel,
    /// Ops of this phase: first, and the one after the last.
    phase: (usize, usize),
    warps: TryVec<Warp>,
    /// Warps that can go on: a ring of indices with room for all.
    ready: Ring,
    /// Warps not finished.
    left: usize,
    outcome: Outcome,
    start_ns: u64,
}

/// A user's channel.
#[derive(Debug)]
pub(super) struct UserChannel {
    pub(super) h_client: u32,
    pub(super) h_channel: u32,
    pub(super) h_vaspace: u32,
    /// Bound by UVM: the space its accesses use, and how often.
    pub(super) bound: Option<SpaceId>,
    pub(super) retained: u32,
    /// The user has not destroyed it.
    pub(super) owned: bool,
    pub(super) stopped: bool,
    queue: TryVec<Kernel>,
    running: Option<Running>,
    next_fence: u64,
    /// Results, by fence modulo their number.
    results: TryVec<(u64, Outcome)>,
    finished: u64,
}

impl UserChannel {
    pub(super) fn new(h_client: u32, h_channel: u32, h_vaspace: u32) -> Result<Self, OutOfMemory> {
        let none = (0, Outcome::default());
        Ok(Self {
            h_client,
            h_channel,
            h_vaspace,
            bound: None,
            retained: 0,
            owned: true,
            stopped: false,
            queue: TryVec::with_capacity(MAX_QUEUED)?,
            running: None,
            next_fence: 1,
            results: TryVec::filled(KEPT_RESULTS as usize, none)?,
            finished: 0,
        })
    }

    /// What UVM knows the channel by in fault entries: a page address, made from
    /// the handle, since UVM may ask for it several times and compares.
    pub(super) fn instance(&self) -> u64 {
        u64::from(self.h_channel & 0x0fff_ffff) << 12
    }

    /// Queues a kernel.
    pub(super) fn submit(&mut self, kernel: Kernel) -> Result<(), Error> {
        let ops = self.queue.iter().map(|k| k.plans.len()).sum::<usize>();
        let count = self.queue.len() + usize::from(self.running.is_some());
        if count >= MAX_QUEUED || ops + kernel.plans.len() > MAX_QUEUED_OPS {
            return Err(Error::Full);
        }
        self.queue.push(kernel).map_err(|_| Error::NoMemory)?;
        self.next_fence += 1;
        Ok(())
    }

    /// The fence of the kernel to be submitted next.
    pub(super) fn next_fence(&self) -> u64 {
        self.next_fence
    }

    /// The result of a kernel; `None` while it is unfinished.
    pub(super) fn result(&self, fence: u64) -> Result<Option<Outcome>, Error> {
        if fence == 0 || fence >= self.next_fence {
            return Err(Error::NotFound);
        }
        let (kept, outcome) = self.results[(fence % KEPT_RESULTS) as usize];
        if kept == fence {
            return Ok(Some(outcome));
        }
        if fence <= self.finished {
            return Err(Error::NotFound);
        }
        Ok(None)
    }

    /// Stops all kernels, for good.
    pub(super) fn stop(&mut self) -> u64 {
        self.stopped = true;
        let mut n = 0;
        if let Some(r) = self.running.take() {
            self.finish(r.kernel.fence, Outcome { state: State::Stopped, ..r.outcome });
            n += 1;
        }
        let queue = take(&mut self.queue);
        for k in queue.iter() {
            self.finish(k.fence, Outcome { state: State::Stopped, ..Outcome::default() });
            n += 1;
        }
        n
    }

    fn finish(&mut self, fence: u64, outcome: Outcome) {
        self.results[(fence % KEPT_RESULTS) as usize] = (fence, outcome);
        self.finished = fence;
    }

    /// Whether there is a kernel to run.
    fn is_busy(&self) -> bool {
        self.bound.is_some() && (self.running.is_some() || !self.queue.is_empty())
    }

    /// Puts the waiting warps back into the queue, after a replay.
    pub(super) fn replay(&mut self) {
        if let Some(r) = &mut self.running {
            if r.left > r.ready.len() {
                r.outcome.replays += 1;
                r.ready.clear();
                for (i, w) in r.warps.iter().enumerate() {
                    if w.todo != 0 {
                        r.ready.push(i as u32);
                    }
                }
            }
        }
    }

    /// The first waiting access that `test(access, va)` accepts.
    fn find_waiting(
        &self,
        test: impl Fn(Access, u64) -> bool,
    ) -> Option<(u64, FaultType, Kind)> {
        let r = self.running.as_ref()?;
        for w in r.warps.iter() {
            let Some(kind) = w.fault else { continue };
            let plan = &r.kernel.plans[usize::from(w.plan)];
            let Some((first, _)) = plan.instruction(w.number, w.step) else { continue };
            let mut lanes = w.todo & w.faulted;
            while lanes != 0 {
                let lane = lanes.trailing_zeros();
                lanes &= lanes - 1;
                let (_, va) = plan.access(first + u64::from(lane));
                if test(plan.kind.access(), va) {
                    return Some((va, kind, plan.kind));
                }
            }
        }
        None
    }

    /// Ends the running kernel with a fatal fault if `test` accepts one of its
    /// waiting accesses. True if so.
    pub(super) fn cancel(&mut self, now: u64, test: impl Fn(Access, u64) -> bool) -> bool {
        let Some((va, fault, kind)) = self.find_waiting(test) else { return false };
        let Some(r) = self.running.take() else { return false };
        let outcome = Outcome {
            state: State::Faulted,
            fault_va: va,
            fault: Some((fault as u32, kind.uapi())),
            elapsed_ns: now.saturating_sub(r.start_ns),
            ..r.outcome
        };
        self.finish(r.kernel.fence, outcome);
        true
    }
}

impl<M: Machine> Hw<M> {
    /// Runs users' kernels for up to `instructions` instructions each channel.
    /// True if there was anything to do.
    pub(super) fn run_kernels(&mut self, instructions: u32) -> bool {
        let mut progress = false;
        for i in 0..self.users.len() {
            if !self.users[i].is_busy() {
                continue;
            }
            let Some(space) = self.users[i].bound else { continue };
            let running = match self.users[i].running.take() {
                Some(r) => r,
                None => match self.start(i) {
                    Some(r) => r,
                    None => continue,
                },
            };
            let instance = self.users[i].instance();
            progress |= self.run_kernel(i, space, instance, running, instructions);
        }
        progress
    }

    /// Takes the next kernel off a channel's queue.
    fn start(&mut self, user: usize) -> Option<Running> {
        let queue = &mut self.users[user].queue;
        if queue.is_empty() {
            return None;
        }
        // First in, first out; the queue is short.
        queue.rotate_left(1);
        let kernel = queue.pop()?;
        let most = kernel.most_warps();
        let now = self.m.now_ns();
        match Running::new(kernel, most, now) {
            Ok(r) => Some(r),
            Err(fence) => {
                self.m.report(format_args!("vgpu{}: no memory for a kernel's warps", self.index));
                let outcome = Outcome { state: State::Error, ..Outcome::default() };
                self.users[user].finish(fence, outcome);
                self.stats.kernels += 1;
                self.finished = true;
                None
            }
        }
    }

    fn run_kernel(
        &mut self,
        user: usize,
        space: SpaceId,
        instance: u64,
        mut r: Running,
        instructions: u32,
    ) -> bool {
        let mut again = Ring::default();
        core::mem::swap(&mut again, &mut self.retry);
        again.clear();
        let mut progress = false;
        let mut failed = false;
        for _ in 0..instructions {
            let Some(i) = r.ready.pop() else { break };
            match self.step(space, instance, &mut r, i as usize) {
                Try::Done => {
                    progress = true;
                    if r.next_instruction(i as usize) {
                        r.ready.push(i);
                    } else if r.left == 0 && !r.next_phase() {
                        break;
                    }
                }
                Try::Waits => progress = true,
                Try::Full => {
                    if !again.push(i) {
                        r.ready.push(i);
                        break;
                    }
                }
                Try::Failed => {
                    failed = true;
                    break;
                }
            }
        }
        while let Some(i) = again.pop() {
            r.ready.push(i);
        }
        self.retry = again;
        if failed || r.left == 0 {
            let now = self.m.now_ns();
            r.outcome.state = if failed { State::Error } else { State::Done };
            r.outcome.elapsed_ns = now.saturating_sub(r.start_ns);
            self.users[user].finish(r.kernel.fence, r.outcome);
            self.stats.kernels += 1;
            self.finished = true;
        } else {
            self.users[user].running = Some(r);
        }
        progress
    }

    /// Tries the lanes of a warp's instruction that are not done.
    fn step(&mut self, space: SpaceId, instance: u64, r: &mut Running, i: usize) -> Try {
        let warp = r.warps[i];
        let plan = r.kernel.plans[usize::from(warp.plan)];
        let Some((first, _)) = plan.instruction(warp.number, warp.step) else { return Try::Done };
        let utlb = plan.utlb(warp.number);
        let mut lanes = warp.todo;
        let mut todo = 0;
        let mut faulted = warp.faulted;
        let mut last_fault = None;
        let mut full = false;
        let mut page_faulted = u64::MAX;
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            lanes &= lanes - 1;
            let (number, va) = plan.access(first + u64::from(lane));
            let (fault, at) = match self.translate(space, va, plan.kind.access()) {
                Ok(at) => (None, at),
                Err(Miss::Fault(f)) => (Some(f), Loc::vidmem(0)),
                Err(miss) => return self.fail(r, &plan, va, &miss),
            };
            let Some(fault) = fault else {
                if let Err(bad) = self.access(instance, &plan, number, va, at, &mut r.outcome) {
                    return self.fail(r, &plan, va, &Miss::BadTable(bad.0));
                }
                continue;
            };
            let prefetch = plan.kind == Kind::Prefetch;
            if !prefetch {
                todo |= 1 << lane;
                last_fault = Some(fault);
            }
            if va >> 12 == page_faulted {
                faulted |= 1 << lane;
                continue;
            }
            if self.faults.outstanding(utlb) >= r.kernel.utlb_faults {
                self.stats.faults_held += 1;
                r.outcome.accesses += u64::from(prefetch);
                continue;
            }
            let entry =
                Fault { instance, va, kind: fault, access: plan.kind.access(), utlb };
            match self.faults.write(&self.m, self.chip, &entry) {
                Ok(Put::Written { duplicate }) => {
                    page_faulted = va >> 12;
                    self.stats.faults += 1;
                    self.stats.fault_duplicates += u64::from(duplicate);
                    r.outcome.faults += 1;
                    r.outcome.duplicates += u64::from(duplicate);
                    r.outcome.refaults += u64::from(faulted >> lane & 1);
                    faulted |= 1 << lane;
                }
                Ok(Put::Full) => {
                    self.stats.faults_held += 1;
                    full |= !prefetch;
                }
                Err(bad) => return self.fail(r, &plan, va, &Miss::BadTable(bad.0)),
            }
            r.outcome.accesses += u64::from(prefetch);
        }
        r.warps[i] = Warp { todo, faulted, fault: last_fault, ..warp };
        match (todo, full) {
            (0, _) => Try::Done,
            (_, true) => Try::Full,
            (_, false) => Try::Waits,
        }
    }

    fn fail(&mut self, r: &mut Running, plan: &Plan, va: u64, miss: &Miss) -> Try {
        self.stats.bad_addresses += 1;
        self.m.report(format_args!(
            "vgpu{}: kernel {}: {:?} at {va:#x}: {miss:?}; kernel ended",
            self.index, r.kernel.fence, plan.kind
        ));
        r.outcome.fault_va = va;
        r.outcome.fault = Some((u32::MAX, plan.kind.uapi()));
        Try::Failed
    }

    /// Where an access goes, by TLB or page tables.
    fn translate(&mut self, space: SpaceId, va: u64, access: Access) -> Result<Loc, Miss> {
        let cached = if self.tlb_on { self.tlb.find(space, va) } else { None };
        let entry = match cached {
            Some(e) => {
                self.stats.tlb_hits += 1;
                e
            }
            None => {
                self.stats.walks += 1;
                let space_ref = self.spaces.iter().find(|s| s.id == space);
                let found = match space_ref {
                    Some(s) => s.page(&self.m, va),
                    None => Err(Miss::Fault(FaultType::InvalidPde)),
                };
                match found {
                    Ok(page) => self.tlb.insert(space, va, page),
                    Err(miss) => {
                        self.stats.walk_misses += 1;
                        return Err(miss);
                    }
                }
            }
        };
        let writes = matches!(access, Access::Write | Access::Atomic);
        if writes && !entry.writable {
            return Err(Miss::Fault(FaultType::WriteToReadOnly));
        }
        if access == Access::Atomic && !entry.atomic {
            return Err(Miss::Fault(FaultType::AtomicDisabled));
        }
        Ok(entry.base.plus(va & 0xfff))
    }

    /// Makes one access, all within a page.
    fn access(
        &mut self,
        instance: u64,
        plan: &Plan,
        number: u64,
        va: u64,
        at: Loc,
        outcome: &mut Outcome,
    ) -> Result<(), BadAddress> {
        outcome.accesses += 1;
        if plan.kind == Kind::Prefetch {
            return Ok(());
        }
        if at.space == Space::Sysmem {
            self.stats.remote_accesses += 1;
            let remote = Remote { instance, va, physical: at.at };
            if self.counters.count(&self.m, self.chip.counter_address, &remote, 1)? {
                self.stats.access_notifications += 1;
            }
        } else {
            self.stats.local_accesses += 1;
        }
        let value = plan.first_value(number);
        if plan.width == 4 {
            return access32(&self.m, plan.kind, at, va, value as u32, outcome);
        }
        let words = self.m.words(at, plan.width as usize / 8).ok_or(BadAddress(at))?;
        access64(words, plan, va, value, outcome);
        Ok(())
    }

    /// A replay: every waiting access of every channel tries again.
    pub(super) fn replay(&mut self) {
        self.faults.replay();
        for u in self.users.iter_mut() {
            u.replay();
        }
    }

    /// Cancels the accesses to the page of `va` in the space with page directory
    /// `pdb` that are of `kind`, in the host method's numbers.
    pub(super) fn cancel(&mut self, pdb: Pdb, va: u64, kind: u32) {
        let now = self.m.now_ns();
        for u in self.users.iter_mut() {
            let ours = |id| self.spaces.iter().any(|s| s.id == id && s.pdb == Some(pdb));
            if u.bound.is_some_and(ours)
                && u.cancel(now, |a, at| at >> 12 == va >> 12 && matches_kind(kind, a))
            {
                self.stats.kernels += 1;
                self.finished = true;
            }
        }
        self.replay();
    }

    /// Cancels all waiting accesses.
    pub(super) fn cancel_all(&mut self) {
        let now = self.m.now_ns();
        for u in self.users.iter_mut() {
            if u.cancel(now, |_, _| true) {
                self.stats.kernels += 1;
                self.finished = true;
            }
        }
        self.replay();
    }
}

/// Whether a cancel of `kind` means an access.
fn matches_kind(kind: u32, access: Access) -> bool {
    match kind {
        0 => access == Access::Read,
        1 => access == Access::Write,
        2 | 4 | 5 => access == Access::Atomic,
        6 => matches!(access, Access::Write | Access::Atomic),
        _ => true,
    }
}

fn access64(words: &[AtomicU64], plan: &Plan, va: u64, first: u64, outcome: &mut Outcome) {
    let mut value = first;
    for (i, w) in words.iter().enumerate() {
        match plan.kind {
            Kind::Read => {
                outcome.sum = outcome.sum.wrapping_add(w.load(Ordering::Relaxed));
            }
            Kind::Write => w.store(value, Ordering::Relaxed),
            Kind::AtomicAdd => {
                w.fetch_add(value, Ordering::Relaxed);
            }
            Kind::Check => {
                let seen = w.load(Ordering::Relaxed);
                if seen != value {
                    mismatch(outcome, va + 8 * i as u64, value, seen);
                }
            }
            Kind::Prefetch => {}
        }
        value = value.wrapping_add(plan.value_stride);
    }
}

fn access32<M: Machine>(
    m: &M,
    kind: Kind,
    at: Loc,
    va: u64,
    value: u32,
    outcome: &mut Outcome,
) -> Result<(), BadAddress> {
    match kind {
        Kind::Read => outcome.sum = outcome.sum.wrapping_add(u64::from(m.load32(at)?)),
        Kind::Write => m.store32(at, value)?,
        Kind::AtomicAdd => {
            m.fetch_add32(at, value)?;
        }
        Kind::Check => {
            let seen = m.load32(at)?;
            if seen != value {
                mismatch(outcome, va, value.into(), seen.into());
            }
        }
        Kind::Prefetch => {}
    }
    Ok(())
}

fn mismatch(outcome: &mut Outcome, va: u64, expected: u64, seen: u64) {
    if outcome.mismatches == 0 {
        outcome.bad_va = va;
        outcome.bad_expected = expected;
        outcome.bad_seen = seen;
    }
    outcome.mismatches += 1;
}

impl Running {
    /// Makes the warps of the first phase; gives the fence back without memory.
    fn new(kernel: Kernel, most_warps: usize, now: u64) -> Result<Self, u64> {
        let fence = kernel.fence;
        let warps = TryVec::with_capacity(most_warps).map_err(|_| fence)?;
        let ready = Ring::new(most_warps).map_err(|_| fence)?;
        let mut r = Self {
            kernel,
            phase: (0, 0),
            warps,
            ready,
            left: 0,
            outcome: Outcome::default(),
            start_ns: now,
        };
        r.next_phase();
        Ok(r)
    }

    /// Starts the next phase that has anything to do; false if there is none.
    fn next_phase(&mut self) -> bool {
        while self.phase.1 < self.kernel.plans.len() {
            let first = self.phase.1;
            self.phase = (first, self.kernel.phase_end(first));
            self.warps.clear();
            self.ready.clear();
            for plan in self.phase.0..self.phase.1 {
                for number in 0..self.kernel.plans[plan].warps {
                    self.add_warp(plan, number);
                }
            }
            self.left = self.warps.len();
            if self.left > 0 {
                return true;
            }
        }
        false
    }

    fn add_warp(&mut self, plan: usize, number: u32) {
        let Some((_, lanes)) = self.kernel.plans[plan].instruction(number, 0) else { return };
        let warp = Warp {
            plan: plan as u16,
            number,
            step: 0,
            todo: all_lanes(lanes),
            faulted: 0,
            fault: None,
        };
        // There is room for all warps of the phase: see `new`.
        if self.warps.push(warp).is_ok() {
            self.ready.push(self.warps.len() as u32 - 1);
        }
    }

    /// Moves a warp to its next instruction; false if it has none.
    fn next_instruction(&mut self, i: usize) -> bool {
        let w = &mut self.warps[i];
        w.step += 1;
        w.faulted = 0;
        w.fault = None;
        match self.kernel.plans[usize::from(w.plan)].instruction(w.number, w.step) {
            Some((_, lanes)) => {
                w.todo = all_lanes(lanes);
                true
            }
            None => {
                w.todo = 0;
                self.left -= 1;
                false
            }
        }
    }
}

fn all_lanes(n: u32) -> u32 {
    u32::MAX >> (32 - n)
}

/// A ring of indices with a fixed capacity.
#[derive(Debug, Default)]
pub(super) struct Ring {
    slots: TryVec<u32>,
    first: usize,
    len: usize,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { slots: TryVec::filled(capacity, 0)?, first: 0, len: 0 })
    }

    fn len(&self) -> usize {
        self.len
    }

    /// `i` is below twice the capacity.
    fn wrap(&self, i: usize) -> usize {
        if i < self.slots.len() {
            i
        } else {
            i - self.slots.len()
        }
    }

    fn clear(&mut self) {
        self.len = 0;
    }

    /// False if it is full.
    fn push(&mut self, value: u32) -> bool {
        if self.len == self.slots.len() {
            return false;
        }
        let at = self.wrap(self.first + self.len);
        self.slots[at] = value;
        self.len += 1;
        true
    }

    fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let value = self.slots[self.first];
        self.first = self.wrap(self.first + 1);
        self.len -= 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests;
