// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The SMs: users' channels and the kernels that run on them.
//!
//! A warp executes one instruction at a time, whose lanes each make an access. A
//! lane without translation writes a fault, or loses it to a full buffer, and waits for the
//! next replay, and the warp with it. Warps that can go on are in a queue; a replay puts all others
//! back into it.

use super::fault::Access;
use super::fault::Fault;
use super::fault::Put;
use super::gpu::Hw;
use super::kernel::Kind;
use super::kernel::Plan;
use super::kernel::State;
use super::machine::Loc;
use super::machine::Machine;
use super::space::SpaceId;
use super::walk::FaultType;
use super::walk::Miss;
use super::walk::Page;
use super::walk::Pdb;

mod access;
mod launch;
mod user;

pub use launch::Launch;
pub(super) use launch::Ring;
use launch::Warp;
pub use user::Owner;
pub use user::UserChannel;

/// Most lanes of an instruction.
const LANES: usize = 32;
/// Warps of kernels that run, of one owner's: a replay looks at each with the mutex held.
/// What he has queued beyond starts when others of his have ended.
const MAX_RUNNING_WARPS: usize = 65536;
/// As much work as one instruction: so many warps of a phase are made.
const WARPS_PER_INSTRUCTION: usize = 16;
/// Warps that may find the fault buffer full, where that is pretended, before a turn ends.
const FULL_PER_TURN: u32 = 8;

/// What all users' kernels together may still do in a turn. UVM waits for the turn's end
/// with its locks held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Instructions that may still be tried, whether they fault or not.
    pub(super) instructions: u32,
    /// Bytes accessed; the instruction that passes the bound is still finished.
    pub(super) bytes: u64,
}

impl Budget {
    /// So many instructions, of any number of bytes.
    pub(super) fn of_instructions(instructions: u32) -> Self {
        Self {
            instructions,
            bytes: u64::MAX,
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.instructions == 0 || self.bytes == 0
    }

    /// Counts what is gone of another budget, of which `left` is left.
    pub(super) fn take_part(&mut self, whole: Self, left: Self) {
        let instructions = whole.instructions - left.instructions;
        self.instructions = self.instructions.saturating_sub(instructions);
        self.bytes = self.bytes.saturating_sub(whole.bytes - left.bytes);
    }

    /// Counts a try at an instruction that accessed `bytes`.
    fn take(&mut self, bytes: u64) {
        self.instructions = self.instructions.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Counts that a phase of so many warps was made.
    fn take_phase(&mut self, warps: usize) {
        let instructions = (warps / WARPS_PER_INSTRUCTION) as u32;
        self.instructions = self.instructions.saturating_sub(instructions);
    }
}

/// What one try at an instruction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    /// The instruction is done.
    Done,
    /// Lanes wait for a replay.
    Waits,
    /// Lanes found the fault buffer full, as was asked for: try again soon.
    Full,
    /// The kernel cannot go on.
    Failed,
}

/// Whose an access is: its address space, and the instance pointer of the channel.
struct By {
    space: SpaceId,
    instance: u64,
}

/// Pages that lanes of one instruction have written a fault for: others on the same page
/// share it.
#[derive(Default)]
struct PagesFaulted {
    /// Page numbers; the first `len` count. A lane adds at most one.
    pages: [u64; LANES],
    len: usize,
}

impl PagesFaulted {
    fn contains(&self, va: u64) -> bool {
        self.pages[..self.len].contains(&(va >> 12))
    }

    fn add(&mut self, va: u64) {
        if let Some(slot) = self.pages.get_mut(self.len) {
            *slot = va >> 12;
            self.len += 1;
        }
    }
}

impl<M: Machine> Hw<M> {
    /// Runs users' kernels until the turn's budget is spent. True if there was anything to
    /// do. The next turn starts with who found the budget spent, or else with another.
    pub(super) fn run_kernels(&mut self, mut budget: Budget) -> bool {
        let mut progress = false;
        let n = self.users.len();
        let first = if (self.next_user as usize) < n {
            self.next_user as usize
        } else {
            0
        };
        self.next_user = first as u32 + 1;
        for i in (first..n).chain(0..first) {
            if budget.is_spent() {
                self.next_user = i as u32;
                break;
            }
            if self.users[i].is_busy() {
                progress |= self.run_user(i, &mut budget);
            }
        }
        progress
    }

    /// Runs the kernel of user `i`, who is busy, or his next one. True if anything was done.
    pub(super) fn run_user(&mut self, i: usize, budget: &mut Budget) -> bool {
        let Some(space) = self.users[i].bound else {
            return false;
        };
        let running = match self.users[i].running.take() {
            Some(r) => r,
            None if !self.may_start(i) => return false,
            None => match self.users[i].start(self.m.now_ns()) {
                Some(r) => r,
                None => return false,
            },
        };
        let instance = self.users[i].instance();
        self.run_kernel(i, space, instance, running, budget)
    }

    /// Whether the next kernel of user `i` fits what his owner may have running.
    fn may_start(&self, i: usize) -> bool {
        let user = &self.users[i];
        let of_owner = self.users.iter().filter(|u| u.owner == user.owner);
        let running: usize = of_owner.map(UserChannel::running_warps).sum();
        running + user.next_warps() <= MAX_RUNNING_WARPS
    }

