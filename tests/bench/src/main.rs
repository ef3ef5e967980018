// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Guest instructions that nvidia-uvm.ko spends.
//!
//! `uvm-bench measure NAME [TEXT]` runs in the VM under `-icount`, where one nanosecond
//! of CPU time is one instruction, and prints what it measured for the driver
//! NAME that is loaded, in rows whose name holds TEXT. `uvm-bench report FILE`
//! pairs the baseline with ours.
//! `scripts/bench.sh` does both.

mod lists;
mod measure;
mod report;

use anyhow::{bail, Result};
use measure::Driver;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["measure", driver, ref only @ ..] if only.len() < 2 => {
            let driver = match driver {
                "upstream" => Driver::Upstream,
                "rust" => Driver::Rust,
                "rust-c-loop" => Driver::RustWithCLoop,
                other => bail!("no driver '{other}': use upstream, rust or rust-c-loop"),
            };
            measure::run(driver, only.first().unwrap_or(&""))
        }
        ["report", from, "--json", to] => report::run(from.as_ref(), to.as_ref()),
        _ => bail!("usage: uvm-bench measure upstream|rust|rust-c-loop [TEXT] | uvm-bench report FILE --json FILE"),
    }
}
