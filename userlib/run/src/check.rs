// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmrun --check`: what of unified memory works on this machine, and what to do about the
//! rest.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use uvmrust::uapi::FlashStats;
use uvmrust::Backend;
use uvmrust_system::{gpus, Cuda, Device, Driver, Gpu, Limits, Linux, Module, NodeError, Root};

mod parameters;
#[cfg(test)]
mod tests;
mod topics;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Print JSON, for programs to read.
    pub(crate) json: bool,
    /// Where /proc and the like are; for tests.
    pub(crate) root: PathBuf,
    /// The preload that is given.
    pub(crate) library: Option<PathBuf>,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// The thing is as it should be.
    Works,
    /// Good to know; nothing has to be done.
    Note,
    /// It could not be found out, for a reason that another line gives.
    Unknown,
    /// Programs run, but something is missing or slow.
    Problem,
    /// No program has unified memory on a GPU.
    Broken,
}

/// A line of the page: what is said of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    topic: &'static str,
    state: State,
    says: String,
    /// The command that mends it.
    fix: Option<String>,
}

/// What our driver answered to UVM_RUST_GET_VERSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Interface {
    version: u32,
    features: u64,
}

/// All that was found out about this machine.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    driver: Option<Driver>,
    module: Option<Module>,
    node: Option<NodeError>,
    interface: Option<Interface>,
    backend: &'static str,
    cuda: Option<Cuda>,
    gpus: Vec<Gpu>,
    limits: Limits,
    /// What the SSD tier says to this user.
    ssd: Option<Ssd>,
    preload: Option<PathBuf>,
    #[serde(skip)]
    who: Backend,
    /// A module of NVIDIA's is installed for this kernel, loaded or not.
    #[serde(skip)]
    installed: bool,
    /// By what one came here, built for another kernel perhaps.
    #[serde(skip)]
    origin: Option<Origin>,
    /// `uvm-rust`, which changes modules, is installed.
    #[serde(skip)]
    changer: bool,
    /// Debian's package of NVIDIA's open driver is installed, beside which ours can be installed.
    #[serde(skip)]
    debian: bool,
    /// This process is root's, whom the driver tells everything.
    #[serde(skip)]
    admin: bool,
}

/// What builds a driver again for a kernel that has none.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Dkms,
    /// NVIDIA's `.run`, without DKMS.
    Installer,
}

/// The SSD tier. What is of all tenants is 0 to who may not see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Ssd {
    attached: bool,
    bytes: u64,
    bytes_mine: u64,
    write_errors: u64,
    read_errors: u64,
    lost_pages: u64,
}

impl From<FlashStats> for Ssd {
    fn from(stats: FlashStats) -> Self {
        Self {
            attached: stats.attached != 0,
            bytes: u64::from(stats.slots) << 21,
            bytes_mine: stats.pages_mine.saturating_mul(4096),
            write_errors: stats.write_errors,
            read_errors: stats.read_errors,
            lost_pages: stats.lost_pages,
        }
    }
}

/// What a machine's files do not tell.
pub(crate) struct Host<'a> {
    root: &'a Root,
    device: &'a dyn Device,
    cuda: Option<Cuda>,
    preload: Option<PathBuf>,
    admin: bool,
}

/// Checks this machine; gives what is to be printed, and the exit status.
pub(crate) fn check(options: &Options, preload: Option<PathBuf>) -> (String, u8) {
    let root = Root::new(&options.root);
    let real = options.root.as_os_str() == "/";
    let facts = Facts::gather(Host {
        root: &root,
        device: &Linux(root.clone()),
        cuda: real.then(Cuda::load).flatten(),
        preload,
        // SAFETY: takes nothing and changes nothing.
        admin: unsafe { libc::geteuid() } == 0,
    });
    let lines = topics::lines(&facts);
    let status = status(&lines);
    let text = match options.json {
        true => json(&facts, &lines, status),
        false => text(&lines, status),
    };
    (text, status)
}

