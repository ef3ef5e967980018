// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What an eager discard leaves alone, of what was discarded lazily before: what is written to it is kept.

use uvm_suite::{ensure, Outcome, Pass};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Discard, Op, BLOCK};

use crate::paper::{written, NEW, OLD};
use crate::rig::{Rig, WORDS};

/// A program may write behind an eager discard without a prefetch, also where the driver leaves the part alone because
/// a GPU maps the block with one entry: the write goes unnoticed, and is kept all the same.
pub(crate) fn eager_in_part_of_lazy() -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    rig.discard(&buffer, Discard::Lazy)?;
    rig.process
        .discard(buffer.address(), BLOCK / 2, Discard::Eager)?;
    rig.gpu_write(&buffer, NEW)?;
    rig.reclaim(&buffer)?;
    for word in 0..WORDS / 2 {
        let seen = buffer.get(word);
        ensure!(
            seen == NEW + word as u64,
            "word {word}, of what was discarded eagerly, is {seen:#x}"
        );
    }
    Ok(Pass::Ok)
}

/// The block is left alone as the migration of half of it is forbidden.
pub(crate) fn eager_where_a_part_must_stay() -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    buffer.fill(|i| OLD + i as u64);
    let (at, half) = (buffer.address(), BLOCK / 2);
    // UVM wants a place for it that does not fault.
    rig.process
        .set_preferred_location(at, buffer.bytes(), Uuid::CPU)?;
    let group = rig.process.create_range_group()?;
    rig.process.set_range_group(group, at + half, half)?;
    rig.process.range_group_may_move(group, false)?;
    rig.process.migrate(at, half, rig.gpu.uuid())?;
    let write = |value| {
        let write = Op::write(&buffer).range(0, WORDS / 2);
        rig.on_gpu(write.pattern(value, 1))
    };
    write(OLD)?;
    rig.process.discard(at, half, Discard::Lazy)?;
    ensure!(rig.is_discarded(&buffer, 0)?, "not discarded");
    rig.discard(&buffer, Discard::Eager)?;
    // NVIDIA's discard takes what may not migrate, too, and the write finds the page gone.
    let is_native = rig.is_native();
    ensure!(
        is_native || !rig.is_discarded(&buffer, 0)?,
        "still discarded"
    );
    write(NEW)?;
    let evicted = rig.gpu.evict(at)?;
    ensure!(is_native || evicted, "there was no chunk to reclaim");
    let lost = (0..WORDS / 2).find(|&word| buffer.get(word) != NEW + word as u64);
    ensure!(lost.is_none(), "word {lost:?} is lost");
    // While its migration is forbidden, UVM answers a CPU that uses it with SIGBUS, wherever it is.
    rig.process.range_group_may_move(group, true)?;
    let gone = (WORDS / 2..WORDS).find(|&word| buffer.get(word) != OLD + word as u64);
    ensure!(
        is_native || gone.is_none(),
        "word {gone:?}, which may not migrate, is gone"
    );
    Ok(Pass::Ok)
}
