// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The planner: which tensor leaves GPU memory when, for where, and when it comes
//! back, so that a training step takes little longer than its kernels.
//!
//! What is known: the kernels of a step in order with their durations, the tensors
//! that each uses, the sizes of the memories and the rates between them. The step
//! repeats. What is decided: [`Request`]s, each made as a kernel starts.
//!
//! [`plan`] walks through some steps in virtual time (`walk.rs`). At each kernel it
//! keeps the way out busy for as long as a later kernel would not fit. Of all idle
//! tensors, the one whose next use is farthest leaves next, if the way in has the
//! time to bring it back (Belady's rule, under the rates of the links).
//!
//! Where the host is too small for what must leave, the SSD writes from the start
//! what it can read back in time, and the host takes what the SSD is too slow for.
//! Where contents that have a copy outside need no second write, a tensor that is
//! written once and idle twice is copied out early, and later dropped without a copy.
//!
//! A kernel that does not fit waits for writes under way, and all later times move
//! with it. Reads are booked from each next use backwards. Once all is decided, they
//! move ahead as far as memory has room for them.
//!
//! The time that a plan comes to by the walk's own reckoning is [`Plan::step_ns`].
//! It knows no page, no fault and no latency: a caller that can measure plans should
//! make some of different [`Tuning`] and measure the best.
//!
//! Times are nanoseconds, sizes pages of 4 KiB, rates picoseconds a page; all
//! arithmetic is on integers, so that every machine makes the same plan. Cost: near-linear in
//! kernels and uses, independent of sizes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod gaps;
mod levels;
mod reads;
mod walk;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use uvmsim_plan::{Tier, What};

/// A tensor, or whatever is used and moved as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Pages of GPU memory that its absence frees; 0: it stays.
    pub pages: u64,
    /// Whether it outlives the step, so that it may be away from its last use to its
    /// first in the next step.
    pub lasting: bool,
}

/// A kernel's use of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Number of the kernel in the step.
    pub kernel: u32,
    /// Number of the tensor in [`Step::tensors`].
    pub tensor: u32,
    /// Whether it writes it: copies outside GPU memory are then stale.
    pub write: bool,
}

/// A step to plan, which repeats without end.
#[derive(Clone, Debug)]
pub struct Step {
    /// Duration of each kernel with everything in GPU memory.
    pub kernel_ns: Vec<u64>,
    /// Pages of GPU memory that each kernel needs where nothing is away.
    pub live: Vec<u64>,
    /// The tensors, by their numbers.
    pub tensors: Vec<Tensor>,
    /// The uses, by kernel; a kernel uses a tensor at most once.
    pub uses: Vec<Use>,
}

/// The memories and the ways between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Pages of GPU memory that may be filled.
    pub gpu: u64,
    /// Pages of host memory that may be filled.
    pub host: u64,
    /// What the link takes to carry a page out of the GPU, in picoseconds.
    pub link_out: u64,
    /// What the link takes to carry a page into the GPU, in picoseconds.
    pub link_in: u64,
    /// What the SSD takes to write a page, picoseconds; 0: there is no SSD.
    pub ssd_out: u64,
    /// What the SSD takes to read a page, in picoseconds.
    pub ssd_in: u64,
    /// Whether a copy outside stays valid until the GPU writes the page.
    pub keep_clean: bool,
}

/// What may be tuned; shares in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Share of the SSD's reading rate to plan with: less spreads what it is given
    /// more evenly.
    pub ssd_share: u64,
    /// Where the host is too small, the share of what leaves that goes to the SSD:
    /// times the share that has no room in the host.
    pub ratio: u64,
    /// How early a read from the SSD may begin: times what it takes.
    pub lead: u64,
    /// When reads are planned: booked from each next use backwards, in ideal time; or as
    /// the walk goes, which knows what stalls.
    pub reads: Reading,
    /// Share of GPU memory that evictions leave free for reads.
    pub reserve: u64,
    /// How much earlier than necessary the host is written to where the SSD is the
    /// narrow way: times what the writes take.
    pub urgency: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            ssd_share: 970,
            ratio: 950,
            lead: 10_000,
            reads: Reading::Booked,
            reserve: 0,
            urgency: 2000,
        }
    }
}

/// How the reads of a plan are planned, see [`Tuning::reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// From the next uses backwards: best where copies hide behind kernels.
    Booked,
    /// As the walk goes: best where kernels wait for copies.
    Walked,
}

/// A request, made as a kernel starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kernel before which it is asked.
    pub kernel: u32,
    /// Number of the tensor in [`Step::tensors`].
    pub tensor: u32,
    /// What is done with the tensor: it is brought in, copied out, or copied out and dropped, unless a
    /// valid copy is there.
    pub what: What,
}

/// What a step asks for, and what it comes to.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What to ask for, by kernel; those of one kernel in the order to ask in.
    pub requests: Vec<Request>,
    /// What a step comes to by the walk's reckoning.
    pub step_ns: u64,
    /// What each kernel waits, of that.
    pub waits: Vec<u64>,
    /// Pages that are written to the SSD in a step.
    pub ssd_pages: u64,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The step contradicts itself: a use of a kernel or tensor that is not there, uses
    /// out of order, other than one `live` a kernel.
    Step,
    /// A number is too large to reckon with.
    Range,
}

/// The longest step, 2^50 ns: 13 days.
const LONGEST: u64 = 1 << 50;
/// The largest memory, 2^36 pages: 256 TiB.
const LARGEST: u64 = 1 << 36;
/// The slowest way, 2^34 ps a page: 240 KB/s.
const SLOWEST: u64 = 1 << 34;

/// What moving `pages` takes at `ps` a page, in nanoseconds.
fn duration(pages: u64, ps: u64) -> u64 {
    pages.saturating_mul(ps) / 1000
}

/// A plan for `step` on `machine`.
///
/// # Errors
/// See [`Error`].
pub fn plan(step: &Step, machine: &Machine, tuning: Tuning) -> Result<Plan, Error> {
    check(step, machine)?;
    if step.kernel_ns.is_empty() {
        return Ok(Plan::default());
    }
    Ok(walk::walk(step, machine, tuning))
}

fn check(step: &Step, m: &Machine) -> Result<(), Error> {
    let kernels = step.kernel_ns.len();
    let known = |u: &Use| (u.kernel as usize) < kernels && (u.tensor as usize) < step.tensors.len();
    let sorted = step.uses.windows(2).all(|w| w[0].kernel <= w[1].kernel);
    if step.live.len() != kernels || !sorted || !step.uses.iter().all(known) {
        return Err(Error::Step);
    }
    let sum =
        |numbers: &mut dyn Iterator<Item = u64>| numbers.fold(0u64, |all, n| all.saturating_add(n));
    let ways = [m.link_out, m.link_in, m.ssd_out, m.ssd_in];
    let pages = |u: &Use| step.tensors[u.tensor as usize].pages;
    let moved = sum(&mut step.uses.iter().map(pages));
    let slowest = ways.iter().copied().max().unwrap_or(0);
    let fits = kernels < 1 << 26
        && moved.saturating_mul(slowest) / 1000 < LONGEST
        && step.uses.len() < 1 << 31
        && step.tensors.len() < 1 << 31
        && sum(&mut step.kernel_ns.iter().copied()) < LONGEST
        && sum(&mut step.tensors.iter().map(|t| t.pages)) < LARGEST
        && step.live.iter().all(|&l| l < LARGEST)
        && m.gpu < LARGEST
        && m.host < LARGEST
        && slowest < SLOWEST;
    if fits {
        Ok(())
    } else {
        Err(Error::Range)
    }
}
