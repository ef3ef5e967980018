// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The other versions of NVIDIA's driver: `make test-versions`.

use super::{programs, vm, SUITE};
use crate::part::Part;
use crate::setting::Setting;

/// A tree in `UVM_SRC`, as `tests/parts/trees.sh` describes it.
struct Tree {
    /// What its parts are called: "versions/VERSION".
    name: String,
    /// "whole", "native", "refused" or "unknown": whether ours is built into it; "native" is a driver that also
    /// discards by itself. Of one that is refused, the build says why.
    ours: String,
    /// Why it is not known.
    why: String,
    /// "UVM_SRC=" and its place.
    source: String,
}

/// Every upstream version that the seam knows is hooked and built, and each tree in `UVM_SRC`. Whether the
/// hooks fit is seen first: nothing is compiled for that. Of the trees the unmodified driver is built and
/// run, too, on a software GPU with that version's interface, and then ours, where all of it is built.
pub fn parts(setting: &Setting) -> Vec<Part> {
    let mut parts = vec![
        Part::alone(
            "versions/hooks",
            &["tests/scripts/hooks.sh", "535", "550", "555"],
        ),
        Part::alone("build/kernel", &["scripts/kernel.sh"]),
    ];
    for version in ["535", "550", "555"] {
        let driver = ["env", "-u", "UVM_SRC", "scripts/driver.sh", "rust"];
        let part = Part::alone(&format!("versions/{version}"), &driver);
        parts.push(part.with(&[&format!("UVM_VERSION={version}")]));
    }
    let trees = trees(setting);
    parts.extend(trees.iter().map(ours_on));
    if trees.is_empty() {
        let why = "no UVM_SRC: point it to open-gpu-kernel-modules trees";
        parts.push(Part::skipped("versions/given", why.to_owned()));
        return parts;
    }
    let calls = [
        "cargo",
        "test",
        "--quiet",
        "-p",
        "vgpu-client",
        "--test",
        "layout",
    ];
    parts.push(Part::alone("versions/calls", &calls));
    parts.push(programs());
    parts.extend(trees.iter().flat_map(base));
    parts
}

/// `make test-versions` also asks each release that `tests/release-tags` names, where git has them, and builds
/// ours from those at which a fact turns.
pub fn tags(setting: &Setting) -> Vec<Part> {
    let mut parts =
        vec![Part::alone("versions/tags", &["scripts/versions.sh", "hooks"]).unless(no_releases)];
    let flips = setting
        .said(&["scripts/versions.sh", "flips"])
        .unwrap_or_default();
    for tag in flips.lines() {
        let name = format!("versions/tags/{tag}");
        parts.push(Part::alone(&name, &["tests/parts/tag.sh", tag]).unless(no_releases));
    }
    parts
}

/// Says why git has no releases here, in the script's last words.
fn no_releases(setting: &Setting) -> Option<String> {
    refusal(setting, &["scripts/versions.sh", "source"])
}

/// Says why a script fails, in its last words; nothing where it does not.
pub fn refusal(setting: &Setting, argv: &[&str]) -> Option<String> {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    let output = setting.command(&argv).output().ok()?;
    if output.status.success() {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it says nothing").trim();
    Some(last.strip_prefix("error: ").unwrap_or(last).to_owned())
}

/// Describes the trees in `UVM_SRC`, of which there may be several.
fn trees(setting: &Setting) -> Vec<Tree> {
    if setting.get("UVM_SRC").is_none() {
        return Vec::new();
    }
    let said = setting.said(&["tests/parts/trees.sh"]).unwrap_or_default();
    said.lines().filter_map(tree).collect()
}

/// Reads a line "VERSION, OURS, WHY, TREE", with tabs for commas.
fn tree(line: &str) -> Option<Tree> {
    let fields: Vec<&str> = line.splitn(4, '\t').collect();
    let [version, ours, why, tree] = fields[..] else {
        return None;
    };
    Some(Tree {
        name: format!("versions/{version}"),
        ours: ours.to_owned(),
        why: why.trim().to_owned(),
        source: format!("UVM_SRC={tree}"),
    })
}

/// The tree is built with our Rust, where the seam knows it.
fn ours_on(tree: &Tree) -> Part {
    if tree.ours == "unknown" {
        return Part::skipped(&tree.name, tree.why.clone());
    }
    Part::alone(&tree.name, &["scripts/driver.sh", "rust"]).with(&[&tree.source])
}

/// The unmodified driver on the software GPU: NVIDIA's tests say whether that has the interface which this
/// version asks for.
fn base(tree: &Tree) -> Vec<Part> {
    let Tree { name, source, .. } = tree;
    let ladder = format!("{SUITE}/ladder");
    let long = "VM_TIMEOUT=1500";
    let mut parts = vec![
        Part::alone(
            &format!("{name}/modules"),
            &["scripts/driver.sh", "upstream", "vgpu"],
        )
        .with(&[source]),
        Part::vm(
            &format!("{name}/ladder"),
            &[source, "DRIVER=upstream", long],
            &ladder,
        ),
        Part::vm(
            &format!("{name}/ladder-two-gpus"),
            &[&[source.as_str()][..], &vm::two_gpus("DRIVER=upstream")].concat(),
            &vm::two_gpus_ladder(),
        ),
    ];
    // Who runs `make test-versions` with UVM_RUST_WHOLE=0 has that built; these tests ask for all of ours.
    let (whole, native) = ("UVM_RUST_WHOLE=1", tree.ours == "native");
    if tree.ours == "whole" || native {
        let rust = [source, "DRIVER=rust", long, whole];
        let discard = format!("{SUITE}/discard");
        parts.extend([
            Part::vm(&format!("{name}/ours/ladder"), &rust, &ladder),
            Part::vm(&format!("{name}/ours/discard"), &rust, &discard),
        ]);
    }
    // NVIDIA's discard behind our call, and its own rules.
    if native {
        let theirs = "UVM_PARAMS=uvm_rust_discard=0";
        let settings = [source, "DRIVER=rust", long, whole, theirs];
        let name = format!("{name}/ours/discard-native");
        parts.push(Part::vm(&name, &settings, &format!("{SUITE}/discard")));
    }
    parts
}
