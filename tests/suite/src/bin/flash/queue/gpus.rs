// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Requests to several GPUs, each of which has a lane: what comes to one does not wait for what comes to another.

use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Outcome, Pass};
use vgpu_client::flash::{FlashCompletion, FlashRequest, AFTER, TO_GPU, TO_HOST};
use vgpu_client::{Buffer, Gpu, Kernel, Op};

use super::{all_well, by_block, reap, submit, to_gpu, users};
use crate::rig::{check, no_leak, write, Done, Rig};
use crate::wear::limit;

/// For what takes a dozen seconds; the VM is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// The place of a request that is not done.
const NEVER: usize = usize::MAX;

/// How many were done before this one.
fn place(done: &[FlashCompletion], user: u64) -> usize {
    let found = done.iter().position(|c| c.user_data == user);
    found.unwrap_or(NEVER)
}

/// Six blocks leave, which takes a dozen seconds at this rate, and what comes to the first GPU is to wait for them. What
/// comes to the second one, and to the host, was submitted later, and is done before.
pub(super) fn apart() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let Ok(second) = rig.process.gpu(1) else {
        skip!("there is one GPU: GPUS=2");
    };
    let (leaves, waits) = (rig.buffer(6)?, rig.buffer(1)?);
    let (goes, comes) = (rig.buffer(3)?, rig.buffer(2)?);
    for buffer in [&leaves, &waits, &goes, &comes] {
        write(buffer, 97);
    }
    for buffer in [&waits, &goes, &comes] {
        rig.spill(buffer)?;
    }
    let mut done = Vec::new();
    {
        let _slow = limit("1")?;
        let mut all = by_block(&leaves, 0, 0);
        let held = to_gpu(&rig, &waits, 50);
        all.push(FlashRequest {
            flags: held.flags | AFTER,
            ..held
        });
        all.extend(by_block(&goes, TO_GPU, 100).into_iter().map(|one| {
            let gpu_uuid = second.uuid().0;
            FlashRequest { gpu_uuid, ..one }
        }));
        all.extend(by_block(&comes, TO_HOST, 200));
        // It goes where the one that is held goes, and so behind that.
        all.push(to_gpu(&rig, &leaves, 51));
        submit(&rig, &all)?;
        // Until it has come, or all have: those that leave take a dozen seconds.
        let start = Instant::now();
        while place(&done, 102).max(place(&done, 201)) == NEVER && start.elapsed() < PATIENCE {
            done.extend(rig.process.flash_reap(20, 1, 1000)?.0);
        }
    }
    done.extend(reap(&rig, 13 - done.len())?);
    all_well(&done)?;
    for last in [102, 201] {
        ensure!(
            place(&done, last) < place(&done, 5),
            "{last} has waited: {done:?}"
        );
    }
    ensure!(users(&done, 100..200) == [100, 101, 102], "{done:?}");
    ensure!(users(&done, 200..300) == [200, 201], "{done:?}");
    ensure!(
        (place(&done, 50), place(&done, 51)) == (11, 12),
        "not in order: {done:?}"
    );
    let stats = rig.stats()?;
    ensure!(stats.pages == 0, "some stay on the device: {stats:?}");
    for (gpu, buffer) in [(&rig.gpu, &waits), (&rig.gpu, &leaves), (&second, &goes)] {
        sees(gpu, buffer)?;
    }
    for buffer in [&leaves, &waits, &goes, &comes] {
        check(buffer, 97)?;
    }
    drop((leaves, waits, goes, comes));
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// The data are there, and right, to a kernel of this GPU's.
fn sees(gpu: &Gpu, buffer: &Buffer<u64>) -> Done {
    let op = Op::check(buffer).pattern(97, 1).warps(8);
    gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
    gpu.drain_faults()?;
    Ok(())
}
