// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the paper says of reclaim, queues and pages fit to be handed out (§5.3 to
//! §5.7), sentence by sentence.

use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{AllocList, Buffer, Discard, DriverStats, Op, BLOCK, PAGE};

use crate::both;
use crate::paper::{written, LATER, NEW, OLD};
use crate::rig::{exactly, zeros_or, Done, Moved, Rig, PAGE_WORDS, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    both(
        suite,
        "5.3: reclaim moves nothing to the host",
        reclaim_is_free,
    );
    both(
        suite,
        "5.3: use after reclaim moves nothing to the GPU",
        use_is_free,
    );
    both(
        suite,
        "5.3: reclaim allocates nothing on the host",
        no_host_pages,
    );
    both(
        suite,
        "5.4: a 2 MiB mapping is not split, and comes back whole",
        granularity,
    );
    both(
        suite,
        "5.3: under memory pressure what is discarded goes, and nothing moves",
        pressure,
    );
    both(suite, "5.5: free, unused, discarded, used", order);
    both(
        suite,
        "5.5: discarded chunks leave in the order they came",
        fifo,
    );
    both(
        suite,
        "5.6: nothing is reclaimed before there is need",
        delayed,
    );
    both(
        suite,
        "5.6: reclaim unmaps what is still mapped",
        reclaim_unmaps,
    );
    both(
        suite,
        "5.7: reused, a chunk goes to the new end of the used queue",
        reuse,
    );
    both(
        suite,
        "5.7: no foreign data in a chunk that was prepared in part",
        |how| {
            half_prepared(how)?;
            Ok(Pass::Ok)
        },
    );
    both(
        suite,
        "5.7: no foreign data in pages of the host",
        host_unprepared,
    );
}

/// Chunks that were reclaimed and not free.
fn evicted(moved: &Moved) -> u64 {
    moved.evictions[1..].iter().sum()
}

/// Those of them that were discarded. Upstream's lists know no such queue: there it
/// is enough that nothing else went. NVIDIA's own discard has what is discarded eagerly for unused.
fn of_discarded(rig: &Rig, how: Discard, moved: &Moved) -> u64 {
    if upstreams_lists() {
        return evicted(moved);
    }
    let queue = if rig.list_of(how) == AllocList::Unused {
        1
    } else {
        2
    };
    moved.evictions[queue]
}

fn upstreams_lists() -> bool {
    uvm_suite::modules::parameter("nvidia_uvm", "uvm_rust_evict").as_deref() == Some("N")
}

fn reclaim_is_free(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    if !rig.counts_evictions() {
        skip!("this driver does not count evictions");
    }
    let buffer = written(&rig, 4)?;
    rig.discard(&buffer, how)?;
    let moved = rig.moved(|| (0..4).try_for_each(|block| rig.reclaim_until(&buffer, block)))?;
    ensure!(
        moved.to_host == 0,
        "{} bytes went to the host",
        moved.to_host
    );
    ensure!(
        of_discarded(&rig, how, &moved) == 4,
        "evictions by queue: {:?}",
        moved.evictions
    );
    if rig.is_native() {
        // It is resident on the host: "NVIDIA's: reclaim copies nothing, and fills pages of the host".
        return Ok(Pass::Ok);
    }
    for page in [0, 511, 512, 2047] {
        let at = rig.is_resident_and_mapped(&buffer, page)?;
        ensure!(
            at == (false, false),
            "page {page} is (resident, mapped): {at:?}"
        );
    }
    Ok(Pass::Ok)
}

/// No call asks for the eviction: all of the GPU's memory is in use when more is
/// wanted.
fn pressure(how: Discard) -> Outcome {
    if how == Discard::Lazy && upstreams_lists() {
        skip!("upstream's lists take what is discarded lazily when its turn comes, like the rest");
    }
    let rig = Rig::new()?;
    if !rig.counts_evictions() {
        skip!("this driver does not count evictions");
    }
    let discarded = written(&rig, 2)?;
    // Fills the GPU, until it must evict for more.
    let mut others = Vec::new();
    let most = rig.gpu.info().vidmem_bytes / BLOCK;
    loop {
        let other = rig.buffer(1)?;
        let moved = rig.moved(|| rig.prefetch(&other, rig.gpu.uuid()))?;
        others.push(other);
        if evicted(&moved) > 0 {
            break;
        }
        ensure!(others.len() as u64 <= most, "more than the GPU holds");
    }
    // Used last: without the discard it would be the last to go.
    rig.prefetch(&discarded, rig.gpu.uuid())?;
    rig.discard(&discarded, how)?;
    let wanted = rig.buffer(2)?;
    let moved = rig.moved(|| rig.prefetch(&wanted, rig.gpu.uuid()))?;
    ensure!(
        of_discarded(&rig, how, &moved) > 0 && of_discarded(&rig, how, &moved) == evicted(&moved),
        "evictions by queue: {:?}",
        moved.evictions
    );
    ensure!(
        moved.to_host + moved.to_gpu == 0,
        "bytes were moved: {moved:?}"
    );
    zeros_or(&discarded, &[OLD, LATER])?;
    Ok(Pass::Ok)
}

