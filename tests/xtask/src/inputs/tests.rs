// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::scratch::Scratch;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

const FILES: &[&str] = &[
    "Kbuild",
    "Cargo.lock",
    "include/uapi/vgpu.h",
    "scripts/vm.sh",
    "scripts/test.sh",
    "scripts/modules.sh",
    "scripts/new.sh",
    "scripts/sim-speed.sh",
    "src/nvidia-uvm-c/base/uvm_rust_seam.c",
    "src/uvm_rust/policy/evict.rs",
    "src/uvm_rust/policy/evict/tests.rs",
    "src/uvm_rust/policy/README.md",
    "tests/vgpu/core/gpu.rs",
    "tests/vgpu/core/host/tests.rs",
    "tests/vgpu/core/examples/cost.rs",
    "tests/kselftest/uvm_basic.c",
    "tests/suite/src/rig.rs",
    "tests/suite/src/bin/ladder/main.rs",
    "tests/suite/src/bin/loops.rs",
    "tests/suite/src/bin/library/main.rs",
    "tests/suite/src/bin/flash/queue.rs",
    "tests/suite/tests/this.rs",
    "tests/dnn/src/main.rs",
    "tests/panic/main.c",
    "tests/workloads/src/main.rs",
    "tests/xtask/src/main.rs",
    "userlib/uvmrust/src/lib.rs",
    "sim/zoo/src/lib.rs",
    "sim/plan/src/lib.rs",
    "sim/programs/src/lib.rs",
    "userlib/uvmrust/tests/fork.rs",
    "userlib/uvmrust/src/backend/tests.rs",
    "sim/cli/tests/cli.rs",
];
const CARGO: &str = "[workspace]
members = [
    \"tests/suite\",
]
[workspace.lints.rust]
missing_docs = \"warn\"

[profile.release]
debug = 1
";

/// A small tree that is made up, with programs of its own in the place of the machine's.
struct Tree {
    folder: Scratch,
    env: BTreeMap<String, String>,
}

impl Tree {
    fn new() -> Tree {
        let folder = Scratch::new("inputs");
        for file in FILES {
            folder.write(file, file);
        }
        folder.write("Cargo.toml", CARGO);
        for program in ["library/main.rs", "flash/queue.rs"] {
            folder.write(
                &format!("tests/suite/src/bin/{program}"),
                "use uvmrust::Arena;",
            );
        }
        folder.write(
            "scripts/record-demo.sh",
            "target/release/uvm-dnn; uvmrun --record x",
        );
        folder.write("tests/parts/loops.sh", "scripts/vm.sh 'suite/loops'");
        let bin = folder.path().join("bin").display().to_string();
        let env = BTreeMap::from([("PATH".to_owned(), format!("{bin}:/usr/bin:/bin"))]);
        let tree = Tree { folder, env };
        tree.program("dpkg-query", "echo none");
        tree.program("cargo", "exit 1");
        tree.program("qemu-system-x86_64", "echo QEMU 10");
        tree
    }

