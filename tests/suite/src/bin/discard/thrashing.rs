// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Discards of a page that CPU and GPU take from each other.

use std::thread::sleep;
use std::time::Duration;

use uvm_suite::{ensure, skip, Failure, Outcome, Pass};
use vgpu_client::uvm::{self, Uuid};
use vgpu_client::{Buffer, Discard, Op};

use crate::rig::{exactly, Rig, PAGE_WORDS};

const OLD: u64 = 0x0100_0000_0000;
const NEW: u64 = 0x0300_0000_0000;
const LAPSE: &str = "uvm_perf_thrashing_lapse_usec";

/// Moves of a page that are no farther apart than this are thrashing to UVM, which throttles a processor for as long.
fn lapse() -> Duration {
    let lapse = uvm_suite::modules::parameter("nvidia_uvm", LAPSE).unwrap_or_default();
    Duration::from_micros(lapse.parse().unwrap_or(u64::from(u32::MAX)))
}

/// Why UVM does not see here that a page thrashes.
fn too_slow() -> Option<String> {
    let usec = lapse().as_micros();
    (usec < 100_000).then(|| {
        format!("an emulated machine is too slow for {LAPSE}={usec}; load with {LAPSE}=1000000")
    })
}

/// Whether one of CPU and GPU has the first page, and the other maps it where it is.
fn is_pinned(rig: &Rig, buffer: &Buffer<u64>) -> Result<bool, Failure> {
    let there = rig.process.residency(buffer.address())?;
    let on_both = there.mapping(Uuid::CPU) > 0 && there.mapping(rig.gpu.uuid()) > 0;
    Ok(there.resident.len() == 1 && on_both)
}

/// CPU and GPU take the first page from each other until UVM pins it. Returns how often.
fn thrash(rig: &Rig, buffer: &Buffer<u64>) -> Result<u64, Failure> {
    // Loops until pinned: how many rounds count as thrashing depends on the machine's speed.
    let mut rounds = 0;
    while !is_pinned(rig, buffer)? {
        ensure!(
            rounds < 300,
            "not pinned after {rounds} rounds of CPU and GPU"
        );
        rounds += 1;
        buffer.set(3, rounds);
        // A store: for an atomic the GPU wants the page itself.
        rig.on_gpu(Op::write(buffer).range(8, 1).pattern(rounds, 0))?;
    }
    Ok(rounds)
}

/// What was pinned is as usable after its discard as other memory.
pub(crate) fn pinned(how: Discard) -> Outcome {
    if let Some(why) = too_slow() {
        skip!("{why}");
    }
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    let add = || rig.on_gpu(Op::atomic_add(&buffer).range(0, PAGE_WORDS).pattern(1, 0));
    let rounds = thrash(&rig, &buffer)?;
    let seen = (buffer.get(3), buffer.get(8));
    ensure!(seen == (rounds, rounds), "words 3 and 8 are {seen:?}");
    ensure!(is_pinned(&rig, &buffer)?, "a look unpinned it");
    rig.discard(&buffer, how)?;
    if how == Discard::Lazy {
        rig.prefetch(&buffer, rig.gpu.uuid())?;
    }
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    for _ in 0..8 {
        add()?;
        buffer.set(5, buffer.get(5) + 1);
    }
    let seen = (buffer.get(3), buffer.get(5));
    ensure!(
        seen == (NEW + 3 + 8, NEW + 5 + 16),
        "words 3 and 5 are {seen:x?}"
    );
    Ok(Pass::Ok)
}

/// A page that was pinned where it was discarded comes to the GPU without a copy, and is not pinned there. UVM would take
/// it to be where it was pinned; a driver with assertions says so.
pub(crate) fn dropped() -> Outcome {
    if let Some(why) = too_slow() {
        skip!("{why}");
    }
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    // The first fault after a nap is not throttled, if that processor was throttled the last time.
    for _ in 0..4 {
        thrash(&rig, &buffer)?;
        rig.discard(&buffer, Discard::Lazy)?;
        rig.prefetch(&buffer, rig.gpu.uuid())?;
        rig.gpu_write(&buffer, OLD)?;
        sleep(lapse() + Duration::from_millis(100));
        exactly(&buffer, OLD)?;
    }
    Ok(Pass::Ok)
}

/// A page thrashes, and is resident nowhere as the next fault is served: it was evicted, or it was dropped and there was no
/// memory for it at once (injected).
pub(crate) fn nowhere() -> Outcome {
    if let Some(why) = too_slow() {
        skip!("{why}");
    }
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    let mut seen = [0; 2];
    for go in 0..12u64 {
        let is_evicted = go % 2 == 0;
        let add = || rig.on_gpu(Op::atomic_add(&buffer).range(0, 1).pattern(1, 0));
        for round in 0..6 {
            buffer.set(3, round);
            add()?;
        }
        let place = if is_evicted {
            rig.gpu.uuid()
        } else {
            buffer.set(3, go);
            rig.gpu.evict(buffer.address())?;
            Uuid::CPU
        };
        // Where it is pinned by now, it does not come.
        let there = rig.process.residency(buffer.address())?.resident;
        seen[usize::from(is_evicted)] += u32::from(there == [place]);
        rig.discard(&buffer, Discard::Lazy)?;
        if is_evicted {
            rig.gpu.evict(buffer.address())?;
            buffer.set(3, go);
        } else {
            rig.process.call(&mut uvm::VaBlockInjectError {
                lookup_address: buffer.address(),
                user_pages_retries: 1,
                ..Default::default()
            })?;
            add()?;
        }
    }
    ensure!(seen.iter().all(|n| *n > 0), "(dropped, evicted): {seen:?}");
    Ok(Pass::Ok)
}
