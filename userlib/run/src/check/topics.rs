// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is said of each thing, from what was found.

use uvmrust::{uapi, Backend};
use uvmrust_system::{Driver, Gpu, NodeError, Whose};

use super::{parameters, Facts, Line, Origin, State};

/// How the module is loaded again.
pub(super) const RELOAD: &str = "sudo modprobe -r nvidia-uvm && sudo modprobe nvidia-uvm";

/// What makes the device's node, as NVIDIA's libraries do it.
const MAKE_NODE: &str = "sudo nvidia-modprobe -u -c 0";

fn line(topic: &'static str, state: State, says: impl Into<String>) -> Line {
    Line {
        topic,
        state,
        says: says.into(),
        fix: None,
    }
}

fn mend(topic: &'static str, state: State, says: impl Into<String>, fix: &str) -> Line {
    Line {
        fix: Some(fix.into()),
        ..line(topic, state, says)
    }
}

/// The page: from what everything else rests on to what is nice to have.
pub(super) fn lines(facts: &Facts) -> Vec<Line> {
    let mut lines = vec![driver(facts), module(facts), device(facts), cuda(facts)];
    lines.extend(gpus(facts));
    lines.extend(mig(facts));
    lines.push(backend(facts));
    lines.extend(features(facts));
    if let Some(module) = &facts.module {
        lines.extend(parameters::lines(module));
    }
    lines.extend(limits(facts));
    lines.push(preload(facts));
    lines
}

fn driver(facts: &Facts) -> Line {
    let Some(driver) = &facts.driver else {
        // Debian's package would take the place of a driver that came by another way.
        let fix = match (facts.installed, facts.origin) {
            (true, _) => "sudo modprobe nvidia",
            (false, Some(Origin::Dkms)) => {
                "install the headers of this kernel, then: sudo dkms autoinstall && \
                 sudo modprobe nvidia"
            }
            (false, Some(Origin::Installer)) => {
                "install the headers of this kernel, and run the NVIDIA-Linux-*.run again by \
                 which the driver came"
            }
            (false, None) => {
                "install NVIDIA's open driver for this kernel, by the way it came for the last; \
                 if there was none, on Debian: sudo apt install nvidia-open-kernel-dkms"
            }
        };
        return mend("driver", State::Broken, "none of NVIDIA's is loaded", fix);
    };
    let version = driver.version.as_deref().unwrap_or("of unknown version");
    match driver {
        Driver { software: true, .. } => {
            let says = "the software GPU (vgpu.ko) is in the place of NVIDIA's";
            line("driver", State::Note, says)
        }
        Driver { open: true, .. } => {
            let says = format!("NVIDIA's {version}, with the open kernel modules");
            line("driver", State::Works, says)
        }
        _ => {
            let says = format!(
                "NVIDIA's {version}, not known to be with the open kernel modules, which \
                 uvm-rust's module is built for"
            );
            line("driver", State::Note, says)
        }
    }
}

fn module(facts: &Facts) -> Line {
    let Some(module) = &facts.module else {
        return match facts.driver {
            Some(_) => {
                let says = "nvidia-uvm is not loaded";
                mend("module", State::Broken, says, "sudo modprobe nvidia-uvm")
            }
            None => line("module", State::Unknown, "nvidia-uvm needs the driver"),
        };
    };
    let version = module.version.as_deref().unwrap_or("an unknown version");
    match module.whose {
        Whose::UvmRust => {
            let interface = facts
                .interface
                .map(|i| format!(", interface {}", i.version));
            let says = format!(
                "uvm-rust's nvidia-uvm, for NVIDIA's {version}{}",
                interface.unwrap_or_default()
            );
            line("module", State::Works, says)
        }
        Whose::Nvidia => {
            let how = ours(facts).map(|how| format!(". For uvm-rust's: {how}"));
            let says = format!(
                "NVIDIA's own nvidia-uvm, {version}: no counts for uvmtop, no prefetching of \
                 announced kernels, no SSD tier{}",
                how.unwrap_or_default()
            );
            line("module", State::Note, says)
        }
    }
}

/// How uvm-rust's module comes here. `None`: it does not fit the driver, or its packages do not, which would have apt
/// replace a driver of another origin by Debian's (docs/install.md).
fn ours(facts: &Facts) -> Option<&'static str> {
    let open = facts.driver.as_ref().is_some_and(|driver| driver.open);
    match (open, facts.changer, facts.debian) {
        (true, true, _) => Some("sudo uvm-rust enable"),
        (true, false, true) => {
            Some("install the package uvm-rust-dkms, then: sudo uvm-rust enable")
        }
        _ => None,
    }
}