impl Facts {
    fn gather(host: Host<'_>) -> Self {
        let root = host.root;
        let (node, descriptor) = match host.device.open() {
            Ok(descriptor) => (None, Some(descriptor)),
            Err(error) => (Some(error), None),
        };
        let version = descriptor.as_deref();
        let version = version.and_then(|d| d.version().ok().flatten());
        let interface = version.map(|v| Interface {
            version: v.version,
            features: v.features,
        });
        let ssd = match interface {
            Some(_) => descriptor.as_deref().and_then(|d| d.flash().ok()),
            None => None,
        };
        let driver_backend = descriptor.map_or(Backend::None, |d| d.backend());
        // As libuvmrust prefers them.
        let who = match driver_backend {
            Backend::None if host.cuda.is_some_and(|cuda| cuda.discards) => Backend::Cuda,
            other => other,
        };
        Self {
            driver: Driver::loaded(root),
            module: Module::loaded(root),
            node,
            interface,
            backend: backend_name(who),
            cuda: host.cuda,
            gpus: gpus(root),
            limits: Limits::now(root),
            ssd: ssd.map(Ssd::from),
            preload: host.preload,
            who,
            installed: installed(root),
            origin: origin(root),
            changer: root.has("/usr/bin/uvm-rust") || root.has("/usr/local/bin/uvm-rust"),
            debian: root.has("/var/lib/dkms/nvidia-current-open"),
            admin: host.admin,
        }
    }
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::None => "none",
        Backend::UvmRust => "uvm-rust",
        Backend::Native => "nvidia",
        Backend::Cuda => "cuda",
    }
}

/// Whether modprobe would find NVIDIA's driver.
fn installed(root: &Root) -> bool {
    let Some(kernel) = root.line("/proc/sys/kernel/osrelease") else {
        return false;
    };
    let known = root.text(&format!("/lib/modules/{kernel}/modules.dep"));
    // Debian's names, and NVIDIA's.
    let names = ["nvidia.ko", "nvidia-current-open.ko", "nvidia-current.ko"];
    known.unwrap_or_default().lines().any(|line| {
        let module = line.split(':').next().unwrap_or_default();
        let file = module.rsplit('/').next().unwrap_or_default();
        names.iter().any(|name| file.starts_with(name))
    })
}

fn origin(root: &Root) -> Option<Origin> {
    // NVIDIA's for GPUDirect Storage is no driver of GPUs.
    let driver = |name: &String| name.starts_with("nvidia") && name != "nvidia-fs";
    if root.names("/var/lib/dkms").iter().any(driver) {
        return Some(Origin::Dkms);
    }
    root.has("/usr/bin/nvidia-installer")
        .then_some(Origin::Installer)
}

/// 0: all works; 1: programs run, but there is something to do; 2: there is no unified memory.
fn status(lines: &[Line]) -> u8 {
    let any = |state| lines.iter().any(|line| line.state == state);
    match (any(State::Broken), any(State::Problem)) {
        (true, _) => 2,
        (false, true) => 1,
        (false, false) => 0,
    }
}

fn json(facts: &Facts, lines: &[Line], status: u8) -> String {
    let report = serde_json::json!({
        "format": 1,
        "status": status,
        "checks": lines,
        "facts": facts,
    });
    let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
    text.push('\n');
    text
}

/// How far in a line's text begins, and how wide a page is.
const INDENT: usize = 15;
const WIDTH: usize = 96;

fn text(lines: &[Line], status: u8) -> String {
    let mut page = String::new();
    for line in lines {
        let mark = match line.state {
            State::Works | State::Note => ' ',
            State::Unknown => '?',
            State::Problem | State::Broken => '!',
        };
        let topic = format!("{mark} {}:", line.topic);
        let _ = writeln!(page, "{topic:<INDENT$}{}", wrapped(&line.says));
        if let Some(fix) = &line.fix {
            // On one line, however long, as it is to be copied.
            let _ = writeln!(page, "{:<INDENT$}-> {fix}", "");
        }
    }
    page.push_str(match status {
        0 => "\nUnified memory works here.\n",
        1 => {
            "\nUnified memory works here, but there is something to do: the lines with an arrow.\n"
        }
        _ => {
            "\nNo program has unified memory on a GPU here. Do what the arrows say, from the top.\n"
        }
    });
    page
}

/// Words in lines that are not too long, but for the first, which begins at the indent.
fn wrapped(text: &str) -> String {
    let mut page = String::new();
    let mut column = INDENT;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > INDENT && column + 1 + width > WIDTH {
            let _ = write!(page, "\n{:<INDENT$}", "");
            column = INDENT;
        } else if column > INDENT {
            page.push(' ');
            column += 1;
        }
        page.push_str(word);
        column += width;
    }
    page
}