fn use_is_free(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    rig.reclaim(&buffer)?;
    let moved = rig.moved(|| rig.gpu_write(&buffer, NEW))?;
    ensure!(
        moved.to_gpu == 0,
        "{} bytes came from the host",
        moved.to_gpu
    );
    rig.reclaim(&buffer)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

/// Free memory of the host, in bytes.
fn host_free() -> Result<i64, uvm_suite::Failure> {
    Ok(uvm_suite::memory_of_host("MemFree")? as i64)
}

fn no_host_pages(how: Discard) -> Outcome {
    const BLOCKS: usize = 16;
    const GOES: usize = 4;
    // Evicting with a copy takes 32 MiB each time; the rest of the VM takes a little
    // meanwhile, and once in a while more. That nothing is copied holds every time.
    let limit = BLOCKS as i64 * BLOCK as i64 / 4;
    let rig = Rig::new()?;
    if rig.is_native() {
        skip!("NVIDIA's discard: reclaim allocates a page of the host for each that is discarded");
    }
    let device = || rig.gpu.stats().map(|s| s.d2h_bytes);
    let mut seen = Vec::new();
    for go in 0..GOES {
        let buffer = rig.buffer(BLOCKS)?;
        rig.gpu_write(&buffer, OLD)?;
        rig.discard(&buffer, how)?;
        let (before, copied) = (host_free()?, device()?);
        let moved = rig.moved(|| rig.reclaim(&buffer))?;
        seen.push(before - host_free()?);
        let copied = device()? - copied;
        ensure!(
            moved.to_host == 0 && copied == 0,
            "go {go}: UVM counts {} bytes to the host, the GPU {copied}",
            moved.to_host
        );
    }
    let over = seen.iter().filter(|&&used| used >= limit).count();
    ensure!(over <= 1, "bytes of the host that were used: {seen:?}");
    Ok(Pass::Ok)
}

fn granularity(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    if rig.is_native() {
        skip!("NVIDIA's discard: any page is discarded alone, and a mapping split for it");
    }
    let buffer = written(&rig, 2)?;
    let size = |page: usize| -> Result<u64, uvm_suite::Failure> {
        let at = rig
            .process
            .residency(buffer.address_of(page * PAGE_WORDS))?;
        Ok(at.mapped.first().map_or(0, |m| m.2))
    };
    ensure!(
        size(0)? == BLOCK,
        "the block is mapped by pages of {}",
        size(0)?
    );
    // Half of a block.
    rig.process.discard(buffer.address(), BLOCK / 2, how)?;
    ensure!(
        size(0)? == BLOCK,
        "a partial discard split the mapping: {}",
        size(0)?
    );
    ensure!(
        rig.is_discarded(&buffer, 0)? == (how == Discard::Lazy),
        "the rule for parts"
    );
    ensure!(
        !rig.is_discarded(&buffer, 256)?,
        "the other half is discarded"
    );
    // The whole block, with a bit of the next one.
    rig.process.discard(buffer.address(), BLOCK + PAGE, how)?;
    ensure!(
        rig.is_discarded(&buffer, 511)?,
        "the block is not discarded"
    );
    ensure!(!rig.is_discarded(&buffer, 512)?, "the bit is discarded");
    rig.on_gpu(
        Op::check(&buffer)
            .range(WORDS, WORDS)
            .pattern(LATER + WORDS as u64, 1),
    )?;
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    ensure!(
        size(0)? == BLOCK,
        "used again it is mapped by pages of {}",
        size(0)?
    );
    // A part lost to the discard takes nothing from the rest.
    rig.process.discard(buffer.address(), BLOCK / 2, how)?;
    rig.reclaim(&buffer)?;
    let second = (WORDS..2 * WORDS).find(|&i| buffer.get(i) != LATER + i as u64);
    ensure!(
        second.is_none(),
        "word {second:?} of the second block changed"
    );
    Ok(Pass::Ok)
}

fn order(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    if rig.list_of(how) == AllocList::Unused {
        skip!("NVIDIA's discard: what is discarded eagerly is on the list of unused chunks");
    }
    if !rig.counts_evictions() {
        skip!("this driver does not count free chunks");
    }
    let used = written(&rig, 1)?;
    let discarded = written(&rig, 1)?;
    let unused = written(&rig, 1)?;
    rig.discard(&discarded, how)?;
    rig.prefetch(&unused, Uuid::CPU)?;
    let lists = [&unused, &discarded, &used].map(|b| rig.list(b, 0));
    let lists = lists.into_iter().collect::<Result<Vec<_>, _>>()?;
    let want = [AllocList::Unused, AllocList::Discarded, AllocList::Used];
    ensure!(
        lists.iter().copied().eq(want.map(Some)),
        "on the lists {lists:?}"
    );
    // What is free goes before all of them.
    let free = || -> Result<u64, uvm_suite::Failure> {
        Ok(DriverStats::get(&rig.process, rig.gpu.uuid(), true)?.queued[0])
    };
    if free()? > 0 {
        rig.gpu.evict_any()?;
        ensure!(
            rig.list(&unused, 0)?.is_some(),
            "an unused chunk went while others were free"
        );
    }
    rig.reclaim_until(&unused, 0)?;
    ensure!(
        rig.list(&discarded, 0)?.is_some(),
        "a discarded chunk went before an unused one"
    );
    rig.reclaim_until(&discarded, 0)?;
    ensure!(
        rig.list(&used, 0)?.is_some(),
        "a used chunk went before a discarded one"
    );
    rig.reclaim_until(&used, 0)?;
    exactly(&used, LATER)?;
    exactly(&unused, LATER)?;
    Ok(Pass::Ok)
}

fn fifo(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 4)?;
    let order = [2, 0, 3, 1];
    for block in order {
        let at = buffer.address_of(block * WORDS);
        rig.process.discard(at, BLOCK, how)?;
    }
    for (i, &block) in order.iter().enumerate() {
        rig.reclaim_until(&buffer, block)?;
        for &later in &order[i + 1..] {
            ensure!(
                rig.list(&buffer, later)?.is_some(),
                "block {later} left before {block}"
            );
        }
    }
    Ok(Pass::Ok)
}