    fn program(&self, name: &str, script: &str) {
        self.folder
            .write(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        let path = self.folder.path().join("bin").join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, argv: &[&str]) -> Option<String> {
        Setting::new(self.folder.path().to_owned(), self.env.clone()).said(argv)
    }

    fn key_with(&self, env: &[(&str, &str)], part: &Part, known: &[Known]) -> Option<String> {
        let mut setting = Setting::new(self.folder.path().to_owned(), self.env.clone());
        for (name, value) in env {
            setting.set(name, value);
        }
        Inputs::new(&setting).key(part, known)
    }

    fn key(&self, part: &Part) -> String {
        self.key_with(&[], part, &[]).unwrap()
    }

    /// Says whether another file of that name runs the lane again.
    fn again(&self, file: &str, part: &Part) -> bool {
        let before = self.key(part);
        self.folder
            .write(file, &(self.folder.read(file) + "changed"));
        before != self.key(part)
    }
}

fn vm(command: &str) -> Part {
    Part::vm("r/s", &["DRIVER=rust"], command)
}

fn loops() -> Part {
    Part::lane("r/loops", &["tests/parts/loops.sh"])
}

#[test]
fn what_runs_a_lane_again() {
    let tree = Tree::new();
    let ladder = vm("target/release/ladder");
    let dnn = vm("target/release/uvm-dnn run deepum");
    let record = Part::lane("r/record", &["scripts/record-demo.sh"]);
    let library = vm("target/release/library");
    for (file, part) in [
        ("Kbuild", &ladder),
        ("Cargo.lock", &ladder),
        ("include/uapi/vgpu.h", &ladder),
        ("scripts/vm.sh", &ladder),
        ("scripts/new.sh", &ladder),
        ("src/nvidia-uvm-c/base/uvm_rust_seam.c", &ladder),
        ("src/uvm_rust/policy/evict.rs", &ladder),
        ("tests/vgpu/core/gpu.rs", &ladder),
        ("tests/suite/src/rig.rs", &ladder),
        ("tests/suite/src/bin/ladder/main.rs", &ladder),
        ("tests/suite/src/bin/loops.rs", &loops()),
        ("tests/parts/loops.sh", &loops()),
        ("userlib/uvmrust/src/lib.rs", &library),
        ("sim/plan/src/lib.rs", &library),
        ("sim/programs/src/lib.rs", &vm("target/release/policy")),
        ("sim/zoo/src/lib.rs", &vm("cargo run -p uvmsim")),
        ("userlib/uvmrust/src/lib.rs", &vm("target/release/flash")),
        (
            "userlib/uvmrust/src/lib.rs",
            &vm("make -C tests/kselftest run"),
        ),
        ("sim/zoo/src/lib.rs", &dnn),
        ("tests/dnn/src/main.rs", &record),
        ("userlib/uvmrust/src/lib.rs", &record),
        ("sim/zoo/src/lib.rs", &record),
        ("scripts/record-demo.sh", &record),
        (
            "tests/workloads/src/main.rs",
            &vm("target/release/workloads"),
        ),
        ("tests/panic/main.c", &vm("tests/panic/panic.sh")),
        ("Cargo.toml", &ladder),
    ] {
        assert!(tree.again(file, part), "{file} {:?}", part.command);
    }
}

#[test]
fn what_does_not() {
    let tree = Tree::new();
    let ladder = vm("target/release/ladder");
    for file in [
        "scripts/test.sh",
        "scripts/modules.sh",
        "scripts/sim-speed.sh",
        "src/uvm_rust/policy/evict/tests.rs",
        "src/uvm_rust/policy/README.md",
        "tests/vgpu/core/host/tests.rs",
        "tests/vgpu/core/examples/cost.rs",
        "tests/dnn/src/main.rs",
        "tests/panic/main.c",
        "tests/parts/loops.sh",
        "tests/suite/tests/this.rs",
        "tests/workloads/src/main.rs",
        "tests/xtask/src/main.rs",
        "userlib/uvmrust/src/lib.rs",
        "sim/zoo/src/lib.rs",
        "sim/programs/src/lib.rs",
    ] {
        assert!(!tree.again(file, &ladder), "{file}");
    }
    assert!(!tree.again(
        "tests/suite/src/bin/ladder/main.rs",
        &vm("target/release/random")
    ));
    let library = vm("target/release/library");
    assert!(!tree.again("userlib/uvmrust/tests/fork.rs", &library));
    assert!(!tree.again("userlib/uvmrust/src/backend/tests.rs", &library));
    assert!(!tree.again(
        "sim/cli/tests/cli.rs",
        &vm("target/release/uvm-dnn run deepum")
    ));
}

#[test]
fn files_that_come_and_go() {
    let tree = Tree::new();
    let ladder = vm("target/release/ladder");
    let before = tree.key(&ladder);
    tree.folder.write("src/uvm_rust/new.rs", "");
    let more = tree.key(&ladder);
    assert_ne!(before, more);
    tree.folder.remove("src/uvm_rust/new.rs");
    assert_eq!(before, tree.key(&ladder));
    tree.folder.write("src/uvm_rust/target/made.o", "");
    assert_eq!(before, tree.key(&ladder));
}

#[test]
fn members_and_lints_of_the_workspace_change_no_program() {
    let tree = Tree::new();
    let before = tree.key(&loops());
    let more = CARGO.replace("members = [", "members = [\n    \"userlib/new\",");
    tree.folder
        .write("Cargo.toml", &more.replace("missing_docs", "unused"));
    assert_eq!(before, tree.key(&loops()));
    tree.folder
        .write("Cargo.toml", &CARGO.replace("debug = 1", "debug = 2"));
    assert_ne!(before, tree.key(&loops()));
}

#[test]
fn another_command_setting_or_skip_is_another_lane() {
    let tree = Tree::new();
    let before = tree.key(&loops());
    assert_ne!(
        before,
        tree.key(&Part::lane(
            "r/loops",
            &["tests/parts/loops.sh", "--seed", "7"]
        ))
    );
    assert_ne!(
        before,
        tree.key(&Part::lane("r/other", &["tests/parts/loops.sh"]))
    );
    assert_ne!(before, tree.key(&loops().with(&["KERNEL=debug"])));
    let known = [Known {
        times: Some(1),
        pattern: "x".to_owned(),
    }];
    assert_ne!(Some(&before), tree.key_with(&[], &loops(), &known).as_ref());
    for (name, value) in [
        ("UVM_PARAMS", "uvm_rust_evict=0"),
        ("VGPU_ORDER", "kind"),
        ("VGPU_SEED", "2"),
        ("VM_CPU", "max"),
        ("GPUS", "2"),
    ] {
        assert_ne!(
            Some(&before),
            tree.key_with(&[(name, value)], &loops(), &[]).as_ref(),
            "{name}"
        );
    }
    let same = [
        ("NOBODY_KNOWS", "1"),
        ("UVM_PARAMS", ""),
        ("UVM_TIMES", "x"),
    ];
    assert_eq!(Some(before), tree.key_with(&same, &loops(), &[]));
}

#[test]
fn nobody_knows_a_seed_that_is_drawn_or_another_kernel() {
    let tree = Tree::new();
    let adversarial = ("VGPU_ORDER", "adversarial");
    assert_eq!(tree.key_with(&[adversarial], &loops(), &[]), None);
    assert!(tree
        .key_with(&[adversarial, ("VGPU_SEED", "1")], &loops(), &[])
        .is_some());
    assert_eq!(tree.key_with(&[("UVM_SRC", "/x")], &loops(), &[]), None);
    assert_eq!(tree.key_with(&[("KDIR", "/x")], &loops(), &[]), None);
    assert_eq!(
        tree.key_with(&[], &loops().with(&["UVM_SRC=/x"]), &[]),
        None
    );
}

#[test]
fn the_source_of_the_kernel_counts_where_it_is_built() {
    let tree = Tree::new();
    tree.program("dpkg-query", "echo 6.12.1");
    let stock = loops().with(&["KERNEL=stock"]);
    let before = (tree.key(&loops()), tree.key(&stock));
    tree.program("dpkg-query", "echo 6.12.117");
    assert_ne!(before.0, tree.key(&loops()));
    assert_eq!(before.1, tree.key(&stock));
}

#[test]
fn versions_of_crates_count_and_another_place_of_the_checkout_does_not() {
    let tree = Tree::new();
    tree.program(
        "cargo",
        "echo 'uvm-suite v1 (/a/b)'; echo 'libc v2'; echo \"$@\"",
    );
    let before = tree.key(&loops());
    tree.program(
        "cargo",
        "echo 'uvm-suite v1 (/c/d)'; echo 'libc v2'; echo \"$@\"",
    );
    assert_eq!(before, tree.key(&loops()));
    // The lock file has crates of others, too, and counts only where cargo tells nothing.
    tree.folder.write("Cargo.lock", "other");
    assert_eq!(before, tree.key(&loops()));
    tree.program(
        "cargo",
        "echo 'uvm-suite v1 (/c/d)'; echo 'libc v3'; echo \"$@\"",
    );
    assert_ne!(before, tree.key(&loops()));
}

#[test]
fn a_file_is_read_again_when_it_changes() {
    let tree = Tree::new();
    let setting = Setting::new(tree.folder.path().to_owned(), tree.env.clone());
    let inputs = Inputs::new(&setting);
    let before = inputs.key(&loops(), &[]);
    assert_eq!(before, inputs.key(&loops(), &[]));
    tree.folder.write("Kbuild", "other");
    assert_ne!(before, inputs.key(&loops(), &[]));
}

#[test]
fn nobody_knows_a_lane_of_which_a_file_cannot_be_read() {
    let tree = Tree::new();
    let setting = Setting::new(tree.folder.path().to_owned(), tree.env.clone());
    let inputs = Inputs::new(&setting);
    tree.program("sha256sum", "exit 1");
    assert_eq!(inputs.key(&loops(), &[]), None);
    tree.folder.remove("bin/sha256sum");
    assert_eq!(inputs.key(&loops(), &[]), Some(tree.key(&loops())));
}

#[test]
fn a_version_that_cannot_be_told_yet_is_asked_again() {
    let tree = Tree::new();
    let setting = Setting::new(tree.folder.path().to_owned(), tree.env.clone());
    let inputs = Inputs::new(&setting);
    tree.program("dpkg-query", "exit 1");
    let before = inputs.key(&loops(), &[]);
    tree.program("dpkg-query", "echo 6.12.1");
    assert_ne!(before, inputs.key(&loops(), &[]));
}

/// A tree in a repository of git's, in which one file is ignored.
fn checkout() -> Tree {
    let tree = Tree::new();
    tree.folder.write(".gitignore", "/bin\n/target\n");
    for program in ["rustc", "python3"] {
        tree.program(program, "echo 1");
    }
    let git = tree.command(&["git", "init", "--quiet"]);
    assert!(git.is_some(), "git init");
    tree
}

#[test]
fn a_part_that_judges_is_made_of_the_whole_checkout() {
    let tree = checkout();
    let part = Part::beside("host/cargo-test", &["cargo", "test"]).judging();
    for file in [
        "README.md",
        "tests/xtask/src/main.rs",
        "scripts/test.sh",
        "new",
    ] {
        tree.folder.write(file, "");
        assert!(tree.again(file, &part), "{file}");
    }
    tree.folder.write("target/debug/x", "");
    assert!(!tree.again("target/debug/x", &part));
    let before = tree.key(&part);
    tree.folder.remove("new");
    assert_ne!(tree.key(&part), before);
}

#[test]
fn a_part_that_judges_runs_again_on_another_machine() {
    let tree = checkout();
    let part = Part::alone("host/docs", &["cargo", "doc"]).judging();
    let before = tree.key(&part);
    assert_eq!(tree.key(&part), before);
    for (program, script) in [
        ("dpkg-query", "echo another"),
        ("rustc", "echo 2"),
        ("cargo", "echo 2"),
        ("python3", "echo 2"),
    ] {
        let before = tree.key(&part);
        tree.program(program, script);
        assert_ne!(tree.key(&part), before, "{program}");
    }
    let set = |name, value| tree.key_with(&[(name, value)], &part, &[]);
    let before = set("UVM_RUST_XTASK", "/somewhere");
    assert_eq!(set("RUST_BACKTRACE", "1"), before);
    assert_eq!(set("CARGO_INCREMENTAL", "0"), before);
    for name in [
        "UVM_TEST_SEED",
        "RUSTFLAGS",
        "PYTHONPATH",
        "CUDA_HOME",
        "VM_CPU",
    ] {
        assert_ne!(set(name, "3"), before, "{name}");
    }
    assert_eq!(set("UVM_TEST_SEED", "new"), None);
    let known = Known {
        times: None,
        pattern: "x".to_owned(),
    };
    assert_ne!(tree.key_with(&[], &part, &[known]), before);
}

#[test]
fn what_makes_something_or_is_in_no_repository_is_not_remembered() {
    let tree = checkout();
    let makes = Part::alone("build/programs", &["cargo", "build"]);
    assert_eq!(tree.key_with(&[], &makes, &[]), None);
    let judges = Part::alone("host/docs", &["cargo", "doc"]).judging();
    assert_eq!(
        tree.key_with(&[("GIT_DIR", "/nowhere")], &judges, &[]),
        None
    );
}
