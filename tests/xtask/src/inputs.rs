// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a part is made of, so that it runs again when, and only when, something of that changed.
//!
//! A lane in the VM is made of what its command names. A part on the host judges the whole checkout, with
//! all that is installed on the machine.

use crate::part::{How, Part};
use crate::setting::Setting;
use crate::skips::Known;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Scripts that no lane is made of: these start lanes, or do other things altogether. A script that is
/// not listed counts for every lane.
const NOT_OF_A_LANE: &[&str] = &[
    "bench.sh",
    "chroot.sh",
    "ci.sh",
    "clean.sh",
    "deny.sh",
    "deps.sh",
    "dnn.sh",
    "explore.sh",
    "fuzz.sh",
    "lines.sh",
    "links.py",
    "modules.sh",
    "mutants-guest.sh",
    "mutants-host.sh",
    "mutants.sh",
    "package.sh",
    "pictures.sh",
    "prose.py",
    "reuse.txt",
    "sparse.sh",
    "ssd-demo.sh",
    "terminal-svg.py",
    "test.sh",
    "test-install.sh",
    "test-kernels.sh",
    "test-kernels-rows.sh",
    "upstream-bugs.sh",
    "versions.sh",
    "vgpu-cost.sh",
    "wheel.sh",
    "workloads.sh",
];

/// Scripts that boot a command, and name programs only in what they say of themselves.
const BOOTS: &[&str] = &["scripts/vm.sh", "scripts/ssd.sh"];

/// What says which programs and packages the machine has.
const INSTALLED: &[&[&str]] = &[
    &["dpkg-query", "-W"],
    &["cargo", "--version", "--verbose"],
    &["rustc", "--version", "--verbose"],
    &["cargo", "install", "--list"],
    &["python3", "-m", "pip", "freeze"],
    &["python3", "-VV"],
    &["uname", "-r"],
];

/// Finds the keys of parts, and remembers what it has asked and read on the way.
pub struct Inputs<'a> {
    setting: &'a Setting,
    asked: RefCell<HashMap<String, String>>,
    hashes: RefCell<HashMap<String, (SystemTime, u64, String)>>,
}

