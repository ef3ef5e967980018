// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Training steps of the zoo's networks, scaled down to the software GPU's memory.
//!
//! `uvm-dnn run POLICY [WORKLOAD...]` runs in the VM under the driver that is loaded, whose
//! parameters make the policy, and prints a cell of `out/dnn.json` a line; `uvm-dnn report
//! FILE --json FILE` puts them together. `scripts/dnn.sh` does both. `uvm-dnn simulate`
//! runs the same in uvmsim, on the host.
//!
//! `uvm-dnn plan FOLDER` writes steps, plans of uvmsim's and what it predicts of them;
//! `uvm-dnn play FOLDER DEVICE NET POLICY...` carries them out in the VM, with DEVICE as SSD,
//! and `uvm-dnn ssd FILE REPORT` puts what it printed into `out/ssd.json`.
//!
//! `uvm-dnn program NAME POLICY` is a program that `uvmrun` records, and runs with the plan of
//! its record; `uvm-dnn recorded TRACE PLAN FILE REPORT` compares what it printed with what uvmsim
//! predicts of it. `scripts/record-demo.sh` does all that. `uvm-dnn reaches` is another such program, of
//! `tests/parts/record-faults.sh`.

mod play;
mod program;
mod reaches;
mod recorded;
mod report;
mod run;
mod scaled;
mod simulate;

use anyhow::{bail, Result};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["run", policy, ref workloads @ ..] => run::run(policy, workloads),
        ["simulate", chunks, steps] => simulate::print(chunks.parse()?, steps.parse()?),
        ["plan", folder] => scaled::plan(folder, 56),
        ["plan", folder, mib] => scaled::plan(folder, mib.parse()?),
        ["play", folder, device, net, ref policies @ ..] => {
            play::run(folder, device, net, policies)
        }
        ["ssd", lines, report] => play::report(lines.as_ref(), report.as_ref()),
        ["program", name, policy] => recorded::run(name, policy),
        ["reaches"] => reaches::run(),
        ["recorded", trace, plan, lines, report] => recorded::judge::run(
            trace.as_ref(),
            plan.as_ref(),
            lines.as_ref(),
            report.as_ref(),
        ),
        ["report", from, "--json", to] => report::run(from.as_ref(), to.as_ref()),
        _ => bail!("usage: uvm-dnn run POLICY [WORKLOAD...] | uvm-dnn simulate CHUNKS ITERATIONS | uvm-dnn report FILE --json FILE | uvm-dnn plan FOLDER [MIB] | uvm-dnn play FOLDER DEVICE NET POLICY... | uvm-dnn ssd FILE REPORT | uvm-dnn program NAME POLICY | uvm-dnn reaches | uvm-dnn recorded TRACE PLAN FILE REPORT"),
    }
}
