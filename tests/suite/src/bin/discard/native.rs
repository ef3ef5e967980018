// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What NVIDIA's own discard does where ours does something else: the table "Against NVIDIA's own" in
//! docs/uapi.md, row by row. None of it is asked where the discard is ours.

use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{AllocList, Discard, Op, BLOCK, PAGE};

use crate::both;
use crate::paper::{written, LATER, NEW};
use crate::rig::{exactly, zeros_or, Rig, PAGE_WORDS, WORDS};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    if !Rig::new().is_ok_and(|rig| rig.is_native()) {
        return;
    }
    suite.test(
        "NVIDIA's: a read leaves it discarded, and a write makes it live (eager)",
        NONE,
        read_only,
    );
    suite.test(
        "NVIDIA's: who writes without a prefetch writes what is discarded (lazy)",
        NONE,
        written_lazily,
    );
    both(suite, "NVIDIA's: any page is discarded alone", one_page);
    both(suite, "NVIDIA's: which list has the chunk", lists);
    both(
        suite,
        "NVIDIA's: reclaim copies nothing, and fills pages of the host",
        host_pages,
    );
    both(
        suite,
        "NVIDIA's: discarded also where migration is forbidden, and where nobody has touched it",
        everywhere,
    );
    both(
        suite,
        "NVIDIA's: a GPU that has no chunk reads what is on the host and all discarded",
        read_on_the_host,
    );
    suite.test(
        "NVIDIA's: what is read-duplicated moves to a full GPU, also where a part is discarded (lazy)",
        NONE,
        duplicated_on_a_full_gpu,
    );
}

fn read_only() -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    rig.discard(&buffer, Discard::Eager)?;
    rig.on_gpu(Op::read(&buffer))?;
    ensure!(rig.is_discarded(&buffer, 0)?, "live after a read");
    let moved = rig.moved(|| rig.gpu_write(&buffer, NEW))?;
    ensure!(moved.faults > 0, "the read had mapped it for writing");
    ensure!(!rig.is_discarded(&buffer, 0)?, "discarded after a write");
    rig.reclaim(&buffer)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

/// A mapping that is left lets a GPU write unnoticed; a CPU, whose fault is a move, is noticed when it
/// writes, and not when it reads.
fn written_lazily() -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    rig.discard(&buffer, Discard::Lazy)?;
    let moved = rig.moved(|| rig.gpu_write(&buffer, NEW))?;
    ensure!(moved.faults == 0, "{} faults", moved.faults);
    ensure!(rig.is_discarded(&buffer, 0)?, "live after a GPU's write");
    let seen = buffer.get(0);
    ensure!([0, LATER, NEW].contains(&seen), "word 0 is {seen:#x}");
    ensure!(rig.is_discarded(&buffer, 0)?, "live after the CPU's read");
    buffer.set(0, 1);
    ensure!(
        !rig.is_discarded(&buffer, 0)?,
        "discarded after the CPU's write"
    );
    rig.reclaim_until(&buffer, 0)?;
    ensure!(buffer.get(0) == 1, "word 0 is {:#x}", buffer.get(0));
    Ok(Pass::Ok)
}

fn one_page(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    rig.process
        .discard(buffer.address() + 5 * PAGE, PAGE, how)?;
    for page in [0, 4, 5, 6, 511] {
        let seen = rig.is_discarded(&buffer, page)?;
        ensure!(seen == (page == 5), "page {page} is discarded: {seen}");
    }
    rig.reclaim(&buffer)?;
    let kept = (0..WORDS).filter(|i| i / PAGE_WORDS != 5);
    let lost = kept
        .into_iter()
        .find(|&i| buffer.get(i) != LATER + i as u64);
    ensure!(lost.is_none(), "word {lost:?} was lost");
    zeros_or(&buffer, &[LATER])?;
    Ok(Pass::Ok)
}

fn lists(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    ensure!(
        rig.list(&buffer, 0)? == Some(AllocList::Used),
        "not used at first"
    );
    rig.discard(&buffer, how)?;
    let seen = rig.list(&buffer, 0)?;
    let want = rig.list_of(how);
    ensure!(seen == Some(want), "on the list {seen:?}, not {want:?}");
    Ok(Pass::Ok)
}

fn host_pages(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    rig.discard(&buffer, how)?;
    let moved = rig.moved(|| rig.reclaim(&buffer))?;
    ensure!(
        moved.to_host == 0,
        "{} bytes went to the host",
        moved.to_host
    );
    let resident = rig.process.residency(buffer.address())?.resident;
    ensure!(resident == [Uuid::CPU], "resident on {resident:?}");
    zeros_or(&buffer, &[])?;
    Ok(Pass::Ok)
}

fn everywhere(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    rig.discard(&buffer, how)?;
    ensure!(
        rig.is_discarded(&buffer, 3)?,
        "untouched memory is not discarded"
    );
    let fixed = rig.buffer(1)?;
    fixed.fill(|i| i as u64);
    let (at, len) = (fixed.address(), BLOCK);
    rig.process.set_preferred_location(at, len, Uuid::CPU)?;
    let group = rig.process.create_range_group()?;
    rig.process.set_range_group(group, at, len)?;
    rig.process.range_group_may_move(group, false)?;
    rig.discard(&fixed, how)?;
    ensure!(
        rig.is_discarded(&fixed, 0)?,
        "what may not migrate is not discarded"
    );
    // Where nothing may move, an access that faults is fatal.
    rig.process.range_group_may_move(group, true)?;
    Ok(Pass::Ok)
}

/// The pages that are to be duplicated lack a chunk at first. Once one was evicted, the move is to be tried again. The
/// discarded pages move by the same call, and must not hide it.
fn duplicated_on_a_full_gpu() -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    let (at, half) = (buffer.address(), BLOCK / 2);
    buffer.fill(|i| LATER + i as u64);
    rig.process.read_duplication(at, buffer.bytes(), true)?;
    rig.process.discard(at + half, half, Discard::Lazy)?;
    let filler = rig.buffer((rig.gpu.info().vidmem_bytes / BLOCK) as usize)?;
    rig.gpu_write(&filler, NEW)?;
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    let resident = rig.process.residency(at)?.resident;
    ensure!(
        resident.contains(&rig.gpu.uuid()),
        "the migration ended well, and its page is on {resident:?}"
    );
    let kept = Op::check(&buffer).range(0, WORDS / 2).pattern(LATER, 1);
    rig.on_gpu(kept)?;
    Ok(Pass::Ok)
}

/// The read is by way of a mapping of the host's memory, and changes no page's mark: so the whole block stays discarded, for
/// which the driver wants to put the GPU's chunk on a list.
fn read_on_the_host(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    if rig.is_spared() {
        skip!("NVIDIA's driver oopses, see docs/fixes.md");
    }
    let buffer = rig.buffer(1)?;
    rig.process
        .set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
    buffer.fill(|i| LATER + i as u64);
    rig.discard(&buffer, how)?;
    rig.on_gpu(Op::read(&buffer))?;
    let list = rig.list(&buffer, 0)?;
    ensure!(list.is_none(), "the GPU's chunk is on the list {list:?}");
    ensure!(rig.is_discarded(&buffer, 0)?, "live after a read");
    zeros_or(&buffer, &[LATER])?;
    rig.gpu_write(&buffer, NEW)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}