impl<'a> Inputs<'a> {
    /// Looks into the checkout of this setting.
    pub fn new(setting: &'a Setting) -> Inputs<'a> {
        Inputs {
            setting,
            asked: RefCell::default(),
            hashes: RefCell::default(),
        }
    }

    /// The key for all that goes into a part; nothing if its passing is not remembered.
    pub fn key(&self, part: &Part, known: &[Known]) -> Option<String> {
        match part.how {
            How::Lane => self.of_lane(part, known),
            How::Alone | How::Beside if part.judges => self.of_checkout(part, known),
            How::Alone | How::Beside => None,
        }
    }

    /// The key for the whole checkout, the packages and tools of the machine, and what the part may skip.
    ///
    /// There is none without git, which tells sources from what was built.
    fn of_checkout(&self, part: &Part, known: &[Known]) -> Option<String> {
        let setting = self.setting.with(&part.env);
        if setting.get("UVM_TEST_SEED") == Some("new") {
            return None;
        }
        let listed = ["git", "ls-files", "-co", "--exclude-standard"];
        let files: Vec<String> = self
            .setting
            .said(&listed)?
            .lines()
            .map(str::to_owned)
            .collect();
        let mut text = String::new();
        for (file, hash) in files.iter().zip(self.hashed(&files)?) {
            let _ = writeln!(text, "{hash} {file}");
        }
        for argv in INSTALLED {
            text += &self.ask(self.setting, argv);
        }
        let tools = self.setting.cache.join("tools/bin").display().to_string();
        text += &self.ask(self.setting, &["ls", &tools]);
        let does = |name: &str, value: &str| counts(name, value) || counts_on_the_host(name, value);
        sum(text, &setting, does, part, known)
    }

    /// The key for all that goes into a lane: its sources as they are now, the kernel and its compilers,
    /// QEMU, the settings that `vm.sh` reads, and what it may skip.
    ///
    /// There is none where nobody knows what goes in: another kernel's folder, another driver's source,
    /// or an order by a seed that will be drawn.
    fn of_lane(&self, part: &Part, known: &[Known]) -> Option<String> {
        let setting = self.setting.with(&part.env);
        let order = (setting.get("VGPU_ORDER"), setting.get("VGPU_SEED"));
        if setting.get("UVM_SRC").or(setting.get("KDIR")).is_some()
            || order == (Some("adversarial"), None)
        {
            return None;
        }
        let said = self.said_by(part);
        let mut text = self.crates(&said);
        text += &self.workspace();
        let files: Vec<String> = self.files(&said).into_iter().collect();
        for (file, hash) in files.iter().zip(self.hashed(&files)?) {
            let _ = writeln!(text, "{hash} {file}");
        }
        text += &self.machine(&setting);
        sum(text, &setting, counts, part, known)
    }

    /// All that a lane's command says: its words, and the text of the scripts that these name.
    fn said_by(&self, part: &Part) -> String {
        let mut said = part.command.join(" ");
        for script in part.scripts() {
            if !BOOTS.contains(&script.as_str()) {
                let text = std::fs::read_to_string(self.setting.top.join(&script));
                said = said + "\n" + &text.unwrap_or_default();
            }
        }
        said
    }

    /// The sources of the modules, and of the programs that are named in what the lane's command says.
    fn files(&self, said: &str) -> BTreeSet<String> {
        let mut of = vec![
            "Kbuild",
            "include",
            "src",
            "tests/vgpu",
            "tests/kselftest",
            "scripts",
        ];
        of.push("tests/suite");
        let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
        if says(&["kselftest", "workloads"]) || self.links_library(said) {
            of.extend(["userlib", "sim/plan"]);
        }
        if says(&["workloads"]) {
            of.extend(["tests/workloads", "sim"]);
        }
        // The program `policy` has what moves at least from there.
        if says(&["release/policy"]) {
            of.push("sim/programs");
        }
        if says(&["-p uvmsim"]) {
            of.push("sim");
        }
        if says(&["tests/panic"]) {
            of.push("tests/panic");
        }
        if says(&["uvm-dnn"]) {
            of.extend(["tests/dnn", "sim", "userlib"]);
        }
        let mut files: BTreeSet<String> = self
            .listed(&of)
            .into_iter()
            .filter(|file| is_input(file, said))
            .collect();
        files.extend(scripts_in(said));
        files
    }

    /// Says whether a program of the suite that the command names has the user library linked into it.
    fn links_library(&self, said: &str) -> bool {
        let sources = self.listed(&["tests/suite/src"]);
        let mut sources = sources.iter().filter(|file| is_input(file, said));
        sources.any(|file| {
            let text = std::fs::read_to_string(self.setting.top.join(file));
            text.is_ok_and(|text| text.contains("uvmrust"))
        })
    }

    /// The files below some folders: those that git knows or would take, or all where there is no git.
    fn listed(&self, of: &[&str]) -> Vec<String> {
        let git = ["git", "ls-files", "-co", "--exclude-standard", "--"];
        let argv: Vec<&str> = git.iter().chain(of).copied().collect();
        if let Some(listed) = self.setting.said(&argv) {
            return listed.lines().map(str::to_owned).collect();
        }
        let mut files = Vec::new();
        for name in of {
            walk(&self.setting.top, name, &mut files);
        }
        files
    }

    /// The versions of all crates in the programs that the command may run.
    fn crates(&self, said: &str) -> String {
        let mut argv = vec![
            "cargo",
            "tree",
            "--locked",
            "--prefix",
            "none",
            "-e",
            "normal,build",
        ];
        argv.extend(["-p", "uvm-suite"]);
        if said.contains("workloads") {
            argv.extend(["-p", "uvm-workloads"]);
        }
        if said.contains("uvm-dnn") {
            argv.extend(["-p", "uvm-dnn"]);
        }
        if said.contains("-p uvmsim") {
            argv.extend(["-p", "uvmsim"]);
        }
        if said.contains("uvmrun") {
            argv.extend(["-p", "uvmrun", "-p", "uvmrust-preload", "-p", "uvmsim"]);
        }
        let tree = self.ask(self.setting, &argv);
        let lines: BTreeSet<&str> = tree
            .lines()
            .map(|line| line.split(" (/").next().unwrap_or(line))
            .collect();
        let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            return std::fs::read_to_string(self.setting.top.join("Cargo.lock"))
                .unwrap_or_default();
        }
        lines.join("\n") + "\n"
    }

