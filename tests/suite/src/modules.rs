// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Loading and unloading nvidia-uvm.ko and vgpu.ko, as `make vm` does it.

use std::env;
use std::fs;
use std::process::Command;

use crate::Failure;

/// A module that `make vm` names in the environment.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its name to the kernel.
    pub name: &'static str,
    file: String,
    parameters: Vec<String>,
}

impl Module {
    /// nvidia-uvm.ko, or `None` outside `make vm`.
    pub fn uvm() -> Option<Self> {
        let which = match env::var("DRIVER").as_deref() {
            Ok("upstream") => "UVM_KO_UPSTREAM",
            _ => "UVM_KO_RUST",
        };
        Self::from_env("nvidia_uvm", which, "UVM_ARGS")
    }

    /// vgpu.ko, or `None` outside `make vm`.
    pub fn vgpu() -> Option<Self> {
        Self::from_env("vgpu", "VGPU_KO", "VGPU_ARGS")
    }

    fn from_env(name: &'static str, file: &str, parameters: &str) -> Option<Self> {
        let parameters = env::var(parameters).unwrap_or_default();
        let parameters = parameters.split_whitespace().map(str::to_owned).collect();
        Some(Self {
            name,
            file: env::var(file).ok()?,
            parameters,
        })
    }

    /// Loads the module, with its parameters; fails if it is loaded.
    pub fn load(&self) -> Result<(), Failure> {
        self.load_with(&[])
    }

    /// Loads it with more parameters, which count for more than its own.
    pub fn load_with(&self, more: &[&str]) -> Result<(), Failure> {
        run(Command::new("insmod")
            .arg(&self.file)
            .args(&self.parameters)
            .args(more))
    }

    /// Unloads the module; fails while somebody uses it.
    pub fn unload(&self) -> Result<(), Failure> {
        run(Command::new("rmmod").arg(self.name))
    }

    /// Does /sys/module have it?
    pub fn is_loaded(&self) -> bool {
        fs::metadata(format!("/sys/module/{}", self.name)).is_ok()
    }
}

/// A parameter of a loaded module.
pub fn parameter(module: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/module/{module}/parameters/{name}")).ok()?;
    Some(text.trim().to_owned())
}

/// A parameter of a loaded module that has another value while this lives.
pub struct SetParameter {
    path: String,
    before: String,
}

impl SetParameter {
    /// Sets it; `None` if there is no such parameter.
    pub fn new(module: &str, name: &str, value: &str) -> Result<Option<Self>, Failure> {
        let Some(before) = parameter(module, name) else {
            return Ok(None);
        };
        let path = format!("/sys/module/{module}/parameters/{name}");
        fs::write(&path, value)?;
        Ok(Some(Self { path, before }))
    }
}

impl Drop for SetParameter {
    fn drop(&mut self) {
        // The next test would go wrong, and say so.
        let _ = fs::write(&self.path, &self.before);
    }
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", error.trim()).into())
}
