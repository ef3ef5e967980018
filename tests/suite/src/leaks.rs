// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Is GPU memory missing? What UVM can have of each GPU is counted when a suite starts, and
//! again when a test asks. NVIDIA's own check (UVM_TEST_PMM_CHECK_LEAK) is content when the
//! GPU's memory runs out, however early.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use vgpu_client::{Process, Vgpu, BLOCK};

use crate::{ensure, Failure, Outcome, Pass};

/// 2 MiB chunks of each GPU that UVM could have when the suite started, or why that is not
/// known.
static BEFORE: OnceLock<Result<Vec<u64>, String>> = OnceLock::new();

/// Counts what can be had now, once: [`crate::Suite::new`] does it before any test.
pub(crate) fn remember() {
    BEFORE.get_or_init(|| chunks().map_err(|failure| format!("{failure:?}")));
}

/// What could be had of GPU number `gpu` when the suite started, in 2 MiB chunks.
pub fn chunks_before(gpu: u32) -> Result<u64, Failure> {
    match BEFORE.get() {
        Some(Ok(chunks)) => Ok(*chunks.get(gpu as usize).ok_or("no such GPU before")?),
        Some(Err(why)) => Err(format!("not counted before: {why}").into()),
        None => Err("not counted before: no suite has started".into()),
    }
}

/// A test for the end of a run: nobody has a GPU registered, and UVM can have as much of
/// each one's memory as when the suite started.
pub fn no_leak() -> Outcome {
    for (gpu, now) in chunks()?.into_iter().enumerate() {
        let before = chunks_before(gpu as u32)?;
        ensure!(
            now == before,
            "GPU {gpu}: {now} chunks of 2 MiB are to be had, {before} were before"
        );
    }
    Ok(Pass::Ok)
}

/// Nothing is left on the device of the SSD tier, and no slot is in use. A write that was under way when
/// its pages were freed may take a moment to end.
pub fn nothing_on_device(process: &Process) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let s = process.flash_stats()?;
        if s.pages == 0 && s.extents == 0 && s.free_slots == s.slots {
            return Ok(());
        }
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "slots leak: {s:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// 2 MiB chunks of each GPU that UVM can have.
fn chunks() -> Result<Vec<u64>, Failure> {
    let device = Vgpu::open()?;
    let count = device.info(0)?.gpu_count;
    (0..count)
        .map(|index| {
            let gpu = device.info(index)?.uuid();
            let process = Process::new()?;
            process.register_gpu(gpu)?;
            let references = process.gpu_references(gpu)?;
            ensure!(
                references == 1,
                "GPU {index} is registered {references} times, not once"
            );
            Ok(process.check_leak(gpu, BLOCK)?)
        })
        .collect()
}
