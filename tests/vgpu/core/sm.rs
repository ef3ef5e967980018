// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The SMs: users' channels and the kernels that run on them.
//!
//! A warp executes one instruction at a time, whose lanes each make an access. A
//! lane without translation writes a fault and waits for the next replay, and the
//! warp with it. Warps that can go on are in a queue; a replay puts all others
//! back into it.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

use super::counters::Remote;
use super::fault::Access;
use super::fault::Fault;
use super::fault::Put;
use super::gpu::Hw;
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

mod launch;
mod user;

pub use launch::Launch;
pub(super) use launch::Ring;
use launch::Warp;
pub use user::UserChannel;

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

impl<M: Machine> Hw<M> {
    /// Runs users' kernels for up to `instructions` instructions each channel.
    /// True if there was anything to do.
    pub(super) fn run_kernels(&mut self, instructions: u32) -> bool {
        let mut progress = false;
        for i in 0..self.users.len() {
            if !self.users[i].is_busy() {
                continue;
            }
            let Some(space) = self.users[i].bound else {
                continue;
            };
            let running = match self.users[i].running.take() {
                Some(r) => r,
                None => match self.users[i].start(self.m.now_ns()) {
                    Some(r) => r,
                    None => continue,
                },
            };
            let instance = self.users[i].instance();
            progress |= self.run_kernel(i, space, instance, running, instructions);
        }
        progress
    }

    fn run_kernel(
        &mut self,
        user: usize,
        space: SpaceId,
        instance: u64,
        mut r: Launch,
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
    fn step(&mut self, space: SpaceId, instance: u64, r: &mut Launch, i: usize) -> Try {
        let warp = r.warps[i];
        let plan = r.kernel.plans[usize::from(warp.plan)];
        let Some((first, _)) = plan.instruction(warp.number, warp.step) else {
            return Try::Done;
        };
        let utlb = plan.utlb(warp.number);
        let mut lanes = warp.todo & !warp.waiting;
        let mut todo = warp.waiting;
        let mut waiting = warp.waiting;
        let mut faulted = warp.faulted;
        let mut last_fault = warp.fault;
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
            r.outcome.accesses += u64::from(prefetch);
            if va >> 12 == page_faulted {
                waiting |= todo & 1 << lane;
                faulted |= 1 << lane;
                continue;
            }
            if self.faults.outstanding(utlb) >= r.kernel.utlb_faults {
                self.stats.faults_held += 1;
                continue;
            }
            let entry = Fault {
                instance,
                va,
                kind: fault,
                access: plan.kind.access(),
                utlb,
            };
            match self.faults.write(&self.m, self.chip, &entry) {
                Ok(Put::Written { duplicate }) => {
                    page_faulted = va >> 12;
                    self.stats.faults += 1;
                    self.stats.fault_duplicates += u64::from(duplicate);
                    r.outcome.faults += 1;
                    r.outcome.duplicates += u64::from(duplicate);
                    r.outcome.refaults += u64::from(faulted >> lane & 1);
                    waiting |= todo & 1 << lane;
                    faulted |= 1 << lane;
                }
                Ok(Put::Full) => {
                    self.stats.faults_held += 1;
                    full |= !prefetch;
                }
                Err(bad) => return self.fail(r, &plan, va, &Miss::BadTable(bad.0)),
            }
        }
        r.warps[i] = Warp {
            todo,
            waiting,
            faulted,
            fault: last_fault,
            ..warp
        };
        match (todo, full) {
            (0, _) => Try::Done,
            (_, true) => Try::Full,
            (_, false) => Try::Waits,
        }
    }

    fn fail(&mut self, r: &mut Launch, plan: &Plan, va: u64, miss: &Miss) -> Try {
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
        let cached = if self.tlb_on {
            self.tlb.find(space, va)
        } else {
            None
        };
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
            let remote = Remote {
                instance,
                va,
                physical: at.at,
            };
            if self
                .counters
                .count(&self.m, self.chip.counter_address, &remote, 1)?
            {
                self.stats.access_notifications += 1;
            }
        } else {
            self.stats.local_accesses += 1;
        }
        if matches!(plan.kind, Kind::Write | Kind::AtomicAdd) {
            self.mark_dirty(at, u64::from(plan.width));
        }
        let value = plan.first_value(number);
        if plan.width == 4 {
            return access32(&self.m, plan.kind, at, va, value as u32, outcome);
        }
        let words = self
            .m
            .words(at, plan.width as usize / 8)
            .ok_or(BadAddress(at))?;
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
