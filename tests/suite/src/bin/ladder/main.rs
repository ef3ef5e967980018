// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The ladder: NVIDIA's built-in tests, from those that need no GPU to those that
//! need several, with a GPU really registered, and after each a look at the kernel
//! log. `docs/vgpu.md` lists what cannot pass on which GPU.
//!
//! Needs nvidia-uvm.ko with `uvm_enable_builtin_tests=1`, and vgpu.ko.

mod counters;
mod inject;
mod internal;
mod logic;
mod pair;
mod peers;
mod user;

use std::process::ExitCode;

use uvm_suite::{Allowed, Suite};
use vgpu_client::{Process, Vgpu};

const HELP: &str = "usage: ladder [--full] [--only TEXT]
  --full        NVIDIA's long forms of the stress tests as well
  --only TEXT   only tests whose name holds TEXT, such as 'step 7'
";

/// What the command line says.
struct Options {
    full: bool,
    only: Option<String>,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        full: false,
        only: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("full") => options.full = true,
            Long("only") => options.only = Some(parser.value()?.string()?),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(options)
}

/// What NVIDIA's tests say on purpose: they check that errors are noticed.
const NONE: &[Allowed] = &[];
const FATAL: &str = "Encountered a global fatal error";
const LOCKS: &[Allowed] = &[Allowed {
    text: "uvm_lock.c:",
    times: 80,
}];
const SEMAPHORE: &[Allowed] = &[
    Allowed {
        text: "MAX_JUMP",
        times: 20,
    },
    Allowed {
        text: FATAL,
        times: 100,
    },
];
const CHANNEL: &[Allowed] = &[
    Allowed {
        text: "completed_value",
        times: 2,
    },
    Allowed {
        text: "uvm_gpu_tracking_semaphore_is_completed",
        times: 4,
    },
    Allowed {
        text: FATAL,
        times: 8,
    },
    // The test makes channels write to an address that is nobody's.
    Allowed {
        text: "channel stopped",
        times: 4,
    },
    Allowed {
        text: "Detected a channel error",
        times: 8,
    },
    Allowed {
        text: "Channel error likely caused by push 'Fatal push 0xBAD'",
        times: 8,
    },
];
/// The test waits for the GPU's trackers with the lock of the VA space held, so UVM reports the order of its own
/// locks (docs/bases.md). It does so before each of the three times that it destroys the channels.
const SYNCS_TRACKERS: &[Allowed] = &[
    Allowed {
        text: "deeper lock UVM_LOCK_ORDER_VA_SPACE_SERIALIZE_WRITERS when trying to acquire UVM_LOCK_ORDER_ISR",
        times: 6,
    },
    Allowed {
        text: "Releasing lock UVM_LOCK_ORDER_ISR while still holding UVM_LOCK_ORDER_VA_SPACE_SERIALIZE_WRITERS",
        times: 3,
    },
    Allowed {
        text: "uvm_parent_gpu_replayable_faults_isr_lock",
        times: 3,
    },
    Allowed {
        text: "uvm_parent_gpu_non_replayable_faults_isr_lock",
        times: 3,
    },
    Allowed {
        text: "uvm_parent_gpu_non_replayable_faults_isr_unlock",
        times: 3,
    },
];
/// Its fake GPUs have no memory of such pages.
const PAGE_TREE: &[Allowed] = &[Allowed {
    text: "max_vidmem_page_size & tree->hal->page_sizes()",
    times: 100,
}];

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprint!("ladder: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let mut suite = Suite::new("ladder", options.only.clone());
    if !suite.test(
        "step 0: the driver and the software GPU are there",
        NONE,
        || {
            Process::new()?;
            Vgpu::open()?.info(0)?;
            Ok(uvm_suite::Pass::Ok)
        },
    ) {
        return suite.finish();
    }
    logic::run(&mut suite);
    internal::run(&mut suite, options.full);
    user::run(&mut suite);
    counters::run(&mut suite);
    pair::run(&mut suite);
    inject::run(&mut suite);
    suite.finish()
}
