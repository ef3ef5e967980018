// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the paper says of semantics and mappings (§4.1, §5.1, §5.2), sentence by
//! sentence.

use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Discard, Op, BLOCK};

use crate::both;
use crate::rig::{exactly, zeros_or, Rig};

pub(crate) const OLD: u64 = 0x0100_0000_0000;
pub(crate) const LATER: u64 = 0x0200_0000_0000;
pub(crate) const NEW: u64 = 0x0300_0000_0000;

pub(crate) fn run(suite: &mut Suite) {
    both(
        suite,
        "4.1: a read by a GPU gives zeros or values written before",
        read_by_gpu,
    );
    both(
        suite,
        "4.1: a read by the CPU gives zeros or values written before",
        read_by_cpu,
    );
    both(
        suite,
        "4.1: a value written by a GPU afterwards is seen",
        write_by_gpu,
    );
    both(
        suite,
        "4.1: a value written by the CPU afterwards is seen",
        write_by_cpu,
    );
    both(suite, "4.1: until a future discard", discard_again);
    both(suite, "5.1, 5.2: mappings go at once, or stay", mappings);
    both(
        suite,
        "5.1: the next access faults, or needs none",
        next_access,
    );
    both(
        suite,
        "5.1, 5.2: page tables are changed and TLBs invalidated, or nothing is sent",
        work_for_the_gpu,
    );
    both(suite, "5.1: a prefetch spares the faults", prefetch_first);
    both(
        suite,
        "5.1, 5.2: a read revalidates, or only a prefetch does",
        revalidation,
    );
    both(
        suite,
        "5.1, 5.2: once in use again it is not reclaimed without transfer",
        in_use_again,
    );
    both(
        suite,
        "5.2: without reclaim a prefetch only sets the dirty bits",
        prefetch_kept,
    );
    both(
        suite,
        "5.2: after reclaim a prefetch gives zeroed memory",
        prefetch_reclaimed,
    );
}

/// A buffer with OLD, written on the other GPU if there are two, then LATER, on the GPU.
pub(crate) fn written(rig: &Rig, blocks: usize) -> Result<Buffer<u64>, uvm_suite::Failure> {
    let buffer = rig.buffer(blocks)?;
    rig.on_other(Op::write(&buffer).pattern(OLD, 1))?;
    rig.gpu_write(&buffer, LATER)?;
    Ok(buffer)
}

fn read_by_gpu(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    rig.revive(&buffer, how)?;
    rig.on_gpu(Op::read(&buffer))?;
    // Read on the GPU, so resident there: what the CPU gets now is what it saw.
    zeros_or(&buffer, &[OLD, LATER])?;
    Ok(Pass::Ok)
}

fn read_by_cpu(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    if how == Discard::Lazy {
        rig.prefetch(&buffer, Uuid::CPU)?;
    }
    zeros_or(&buffer, &[OLD, LATER])?;
    // Reclaimed before it is read: only zeros are left, or what the host had.
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    rig.reclaim(&buffer)?;
    zeros_or(&buffer, &[OLD, LATER])?;
    Ok(Pass::Ok)
}

