// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Linux takes pages of ordinary memory back, and there is no memory to tell the GPU so.

use std::fs;

use uvm_suite::{ensure, skip, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, BLOCK};

use crate::{start, NONE};

/// While it is 1, the driver's notifier gets no memory for what it works with.
const PARAMETER: &str = "/sys/module/nvidia_uvm/parameters/uvm_rust_test_no_context";

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "notifier: without memory, too, a GPU loses the pages that Linux takes back",
        NONE,
        without_memory,
    );
}

/// Injects failures while it lives.
struct NoContext;

impl NoContext {
    fn new() -> std::io::Result<Self> {
        fs::write(PARAMETER, "1")?;
        Ok(Self)
    }
}

impl Drop for NoContext {
    fn drop(&mut self) {
        // The next test would hang or fail, and say so.
        let _ = fs::write(PARAMETER, "0");
    }
}

fn without_memory() -> Outcome {
    if fs::metadata(PARAMETER).is_err() {
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
        let injected = NoContext::new()?;
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
