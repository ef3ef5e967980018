// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The other versions of NVIDIA's driver: `make test-versions`.

use super::{programs, vm, SUITE};
use crate::part::Part;
use crate::setting::Setting;

/// A tree in `UVM_SRC`, as `tests/parts/trees.sh` describes it.
struct Tree {
    /// What its parts are called: "versions/VERSION".
    name: String,
    /// "whole", "part" or "unknown": how much of ours is built into it.
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
    } else {
        parts.extend(run(&trees));
    }
    parts.extend(tags(setting));
    parts
}

/// Each release that `tests/release-tags` names is asked whether the hooks fit, and ours is built from those at which
/// a fact turns.
fn tags(setting: &Setting) -> Vec<Part> {
    let versions = "scripts/versions.sh";
    let mut parts = vec![Part::alone("versions/tags", &[versions, "hooks"]).unless(no_releases)];
    let flips = setting.said(&[versions, "flips"]).unwrap_or_default();
    for tag in flips.lines() {
        let build = Part::alone(
            &format!("versions/tags/{tag}"),
            &["tests/parts/build-tag.sh", tag],
        );
        parts.push(build.unless(no_releases));
    }
    parts
}

/// Says why git has no releases to ask, if so.
fn no_releases(setting: &Setting) -> Option<String> {
    let ask =
        "why=$(scripts/versions.sh source 2>&1 >/dev/null) || tail -n 1 <<<\"${why#*error: }\"";
    let said = setting.said(&["bash", "-c", ask]).unwrap_or_default();
    let why = said.trim();
    (!why.is_empty()).then(|| why.to_owned())
}

/// The trees that are given, on the software GPU.
fn run(trees: &[Tree]) -> Vec<Part> {
    let mut parts = Vec::new();
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
    if tree.ours == "whole" {
        let rust = [source, "DRIVER=rust", long];
        parts.extend([
            Part::vm(&format!("{name}/ours/ladder"), &rust, &ladder),
            Part::vm(
                &format!("{name}/ours/discard"),
                &rust,
                &format!("{SUITE}/discard"),
            ),
        ]);
    }
    parts
}