fn write_by_gpu(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    rig.revive(&buffer, how)?;
    rig.gpu_write(&buffer, NEW)?;
    rig.reclaim(&buffer)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn write_by_cpu(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    if how == Discard::Lazy {
        rig.prefetch(&buffer, Uuid::CPU)?;
    }
    buffer.fill(|i| NEW + i as u64);
    rig.on_gpu(Op::check(&buffer).pattern(NEW, 1))?;
    rig.reclaim(&buffer)?;
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn discard_again(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    for round in 0..4 {
        rig.discard(&buffer, how)?;
        ensure!(
            rig.is_discarded(&buffer, 7)?,
            "round {round}: not discarded"
        );
        rig.revive(&buffer, how)?;
        rig.gpu_write(&buffer, NEW + round * 0x1_0000_0000)?;
        ensure!(
            !rig.is_discarded(&buffer, 7)?,
            "round {round}: still discarded"
        );
        rig.on_gpu(Op::check(&buffer).pattern(NEW + round * 0x1_0000_0000, 1))?;
    }
    Ok(Pass::Ok)
}

fn mappings(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let on_gpu = written(&rig, 1)?;
    let on_cpu = rig.buffer(1)?;
    on_cpu.fill(|i| i as u64);
    // Mapped on all processors, resident on one.
    for gpu in [Some(&rig.gpu), rig.other.as_ref()].into_iter().flatten() {
        rig.process
            .set_accessed_by(on_cpu.address(), on_cpu.bytes(), gpu.uuid())?;
    }
    for (name, buffer) in [("GPU", &on_gpu), ("CPU", &on_cpu)] {
        let before = rig.process.residency(buffer.address())?;
        rig.discard(buffer, how)?;
        let after = rig.process.residency(buffer.address())?;
        match how {
            Discard::Eager => ensure!(
                after.mapped.is_empty() && after.resident.is_empty(),
                "on the {name}: {after:?}"
            ),
            Discard::Lazy => ensure!(
                after.mapped == before.mapped && after.resident == before.resident,
                "on the {name}: {before:?} became {after:?}"
            ),
        }
        ensure!(rig.is_discarded(buffer, 0)?, "on the {name}: not discarded");
    }
    Ok(Pass::Ok)
}

fn next_access(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    rig.discard(&buffer, how)?;
    let moved = rig.moved(|| {
        if how == Discard::Lazy {
            rig.prefetch(&buffer, rig.gpu.uuid())?;
        }
        rig.gpu_write(&buffer, NEW)
    })?;
    match how {
        Discard::Eager => ensure!(moved.faults > 0, "no fault"),
        Discard::Lazy => ensure!(moved.faults == 0, "{} faults", moved.faults),
    }
    ensure!(
        moved.to_gpu == 0,
        "{} bytes came from the host",
        moved.to_gpu
    );
    Ok(Pass::Ok)
}

/// What a discard itself has the GPU do.
fn work_for_the_gpu(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    // A kernel ends after whatever UVM sent before it.
    rig.on_gpu(Op::read(&buffer).range(0, 1))?;
    let before = rig.gpu.stats()?;
    rig.discard(&buffer, how)?;
    let after = rig.gpu.stats()?;
    let pushes = after.pushes - before.pushes;
    let invalidates = (after.tlb_invalidates_all - before.tlb_invalidates_all)
        + (after.tlb_invalidates_targeted - before.tlb_invalidates_targeted);
    match how {
        Discard::Eager => ensure!(invalidates > 0, "no TLB invalidate was sent"),
        Discard::Lazy => ensure!(pushes == 0, "{pushes} pushes were sent"),
    }
    Ok(Pass::Ok)
}

fn prefetch_first(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    let moved = rig.moved(|| rig.gpu_write(&buffer, NEW))?;
    ensure!(moved.faults == 0, "{} faults", moved.faults);
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn revalidation(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    if rig.is_native() && how == Discard::Eager {
        skip!("NVIDIA's discard: a read leaves it discarded");
    }
    let buffer = written(&rig, 1)?;
    rig.discard(&buffer, how)?;
    rig.on_gpu(Op::read(&buffer))?;
    let discarded = rig.is_discarded(&buffer, 0)?;
    ensure!(
        discarded == (how == Discard::Lazy),
        "discarded after a read: {discarded}"
    );
    rig.prefetch(&buffer, rig.gpu.uuid())?;
    ensure!(!rig.is_discarded(&buffer, 0)?, "discarded after a prefetch");
    // Mapped for writing at once: NVIDIA's would fault once more.
    let moved = rig.moved(|| rig.gpu_write(&buffer, NEW))?;
    ensure!(moved.faults == 0, "{} faults", moved.faults);
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn in_use_again(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    rig.revive(&buffer, how)?;
    rig.gpu_write(&buffer, NEW)?;
    let moved = rig.moved(|| rig.reclaim(&buffer))?;
    ensure!(
        moved.to_host == 2 * BLOCK,
        "{} bytes went to the host",
        moved.to_host
    );
    exactly(&buffer, NEW)?;
    Ok(Pass::Ok)
}

fn prefetch_kept(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    let memset = || -> Result<u64, uvm_suite::Failure> { Ok(rig.gpu.stats()?.memset_bytes) };
    let zeroed = memset()?;
    let moved = rig.moved(|| rig.prefetch(&buffer, rig.gpu.uuid()))?;
    ensure!(moved.to_gpu + moved.to_host == 0, "bytes moved: {moved:?}");
    ensure!(moved.faults == 0, "{} faults", moved.faults);
    let zeroed = memset()? - zeroed;
    ensure!(
        zeroed < BLOCK,
        "{zeroed} bytes were zeroed that were prepared"
    );
    ensure!(!rig.is_discarded(&buffer, 0)?, "still discarded");
    // Prepared and never given away: the values are still there.
    rig.on_gpu(Op::check(&buffer).pattern(LATER, 1))?;
    Ok(Pass::Ok)
}

fn prefetch_reclaimed(how: Discard) -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 2)?;
    rig.discard(&buffer, how)?;
    rig.reclaim(&buffer)?;
    let moved = rig.moved(|| rig.prefetch(&buffer, rig.gpu.uuid()))?;
    ensure!(
        moved.to_gpu == 0,
        "{} bytes came from the host",
        moved.to_gpu
    );
    let residency = rig.process.residency(buffer.address())?;
    ensure!(
        residency.mapping(rig.gpu.uuid()) > 0,
        "not mapped: {residency:?}"
    );
    rig.on_gpu(Op::check(&buffer).pattern(0, 0))?;
    Ok(Pass::Ok)
}
