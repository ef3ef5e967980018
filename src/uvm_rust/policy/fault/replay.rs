// SPDX-License-Identifier: GPL-2.0 OR MIT

//! When the GPU tries again, how long one call of the service loop goes on, and
//! whether the GPU reports prefetch faults (`uvm_gpu_service_replayable_faults`,
//! `enable_disable_prefetch_faults`).

use super::Summary;

/// When faulting accesses are replayed (`uvm_perf_fault_replay_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplayPolicy {
    /// After each va_block.
    Block = 0,
    /// After each batch.
    Batch = 1,
    /// After each batch, with the buffer flushed, so that the duplicates in it are
    /// not serviced again.
    #[default]
    BatchFlush = 2,
    /// Once, when the buffer is empty.
    Once = 3,
}

impl ReplayPolicy {
    /// The policy with upstream's number.
    pub fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::Block,
            1 => Self::Batch,
            2 => Self::BatchFlush,
            3 => Self::Once,
            _ => return None,
        })
    }
}

/// What to send to the GPU now. Each but `None` counts with [`Service::replayed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Nothing.
    None,
    /// A replay.
    Start,
    /// Flush up to PUT as it was last read, replay, wait until the GPU did. Before
    /// that, the last replay must have been waited for, or a fault might be lost.
    Flush,
    /// The same up to PUT as it is now: there were many duplicates, so what is in the
    /// buffer now will be more of them.
    FlushAll,
}

/// Parameters of the loop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// When to replay.
    pub policy: ReplayPolicy,
    /// Duplicates among 100 faults of a batch, above which the flush reads PUT again
    /// (`uvm_perf_fault_replay_update_put_ratio`).
    pub update_put_ratio: u32,
    /// Batches in one call (`uvm_perf_fault_max_batches_per_service`).
    pub max_batches: u32,
    /// Batches with throttled pages in one call
    /// (`uvm_perf_fault_max_throttle_per_service`).
    pub max_throttled: u32,
}

impl Default for Limits {
    /// Upstream's.
    fn default() -> Self {
        Self {
            policy: ReplayPolicy::BatchFlush,
            update_put_ratio: 50,
            max_batches: 20,
            max_throttled: 5,
        }
    }
}

/// One call of the service loop: fetches and services batches while [`Service::goes_on`],
/// then does what [`Service::finish`] says.
#[derive(Clone, Debug)]
pub struct Service {
    limits: Limits,
    batches: u32,
    throttled: u32,
    replays: u64,
}

impl Service {
    /// A call that has done nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            batches: 0,
            throttled: 0,
            replays: 0,
        }
    }

    /// Whether to fetch another batch. An empty one ends the call too, and so does an
    /// error.
    pub fn goes_on(&self) -> bool {
        self.batches < self.limits.max_batches && self.throttled < self.limits.max_throttled
    }

    /// What to do after a va_block of a batch.
    pub fn block_done(&self) -> Replay {
        match self.limits.policy {
            ReplayPolicy::Block => Replay::Start,
            _ => Replay::None,
        }
    }

    /// What to do after a batch that was serviced without a fatal fault.
    pub fn batch_done(&mut self, batch: &Summary) -> Replay {
        self.batches += 1;
        self.throttled += u32::from(batch.throttled);
        match self.limits.policy {
            ReplayPolicy::Block | ReplayPolicy::Once => Replay::None,
            ReplayPolicy::Batch => Replay::Start,
            ReplayPolicy::BatchFlush => {
                let duplicates = u64::from(batch.duplicates) * 100;
                let limit = u64::from(batch.faults) * u64::from(self.limits.update_put_ratio);
                if duplicates > limit {
                    Replay::FlushAll
                } else {
                    Replay::Flush
                }
            }
        }
    }

    /// A batch had fatal faults, which were cancelled precisely. Cancelling replays;
    /// count that with [`Service::replayed`].
    pub fn batch_cancelled(&mut self) {
        self.batches += 1;
    }

    /// Counts replays that were sent: also by flushes and cancels.
    pub fn replayed(&mut self, n: u32) {
        self.replays += u64::from(n);
    }

    /// Replays so far.
    pub fn replays(&self) -> u64 {
        self.replays
    }

    /// What to do at the end of the call: one replay at least in each, as there may be
    /// faults that never reached the buffer. `ok` is whether no error ended it.
    pub fn finish(&self, ok: bool) -> Replay {
        if self.replays == 0 || (ok && self.limits.policy == ReplayPolicy::Once) {
            Replay::Start
        } else {
            Replay::None
        }
    }
}

/// What to tell the GPU about prefetch faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Leave it.
    Leave,
    /// Report them again.
    Enable,
    /// Do not report them for a while.
    Disable,
}

/// Whether a GPU reports faults of prefetch instructions. A program that prefetches
/// addresses it has not mapped floods the buffer with faults that need no service.
#[derive(Clone, Debug)]
pub struct PrefetchFaults {
    /// Time in ns at which they were turned off; `None` while they are on.
    disabled_at: Option<u64>,
    /// How long they stay off, in ns; 0 is never off
    /// (`uvm_perf_reenable_prefetch_faults_lapse_msec`).
    lapse: u64,
    max_batch: u32,
}

impl PrefetchFaults {
    /// They are on, and stay off for `lapse_ns`. `max_batch` is how many faults a
    /// batch has at most.
    pub fn new(lapse_ns: u64, max_batch: u32) -> Self {
        Self {
            disabled_at: None,
            lapse: lapse_ns,
            max_batch,
        }
    }

    /// Whether they are reported.
    pub fn enabled(&self) -> bool {
        self.disabled_at.is_none()
    }

    /// Decides after a batch with `invalid` invalid prefetches, at the time `now_ns`
    /// of a clock that does not go back: off if they are more than two thirds of a
    /// full batch, on again after the lapse.
    pub fn decide(&mut self, invalid: u32, now_ns: u64) -> Switch {
        match self.disabled_at {
            None if self.lapse != 0 && u64::from(invalid) * 3 > u64::from(self.max_batch) * 2 => {
                self.disabled_at = Some(now_ns);
                Switch::Disable
            }
            Some(at) if now_ns.saturating_sub(at) > self.lapse => {
                self.disabled_at = None;
                Switch::Enable
            }
            _ => Switch::Leave,
        }
    }
}

#[cfg(test)]
mod tests;
