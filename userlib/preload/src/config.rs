// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the environment asks for, read once:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `UVMRUST_PRELOAD` | `0`: do nothing at all | 1 |
//! | `UVMRUST_MANAGED` | `0`: leave device memory as it is | 1 |
//! | `UVMRUST_MANAGED_MIN` | smallest allocation that becomes managed, or would, in bytes, or with K, M, G | 1M |
//! | `UVMRUST_MEMINFO` | `managed`: cuMemGetInfo tells what managed memory can hold, not the GPU's own | gpu |
//! | `UVMRUST_MAPPING` | `0`: programs are told that devices have no virtual memory management (`mapped.rs`) | 1 |
//! | `UVMRUST_POINTERS` | `device`: programs are told that what became managed is a device's memory (`pointers.rs`) | managed |
//! | `UVMRUST_ANNOUNCE` | `0`: announce no kernels | 1 |
//! | `UVMRUST_ANNOUNCE_EVERY` | GPU time from one announcement to the next in a stream, at least, in microseconds; `0`: each kernel is announced | 400 |
//! | `UVMRUST_ARGS` | `0`: leave arguments out of the execution ID | 1 |
//! | `UVMRUST_PLAN` | a plan to carry out (`planned.rs`, `followed.rs`) | none |
//! | `UVMRUST_PLAN_PID` | the one process that carries out a plan of a range, or `parent:` and its parent; `uvmrun` sets it | any |
//! | `UVMRUST_RECORD` | folder for a record of the program (`record.rs`); `uvmrun` makes it | none |
//! | `UVMRUST_RECORD_FAULTS` | `0`: do not record what kernels fault on | 1 |

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::say::say;

/// What the environment sets, as the table above has it; it is read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Smallest allocation that becomes managed, in bytes; `None`: none does.
    pub managed_min: Option<usize>,
    /// Smallest allocation of device memory that is recorded as it is; `None`: none is, since what
    /// is as large becomes managed, or there is no record.
    pub recorded_min: Option<usize>,
    /// Whether what the host has counts as memory of the GPU, where a program asks how much there is.
    pub host_in_info: bool,
    /// Whether a program is told that it can map no memory by itself.
    pub hide_mapping: bool,
    /// Whether a program that asks of an address is told that what became managed is a device's memory.
    pub hide_managed: bool,
    /// Whether to announce kernels.
    pub announce: bool,
    /// GPU time from one announcement to the next in a stream, at least, in microseconds.
    pub announce_every_us: u32,
    /// Whether arguments are part of the execution ID.
    pub hash_args: bool,
    /// The file with the plan to carry out; `None` if there is none.
    pub plan: Option<PathBuf>,
    /// Whether this process carries out a plan of a range. Programs that the planned one starts inherit
    /// its environment, and are not laid out as the plan says.
    pub plan_is_ours: bool,
    /// The folder in which each process records itself.
    pub record: Option<PathBuf>,
    /// Whether to record what kernels fault on.
    pub record_faults: bool,
}

impl Config {
    /// The settings of this process; the environment is read at the first call.
    pub fn get() -> &'static Self {
        static CONFIG: OnceLock<Config> = OnceLock::new();
        // Nothing is said while other threads wait for the settings.
        let complaints = RefCell::new(Vec::new());
        let config = CONFIG.get_or_init(|| {
            Self::from_vars(
                |name| std::env::var(name).ok(),
                |bad| complaints.borrow_mut().push(bad),
            )
        });
        complaints.into_inner().into_iter().for_each(say);
        config
    }

    /// Whether there is anything to do.
    #[cfg_attr(test, allow(dead_code))]
    pub fn active(&self) -> bool {
        self.managed_min.is_some()
            || self.hide_mapping
            || self.announce
            || self.plan.is_some()
            || self.record.is_some()
    }

    fn from_vars(var: impl Fn(&str) -> Option<String>, complain: impl Fn(String)) -> Self {
        let on = |name| var(name).is_none_or(|value| value != "0");
        let min = match var("UVMRUST_MANAGED_MIN") {
            None => DEFAULT_MIN,
            Some(text) => parse_size(&text).unwrap_or_else(|| {
                complain(format!(
                    "UVMRUST_MANAGED_MIN={text} is no size; write bytes, or 64K, 1M, 2G. Taking 1M"
                ));
                DEFAULT_MIN
            }),
        };
        let all = on("UVMRUST_PRELOAD");
        let path = |name| {
            let given = var(name).filter(|path| all && !path.is_empty());
            given.map(PathBuf::from)
        };
        let managed = all && on("UVMRUST_MANAGED");
        let record = path("UVMRUST_RECORD");
        let announce_every_us = match var("UVMRUST_ANNOUNCE_EVERY") {
            None => DEFAULT_EVERY_US,
            Some(text) => text.trim().parse().unwrap_or_else(|_| {
                complain(format!(
                    "UVMRUST_ANNOUNCE_EVERY={text} is no number of microseconds. Taking {DEFAULT_EVERY_US}"
                ));
                DEFAULT_EVERY_US
            }),
        };
        let chosen = |name: &str, usual: &str, other: &str| match var(name).as_deref() {
            None | Some("") => false,
            Some(given) if given == usual => false,
            Some(given) if given == other => managed,
            Some(given) => {
                complain(format!(
                    "{name}={given} is neither `{other}` nor `{usual}`. Taking {usual}"
                ));
                false
            }
        };
        Self {
            managed_min: managed.then_some(min),
            recorded_min: (!managed && record.is_some()).then_some(min),
            host_in_info: chosen("UVMRUST_MEMINFO", "gpu", "managed"),
            hide_managed: chosen("UVMRUST_POINTERS", "managed", "device"),
            hide_mapping: all && !on("UVMRUST_MAPPING"),
            announce: all && on("UVMRUST_ANNOUNCE"),
            announce_every_us,
            hash_args: on("UVMRUST_ARGS"),
            plan: path("UVMRUST_PLAN"),
            plan_is_ours: var("UVMRUST_PLAN_PID").is_none_or(|who| is_ours(&who)),
            record_faults: record.is_some() && on("UVMRUST_RECORD_FAULTS"),
            record,
        }
    }
}