    /// How the workspace has programs compiled. Who else is in it, and lints, change no program.
    fn workspace(&self) -> String {
        let toml = std::fs::read_to_string(self.setting.top.join("Cargo.toml")).unwrap_or_default();
        let mut kept = String::new();
        let mut until: Option<&str> = None;
        for line in toml.lines() {
            if let Some(end) = until {
                if line.starts_with(end) && (!end.is_empty() || line.is_empty()) {
                    until = None;
                }
            } else if line.starts_with("members = [") {
                until = Some("]");
            } else if line.starts_with("[workspace.lints") {
                until = Some("");
            } else {
                kept.push_str(line);
                kept.push('\n');
            }
        }
        kept
    }

    /// The kernel's source, the compilers and QEMU.
    fn machine(&self, setting: &Setting) -> String {
        let series = setting.or("KERNEL_SERIES", "6.12");
        // `make demo` does without the other kernel's source, which `make test` installs.
        let mut text = if setting.get("KERNEL") == Some("stock") {
            self.ask(setting, &["scripts/kernel.sh", "stock"])
        } else {
            self.ask(
                setting,
                &["dpkg-query", "-W", &format!("linux-source-{series}")],
            )
        };
        for program in ["rustc", "gcc", "clang", "qemu-system-x86_64"] {
            text += &self.ask(setting, &[program, "--version"]);
        }
        text
    }

    /// What a command prints, asked once.
    fn ask(&self, setting: &Setting, argv: &[&str]) -> String {
        let question = argv.join(" ");
        if let Some(answer) = self.asked.borrow().get(&question) {
            return answer.clone();
        }
        // What fails now may have been installed when the next lane asks.
        let Some(answer) = setting.said(argv) else {
            return String::new();
        };
        self.asked.borrow_mut().insert(question, answer.clone());
        answer
    }

    /// The sums of files, each read again only if its time or its size is another; nothing if a file
    /// that is there cannot be read.
    fn hashed(&self, files: &[String]) -> Option<Vec<String>> {
        let mut hashes = self.hashes.borrow_mut();
        let mut stale = Vec::new();
        let state = |file: &str| {
            let data = std::fs::metadata(self.setting.top.join(file)).ok()?;
            Some((data.modified().ok()?, data.len()))
        };
        for file in files {
            let Some((time, size)) = state(file) else {
                continue;
            };
            if hashes
                .get(file)
                .is_none_or(|(t, s, _)| (*t, *s) != (time, size))
            {
                stale.push((file.as_str(), time, size));
            }
        }
        for some in stale.chunks(500) {
            let mut argv = vec!["sha256sum", "--"];
            argv.extend(some.iter().map(|(file, ..)| file));
            let sums = self.setting.said(&argv)?;
            for ((file, time, size), line) in some.iter().zip(sums.lines()) {
                let hash = line.split(' ').next().unwrap_or("").to_owned();
                hashes.insert((*file).to_owned(), (*time, *size, hash));
            }
        }
        let known = |file: &String| match state(file).and_then(|_| hashes.get(file)) {
            Some((_, _, hash)) => hash.clone(),
            None => "gone".to_owned(),
        };
        Some(files.iter().map(known).collect())
    }
}

/// Says whether a file of those folders counts for a lane whose command says this.
fn is_input(file: &str, said: &str) -> bool {
    if let Some(script) = file.strip_prefix("scripts/") {
        return !NOT_OF_A_LANE.contains(&script) && !script.starts_with("sim-");
    }
    if let Some(program) = file.strip_prefix("tests/suite/src/bin/") {
        let program = program.split('/').next().unwrap_or(program);
        return said.contains(program.strip_suffix(".rs").unwrap_or(program));
    }
    !file.ends_with(".md") && !is_hosts(file)
}

