// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What leaves GPUs: a part is on its way to the host while the one before it is written.

use uvm_suite::{ensure, Failure, Outcome, Pass};
use vgpu_client::flash::{FROM_GPUS, TO_HOST};
use vgpu_client::{Kernel, Op, BLOCK, PAGE};

use super::{all_well, reap, request, submit, users};
use crate::rig::{check, no_leak, Rig, WORDS};
use crate::wear::limit;

/// Blocks that are more than two parts of 16 MiB.
pub(super) const FAR: usize = 20;

/// What a GPU has written goes on to the device, or to the host, whichever is asked for.
pub(super) fn from_gpu() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let (far, near) = (rig.buffer(FAR)?, rig.buffer(2)?);
    rig.gpu_write(&far, 71)?;
    rig.gpu_write(&near, 73)?;
    // It stays where it is, if nothing is said of GPUs.
    submit(&rig, &[request(&far, 0, 0)])?;
    all_well(&reap(&rig, 1)?)?;
    ensure!(rig.stats()?.pages == 0, "{:?}", rig.stats()?);
    let requests = [
        request(&far, FROM_GPUS, 1),
        request(&near, FROM_GPUS | TO_HOST, 2),
    ];
    submit(&rig, &requests)?;
    let done = reap(&rig, 2)?;
    all_well(&done)?;
    ensure!(users(&done, 0..9) == [1, 2], "{done:?}");
    let stats = rig.stats()?;
    ensure!(stats.pages == FAR as u64 * BLOCK / PAGE, "{stats:?}");
    ensure!(stats.host_pages >= 2 * BLOCK / PAGE, "{stats:?}");
    // What is on the device already is not read for it.
    submit(&rig, &[request(&far, FROM_GPUS, 3)])?;
    all_well(&reap(&rig, 1)?)?;
    ensure!(rig.stats()?.fetched == stats.fetched, "{stats:?}");
    check(&near, 73)?;
    check(&far, 71)?;
    Ok(Pass::Ok)
}

/// Processor and GPU write to it while it leaves: what was written last is there, wherever it is by then.
pub(super) fn used_meanwhile() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let far = rig.buffer(FAR)?;
    rig.gpu_write(&far, 79)?;
    // The first two words of each block.
    let mut want: Vec<_> = (0..FAR * WORDS)
        .step_by(WORDS)
        .map(|first| [79 + first as u64, 80 + first as u64])
        .collect();
    {
        // A part takes two seconds.
        let _slow = limit("8")?;
        submit(&rig, &[request(&far, FROM_GPUS, 1)])?;
        let mut rounds = 0;
        while rig.process.flash_reap(0, 0, 0)?.1 > 0 {
            for (block, words) in want.iter_mut().enumerate() {
                let which = (rounds + block) % 2;
                let (at, value) = (block * WORDS + which, (rounds << 32 | block) as u64);
                if which == 0 {
                    far.set(at, value);
                } else {
                    let op = Op::write(&far).range(at, 1).pattern(value, 0);
                    rig.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
                }
                words[which] = value;
            }
            rounds += 1;
        }
        ensure!(rounds > 1, "it was gone at once");
    }
    rig.gpu.drain_faults()?;
    all_well(&reap(&rig, 1)?)?;
    let stats = rig.stats()?;
    ensure!(stats.written > 0, "nothing was written: {stats:?}");
    let is = |at: usize| match at % WORDS {
        which @ (0 | 1) => want[at / WORDS][which],
        _ => 79 + at as u64,
    };
    if let Some((at, seen)) = far.first_other(is) {
        let why = format!("word {at} is {seen:#x}, not {:#x}", is(at));
        return Err(Failure::from(why));
    }
    drop(far);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}