/// Whether a process's number, or `parent:` and its parent's, is that of this process.
fn is_ours(who: &str) -> bool {
    let (number, own) = match who.strip_prefix("parent:") {
        Some(number) => (number, std::os::unix::process::parent_id()),
        None => (who, std::process::id()),
    };
    number.parse() == Ok(own)
}

/// PyTorch's large pool starts above this (`DeepUM` §5.2).
const DEFAULT_MIN: usize = 1 << 20;

/// An announcement costs a stream 20 µs, a twentieth of this (`groups.rs`).
const DEFAULT_EVERY_US: u32 = 400;

fn parse_size(text: &str) -> Option<usize> {
    let (digits, shift) = match text
        .trim()
        .split_at_checked(text.trim().len().checked_sub(1)?)?
    {
        (digits, "K" | "k") => (digits, 10),
        (digits, "M" | "m") => (digits, 20),
        (digits, "G" | "g") => (digits, 30),
        _ => (text.trim(), 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_unit() {
        for (text, size) in [
            ("4096", 4096),
            ("64K", 65536),
            ("1M", 1 << 20),
            (" 2g ", 2 << 30),
        ] {
            assert_eq!(parse_size(text), Some(size));
        }
        for text in [
            "",
            "K",
            "x",
            "-1",
            "99999999999999999999",
            "99999999999999G",
            "1MM",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn the_environment_turns_parts_off() {
        let with = |set: &'static [(&str, &str)]| {
            let var = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            Config::from_vars(var, |_| ())
        };
        let all = Config {
            managed_min: Some(1 << 20),
            recorded_min: None,
            host_in_info: false,
            hide_managed: false,
            hide_mapping: false,
            announce: true,
            announce_every_us: 400,
            hash_args: true,
            plan: None,
            plan_is_ours: true,
            record: None,
            record_faults: false,
        };
        assert_eq!(with(&[]), all);
        assert_eq!(with(&[("UVMRUST_MANAGED_MIN", "what")]), all);
        let off = with(&[("UVMRUST_PRELOAD", "0")]);
        assert_eq!((off.managed_min, off.announce), (None, false));
        let plan = with(&[("UVMRUST_PLAN", "a.uvmplan")]).plan;
        assert_eq!(plan, Some("a.uvmplan".into()));
        let own = std::process::id();
        for (who, ours) in [
            (own.to_string(), true),
            ("1".into(), own == 1),
            (format!("parent:{own}"), false),
            (
                format!("parent:{}", std::os::unix::process::parent_id()),
                true,
            ),
        ] {
            assert_eq!(is_ours(&who), ours, "{who}");
        }
        let record = with(&[("UVMRUST_RECORD", "/tmp/a")]);
        assert_eq!(record.record, Some("/tmp/a".into()));
        assert!(record.record_faults);
        let without = with(&[("UVMRUST_RECORD", "/tmp/a"), ("UVMRUST_RECORD_FAULTS", "0")]);
        assert!(without.record.is_some() && !without.record_faults);
        assert_eq!(
            (record.managed_min, record.recorded_min),
            (Some(1 << 20), None)
        );
        let as_it_is = with(&[("UVMRUST_RECORD", "/tmp/a"), ("UVMRUST_MANAGED", "0")]);
        assert_eq!(
            (as_it_is.managed_min, as_it_is.recorded_min),
            (None, Some(1 << 20))
        );
        let off = with(&[("UVMRUST_PRELOAD", "0"), ("UVMRUST_PLAN", "a.uvmplan")]);
        assert!(!off.active());
        assert_eq!(with(&[("UVMRUST_MANAGED", "0")]).managed_min, None);
        let info = |set: &'static [(&str, &str)]| with(set).host_in_info;
        assert!(info(&[("UVMRUST_MEMINFO", "managed")]));
        assert!(!info(&[("UVMRUST_MEMINFO", "gpu")]));
        assert!(!info(&[("UVMRUST_MEMINFO", "1")]));
        assert!(!info(&[
            ("UVMRUST_MEMINFO", "managed"),
            ("UVMRUST_MANAGED", "0")
        ]));
        let pointers = |set: &'static [(&str, &str)]| with(set).hide_managed;
        assert!(pointers(&[("UVMRUST_POINTERS", "device")]));
        assert!(!pointers(&[("UVMRUST_POINTERS", "managed")]));
        assert!(!pointers(&[("UVMRUST_POINTERS", "1")]));
        assert!(!pointers(&[
            ("UVMRUST_POINTERS", "device"),
            ("UVMRUST_MANAGED", "0")
        ]));
        assert!(!with(&[("UVMRUST_ANNOUNCE", "0")]).announce);
        let hidden = with(&[
            ("UVMRUST_MAPPING", "0"),
            ("UVMRUST_MANAGED", "0"),
            ("UVMRUST_ANNOUNCE", "0"),
        ]);
        assert!(hidden.hide_mapping && hidden.active());
        let off = with(&[("UVMRUST_MAPPING", "0"), ("UVMRUST_PRELOAD", "0")]);
        assert!(!off.hide_mapping);
    }
}
