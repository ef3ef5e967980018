// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the paper leaves to the driver: policies, splits, several GPUs, work in
//! flight.

use std::sync::atomic::{AtomicBool, Ordering};

use uvm_suite::{ensure, no_leak, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{AllocList, Buffer, Discard, Op, Process, BLOCK, PAGE};

use crate::rig::{exactly, zeros_or, Done, Rig, PAGE_WORDS, WORDS};
use crate::{both, kept, thrashing, NONE};

const OLD: u64 = 0x0100_0000_0000;
const NEW: u64 = 0x0300_0000_0000;
/// Of how many pages one is looked at.
const PAGES_APART: usize = 15;
/// The least of what `UVM_TEST_VA_RESIDENCY_INFO` says of a mapping that a write may use.
const MAPPED_FOR_WRITING: u32 = 2;
/// Who makes the calls of a discard.
type By = fn(&Rig, &Buffer<u64>, Discard) -> Done;

pub(crate) fn run(suite: &mut Suite) {
    both(suite, "resident on the CPU", cpu_resident);
    both(suite, "read-duplicated", read_duplicated);
    suite.test("read-duplicated, and one copy used", NONE, copy_used);
    both(
        suite,
        "written to, where a part was read-duplicated",
        duplicated_in_part,
    );
    suite.test(
        "written to, where the user library discarded a read-duplicated part (eager)",
        NONE,
        || duplicated_in_parts(Discard::Eager, Rig::discard_by_library),
    );
    suite.test(
        "written to on the host, where a later discard maps it anew (eager)",
        NONE,
        || mapped_anew(BLOCK),
    );
    suite.test(
        "written to on the host, where a later discard of the other half maps it anew (eager)",
        NONE,
        || mapped_anew(BLOCK / 2),
    );
    both(suite, "accessed by the GPU", accessed_by);
    both(suite, "preferred location CPU", |how| preferred(how, true));
    both(suite, "preferred location GPU", |how| preferred(how, false));
    both(suite, "a block that ends early", short_block);
    both(suite, "split after the discard", |how| split(how, true));
    both(suite, "split before the discard", |how| split(how, false));
    both(suite, "split twice, and evicted", split_twice);
    both(
        suite,
        "in part of a block mapped by small pages",
        small_pages,
    );
    both(suite, "two GPUs", two_gpus);
    both(suite, "pinned by thrashing", thrashing::pinned);
    suite.test("dropped where it was pinned", NONE, thrashing::dropped);
    suite.test("thrashing, and resident nowhere", NONE, thrashing::nowhere);
    both(suite, "the GPU is taken back", unregister);
    both(suite, "the process ends", process_ends);
    both(suite, "eager and lazy in turn", in_turn);
    suite.test(
        "eager in a part of what is discarded lazily",
        NONE,
        kept::eager_in_part_of_lazy,
    );
    suite.test(
        "eager, where somebody holds a page",
        NONE,
        kept::eager_where_a_page_is_held,
    );
    suite.test(
        "eager, where the migration of a part is forbidden",
        NONE,
        kept::eager_where_a_part_must_stay,
    );
    both(suite, "migration forbidden", not_migratable);
    both(suite, "migration and eviction in flight", in_flight);
}

fn cpu_resident(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(2)?;
    buffer.fill(|i| OLD + i as u64);
    rig.discard(&buffer, how)?;
    // Its data is not worth a transfer.
    let moved = rig.moved(|| {
        rig.prefetch(&buffer, rig.gpu.uuid())?;
        rig.on_gpu(Op::read(&buffer)).map(drop)
    })?;
    ensure!(
        moved.to_gpu == 0,
        "{} bytes came from the host",
        moved.to_gpu
    );
    zeros_or(&buffer, &[OLD])?;
    buffer.fill(|i| NEW + i as u64);
    rig.on_gpu(Op::check(&buffer).pattern(NEW, 1))?;
    Ok(Pass::Ok)
}

fn read_duplicated(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    rig.process
        .read_duplication(buffer.address(), buffer.bytes(), true)?;
    buffer.fill(|i| OLD + i as u64);
    rig.on_gpu(Op::check(&buffer).pattern(OLD, 1))?;
    let copies = rig.process.residency(buffer.address())?.resident.len();
    ensure!(copies == 2, "{copies} copies before the discard");
    rig.discard(&buffer, how)?;
    if how == Discard::Eager {
        let left = rig.process.residency(buffer.address())?;
        ensure!(left.resident.is_empty(), "left: {left:?}");
    }
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    rig.on_gpu(Op::check(&buffer).pattern(NEW, 1))?;
    // Reclaimed while there is a duplicate.
    rig.discard(&buffer, how)?;
    rig.reclaim(&buffer)?;
    rig.prefetch(&buffer, Uuid::CPU)?;
    zeros_or(&buffer, &[OLD, NEW])?;
    Ok(Pass::Ok)
}

/// Who uses a copy makes all copies live, and a chunk with one is used again: else it is reclaimed before all that is used.
fn copy_used() -> Outcome {
    let rig = Rig::new()?;
    if rig.is_native() {
        skip!("NVIDIA's discard has rules of its own");
    }
    let buffer = rig.buffer(1)?;
    rig.process
        .read_duplication(buffer.address(), buffer.bytes(), true)?;
    buffer.fill(|i| OLD + i as u64);
    rig.on_gpu(Op::check(&buffer).pattern(OLD, 1))?;
    rig.discard(&buffer, Discard::Lazy)?;
    ensure!(
        rig.list(&buffer, 0)? == Some(AllocList::Discarded),
        "not discarded"
    );
    rig.prefetch(&buffer, Uuid::CPU)?;
    ensure!(!rig.is_discarded(&buffer, 0)?, "still discarded");
    let copies = rig.process.residency(buffer.address())?.resident.len();
    ensure!(copies == 2, "{copies} copies after the prefetch");
    let list = rig.list(&buffer, 0)?;
    ensure!(list == Some(AllocList::Used), "on the list {list:?}");
    rig.on_gpu(Op::check(&buffer).pattern(OLD, 1))?;
    Ok(Pass::Ok)
}

/// The discard breaks the duplicates of one page, and has to unmap all others as well. What is written to those afterwards
/// is kept, also where the memory is reclaimed. It has several goes, as a driver that leaves them mapped loses the
/// write in half of them.
fn duplicated_in_part(how: Discard) -> Outcome {
    duplicated_in_parts(how, Rig::discard)
}

fn duplicated_in_parts(how: Discard, discard: By) -> Outcome {
    const GOES: usize = 8;
    for _ in 0..GOES {
        duplicated_once(how, discard)?;
    }
    Ok(Pass::Ok)
}

fn duplicated_once(how: Discard, discard: By) -> Done {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    rig.process
        .read_duplication(buffer.address(), buffer.bytes(), true)?;
    rig.gpu_write(&buffer, OLD)?;
    ensure!(buffer.get(0) == OLD, "word 0 is {:#x}", buffer.get(0));
    // Faults around it may have left the last page mapped read-only.
    let first = WORDS - PAGE_WORDS;
    let last = |value| {
        let write = Op::write(&buffer).range(first, PAGE_WORDS);
        rig.on_gpu(write.pattern(value + first as u64, 1))
    };
    last(OLD)?;
    let mapping = rig.process.residency(buffer.address_of(first))?;
    ensure!(
        mapping.mapping(rig.gpu.uuid()) >= MAPPED_FOR_WRITING,
        "the last page is not mapped for writing: {mapping:?}"
    );
    let copies = |page: usize| -> Result<usize, Failure> {
        let at = buffer.address_of(page * PAGE_WORDS);
        Ok(rig.process.residency(at)?.resident.len())
    };
    let seen = (copies(0)?, copies(511)?);
    ensure!(seen == (2, 1), "copies of pages 0 and 511: {seen:?}");
    discard(&rig, &buffer, how)?;
    rig.revive(&buffer, how)?;
    // The last page alone: elsewhere a write may fault, and a fault makes its neighbours live as well.
    last(NEW)?;
    rig.reclaim(&buffer)?;
    let lost = (first..WORDS).find(|&i| buffer.get(i) != NEW + i as u64);
    ensure!(lost.is_none(), "what was written to word {lost:?} is lost");
    // And all of it.
    discard(&rig, &buffer, how)?;
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    rig.gpu_write(&buffer, NEW)?;
    rig.reclaim(&buffer)?;
    exactly(&buffer, NEW)
}

/// Half of the block is discarded, and goes to the host by an eviction. A page of the other half is read-duplicated when that half
/// is discarded, or all is (`bytes`): who breaks that may map the whole block where the duplicates go, and is not to let anybody
/// write unnoticed to what was discarded before.
fn mapped_anew(bytes: u64) -> Outcome {
    const WRITTEN: usize = 300 * PAGE_WORDS;
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    rig.process
        .read_duplication(buffer.address(), buffer.bytes(), true)?;
    rig.gpu_write(&buffer, OLD)?;
    rig.process
        .discard(buffer.address() + BLOCK / 2, BLOCK / 2, Discard::Eager)?;
    rig.reclaim(&buffer)?;
    rig.on_gpu(Op::read(&buffer).range(0, 1))?;
    let copies = rig.process.residency(buffer.address())?.resident.len();
    ensure!(copies == 2, "{copies} copies of page 0");
    rig.process
        .discard(buffer.address(), bytes, Discard::Eager)?;
    buffer.set(WRITTEN, NEW);
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    let seen = buffer.get(WRITTEN);
    ensure!(seen == NEW, "what was written is lost: {seen:#x}");
    Ok(Pass::Ok)
}

fn accessed_by(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    let (at, len) = (buffer.address(), buffer.bytes());
    rig.process.set_accessed_by(at, len, rig.gpu.uuid())?;
    buffer.fill(|i| OLD + i as u64);
    rig.on_gpu(Op::check(&buffer).pattern(OLD, 1))?;
    rig.discard(&buffer, how)?;
    rig.prefetch(&buffer, Uuid::CPU)?;
    zeros_or(&buffer, &[OLD])?;
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    // On the GPU and reclaimed: the mapping that follows must not lead to nowhere.
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    rig.discard(&buffer, how)?;
    rig.reclaim(&buffer)?;
    rig.revive(&buffer, how)?;
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn preferred(how: Discard, cpu: bool) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    let there = if cpu { Uuid::CPU } else { rig.gpu.uuid() };
    rig.process
        .set_preferred_location(buffer.address(), buffer.bytes(), there)?;
    rig.gpu_write(&buffer, OLD)?;
    rig.discard(&buffer, how)?;
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    rig.gpu_write(&buffer, NEW)?;
    rig.on_gpu(Op::check(&buffer).pattern(NEW, 1))?;
    exactly(&buffer, NEW)?;
    // A new preferred location for what is discarded moves nothing.
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    rig.discard(&buffer, how)?;
    let moved = rig.moved(|| {
        Ok(rig
            .process
            .set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?)
    })?;
    ensure!(moved.to_host + moved.to_gpu == 0, "bytes moved: {moved:?}");
    rig.prefetch(&buffer, Uuid::CPU)?;
    zeros_or(&buffer, &[OLD, NEW])?;
    Ok(Pass::Ok)
}

fn short_block(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let pages = 512 + 37;
    let buffer = Buffer::<u64>::managed(&rig.process, pages * PAGE_WORDS)?;
    rig.gpu_write(&buffer, OLD)?;
    rig.discard(&buffer, how)?;
    for page in [511, 512, pages - 1] {
        ensure!(
            rig.is_discarded(&buffer, page)?,
            "page {page} is not discarded"
        );
    }
    let moved = rig.moved(|| rig.reclaim_until(&buffer, 1))?;
    ensure!(
        moved.to_host == 0,
        "{} bytes went to the host",
        moved.to_host
    );
    rig.revive(&buffer, how)?;
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

/// A policy on a part of a range splits the range, and the block with it.
fn split(how: Discard, after: bool) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    let cut = || -> Done {
        let (at, len) = (buffer.address() + BLOCK / 2, BLOCK / 2);
        Ok(rig
            .process
            .set_preferred_location(at, len, rig.gpu.uuid())?)
    };
    // The second half on the host, so that its half of the chunk is not prepared.
    (WORDS / 2..WORDS).for_each(|i| buffer.set(i, OLD + i as u64));
    rig.process
        .migrate(buffer.address(), BLOCK / 2, rig.gpu.uuid())?;
    if !after {
        cut()?;
    }
    rig.discard(&buffer, how)?;
    if after {
        cut()?;
    }
    for page in [0, 255, 256, 511] {
        // set_preferred_location may already have made lazily discarded pages live.
        let discarded = rig.is_discarded(&buffer, page)?;
        ensure!(
            discarded || how == Discard::Lazy,
            "page {page} is not discarded"
        );
    }
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    rig.on_gpu(Op::read(&buffer))?;
    zeros_or(&buffer, &[OLD])?;
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

/// A va_block that was split after it got its memory knows which of its pages leave with a chunk: those that are
/// discarded are dropped, and those beside them are copied. From 590 on a chunk does not know where it is after a split.
fn split_twice(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    // Two policies, as a range that has the one already is not split for it again.
    let cut = |at: u64, location: Uuid| -> Done {
        Ok(rig
            .process
            .set_preferred_location(buffer.address() + at, BLOCK - at, location)?)
    };
    cut(BLOCK / 2, rig.gpu.uuid())?;
    rig.gpu_write(&buffer, OLD)?;
    cut(BLOCK / 4 * 3, Uuid::CPU)?;
    let (at, len) = (buffer.address() + BLOCK / 2, BLOCK / 2);
    rig.process.discard(at, len, how)?;
    let moved = rig.moved(|| {
        // What shares a root chunk with an earlier piece has left with it.
        for page in [0, 256, 384] {
            rig.gpu.evict(buffer.address_of(page * PAGE_WORDS))?;
        }
        Ok(())
    })?;
    ensure!(
        moved.to_host == BLOCK / 2,
        "{} bytes went to the host, of {} that are not discarded",
        moved.to_host,
        BLOCK / 2
    );
    for page in [256, 383, 384, 511] {
        // NVIDIA's puts a page of zeros in its place.
        ensure!(
            rig.is_native() || !rig.is_resident_and_mapped(&buffer, page)?.0,
            "page {page}, which is discarded, is somewhere"
        );
    }
    for i in 0..WORDS / 2 {
        let seen = buffer.get(i);
        ensure!(seen == OLD + i as u64, "word {i} is {seen:#x}");
    }
    zeros_or(&buffer, &[OLD])?;
    Ok(Pass::Ok)
}

fn small_pages(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    if rig.is_native() {
        skip!("NVIDIA's discard: any page is discarded alone, not pieces of 64 KiB");
    }
    let buffer = rig.buffer(1)?;
    buffer.fill(|i| OLD + i as u64);
    // A quarter of the block, so no 2 MiB mapping anywhere.
    rig.process
        .migrate(buffer.address(), BLOCK / 4, rig.gpu.uuid())?;
    rig.process
        .discard(buffer.address() + PAGE, BLOCK / 4, how)?;
    let want = |page| (16..128).contains(&page);
    for page in [0, 1, 15, 16, 127, 128, 129, 511] {
        let seen = rig.is_discarded(&buffer, page)?;
        ensure!(seen == want(page), "page {page} is discarded: {seen}");
    }
    // What was not discarded stays as it was.
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    let kept = (0..WORDS).filter(|i| !want(i / PAGE_WORDS));
    let lost = kept.into_iter().find(|&i| buffer.get(i) != OLD + i as u64);
    ensure!(lost.is_none(), "word {lost:?} was lost");
    zeros_or(&buffer, &[OLD])?;
    Ok(Pass::Ok)
}

fn two_gpus(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let Some(second) = &rig.other else {
        skip!("one GPU only: run with GPUS=2");
    };
    let on_second = |op| rig.on_other(op);
    let buffer = rig.buffer(2)?;
    rig.gpu_write(&buffer, OLD)?;
    rig.discard(&buffer, how)?;
    let traffic = || -> Result<u64, uvm_suite::Failure> {
        let s = vgpu_client::DriverStats::get(&rig.process, second.uuid(), false)?;
        Ok(s.host_to_gpu
            .iter()
            .chain(&s.gpu_to_gpu)
            .map(|t| t.bytes)
            .sum())
    };
    let before = traffic()?;
    if how == Discard::Lazy {
        rig.prefetch(&buffer, second.uuid())?;
    }
    on_second(Op::read(&buffer))?;
    ensure!(
        traffic()? == before,
        "what was discarded went to the other GPU"
    );
    on_second(Op::write(&buffer).pattern(NEW, 1))?;
    rig.on_gpu(Op::check(&buffer).pattern(NEW, 1))?;
    // Half here, half there, and chunks of both, of which one half is not prepared.
    let half = buffer.bytes() / 4;
    rig.process.migrate(buffer.address(), half, second.uuid())?;
    rig.discard(&buffer, how)?;
    rig.prefetch(&buffer, second.uuid())?;
    on_second(Op::read(&buffer))?;
    zeros_or(&buffer, &[OLD, NEW])?;
    Ok(Pass::Ok)
}

fn unregister(how: Discard) -> Outcome {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let rig = Rig::of(process, gpu)?;
    let buffer = rig.buffer(2)?;
    rig.gpu_write(&buffer, OLD)?;
    // Live data beside it comes home.
    let live = rig.buffer(1)?;
    rig.gpu_write(&live, NEW)?;
    rig.discard(&buffer, how)?;
    // It does not go to the host with its GPU, where it would cost memory, and count as live.
    let is_native = rig.is_native();
    // NVIDIA's driver migrates what the GPU has, which ends a lazy discard as a prefetch does.
    let stays = !(is_native && how == Discard::Lazy);
    let Rig { process, gpu, .. } = rig;
    gpu.unregister()?;
    for page in (0..2 * BLOCK / PAGE).step_by(PAGES_APART) {
        let at = buffer.address() + page * PAGE;
        let left = process.residency(at)?.resident;
        ensure!(is_native || left.is_empty(), "page {page} is on {left:?}");
        let seen = process.is_discarded(at)?;
        ensure!(seen == stays, "page {page} is discarded: {seen}");
    }
    exactly(&live, NEW)?;
    zeros_or(&buffer, &[OLD])?;
    // Back again: what is known of its chunks went with them.
    let gpu = process.gpu(0)?;
    let rig = Rig::of(process, gpu)?;
    rig.process.discard(buffer.address(), buffer.bytes(), how)?;
    (WORDS / 2..WORDS).for_each(|i| buffer.set(i, OLD + i as u64));
    rig.process
        .migrate(buffer.address(), BLOCK / 2, rig.gpu.uuid())?;
    rig.discard(&buffer, how)?;
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    rig.on_gpu(Op::read(&buffer))?;
    zeros_or(&buffer, &[OLD])?;
    Ok(Pass::Ok)
}

fn process_ends(how: Discard) -> Outcome {
    for _ in 0..3 {
        let rig = Rig::new()?;
        let buffer = rig.buffer(4)?;
        rig.gpu_write(&buffer, OLD)?;
        rig.discard(&buffer, how)?;
    }
    no_leak()
}

fn in_turn(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    rig.gpu_write(&buffer, OLD)?;
    let other = if how == Discard::Eager {
        Discard::Lazy
    } else {
        Discard::Eager
    };
    rig.discard(&buffer, how)?;
    rig.discard(&buffer, other)?;
    // Whichever came first, it is unmapped: eager either did that or found it done.
    let at = rig.is_resident_and_mapped(&buffer, 0)?;
    ensure!(at == (false, false), "(resident, mapped) is {at:?}");
    ensure!(rig.is_discarded(&buffer, 0)?, "not discarded");
    rig.gpu_write(&buffer, NEW)?;
    ensure!(!rig.is_discarded(&buffer, 0)?, "still discarded");
    rig.reclaim(&buffer)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

/// Where migration is forbidden a discard leaves things alone.
fn not_migratable(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    if rig.is_native() {
        skip!("NVIDIA's discard: what may not migrate is discarded, too");
    }
    let buffer = rig.buffer(1)?;
    buffer.fill(|i| OLD + i as u64);
    let (at, len) = (buffer.address(), buffer.bytes());
    // UVM wants a place for it that does not fault.
    rig.process.set_preferred_location(at, len, Uuid::CPU)?;
    let group = rig.process.create_range_group()?;
    rig.process.set_range_group(group, at, len)?;
    rig.process.range_group_may_move(group, false)?;
    rig.discard(&buffer, how)?;
    ensure!(!rig.is_discarded(&buffer, 0)?, "discarded");
    // Where nothing may move, an access that faults is fatal.
    rig.process.range_group_may_move(group, true)?;
    exactly(&buffer, OLD)?;
    rig.discard(&buffer, how)?;
    ensure!(rig.is_discarded(&buffer, 0)?, "not discarded");
    Ok(Pass::Ok)
}

/// Threads that discard, migrate, evict and use the same blocks; afterwards each
/// word is one that somebody wrote there, and what is written then is kept. The last half
/// block is never discarded: what each round writes there is there after the round, so that
/// an update that is lost shows, whatever older values the discards allow.
fn in_flight(how: Discard) -> Outcome {
    // Each round its own values, so that a word shows which it is from, and whose.
    let written: Vec<u64> = (0..=12).map(|round| OLD + (round << 24)).collect();
    let rig = Rig::new()?;
    let buffer = rig.buffer(3)?;
    rig.gpu_write(&buffer, written[0])?;
    let stop = AtomicBool::new(false);
    let run = |work: &(dyn Fn(usize) -> Done + Sync)| -> Done {
        (0..)
            .take_while(|_| !stop.load(Ordering::Relaxed))
            .try_for_each(work)
    };
    let kept = 2 * WORDS + WORDS / 2;
    let discards = |_| {
        let bytes = kept as u64 * 8;
        Ok(rig.process.discard(buffer.address(), bytes, how)?)
    };
    // Turn by turn on the GPU and on the CPU.
    let is_kept = |round: usize, value: u64| -> Done {
        if round % 2 == 0 {
            let check = Op::check(&buffer).range(kept, buffer.len() - kept);
            return rig.on_gpu(check.pattern(value + kept as u64, 1)).map(drop);
        }
        kept_is(&buffer, kept, value)
    };
    let migrates = |i| {
        rig.prefetch(
            &buffer,
            if i % 2 == 0 {
                Uuid::CPU
            } else {
                rig.gpu.uuid()
            },
        )
    };
    let evicts = |_| Ok(rig.gpu.evict_any().map(drop)?);
    std::thread::scope(|threads| -> Done {
        let workers: [&(dyn Fn(usize) -> Done + Sync); 3] = [&discards, &migrates, &evicts];
        let workers = workers.map(|w| threads.spawn(move || run(w)));
        let mut outcome = Ok(());
        for (round, &value) in written.iter().enumerate().skip(1) {
            let written = rig.gpu_write(&buffer, value);
            outcome = written.and_then(|()| is_kept(round, value));
            if outcome.is_err() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.joined()??;
        }
        outcome
    })?;
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    zeros_or(&buffer, &written)?;
    kept_is(&buffer, kept, written[written.len() - 1])?;
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

/// Each word from `first` on is value + index.
fn kept_is(buffer: &Buffer<u64>, first: usize, value: u64) -> Done {
    let other = (first..buffer.len()).find(|&i| buffer.get(i) != value + i as u64);
    if let Some(i) = other {
        let (seen, want) = (buffer.get(i), value + i as u64);
        return Err(format!("word {i}, never discarded, is {seen:#x}, not {want:#x}").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word of the round before is a value that was written: only outside what is
    /// discarded can it be told from a lost update.
    #[test]
    fn a_lost_update_is_seen() -> Done {
        let buffer = Buffer::<u64>::ordinary(2 * WORDS)?;
        buffer.fill(|i| NEW + i as u64);
        kept_is(&buffer, WORDS, NEW)?;
        buffer.set(WORDS + 5, OLD + WORDS as u64 + 5);
        zeros_or(&buffer, &[OLD, NEW])?;
        assert!(kept_is(&buffer, WORDS, NEW).is_err());
        Ok(())
    }
}
