// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Guest instructions that nvidia-uvm.ko spends.
//!
//! `uvm-bench measure NAME [TEXT]` runs in the VM under `-icount`, where one nanosecond
//! of CPU time is one instruction. It prints what it measured for the driver
//! NAME that is loaded, in rows whose name holds TEXT. `uvm-bench faults NAME BATCH`
//! does so for the fault loop with batches of BATCH, and `uvm-bench queues NAME` for the
//! eviction queues, which need no driver: outside the VM it is for callgrind.
//!
//! `uvm-bench report FILE` pairs the baseline with ours, and holds that against the bars. With
//! `--bars` it fails if one is missed. `--native` says that the unmodified driver has a discard of its
//! own, which has bars, too. `scripts/bench.sh` does all.

mod bars;
mod faults;
mod flash;
mod lists;
mod measure;
mod queues;
mod report;

use anyhow::{bail, Result};
use measure::Driver;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["measure", driver, ref only @ ..] if only.len() < 2 => {
            measure::run(Driver::named(driver)?, only.first().unwrap_or(&""))
        }
        ["faults", driver, batch] => faults::run(Driver::named(driver)?, batch.parse()?, None),
        ["faults", driver, batch, percent] => {
            faults::run(Driver::named(driver)?, batch.parse()?, Some(percent.parse()?))
        }
        ["queues", driver] => queues::run(Driver::named(driver)?),
        ["report", from, "--json", to, ref flags @ ..]
            if flags.iter().all(|flag| ["--bars", "--native"].contains(flag)) =>
        {
            let has = |flag| flags.contains(&flag);
            report::run(from.as_ref(), to.as_ref(), has("--bars"), has("--native"))
        }
        _ => bail!(
            "usage: uvm-bench measure upstream|rust|rust-c-loop|rust-flash [TEXT] | uvm-bench faults upstream|rust BATCH [PERCENT] | uvm-bench queues upstream|rust | uvm-bench report FILE --json FILE [--bars] [--native]"
        ),
    }
}
