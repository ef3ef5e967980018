// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the programs of this suite share: TAP output, the kernel's log, and how they start
//! themselves.
//!
//! - `ladder`: NVIDIA's own tests, step by step, and what they do not reach.
//! - `hazards`: fatal faults, injected errors, NVIDIA's bugs that ours mends, bad input.
//! - `storms`: loading, registering and killing, again and again.
//! - `loops`: fault storms that end alike under either fault service loop.
//! - `contend`: one va_block that CPU threads and GPU kernels write to at the same time.
//! - `discard`: a test for each sentence of the UvmDiscard paper.
//! - `policy`: eviction policies, quotas, and programs that take turns.
//! - `flash`: the SSD tier, with failing devices.
//! - `library`: the crate `uvmrust` on the real driver.
//! - `random`: a random program, checked against a model.
//! - `mix`: several of these at a time, beside kills, limits and injected failures.
//! - `demo`: the program of `make demo`.
//!
//! Each but `demo` prints TAP and a last line `# N passed, N failed, N skipped`, and exits
//! with 1 if anything failed.

mod channels;
mod fork;
mod frozen;
pub mod fuzz;
mod group;
mod joined;
mod leaks;
mod log;
pub mod modules;
pub mod random;
pub mod rm;
mod tap;
mod this;
pub mod truth;
pub mod uvmtop;

pub use channels::until_it_dies;
pub use fork::Forked;
pub use frozen::Frozen;
pub use group::Group;
pub use joined::Joined;
pub use leaks::{chunks_before, no_leak, nothing_on_device};
pub use log::{Allowed, KernelLog, EVICTING_ORDINARY};
pub use tap::{say, Failure, Outcome, Pass, Suite};
pub use this::{file_in_memory, memory_of_host, stacks, this_program, who_waits, Killed};

use std::time::{SystemTime, UNIX_EPOCH};

/// A seed for who gives none. Print it.
pub fn clock_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ now.as_secs()
}

/// Fails the test unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::from(format!($($message)+)));
        }
    };
}

/// Ends the test as skipped, with a reason.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        return Ok($crate::Pass::Skip(format!($($reason)+)))
    };
}
