// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The machines of the papers, and today's: those of `presets.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::Machine;
use crate::SetError;
use crate::COMMON;

/// A machine that has a name.
#[derive(Deserialize)]
pub struct Preset {
    /// What `--machine` calls it.
    pub name: String,
    /// The GPU and whose machine it is.
    pub about: String,
    /// Where its numbers are from.
    pub source: String,
    /// The preset that has what this one does not say.
    like: Option<String>,
    /// Constants by their options.
    #[serde(flatten)]
    constants: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Presets {
    preset: Vec<Preset>,
}

fn read() -> Result<Vec<Preset>, toml::de::Error> {
    toml::from_str(include_str!("../presets.toml")).map(|all: Presets| all.preset)
}

/// Every preset of the data file, in its order.
pub static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| read().unwrap_or_default());

impl Preset {
    fn machine(&'static self) -> Result<Machine, SetError> {
        let like = self.like.as_deref().and_then(find);
        let mut machine = Machine {
            preset: &self.name,
            ..like.unwrap_or(COMMON)
        };
        for (option, value) in &self.constants {
            machine.set(option, value)?;
        }
        Ok(machine)
    }
}

/// The names of all, for a message.
pub fn names() -> String {
    let names: Vec<&str> = PRESETS.iter().map(|p| &*p.name).collect();
    names.join(", ")
}

/// Finds a machine by name.
pub fn find(name: &str) -> Option<Machine> {
    let preset = PRESETS.iter().find(|p| p.name == name)?;
    preset.machine().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GIB;

    #[test]
    fn presets_are_whole() {
        assert!(read().is_ok(), "{:?}", read().err());
        for (i, p) in PRESETS.iter().enumerate() {
            let m = p.machine().unwrap();
            assert_eq!(m.preset, p.name);
            assert!(m.chunks() > 1000 && m.gpu_bw > 1e11, "{}", p.name);
            // A line of the list.
            assert!(p.about.len() <= 65, "{}", p.name);
            let rates = m.fp32 > 1e12 && m.tf32 >= m.fp32 && m.fp16 >= m.fp32;
            assert!(rates, "{}", p.name);
            assert!(PRESETS[i + 1..].iter().all(|q| q.name != p.name));
            // A machine is like one before it.
            let known = |like: &String| PRESETS[..i].iter().any(|q| q.name == *like);
            assert!(p.like.iter().all(known), "{}", p.name);
            let evicts = m.host_mem > 0 || m.ssd_read > 0.0;
            assert!(evicts, "{}: nowhere to evict to", p.name);
        }
        assert_eq!(find("a100").map(|m| m.gpu_mem), Some(40 * GIB));
        assert_eq!(find("h100").map(|m| m.fp32), Some(66.9e12));
        assert!(find("voodoo2").is_none());
    }

    /// Those of today by name, each with what tells it from the one that it is like.
    #[test]
    fn todays_machines_are_there() {
        let named = |name: &str| find(name).unwrap();
        let is = |m: &Machine, gb: u64, bw: f64, link: f64| {
            assert_eq!(m.gpu_mem, gb * 1_000_000_000, "{}", m.preset);
            let off = (m.pcie_h2d / link - 1.0).abs();
            assert!(m.gpu_bw == bw && off < 1e-9, "{}", m.preset);
            let preset = PRESETS.iter().find(|p| p.name == m.preset).unwrap();
            assert!(preset.source.contains("datasheet") || preset.source.contains("whitepaper"));
        };
        let share = named("v100-16").pcie_h2d / 15.754e9;
        let pcie5 = 63.015e9 * share;
        is(&named("rtx5090"), 32, 1792e9, pcie5);
        is(&named("h100"), 80, 3350e9, pcie5);
        is(&named("h100-nvl"), 94, 3900e9, pcie5);
        is(&named("h200"), 141, 4800e9, pcie5);
        is(&named("b200"), 180, 7700e9, pcie5);
        is(&named("gh200"), 96, 4000e9, 375e9);
        is(&named("gb200"), 186, 8000e9, 375e9 / 2.0);
        is(&named("b300-pcie6"), 270, 7700e9, 118e9 * share);
        for (array, one) in [("rtx5090-4ssd", "rtx5090"), ("h200-4ssd", "h200")] {
            let [array, one] = [named(array), named(one)];
            let (more, alike) = (array.ssd_read > 3.0 * one.ssd_read, array.fp16 == one.fp16);
            assert!(more && alike, "{}", array.preset);
            // Latency bounds neither.
            let requests = (array.ssd_request * array.ssd_parallelism) as f64;
            assert!(requests / array.ssd_read_latency as f64 > array.ssd_read / 1e9);
        }
    }
}
