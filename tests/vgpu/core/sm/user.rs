// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A user's channel: its queue of kernels and their results.

use core::mem::take;

use super::launch::Launch;
use crate::emu::copies::Copies;
use crate::emu::fault::Access;
use crate::emu::gpu::Error;
use crate::emu::gpu::HANDLE_MASK;
use crate::emu::kernel::Kind;
use crate::emu::kernel::Outcome;
use crate::emu::kernel::State;
use crate::emu::space::SpaceId;
use crate::emu::stats::Stats;
use crate::emu::walk::FaultType;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// Unfinished kernels a channel holds, and results it remembers.
const MAX_QUEUED: usize = 128;
/// Ops and warps of these kernels, all together.
const MAX_QUEUED_OPS: usize = 8192;
const MAX_QUEUED_WARPS: usize = 65536;
const KEPT_RESULTS: u64 = 128;

/// Who opened the file that a channel is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// One who has CAP_SYS_ADMIN, and may do what others may not.
    Admin,
    /// One who has not: the number of the user.
    User(u32),
}

/// A channel that a program made: its queue of kernels, and their results.
#[derive(Debug)]
pub struct UserChannel {
    pub(in crate::emu) owner: Owner,
    pub(in crate::emu) h_client: u32,
    pub(in crate::emu) h_channel: u32,
    pub(in crate::emu) h_vaspace: u32,
    /// Bound by UVM: the space its accesses use, and how often.
    pub(in crate::emu) bound: Option<SpaceId>,
    pub(in crate::emu) retained: u32,
    /// The user has not destroyed it.
    pub(in crate::emu) owned: bool,
    pub(in crate::emu) stopped: bool,
    pub(in crate::emu) copies: Copies,
    pub(super) queue: TryVec<Launch>,
    pub(super) running: Option<Launch>,
    next_fence: u64,
    /// Results, by fence modulo their number.
    results: TryVec<(u64, Outcome)>,
    finished: u64,
}

impl UserChannel {
    /// A channel of nobody's yet, with all the memory it needs but the kernels'.
    pub fn new() -> Result<Self, OutOfMemory> {
        let none = (0, Outcome::default());
        Ok(Self {
            owner: Owner::Admin,
            h_client: 0,
            h_channel: 0,
            h_vaspace: 0,
            bound: None,
            retained: 0,
            owned: true,
            stopped: false,
            copies: Copies::default(),
            queue: TryVec::with_capacity(MAX_QUEUED)?,
            running: None,
            next_fence: 1,
            results: TryVec::filled(KEPT_RESULTS as usize, none)?,
            finished: 0,
        })
    }

    /// What UVM knows the channel by in fault entries: a page address, made from
    /// the handle, since UVM may ask for it several times and compares.
    pub(in crate::emu) fn instance(&self) -> u64 {
        u64::from(self.h_channel & HANDLE_MASK) << 12
    }

    /// Accesses that the running kernel has made.
    #[cfg(test)]
    pub(in crate::emu) fn running_accesses(&self) -> u64 {
        self.running.as_ref().map_or(0, |r| r.outcome.accesses)
    }

    /// Warps of the running kernel, at most.
    pub(in crate::emu) fn running_warps(&self) -> usize {
        self.running.as_ref().map_or(0, Launch::most_warps)
    }

    /// Warps of the next kernel in the queue, at most.
    pub(in crate::emu) fn next_warps(&self) -> usize {
        self.queue.first().map_or(0, Launch::most_warps)
    }

    /// Queues a kernel; gives its fence.
    pub(in crate::emu) fn submit(&mut self, mut launch: Launch) -> Result<u64, Error> {
        let held = self.running.iter().chain(self.queue.iter());
        let (mut count, mut ops, mut warps) = (1, launch.kernel.plans.len(), launch.most_warps());
        for l in held {
            count += 1;
            ops += l.kernel.plans.len();
            warps += l.most_warps();
        }
        if count > MAX_QUEUED || ops > MAX_QUEUED_OPS || warps > MAX_QUEUED_WARPS {
            return Err(Error::Full);
        }
        launch.kernel.fence = self.next_fence;
        self.queue.push(launch)?;
        self.next_fence += 1;
        Ok(self.next_fence - 1)
    }

    /// Takes the next kernel off the queue.
    pub(in crate::emu) fn start(&mut self, now: u64) -> Option<Launch> {
        if self.queue.is_empty() {
            return None;
        }
        // First in, first out; the queue is short.
        self.queue.rotate_left(1);
        let mut launch = self.queue.pop()?;
        launch.start_ns = now;
        Some(launch)
    }

    /// The result of a kernel; `None` while it is unfinished.
    pub(in crate::emu) fn result(&self, fence: u64) -> Result<Option<Outcome>, Error> {
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

    /// Stops all kernels, for good, and counts them.
    pub(in crate::emu) fn stop(&mut self, stats: &mut Stats) {
        self.stopped = true;
        self.copies.stop();
        if let Some(r) = self.running.take() {
            stats.stopped_faulting += u64::from(r.warps.iter().any(|w| w.waiting != 0));
            self.finish(
                r.kernel.fence,
                Outcome {
                    state: State::Stopped,
                    ..r.outcome
                },
            );
            stats.kernels += 1;
        }
        let queue = take(&mut self.queue);
        for k in queue.iter() {
            self.finish(
                k.kernel.fence,
                Outcome {
                    state: State::Stopped,
                    ..Outcome::default()
                },
            );
            stats.kernels += 1;
        }
    }

    pub(in crate::emu) fn finish(&mut self, fence: u64, outcome: Outcome) {
        self.results[(fence % KEPT_RESULTS) as usize] = (fence, outcome);
        self.finished = fence;
    }

    /// Whether there is a kernel to run.
    pub(in crate::emu) fn is_busy(&self) -> bool {
        self.bound.is_some() && (self.running.is_some() || !self.queue.is_empty())
    }

    /// Puts the waiting warps back into the queue, after a replay.
    pub(in crate::emu) fn replay(&mut self) {
        let Some(r) = &mut self.running else {
            return;
        };
        if r.left > r.ready.len() || r.warps.iter().any(|w| w.waiting != 0) {
            r.outcome.replays += 1;
        }
        r.ready.clear();
        for (i, w) in r.warps.iter_mut().enumerate() {
            w.waiting = 0;
            if w.todo != 0 {
                r.ready.push(i as u32);
            }
        }
    }

    /// The first waiting access that `test(access, va)` accepts.
    fn find_waiting(&self, test: impl Fn(Access, u64) -> bool) -> Option<(u64, FaultType, Kind)> {
        let r = self.running.as_ref()?;
        for w in r.warps.iter() {
            let plan = &r.kernel.plans[usize::from(w.plan)];
            let Some((first, _)) = plan.instruction(w.number, w.step) else {
                continue;
            };
            let mut lanes = w.todo & w.faulted;
            while lanes != 0 {
                let lane = lanes.trailing_zeros();
                lanes &= lanes - 1;
                let (_, va) = plan.access(first + u64::from(lane));
                if test(plan.kind.access(), va) {
                    return Some((va, w.kinds.get(lane), plan.kind));
                }
            }
        }
        None
    }

    /// Ends the running kernel with a fatal fault if `test` accepts one of its
    /// waiting accesses. True if so.
    pub(in crate::emu) fn cancel(&mut self, now: u64, test: impl Fn(Access, u64) -> bool) -> bool {
        let Some((va, fault, kind)) = self.find_waiting(test) else {
            return false;
        };
        let Some(r) = self.running.take() else {
            return false;
        };
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
