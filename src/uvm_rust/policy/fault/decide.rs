// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The decisions of the fault loop between batches, as functions without state.

use super::Params;

/// When replays are sent; upstream's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ReplayPolicy {
    /// A replay is sent after each va_block.
    Block = 0,
    /// A replay is sent after each batch.
    Batch = 1,
    /// After each batch the ring is flushed, then a replay is sent.
    BatchFlush = 2,
    /// One replay is sent, at the end of a call.
    Once = 3,
}

impl ReplayPolicy {
    /// The policy with this number; upstream's default for any other.
    pub fn from_number(n: u32) -> Self {
        match n {
            0 => Self::Block,
            1 => Self::Batch,
            3 => Self::Once,
            _ => Self::BatchFlush,
        }
    }
}

/// How much of the ring a flush discards. The names are upstream's.
#[allow(clippy::enum_variant_names)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Flush {
    /// Up to PUT as it was last read.
    CachedPut = 0,
    /// Up to PUT as the GPU has it now.
    UpdatePut = 1,
    /// Up to PUT as the GPU has it once all replays so far have ended.
    WaitUpdatePut = 2,
}

/// What follows a batch without fatal faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterBatch {
    /// Nothing follows: replays were sent already, or are sent at the end of the call.
    GoOn,
    /// The loop sends a replay, and does not wait for its end.
    Replay,
    /// The loop flushes the ring, which ends in a replay, and waits for that replay.
    Flush(Flush),
}

/// Whether another batch is begun in this call, after `batches`, of which
/// `throttled` held throttled pages.
pub fn goes_on(params: &Params, batches: u32, throttled: u32) -> bool {
    batches < params.max_batches && throttled < params.max_throttled
}

/// For how many microseconds an entry is waited for that PUT says is there, and that the GPU has not written. A GPU writes it
/// within microseconds, or never: then it is broken. Upstream waits for ever, with the service lock.
pub const UNWRITTEN_US: u64 = 30_000_000;
/// So many of these microseconds the CPU is kept: most entries come sooner than a thread that sleeps wakes up.
pub const SPIN_US: u64 = 20;

/// How such an entry is waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryWait {
    /// It is looked at again at once.
    Spin,
    /// It is looked at again after a sleep. RM may need the CPU before the GPU goes on.
    Sleep,
    /// The call ends by an error, which is logged, and sends the replay that it owes for the entries before. The next call
    /// waits as long again; between the two others have the service lock.
    GiveUp,
}

/// What follows after an entry has been waited for so many microseconds.
pub fn waits_for_entry(waited_us: u64) -> EntryWait {
    if waited_us < SPIN_US {
        EntryWait::Spin
    } else if waited_us < UNWRITTEN_US {
        EntryWait::Sleep
    } else {
        EntryWait::GiveUp
    }
}

/// What follows a batch of `entries` entries, `duplicates` of which needed no work.
///
/// A flush may discard entries that came after the batch was read. This saves work if most of them are duplicates;
/// the replay brings back those that are not.
pub fn flush_after_batch(params: &Params, entries: usize, duplicates: u32) -> AfterBatch {
    match params.policy {
        ReplayPolicy::Block | ReplayPolicy::Once => AfterBatch::GoOn,
        ReplayPolicy::Batch => AfterBatch::Replay,
        ReplayPolicy::BatchFlush => {
            let many = entries as u64 * u64::from(params.update_put_percent);
            AfterBatch::Flush(if u64::from(duplicates) * 100 > many {
                Flush::UpdatePut
            } else {
                Flush::CachedPut
            })
        }
    }
}

/// Whether a GPU reports accesses of its prefetch instructions that found no page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefetchFaults {
    /// The GPU cannot turn these reports off.
    #[default]
    Fixed,
    /// The GPU reports such accesses.
    On,
    /// The loop turned the reports off so many nanoseconds ago.
    Off(u64),
}

/// A change of [`PrefetchFaults`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchSwitch {
    /// Prefetch faults are turned off.
    Off,
    /// Prefetch faults are turned on.
    On,
}

/// Share of a full batch, as a fraction, that invalid prefetches must exceed for
/// prefetch faults to be turned off; upstream's `enable_disable_prefetch_faults`,
/// whose tests rely on it.
const INVALID_PREFETCH_SHARE: (u64, u64) = (2, 3);

/// How many invalid prefetches suffice where NVIDIA's tests run on a simulated GPU.
const INVALID_PREFETCHES_IN_TEST: u32 = 5;

/// Whether to turn prefetch faults off or on after a batch that held `invalid`
/// prefetches of addresses that cannot be serviced.
///
/// They stay off for `lapse_ms` milliseconds, 0 meaning that they are never turned
/// off. `in_test`: NVIDIA's tests are on, and the GPU is simulated.
pub fn prefetch_faults(
    params: &Params,
    now: PrefetchFaults,
    invalid: u32,
    lapse_ms: u32,
    in_test: bool,
) -> Option<PrefetchSwitch> {
    let (part, of) = INVALID_PREFETCH_SHARE;
    match now {
        PrefetchFaults::Fixed => None,
        PrefetchFaults::On => {
            let many = u64::from(invalid) * of > u64::from(params.max_batch) * part
                || (in_test && invalid > INVALID_PREFETCHES_IN_TEST);
            (lapse_ms > 0 && many).then_some(PrefetchSwitch::Off)
        }
        PrefetchFaults::Off(since_ns) => {
            (since_ns > u64::from(lapse_ms) * 1_000_000).then_some(PrefetchSwitch::On)
        }
    }
}
