// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Guest instructions that nvidia-uvm.ko spends.
//!
//! `uvm-bench measure NAME` runs in the VM under `-icount`, where one nanosecond
//! of CPU time is one instruction, and prints what it measured for the driver
//! NAME that is loaded; `uvm-bench faults NAME BATCH` does for the fault loop with
//! batches of BATCH. `uvm-bench report FILE` pairs the baseline with ours.
//! `scripts/bench.sh` does both.

mod faults;
mod measure;
mod report;

use anyhow::{bail, Result};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["measure", driver @ ("upstream" | "rust")] => measure::run(driver),
        ["faults", driver @ ("upstream" | "rust"), batch] => faults::run(driver, batch.parse()?),
        ["report", from, "--json", to] => report::run(from.as_ref(), to.as_ref()),
        _ => bail!("usage: uvm-bench measure upstream|rust | uvm-bench faults upstream|rust BATCH | uvm-bench report FILE --json FILE"),
    }
}
