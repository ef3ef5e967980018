// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which parts there are: what `make test` and the other targets consist of.

mod cpus;
mod host;
mod long;
mod order;
mod versions;
mod vm;

use crate::part::Part;
use crate::setting::Setting;

/// The targets that have parts, as `scripts/test.sh` names them.
pub const TARGETS: &[&str] = &[
    "host",
    "vm",
    "kselftest",
    "flash",
    "extra",
    "debug",
    "versions",
    "all",
];

/// Where programs of the VM are.
const SUITE: &str = "target/release";

/// The parts of a target, in the order in which they begin.
///
/// # Errors
///
/// Fails with a sentence if there is no such target, or if nobody can say which bugs a base has.
pub fn parts(target: &str, setting: &Setting) -> Result<Vec<Part>, String> {
    let amount = amount(target);
    Ok(match target {
        "host" => host::parts(setting),
        "vm" => order::longest_first(cpus::with_cpus(vm::parts(setting, amount), setting)),
        "all" => [host::parts(setting), parts("vm", setting)?].concat(),
        "kselftest" => [
            vec![programs()],
            cpus::with_cpus(vm::selftests(setting), setting),
        ]
        .concat(),
        "flash" => [vec![programs()], vm::flash(setting, amount)].concat(),
        "extra" => long::extra(setting, amount)?,
        "debug" => long::debug(setting, amount),
        "versions" => [versions::parts(setting), versions::tags(setting)].concat(),
        _ => {
            let known = TARGETS.join(", ").replace(", all", " or all");
            return Err(format!("test.sh: use {known}, or list"));
        }
    })
}

/// The part that builds the programs which run in the VM.
pub fn programs() -> Part {
    Part::alone("build/programs", &["tests/parts/programs.sh"])
}

/// A command whose output comes before the sum of a target.
pub fn last_word(target: &str) -> Option<&'static [&'static str]> {
    (target == "versions").then_some(&["scripts/versions.sh", "table"])
}

/// How much is done of what one could do for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// What `tests/skips` calls it: "short" or "long".
    pub length: &'static str,
    times: u32,
    rounds: u32,
    loops: u32,
    ops: u32,
    fuzz: u32,
    odd_rounds: u32,
}

/// `make test` is to end within 40 minutes on two cores; `make test-extra` does it at length.
const SHORT: Amount = Amount {
    length: "short",
    times: 15,
    rounds: 6,
    loops: 60,
    ops: 4000,
    fuzz: 1500,
    odd_rounds: 2,
};
const LONG: Amount = Amount {
    length: "long",
    times: 100,
    rounds: 10,
    loops: 100,
    ops: 10000,
    fuzz: 5000,
    odd_rounds: 5,
};

/// How much a target does.
pub fn amount(target: &str) -> Amount {
    match target {
        "extra" | "debug" => LONG,
        _ => SHORT,
    }
}

/// " --seed N" where somebody has given a seed.
fn seed(setting: &Setting) -> String {
    setting
        .get("SEED")
        .map_or_else(String::new, |seed| format!(" --seed {seed}"))
}

/// The version of rustc, or zeros where there is none.
fn rustc(setting: &Setting) -> String {
    let said = setting.said(&["rustc", "--version"]).unwrap_or_default();
    said.split_whitespace().nth(1).unwrap_or("0.0.0").to_owned()
}

/// Says whether a version is that one or a later one.
fn at_least(min: &str, version: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        let plain = text.split(['-', '+', '~']).next().unwrap_or("");
        plain.split('.').map(|n| n.parse().unwrap_or(0)).collect()
    };
    numbers(version) >= numbers(min)
}

#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
