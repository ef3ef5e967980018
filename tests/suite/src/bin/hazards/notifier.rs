// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Linux takes pages of ordinary memory back, and there is no memory to tell the GPU so.

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, BLOCK};

use crate::{start, NONE};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "notifier: without memory, too, a GPU loses the pages that Linux takes back",
        NONE,
        without_memory,
    );
}

fn without_memory() -> Outcome {
    // While it is set, the driver's notifier gets no memory for what it works with.
    let no_context = || SetParameter::new("nvidia_uvm", "uvm_rust_test_no_context", "1");
    if no_context()?.is_none() {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_no_context");
    }
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    let words = (BLOCK / 8) as usize;
    for round in 1..=4_u64 {
        let (old, new) = (
            Buffer::<u64>::ordinary(words)?,
            Buffer::<u64>::ordinary(words)?,
        );
        let write = Op::write(&old).pattern(round << 32, 1).warps(8);
        gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        // Each page that is moved away is taken from the GPU first.
        let injected = no_context()?;
        new.take_pages_of(&old)?;
        drop(injected);
        // Nobody wrote there since. A mapping that stayed leads to what was moved.
        let zeros = Op::check(&old).pattern(0, 0);
        gpu.launch(&Kernel::new().op(zeros))?.wait()?.ok()?;
        let moved = new.first_other(|i| (round << 32) + i as u64);
        ensure!(moved.is_none(), "{moved:x?} is not what was moved");
    }
    Ok(Pass::Ok)
}
