// SPDX-License-Identifier: GPL-2.0 OR MIT
//! UVM_MIGRATE where the unmodified driver goes wrong.

use uvm_suite::{ensure, skip, Allowed, Outcome, Pass, Suite, EVICTING_ORDINARY};
use vgpu_client::{driver_version, Buffer, Kernel, Op, Process, BLOCK, PAGE};

use crate::{start, NONE, WORDS};

/// What the unmodified driver's checks say of a page with two copies that may
/// be written.
const TWO_COPIES: &[Allowed] = &[Allowed {
    text: "Too many resident copies for pages with write_mappings",
    times: 10,
}];

pub(crate) fn run(suite: &mut Suite) {
    let ours = Process::new().is_ok_and(|p| matches!(driver_version(&p), Ok(Some(_))));
    suite.test(
        "migrate: an unmapped page with two copies is not made writable",
        if ours { NONE } else { TWO_COPIES },
        two_copies,
    );
    suite.test(
        "migrate: ordinary memory that mremap() moved is evicted",
        NONE,
        moved_by_mremap,
    );
    suite.test(
        "migrate: ordinary memory that mremap() moved from where managed memory is now",
        NONE,
        moved_from_managed,
    );
    suite.test(
        "migrate: ordinary memory that the CPU reads while it is evicted",
        EVICTING_ORDINARY,
        read_while_evicted,
    );
    suite.test(
        "migrate: ordinary memory with a page that somebody holds",
        NONE,
        somebody_holds_a_page,
    );
}

/// Pages that the GPU has, at an address that it never saw: their chunks still belong to the
/// va_block of the old one. Upstream looks for them there without end.
fn moved_by_mremap() -> Outcome {
    let (process, gpu) = start()?;
    if driver_version(&process)?.is_none() {
        skip!("the unmodified driver never comes back, see docs/fixes.md");
    }
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let words = (BLOCK / 8) as usize;
    let (old, new) = (
        Buffer::<u64>::ordinary(words)?,
        Buffer::<u64>::ordinary(words)?,
    );
    old.fill(|i| i as u64);
    let write = Op::write(&old).pattern(7, 1).warps(8);
    gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
    new.take_pages_of(&old)?;
    // All that the GPU has, until there is nothing to evict.
    while gpu.evict_any()? {}
    if let Some((i, seen)) = new.first_other(|i| 7 + i as u64) {
        return Err(format!("word {i} is {seen:#x} after it was moved and evicted").into());
    }
    ensure!(old.get(5) == 0, "the old place still holds something");
    let check = Op::check(&new).pattern(7, 1);
    gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    Ok(Pass::Ok)
}

/// The va_block that they were of is gone, and its memory another's: chunks that still named it
/// would lead there.
fn moved_from_managed() -> Outcome {
    let (process, gpu) = start()?;
    if driver_version(&process)?.is_none() {
        skip!("the unmodified driver takes a va_block that was freed, see docs/fixes.md");
    }
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    for round in 1..=4u64 {
        let old = Buffer::<u64>::ordinary(WORDS)?;
        let new = Buffer::<u64>::ordinary(WORDS)?;
        let write = Op::write(&old).pattern(round << 32, 1).warps(8);
        gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        new.take_pages_of(&old)?;
        let address = old.address();
        drop(old);
        let managed = Buffer::<u64>::managed_at(&process, address, WORDS)?;
        managed.fill(|i| i as u64);
        while gpu.evict_any()? {}
        let wrong = new.first_other(|i| (round << 32) + i as u64);
        ensure!(wrong.is_none(), "{wrong:x?} is not what was moved");
        let wrong = managed.first_other(|i| i as u64);
        ensure!(wrong.is_none(), "{wrong:x?} is not what was written there");
    }
    Ok(Pass::Ok)
}

/// A page that the CPU faults on has one more reference, so that Linux does not let it go,
/// and the driver must not take its memory either.
fn read_while_evicted() -> Outcome {
    const READERS: usize = 6;
    const ROUNDS: u64 = 40;
    let (process, gpu) = start()?;
    if driver_version(&process)?.is_none() {
        skip!("the unmodified driver takes the memory, see docs/fixes.md");
    }
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let words = 2 * (BLOCK / 8) as usize;
    let buffer = Buffer::<u64>::ordinary(words)?;
    buffer.huge_pages(false)?;
    let page = (PAGE / 8) as usize;
    for round in 1..=ROUNDS {
        let write = Op::write(&buffer).pattern(round << 32, 1).warps(8);
        gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        std::thread::scope(|s| {
            for reader in 0..READERS {
                let buffer = &buffer;
                s.spawn(move || {
                    for p in (reader..words / page).step_by(READERS) {
                        buffer.get(p * page);
                    }
                });
            }
            // All of the GPU's memory: what is there already has to go.
            let all = Buffer::<u64>::managed(&process, (gpu.info().vidmem_bytes / 8) as usize)?;
            process.migrate(all.address(), all.bytes(), gpu.uuid())
        })?;
        if let Some((i, seen)) = buffer.first_other(|i| (round << 32) + i as u64) {
            return Err(format!("round {round}: word {i} is {seen:#x}").into());
        }
    }
    Ok(Pass::Ok)
}

/// A page that Linux does not let go stays, and the others move. The driver's context for it is
/// memory that others have used: here, memory that was full of a pattern.
fn somebody_holds_a_page() -> Outcome {
    let (process, gpu) = start()?;
    if driver_version(&process)?.is_none() {
        skip!("the unmodified driver reads what nobody has set, see docs/fixes.md");
    }
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let page = (PAGE / 8) as usize;
    for round in 0..20u64 {
        let first = round << 32 | 1;
        let buffer = Buffer::<u64>::ordinary(16 * page)?;
        buffer.huge_pages(false)?;
        buffer.fill(|i| first + i as u64);
        let held = buffer.hold_page(5 * page)?;
        // Free memory is what the driver gets next.
        let used = Buffer::<u64>::ordinary(8 * (BLOCK / 8) as usize)?;
        used.fill(|_| 0x0a5e_0a5e_0a5e_0a5e);
        drop(used);
        process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
        let wrong = buffer.first_other(|i| first + i as u64);
        ensure!(wrong.is_none(), "{wrong:x?} is not what was written");
        drop(held);
        let check = Op::check(&buffer).pattern(first, 1);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    }
    Ok(Pass::Ok)
}

/// On the host and not mapped, as eviction leaves it, then read-duplicated by a
/// migration: the GPU's writes must be seen by the CPU.
fn two_copies() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, (PAGE / 8) as usize)?;
    let launch = |op: Op| gpu.launch(&Kernel::new().op(op))?.wait()?.ok();
    launch(Op::write(&buffer).pattern(1, 1))?;
    ensure!(gpu.evict(buffer.address())?, "nothing was evicted");
    process.read_duplication(buffer.address(), buffer.bytes(), true)?;
    process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
    let there = process.residency(buffer.address())?;
    ensure!(there.resident.len() == 2, "not two copies: {there:?}");
    launch(Op::write(&buffer).pattern(2, 1))?;
    let Some((i, seen)) = buffer.first_other(|i| 2 + i as u64) else {
        return Ok(Pass::Ok);
    };
    let what = format!("the CPU sees an old {seen:#x} in word {i}");
    if driver_version(&process)?.is_none() {
        skip!("a bug of upstream's, see docs/fixes.md: {what}");
    }
    Err(what.into())
}
