// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is discarded of a block that the driver moves to the host ahead of need (`uvm_rust_preevict`).

use std::thread::sleep;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Outcome, Pass};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Discard, Op, Process, BLOCK};

use crate::rig::{zeros_or, Done, Rig, WORDS};

const OLD: u64 = 0x0100_0000_0000;
const PARAMETER: &str = "uvm_rust_preevict";
const WITHIN: Duration = Duration::from_secs(60);

/// Half of a block is discarded lazily. When the block is pushed out, that half is dropped, and not copied: it stays
/// discarded, and costs no memory of the host. The other half is copied.
pub(crate) fn pushed_out() -> Outcome {
    let ready = uvm_suite::modules::parameter("nvidia_uvm", PARAMETER).unwrap_or_default();
    if matches!(ready.as_str(), "" | "0") {
        skip!("nothing is pushed out: load with uvm_rust_prefetch=1 {PARAMETER}=4");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let rig = Rig::of(process, gpu)?;
    let old = rig.buffer(1)?;
    rig.gpu_write(&old, OLD)?;
    rig.process
        .discard(old.address(), BLOCK / 2, Discard::Lazy)?;
    // Kernels that nobody foresees fill the GPU, each with a block. The worker makes room after each.
    let blocks = (rig.gpu.info().vidmem_bytes / BLOCK) as usize;
    let others = rig.buffer(blocks)?;
    let moved = rig.moved(|| {
        for block in 0..blocks {
            rig.process.announce(rig.gpu.uuid(), 1 + block as u64)?;
            rig.on_gpu(Op::write(&others).range(block * WORDS, 1))?;
            at_rest(&rig)?;
            if rig.process.residency(old.address_of(WORDS - 1))?.resident == [Uuid::CPU] {
                return Ok(());
            }
        }
        Err("the oldest block was not pushed out".into())
    })?;
    ensure!(
        moved.evictions == [0; 8],
        "an eviction came first: {moved:?}"
    );
    for page in [0, 100, 255] {
        let at = rig.is_resident_and_mapped(&old, page)?;
        ensure!(
            at == (false, false),
            "(resident, mapped) of page {page} is {at:?}"
        );
        ensure!(
            rig.is_discarded(&old, page)?,
            "page {page} is not discarded"
        );
    }
    ensure!(
        (BLOCK / 2..BLOCK).contains(&moved.to_host),
        "{} bytes went to the host",
        moved.to_host
    );
    let half = Op::check(&old).range(WORDS / 2, WORDS / 2);
    rig.on_gpu(half.pattern(OLD + WORDS as u64 / 2, 1))?;
    rig.prefetch(&old, Uuid::CPU)?;
    zeros_or(&old, &[OLD])?;
    Ok(Pass::Ok)
}

/// Waits until the worker has nothing to do.
fn at_rest(rig: &Rig) -> Done {
    let deadline = Instant::now() + WITHIN;
    while rig.process.prefetch_worker_is_at_work()? {
        ensure!(
            Instant::now() < deadline,
            "the worker does not come to rest"
        );
        sleep(Duration::from_millis(5));
    }
    Ok(())
}
