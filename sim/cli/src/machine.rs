// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim machine`, and the machine options of all commands.

use clap::Arg;
use clap::ArgMatches;
use clap::FromArgMatches;
use serde_json::json;
use serde_json::Map;
use serde_json::Value;
use uvmsim_machine::evict_policies;
use uvmsim_machine::presets;
use uvmsim_machine::Machine;
use uvmsim_machine::Unit;
use uvmsim_machine::CONSTANTS;

use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// The machine to show; without it, all are listed.
    name: Option<String>,
    /// Print JSON: the list, or the constants.
    #[arg(long)]
    json: bool,
}

/// A machine, chosen by name and changed constant by constant.
///
/// There is an option for each of [`CONSTANTS`], and `--pcie` for both directions
/// of the link.
#[derive(Clone, Debug)]
pub struct Choice {
    name: Option<String>,
    changes: Vec<(&'static str, String)>,
}

const HEADING: &str = "Machine";

impl Choice {
    /// Whether a preset was named.
    pub fn is_named(&self) -> bool {
        self.name.is_some()
    }

    /// Whether the user set `option`.
    pub fn is_set(&self, option: &str) -> bool {
        self.changes.iter().any(|(o, _)| *o == option)
    }

    /// The machine, from the preset `default` unless one was named.
    pub fn machine(&self, default: &str) -> Result<Machine, Failure> {
        let name = self.name.as_deref().unwrap_or(default);
        let mut machine = find(name)?;
        for (option, value) in &self.changes {
            let options: &[&str] = if *option == "pcie" {
                &["pcie-h2d", "pcie-d2h"]
            } else {
                &[option]
            };
            for o in options {
                machine.set(o, value).map_err(Failure::usage)?;
            }
        }
        check(&machine)?;
        Ok(machine)
    }
}

fn find(name: &str) -> Result<Machine, Failure> {
    presets::find(name).ok_or_else(|| {
        let names = presets::names();
        Failure::usage(format!("no machine is called `{name}`; there are {names}"))
    })
}

/// Refuses a machine on which nothing could run.
fn check(m: &Machine) -> Result<(), Failure> {
    let counts = [
        ("fault-batch", m.fault_batch),
        ("copy-engines", m.copy_engines),
        ("ssd-request", m.ssd_request),
        ("ssd-parallelism", m.ssd_parallelism),
    ];
    if let Some((option, _)) = counts.iter().find(|(_, n)| *n == 0) {
        return Err(Failure::usage(format!("--{option} must be at least 1")));
    }
    let wrong = if m.chunks() < 16 {
        "--gpu-mem must be at least 32MiB"
    } else if m.pcie_h2d <= 0.0 || m.pcie_d2h <= 0.0 {
        "--pcie must be greater than 0"
    } else if m.gpu_bw <= 0.0 || m.zero_share <= 0.0 {
        "--gpu-bw and --zero-share must be greater than 0"
    } else if m.host_mem == 0 && m.ssd_write <= 0.0 {
        "there is nowhere to evict to: set --host-mem or --ssd-write"
    } else if (m.ssd_write > 0.0) != (m.ssd_read > 0.0) {
        "set both --ssd-read and --ssd-write, or neither"
    } else if m.gpus == 0 || m.gpus > 1 && m.nvlink <= 0.0 {
        "--gpus must be at least 1, and --nvlink greater than 0"
    } else {
        return Ok(());
    };
    Err(Failure::usage(wrong))
}

impl FromArgMatches for Choice {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut changes = Vec::new();
        for option in std::iter::once("pcie").chain(CONSTANTS.iter().map(|c| c.option)) {
            if let Some(v) = matches.get_one::<String>(option) {
                changes.push((option, v.clone()));
            }
        }
        Ok(Self {
            name: matches.get_one::<String>("machine").cloned(),
            changes,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Choice {
    fn augment_args(command: clap::Command) -> clap::Command {
        let arg = |name: &'static str, value: &'static str, help: String| {
            Arg::new(name)
                .long(name)
                .value_name(value)
                // So that the message says what is wrong with -4GiB.
                .allow_hyphen_values(true)
                .help(help)
                .help_heading(HEADING)
        };
        let command = command
            .arg(arg(
                "machine",
                "NAME",
                format!("preset to start from: {}", presets::names()),
            ))
            .arg(arg(
                "pcie",
                "GB/S",
                "rate of the link, both directions".into(),
            ));
        CONSTANTS.iter().fold(command, |command, c| {
            let value = match c.unit {
                Unit::Bytes => "BYTES",
                Unit::Rate => "GB/S",
                Unit::Flops => "TFLOP/S",
                Unit::Time => "TIME",
                Unit::Count => "N",
                Unit::Share => "SHARE",
                Unit::EvictPolicy => "POLICY",
            };
            let common = matches!(
                c.option,
                "gpu-mem" | "host-mem" | "ssd-read" | "ssd-write" | "evict-policy"
            );
            let help = match c.unit {
                Unit::EvictPolicy => format!("{}: {}", c.meaning, evict_policies()),
                _ => c.meaning.into(),
            };
            command.arg(arg(c.option, value, help).hide_short_help(!common))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// The constants of `machine` by their options, in base units; a policy by its name.
pub fn constants(machine: &Machine) -> Value {
    let constants = CONSTANTS.iter().map(|c| {
        let value = c.get(machine);
        let value = match c.unit {
            Unit::EvictPolicy => json!(c.unit.show(value)),
            _ => json!(value),
        };
        (c.option.to_string(), value)
    });
    Value::Object(constants.collect::<Map<_, _>>())
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let text = match &args.name {
        None if args.json => {
            let list: Vec<_> = presets::PRESETS
                .iter()
                .map(|p| json!({"name": p.name, "about": p.about, "source": p.source}))
                .collect();
            format!("{:#}\n", json!(list))
        }
        None => presets::PRESETS
            .iter()
            .map(|p| format!("{:<14} {}\n", p.name, p.about))
            .collect(),
        Some(name) => {
            let m = find(name)?;
            if args.json {
                format!("{:#}\n", constants(&m))
            } else {
                let preset = presets::PRESETS.iter().find(|p| p.name == *name);
                let source = preset.map_or("", |p| &p.source);
                let mut out = format!("preset values from: {source}\n");
                for c in CONSTANTS {
                    let value = c.unit.show(c.get(&m));
                    out += &format!(
                        "--{:<20} {value:<16} {} [{}]\n",
                        c.option, c.meaning, c.source
                    );
                }
                out
            }
        }
    };
    crate::write_file("-", &text)
}