fn device(facts: &Facts) -> Line {
    let Some(error) = &facts.node else {
        return line("device", State::Works, "/dev/nvidia-uvm opens");
    };
    if facts.module.is_none() {
        return line(
            "device",
            State::Unknown,
            "nobody answers without the module",
        );
    }
    let again = format!("sudo rm /dev/nvidia-uvm && {MAKE_NODE}");
    let fix = match error {
        NodeError::Missing => {
            format!("{MAKE_NODE}; in a container: start that with its GPUs (docker run --gpus all)")
        }
        NodeError::NotDevice | NodeError::Stale | NodeError::Gone => again,
        NodeError::Denied => "sudo chmod 666 /dev/nvidia-uvm".into(),
        NodeError::Refused(_) => {
            format!(
                "the kernel's log says why (sudo dmesg | grep -iE 'nvidia|nvrm'); then {RELOAD}"
            )
        }
    };
    mend("device", State::Broken, error.to_string(), &fix)
}

fn cuda(facts: &Facts) -> Line {
    let Some(cuda) = facts.cuda else {
        if facts.driver.as_ref().is_some_and(|driver| driver.software) {
            return line(
                "CUDA",
                State::Note,
                "none, and none is needed by the software GPU",
            );
        }
        let fix = "install the libraries of NVIDIA's driver, of its version; on Debian: \
                   sudo apt install libcuda1";
        return mend("CUDA", State::Broken, "libcuda.so.1 is not found", fix);
    };
    let version = match cuda.version {
        Some(version) => format!("{}.{}", version / 1000, version % 1000 / 10),
        None => "of unknown version".into(),
    };
    line("CUDA", State::Works, format!("{version} (libcuda.so.1)"))
}

fn gpus(facts: &Facts) -> Vec<Line> {
    let Some(driver) = &facts.driver else {
        return vec![line(
            "GPU",
            State::Unknown,
            "none is seen without the driver",
        )];
    };
    if facts.gpus.is_empty() && driver.software {
        let says = "the software GPU is shown while a program uses it";
        return vec![line("GPU", State::Note, says)];
    }
    if facts.gpus.is_empty() {
        let fix = "lspci -d 10de: shows whether there is one, and sudo dmesg | grep NVRM why \
                   the driver does not take it";
        return vec![mend("GPU", State::Broken, "the driver shows none", fix)];
    }
    let one = |gpu: &Gpu| {
        let uuid = gpu.uuid.map(|uuid| uuid.to_string());
        let parts = [
            gpu.name.clone(),
            uuid.or(Some("not started yet".into())),
            gpu.bus.clone(),
            gpu.id.map(|_| "in use by UVM".into()),
        ];
        let says: Vec<_> = parts.into_iter().flatten().collect();
        line("GPU", State::Works, says.join(", "))
    };
    facts.gpus.iter().map(one).collect()
}

/// Nothing of a machine without GPUs.
fn mig(facts: &Facts) -> Option<Line> {
    if facts.gpus.is_empty() {
        return None;
    }
    let instances: usize = facts.gpus.iter().map(|gpu| gpu.instances).sum();
    if instances == 0 {
        return Some(line("MIG", State::Works, "no GPU is divided"));
    }
    let counted = match facts.driver.as_ref().and_then(Driver::major) {
        Some(580..) => "nothing is counted for them from driver 580 on",
        _ => "each is a GPU of its own to UVM; uvmtop shows it to root only",
    };
    let says = format!("{instances} GPU instances; {counted}");
    Some(line("MIG", State::Note, says))
}

fn backend(facts: &Facts) -> Line {
    let says = match facts.who {
        Backend::UvmRust => "uvm-rust's driver: eager and lazy, many ranges a call",
        Backend::Native => "NVIDIA's driver: eager and lazy, one range a call",
        Backend::Cuda => "CUDA 13's, with a prefetch to the GPU: eager only",
        Backend::None => return no_backend(facts),
    };
    line("discard", State::Works, says)
}