/// Says whether a file is Rust's own tests or measurements, which are compiled for the host only.
fn is_hosts(file: &str) -> bool {
    let folders = ["src/", "tests/vgpu/", "userlib/", "sim/"];
    let Some(rest) = folders.iter().find_map(|folder| file.strip_prefix(folder)) else {
        return file.starts_with("tests/suite/tests/");
    };
    let mut names: Vec<&str> = rest.split('/').skip(1).collect();
    let last = names.pop();
    last == Some("tests.rs")
        || names
            .iter()
            .any(|n| ["tests", "benches", "examples"].contains(n))
}

/// Says whether an option that is set changes what happens in a VM.
fn counts(name: &str, value: &str) -> bool {
    const NAMES: &[&str] = &[
        "DRIVER",
        "VIDMEM",
        "GPU",
        "GPUS",
        "RELEASE",
        "KERNEL",
        "ICOUNT",
        "NOLOAD",
        "QEMU_OPTS",
        "UVM_VERSION",
        "UVM_PARAMS",
        "UVM_RUST_MASKS",
        "UVM_RUST_KERNEL",
        "UVM_RUST_WHOLE",
        "VGPU_PARAMS",
        "VGPU_ORDER",
        "VGPU_SEED",
    ];
    !value.is_empty() && (NAMES.contains(&name) || name.starts_with("VM_"))
}

/// Says whether a variable changes what a part on the host finds. Where something lies, and how long it takes to
/// compile, does not.
fn counts_on_the_host(name: &str, value: &str) -> bool {
    const CHANGE_NOTHING: &[&str] = &[
        "CARGO_INCREMENTAL",
        "UVM_RUST_CACHE",
        "UVM_RUST_XTASK",
        "UVM_BUILT",
        "UVM_TIMES",
    ];
    const NAMES: &[&str] = &[
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTUP_TOOLCHAIN",
        "PYTHON",
        "PYTHONPATH",
    ];
    const STARTS: &[&str] = &["UVM", "CARGO", "CUDA", "G10", "LD_", "MIRI"];
    let is_ours = NAMES.contains(&name) || STARTS.iter().any(|start| name.starts_with(start));
    !value.is_empty() && is_ours && !CHANGE_NOTHING.contains(&name)
}

/// The scripts below `tests/parts` that a text names; what they do is not in `scripts/`.
pub fn scripts_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || "/.-_".contains(c)));
    words
        .filter(|w| w.starts_with("tests/parts/") && w.ends_with(".sh"))
        .map(str::to_owned)
        .collect()
}

/// Collects the files below a folder, without those that builds make; or the file of that name.
fn walk(top: &Path, name: &str, files: &mut Vec<String>) {
    let path = top.join(name);
    if path.is_file() {
        files.push(name.to_owned());
    }
    let Ok(entries) = std::fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        let entry = entry.file_name().to_string_lossy().into_owned();
        if entry != "target" {
            walk(top, &format!("{name}/{entry}"), files);
        }
    }
}

/// The key for what a part is made of, the options that count for it, what it may skip, and its command.
fn sum(
    mut text: String,
    setting: &Setting,
    does: impl Fn(&str, &str) -> bool,
    part: &Part,
    known: &[Known],
) -> Option<String> {
    for (name, value) in setting.env().iter().filter(|(n, v)| does(n, v)) {
        let _ = writeln!(text, "{name}={value}");
    }
    let _ = writeln!(
        text,
        "{known:?}\n{} {:?} {:?}",
        part.name, part.env, part.command
    );
    sha256(&text)
}

/// The first 32 digits of a text's sum; nothing if there is no program to add it up.
fn sha256(text: &str) -> Option<String> {
    let mut command = Command::new("sha256sum");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(text.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    let sum = String::from_utf8(output.stdout).ok()?;
    sum.get(..32).map(str::to_owned)
}

#[cfg(test)]
#[path = "inputs/tests.rs"]
mod tests;
