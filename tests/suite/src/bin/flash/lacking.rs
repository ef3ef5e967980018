// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Requests for memory of a GPU that nobody can have.

use std::time::{Duration, Instant};

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::flash::{FlashRequest, TO_GPU};
use vgpu_client::{Buffer, Kernel, Op, BLOCK};

use crate::rig::{no_leak, Rig, WORDS};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "a request waits for no memory of a GPU with its locks held",
        NONE,
        held,
    );
}

/// How long a request may look for memory: it looks some hundred times. One that waits for what is held does so for some
/// seconds each time.
const PATIENCE: Duration = Duration::from_secs(150);

/// All of the GPU's memory has pages that stay, as somebody holds them. A request for some of it fails after a while.
fn held() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    if !rig.process.has_hmm()? {
        skip!("no HMM");
    }
    let mut all = Vec::new();
    for round in 0..rig.gpu.info().usable_bytes() / BLOCK {
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        buffer.huge_pages(false)?;
        let write = Op::write(&buffer).pattern(round << 32, 1).warps(8);
        rig.gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        all.push(buffer);
    }
    let wanted = rig.buffer(4)?;
    wanted.fill(|i| i as u64);
    let Some(set) = SetParameter::new("nvidia_uvm", "uvm_rust_test_held", "1")? else {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_held");
    };
    let request = FlashRequest {
        base: wanted.address(),
        length: wanted.bytes(),
        flags: TO_GPU,
        gpu_uuid: rig.gpu.uuid().0,
        ..Default::default()
    };
    let start = Instant::now();
    rig.process.flash_submit(&[request], None)?;
    let done = rig.process.flash_reap(1, 1, PATIENCE.as_millis() as u32);
    let took = start.elapsed();
    drop(set);
    let (done, _) = done?;
    let status = done.first().map(|done| done.status);
    ensure!(status == Some(-libc::ENOMEM), "{status:?} after {took:?}");
    let wrong = wanted.first_other(|i| i as u64);
    ensure!(wrong.is_none(), "{wrong:x?} is not what was written");
    drop((all, wanted));
    no_leak(&rig)?;
    Ok(Pass::Ok)
}