fn no_backend(facts: &Facts) -> Line {
    let says = "nobody discards: programs run, and copy what nobody reads";
    if facts.node.is_some() {
        return line(
            "discard",
            State::Unknown,
            "not known before the device opens",
        );
    }
    // The parameter has a line of its own.
    let whose = facts.module.as_ref().map(|module| module.whose);
    if whose == Some(Whose::UvmRust) {
        return line("discard", State::Note, says);
    }
    let theirs = "NVIDIA's driver from 580 on";
    let fix = match ours(facts) {
        Some(how) if facts.changer => how.into(),
        Some(how) => format!("{how}; or {theirs}"),
        None => theirs.into(),
    };
    mend("discard", State::Problem, says, &fix)
}

/// What only our driver has.
fn features(facts: &Facts) -> Vec<Line> {
    let Some(interface) = facts.interface else {
        return Vec::new();
    };
    let has = |feature| interface.features & feature != 0;
    let on = |name| {
        let module = facts.module.as_ref();
        module.and_then(|module| module.number(name)).unwrap_or(0) > 0
    };
    let mut lines = Vec::new();
    if has(uapi::FEATURE_EXEC_ID) {
        let says = match on("uvm_rust_prefetch") {
            true => "announced kernels are learnt from, and what they need is prefetched",
            false => {
                "announced kernels are learnt from; nothing is prefetched for them \
                 (uvm_rust_prefetch=0)"
            }
        };
        lines.push(line("kernels", State::Works, says));
    }
    if has(uapi::FEATURE_STATS) {
        let says = match (facts.admin, on("uvm_rust_stats_public")) {
            (_, true) => "uvmtop shows everybody what all processes do",
            (true, _) => "uvmtop shows what all processes do, to root",
            (false, _) => "sudo uvmtop shows what all processes do; it is not for other users",
        };
        lines.push(line("statistics", State::Works, says));
    }
    lines.push(ssd(facts, has(uapi::FEATURE_FLASH)));
    lines
}

fn ssd(facts: &Facts, on: bool) -> Line {
    if !on {
        let says = "off (uvm_rust_flash=0): managed memory is in the host's and the GPUs'";
        return line("SSD tier", State::Note, says);
    }
    let Some(ssd) = facts.ssd else {
        return line("SSD tier", State::Unknown, "on, and it does not say more");
    };
    if !ssd.attached {
        return line("SSD tier", State::Note, "on, and no device is attached");
    }
    let says = format!(
        "{} attached, {} of it used by this user and cgroup",
        size(ssd.bytes),
        size(ssd.bytes_mine)
    );
    if ssd.write_errors + ssd.read_errors + ssd.lost_pages == 0 {
        return line("SSD tier", State::Works, says);
    }
    let says = format!(
        "{says}; {} writes and {} reads failed, {} pages are lost",
        ssd.write_errors, ssd.read_errors, ssd.lost_pages
    );
    let fix = "the device fails: sudo dmesg, sudo smartctl -a DEVICE; attach another";
    mend("SSD tier", State::Problem, says, fix)
}

fn limits(facts: &Facts) -> Vec<Line> {
    let limits = &facts.limits;
    let mut lines = Vec::new();
    if let Some(bytes) = limits.address_space {
        let says = format!(
            "address space is limited to {}: CUDA reserves more than it uses, and fails",
            size(bytes)
        );
        lines.push(mend("limits", State::Problem, says, "ulimit -v unlimited"));
    }
    if let Some(host) = limits.host {
        let available = limits.available.unwrap_or(0);
        let says = format!("{} of {} available", size(available), size(host));
        lines.push(line("host memory", State::Works, says));
    }
    let host = limits.host.unwrap_or(u64::MAX);
    if let Some(bytes) = limits.cgroup.filter(|&bytes| bytes < host) {
        let says = format!(
            "this memory cgroup may have {}: managed memory that leaves the GPU counts in it \
             (memory.max)",
            size(bytes)
        );
        lines.push(line("cgroup", State::Note, says));
    }
    lines
}

fn preload(facts: &Facts) -> Line {
    match &facts.preload {
        Some(path) => line("preload", State::Works, path.display().to_string()),
        None => {
            let says = "libuvmrust_preload.so is not there, without which uvmrun runs nothing";
            let fix =
                "make -C userlib install, with Rust 1.88 or later; or give it: --library FILE";
            mend("preload", State::Problem, says, fix)
        }
    }
}

/// A number of bytes for people to read, in the largest unit that makes it at least 1.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}
