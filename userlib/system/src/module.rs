// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! NVIDIA's driver and the UVM module that are loaded.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Root;

/// NVIDIA's driver (nvidia.ko), or what stands in for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Driver {
    /// Its version, as 550.163.01.
    pub version: Option<String>,
    /// `false`: NVIDIA's closed kernel module.
    pub open: bool,
    /// The software GPU of the tests (vgpu.ko) is in its place.
    pub software: bool,
}

impl Driver {
    /// What is loaded; `None`: nothing.
    pub fn loaded(root: &Root) -> Option<Self> {
        let says = root.line("/proc/driver/nvidia/version");
        let software = root.has("/sys/module/vgpu");
        if says.is_none() && !root.has("/sys/module/nvidia") && !software {
            return None;
        }
        let version = root.line("/sys/module/nvidia/version").or_else(|| {
            let mut words = says.as_deref()?.split_whitespace();
            words.find(|word| is_version(word)).map(str::to_owned)
        });
        Some(Self {
            version,
            open: says.is_some_and(|says| says.contains("Open Kernel Module")),
            software,
        })
    }

    /// The number before the first dot of the version.
    pub fn major(&self) -> Option<u32> {
        self.version.as_deref()?.split('.').next()?.parse().ok()
    }
}

/// Two or three numbers with dots between.
fn is_version(word: &str) -> bool {
    let parts: Vec<_> = word.split('.').collect();
    (2..=3).contains(&parts.len())
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whose nvidia-uvm it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// That of uvm-rust, which has module parameters of its own.
    UvmRust,
    /// NVIDIA's own module, without Rust in it.
    Nvidia,
}

/// The module nvidia-uvm that is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Module {
    /// Whether uvm-rust or NVIDIA built it.
    pub whose: Whose,
    /// The version of NVIDIA's driver that it is of.
    pub version: Option<String>,
    /// Its parameters, as far as this process may read them.
    pub parameters: BTreeMap<String, String>,
    /// How often it is in use.
    pub references: Option<u64>,
}

impl Module {
    /// What is loaded; `None`: nothing.
    pub fn loaded(root: &Root) -> Option<Self> {
        const MODULE: &str = "/sys/module/nvidia_uvm";
        if !root.has(MODULE) {
            return None;
        }
        let folder = format!("{MODULE}/parameters");
        let parameters: BTreeMap<_, _> = root
            .names(&folder)
            .into_iter()
            .filter_map(|name| {
                let value = root.line(&format!("{folder}/{name}"))?;
                Some((name, value))
            })
            .collect();
        // As `uvm-rust doctor` tells them apart.
        let ours = root.has(&format!("{folder}/uvm_rust_stats"));
        Some(Self {
            whose: if ours { Whose::UvmRust } else { Whose::Nvidia },
            version: root.line(&format!("{MODULE}/version")),
            parameters,
            references: root
                .line(&format!("{MODULE}/refcnt"))
                .and_then(|count| count.parse().ok()),
        })
    }

    /// A parameter that is a switch or a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.parameters.get(name)?.as_str() {
            "Y" => Some(1),
            "N" => Some(0),
            other => other.parse().ok(),
        }
    }
}
