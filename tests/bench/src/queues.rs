// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Instructions of an operation on the eviction queues of a GPU of 8 GiB: ours against doubly linked lists in C,
//! as upstream has them. Nothing but the operation is counted; which driver is loaded does not matter.
//!
//! `queue/mark-used` and `queue/take-and-queue` are the bare structures: ours does what theirs does. The driver does what
//! the first of these does as a part of what follows, and never the second: it has a policy choose among used chunks. The rows
//! `driver/...` are all that the driver has its queues do in the place of what upstream does to its lists:
//!
//! - `queue/driver/use`: a va_block uses its chunk again. Upstream moves the chunk to the end of a list. Ours also says
//!   whose the chunk is and which kernel asked for it, keeps the process's own list, and leaves upstream's list alone.
//! - `queue/driver/evict-and-reuse`: the next chunk is chosen and evicted, and another va_block gets it. Ours makes the calls
//!   that the driver makes for a fault on a full GPU, one after the other, and does to upstream's lists what upstream does.
//!
//! There is one process that uses chunks, and it announces no kernels. The policy is the default one, and no share is
//! protected. Both drivers take the same lock around each, which does not count; nor do the calls from C to Rust, and the
//! statistics.

use crate::lists::{self, Lists};
use crate::measure::{nanoseconds, say, Driver, ROUNDS};
use anyhow::{Context, Result};
use nix::time::ClockId;
use std::hint::black_box;
use uvm_policy::evict::{self, Change, Chunk, Holder, Queue, Queues, RootChunks};

const CHUNKS: u32 = 4096;
const TIMES: u32 = 100_000;
const HOLDER: Holder = 0xffff_8880_1234_5000;

/// Neighbours in the order are not neighbours in memory.
fn chunk(i: u32) -> Chunk {
    i.wrapping_mul(2_654_435_761) % CHUNKS
}

/// Of chunks, nothing that the queues do not know.
struct Evictable;

impl evict::Lists for Evictable {
    fn evictable(&mut self, chunk: Chunk) -> bool {
        black_box(chunk) < CHUNKS
    }
}

/// What the operations work on.
struct All {
    lists: Lists,
    bare: Queues,
    roots: RootChunks,
}

impl All {
    /// All chunks are used.
    fn new() -> Result<Self> {
        let memory = "memory for the queues";
        let mut all = Self {
            lists: Lists::new(CHUNKS),
            bare: Queues::new(CHUNKS).ok().context(memory)?,
            roots: RootChunks::new(CHUNKS).ok().context(memory)?,
        };
        for chunk in 0..CHUNKS {
            all.lists.move_tail(chunk, lists::USED);
            all.bare
                .enqueue(chunk, Queue::Used)
                .ok()
                .context("a chunk")?;
            all.roots.used_by(chunk, HOLDER).ok().context("a chunk")?;
            (all.roots.change(chunk, Change::Whole(HOLDER)).ok()).context("a chunk")?;
        }
        Ok(all)
    }
}

/// An operation that is done [`TIMES`] times. Functions of their own, which callgrind tells apart.
type Times = fn(&mut All) -> Result<()>;

#[inline(never)]
fn mark_used_in_c(all: &mut All) -> Result<()> {
    (0..TIMES).for_each(|i| all.lists.move_tail(chunk(i), lists::USED));
    Ok(())
}

#[inline(never)]
fn mark_used(all: &mut All) -> Result<()> {
    (0..TIMES).for_each(|i| _ = all.bare.enqueue(chunk(i), Queue::Used));
    Ok(())
}

#[inline(never)]
fn take_and_queue_in_c(all: &mut All) -> Result<()> {
    for _ in 0..TIMES {
        let first = all.lists.take_first();
        all.lists.move_tail(first, lists::UNUSED);
    }
    Ok(())
}

#[inline(never)]
fn take_and_queue(all: &mut All) -> Result<()> {
    for _ in 0..TIMES {
        let taken = all.bare.take(1, |_| None).context("an empty queue")?;
        _ = all.bare.enqueue(taken.chunk, Queue::Unused);
    }
    Ok(())
}

#[inline(never)]
fn driver_use(all: &mut All) -> Result<()> {
    (0..TIMES).for_each(|i| _ = all.roots.used_by(chunk(i), black_box(HOLDER)));
    Ok(())
}

#[inline(never)]
fn driver_evict_in_c(all: &mut All) -> Result<()> {
    for _ in 0..TIMES {
        let first = all.lists.take_first();
        all.lists.move_tail(first, lists::USED);
    }
    Ok(())
}

#[inline(never)]
fn driver_evict(all: &mut All) -> Result<()> {
    for _ in 0..TIMES {
        let chosen = all.roots.choose(&mut Evictable).context("no chunk")?;
        black_box(all.roots.is_early(chosen));
        black_box(all.roots.begin_eviction(chosen));
        all.lists.take(chosen);
        // The va_block says that it has lost the chunk, and the memory manager that the eviction is over.
        _ = all.roots.evicted(chosen);
        _ = black_box(all.roots.eviction_over(chosen, true));
        // The next va_block marks the chunk twice, before it unpins the chunk, which puts it on the lists.
        _ = all.roots.used_by(chosen, black_box(HOLDER));
        _ = all.roots.used_by(chosen, black_box(HOLDER));
        all.lists.move_tail(chosen, lists::USED);
        let whole = black_box(Change::Whole(HOLDER));
        _ = all.roots.change(chosen, whole);
    }
    Ok(())
}

/// Rows, what upstream does for each, and what ours does.
const ROWS: [(&str, Times, Times); 4] = [
    ("queue/driver/use", mark_used_in_c, driver_use),
    (
        "queue/driver/evict-and-reuse",
        driver_evict_in_c,
        driver_evict,
    ),
    ("queue/mark-used", mark_used_in_c, mark_used),
    ("queue/take-and-queue", take_and_queue_in_c, take_and_queue),
];

/// Measures each row, as `driver` does it.
pub fn run(driver: Driver) -> Result<()> {
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
    let mut all = All::new()?;
    for round in 0..ROUNDS {
        for (row, upstream, ours) in ROWS {
            let work = if driver == Driver::Upstream {
                upstream
            } else {
                ours
            };
            let start = nanoseconds(clock)?;
            work(&mut all)?;
            let spent = nanoseconds(clock)? - start;
            if round > 0 {
                say(
                    driver,
                    row,
                    "instructions/op",
                    spent as f64 / f64::from(TIMES),
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row works on what the others leave, and no chunk is lost.
    #[test]
    fn the_rows_follow_one_another() {
        let mut all = All::new().unwrap();
        for (row, upstream, ours) in ROWS {
            upstream(&mut all).unwrap();
            ours(&mut all).unwrap();
            assert_eq!(all.roots.length(Queue::Used), CHUNKS, "{row}");
            assert_eq!(
                all.bare.counts().lengths.iter().sum::<u32>(),
                CHUNKS,
                "{row}"
            );
        }
    }
}