fn delayed(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let on_gpu = written(&rig, 1)?;
    rig.discard(&on_gpu, how)?;
    ensure!(
        rig.list(&on_gpu, 0)? == Some(rig.list_of(how)),
        "the chunk is not kept"
    );
    // On the CPU: its pages are kept, so their values are still there; behind NVIDIA's discard they are zeroed
    // as they come back.
    let on_cpu = rig.buffer(1)?;
    on_cpu.fill(|i| OLD + i as u64);
    rig.discard(&on_cpu, how)?;
    if how == Discard::Lazy {
        rig.prefetch(&on_cpu, Uuid::CPU)?;
    }
    if rig.is_native() {
        zeros_or(&on_cpu, &[OLD])?;
    } else {
        exactly(&on_cpu, OLD)?;
    }
    Ok(Pass::Ok)
}

fn reclaim_unmaps(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    let mapped = rig.is_resident_and_mapped(&buffer, 0)?.1;
    ensure!(
        mapped == (how == Discard::Lazy),
        "mapped before reclaim: {mapped}"
    );
    rig.reclaim(&buffer)?;
    for page in [0, 511, 1023] {
        ensure!(
            !rig.is_resident_and_mapped(&buffer, page)?.1,
            "page {page} is mapped"
        );
    }
    // Were an old mapping still cached, this would reach another's memory.
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn reuse(how: Discard) -> Outcome {
    if upstreams_lists() {
        skip!("upstream's lists have no discarded queue to leave");
    }
    let rig = Rig::new()?;
    if rig.is_native() && how == Discard::Eager {
        skip!(
            "NVIDIA's discard: a fault that writes leaves the chunk on the list of discarded ones"
        );
    }
    let first = written(&rig, 1)?;
    let second = written(&rig, 1)?;
    rig.discard(&first, how)?;
    ensure!(
        rig.list(&first, 0)? == Some(rig.list_of(how)),
        "not on the queue of what is discarded"
    );
    let moved = rig.moved(|| {
        rig.revive(&first, how)?;
        rig.gpu_write(&first, NEW)
    })?;
    ensure!(
        moved.to_gpu == 0,
        "{} bytes came from the host",
        moved.to_gpu
    );
    ensure!(
        rig.list(&first, 0)? == Some(AllocList::Used),
        "not on the used queue"
    );
    // Written first, but used last: it outlives the other.
    rig.reclaim_until(&second, 0)?;
    ensure!(
        rig.list(&first, 0)?.is_some(),
        "the chunk used last was reclaimed first"
    );
    exactly(&first, NEW)?;
    Ok(Pass::Ok)
}

/// The paper's case: a GPU touches a part of a block whose other pages are resident
/// elsewhere, so they are not zeroed in its chunk; then all is discarded.
fn half_prepared(how: Discard) -> Done {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    // The second half on the host.
    (WORDS / 2..WORDS).for_each(|i| buffer.set(i, OLD + i as u64));
    rig.process
        .migrate(buffer.address(), BLOCK / 2, rig.gpu.uuid())?;
    ensure!(rig.list(&buffer, 0)?.is_some(), "the GPU has no chunk");
    rig.discard(&buffer, how)?;
    if how == Discard::Lazy {
        // Lazily discarded on the host, and wanted on the GPU: dropped, not copied.
        let moved = rig.moved(|| rig.prefetch(&buffer, rig.gpu.uuid()))?;
        ensure!(
            moved.to_gpu == 0,
            "{} bytes came from the host",
            moved.to_gpu
        );
    }
    let report = rig.on_gpu(Op::read(&buffer))?;
    ensure!(report.accesses > 0, "nothing was read");
    // For NVIDIA's discard it is discarded until somebody writes to it.
    let want = match how {
        Discard::Eager if rig.is_native() => AllocList::Discarded,
        _ => AllocList::Used,
    };
    let seen = rig.list(&buffer, 0)?;
    ensure!(seen == Some(want), "on the list {seen:?}, not {want:?}");
    zeros_or(&buffer, &[OLD])
}

/// For `--leaks`: the driver must have been told to skip preparing.
fn ensure_unprepared() -> Result<Option<Pass>, uvm_suite::Failure> {
    let parameter = uvm_suite::modules::parameter("nvidia_uvm", "uvm_rust_test_unprepared");
    Ok((parameter.as_deref() != Some("Y"))
        .then(|| Pass::Skip("load nvidia-uvm.ko with uvm_rust_test_unprepared=1".to_owned())))
}

/// For `--leaks`: without preparing, the test of GPU chunks fails.
pub(crate) fn foreign_gpu_data_leaks() -> Outcome {
    if let Some(skipped) = ensure_unprepared()? {
        return Ok(skipped);
    }
    for how in [Discard::Eager, Discard::Lazy] {
        let outcome = half_prepared(how);
        let text = format!("{outcome:?}");
        ensure!(
            text.contains("foreign data"),
            "{how:?}: no foreign data was seen: {text}"
        );
    }
    Ok(Pass::Ok)
}

/// For `--leaks`: without preparing, the test of host pages fails. Which free pages
/// Linux hands out is its own choice, so it has several goes.
pub(crate) fn foreign_host_data_leaks() -> Outcome {
    const GOES: usize = 8;
    if let Some(skipped) = ensure_unprepared()? {
        return Ok(skipped);
    }
    for how in [Discard::Eager, Discard::Lazy] {
        let mut seen = Vec::new();
        let leaked = (0..GOES).any(|_| {
            seen.push(format!("{:?}", host_unprepared(how)));
            seen.last().is_some_and(|s| s.contains("an unknown value"))
        });
        ensure!(leaked, "{how:?}: no foreign data was seen: {seen:?}");
    }
    Ok(Pass::Ok)
}

/// A host chunk is allocated for a migration of one page while all others are on the
/// GPU, so it is not zeroed; then all is discarded, and the CPU reads the others. Of every second block the
/// GPU's memory is reclaimed first.
fn host_unprepared(how: Discard) -> Outcome {
    const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec2;
    const BLOCKS: usize = 8;
    let rig = Rig::new()?;
    let buffer = written(&rig, BLOCKS)?;
    // Free memory of the host holds a secret.
    {
        let secret = Buffer::<u64>::ordinary(64 * WORDS)?;
        secret.fill(|_| SECRET);
    }
    for block in 0..BLOCKS {
        let at = buffer.address_of(block * WORDS);
        rig.process.migrate(at, PAGE, Uuid::CPU)?;
    }
    rig.discard(&buffer, how)?;
    for block in (0..BLOCKS).step_by(2) {
        rig.gpu.evict(buffer.address_of(block * WORDS))?;
    }
    if how == Discard::Lazy {
        rig.prefetch(&buffer, Uuid::CPU)?;
    }
    zeros_or(&buffer, &[OLD, LATER])?;
    Ok(Pass::Ok)
}