    fn run_kernel(
        &mut self,
        user: usize,
        space: SpaceId,
        instance: u64,
        mut r: Launch,
        budget: &mut Budget,
    ) -> bool {
        let by = By { space, instance };
        let mut again = Ring::default();
        core::mem::swap(&mut again, &mut self.retry);
        again.clear();
        let mut progress = false;
        let mut failed = false;
        let mut full = 0;
        while !budget.is_spent() {
            // More would find the buffer full as well; others' turns come next.
            if full == FULL_PER_TURN {
                break;
            }
            let Some(i) = r.ready.pop() else { break };
            let before = r.outcome.accesses;
            let width = r.kernel.plans[usize::from(r.warps[i as usize].plan)].width;
            let tried = self.step(&by, &mut r, i as usize);
            budget.take((r.outcome.accesses - before) * u64::from(width));
            match tried {
                Try::Done => {
                    progress = true;
                    if r.next_instruction(i as usize) {
                        r.ready.push(i);
                    } else if r.left == 0 {
                        self.settle_user(instance);
                        match r.next_phase() {
                            Some(warps) => budget.take_phase(warps),
                            None => break,
                        }
                    }
                }
                Try::Waits => progress = true,
                Try::Full => {
                    full += 1;
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
            self.settle_user(instance);
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
    fn step(&mut self, by: &By, r: &mut Launch, i: usize) -> Try {
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
        let mut kinds = warp.kinds;
        let mut full = false;
        let mut pages = PagesFaulted::default();
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            lanes &= lanes - 1;
            let (number, va) = plan.access(first + u64::from(lane));
            let (fault, at) = match self.translate(by.space, va, plan.kind.access()) {
                Ok(at) => (None, at),
                Err(Miss::Fault(f)) => (Some(f), Loc::vidmem(0)),
                Err(miss) => return self.fail(r, &plan, va, &miss),
            };
            let Some(fault) = fault else {
                if let Err(bad) = self.access(by, &plan, number, va, at, &mut r.outcome) {
                    return self.fail(r, &plan, va, &Miss::BadTable(bad.0));
                }
                continue;
            };
            let prefetch = plan.kind == Kind::Prefetch;
            if !prefetch {
                todo |= 1 << lane;
                kinds.set(lane, fault);
            }
            r.outcome.accesses += u64::from(prefetch);
            if pages.contains(va) {
                waiting |= todo & (1 << lane);
                faulted |= 1 << lane;
                continue;
            }
            if self.faults.outstanding(utlb) >= r.kernel.utlb_faults {
                self.stats.faults_held += 1;
                continue;
            }
            let entry = Fault {
                instance: by.instance,
                va,
                kind: fault,
                access: plan.kind.access(),
                utlb,
            };
            let late = self.is_entry_late();
            match self.faults.write(&self.m, self.chip, &entry, late) {
                Ok(Put::Written { duplicate }) => {
                    pages.add(va);
                    self.stats.faults += 1;
                    self.stats.fault_duplicates += u64::from(duplicate);
                    r.outcome.faults += 1;
                    r.outcome.duplicates += u64::from(duplicate);
                    r.outcome.refaults += u64::from((faulted >> lane) & 1);
                    waiting |= todo & (1 << lane);
                    faulted |= 1 << lane;
                }
                Ok(Put::Dropped) => {
                    self.stats.faults_held += 1;
                    waiting |= todo & (1 << lane);
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
            kinds,
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
            self.gpc_tlb.find(space, va).copied()
        } else {
            None
        };
        let page = match cached {
            Some(leaf) => {
                self.stats.tlb_hits += 1;
                leaf.map_err(Miss::Fault)?
            }
            None => self.walk(space, va)?,
        };
        let writes = matches!(access, Access::Write | Access::Atomic);
        if writes && !page.writable {
            return Err(Miss::Fault(FaultType::WriteToReadOnly));
        }
        if access == Access::Atomic && !page.atomic {
            return Err(Miss::Fault(FaultType::AtomicDisabled));
        }
        Ok(page.base.plus(va & (page.bytes - 1)))
    }

    /// Walks the page tables for an SM.
    fn walk(&mut self, space: SpaceId, va: u64) -> Result<Page, Miss> {
        self.stats.walks += 1;
        let found = match self.spaces.iter().find(|s| s.id == space) {
            Some(s) if self.tlb_on => s.cached_page(&self.m, &mut self.gpc_tlb, va),
            Some(s) => s.page(&self.m, va),
            None => Err(Miss::Fault(FaultType::InvalidPde)),
        };
        self.stats.walk_misses += u64::from(found.is_err());
        found
    }

    /// A replay: every waiting access of every channel tries again.
    pub(super) fn replay(&mut self) {
        self.finish_invalidates();
        self.faults.entries.all_arrive(&self.m);
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
        self.settle_ended();
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
        self.settle_ended();
        self.replay();
    }

    /// The stores of all users who have nothing running are over.
    fn settle_ended(&mut self) {
        for i in 0..self.users.len() {
            if self.users[i].running.is_none() {
                self.settle_user(self.users[i].instance());
            }
        }
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
